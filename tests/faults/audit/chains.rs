//! Each run that another one follows: it is followed by exactly one, which has an event for each of its results.

use std::collections::{BTreeMap, BTreeSet};

use super::{Evidence, Ordered, Promise, RunRecord, Verdict};

/// Those that are followed, with the schedule of what follows.
fn firsts<'a>(
    ordered: &'a Ordered,
    runs: &'a [RunRecord],
) -> impl Iterator<Item = (&'a RunRecord, &'a String)> {
    runs.iter().filter_map(|run| Some((run, ordered.chains.get(&run.schedule)?)))
}

/// Whether what follows is there for all that has ended.
pub(crate) fn followed(ordered: &Ordered, runs: &[RunRecord]) -> bool {
    let known: BTreeSet<&str> = runs.iter().filter_map(|run| run.follows.as_deref()).collect();
    firsts(ordered, runs).all(|(run, _)| !run.ended || known.contains(run.name.as_str()))
}

pub(super) fn check(evidence: &Evidence<'_>, verdict: &mut Verdict) {
    let (ordered, runs) = (evidence.ordered, &evidence.records.runs);
    let mut following: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for run in runs {
        if let Some(before) = &run.follows {
            following.entry(before).or_default().push(run);
        }
    }
    for (first, next) in firsts(ordered, runs).filter(|(first, _)| first.ended) {
        let found = following.remove(first.name.as_str()).unwrap_or_default();
        let [run] = found.as_slice() else {
            verdict.breach(Promise::Chain, || format!("{} runs follow {first:?}: {found:?}", found.len()));
            continue;
        };
        if run.schedule != *next || run.events != first.succeeded {
            verdict.breach(Promise::Chain, || format!("{run:?} follows {first:?}"));
        }
    }
    for (before, runs) in following {
        verdict.breach(Promise::Chain, || format!("{runs:?} follow {before}, which has not ended"));
    }
    // What only follows was launched by nothing else.
    let only: BTreeSet<&String> = ordered.chains.values().collect();
    for run in runs.iter().filter(|run| only.contains(&run.schedule) && run.follows.is_none()) {
        verdict.breach(Promise::Chain, || format!("{run:?} follows nothing"));
    }
}
