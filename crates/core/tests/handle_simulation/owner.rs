//! The IO around a shard's owner: loads, polls, hand-overs, each of which may go wrong or come late. What it does next is the
//! core's own [`own::Owner`](tollgate_core::own::Owner), as in the handler.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::handle::release::Release;
use tollgate_core::handle::{KeysWanted, Options, Shard};
use tollgate_core::model::*;
use tollgate_core::own::{self, DeliveryKey, Kept, Left, Next, PollTime, Report, Setup, Standing, Why};

use crate::bug::Bug;
use crate::fence::Lease;
use crate::handle_world::loads_of;
use crate::read::Read;
use crate::totals::Seen;
use crate::units::RETRYING_FEW;
use crate::world::{At, Event, World};

/// How long a process that ends waits for answers, in milliseconds.
pub(crate) const ANSWERS_MS: i64 = 2_500;
/// Within this time an answer is in a commit, whatever is gathered, by an owner that may commit: what is lazy, and a moment.
const ANSWER_WAITS_US: i64 = SECOND_US;

type Life = own::Owner<u64>;

/// Who drives a shard, as far as it knows.
pub(crate) struct Owner {
    number: u64,
    life: u64,
    pub(crate) lease: Lease,
    /// How often trust had lapsed when the lease was taken.
    pub(crate) lapses: u64,
    pub(crate) core: Option<Box<Life>>,
    kept: Kept<u64>,
    pub(crate) commit: Option<u64>,
    pub(crate) read: Option<Read>,
    pub(crate) replies: BTreeMap<u64, Release>,
    /// It is to give its shard up.
    pub(crate) stops: bool,
    /// Deliveries that it has begun and has no answer of, and until when their senders may try.
    pub(crate) begun: BTreeMap<DeliveryKey, i64>,
    loaded: Now,
    pub(crate) deadline_us: Option<i64>,
    /// The first answer that is in no commit, while it may commit.
    pub(crate) unsaid_us: Option<i64>,
    /// Bug: how far it has read the inbox.
    pub(crate) cursor: u64,
}

impl Owner {
    pub(crate) fn new(lease: Lease, lapses: u64, number: u64) -> Self {
        Self {
            number,
            life: 0,
            lease,
            lapses,
            core: None,
            kept: Kept::default(),
            commit: None,
            read: None,
            replies: BTreeMap::new(),
            stops: false,
            begun: BTreeMap::new(),
            loaded: Now { wall_us: 0, mono_us: 0 },
            deadline_us: None,
            unsaid_us: None,
            cursor: 0,
        }
    }

    pub(crate) fn at(&self, slot: usize, id: u32, shard: u16) -> At {
        At { slot, id, shard, owner: self.number, life: self.life }
    }

    pub(crate) fn machine(&self) -> Option<&Shard> {
        self.core.as_ref().map(|core| core.machine())
    }

    /// Takes inputs.
    pub(crate) fn open(&mut self) -> Option<&mut Life> {
        self.core.as_deref_mut().filter(|core| core.is_open())
    }

    fn is_idle(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.is_open()) && self.commit.is_none()
    }

    /// Its machine is no more; who waited for it is to ask again.
    fn end_life(&mut self) -> BTreeMap<u64, Release> {
        if let Some(core) = self.core.take() {
            self.kept = core.into_kept();
        }
        (self.commit, self.read, self.deadline_us, self.unsaid_us) = (None, None, None, None);
        std::mem::take(&mut self.replies)
    }
}

impl World {
    /// This owner, if it is still there, in whatever life.
    pub(crate) fn owner(&mut self, at: At) -> Option<&mut Owner> {
        let process = self.processes.get_mut(at.slot).filter(|p| p.id == at.id)?;
        process.owners.get_mut(&at.shard).filter(|o| o.number == at.owner)
    }

    pub(crate) fn living(&mut self, at: At) -> Option<&mut Owner> {
        self.owner(at).filter(|o| o.life == at.life && o.core.is_some())
    }

