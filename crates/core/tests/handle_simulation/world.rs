//! The world's clockwork: what happens next, and the end of chaos.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::handle::release::Release;
use tollgate_core::handle::{Following, Send};
use tollgate_core::model::*;
use tollgate_core::own::{Look, Member};
use tollgate_core::plan::telling::Told;
use uuid::Uuid;

use crate::bug::Bug;
use crate::consumer::Leave;
use crate::emitter::Emitter;
use crate::fence::Lease;
use crate::handle_world::Store;
use crate::master::Master;
use crate::model::Model;
use crate::process::Process;
use crate::random::Random;
use crate::totals::{Seen, Totals};
use crate::troubles::Troubles;
use crate::windows::WindowRow;
use crate::workers::Workers;

/// How many queue shards there are.
pub(crate) const SHARDS: u16 = 3;
/// How many handlers, at most, at once.
const PROCESSES: usize = 3;
/// By when everything must have come to rest after the chaos.
const CALM_US: i64 = DAY_US;

/// One life of one owner of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The place of its process, and the process's id.
    pub(crate) slot: usize,
    pub(crate) id: u32,
    pub(crate) shard: u16,
    /// Counts owners.
    pub(crate) owner: u64,
    /// Counts machines.
    pub(crate) life: u64,
}

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Durable,
    Failed,
    /// Nobody says which of the two.
    UnknownDurable,
    UnknownFailed,
    /// It is durable long after everybody gave it up.
    UnknownLate,
}

/// What the owner hears of its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Durable,
    Failed,
    Unknown,
    Fenced,
}

/// A transaction on its way.
pub(crate) struct Flight {
    pub(crate) at: At,
    pub(crate) lease: Lease,
    pub(crate) changes: Changes,
    pub(crate) fate: Fate,
    pub(crate) decided_us: i64,
    /// Its process was frozen before it could hand it to the database.
    pub(crate) held: bool,
}

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum Event {
    /// Somebody does something.
    Act,
    /// A process starts in this place; writes its heartbeat, which arrives, and of which it hears; looks at the others,
    /// having read the leases; judges what it has read; takes a shard; wakes; ends.
    Start(usize),
    Beat(usize, u32),
    BeatArrives(usize, u32, (i64, u64), Box<Member>),
    BeatHeard(usize, u32, (i64, u64)),
    Look(usize, u32, u64, Box<Look>),
    Judge(usize, u32, u64, Box<Look>),
    Take(usize, u32, u16, u64, Lease),
    Thaw(usize, u32, i64),
    End(usize, u32),
    /// An owner loads; reads; hears of its commit; takes its shard over from itself; gives it up.
    Load(At),
    Read(At),
    Heard(At, u64, Heard),
    Retake(At),
    /// Keys of items have been read.
    Keys(At, (RunId, i64), u32, Vec<(String, u32)>),
    /// A worker is done with something.
    Room(String),
    /// The run that follows an end is launched; without one: the owner hears of it.
    Follow(At, Uuid, Option<Box<RunEnd>>),
    /// Somebody looks what will follow an end that is being committed; the owner is told, once it is durable.
    LookAhead(At, Uuid, u64, Box<RunEnd>),
    Ahead(At, Uuid, u64, Box<(Following, RunEnd)>),
    GiveUp(At, Vec<UnderWay>),
    /// A process waits no longer for the answers of a shard that it gave up.
    ReportEnds(At),
    /// A process asks whether its owners have something to read, and is told.
    Watch(usize, u32),
    Watched(usize, u32, i64, BTreeSet<u16>),
    /// A transaction reaches its end in the database.
    Durable(u64),
    /// A sender's turn has come.
    Write(At, Box<Send>, Leave),
    /// A target answers.
    Answer {
        at: At,
        run: RunId,
        index: u32,
        attempt: u32,
        /// None: it was not made after all.
        sent: Option<Sent>,
    },
    /// A consumer releases, directly or through the inbox.
    Release {
        shard: u16,
        release: Release,
        inbox: bool,
        tries: u8,
    },
    /// A consumer says that it is at work.
    Heartbeat {
        shard: u16,
        run: RunId,
        index: u32,
        attempt: u32,
        left: u32,
    },
    /// A message becomes visible in an inbox.
    Post(u16, Box<Message>),
    /// As [`Event::Post`], if the shard has not changed hands since.
    PostUnder(u16, u64, Box<Message>),
    /// An emission by hand reaches its shard.
    Emit(u16, Box<(Run, RunSpec)>),
    /// An emitter goes on.
    Emitter(usize, u32),
    /// Whoever tells of changes goes on; a transaction of it reaches its end; it hears whether it did.
    Tell(u64),
    Told(Vec<Told>),
    HeardOfTold(u64, bool),
    /// A master looks for what was left in the outbox.
    Sweep(usize),
}

