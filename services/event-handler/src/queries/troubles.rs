//! What is wrong: with the queue shards that this process owns, and with the whole installation.
//!
//! In: what owners see of their shards, what has ended badly, rows that cannot be read, the clock, who owns what. Out:
//! troubles. Each process decides those of its own shards, and the one that is asked joins them. Not here: what counts as a
//! trouble, which the core decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tollgate_clock::ClockState;
use tollgate_core::model::{DAY_US, SECOND_US};
use tollgate_core::trouble::{
    Commits, Installation, Kind, Severity, Sight, Subject, Trouble, of_commits, of_drifting, of_ended,
    of_installation, of_missed, of_not_listed, of_shard, of_unlisted, worst_first,
};
use tollgate_proto::convert::{self, names, trouble};
use tollgate_proto::{FieldError, filter, page, v1};
use tollgate_service::status::status as store_status;
use tonic::Status;

use crate::Shared;
use crate::routes::{Input, Question};
use crate::workers::Unable;

/// The database answers within this time, or that is a trouble.
const STORE_MAX: Duration = Duration::from_secs(2);

/// For so long nobody has been able to do what waits before that is a trouble: workers that are started anew come back.
const UNABLE_MIN_US: i64 = 10 * SECOND_US;

/// How many of the triggers that were missed last are looked at: after an outage there may be millions.
const MISSED_MAX: u32 = 5_000;

/// Which troubles are asked for.
#[derive(Default)]
struct Wanted {
    namespace: Option<String>,
    kind: Option<Kind>,
    severity: Option<Severity>,
    policy: Option<String>,
    schedule: Option<String>,
}

impl Wanted {
    fn has(&self, trouble: &Trouble) -> bool {
        let Trouble { kind, severity, subject, .. } = trouble;
        let of = |wanted: &Option<String>, has: &str| wanted.as_ref().is_none_or(|wanted| wanted == has);
        let concerns = subject.namespace.is_empty() || of(&self.namespace, &subject.namespace);
        concerns
            && self.kind.is_none_or(|wanted| wanted == *kind)
            && self.severity.is_none_or(|wanted| wanted == *severity)
            && of(&self.policy, &subject.policy)
            && of(&self.schedule, &subject.schedule)
    }
}

/// Reads a full name in a field.
type Full = fn(&str, &str) -> Result<convert::Name, FieldError>;
/// Reads an id, or a full name, of a namespace.
type Within = fn(&str, &str, &str) -> Result<convert::Name, FieldError>;

impl Wanted {
    /// The id in a filter's value. A full name says which namespace is asked for, where nothing else does.
    fn id(&mut self, value: &str, full: Full, within: Within) -> Result<String, FieldError> {
        let name = match &self.namespace {
            Some(namespace) => within("filter", namespace, value)?,
            None if names::is_id(value) => return Ok(value.to_owned()),
            None => full("filter", value)?,
        };
        self.namespace = Some(name.namespace);
        Ok(name.id)
    }
}

/// What is wrong, and how much of it is seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) troubles: Vec<Trouble>,
    /// Some may be missing.
    pub(crate) incomplete: bool,
    /// Queue shards have changed hands, and their new owners may not see all yet that was seen before.
    pub(crate) settling: bool,
    /// Of how many queue shards they are.
    pub(crate) shards: u64,
}

impl Shared {
    /// What is wrong, worst first. `reach`: the one namespace that the caller reaches; what is not of it is not told.
    pub(crate) async fn list_troubles(
        &self,
        request: v1::ListTroublesRequest,
        reach: Option<&str>,
    ) -> Result<v1::ListTroublesResponse, Status> {
        let wanted = wanted(&request)?;
        let size = page::size(request.page_size)?;
        let query = ["ListTroubles", &request.parent, &request.filter];
        let from = page::Token::<u32>::decode(&request.page_token, &query)?.unwrap_or(0);
        let Seen { troubles: mut all, incomplete, .. } = self.troubles().await;
        all.retain(|trouble| {
            reach.is_none_or(|namespace| trouble.subject.namespace == namespace) && wanted.has(trouble)
        });
        let total_size = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let shown = all.iter().skip(from as usize).take(size).map(trouble::to_message);
        let troubles: Vec<v1::Trouble> = shown.collect();
        let next = from.saturating_add(u32::try_from(troubles.len()).unwrap_or(u32::MAX));
        let next_page_token =
            if next < total_size { page::Token::encode(next, &query) } else { String::new() };
        Ok(v1::ListTroublesResponse { troubles, next_page_token, total_size, incomplete })
    }

