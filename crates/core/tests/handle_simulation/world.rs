//! The world's clockwork: what happens next, and the end of chaos.

use std::collections::BTreeMap;

use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Answer, Release};
use tollgate_core::model::*;
use uuid::Uuid;

use crate::handle_world::START_US;
use crate::master::Master;
use crate::owner::Owner;
use crate::random::Random;

/// How many queue shards there are.
pub(crate) const SHARDS: u16 = 3;
/// How long chaos reigns.
const CHAOS_US: i64 = 4 * MINUTE_US;
/// By when everything must have come to rest after it.
const CALM_US: i64 = DAY_US;

/// What is broken on purpose, to see that a check sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Effects are performed though their commit failed.
    EffectsOfFailedCommits,
    /// A commit loses token rows.
    TokensNotWritten,
    /// The owner is told a limit twice as large as the store has.
    LimitDoubled,
    /// A new owner does not load waiting events.
    WaitingNotLoaded,
    /// Withdrawn runs stay in the store.
    WithdrawnStay,
    /// Answers are given before the commit.
    RepliesEarly,
}

impl Fault {
    pub(crate) const PLANTED: [Self; 6] = [
        Self::EffectsOfFailedCommits,
        Self::TokensNotWritten,
        Self::LimitDoubled,
        Self::WaitingNotLoaded,
        Self::WithdrawnStay,
        Self::RepliesEarly,
    ];
}

/// How often what happened, to see that a world is not idle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals(pub(crate) BTreeMap<&'static str, u64>);

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    pub(crate) fn all_seen(&self) -> bool {
        const SEEN: [&str; 29] = [
            "send",
            "resend",
            "commit",
            "commit failed",
            "commit durable after all",
            "crash",
            "clock jump",
            "released",
            "comes again",
            "late",
            "not held",
            "refused",
            "extended",
            "suspect",
            "moved",
            "on a long way",
            "forward",
            "withdrawn",
            "revived",
            "cancel",
            "deleted",
            "SUCCEEDED",
            "FAILED",
            "DEAD",
            "EXPIRED",
            "CANCELLED",
            "LOST",
            "skipped",
            "buffered",
        ];
        SEEN.iter().all(|what| self.0.contains_key(what))
    }
}

/// Something that happens at its time.
pub(crate) enum Event {
    /// Somebody does something.
    Act,
    /// An emitter opens its next window.
    Window,
    /// An emission reaches its shard.
    Emit(u16, Box<(Run, RunSpec)>),
    /// The commit of this life of the owner comes to its end.
    Commit(u16, u64),
    /// The read of this life of the owner goes on.
    Read(u16, u64),
    /// An owner takes the shard over.
    Take(u16),
    /// A target answers.
    Answer { shard: u16, life: u64, run: RunId, index: u32, attempt: u32, sent: Sent },
    /// A consumer releases, directly or through the inbox.
    Release { shard: u16, release: Release, inbox: bool },
    /// A consumer says that it is at work.
    Heartbeat { shard: u16, run: RunId, index: u32, attempt: u32, left: u32 },
}

pub(crate) struct World {
    pub(crate) fault: Fault,
    pub(crate) random: Random,
    pub(crate) now: Now,
    pub(crate) wall_max_us: i64,
    pub(crate) owners: [Owner; SHARDS as usize],
    pub(crate) master: Master,
    events: BTreeMap<(i64, u64), Event>,
    pub(crate) numbers: u64,
    /// The latest attempt of each event, and the shard that its run is delivered from.
    pub(crate) attempts: BTreeMap<(RunId, u32), u32>,
    pub(crate) shard_of: BTreeMap<RunId, u16>,
    pub(crate) chaos: bool,
    pub(crate) totals: Totals,
}

impl World {
    pub(crate) fn new(seed: u64, fault: Fault) -> Self {
        let mut random = Random::new(seed);
        let now =
            Now { wall_us: START_US + random.within(0, MINUTE_US), mono_us: random.within(0, 1_000_000_000) };
        let mut world = Self {
            fault,
            random,
            now,
            wall_max_us: now.wall_us,
            owners: std::array::from_fn(|_| Owner::new()),
            master: Master::new(now.wall_us),
            events: BTreeMap::new(),
            numbers: 0,
            attempts: BTreeMap::new(),
            shard_of: BTreeMap::new(),
            chaos: true,
            totals: Totals::default(),
        };
        world.make_policies();
        for _ in 0..world.random.within(2, 5) {
            world.create_schedule();
        }
        for event in (0..SHARDS).map(Event::Take).chain([Event::Window, Event::Act]) {
            world.after(0, event);
        }
        world
    }

