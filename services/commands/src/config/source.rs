//! Decides where the messages of a queue come from, SQS or Kafka, and where its answers and refused messages go.
//!
//! In: the queue as it is written. Out: a checked source. Invariants: it has either `url` or `kafka`; a word of the one is
//! refused with the other; a topic has a dead-letter topic, since no redrive policy takes what its offset waits for; what is
//! sent on does not come back as a command.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use tollgate_core::model::KafkaTarget;
use tollgate_proto::convert::kafka::{SERVERS_MAX, TOPIC_MAX_CHARS, is_topic};
use tollgate_target::{KAFKA_NO_CERTIFICATE, KafkaAccess, WrittenKafkaLogin, WrittenKafkaTls, check_queue};

use super::{Checker, Written};

const VISIBILITY: Duration = Duration::from_secs(60);
const GROUP_MAX_CHARS: usize = 200;
/// What a build says that has no Kafka.
#[cfg(not(feature = "kafka"))]
pub(crate) const NO_KAFKA: &str = "this build has no Kafka: it was made without the feature kafka";

/// Where messages come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceConfig {
    /// A queue of SQS.
    Sqs(SqsConfig),
    /// A topic of Kafka.
    Kafka(KafkaConfig),
}

/// A queue of SQS, and its two others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsConfig {
    /// Its URL.
    pub url: String,
    /// Its AWS region; that of its URL, or of the process, without one.
    pub region: Option<String>,
    /// The endpoint of SQS, where it is not AWS's.
    pub endpoint_url: Option<String>,
    /// Where answers go.
    pub reply_queue: Option<String>,
    /// Where messages go that are refused.
    pub dead_letter_queue: Option<String>,
    /// For how long a message is hidden, anew at half of it.
    pub visibility: Duration,
}

/// A topic of Kafka, and its two others in the same cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaConfig {
    /// The brokers that are asked where the others are, in order.
    pub bootstrap_servers: Vec<String>,
    /// How they are spoken to.
    pub access: KafkaAccess,
    /// The topic.
    pub topic: String,
    /// The group whose members share its partitions.
    pub group: String,
    /// Where answers go.
    pub reply_topic: Option<String>,
    /// Where messages go that are refused.
    pub dead_letter_topic: String,
}

/// Kafka as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct WrittenKafka {
    bootstrap_servers: Vec<String>,
    topic: String,
    group: String,
    #[serde(default, deserialize_with = "tollgate_target::kafka_member")]
    tls: Option<WrittenKafkaTls>,
    #[serde(default, deserialize_with = "tollgate_target::kafka_member")]
    login: Option<WrittenKafkaLogin>,
}

impl SourceConfig {
    /// What it is called in logs, with the fields of its two others.
    pub(crate) fn words(&self) -> [&'static str; 3] {
        match self {
            Self::Sqs(_) => ["SQS", "replyQueue", "deadLetterQueue"],
            Self::Kafka(_) => ["Kafka", "replyTopic", "deadLetterTopic"],
        }
    }

    /// The field that says where it is.
    pub(crate) fn field(&self) -> &'static str {
        match self {
            Self::Sqs(_) => "url",
            Self::Kafka(_) => "kafka",
        }
    }

    /// Where it is; no two queues are at the same place.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Sqs(sqs) => sqs.url.clone(),
            Self::Kafka(kafka) => {
                let KafkaConfig { bootstrap_servers, topic, group, .. } = kafka;
                format!("{topic} of {} in the group {group}", bootstrap_servers.join(","))
            }
        }
    }

    /// What its queue is called where nothing else is said.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Sqs(sqs) => sqs.url.trim_end_matches('/').rsplit('/').next().unwrap_or_default(),
            Self::Kafka(kafka) => &kafka.topic,
        }
    }
}

impl fmt::Display for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqs(sqs) => f.write_str(&sqs.url),
            Self::Kafka(_) => write!(f, "the topic {}", self.place()),
        }
    }
}

