//! Decides whether events for an address would be refused for good, before anything is sent there.
//!
//! In: a URL as a target has it. Out: why nothing would be sent there, or nothing where that is not known. It judges by the
//! same guard as each delivery, over look-ups of its own: few at a time, each waited for a moment only, so that nobody waits for
//! a name server that hangs.

use std::time::Duration;

use ::http::Uri;

use crate::TargetOptions;
use crate::address::{AddressRefused, Guard, GuardedNames};
use crate::check::{is_known_server, not_known_server};
use crate::kafka_logins::KafkaLogins;
use crate::names::{Names, NoAddress};

/// Names that are looked up at once.
const LOOKUPS_MAX: usize = 8;
/// For how long a name is waited for.
const PATIENCE: Duration = Duration::from_millis(700);

/// Why nothing would be sent to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Deliveries may not go there.
    Refused(String),
    /// There is no such name.
    Unknown(String),
}

/// The guard of deliveries, to be asked. Clones share look-ups.
#[derive(Clone, Debug)]
pub struct Look {
    names: GuardedNames,
    sqs_endpoints: Option<Vec<String>>,
    kafka_servers: Option<Vec<String>>,
    kafka_logins: KafkaLogins,
}

impl Look {
    /// As targets with these options would judge.
    pub fn new(options: &TargetOptions) -> Self {
        let guard = Guard::new(options.allow_private_addresses.clone());
        let names = Names::new(options.lookup.clone(), LOOKUPS_MAX, PATIENCE);
        Self {
            names: GuardedNames { guard, names },
            sqs_endpoints: options.sqs_endpoints.clone(),
            kafka_servers: options.kafka_servers.clone(),
            kafka_logins: options.kafka_logins.clone(),
        }
    }

    /// Why nothing would be sent to a URL, at the charge of a namespace. What is no URL is for others to refuse.
    pub async fn at(&self, url: &str, namespace: &str) -> Option<Fault> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.host()?;
        if let Err(refused) = self.names.guard.check_host(host) {
            return Some(Fault::Refused(refused.to_string()));
        }
        if host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok() {
            return None;
        }
        let error = self.names.resolve(host, namespace).await.err()?;
        if let Some(refused) = error.downcast_ref::<AddressRefused>() {
            return Some(Fault::Refused(refused.to_string()));
        }
        let unknown = error.downcast_ref::<NoAddress>().filter(|error| error.is_answer())?;
        Some(Fault::Unknown(unknown.to_string()))
    }

    /// As [`Self::at`], for an SQS endpoint that a target names.
    pub async fn at_endpoint(&self, url: &str, namespace: &str) -> Option<Fault> {
        let bare = |url: &str| url.trim_end_matches('/').to_ascii_lowercase();
        match &self.sqs_endpoints {
            Some(known) if !known.iter().any(|one| bare(one) == bare(url)) => {
                Some(Fault::Refused(format!("{url} is not among the endpoints of the setting sqs_endpoints")))
            }
            _ => self.at(url, namespace).await,
        }
    }

    /// As [`Self::at`], for `host:port` of a Kafka broker that a target names.
    pub async fn at_kafka(&self, server: &str, namespace: &str) -> Option<Fault> {
        match &self.kafka_servers {
            Some(known) if !is_known_server(known, server) => Some(Fault::Refused(not_known_server(server))),
            _ => match self.kafka_logins.fault_at(server, namespace) {
                Some(why) => Some(Fault::Refused(why)),
                None => self.at(&format!("kafka://{server}/"), namespace).await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io;
    use std::net::IpAddr;

    use super::*;
    use crate::Lookup;

    /// `public` is a public name, `private` one that leads inside, `hangs` never answers, and no other name exists.
    fn look() -> Look {
        let lookup = Lookup::by(|name| match name {
            "public" => Ok(vec![IpAddr::from([1, 1, 1, 1])]),
            "private" => Ok(vec![IpAddr::from([10, 0, 0, 1])]),
            "hangs" => {
                std::thread::sleep(Duration::from_secs(5));
                Ok(vec![IpAddr::from([10, 0, 0, 1])])
            }
            _ => Err(io::Error::other("failed to lookup: Name or service not known")),
        });
        let endpoints = Some(vec!["http://public:4566".to_owned()]);
        let kafka_servers = Some(vec!["public:9092".to_owned(), "private:9092".to_owned()]);
        Look::new(&TargetOptions {
            lookup,
            sqs_endpoints: endpoints,
            kafka_servers,
            ..TargetOptions::default()
        })
    }

    #[tokio::test]
    async fn addresses_are_judged_as_deliveries_are() {
        let look = look();
        for url in
            ["http://1.1.1.1/x", "https://public:8443/", "http://[2606:4700::1111]/", "not a url", "/path"]
        {
            assert_eq!(look.at(url, "a").await, None, "{url}");
        }
        for url in ["http://127.0.0.1:8080/x", "http://[::1]/", "http://private/", "http://169.254.169.254/"]
        {
            let fault = look.at(url, "a").await.unwrap();
            assert!(matches!(&fault, Fault::Refused(why) if why.contains("address")), "{url}: {fault:?}");
        }
        let fault = look.at("http://nowhere.example/", "a").await.unwrap();
        assert!(matches!(&fault, Fault::Unknown(why) if why.contains("nowhere.example")), "{fault:?}");
        assert_eq!(look.at_endpoint("http://public:4566/", "a").await, None);
        let fault = look.at_endpoint("http://other:4566", "a").await.unwrap();
        assert!(matches!(&fault, Fault::Refused(why) if why.contains("sqs_endpoints")), "{fault:?}");
        assert_eq!(look.at_kafka("public:9092", "a").await, None);
        for (server, word) in [("public:9093", "kafka_servers"), ("private:9092", "address")] {
            let fault = look.at_kafka(server, "a").await.unwrap();
            assert!(matches!(&fault, Fault::Refused(why) if why.contains(word)), "{server}: {fault:?}");
        }
    }

    #[tokio::test]
    async fn a_name_server_that_hangs_keeps_nobody() {
        let begun = tollgate_clock::instant_now();
        assert_eq!(look().at("http://hangs/", "a").await, None);
        assert!(begun.elapsed() < PATIENCE * 4, "{:?}", begun.elapsed());
    }
}
