//! Carries a batch out: its applies in one call, everything else side by side, never two of one resource at once.
//!
//! In: commands, by their places. Out: an outcome for each, or for none where the service is away: what has none is tried again.
//! Invariants: what is outdated is said to be so only after what outdates it is done; one command that is refused spoils no
//! other, nor does one that is not answered while others are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use futures::StreamExt as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::api::{Api, Away, Outcome, applied, judged};
use crate::arrange::{Entry, Ladder, arrange};
use crate::command::{Act, Command};
use crate::fault::Fault;

/// How many resources are changed at once.
const AT_ONCE: usize = 16;
/// How often a batch is tried as a whole before applies that are not answered go alone.
const SILENCES_MAX: u32 = 1;
/// And before it is asked whether the service answers anything else.
const TRIES_MAX: u32 = 2;
/// After so many commands without an answer, and none with one, no more are tried.
const UNANSWERED_MAX: usize = AT_ONCE;

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
    /// What has no answer, and may itself be why.
    unanswered: Vec<(usize, Away)>,
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
    let mut groups: Vec<Vec<Ladder>> =
        arrange(&entries).into_iter().map(|group| group.into_iter().map(placed).collect()).collect();
    // Others begin each time, lest those in front stand in the way.
    let turns = tries as usize * AT_ONCE;
    let turns = turns.checked_rem(groups.len()).unwrap_or_default();
    groups.rotate_left(turns);
    let round = Round { api, commands, tries, found: Mutex::default() };
    let tops = groups.iter().flatten().filter_map(|ladder| ladder.first().copied());
    let applies: Vec<usize> = tops.filter(|place| matches!(commands[place].act, Act::Apply(_))).collect();
    round.apply(applies).await;
    let all = futures::stream::iter(groups).for_each_concurrent(AT_ONCE, |group| round.group(group));
    all.await;
    let found = round.found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.judged(api, tries).await
}

impl Found {
    /// Whether the service is away, or only for some commands, which then go back.
    async fn judged(self, api: &Api, tries: u32) -> (Outcomes, Option<Away>) {
        let Self { mut outcomes, away, unanswered } = self;
        let Some((_, first)) = unanswered.first() else { return (outcomes, away) };
        if away.is_some() {
            return (outcomes, away);
        }
        let others = !outcomes.is_empty() || (tries >= TRIES_MAX && api.is_there().await);
        if !others {
            return (outcomes, Some(first.clone()));
        }
        for (place, away) in unanswered {
            outcomes.insert(place, Outcome::Later(Fault::of_status(&away.status)));
        }
        (outcomes, None)
    }
}

