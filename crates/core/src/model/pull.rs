//! A queue from which workers take events, and what a worker must be able to do.

use serde::{Deserialize, Serialize};

/// A queue of a namespace that workers pull from. It has no place of its own: it is as good as its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PullForm", into = "PullForm")]
pub struct PullTarget {
    queue: String,
    requires: Vec<String>,
    deadline_ms: i64,
    address: String,
}

impl PullTarget {
    /// The most labels that a target requires, or a worker has.
    pub const LABELS_MAX: usize = 16;
    /// The longest label, and the longest name of a worker.
    pub const LABEL_CHARS_MAX: usize = 64;
    /// How long a worker has to accept an event, by default.
    pub const DEADLINE_MS: i64 = 10_000;

    /// Labels are put in order, each once. `deadline_ms`: how long a worker has to accept an event that it was given.
    pub fn new(queue: String, mut requires: Vec<String>, deadline_ms: i64) -> Self {
        requires.sort_unstable();
        requires.dedup();
        let address = match requires.as_slice() {
            [] => format!("pull:{queue}"),
            labels => format!("pull:{queue} [{}]", labels.join(", ")),
        };
        Self { queue, requires, deadline_ms, address }
    }

    /// The queue, within the schedule's namespace.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Labels that a worker must have, in order.
    pub fn requires(&self) -> &[String] {
        &self.requires
    }

    /// How long a worker has to accept an event that it was given, in milliseconds.
    pub fn deadline_ms(&self) -> i64 {
        self.deadline_ms
    }

    /// What is told of as one: the queue, with what it requires.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// As it is stored.
#[derive(Serialize, Deserialize)]
struct PullForm {
    queue: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    requires: Vec<String>,
    deadline_ms: i64,
}

impl From<PullForm> for PullTarget {
    fn from(form: PullForm) -> Self {
        Self::new(form.queue, form.requires, form.deadline_ms)
    }
}

impl From<PullTarget> for PullForm {
    fn from(pull: PullTarget) -> Self {
        Self { queue: pull.queue, requires: pull.requires, deadline_ms: pull.deadline_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_one_order_and_are_part_of_the_address() {
        let of = |labels: &[&str]| {
            PullTarget::new("render".to_owned(), labels.iter().map(|&label| label.to_owned()).collect(), 1)
        };
        assert_eq!(of(&["gpu", "eu", "gpu"]), of(&["eu", "gpu"]));
        assert_eq!(of(&["gpu", "eu"]).address(), "pull:render [eu, gpu]");
        assert_eq!(of(&[]).address(), "pull:render");
        let text = serde_json::to_string(&of(&["gpu"])).unwrap_or_default();
        assert_eq!(text, r#"{"queue":"render","requires":["gpu"],"deadline_ms":1}"#);
        assert_eq!(serde_json::from_str::<PullTarget>(&text).ok(), Some(of(&["gpu"])));
    }
}