impl Event {
    /// The process in which it happens.
    fn process(&self) -> Option<(usize, u32)> {
        match self {
            Self::Beat(slot, id)
            | Self::BeatHeard(slot, id, _)
            | Self::Look(slot, id, ..)
            | Self::Judge(slot, id, ..)
            | Self::Watch(slot, id)
            | Self::Watched(slot, id, ..)
            | Self::Take(slot, id, ..) => Some((*slot, *id)),
            Self::Load(at)
            | Self::Read(at)
            | Self::Heard(at, ..)
            | Self::Retake(at)
            | Self::Keys(at, ..)
            | Self::Follow(at, ..)
            | Self::LookAhead(at, ..)
            | Self::Ahead(at, ..)
            | Self::GiveUp(at, _)
            | Self::ReportEnds(at)
            | Self::Write(at, ..)
            | Self::Answer { at, .. } => Some((at.slot, at.id)),
            _ => None,
        }
    }

    /// Whether the world is not at rest before it has happened.
    fn is_work(&self) -> bool {
        matches!(
            self,
            Self::Emit(..)
                | Self::Post(..)
                | Self::PostUnder(..)
                | Self::Tell(_)
                | Self::Told(..)
                | Self::HeardOfTold(..)
                | Self::Durable(_)
        )
    }

    fn number(&self) -> u64 {
        match self {
            Self::Act => 1,
            Self::Start(slot) => 2 + *slot as u64,
            Self::Beat(slot, id)
            | Self::BeatHeard(slot, id, _)
            | Self::Look(slot, id, ..)
            | Self::Judge(slot, id, ..)
            | Self::Take(slot, id, ..)
            | Self::Thaw(slot, id, _) => 10 + *slot as u64 + 16 * u64::from(*id),
            Self::Answer { at, index, attempt, .. } => {
                at.owner + u64::from(*index) * 64 + u64::from(*attempt)
            }
            Self::Durable(number) => *number,
            Self::Heard(at, number, _) => at.life + number,
            Self::Read(at) | Self::Load(at) => at.life,
            _ => 5,
        }
    }
}

pub(crate) struct World {
    pub(crate) bug: Bug,
    pub(crate) random: Random,
    pub(crate) troubles: Troubles,
    pub(crate) now: Now,
    pub(crate) wall_max_us: i64,
    pub(crate) stores: [Store; SHARDS as usize],
    pub(crate) leases: [Lease; SHARDS as usize],
    pub(crate) members: BTreeMap<u32, Member>,
    pub(crate) processes: [Process; PROCESSES],
    pub(crate) flights: BTreeMap<u64, Flight>,
    pub(crate) master: Master,
    pub(crate) windows: Vec<WindowRow>,
    pub(crate) emitters: [Emitter; 2],
    pub(crate) workers: Workers,
    pub(crate) model: Model,
    events: BTreeMap<(i64, u64), Event>,
    pub(crate) numbers: u64,
    /// The order in which messages were put, for those who trust in it.
    pub(crate) sequence: BTreeMap<Uuid, u64>,
    /// What looks have found, by the life of their owner and the message.
    pub(crate) ahead: BTreeMap<(u64, Uuid), (u64, Following)>,
    /// Owners to be looked at.
    pub(crate) touched: Vec<(usize, u16)>,
    pub(crate) chaos: bool,
    pub(crate) totals: Totals,
    /// Everything that happens is told.
    pub(crate) verbose: bool,
}

