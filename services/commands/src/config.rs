//! Decides which queues are read, and what each may do: the file of `tollgate commands`.
//!
//! In: the file's text. Out: checked queues, or all that is wrong, each with its field. Invariant: what is not known is refused,
//! and so is what means nothing where messages come from (`source`).

mod source;

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};
use tollgate_core::nearest::nearest;
use tollgate_proto::convert::names;

use crate::command::Op;

pub use source::{KafkaConfig, SourceConfig, SqsConfig};

#[cfg(not(feature = "kafka"))]
pub(crate) use source::NO_KAFKA;

use source::WrittenKafka;

/// The most queues of one process.
const QUEUES_MAX: usize = 100;
/// The most messages of a queue in hand.
const IN_HAND_MAX: u64 = 10_000;
const IN_HAND: u64 = 1_000;
const NAME_MAX_CHARS: usize = 80;
const NOT_FOUND_FOR: Duration = Duration::from_secs(60);
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    queues: Vec<Written>,
}

/// A queue as it is written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    name: Option<String>,
    url: Option<String>,
    kafka: Option<WrittenKafka>,
    namespace: String,
    key_file: Option<PathBuf>,
    region: Option<String>,
    endpoint_url: Option<String>,
    allow: Option<Vec<String>>,
    reply_queue: Option<String>,
    dead_letter_queue: Option<String>,
    reply_topic: Option<String>,
    dead_letter_topic: Option<String>,
    in_hand: Option<u64>,
    not_found_for: Option<String>,
    give_up_after: Option<String>,
    visibility: Option<String>,
}

/// One queue that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// What logs, metrics and answers call it.
    pub name: String,
    /// Where its messages come from, and where answers and refused ones go.
    pub source: SourceConfig,
    /// The namespace of all that its commands are about.
    pub namespace: String,
    /// The file with the API key of its commands; the connection's own without one.
    pub key_file: Option<PathBuf>,
    /// What its commands may ask for.
    pub allow: Vec<Op>,
    /// The most messages that are in hand at once.
    pub in_hand: usize,
    /// How long a command waits for what is not there, from the first time that the service says so.
    pub not_found_for: Duration,
    /// And how long one that the service cannot carry out for another reason.
    pub give_up_after: Duration,
}

/// The queues of a file; names of files in it are seen from its folder.
///
/// # Errors
/// All that is wrong with it, one line each.
pub fn read(file: &Path) -> Result<Vec<QueueConfig>, Vec<String>> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let said = error.to_string();
        vec![format!("cannot read {shown}: {}", said.split(" (os error").next().unwrap_or_default())]
    })?;
    let folder = file.parent().unwrap_or(Path::new(""));
    parse(&text, folder).map_err(|wrong| wrong.into_iter().map(|said| format!("{shown}: {said}")).collect())
}

fn parse(text: &str, folder: &Path) -> Result<Vec<QueueConfig>, Vec<String>> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
        vec![format!("{line}{}", UserMessageFormatter.format_message(error))]
    })?;
    let mut wrong = Vec::new();
    if file.queues.is_empty() || file.queues.len() > QUEUES_MAX {
        wrong.push(format!("queues: {} are not allowed, expected 1 to {QUEUES_MAX}", file.queues.len()));
    }
    let mut queues = Vec::new();
    for (at, written) in file.queues.into_iter().enumerate() {
        let mut checker = Checker { place: format!("queues[{at}]"), wrong: &mut wrong };
        queues.push(checker.queue(written, folder));
    }
    let mut seen = BTreeSet::new();
    for (at, queue) in queues.iter().enumerate() {
        let (field, place) = (queue.source.field(), queue.source.place());
        for (field, value) in [("name", queue.name.clone()), (field, place)] {
            if !seen.insert((field, value.clone())) {
                wrong.push(format!(
                    "queues[{at}].{field}: {value:?} is another queue's, too: each has one of its own"
                ));
            }
        }
    }
    if wrong.is_empty() { Ok(queues) } else { Err(wrong) }
}

struct Checker<'w> {
    place: String,
    wrong: &'w mut Vec<String>,
}