    /// All that is wrong, worst first.
    pub(crate) async fn troubles(&self) -> Seen {
        let (mut known, elsewhere, everywhere) = futures::future::join3(
            self.troubles_here(),
            self.peers.troubles(),
            self.troubles_of_installation(),
        )
        .await;
        let (of_all, owned) = everywhere;
        let missed = of_all.iter().filter(|trouble| trouble.kind == Kind::TriggersMissed);
        known.incomplete |= missed.map(|trouble| trouble.count).sum::<u64>() >= MISSED_MAX.into();
        known.troubles.extend(of_all);
        for (process, answer) in elsewhere {
            match answer {
                Some(answer) => {
                    known.incomplete |= answer.incomplete;
                    known.settling |= answer.settling;
                    known.shards += u64::from(answer.shards_count);
                    known.troubles.extend(answer.troubles.into_iter().filter_map(trouble::from_message));
                }
                None => {
                    known.incomplete = true;
                    let count = owned.get(&process).copied().unwrap_or_default();
                    known.troubles.push(of_process(Kind::HandlerSilent, process, count));
                }
            }
        }
        // One that changes hands at this moment may be nobody's.
        known.settling |= known.shards < owned.values().sum::<u64>();
        known.troubles = worst_first(known.troubles);
        known
    }

    /// Of this process and the shards that it owns.
    pub(crate) async fn troubles_here(&self) -> Seen {
        let routes = self.peers.routes();
        let shards = routes.shards();
        let unable = self.desk.unable(UNABLE_MIN_US);
        let pools: Arc<BTreeSet<u128>> = Arc::new(unable.keys().copied().collect());
        let sights = self.ask_owners(|reply| Input::Ask(Question::Sight { unable: pools.clone(), reply }));
        let (sights, (ended, incomplete)) = futures::future::join(sights, self.ended_badly(&shards)).await;
        let now_us = self.clock.wall_us();
        let troubles = ended.iter().flat_map(of_ended).collect();
        let mut known = Seen { troubles, incomplete, ..Seen::default() };
        let drift = self.drift.known(&shards, self.clock.mono_us());
        known.troubles.extend(drift.schedules.iter().map(of_drifting));
        known.incomplete |= drift.is_cut;
        known.settling |= drift.is_settling;
        let mut not_loaded = 0;
        for (shard, sight) in sights {
            match sight {
                Some(sight) => {
                    known.incomplete |= sight.incomplete;
                    known.settling |= sight.settling;
                    known.shards += 1;
                    known.troubles.extend(of_shard(&self.shown(sight, &unable), now_us));
                }
                // One that has been handed over meanwhile is its next owner's.
                None => not_loaded += u64::from(routes.owns(shard)),
            }
        }
        let all = &mut known.troubles;
        all.extend(self.lists.unlisted().iter().map(|unlisted| of_unlisted(unlisted, now_us)));
        if not_loaded > 0 {
            all.push(of_process(Kind::ShardsNotLoaded, self.process.clone(), not_loaded));
        }
        if matches!(self.clock.state(), ClockState::Off | ClockState::Unknown) {
            all.push(of_process(Kind::ClockWrong, self.process.clone(), 1));
        }
        all.extend(self.corrupt_rows(&shards));
        let (commits, slow) = self.options.metrics.recent_commits(self.clock.mono_us());
        all.extend(of_commits(&Commits { process: self.process.clone(), all: commits, slow }));
        known
    }