impl World {
    pub(crate) fn new(seed: u64, bug: Bug) -> Self {
        bug.turn_on();
        let mut random = Random::new(seed);
        let wall_us = crate::handle_world::START_US + random.within(0, MINUTE_US);
        let now = Now { wall_us, mono_us: random.within(0, 1_000_000_000) };
        let troubles = Troubles::new(&mut random);
        let mut world = Self {
            bug,
            random,
            troubles,
            now,
            wall_max_us: now.wall_us,
            stores: Default::default(),
            leases: Default::default(),
            members: BTreeMap::new(),
            processes: Default::default(),
            flights: BTreeMap::new(),
            master: Master::default(),
            windows: Vec::new(),
            emitters: Default::default(),
            workers: Workers::default(),
            model: Model::default(),
            events: BTreeMap::new(),
            numbers: 0,
            sequence: BTreeMap::new(),
            ahead: BTreeMap::new(),
            touched: Vec::new(),
            chaos: true,
            totals: Totals::default(),
            verbose: std::env::var_os("TOLLGATE_SIM_VERBOSE").is_some(),
        };
        world.make_policies();
        for _ in 0..world.random.within(2, 5) {
            world.create_schedule();
        }
        let handlers = world.random.within(1, PROCESSES as i64 + 1) as usize;
        for event in (0..handlers).map(Event::Start).chain([Event::Act]) {
            world.after(0, event);
        }
        for slot in 0..2 {
            world.start_emitter(slot);
            world.after(0, Event::Sweep(slot));
        }
        world
    }

    /// Chaos, then calm until everything rests.
    pub(crate) fn play(mut self) -> Totals {
        let chaos_us = self.random.within(30, 90) * SECOND_US;
        self.until(self.now.mono_us + chaos_us);
        self.chaos = false;
        self.make_peace();
        let end_us = self.now.mono_us + CALM_US;
        while !self.at_rest() || self.events.values().any(Event::is_work) {
            assert!(self.now.mono_us < end_us, "no rest: {}", self.unrest());
            self.until(self.now.mono_us + 10 * SECOND_US);
            self.free_held();
            self.resume_schedules();
        }
        self.check_end();
        self.check_room();
        self.check_placement();
        self.totals
    }

    pub(crate) fn count(&mut self, what: Seen) {
        self.totals.count(what);
    }

    pub(crate) fn after(&mut self, us: i64, event: Event) {
        self.numbers += 1;
        self.events.insert((self.now.mono_us + us, self.numbers), event);
    }

    /// True so many times in a hundred, while chaos reigns.
    pub(crate) fn strikes(&mut self, trouble: bool, chance: u64) -> bool {
        trouble && self.chaos && self.random.percent(chance)
    }

    pub(crate) fn wait_us(&mut self, waits: &[i64]) -> i64 {
        self.random.pick(waits).copied().unwrap_or_default()
    }

    fn until(&mut self, end_us: i64) {
        loop {
            self.poll_touched();
            let event_us = self.events.first_key_value().map_or(i64::MAX, |(key, _)| key.0);
            let (deadline_us, owner) = self.next_deadline();
            if event_us.min(deadline_us) > end_us {
                self.pass(end_us - self.now.mono_us);
                return;
            }
            if deadline_us < event_us {
                self.pass((deadline_us - self.now.mono_us).max(0));
                self.totals.steps += 1;
                self.touched.extend(owner);
            } else if let Some(((at_us, _), event)) = self.events.pop_first() {
                self.pass((at_us - self.now.mono_us).max(0));
                self.step(event);
            }
        }
    }

    fn step(&mut self, event: Event) {
        if let Some((slot, id)) = event.process() {
            let process = &self.processes[slot];
            if process.id != id {
                return;
            }
            if let Some(thaw_us) = process.frozen_until_us {
                self.after((thaw_us - self.now.mono_us).max(0), event);
                return;
            }
        }
        self.totals.steps += 1;
        self.totals.note(self.now.mono_us as u64 ^ event.number() << 44);
        self.say(|| format!("{event:?}"));
        self.happen(event);
    }

