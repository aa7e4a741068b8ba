//! A shard from its rows: what can be read, and what the rest means for limits and schedules.
//!
//! In: the rows that a driver read. Out: a [`LoadedShard`], and every row that cannot be read. Invariants: a bad row stops
//! what it describes and nothing else; what cannot be read stays in the store; no limit is passed because of it:
//! - a policy is left out, and events of an unknown policy wait;
//! - a schedule is taken as paused, until its next change brings a sound row;
//! - a token counts as held until its consumer or an operator releases it;
//! - a batch counts every event of its range that is found nowhere else, as delivered;
//! - a run of which it cannot be read which events have not started is left out as well: none may start twice, and none be lost;
//! - a token or a batch of which not even the key can be read counts, and its run is left out;
//! - a run is left out, and its tokens still count against its policy; so it is with a run without its spec.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::batch::{BATCH_MAX, TokenBatch};
use tollgate_core::handle::change::{ShardPause, ShardSchedule, TokenRow, TokenState, Unstarted};
use tollgate_core::handle::control::Message;
use tollgate_core::model::{Pause, Policy, Run, RunId, RunSpec};
use uuid::Uuid;

use super::batch::BatchRecord;
use super::ended::EndedRecord;
use super::handle::{
    BodyRow, HistoryRecord, ScheduleBody, ShardPolicyRow, SpecRecord, TokenRecord, pause, spec_keys,
};
use super::run::RunRow;
use super::stand_in::{Doubtful, events_of};
use super::unstarted::UnstartedRow;
use crate::StoreError;
use crate::corrupt::CorruptRow;
use crate::handle::{Inbox, LoadedShard, UntakenRuns};

/// Who pauses what cannot be read.
const ACTOR: &str = "tollgate";

/// A shard as it is put together.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    shard: u16,
    loaded: LoadedShard,
    batches: Vec<TokenBatch>,
    tokens: Vec<TokenRow>,
    /// Batches that cannot be read, and events that are in none of them.
    doubtful: Vec<Doubtful>,
    elsewhere: BTreeSet<(RunId, u32)>,
    /// How many tokens there are of which no more than their run is known.
    nameless: Vec<(RunId, u32)>,
    /// Runs that cannot be worked on, and their policies.
    unfit: BTreeMap<RunId, Option<Uuid>>,
    found: Vec<CorruptRow>,
}

impl Assembly {
    /// Nothing yet.
    pub(crate) fn new(shard: i32) -> Self {
        Self { shard: u16::try_from(shard).unwrap_or_default(), ..Self::default() }
    }

    /// Rows that could not even be taken apart.
    pub(crate) fn undecodable(&mut self, rows: Vec<CorruptRow>) {
        self.found.extend(rows);
    }

    pub(crate) fn policies(&mut self, rows: Vec<ShardPolicyRow>) {
        for row in rows {
            let deleted = row.deleted_us.map(|deleted_us| (row.uid, deleted_us));
            if let Some(policy) = self.sound(Policy::try_from(row)) {
                self.loaded.policies.push(policy);
                self.loaded.policies_deleted.extend(deleted);
            }
        }
    }

    pub(crate) fn schedules(&mut self, rows: Vec<ScheduleBody>) {
        for row in rows {
            let (uid, generation) = (row.schedule_uid, row.generation);
            let schedule = ShardSchedule::try_from(row);
            let stand_in = schedule.as_ref().err().map(|error| stands_in(uid, generation, error));
            let schedule = self.sound(schedule).or(stand_in);
            self.loaded.schedules.extend(schedule);
        }
    }

    pub(crate) fn runs(&mut self, rows: Vec<RunRow>) {
        for row in rows {
            let (id, policy) = (RunId(row.run_id), row.policy_uid);
            match self.sound(Run::try_from(row)) {
                Some(run) => self.loaded.runs.push(run),
                None => self.unfit(id, policy),
            }
        }
    }

    pub(crate) fn tokens(&mut self, rows: Vec<TokenRecord>) {
        for row in rows {
            let token = TokenRow::try_from(row.clone());
            let stand_in = token.as_ref().err().map(|error| row.stands_in(error.to_string()));
            let token = self.sound(token).or(stand_in);
            self.tokens.extend(token);
        }
    }

    /// A token of which the columns that are not of its key may hold anything.
    pub(crate) fn token_stands_in(&mut self, row: &TokenRecord, message: String) {
        self.tokens.push(row.stands_in(message));
    }

