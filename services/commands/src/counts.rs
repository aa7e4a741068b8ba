//! What can be seen of the queues from outside: counters, and how they read as Prometheus has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_clock::Clock;

use crate::backoff::Outage;
use crate::command::Op;
use crate::hands::Hands;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It changed what is there.
    Done,
    /// Everything had been so before.
    Unchanged,
    /// A later revision, or the same, had been here.
    Outdated,
    /// It is refused.
    Refused,
    /// It is back in the queue, and comes again.
    Later,
}

impl Ending {
    const ALL: [Self; 5] = [Self::Done, Self::Unchanged, Self::Outdated, Self::Refused, Self::Later];

    /// Its word in answers.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Done => "DONE",
            Self::Unchanged => "UNCHANGED",
            Self::Outdated => "OUTDATED",
            Self::Refused => "REFUSED",
            Self::Later => "LATER",
        }
    }
}

/// What stands for the op of a message that has none.
const UNREADABLE: &str = "unreadable";
const OPS: usize = Op::ALL.len() + 1;

/// The counters of one queue.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) queue: String,
    commands: [[AtomicU64; Ending::ALL.len()]; OPS],
    pub(crate) replies: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
    /// Messages whose answer or dead letter could not be sent, and waits here.
    pub(crate) unsent: AtomicU64,
    /// The partitions of a topic that this process reads.
    pub(crate) partitions: AtomicU64,
    /// The service, as this queue finds it.
    pub(crate) service: Outage,
    /// The queue or topic itself, and the two others.
    pub(crate) source: Outage,
    /// Commits of offsets of a topic.
    pub(crate) commits: Outage,
    pub(crate) reply_queue: Outage,
    pub(crate) dead_letter_queue: Outage,
    pub(crate) hands: Arc<Hands>,
}

impl Counts {
    /// Of a queue of this name, whose messages come from there; the other two have the names of their fields.
    pub(crate) fn new(queue: &str, [from, replies, dead_letters]: [&str; 3], hands: Arc<Hands>) -> Self {
        Self {
            queue: queue.to_owned(),
            commands: Default::default(),
            replies: AtomicU64::new(0),
            dead_letters: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            partitions: AtomicU64::new(0),
            service: Outage::new(format!("queue {queue}: the service")),
            source: Outage::new(format!("queue {queue}: {from}")),
            commits: Outage::new(format!("queue {queue}: commits of offsets")),
            reply_queue: Outage::new(format!("queue {queue}: its {replies}")),
            dead_letter_queue: Outage::new(format!("queue {queue}: its {dead_letters}")),
            hands,
        }
    }

    /// Counts a command.
    pub(crate) fn ended(&self, op: Option<Op>, ending: Ending) {
        let row = op.and_then(|op| Op::ALL.iter().position(|other| *other == op)).unwrap_or(OPS - 1);
        let column = Ending::ALL.iter().position(|other| *other == ending).unwrap_or_default();
        if let Some(count) = self.commands.get(row).and_then(|row| row.get(column)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn commands(&self) -> impl Iterator<Item = (&'static str, String, u64)> {
        let words = Op::ALL.map(Op::word).into_iter().chain([UNREADABLE]);
        words.zip(&self.commands).flat_map(|(op, row)| {
            let endings = Ending::ALL.iter().zip(row);
            endings
                .map(move |(ending, count)| (op, ending.word().to_lowercase(), count.load(Ordering::Relaxed)))
        })
    }
}

/// One metric: what it is called, what it says, and its value for a queue.
type Metric = (&'static str, &'static str, &'static str, fn(&Counts, &Clock) -> f64);

const METRICS: [Metric; 9] = [
    ("tollgate_commands_in_hand", "gauge", "Messages that are in hand", |of, _| of.hands.count() as f64),
    (
        "tollgate_commands_oldest_age_seconds",
        "gauge",
        "How long ago the oldest message in hand was sent",
        |of, clock| {
            let age_ms = of.hands.oldest_ms().map_or(0, |sent_ms| clock.wall_us() / 1_000 - sent_ms);
            age_ms.max(0) as f64 / 1e3
        },
    ),
    ("tollgate_commands_away", "gauge", "1 while the service does not answer this queue, else 0", |of, _| {
        f64::from(u8::from(of.service.lasts()))
    }),
    (
        "tollgate_commands_outages_total",
        "counter",
        "Times at which the service stopped to answer this queue",
        |of, _| of.service.count() as f64,
    ),
    (
        "tollgate_commands_queue_outages_total",
        "counter",
        "Times at which SQS or Kafka stopped to answer this queue",
        |of, _| {
            let outages = [&of.source, &of.commits, &of.reply_queue, &of.dead_letter_queue];
            outages.iter().map(|outage| outage.count()).sum::<u64>() as f64
        },
    ),
    ("tollgate_commands_replies_total", "counter", "Answers that were sent", |of, _| {
        of.replies.load(Ordering::Relaxed) as f64
    }),
    (
        "tollgate_commands_dead_letters_total",
        "counter",
        "Messages that were sent to the dead-letter queue",
        |of, _| of.dead_letters.load(Ordering::Relaxed) as f64,
    ),
    (
        "tollgate_commands_unsent",
        "gauge",
        "Messages in hand whose answer or dead letter could not be sent",
        |of, _| of.unsent.load(Ordering::Relaxed) as f64,
    ),
    ("tollgate_commands_partitions", "gauge", "Partitions of its topic that this process reads", |of, _| {
        of.partitions.load(Ordering::Relaxed) as f64
    }),
];

/// All metrics, in the text format 0.0.4.
pub(crate) fn text(queues: &[Arc<Counts>], clock: &Clock) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    };
    head(&mut text, "tollgate_commands_total", "counter", "Commands, by what became of them");
    for counts in queues {
        for (op, outcome, count) in counts.commands() {
            let queue = &counts.queue;
            text.push_str(&format!(
                "tollgate_commands_total{{queue=\"{queue}\",op=\"{op}\",outcome=\"{outcome}\"}} {count}\n"
            ));
        }
    }
    for (name, kind, help, value) in METRICS {
        head(&mut text, name, kind, help);
        for counts in queues {
            text.push_str(&format!("{name}{{queue=\"{}\"}} {}\n", counts.queue, value(counts, clock)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_counted_once() {
        let counts =
            Arc::new(Counts::new("nightly", ["SQS", "replyQueue", "deadLetterQueue"], Hands::new(10)));
        counts.ended(Some(Op::Extend), Ending::Done);
        counts.ended(Some(Op::Extend), Ending::Done);
        counts.ended(None, Ending::Refused);
        let text = text(&[counts], &Clock::manual(0));
        for line in [
            "tollgate_commands_total{queue=\"nightly\",op=\"extend\",outcome=\"done\"} 2\n",
            "tollgate_commands_total{queue=\"nightly\",op=\"unreadable\",outcome=\"refused\"} 1\n",
            "tollgate_commands_total{queue=\"nightly\",op=\"apply\",outcome=\"done\"} 0\n",
            "tollgate_commands_in_hand{queue=\"nightly\"} 0\n",
            "tollgate_commands_away{queue=\"nightly\"} 0\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
