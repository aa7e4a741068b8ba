//! Decides as whom Kafka targets speak to which brokers: the operator's file of clusters, each with TLS or a login.
//!
//! In: the file's text; then a target's brokers and its namespace. Out: how these are spoken to, in the clear where no cluster
//! has them; or why they are not. Invariants: what is not known in the file is refused; the brokers of one target are all spoken
//! to in the same way; a login is used for the namespaces alone that it is for; of one namespace a broker is in one cluster.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};
use tollgate_core::model::KafkaTarget;

use crate::check::is_same_server;
use crate::kafka_login::{
    KAFKA_NO_CERTIFICATE, KafkaAccess, WrittenKafkaLogin, WrittenKafkaTls, kafka_member, text_of,
};

/// The most clusters of a file, and the most brokers and namespaces of one.
const CLUSTERS_MAX: usize = 100;
const SERVERS_MAX: usize = 100;
const NAMESPACES_MAX: usize = 1_000;

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    clusters: Vec<Written>,
}

/// A cluster as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    bootstrap_servers: Vec<String>,
    #[serde(default, deserialize_with = "kafka_member")]
    namespaces: Option<Vec<String>>,
    #[serde(default, deserialize_with = "kafka_member")]
    tls: Option<WrittenKafkaTls>,
    #[serde(default, deserialize_with = "kafka_member")]
    login: Option<WrittenKafkaLogin>,
}

/// How the brokers of Kafka targets are spoken to. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KafkaLogins(Arc<Vec<Cluster>>);

/// A cluster that is not spoken to in the clear without a login.
#[derive(Debug)]
struct Cluster {
    servers: Vec<String>,
    /// Whose schedules may use it; all where absent.
    namespaces: Option<Vec<String>>,
    access: Arc<KafkaAccess>,
}

impl Cluster {
    fn has(&self, server: &str) -> bool {
        self.servers.iter().any(|one| is_same_server(one, server))
    }

    fn is_for(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|all| all.iter().any(|one| one == namespace))
    }

    /// Whether schedules of one namespace may use both.
    fn meets(&self, other: &Self) -> bool {
        match &self.namespaces {
            Some(all) => all.iter().any(|one| other.is_for(one)),
            None => true,
        }
    }
}

impl KafkaLogins {
    /// Those of a file; names of files in it are seen from its folder.
    ///
    /// # Errors
    /// All that is wrong with it, one line each.
    pub fn read(file: &Path) -> Result<Self, Vec<String>> {
        let text = text_of(file).map_err(|said| vec![said])?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let place = |said: String| format!("{}: {said}", file.display());
        Self::parse(&text, folder).map_err(|wrong| wrong.into_iter().map(place).collect())
    }