    pub(crate) fn touch(&mut self, at: At) {
        self.touched.push((at.slot, at.shard));
    }

    pub(crate) fn touch_all(&mut self) {
        for slot in 0..self.processes.len() {
            self.touched.extend(self.processes[slot].owners.keys().map(|shard| (slot, *shard)));
        }
    }

    /// The time as its machine is told it.
    fn now_of(&self, slot: usize, loaded: Now) -> Now {
        let now = self.now_at(slot);
        if self.bug == Bug::WallClockNotFollowed {
            return Now { wall_us: loaded.wall_us + now.mono_us - loaded.mono_us, ..now };
        }
        now
    }

    /// The first moment at which some owner wants to be polled, and which.
    pub(crate) fn next_deadline(&self) -> (i64, Option<(usize, u16)>) {
        let mut first = (i64::MAX, None);
        for (slot, process) in self.processes.iter().enumerate() {
            if process.frozen_until_us.is_some() {
                continue;
            }
            for (shard, owner) in &process.owners {
                if let Some(at_us) = owner.deadline_us.filter(|at_us| *at_us < first.0) {
                    first = (at_us, Some((slot, *shard)));
                }
            }
        }
        first
    }

    pub(crate) fn poll_touched(&mut self) {
        while let Some((slot, shard)) = self.touched.pop() {
            if self.is_up(slot) {
                self.poll(slot, shard);
            }
        }
    }

    pub(crate) fn load(&mut self, at: At) {
        if let Some(owner) = self.owner(at)
            && owner.stops
        {
            let note = owner.kept.take_under_way();
            self.hand_over(at, note);
            return;
        }
        if self.is_cut(at.slot) {
            self.after(200_000, Event::Load(at));
            return;
        }
        let options = self.options(Options::default());
        let load_ahead_us = self.wait_us(&[10, 60, 600]) * SECOND_US;
        let turns = self.processes[at.slot].turns.clone();
        let setup = Setup { shard: at.shard, options, turns, load_ahead_us };
        let seed = self.random.next();
        let mut state = self.stores[usize::from(at.shard)].state();
        match self.bug {
            Bug::WaitingNotLoaded => state.tokens.retain(|t| t.state != TokenState::Waiting),
            Bug::HeldNotLoaded => state.tokens.retain(|t| t.state != TokenState::Held),
            Bug::LimitDoubled => {
                for policy in &mut state.policies {
                    policy.limits.max_in_flight = policy.limits.max_in_flight.map(|m| 2 * m);
                }
            }
            _ => {}
        }
        self.numbers += 1;
        let (life, now, world_now) = (self.numbers, self.now_at(at.slot), self.now);
        let row = self.leases[usize::from(at.shard)].lease_id;
        let Some(owner) = self.owner(at) else { return };
        let current = owner.lease.lease_id == row;
        let kept = std::mem::take(&mut owner.kept);
        owner.core = Some(Box::new(Life::new(setup, state, seed, kept, now)));
        (owner.life, owner.loaded) = (life, now);
        let at = At { life, ..at };
        self.say(|| format!("loaded {at:?}"));
        if current {
            self.model.loaded(at.shard, &self.stores[usize::from(at.shard)], world_now);
        }
        self.touch(at);
    }

    fn options(&mut self, mut options: Options) -> Options {
        options.sends_max = self.wait_us(&[3, 50]) as u32;
        options.retrying_max = self.wait_us(&[i64::from(RETRYING_FEW), 1000]) as u32;
        options.lazy_us = self.wait_us(&[0, 20_000, 500_000]);
        options.early_us = self.wait_us(&[0, 5_000, 2 * SECOND_US]);
        options.sorted_max = self.wait_us(&[3, 1_000]) as usize;
        options
    }

    /// It is to give the shard up.
    pub(crate) fn drain(&mut self, at: At) {
        if let Some(owner) = self.owner(at) {
            owner.stops = true;
            self.touch(at);
        }
    }