    pub(crate) fn batches(&mut self, rows: Vec<BatchRecord>) {
        for row in rows {
            match self.sound(TokenBatch::try_from(row.clone())) {
                Some(batch) => self.batches.push(batch),
                None => self.batch_stands_in(&row),
            }
        }
    }

    /// A batch of which the columns that are not of its key may hold anything.
    pub(crate) fn batch_stands_in(&mut self, row: &BatchRecord) {
        match Doubtful::of(row) {
            Some(doubtful) => self.doubtful.push(doubtful),
            None => self.nameless_batch(Some(row.run_id), row.events),
        }
    }

    /// A token of which not even the key can be read. To be called once runs are known.
    pub(crate) fn nameless_token(&mut self, run: Option<Uuid>) {
        self.nameless(run, 1);
    }

    /// A batch of which not even the key can be read, and its column `events`.
    pub(crate) fn nameless_batch(&mut self, run: Option<Uuid>, events: i32) {
        self.nameless(run, events_of(events).unwrap_or(BATCH_MAX));
    }

    /// Whichever events they are of, their run must not go on, nor end, without them.
    fn nameless(&mut self, run: Option<Uuid>, tokens: u32) {
        let id = RunId(run.unwrap_or_default());
        self.nameless.push((id, tokens));
        if !self.leave_out(id) && run.is_none() {
            self.unfit(id, None);
        }
    }

    /// A run must not go on. Whether it is there.
    fn leave_out(&mut self, id: RunId) -> bool {
        let Some(at) = self.loaded.runs.iter().position(|run| run.id == id) else { return false };
        let run = self.loaded.runs.remove(at);
        self.unfit(id, run.policy_uid);
        true
    }

    /// To be called once runs are known.
    pub(crate) fn unstarted(&mut self, rows: Vec<UnstartedRow>) {
        for row in rows {
            let run = row.run_id;
            match self.sound(Unstarted::try_from(row)) {
                Some(unstarted) => self.loaded.unstarted.push(unstarted),
                None => self.unstarted_unknown(Some(run)),
            }
        }
    }

    /// Of a run, or of one of those that start their events key by key, nobody knows which have not started. To be called once
    /// runs are known.
    pub(crate) fn unstarted_unknown(&mut self, run: Option<Uuid>) {
        let is_meant = |known: &&Run| match run {
            Some(run) => known.id.0 == run,
            None => known.sorted_to.is_some(),
        };
        let meant: Vec<RunId> = self.loaded.runs.iter().filter(is_meant).map(|run| run.id).collect();
        meant.into_iter().for_each(|run| {
            self.leave_out(run);
        });
    }

    /// Where to look for events that have ended and may be in batches that cannot be read.
    pub(crate) fn doubtful(&self) -> Vec<(Uuid, i32, i64)> {
        self.doubtful.iter().map(Doubtful::place).collect()
    }

    /// What was in the place of this number: rows of their own, and batches. One that cannot be read says of no event that it
    /// has ended.
    pub(crate) fn ended(&mut self, number: usize, own: &[HistoryRecord], batches: &[EndedRecord]) {
        for batch in batches {
            let indexes = self.sound(batch.indexes()).unwrap_or_default();
            self.elsewhere.extend(indexes.into_iter().map(|index| (RunId(batch.run_id), index)));
        }
        if let Some(doubtful) = self.doubtful.get(number) {
            doubtful.ended(own, &mut self.elsewhere);
        }
    }

    /// A run that cannot be worked on: nothing of it starts, and its tokens count.
    pub(crate) fn unfit(&mut self, id: RunId, policy: Option<Uuid>) {
        self.unfit.insert(id, policy);
    }

    pub(crate) fn pause(&mut self, column: Option<String>) {
        let pause = pause(i32::from(self.shard), column);
        let stand_in = pause
            .as_ref()
            .err()
            .map(|error| ShardPause { order: Uuid::nil(), pause: Some(paused(error.to_string())) });
        self.loaded.pause = self.sound(pause).or(stand_in).unwrap_or_default();
    }

    /// Runs in states that no version knows.
    pub(crate) fn unknown_states(&mut self, rows: Vec<RunRow>) {
        for row in rows {
            let (id, policy) = (RunId(row.run_id), row.policy_uid);
            self.sound(Run::try_from(row));
            self.unfit(id, policy);
        }
    }

    /// The specs that are needed.
    pub(crate) fn spec_keys(&self) -> Vec<(Uuid, i64)> {
        spec_keys(&self.loaded.runs)
    }

    pub(crate) fn specs(&mut self, rows: Vec<SpecRecord>) {
        for row in rows {
            if let Some(spec) = self.sound(RunSpec::try_from(row)) {
                self.loaded.specs.push(spec);
            }
        }
    }