    /// For whoever replays a seed.
    pub(crate) fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>9.3} {}", self.now.mono_us as f64 / 1e6, text());
        }
    }

    fn pass(&mut self, us: i64) {
        self.now.mono_us += us;
        self.now.wall_us += us;
        self.wall_max_us = self.wall_max_us.max(self.now.wall_us);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act if self.chaos => {
                self.act();
                let wait_us = self.random.within(1_000, SECOND_US);
                self.after(wait_us, Event::Act);
            }
            Event::Act => {}
            Event::Start(slot) => self.start(slot),
            Event::Beat(slot, id) => self.beat(slot, id),
            Event::BeatArrives(slot, id, began, member) => self.beat_arrives(slot, id, began, *member),
            Event::BeatHeard(slot, id, began) => self.beat_heard(slot, id, began),
            Event::Look(slot, id, lapses, look) => self.look(slot, id, lapses, *look),
            Event::Judge(slot, id, lapses, look) => self.judge(slot, id, lapses, *look),
            Event::Take(slot, id, shard, lapses, seen) => self.take(slot, id, shard, lapses, &seen),
            Event::Thaw(slot, id, long_us) => self.thaw(slot, id, long_us),
            Event::End(slot, id) => self.end_process(slot, id),
            Event::Load(at) => self.load(at),
            Event::Read(at) => self.go_on_reading(at),
            Event::Heard(at, number, heard) => self.hear(at, number, heard),
            Event::Retake(at) => self.retake(at),
            Event::Keys(at, of, first, items) => self.keys_read(at, of, first, items),
            Event::Room(address) => self.room_comes(&address),
            Event::Follow(at, message, Some(end)) => self.follow(at, message, end),
            Event::Follow(at, message, None) => self.followed(at, message),
            Event::LookAhead(at, message, commits, end) => self.look_ahead(at, message, commits, *end),
            Event::Ahead(at, message, commits, found) => self.take_up(at, message, commits, *found),
            Event::GiveUp(at, own) => self.give_up(at, own),
            Event::ReportEnds(at) => self.report_ends(at),
            Event::Watch(slot, id) => self.watch(slot, id),
            Event::Watched(slot, id, began_us, news) => self.watched(slot, id, began_us, &news),
            Event::Write(at, send, leave) => self.write_out(at, *send, leave),
            Event::Durable(number) => self.end_transaction(number),
            Event::Answer { at, run, index, attempt, sent } => self.answer(at, (run, index), attempt, sent),
            Event::Release { shard, release, inbox, tries } => self.release(shard, release, inbox, tries),
            Event::Heartbeat { shard, run, index, attempt, left } => {
                self.heartbeat(shard, (run, index), attempt, left);
            }
            Event::Post(shard, message) => {
                if let Control::Release { release } = &message.control {
                    self.model.promise(release, self.now);
                }
                self.stores[usize::from(shard)].inbox.entry(message.id).or_insert(*message);
            }
            Event::PostUnder(shard, lease_id, message) => self.post_under(shard, lease_id, *message),
            Event::Emit(shard, emission) => {
                let (run, spec) = *emission;
                self.stores[usize::from(shard)].emit(run, &spec);
            }
            Event::Emitter(slot, id) => self.go_on_emitting(slot, id),
            Event::Tell(number) => self.go_on_telling(number),
            Event::Told(told) => self.told(told),
            Event::HeardOfTold(number, told) => self.hear_of_told(number, told),
            Event::Sweep(slot) => self.sweep(slot),
        }
    }

    /// Somebody does something that nobody expects.
    fn act(&mut self) {
        let shard = self.random.within(0, i64::from(SHARDS)) as u16;
        let troubles = self.troubles;
        match self.random.within(0, 100) {
            0..5 => self.create_schedule(),
            5..22 if troubles.changes => self.change_schedule(),
            22..32 if troubles.changes => self.change_policy(),
            32..38 => self.cancel_a_run(shard),
            38..44 => self.retry_dead(shard),
            44..52 => self.run_by_hand(),
            52..55 if troubles.pauses => {
                let pause = self.random.percent(50).then(crate::handle_world::pause);
                self.post_later(shard, Control::PauseShard { pause });
            }
            55..60 if troubles.crashes => self.crash_any(),
            60..66 if troubles.freezes => self.freeze_any(),
            66..70 if troubles.cuts => self.cut_any(),
            70..75 if troubles.stops => self.stop_any(),
            75..79 if troubles.clocks => self.jump(),
            83..85 if troubles.clocks => self.judge_a_clock(),
            79..83 if troubles.emitters => self.disturb_emitter(),
            85..90 => self.sync(shard),
            _ => self.explain(shard),
        }
    }

    fn jump(&mut self) {
        self.now.wall_us += self.random.within(-40 * SECOND_US, 40 * SECOND_US);
        self.wall_max_us = self.wall_max_us.max(self.now.wall_us);
        self.count(Seen::ClockJump);
        self.touch_all();
    }
}