/// Whether a command that is not answered may itself be why: nobody says anything, or not who holds its event.
fn may_be_its_own(act: &Act, away: &Away) -> bool {
    match away.status.code() {
        Code::DeadlineExceeded | Code::Unimplemented => true,
        Code::Unavailable | Code::Cancelled => matches!(act, Act::Release(_) | Act::Extend(_)),
        _ => false,
    }
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

    fn unanswered(&self, place: usize, away: Away) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).unanswered.push((place, away));
    }

    fn is_away(&self) -> bool {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.away.is_some() || (found.outcomes.is_empty() && found.unanswered.len() >= UNANSWERED_MAX)
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
                    for place in &places {
                        self.note(*place, applied(&answer, &place.to_string()));
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
            Err(away) if may_be_its_own(&command.act, &away) => {
                self.unanswered(place, away);
                return None;
            }
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
    use std::time::Duration;

    use super::*;
    use crate::api::Connection;
    use crate::command::{Key, Op};
    use crate::config::{QueueConfig, SourceConfig, SqsConfig};
    use crate::stub;
    use tollgate_proto::{FieldError, v1};
    use tonic::metadata::MetadataMap;
    use tonic::transport::Endpoint;

    /// Of what has this word in it there is no answer; of a release, that its owner is away; of others, that they are refused.
    async fn api() -> Api {
        let address = stub::serve(|path: &str, body: &[u8]| {
            let hangs = body.windows(4).any(|some| some == b"hang");
            if hangs {
                None
            } else {
                Some(if path.ends_with("ReleaseToken") { Code::Unavailable } else { Code::NotFound })
            }
        })
        .await;
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let connection = Connection {
            endpoint: endpoint.unwrap_or_else(|error| panic!("{error}")),
            metadata: MetadataMap::new(),
        };
        let source = SourceConfig::Sqs(SqsConfig {
            url: String::new(),
            region: None,
            endpoint_url: None,
            reply_queue: None,
            dead_letter_queue: None,
            visibility: Duration::ZERO,
        });
        let queue = QueueConfig {
            name: "q".to_owned(),
            source,
            namespace: "team".to_owned(),
            key_file: None,
            allow: Op::ALL.to_vec(),
            in_hand: 10,
            not_found_for: Duration::ZERO,
            give_up_after: Duration::ZERO,
        };
        Api::new(&connection, &queue).with_waits(Duration::from_millis(300), Duration::from_millis(300))
    }

    fn command(id: &str, act: Act) -> Command {
        Command { key: Key { collection: "schedules", id: id.to_owned() }, revision: 0, act }
    }

    fn trigger(id: &str) -> Command {
        let request =
            v1::TriggerScheduleRequest { name: id.to_owned(), ..v1::TriggerScheduleRequest::default() };
        command(id, Act::Trigger(request))
    }

    fn release(id: &str) -> Command {
        let request = v1::ReleaseTokenRequest { name: id.to_owned(), ..v1::ReleaseTokenRequest::default() };
        command(id, Act::Release(request))
    }

    #[tokio::test]
    async fn one_that_is_never_answered_goes_back_and_the_others_go_on() {
        let api = api().await;
        let commands = [trigger("hang"), trigger("a"), release("b"), trigger("c")];
        let commands: BTreeMap<usize, Command> = commands.into_iter().enumerate().collect();
        let (outcomes, away) = carry_out(&api, &commands, 0).await;
        assert!(away.is_none(), "{away:?}");
        let is_later = |place: usize| matches!(outcomes[&place], Outcome::Later(_));
        assert_eq!([0, 1, 2, 3].map(is_later), [true, false, true, false], "{outcomes:?}");
    }

    #[tokio::test]
    async fn one_alone_waits_until_the_service_has_shown_that_it_is_there() {
        let api = api().await;
        for only in [trigger("hang"), release("b")] {
            let commands = BTreeMap::from([(5, only)]);
            let (outcomes, away) = carry_out(&api, &commands, 0).await;
            assert!(outcomes.is_empty() && away.is_some(), "{outcomes:?}");
            let (outcomes, away) = carry_out(&api, &commands, TRIES_MAX).await;
            assert!(away.is_none() && matches!(outcomes[&5], Outcome::Later(_)), "{outcomes:?}, {away:?}");
        }
    }

    #[tokio::test]
    async fn applies_of_which_one_hangs_go_alone() {
        let api = api().await;
        let apply = |id: &str| {
            let request = v1::ApplyResourcesRequest {
                namespace: id.to_owned(),
                ..v1::ApplyResourcesRequest::default()
            };
            command(id, Act::Apply(Box::new(request)))
        };
        let commands: BTreeMap<usize, Command> =
            [apply("hang"), apply("a")].into_iter().enumerate().collect();
        let (outcomes, away) = carry_out(&api, &commands, 0).await;
        assert!(outcomes.is_empty() && away.is_some(), "the call as a whole is tried again: {outcomes:?}");
        let (outcomes, away) = carry_out(&api, &commands, SILENCES_MAX).await;
        assert!(away.is_none() && matches!(outcomes[&0], Outcome::Later(_)), "{outcomes:?}, {away:?}");
        assert!(matches!(outcomes[&1], Outcome::Early(_)), "{outcomes:?}");
    }

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