impl Checker<'_> {
    pub(super) fn source(&mut self, written: &Written, folder: &Path) -> SourceConfig {
        match (&written.url, &written.kafka) {
            (url, None) => {
                if url.is_none() {
                    self.refuse("url", "is missing: a queue has url, for SQS, or kafka");
                }
                SourceConfig::Sqs(self.sqs(url.as_deref().unwrap_or_default(), written))
            }
            (url, Some(kafka)) => {
                if url.is_some() {
                    self.refuse("kafka", "a queue has url, for SQS, or kafka, and not both");
                }
                #[cfg(not(feature = "kafka"))]
                self.refuse("kafka", NO_KAFKA);
                SourceConfig::Kafka(self.kafka(kafka, written, folder))
            }
        }
    }

    fn sqs(&mut self, url: &str, written: &Written) -> SqsConfig {
        for (field, other, value) in [
            ("replyTopic", "replyQueue", &written.reply_topic),
            ("deadLetterTopic", "deadLetterQueue", &written.dead_letter_topic),
        ] {
            if value.is_some() {
                self.refuse(field, format!("it goes with kafka; a queue with url has {other}"));
            }
        }
        if written.url.is_some() {
            self.url("url", url);
        }
        if let Some(endpoint) = &written.endpoint_url {
            self.url("endpointUrl", endpoint);
        }
        let others = [("replyQueue", &written.reply_queue), ("deadLetterQueue", &written.dead_letter_queue)];
        for (field, other) in others {
            let Some(other) = other else { continue };
            self.url(field, other);
            if other == url {
                self.refuse(field, "it is the queue itself: what is sent there would come back as commands");
            }
        }
        let bounds = (Duration::from_secs(2), Duration::from_secs(12 * 3_600), "2s to 12h");
        SqsConfig {
            url: url.to_owned(),
            region: written.region.clone(),
            endpoint_url: written.endpoint_url.clone(),
            reply_queue: written.reply_queue.clone(),
            dead_letter_queue: written.dead_letter_queue.clone(),
            visibility: self.span("visibility", written.visibility.as_deref(), VISIBILITY, bounds),
        }
    }

    fn url(&mut self, field: &str, url: &str) {
        if let Err(said) = check_queue(field, url) {
            self.wrong.push(format!("{}.{said}", self.place));
        }
    }

    fn kafka(&mut self, kafka: &WrittenKafka, written: &Written, folder: &Path) -> KafkaConfig {
        for (field, instead, value) in [
            ("region", "", &written.region),
            ("endpointUrl", "", &written.endpoint_url),
            ("visibility", "", &written.visibility),
            ("replyQueue", "; a queue with kafka has replyTopic", &written.reply_queue),
            ("deadLetterQueue", "; a queue with kafka has deadLetterTopic", &written.dead_letter_queue),
        ] {
            if value.is_some() {
                self.refuse(field, format!("it goes with url, for SQS{instead}"));
            }
        }
        self.servers(&kafka.bootstrap_servers, kafka.tls.is_some());
        self.topic("kafka.topic", &kafka.topic);
        let group = &kafka.group;
        if !(1..=GROUP_MAX_CHARS).contains(&group.len()) || !group.chars().all(|one| one.is_ascii_graphic()) {
            let expected = format!("1 to {GROUP_MAX_CHARS} letters, digits and signs, without spaces");
            self.refuse("kafka.group", format!("{group:?} is not allowed, expected {expected}"));
        }
        let others = [("replyTopic", &written.reply_topic), ("deadLetterTopic", &written.dead_letter_topic)];
        for (field, other) in others {
            let Some(other) = other else { continue };
            self.topic(field, other);
            if *other == kafka.topic {
                self.refuse(field, "it is the topic itself: what is sent there would come back as commands");
            }
        }
        if written.dead_letter_topic.is_none() {
            let said =
                "is missing: what is refused must go somewhere, or nothing behind it would ever be done with";
            self.refuse("deadLetterTopic", said);
        }
        let mut bootstrap_servers = kafka.bootstrap_servers.clone();
        bootstrap_servers.sort_unstable();
        let written_access = (kafka.tls.as_ref(), kafka.login.as_ref());
        let access = KafkaAccess::check(written_access, folder, &mut |field, said| {
            self.refuse(&format!("kafka.{field}"), said);
        });
        KafkaConfig {
            bootstrap_servers,
            access,
            topic: kafka.topic.clone(),
            group: group.clone(),
            reply_topic: written.reply_topic.clone(),
            dead_letter_topic: written.dead_letter_topic.clone().unwrap_or_default(),
        }
    }

    fn servers(&mut self, servers: &[String], has_tls: bool) {
        let field = "kafka.bootstrapServers";
        if !(1..=SERVERS_MAX).contains(&servers.len()) {
            let said = format!(
                "{} are not allowed, expected 1 to {SERVERS_MAX}, such as kafka-1.example:9092",
                servers.len()
            );
            self.refuse(field, said);
        }
        for (at, server) in servers.iter().enumerate() {
            let field = format!("{field}[{at}]");
            if !KafkaTarget::is_server(server) {
                let expected = "a host and a port, such as kafka-1.example:9092 or [::1]:9092";
                self.refuse(&field, format!("{server:?} is not allowed, expected {expected}"));
            } else if has_tls && server.starts_with('[') {
                self.refuse(&field, format!("{server:?} {KAFKA_NO_CERTIFICATE}"));
            }
        }
    }

    fn topic(&mut self, field: &str, topic: &str) {
        if !is_topic(topic) {
            let expected = format!("1 to {TOPIC_MAX_CHARS} of A-Z a-z 0-9 . _ -, not . or .. alone");
            self.refuse(field, format!("{topic:?} is not allowed, expected {expected}"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::path::Path;

    use super::super::{QueueConfig, parse};
    use super::*;

    const GOOD: &str = "queues:
  - kafka: {bootstrapServers: ['b:9092', 'a:9092'], topic: commands, group: tollgate}
    namespace: team
    deadLetterTopic: refused
";

    fn read(text: &str) -> Result<Vec<QueueConfig>, Vec<String>> {
        parse(text, Path::new(""))
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_topic_has_its_defaults() {
        let queues = read(GOOD).unwrap();
        let [queue] = queues.as_slice() else { panic!("{queues:?}") };
        assert_eq!((queue.name.as_str(), queue.in_hand), ("commands", 1_000));
        let shown = queue.source.to_string();
        assert_eq!(shown, "the topic commands of a:9092,b:9092 in the group tollgate");
        let SourceConfig::Kafka(kafka) = &queue.source else { panic!("{queue:?}") };
        assert_eq!((kafka.reply_topic.as_ref(), kafka.dead_letter_topic.as_str()), (None, "refused"));
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_topic_may_have_tls_and_a_login() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), "geheim\n").unwrap();
        let access = "group: tollgate, tls: {}, login: {mechanism: PLAIN, user: me, passwordFile: password}";
        let queues = parse(&GOOD.replace("group: tollgate", access), folder.path()).unwrap();
        let SourceConfig::Kafka(kafka) = &queues[0].source else { panic!("{queues:?}") };
        let login = kafka.access.login.as_ref().unwrap();
        assert_eq!((kafka.access.tls.is_some(), login.password.reveal()), (true, "geheim"));
        assert!(!format!("{queues:?}").contains("geheim"), "a password is shown nowhere");
    }

    #[cfg(not(feature = "kafka"))]
    #[test]
    fn a_build_without_kafka_says_so() {
        assert_eq!(read(GOOD).unwrap_err(), [format!("queues[0].kafka: {NO_KAFKA}")]);
    }

    #[test]
    fn what_goes_with_the_other_source_is_refused_with_its_field() {
        let text = "queues:
  - kafka: {bootstrapServers: [], topic: .., group: 'a b'}
    url: http://x/1/a
    namespace: team
    region: eu-central-1
    endpointUrl: http://x
    visibility: 1m
    replyQueue: http://x/1/b
    deadLetterQueue: http://x/1/c
  - kafka:
      bootstrapServers: [nowhere]
      topic: in
      group: g
      tls: {keyFile: missing}
      login: {mechanism: NTLM, user: me, passwordFile: missing}
    namespace: team
    replyTopic: in
    deadLetterTopic: 'a/b'
  - url: http://x/1/d
    namespace: team
    replyTopic: a
    deadLetterTopic: b
  - namespace: team
    name: none
  - kafka: {bootstrapServers: [nowhere], topic: in, group: g}
    namespace: team
    name: again
    deadLetterTopic: dead
";
        let told = read(text).unwrap_err().join("\n");
        for part in [
            "queues[0].kafka: a queue has url, for SQS, or kafka, and not both",
            "queues[0].region: it goes with url, for SQS",
            "queues[0].endpointUrl: it goes with url",
            "queues[0].visibility: it goes with url",
            "queues[0].replyQueue: it goes with url, for SQS; a queue with kafka has replyTopic",
            "queues[0].deadLetterQueue: it goes with url, for SQS; a queue with kafka has deadLetterTopic",
            "queues[0].kafka.bootstrapServers: 0 are not allowed, expected 1 to 16",
            "queues[0].kafka.topic: \"..\" is not allowed",
            "queues[0].kafka.group: \"a b\" is not allowed, expected 1 to 200",
            "queues[0].deadLetterTopic: is missing",
            "queues[1].kafka.bootstrapServers[0]: \"nowhere\" is not allowed, expected a host and a port",
            "queues[1].kafka.tls.keyFile: cannot read",
            "queues[1].kafka.tls.certificateFile: is missing: it goes with keyFile",
            "queues[1].kafka.login.mechanism: \"NTLM\" is not allowed, expected one of PLAIN, SCRAM-SHA-256, \
             SCRAM-SHA-512",
            "queues[1].kafka.login.passwordFile: cannot read",
            "queues[1].replyTopic: it is the topic itself",
            "queues[1].deadLetterTopic: \"a/b\" is not allowed",
            "queues[2].replyTopic: it goes with kafka; a queue with url has replyQueue",
            "queues[2].deadLetterTopic: it goes with kafka",
            "queues[3].url: is missing: a queue has url, for SQS, or kafka",
            "queues[4].kafka: \"in of nowhere in the group g\" is another queue's, too",
        ] {
            assert!(told.contains(part), "{part}\n{told}");
        }
        let unknown = read("queues:\n  - kafka: {brokers: []}\n    namespace: team\n").unwrap_err().join("");
        assert!(unknown.contains("brokers") && unknown.contains("line "), "{unknown}");
    }
}
