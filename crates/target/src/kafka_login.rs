//! Decides how the brokers of a cluster are spoken to: by TLS or in the clear, with a login or without one.
//!
//! In: the members `tls` and `login` of a file, as they are written. Out: a [`KafkaAccess`], and all that is wrong, each with its
//! field. Invariants: a password is shown nowhere, and `PLAIN`, which sends it as it is, needs TLS; each file that is named could
//! be read, and holds what it should. Builds without Kafka check the same. Not here: what Kafka's client is told
//! (`kafka::plain`).

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

/// The ways to log in.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
const USER_MAX_CHARS: usize = 255;
/// What is said of a broker by its IPv6 address, where there is TLS.
pub const KAFKA_NO_CERTIFICATE: &str = "is not allowed with tls, expected a name: Kafka's client believes no certificate for an address in brackets";

/// `tls` as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenKafkaTls {
    #[serde(default, deserialize_with = "kafka_member")]
    ca_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "kafka_member")]
    certificate_file: Option<PathBuf>,
    #[serde(default, deserialize_with = "kafka_member")]
    key_file: Option<PathBuf>,
}

/// `login` as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenKafkaLogin {
    mechanism: String,
    user: String,
    password_file: PathBuf,
}

/// Reads a member that may be left out. Where it is there it has a value: a `tls:` with nothing behind it must not mean that
/// brokers are spoken to in the clear.
///
/// # Errors
/// Those of the value.
pub fn kafka_member<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// How the brokers of a cluster are spoken to; in the clear and without a login by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KafkaAccess {
    /// By TLS; in the clear where absent.
    pub tls: Option<KafkaTls>,
    /// Who logs in; nobody where absent.
    pub login: Option<KafkaLogin>,
}

/// TLS of a cluster. Names of brokers are checked always.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KafkaTls {
    /// Those who sign the brokers' certificates; the system's where absent.
    pub ca_file: Option<PathBuf>,
    /// The client's own certificate, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Who logs in, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KafkaLogin {
    /// As brokers call it.
    pub mechanism: &'static str,
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: Password,
}

/// What is shown nowhere.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Password(String);

impl Password {
    /// The password itself, for Kafka's client.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl KafkaAccess {
    /// What is written, checked. Names of files are seen from a folder; all that is wrong is refused, with its field.
    pub fn check(
        (tls, login): (Option<&WrittenKafkaTls>, Option<&WrittenKafkaLogin>),
        folder: &Path,
        refuse: &mut dyn FnMut(&str, String),
    ) -> Self {
        let has_tls = tls.is_some();
        let tls = tls.map(|tls| tls.check(folder, refuse));
        let login = login.and_then(|login| login.check(has_tls, folder, refuse));
        Self { tls, login }
    }
}

impl WrittenKafkaTls {
    fn check(&self, folder: &Path, refuse: &mut dyn FnMut(&str, String)) -> KafkaTls {
        let ca_file = pem("tls.caFile", self.ca_file.as_deref(), (folder, "CERTIFICATE"), refuse);
        let certificate =
            pem("tls.certificateFile", self.certificate_file.as_deref(), (folder, "CERTIFICATE"), refuse);
        let key = pem("tls.keyFile", self.key_file.as_deref(), (folder, "PRIVATE KEY"), refuse);
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => {
                refuse("tls.keyFile", "is missing: it goes with certificateFile".to_owned());
                None
            }
            (None, Some(_)) => {
                refuse("tls.certificateFile", "is missing: it goes with keyFile".to_owned());
                None
            }
            (None, None) => None,
        };
        KafkaTls { ca_file, identity }
    }
}

impl WrittenKafkaLogin {
    fn check(
        &self,
        has_tls: bool,
        folder: &Path,
        refuse: &mut dyn FnMut(&str, String),
    ) -> Option<KafkaLogin> {
        let mechanism = MECHANISMS.into_iter().find(|known| *known == self.mechanism);
        match mechanism {
            Some("PLAIN") if !has_tls => {
                let said = "PLAIN is not allowed without tls, as it sends the password itself; expected tls beside \
                            it, or SCRAM-SHA-256 or SCRAM-SHA-512";
                refuse("login.mechanism", said.to_owned());
            }
            Some(_) => {}
            None => {
                let expected = MECHANISMS.join(", ");
                refuse(
                    "login.mechanism",
                    format!("{:?} is not allowed, expected one of {expected}", self.mechanism),
                );
            }
        }
        let user = &self.user;
        if !(1..=USER_MAX_CHARS).contains(&user.chars().count()) || user.chars().any(char::is_control) {
            let expected = format!("1 to {USER_MAX_CHARS} characters, none of them a control character");
            refuse("login.user", format!("{user:?} is not allowed, expected {expected}"));
        }
        match password(&placed(folder, &self.password_file)) {
            Ok(password) => Some(KafkaLogin { mechanism: mechanism?, user: user.clone(), password }),
            Err(said) => {
                refuse("login.passwordFile", said);
                None
            }
        }
    }
}

/// Where a file is that is named in a folder, wherever the process goes.
fn placed(folder: &Path, file: &Path) -> PathBuf {
    let path = folder.join(file);
    std::path::absolute(&path).unwrap_or(path)
}

/// What is in a file.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn text_of(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| {
        let said = error.to_string();
        format!("cannot read {}: {}", path.display(), said.split(" (os error").next().unwrap_or_default())
    })
}

/// Where a PEM file is that holds such a thing; refused, with its field, where it does not.
fn pem(
    field: &str,
    file: Option<&Path>,
    (folder, what): (&Path, &str),
    refuse: &mut dyn FnMut(&str, String),
) -> Option<PathBuf> {
    let path = placed(folder, file?);
    match text_of(&path) {
        Ok(text) => {
            let end = format!("{what}-----");
            let holds = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&end);
            if !text.lines().any(holds) {
                refuse(field, format!("{} holds no {what}, expected a PEM file", path.display()));
            } else if what != "CERTIFICATE" && text.contains("ENCRYPTED") {
                // Kafka's client would say no more than that it cannot read it.
                refuse(
                    field,
                    format!("{} is encrypted, expected a key without a pass phrase", path.display()),
                );
            }
        }
        Err(said) => refuse(field, said),
    }
    Some(path)
}

/// The password in a file; the end of its line is none of it. What is in the file is not repeated.
fn password(path: &Path) -> Result<Password, String> {
    let text = text_of(path)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(format!("{} is empty, expected a password", path.display()));
    }
    if password.chars().any(char::is_control) {
        let shown = path.display();
        return Err(format!("{shown} has more than one line or control characters, expected a password"));
    }
    Ok(Password(password.to_owned()))
}