    /// Once all specs are there: the runs that have tokens and are not known yet.
    pub(crate) fn strays(&mut self) -> Vec<Uuid> {
        note_missing(self.shard, &self.loaded.runs, &self.loaded.specs, &mut self.found);
        let known: BTreeSet<RunId> = self.loaded.runs.iter().map(|run| run.id).collect();
        let strays = self.tokens.iter().map(|token| token.run).chain(self.batches.iter().map(|b| b.run));
        let strays = strays.chain(self.doubtful.iter().map(|batch| batch.run));
        let strays = strays.chain(self.nameless.iter().map(|(run, _)| *run));
        let strays = strays.filter(|run| !known.contains(run) && !self.unfit.contains_key(run));
        strays.map(|run| run.0).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The rows of [`Self::strays`], as far as there are any.
    pub(crate) fn stray_runs(&mut self, strays: &[Uuid], rows: Vec<RunRow>) {
        for row in rows {
            let (id, policy) = (RunId(row.run_id), row.policy_uid);
            if let Some(run) = self.sound(Run::try_from(row)) {
                self.token_without_run(id, format!("its run is {:?}", run.state));
            }
            self.unfit(id, policy);
        }
        for id in strays.iter().map(|id| RunId(*id)) {
            if !self.unfit.contains_key(&id) {
                self.token_without_run(id, "there is no such run".to_owned());
            }
        }
    }

    /// The shard, and what cannot be read of it.
    pub(crate) fn finish(mut self) -> (LoadedShard, Vec<CorruptRow>) {
        self.stand_ins();
        let known: BTreeSet<RunId> = self.loaded.runs.iter().map(|run| run.id).collect();
        let mut counted: BTreeMap<Option<Uuid>, u32> = BTreeMap::new();
        for batch in self.batches {
            if known.contains(&batch.run) {
                self.loaded.batches.push(batch);
            } else {
                self.tokens.extend(batch.rows());
            }
        }
        for token in self.tokens {
            if known.contains(&token.run) {
                self.loaded.tokens.push(token);
            } else if token.state != TokenState::Waiting {
                *counted.entry(self.unfit.get(&token.run).copied().flatten()).or_default() += 1;
            }
        }
        for (run, tokens) in self.nameless {
            *counted.entry(self.unfit.get(&run).copied().flatten()).or_default() += tokens;
        }
        self.loaded.counted = counted.into_iter().collect();
        self.loaded.left_out = self.unfit.into_keys().collect();
        (self.loaded, self.found)
    }

    /// What is left of the batches that cannot be read, once it is known where all other events are.
    fn stand_ins(&mut self) {
        if self.doubtful.is_empty() {
            return;
        }
        let of: BTreeSet<RunId> = self.doubtful.iter().map(|batch| batch.run).collect();
        let own = self.tokens.iter().map(|token| (token.run, token.index));
        self.elsewhere.extend(own.filter(|(run, _)| of.contains(run)));
        let batches = self.batches.iter().filter(|batch| of.contains(&batch.run));
        self.elsewhere.extend(batches.flat_map(TokenBatch::rows).map(|row| (row.run, row.index)));
        let unstarted = self.loaded.unstarted.iter().filter(|unstarted| of.contains(&unstarted.run));
        self.elsewhere
            .extend(unstarted.flat_map(|unstarted| unstarted.indexes().map(|at| (unstarted.run, at))));
        for doubtful in std::mem::take(&mut self.doubtful) {
            let run = self.loaded.runs.iter().find(|run| run.id == doubtful.run);
            let acquired_to = run.map(|run| run.sorted_to.unwrap_or(run.next_index));
            let batch = doubtful.stand_in(acquired_to, &self.elsewhere);
            self.elsewhere.extend(batch.rows().map(|row| (row.run, row.index)));
            self.batches.push(batch);
        }
        self.batches.sort_by_key(TokenBatch::key);
    }

    fn token_without_run(&mut self, run: RunId, message: String) {
        let (key, column) = (format!("run {run}"), "run_id".to_owned());
        self.found.push(CorruptRow { table: "tokens", shard: Some(self.shard), key, column, message });
    }

    /// The value; none, and the row noted, where it is corrupt.
    fn sound<T>(&mut self, read: Result<T, StoreError>) -> Option<T> {
        read.map_err(|error| self.found.extend(CorruptRow::of(Some(self.shard), &error))).ok()
    }
}

/// Names the specs that runs need and that are not there. A corrupt one has been named already.
fn note_missing(shard: u16, runs: &[Run], specs: &[RunSpec], found: &mut Vec<CorruptRow>) {
    let there: BTreeSet<(Uuid, i64)> =
        specs.iter().map(|spec| (spec.schedule_uid, spec.generation)).collect();
    let needed: BTreeSet<(Uuid, i64)> = runs.iter().map(|run| (run.schedule_uid, run.generation)).collect();
    for (uid, generation) in needed.difference(&there) {
        let missing = CorruptRow {
            table: "run_specs",
            shard: Some(shard),
            key: format!("schedule {uid}, generation {generation}"),
            column: "body".to_owned(),
            message: "there is no such row, and runs need it".to_owned(),
        };
        let same = |known: &CorruptRow| (known.table, &known.key) == (missing.table, &missing.key);
        if !found.iter().any(same) {
            found.push(missing);
        }
    }
}

/// Runs that no owner has taken in, as they are read.
#[derive(Debug, Default)]
pub(crate) struct Untaken {
    shard: u16,
    read: UntakenRuns,
    /// Runs whose rows cannot be read.
    pub(crate) unfit: Vec<Uuid>,
    found: Vec<CorruptRow>,
}

impl Untaken {
    /// Nothing yet.
    pub(crate) fn new(shard: u16) -> Self {
        Self { shard, ..Self::default() }
    }

