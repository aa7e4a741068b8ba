//! Carries a batch out: its applies in one call, everything else side by side, never two of one resource at once.
//!
//! In: commands, by their places. Out: an outcome for each, or for none where the service is away: what has none is tried again.
//! Invariants: what is outdated is said to be so only after what outdates it is done; one command that is refused spoils no
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures::StreamExt as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::api::{Api, Away, Outcome, done_to, judged};
use crate::arrange::{Entry, Ladder, arrange};
use crate::command::{Act, Command};
use crate::fault::Fault;

/// How many resources are changed at once.
const AT_ONCE: usize = 16;
/// How often a batch is tried before an answer that does not come is held to be the command's own fault.
const SILENCES_MAX: u32 = 3;

/// Outcomes by the places of their commands.
pub(crate) type Outcomes = BTreeMap<usize, Outcome>;

/// What is found out while a batch is carried out.
struct Round<'r> {
    api: &'r Api,
    commands: &'r BTreeMap<usize, Command>,
    /// How often it has been tried before.
    tries: u32,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    outcomes: Outcomes,
    away: Option<Away>,
}

/// Carries out what it can. Whoever is away is told, too.
pub(crate) async fn carry_out(
    api: &Api,
    commands: &BTreeMap<usize, Command>,
    tries: u32,
) -> (Outcomes, Option<Away>) {
    let places: Vec<usize> = commands.keys().copied().collect();
    let entry = |command: &'_ Command| (command.key.clone(), command.act.facet(), command.revision);
    let known: Vec<_> = commands.values().map(entry).collect();
    let entries: Vec<Entry<'_>> = known
        .iter()
        .map(|(key, facet, revision)| Entry { key, facet: *facet, revision: *revision })
        .collect();
    let placed = |ladder: Ladder| -> Ladder { ladder.into_iter().map(|at| places[at]).collect() };
    let groups: Vec<Vec<Ladder>> =
        arrange(&entries).into_iter().map(|group| group.into_iter().map(placed).collect()).collect();
    let round = Round { api, commands, tries, found: Mutex::default() };
    let tops = groups.iter().flatten().filter_map(|ladder| ladder.first().copied());
    let applies: Vec<usize> = tops.filter(|place| matches!(commands[place].act, Act::Apply(_))).collect();
    round.apply(applies).await;
    let all = futures::stream::iter(groups).for_each_concurrent(AT_ONCE, |group| round.group(group));
    all.await;
    let found = round.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    (found.outcomes, found.away)
}

impl Round<'_> {
    fn note(&self, place: usize, outcome: Outcome) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).outcomes.insert(place, outcome);
    }

    fn away(&self, away: Away) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).away.get_or_insert(away);
    }

    fn known(&self, place: usize) -> Option<Outcome> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).outcomes.get(&place).cloned()
    }

    fn is_away(&self) -> bool {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).away.is_some()
    }

    /// Applies these in one call. Those that it is refused for are left out, to be sent alone, and the others sent again.
    async fn apply(&self, mut places: Vec<usize>) {
        while places.len() > 1 {
            let requests = places.iter().filter_map(|place| match &self.commands[place].act {
                Act::Apply(request) => {
                    let mut request = request.as_ref().clone();
                    request.source = place.to_string();
                    Some(request)
                }
                _ => None,
            });
            let status = match self.api.apply(requests.collect()).await {
                Ok(answer) => {
                    let listed: BTreeMap<&str, _> =
                        answer.results.iter().map(|result| (result.source.as_str(), result)).collect();
                    for place in &places {
                        self.note(*place, done_to(listed.get(place.to_string().as_str()).copied()));
                    }
                    return;
                }
                Err(status) => status,
            };
            match judged(&status) {
                Err(away) if !self.is_own_silence(&away) => return self.away(away),
                Ok(Outcome::Refused(_) | Outcome::Early(_)) => {}
                _ => return,
            }
            let bad = blamed(&status);
            let before = places.len();
            places.retain(|place| !bad.contains(place));
            if places.len() == before {
                return;
            }
        }
    }

    /// Whether a call that is not answered, again and again, is left to each command by itself.
    fn is_own_silence(&self, away: &Away) -> bool {
        away.status.code() == Code::DeadlineExceeded && self.tries >= SILENCES_MAX
    }

    /// Goes down the ladders of one resource.
    async fn group(&self, group: Vec<Ladder>) {
        for ladder in group {
            let mut rest = ladder.into_iter();
            while let Some(place) = rest.next() {
                let outcome = match self.known(place) {
                    Some(outcome) => outcome,
                    None => match self.one(place).await {
                        Some(outcome) => outcome,
                        None => return,
                    },
                };
                match outcome {
                    Outcome::Refused(_) => continue,
                    Outcome::Done(_) | Outcome::Outdated => {
                        rest.by_ref().for_each(|place| self.note(place, Outcome::Outdated))
                    }
                    // What is below it may still be needed, and waits with it.
                    Outcome::Early(fault) | Outcome::Later(fault) => {
                        rest.by_ref().for_each(|place| self.note(place, Outcome::Later(fault.clone())));
                    }
                }
            }
        }
    }

    /// Carries out one; none while the service is away.
    async fn one(&self, place: usize) -> Option<Outcome> {
        if self.is_away() {
            return None;
        }
        let command = &self.commands[&place];
        let outcome = match self.api.carry_out(&command.act, command.revision).await {
            Ok(outcome) => outcome,
            Err(away) if self.is_own_silence(&away) => Outcome::Later(Fault::of_status(&away.status)),
            Err(away) => {
                self.away(away);
                return None;
            }
        };
        self.note(place, outcome.clone());
        Some(outcome)
    }
}

/// The places of the resources for which a call is refused.
fn blamed(status: &Status) -> BTreeSet<usize> {
    let violations = status.get_details_bad_request().map(|of| of.field_violations).unwrap_or_default();
    violations.iter().filter_map(|one| one.field.split(": ").next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_proto::FieldError;

    #[test]
    fn a_refused_call_says_who_is_to_blame() {
        let error = |field: &str| FieldError::new(field, 0, "more");
        let status = tollgate_proto::field::invalid_argument(&[
            error("17: namespaces/a/schedules/b: schedule.events"),
            error("3: namespaces/a/schedules/c: schedule.policy"),
            error("17: namespaces/a/schedules/b: schedule.target"),
        ]);
        assert_eq!(blamed(&status), BTreeSet::from([3, 17]));
        assert!(blamed(&Status::permission_denied("no")).is_empty());
    }
}