    fn parse(text: &str, folder: &Path) -> Result<Self, Vec<String>> {
        let options = serde_saphyr::options! { with_snippet: false };
        let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let error = error.without_snippet();
            let line = error.location().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
            vec![format!("{line}{}", UserMessageFormatter.format_message(error))]
        })?;
        let mut wrong = Vec::new();
        let count = file.clusters.len();
        if !(1..=CLUSTERS_MAX).contains(&count) {
            wrong.push(format!("clusters: {count} are not allowed, expected 1 to {CLUSTERS_MAX}"));
        }
        let mut clusters: Vec<Cluster> = Vec::with_capacity(count);
        for (at, written) in file.clusters.into_iter().enumerate() {
            let mut refuse =
                |field: &str, said: String| wrong.push(format!("clusters[{at}].{field}: {said}"));
            let cluster = written.check(folder, &mut refuse);
            for (place, server) in cluster.servers.iter().enumerate() {
                let field = format!("bootstrapServers[{place}]");
                if cluster.servers.iter().take(place).any(|one| is_same_server(one, server)) {
                    refuse(&field, format!("{server:?} is there twice"));
                }
                let mut others = clusters.iter().enumerate();
                if let Some((other, _)) = others.find(|(_, one)| one.has(server) && one.meets(&cluster)) {
                    let said = "and each namespace has one way to speak to a broker";
                    refuse(&field, format!("{server:?} is in clusters[{other}], too, {said}"));
                }
            }
            clusters.push(cluster);
        }
        if wrong.is_empty() { Ok(Self(Arc::new(clusters))) } else { Err(wrong) }
    }

    /// How the brokers of a target are spoken to, of a schedule of a namespace.
    ///
    /// # Errors
    /// Why they are not.
    pub fn of<'s>(
        &self,
        servers: impl IntoIterator<Item = &'s str>,
        namespace: &str,
    ) -> Result<Arc<KafkaAccess>, String> {
        let mut first: Option<(&'s str, Option<usize>)> = None;
        for server in servers {
            let found = self.place_of(server, namespace)?;
            match first {
                None => first = Some((server, found)),
                Some((other, at)) if at != found => {
                    return Err(format!(
                        "`{other}` and `{server}` are not of one cluster of the setting kafka_logins_file"
                    ));
                }
                Some(_) => {}
            }
        }
        let cluster = first.and_then(|(_, at)| self.0.get(at?));
        Ok(cluster.map(|cluster| cluster.access.clone()).unwrap_or_default())
    }

    /// Why a broker is not spoken to, of a schedule of a namespace; nothing where it is.
    pub(crate) fn fault_at(&self, server: &str, namespace: &str) -> Option<String> {
        self.place_of(server, namespace).err()
    }

    /// Each cluster with its place in the file.
    pub fn all(&self) -> impl Iterator<Item = (String, &KafkaAccess)> {
        self.0.iter().enumerate().map(|(at, cluster)| (format!("clusters[{at}]"), &*cluster.access))
    }

    /// Which cluster has a broker, for a namespace; none where no cluster has it.
    fn place_of(&self, server: &str, namespace: &str) -> Result<Option<usize>, String> {
        let mut is_anywhere = false;
        for (at, cluster) in self.0.iter().enumerate().filter(|(_, cluster)| cluster.has(server)) {
            if cluster.is_for(namespace) {
                return Ok(Some(at));
            }
            is_anywhere = true;
        }
        if is_anywhere {
            let said = "is of a cluster of the setting kafka_logins_file that is not for the namespace";
            return Err(format!("`{server}` {said} {namespace}"));
        }
        Ok(None)
    }
}

impl Written {
    fn check(self, folder: &Path, refuse: &mut dyn FnMut(&str, String)) -> Cluster {
        let servers = self.bootstrap_servers;
        if !(1..=SERVERS_MAX).contains(&servers.len()) {
            let said = format!("{} are not allowed, expected 1 to {SERVERS_MAX}", servers.len());
            refuse("bootstrapServers", said);
        }
        for (at, server) in servers.iter().enumerate() {
            let field = format!("bootstrapServers[{at}]");
            if !KafkaTarget::is_server(server) {
                let expected = "a host and a port, such as kafka-1.example:9093 or [::1]:9093";
                refuse(&field, format!("{server:?} is not allowed, expected {expected}"));
            } else if self.tls.is_some() && server.starts_with('[') {
                refuse(&field, format!("{server:?} {KAFKA_NO_CERTIFICATE}"));
            }
        }
        if let Some(namespaces) = &self.namespaces {
            if !(1..=NAMESPACES_MAX).contains(&namespaces.len()) {
                let said = format!("{} are not allowed, expected 1 to {NAMESPACES_MAX}", namespaces.len());
                refuse("namespaces", format!("{said}; all may use it where it is left out"));
            }
            for (at, namespace) in namespaces.iter().enumerate().filter(|(_, one)| !is_namespace(one)) {
                let expected = "1 to 63 characters of a-z, 0-9, ., _ and -";
                let said = format!("{namespace:?} is not allowed, expected {expected}");
                refuse(&format!("namespaces[{at}]"), said);
            }
        }
        if self.tls.is_none() && self.login.is_none() {
            let said =
                "is missing, and so is login; brokers that are in no cluster are spoken to in the clear";
            refuse("tls", said.to_owned());
        }
        let access = KafkaAccess::check((self.tls.as_ref(), self.login.as_ref()), folder, refuse);
        Cluster { servers, namespaces: self.namespaces, access: Arc::new(access) }
    }
}

fn is_namespace(text: &str) -> bool {
    let outer = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(outer)
        && bytes.last().is_some_and(outer)
        && bytes.iter().all(|byte| outer(byte) || b"._-".contains(byte))
}

#[cfg(test)]
mod tests;