    pub(crate) fn shard_id(&self) -> i32 {
        i32::from(self.shard)
    }

    /// Rows that could not even be taken apart, and the ids of those that have one.
    pub(crate) fn undecodable(&mut self, rows: Vec<CorruptRow>, ids: Vec<Uuid>) {
        self.read.rows += rows.len();
        self.found.extend(rows);
        self.read.last = self.read.last.max(ids.iter().copied().map(RunId).max());
        self.unfit.extend(ids);
    }

    pub(crate) fn runs(&mut self, rows: Vec<RunRow>) {
        self.read.rows += rows.len();
        for row in rows {
            let id = row.run_id;
            self.read.last = self.read.last.max(Some(RunId(id)));
            match Run::try_from(row) {
                Ok(run) => self.read.runs.push(run),
                Err(error) => {
                    self.found.extend(CorruptRow::of(Some(self.shard), &error));
                    self.unfit.push(id);
                }
            }
        }
    }

    /// The specs that are needed.
    pub(crate) fn spec_keys(&self) -> Vec<(Uuid, i64)> {
        spec_keys(&self.read.runs)
    }

    /// The specs as far as they can be read, and those that could not even be taken apart.
    pub(crate) fn specs(&mut self, rows: Vec<SpecRecord>, undecodable: Vec<CorruptRow>) {
        self.found.extend(undecodable);
        for row in rows {
            match RunSpec::try_from(row) {
                Ok(spec) => self.read.specs.push(spec),
                Err(error) => self.found.extend(CorruptRow::of(Some(self.shard), &error)),
            }
        }
    }

    /// What can be read, and what cannot.
    pub(crate) fn finish(mut self) -> (UntakenRuns, Vec<CorruptRow>) {
        note_missing(self.shard, &self.read.runs, &self.read.specs, &mut self.found);
        (self.read, self.found)
    }
}

/// The messages of an inbox, and what cannot be read of it.
pub(crate) fn read_inbox(shard: u16, rows: Vec<BodyRow>) -> (Inbox, Vec<CorruptRow>) {
    let (mut inbox, mut found) = (Inbox { rows: rows.len(), ..Inbox::default() }, Vec::new());
    for row in rows {
        let id = row.uid;
        match Message::try_from(row) {
            Ok(message) => inbox.messages.push(message),
            Err(error) => {
                inbox.unreadable.push(id);
                found.extend(CorruptRow::of(Some(shard), &error));
            }
        }
    }
    (inbox, found)
}

/// A schedule of which nothing starts until it is changed.
fn stands_in(uid: Uuid, generation: i64, error: &StoreError) -> ShardSchedule {
    ShardSchedule {
        uid,
        generation,
        changed_us: 0,
        until_us: 0,
        launches_us: Vec::new(),
        events: 1,
        priority: 0,
        pause: Some(paused(error.to_string())),
        deleted: false,
        cursor: None,
        cursor_us: 0,
        earlier: Vec::new(),
        home: None,
        rest_until_us: 0,
        chains: Vec::new(),
    }
}

fn paused(reason: String) -> Pause {
    Pause { reason, actor: ACTOR.to_owned(), since_us: 0 }
}