    /// Does what the owner says, as long as it says something.
    pub(crate) fn poll(&mut self, slot: usize, shard: u16) {
        let id = self.processes[slot].id;
        let Some(owner) = self.processes[slot].owners.get(&shard) else { return };
        let (at, loaded) = (owner.at(slot, id, shard), owner.loaded);
        let now = self.now_of(slot, loaded);
        self.check_gathered(at);
        loop {
            let Some(lapses) = self.living(at).map(|owner| owner.lapses) else { return };
            let standing = self.standing(slot, lapses);
            let Some(owner) = self.living(at) else { return };
            let Some(core) = &mut owner.core else { return };
            if owner.stops && core.may_stop() {
                core.stop(now);
                owner.read = None;
            }
            let next = core.poll(owner.begun.len(), standing, now);
            let left = core.room_left();
            self.give_room_back(at, left);
            let Some(owner) = self.living(at) else { return };
            let Some(core) = &mut owner.core else { return };
            let Some(next) = next else {
                let wanted = core.keys_wanted();
                let wake = core.wake(standing, now);
                self.sleep(at, wake, standing);
                self.read_keys(at, wanted);
                return;
            };
            match next {
                Next::Perform(due) => {
                    for effect in due {
                        self.count(Seen::SentAtLaunch);
                        self.perform(at, effect);
                    }
                }
                Next::Commit(changes) => {
                    owner.unsaid_us = None;
                    self.begin_commit(at, changes);
                }
                Next::Room(asks) => self.look_for_room(at, asks),
                Next::Read(ask) => self.begin_read(at, ask),
                Next::Close => self.count(Seen::Closed),
                Next::Leave(left) => {
                    self.leave(at, left);
                    return;
                }
            }
        }
    }

    fn read_keys(&mut self, at: At, wanted: Vec<KeysWanted>) {
        for KeysWanted { run, index, spec, .. } in wanted {
            let wait_us = self.wait_us(&[0, 1_000, 200_000, 3 * SECOND_US]);
            // Pages of five.
            let (first, items) = (index - index % 5, loads_of(&spec));
            let items = items.into_iter().skip(first as usize).take(5).collect();
            self.after(wait_us, Event::Keys(at, (run, spec.generation), first, items));
        }
    }

    fn sleep(&mut self, at: At, wake: PollTime, standing: Standing) {
        let (ahead_us, now_us) = (self.now_at(at.slot).mono_us - self.now.mono_us, self.now.mono_us);
        let Some(owner) = self.living(at) else { return };
        let at_us = wake.sharp_us.map_or(wake.about_us, |sharp_us| sharp_us.min(wake.about_us));
        owner.deadline_us = Some(at_us.saturating_sub(ahead_us).max(now_us + 1));
        let may_commit = owner.commit.is_none() && standing == Standing::Holds;
        let is_settled = owner.machine().is_some_and(Shard::is_settled);
        owner.unsaid_us = match owner.unsaid_us {
            Some(_) if is_settled => None,
            Some(_) if !may_commit => Some(now_us),
            other => other,
        };
    }

    /// No answer waits for others for long.
    fn check_gathered(&mut self, at: At) {
        let now_us = self.now.mono_us;
        if let Some(owner) = self.living(at)
            && owner.commit.is_none()
            && let Some(since_us) = owner.unsaid_us
        {
            let waited_us = now_us - since_us;
            assert!(waited_us <= ANSWER_WAITS_US, "an answer to {at:?} waits for a commit, {waited_us} us");
        }
    }