    /// Chaos, then calm until everything rests.
    pub(crate) fn play(mut self) -> Totals {
        self.until(self.now.mono_us + CHAOS_US);
        self.chaos = false;
        self.make_peace();
        let end_us = self.now.mono_us + CALM_US;
        while !self.at_rest() || self.events.values().any(|event| matches!(event, Event::Emit(..))) {
            assert!(self.now.mono_us < end_us, "no rest: {}", self.unrest());
            self.until(self.now.mono_us + 30 * SECOND_US);
            self.free_held();
            self.resume_schedules();
        }
        self.check_end();
        self.totals
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.totals.0.entry(what).or_default() += 1;
    }

    pub(crate) fn after(&mut self, us: i64, event: Event) {
        self.numbers += 1;
        self.events.insert((self.now.mono_us + us, self.numbers), event);
    }

    /// A new id. Ids of messages about schedules come in any order, the others in that of their time.
    pub(crate) fn id(&mut self, control: &Control) -> Uuid {
        self.numbers += 1;
        match control {
            Control::ScheduleChanged { .. } => Uuid::from_u64_pair(self.random.next(), self.random.next()),
            _ => Uuid::from_u64_pair(self.numbers, 0),
        }
    }

    fn until(&mut self, end_us: i64) {
        loop {
            for shard in 0..SHARDS {
                self.poll(shard);
            }
            let event = self.events.first_key_value().map(|(key, _)| key.0);
            let deadlines = self.owners.iter().filter_map(|o| o.deadline(self.now));
            let next_us = deadlines.chain(event).min().unwrap_or(end_us).max(self.now.mono_us);
            if next_us > end_us {
                self.pass(end_us - self.now.mono_us);
                return;
            }
            self.pass(next_us - self.now.mono_us);
            if let Some(entry) = self.events.first_entry()
                && entry.key().0 <= self.now.mono_us
            {
                let event = entry.remove();
                self.happen(event);
            }
        }
    }

    fn pass(&mut self, us: i64) {
        self.now.mono_us += us;
        self.now.wall_us += us;
        self.wall_max_us = self.wall_max_us.max(self.now.wall_us);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act => {
                if self.chaos {
                    self.act();
                    let wait_us = self.random.within(1_000, 2 * SECOND_US);
                    self.after(wait_us, Event::Act);
                }
            }
            Event::Window => self.open_window(),
            Event::Emit(shard, emission) => {
                let (run, spec) = *emission;
                self.owners[usize::from(shard)].store.emit(run, &spec);
            }
            Event::Commit(shard, life) => self.end_commit(shard, life),
            Event::Read(shard, life) => self.go_on_reading(shard, life),
            Event::Take(shard) => self.take(shard),
            Event::Answer { shard, life, run, index, attempt, sent } => {
                self.answer(shard, life, (run, index, attempt), sent);
            }
            Event::Release { shard, release, inbox } => self.release(shard, release, inbox),
            Event::Heartbeat { shard, run, index, attempt, left } => {
                self.heartbeat(shard, (run, index, attempt), left);
            }
        }
    }

    /// Somebody does something that nobody expects.
    fn act(&mut self) {
        let shard = self.random.within(0, i64::from(SHARDS)) as u16;
        match self.random.within(0, 100) {
            0..8 => self.create_schedule(),
            8..30 => self.change_schedule(),
            30..42 => self.change_policy(),
            42..50 => self.cancel_a_run(shard),
            50..58 => self.retry_dead(shard),
            58..66 => self.run_by_hand(),
            66..70 => {
                let pause = self.random.percent(50).then(crate::handle_world::pause);
                self.post(shard, Control::PauseShard { pause });
            }
            70..76 => self.crash(shard),
            76..80 => {
                self.now.wall_us += self.random.within(-40 * SECOND_US, 40 * SECOND_US);
                self.wall_max_us = self.wall_max_us.max(self.now.wall_us);
                self.count("clock jump");
            }
            _ => self.look(shard),
        }
    }

    pub(crate) fn count_answer(&mut self, answer: &Answer) {
        self.count(match answer {
            Answer::Released => "released",
            Answer::ComesAgain { .. } => "comes again",
            Answer::Extended { .. } => "extended",
            Answer::NotHeld => "not held",
            Answer::Late => "late",
            Answer::Refused { .. } => "refused",
        });
    }
}