    /// Of the whole installation, and how many shards each process owns. Where the database does not answer soon, that
    /// is the trouble.
    async fn troubles_of_installation(&self) -> (Vec<Trouble>, BTreeMap<String, u64>) {
        let (people, day_us) = (self.people.clone(), self.clock.wall_us() - DAY_US);
        // A task of its own comes to its end, also where nobody waits any more.
        let asked = tokio::spawn(async move {
            let missed = people.missed_triggers(day_us, MISSED_MAX);
            let not_listed = people.not_listed_triggers(day_us, MISSED_MAX);
            futures::future::try_join4(people.leases(), people.emitted_until_us(), missed, not_listed).await
        });
        let fails = |words: String| {
            let trouble = of_process(Kind::StoreFails, self.process.clone(), 1);
            (vec![Trouble { words, ..trouble }], BTreeMap::new())
        };
        let (leases, emitted_until_us, missed, not_listed) =
            match tokio::time::timeout(STORE_MAX, asked).await {
                Ok(Ok(Ok(known))) => known,
                Ok(Ok(Err(error))) => return fails(store_status(error).message().to_owned()),
                Ok(Err(_)) | Err(_) => return fails(String::new()),
            };
        let mut owned: BTreeMap<String, u64> = BTreeMap::new();
        leases.into_iter().for_each(|lease| *owned.entry(lease.owner).or_default() += 1);
        let shards_without_owner = owned.remove("").unwrap_or_default();
        let known = Installation { shards_without_owner, emitted_until_us };
        let mut all = of_installation(&known, self.clock.wall_us());
        all.extend(missed.iter().filter_map(of_missed));
        all.extend(not_listed.iter().filter_map(of_not_listed));
        (all, owned)
    }

    /// How many troubles of each kind this process counts: its own and those of its own shards, so that sums over
    /// processes are right. Those of the installation are counted by the process with the first id of all that own
    /// shards.
    pub(crate) async fn troubles_by_kind(&self) -> BTreeMap<Kind, u64> {
        let (Seen { troubles: mut all, .. }, (of_all, owned)) =
            futures::future::join(self.troubles_here(), self.troubles_of_installation()).await;
        let counts_all = owned.keys().next().is_some_and(|first| *first == self.process);
        all.extend(of_all.into_iter().filter(|trouble| counts_all || !trouble.subject.process.is_empty()));
        let mut counts: BTreeMap<Kind, u64> = BTreeMap::new();
        worst_first(all).iter().for_each(|trouble| *counts.entry(trouble.kind).or_default() += 1);
        counts
    }

    /// A sight without the tokens that somebody may have quoted, with what is known of workers.
    fn shown(&self, mut sight: Sight, unable: &BTreeMap<u128, Unable>) -> Sight {
        sight.unserved.retain_mut(|unserved| {
            let Some(known) = unable.get(&unserved.pool) else { return false };
            unserved.since_us = Some(known.since_us);
            unserved.words.clone_from(&known.words);
            true
        });
        for failing in sight.sufferers.iter_mut().flat_map(|sufferer| &mut sufferer.failing) {
            failing.words = self.without_seal(failing.event, std::mem::take(&mut failing.words));
        }
        sight
    }

    /// Rows of these shards, or of none, that this process has passed over.
    fn corrupt_rows(&self, shards: &[u16]) -> Option<Trouble> {
        let is_own = |shard: Option<u16>| shard.is_none_or(|shard| shards.contains(&shard));
        let rows: Vec<_> =
            self.people.rows_passed_over().into_iter().filter(|row| is_own(row.shard)).collect();
        let of_shards = shards.iter().filter_map(|shard| self.passed_over.get(shard));
        let others: usize = of_shards.map(|passed_over| passed_over.0 + passed_over.1).sum();
        let count = rows.len().max(others) as u64;
        let first = rows.first();
        (count > 0).then(|| Trouble {
            severity: Severity::Critical,
            count,
            words: first
                .map(|row| format!("{}, column {}: {}", row.table, row.column, row.message))
                .unwrap_or_default(),
            ..Trouble::new(Kind::CorruptRows, Subject::default())
        })
    }
}

fn of_process(kind: Kind, process: String, count: u64) -> Trouble {
    let subject = Subject { process, ..Subject::default() };
    Trouble { severity: Severity::Critical, count, ..Trouble::new(kind, subject) }
}

fn wanted(request: &v1::ListTroublesRequest) -> Result<Wanted, Status> {
    let mut wanted = Wanted::default();
    if !request.parent.is_empty() {
        wanted.namespace = Some(names::namespace("parent", &request.parent)?);
    }
    for term in filter::parse(&request.filter, &["kind", "severity", "policy", "schedule"])? {
        match term.key.as_str() {
            "kind" => wanted.kind = Some(trouble::kind_in_filter(&term.value)?),
            "severity" => wanted.severity = Some(trouble::severity_in_filter(&term.value)?),
            "policy" => wanted.policy = Some(wanted.id(&term.value, names::policy, names::policy_within)?),
            _ => wanted.schedule = Some(wanted.id(&term.value, names::schedule, names::schedule_within)?),
        }
    }
    Ok(wanted)
}