    fn leave(&mut self, at: At, left: Left) {
        self.say(|| format!("{at:?} leaves: {left:?}"));
        let (now, stopping) = (self.now_at(at.slot), self.is_stopping(at.slot));
        match left {
            Left::Drained => {
                let wait_ms = if stopping { ANSWERS_MS } else { i64::MAX };
                let Some(Owner { core: Some(core), .. }) = self.living(at) else { return };
                assert!(
                    core.machine().is_settled(),
                    "{at:?} is handed over before its last changes are durable"
                );
                let note = core.note(wait_ms, now);
                self.hand_over(at, note);
            }
            Left::Lost | Left::Stuck => {
                self.count(if left == Left::Lost { Seen::ShardLost } else { Seen::LeftToItsLease });
                self.orphan(at);
            }
            Left::Unread => {
                if let Some(owner) = self.owner(at) {
                    owner.end_life();
                }
                self.after(200_000, Event::Load(at));
            }
            Left::Reload(why) => {
                self.count(match why {
                    Why::Lapsed => Seen::TrustLapsed,
                    Why::CommitOutlived => Seen::EffectsWithoutTrust,
                    Why::CommitFailed | Why::Mended => Seen::Reloaded,
                });
                let Some(owner) = self.owner(at) else { return };
                let replies = owner.end_life();
                self.ask_again(at.shard, replies);
                let wait_us = self.wait_us(&[0, 1_000, 300_000]);
                self.after(wait_us, Event::Retake(at));
            }
        }
        self.room_of_the_dead();
    }

    /// Takes the shard over from itself.
    pub(crate) fn retake(&mut self, at: At) {
        if self.is_cut(at.slot) {
            self.after(300_000, Event::Retake(at));
            return;
        }
        self.numbers += 1;
        // Before the look at the lease: a lapse after it must be seen.
        let (fresh, bug, lapses) = (self.numbers, self.bug, self.lapses(at.slot));
        let row = &mut self.leases[usize::from(at.shard)];
        let seen = row.clone();
        if seen.owner != at.id {
            self.orphan(at);
            return;
        }
        let lease = if bug == Bug::UnknownTakenAsFailed { Some(seen) } else { row.take(&seen, at.id, fresh) };
        if bug == Bug::EpochOnly {
            row.epoch -= 1;
        }
        let Some(mut lease) = lease else { return };
        if bug == Bug::EpochOnly {
            lease.epoch -= 1;
        }
        let Some(owner) = self.owner(at) else { return };
        (owner.lease, owner.lapses) = (lease, lapses);
        self.count(Seen::RetakenFromOneself);
        self.load(at);
    }

    /// An owner is no more, and whoever has its shard knows nothing of what it has begun; who waited for it asks somebody else.
    pub(crate) fn orphan(&mut self, at: At) {
        let Some(owner) = self.owner_ended(at) else { return };
        self.revoke(at.slot, owner.begun.into_keys());
        self.ask_again(at.shard, owner.replies);
    }

    /// What its senders have not sent, they do not send any more.
    pub(crate) fn revoke(&mut self, slot: usize, deliveries: impl IntoIterator<Item = DeliveryKey>) {
        let deliveries = deliveries.into_iter().map(|(run, index, attempt)| (slot, (run, index), attempt));
        self.model.revoked.extend(deliveries);
    }

    fn ask_again(&mut self, shard: u16, replies: BTreeMap<u64, Release>) {
        for release in replies.into_values() {
            if !self.chaos || self.random.percent(70) {
                self.count(Seen::ReleaseAskedAgain);
                self.after(300_000, Event::Release { shard, release, inbox: false, tries: 0 });
            }
        }
    }