impl Checker<'_> {
    fn refuse(&mut self, field: &str, said: impl Display) {
        self.wrong.push(format!("{}.{field}: {said}", self.place));
    }

    fn queue(&mut self, written: Written, folder: &Path) -> QueueConfig {
        let Written { namespace, .. } = &written;
        if !names::is_id(namespace) {
            let expected = "1 to 63 characters of a-z, 0-9, ., _ and -";
            self.refuse("namespace", format!("{namespace:?} is not allowed, expected {expected}"));
        }
        let source = self.source(&written, folder);
        let name = self.name(written.name.as_deref(), &source);
        let allow = self.allow(written.allow.as_deref());
        let in_hand = written.in_hand.unwrap_or(IN_HAND);
        if !(10..=IN_HAND_MAX).contains(&in_hand) {
            self.refuse("inHand", format!("{in_hand} is not allowed, expected 10 to {IN_HAND_MAX}"));
        }
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        let not_found_for = (Duration::ZERO, hours(24), "0s to 24h");
        let give_up_after = (Duration::from_secs(1), hours(14 * 24), "1s to 14d");
        QueueConfig {
            name,
            allow,
            in_hand: usize::try_from(in_hand).unwrap_or(usize::MAX),
            not_found_for: self.span(
                "notFoundFor",
                written.not_found_for.as_deref(),
                NOT_FOUND_FOR,
                not_found_for,
            ),
            give_up_after: self.span(
                "giveUpAfter",
                written.give_up_after.as_deref(),
                GIVE_UP_AFTER,
                give_up_after,
            ),
            key_file: self.key_file(written.key_file, folder),
            namespace: written.namespace,
            source,
        }
    }

    fn name(&mut self, written: Option<&str>, source: &SourceConfig) -> String {
        let name = written.unwrap_or_else(|| source.name()).to_owned();
        let fits = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        if name.is_empty() || name.len() > NAME_MAX_CHARS || !name.chars().all(fits) {
            let expected = "1 to 80 of A-Z a-z 0-9 . _ -";
            self.refuse("name", format!("{name:?} is not allowed, expected {expected}"));
        }
        name
    }

    fn allow(&mut self, words: Option<&[String]>) -> Vec<Op> {
        let Some(words) = words else { return Op::ALL.to_vec() };
        let known = Op::ALL.map(Op::word);
        if words.is_empty() {
            self.refuse(
                "allow",
                format!("an empty list is not allowed, expected some of {}", known.join(", ")),
            );
        }
        let mut ops = Vec::new();
        for (at, word) in words.iter().enumerate() {
            match Op::of(word) {
                Some(op) if !ops.contains(&op) => ops.push(op),
                Some(_) => {}
                None => {
                    let near = nearest(word, known).map(|near| format!("; did you mean {near}?"));
                    let near = near.unwrap_or_default();
                    let said = format!("{word:?} is not allowed, expected {}{near}", known.join(", "));
                    self.refuse(&format!("allow[{at}]"), said);
                }
            }
        }
        ops
    }

    fn span(
        &mut self,
        field: &str,
        text: Option<&str>,
        default: Duration,
        (least, most, expected): (Duration, Duration, &str),
    ) -> Duration {
        let Some(text) = text else { return default };
        match humantime::parse_duration(text) {
            Ok(span) if (least..=most).contains(&span) => span,
            _ => {
                self.refuse(field, format!("{text:?} is not allowed, expected {expected}"));
                default
            }
        }
    }

    fn key_file(&mut self, file: Option<PathBuf>, folder: &Path) -> Option<PathBuf> {
        let path = folder.join(file?);
        if let Err(said) = key(&path) {
            self.refuse("keyFile", said);
        }
        Some(path)
    }
}

/// The key in a file.
///
/// # Errors
/// A file that cannot be read, or has no key. What is in it is not repeated.
pub(crate) fn key(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let said = error.to_string();
        format!("cannot read {shown}: {}", said.split(" (os error").next().unwrap_or_default())
    })?;
    let key = text.trim();
    let is_key = key.starts_with("tgk_") && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_key { Ok(key.to_owned()) } else { Err(format!("{shown} has no key, expected tgk_<id>_<secret>")) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn wrong(text: &str) -> String {
        parse(text, Path::new("")).unwrap_err().join("\n")
    }

    #[test]
    fn a_queue_has_its_defaults() {
        let text =
            "queues:\n  - url: https://sqs.eu-central-1.amazonaws.com/1/nightly.fifo\n    namespace: team\n";
        let queues = parse(text, Path::new("")).unwrap();
        let [queue] = queues.as_slice() else { panic!("{queues:?}") };
        assert_eq!((queue.name.as_str(), queue.in_hand), ("nightly.fifo", 1_000));
        assert_eq!(queue.allow, Op::ALL);
        let SourceConfig::Sqs(sqs) = &queue.source else { panic!("{queue:?}") };
        assert_eq!(sqs.visibility, Duration::from_secs(60));
        assert_eq!((queue.not_found_for, queue.give_up_after), (NOT_FOUND_FOR, GIVE_UP_AFTER));
        assert_eq!(queue.key_file, None);
    }

    #[test]
    fn everything_wrong_is_told_with_its_field() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("key"), "secret\n").unwrap();
        let text = "queues:
  - url: ftp://x/1/a
    namespace: Team
    allow: [apply, delte]
    inHand: 3
    notFoundFor: soon
    giveUpAfter: 15d
    visibility: 1s
    keyFile: key
    replyQueue: nowhere
  - url: http://x/1/b
    namespace: team
    name: b b
    deadLetterQueue: http://x/1/b
    allow: []
    keyFile: missing
  - {url: http://x/1/b, namespace: team}
";
        let told = parse(text, folder.path()).unwrap_err().join("\n");
        for part in [
            "queues[0].url: `ftp://x/1/a` has another scheme",
            "queues[0].namespace: \"Team\" is not allowed, expected 1 to 63",
            "queues[0].allow[1]: \"delte\" is not allowed, expected apply, delete, pause, resume, trigger, submit, \
             release, extend; did you mean delete?",
            "queues[0].inHand: 3 is not allowed, expected 10 to 10000",
            "queues[0].notFoundFor: \"soon\" is not allowed, expected 0s to 24h",
            "queues[0].giveUpAfter: \"15d\" is not allowed, expected 1s to 14d",
            "queues[0].visibility: \"1s\" is not allowed, expected 2s to 12h",
            "has no key, expected tgk_<id>_<secret>",
            "queues[0].replyQueue: `nowhere`",
            "queues[1].name: \"b b\" is not allowed",
            "queues[1].deadLetterQueue: it is the queue itself",
            "queues[1].allow: an empty list is not allowed",
            "queues[1].keyFile: cannot read",
            "queues[2].url: \"http://x/1/b\" is another queue's, too",
        ] {
            assert!(told.contains(part), "{part}\n{told}");
        }
        assert!(!told.contains("secret\n"), "a key is not repeated: {told}");
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(wrong("queues: []").contains("queues: 0 are not allowed"));
        assert!(wrong("queue: []").contains("queue"));
        let unknown = wrong("queues:\n  - url: http://x/1/a\n    namespace: team\n    scope: admin\n");
        assert!(unknown.contains("scope") && unknown.contains("line "), "{unknown}");
        assert!(wrong("queues:\n  - namespace: team\n").contains("url"));
    }
}
