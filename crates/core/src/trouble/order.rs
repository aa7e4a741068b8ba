//! Which of the troubles comes first, and what is the same trouble seen from several places.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Kind, Subject, Trouble, earlier};

/// Joins what is the same trouble, seen from several queue shards, processes or runs, and puts the worst first: by
/// severity, by kind, by how much waits behind it, by how many are in trouble, the longest first, by name.
pub fn worst_first(found: impl IntoIterator<Item = Trouble>) -> Vec<Trouble> {
    let mut by_identity: BTreeMap<(Kind, Subject), Trouble> = BTreeMap::new();
    for trouble in found {
        let identity = (trouble.kind, trouble.subject.clone());
        match by_identity.remove(&identity) {
            Some(known) => by_identity.insert(identity, joined(known, trouble)),
            None => by_identity.insert(identity, trouble),
        };
    }
    let mut all: Vec<Trouble> = by_identity.into_values().collect();
    // Those that are alike otherwise stay in the order of their names.
    all.sort_by_key(|trouble| {
        let Trouble { severity, kind, waiting, count, since_us, .. } = trouble;
        (*severity, *kind, Reverse(*waiting), Reverse(*count), since_us.unwrap_or(i64::MAX))
    });
    all
}

/// Two parts of one trouble. Of their words those stay that come first by the alphabet, in whatever order they were asked.
fn joined(a: Trouble, b: Trouble) -> Trouble {
    let words = [a.words, b.words].into_iter().filter(|words| !words.is_empty()).min();
    Trouble {
        kind: a.kind,
        severity: a.severity.min(b.severity),
        subject: a.subject,
        since_us: earlier(a.since_us, b.since_us),
        waiting: a.waiting + b.waiting,
        oldest_launch_us: earlier(a.oldest_launch_us, b.oldest_launch_us),
        count: a.count + b.count,
        runs: a.runs + b.runs,
        words: words.unwrap_or_default(),
    }
}