    /// Leaves a note of what is under way, and gives the shard up.
    fn hand_over(&mut self, at: At, deliveries: Vec<UnderWay>) {
        let (now, bug, cut) = (self.now, self.bug, self.is_cut(at.slot));
        let random = self.random.next();
        let lease_id = self.leases[usize::from(at.shard)].lease_id;
        let Some(owner) = self.owner(at) else { return };
        let overtaken = owner.lease.lease_id != lease_id;
        let begun = owner.begun.clone();
        let replies = owner.end_life();
        self.ask_again(at.shard, replies);
        if bug != Bug::HandOverLeavesQueued {
            self.revoke(at.slot, begun.keys().copied());
        }
        if cut {
            // It cannot be noted: the lease runs out.
            self.count(Seen::LeftToItsLease);
            self.orphan(at);
            return;
        }
        self.say(|| format!("handed over by {at:?}: {deliveries:?}"));
        self.count(Seen::HandOver);
        if !overtaken {
            self.check_note(at.shard, &begun, &deliveries);
        }
        if !deliveries.is_empty() {
            self.count(Seen::HandOverWithNote);
            if !overtaken {
                self.model.leave_note(at.shard, &deliveries, now, &mut self.totals);
            }
            if bug != Bug::HandOverWithoutNote {
                let control = Control::UnderWay { deliveries: deliveries.clone() };
                let note = Message::first(random, control);
                self.stores[usize::from(at.shard)].inbox.insert(note.id, note);
            }
        }
        let own = deliveries.into_iter().filter(|d| begun.contains_key(&(d.run, d.index, d.attempt)));
        let wait_us = self.wait_us(&[0, 1_000, 50_000]);
        self.after(wait_us, Event::GiveUp(at, own.collect()));
    }

    /// A note names each delivery that was begun, has time left and no answer, and counts as under way in the store.
    fn check_note(&self, shard: u16, begun: &BTreeMap<DeliveryKey, i64>, note: &[UnderWay]) {
        let now_us = self.now.mono_us;
        for ((run, index, attempt), _) in begun.iter().filter(|(_, until_us)| **until_us > now_us) {
            let token = self.stores[usize::from(shard)].tokens.get(&(*run, *index));
            let counts = token.is_some_and(|t| t.state == TokenState::Acquired && t.attempt == *attempt);
            let named = note.iter().any(|d| (d.run, d.index, d.attempt) == (*run, *index, *attempt));
            // A release that no commit has recorded, and whose consumer was told to ask again, has taken it back.
            // One that was recorded takes back later attempts, too.
            let is_over =
                self.model.is_called((*run, *index), *attempt) || self.model.is_recorded((*run, *index));
            let counts = counts && !is_over;
            assert!(named || !counts, "{run} {index}: attempt {attempt} is under way, and not in {note:?}");
        }
    }

    pub(crate) fn give_up(&mut self, at: At, own: Vec<UnderWay>) {
        if self.is_cut(at.slot) {
            self.orphan(at);
            return;
        }
        self.numbers += 1;
        let (fresh, now_us) = (self.numbers, self.now_at(at.slot).mono_us);
        let Some(owner) = self.owner(at) else { return };
        let lease = owner.lease.clone();
        self.leases[usize::from(at.shard)].give_up(&lease, fresh);
        self.owner_ended(at);
        let mut report = Report::new(own, now_us);
        if self.is_stopping(at.slot) {
            report.hurry(now_us + ANSWERS_MS * 1_000);
        }
        self.processes[at.slot].former.insert(at.owner, (at.shard, report));
        self.after(0, Event::ReportEnds(at));
    }

    /// Nobody waits for the answers any more that have not come, once their time is over.
    pub(crate) fn report_ends(&mut self, at: At) {
        let now_us = self.now_at(at.slot).mono_us;
        let Some((_, report)) = self.processes[at.slot].former.get(&at.owner) else { return };
        match report.until_us() {
            Some(until_us) if until_us > now_us => self.after(until_us - now_us, Event::ReportEnds(at)),
            _ => {
                let report = self.processes[at.slot].former.remove(&at.owner);
                if let Some(control) = report.and_then(|(_, report)| report.rest()) {
                    self.count(Seen::AnswersGivenUp);
                    if let Control::UnderWay { deliveries } = &control {
                        deliveries.iter().for_each(|d| self.model.reported((d.run, d.index), d.attempt));
                    }
                    self.post_later(at.shard, control);
                }
            }
        }
    }

    pub(crate) fn owned(&self) -> BTreeSet<u16> {
        let idle = |(shard, owner): (&u16, &Owner)| owner.is_idle().then_some(*shard);
        self.processes
            .iter()
            .filter(|p| p.frozen_until_us.is_none())
            .flat_map(|p| p.owners.iter().filter_map(idle))
            .collect()
    }
}
