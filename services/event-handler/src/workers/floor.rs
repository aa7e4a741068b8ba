//! The workers of this process: they come, accept what they are given, are done with it, and go.
//!
//! In: what workers say. Out: what becomes of the events that they were given; the list for people. Invariants: a worker accepts
//! only what it was given; its room is there again when it says that it is done, whatever becomes of its release; that it is done
//! with one attempt says nothing of a later one; what it does not accept in time is not kept for good, though it never says
//! anything of it; a namespace leaves workers to the others. Not here: who is given what (`book`), and by whom (`desk`).

use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::mpsc;
use tollgate_core::handle::PulledEvent;
use tollgate_core::model::{EventRef, Now, PullTarget, RunId, RunSpec};
use tollgate_proto::{convert, v1};

use super::book::{QueueKey, TooManyKinds, WorkerId, fits};
use super::desk::Desk;
use super::handing::{Handed, Outcome};
use super::sessions::{Earlier, Held, Profile, Refused, Session};
use super::taken::{AtWork, EventOf, NAMED_MAX, Poller};

/// The most workers of a process.
const WORKERS_MAX: usize = 20_000;
/// Of what all others leave of them, one part in this many is left free by each namespace.
const LEFT_TO_OTHERS: usize = 4;

impl Desk {
    /// A worker is there. Its id, and what it is given.
    pub(super) fn join(
        &self,
        profile: Profile,
        capacity: u32,
    ) -> Result<(WorkerId, mpsc::UnboundedReceiver<Box<Handed>>), Refused> {
        let mut state = self.state();
        if state.ending {
            return Err(Refused::Ending);
        }
        let namespace = profile.queue.namespace.clone();
        let own = state.by_namespace.get(&namespace).copied().unwrap_or_default();
        let free = WORKERS_MAX.saturating_sub(state.sessions.len() - own);
        if own >= free - free / LEFT_TO_OTHERS {
            return Err(Refused::TooMany);
        }
        state.next += 1;
        let (id, now_us) = (state.next, self.now_us());
        let (to, from) = mpsc::unbounded_channel();
        let of = (profile.queue.clone(), profile.labels.clone());
        state.sessions.insert(id, Session::new(profile, to, now_us));
        match state.book.join(id, of, capacity) {
            Ok(given) => {
                *state.by_namespace.entry(namespace).or_default() += 1;
                self.tell(&mut state, given);
                Ok((id, from))
            }
            Err(TooManyKinds) => {
                state.sessions.remove(&id);
                Err(Refused::TooManyKinds(TooManyKinds::MAX))
            }
        }
    }

    /// A worker has gone. Nobody knows of what was written to it and it has not accepted.
    pub(super) fn leave(&self, id: WorkerId) {
        let now_us = self.now_us();
        let mut state = self.state();
        state.book.leave(id);
        let Some(session) = state.sessions.remove(&id) else { return };
        // What it was able to do is not without a worker before others have had time to come.
        let Profile { queue, labels, .. } = &session.profile;
        for pool in state.book.waiting(queue) {
            if state.pools.get(&pool).is_some_and(|of| fits(labels, &of.requires)) {
                state.is_known(pool, now_us);
            }
        }
        let namespace = &session.profile.queue.namespace;
        if let Some(count) = state.by_namespace.get_mut(namespace) {
            *count -= 1;
            if *count == 0 {
                state.by_namespace.remove(namespace);
            }
        }
    }

    /// A poll is answered with events: its worker is at work.
    pub(super) fn has_taken(&self, id: WorkerId) {
        let now_us = self.now_us();
        let mut state = self.state();
        let Some(session) = state.sessions.get(&id) else { return };
        let kind = (session.profile.queue.clone(), session.profile.labels.clone());
        state.away.note(kind, now_us);
    }

    /// A worker has taken an event of a shard of this process by a poll, wherever it polled.
    pub(crate) fn took(
        &self,
        (shard, event): (u16, EventRef),
        attempt: u32,
        spec: &RunSpec,
        (by, silence_ms): (Poller, i64),
    ) {
        let Some(pull) = spec.target.pull() else { return };
        let queue = QueueKey { namespace: spec.namespace.as_str().into(), queue: pull.queue().into() };
        let event = EventOf { shard, event, attempt, queue, silence_ms };
        let (now, mut taken) = (self.now(), self.taken());
        // Of a shard that has gone, others hear what becomes of it.
        if self.owns(shard) {
            taken.took(event, by, now);
            self.has_polls().store(true, Relaxed);
        }
    }

    /// This process has taken a shard over, whose workers have events of these kinds.
    pub(crate) fn presume<'s>(&self, kinds: impl IntoIterator<Item = (&'s str, &'s PullTarget, i64)>) {
        let (now, mut taken) = (self.now(), self.taken());
        for (namespace, pull, silence_ms) in kinds {
            let queue = QueueKey { namespace: namespace.into(), queue: pull.queue().into() };
            taken.presume(queue, pull.requires(), silence_ms, now);
        }
    }

    /// A worker has said that it still works on an event that it took itself.
    pub(crate) fn signed(&self, shard: u16, (run, index): (RunId, u32), of: &PulledEvent<'_>, now: Now) {
        let queue = QueueKey { namespace: of.namespace.into(), queue: of.target.queue().into() };
        let event = EventRef { shard: of.named_shard, run, index };
        let (attempt, silence_ms) = (of.attempt, of.silence_ms);
        let event = EventOf { shard, event, attempt, queue, silence_ms };
        self.taken().signed(&event, of.target.requires(), now);
    }

    /// Something has been said of an event of a shard: under which attempt it holds a token now, if it does.
    pub(crate) fn is_under(
        &self,
        shard: u16,
        (run, index): (RunId, u32),
        attempt: impl FnOnce() -> Option<u32>,
    ) {
        if !self.has_polls().load(Relaxed) {
            return;
        }
        let (now, mut taken) = (self.now(), self.taken());
        if taken.has(run, index) {
            taken.is_under(shard, (run, index), attempt(), now);
            self.has_polls().store(!taken.is_empty(), Relaxed);
        }
    }

    /// What holds no token any more goes. `attempt`: under which one an event of the shard does.
    pub(crate) fn look(&self, shard: u16, attempt: impl Fn(RunId, u32) -> Option<u32>) {
        self.taken().look(shard, attempt, self.now());
    }

    /// A shard is this process's own no longer.
    pub(crate) fn shard_goes(&self, shard: u16) {
        self.taken().shard_goes(shard);
    }

    /// Those who poll and have events of this process, at most so many, and how many more there are.
    pub(super) fn at_work(&self, of: (&str, Option<&str>), most: usize) -> (Vec<AtWork>, usize) {
        let now = self.now();
        self.taken().list(of, most, now)
    }

    /// A worker does so many events at once from now on.
    pub(super) fn resize(&self, id: WorkerId, capacity: u32) {
        let mut state = self.state();
        let given = state.book.resize(id, capacity);
        self.tell(&mut state, given);
    }

    /// A worker has said something.
    pub(super) fn sign(&self, id: WorkerId) {
        let now_us = self.now_us();
        if let Some(session) = self.state().sessions.get_mut(&id) {
            session.sign_us = now_us;
        }
    }

    /// To be called right before an event is written to its worker's stream, which is to accept it: the event, if it may be
    /// written.
    pub(super) fn write(&self, id: WorkerId, handed: Handed) -> Option<v1::WorkEvent> {
        let now_us = self.now_us();
        let mut state = self.state();
        // Nothing would be heard of it from a stream that has ended.
        let session = state.sessions.get_mut(&id)?;
        let Handed { event, reply, .. } = handed.write(self.stops())?;
        session.given += 1;
        let mut earlier = Vec::new();
        if let Some(before) = session.events.remove(&event.name) {
            earlier = before.earlier;
            let is_accepted = before.reply.is_none();
            earlier.extend(before.has_room.then_some(Earlier { attempt: before.attempt, is_accepted }));
        }
        let (attempt, reply) = (event.attempt, Some(reply));
        let held = Held { attempt, since_us: now_us, has_room: true, earlier, reply };
        session.events.insert(event.name.clone(), held);
        Some(event)
    }

    /// A worker accepts an event.
    ///
    /// # Errors
    /// The field that is wrong, and what is expected: it was not given the event under this attempt. Once an event that it did
    /// not accept in time has been forgotten, nothing is said of one that is not known.
    pub(super) fn accept(
        &self,
        id: WorkerId,
        name: &str,
        attempt: u32,
    ) -> Result<(), (&'static str, &'static str)> {
        let mut state = self.state();
        let session = state.sessions.get_mut(&id);
        let has_forgotten = session.as_ref().is_some_and(|session| session.has_forgotten);
        match session.and_then(|session| session.events.get_mut(name)) {
            // It may have been given it, and be too late: this says nothing.
            None if has_forgotten => Ok(()),
            None => {
                Err(("accept.name", "an event that this stream was given and the worker is not done with"))
            }
            Some(held) if attempt > held.attempt => {
                Err(("accept.attempt", "an attempt under which this stream was given the event"))
            }
            // One under an earlier attempt, or after its time, has been given once more: this says nothing of that.
            Some(held) if attempt < held.attempt => {
                // But where its time is not over, its room is the worker's until that is done with it.
                for earlier in held.earlier.iter_mut().filter(|earlier| earlier.attempt == attempt) {
                    earlier.is_accepted = true;
                }
                Ok(())
            }
            Some(held) => {
                if let Some(reply) = held.reply.take() {
                    // Nobody waits for it any more if it comes too late.
                    let _late = reply.send(Outcome::Accepted(None));
                }
                Ok(())
            }
        }
    }

    /// A worker has not accepted an attempt of an event in time: the event is given to somebody again, and its room is there for
    /// that, also where the same worker was given a later attempt before. Nothing comes of it where the worker has accepted it.
    pub(super) fn overdue(&self, id: WorkerId, name: &str, attempt: u32) {
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&id) else { return };
        let Some(held) = session.events.get_mut(name) else { return };
        let is_late = |earlier: &Earlier| earlier.attempt == attempt && !earlier.is_accepted;
        if let Some(at) = held.earlier.iter().position(is_late) {
            held.earlier.remove(at);
        } else if held.attempt == attempt && held.reply.is_some() {
            held.reply = None;
            held.has_room = false;
        } else {
            return;
        }
        session.note_roomless(name);
        let given = state.book.free(id);
        self.tell(&mut state, given);
    }

    /// A worker is done with an attempt of an event, or (0) with the event: it has accepted it, if it has not said so, and its
    /// room is there again. Of a later attempt that it was given, an earlier one says nothing.
    pub(super) fn done(&self, id: WorkerId, name: &str, attempt: u32) {
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&id) else { return };
        let Some(held) = session.events.get_mut(name) else { return };
        let units = if attempt > 0 && attempt < held.attempt {
            let before = held.earlier.len();
            held.earlier.retain(|earlier| earlier.attempt > attempt);
            before - held.earlier.len()
        } else {
            if let Some(reply) = held.reply.take() {
                let _late = reply.send(Outcome::Accepted(None));
            }
            let units = held.earlier.len() + usize::from(held.has_room);
            session.events.remove(name);
            units
        };
        if units > 0 {
            session.note_roomless(name);
        }
        for _ in 0..units {
            let given = state.book.free(id);
            self.tell(&mut state, given);
        }
    }

    /// How many units of a worker's room are somebody's and have no event yet.
    pub(super) fn promised(&self, id: WorkerId) -> usize {
        let state = self.state();
        let taken = state.book.of(id).map_or(0, |(_, taken, _)| taken as usize);
        let held = state.sessions.get(&id).map_or(0, |session| session.events.len());
        taken.saturating_sub(held)
    }

    /// The process is about to end: no worker is given anything more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ending = true;
        for id in state.sessions.keys().copied().collect::<Vec<_>>() {
            let _nobody = state.book.resize(id, 0);
        }
    }

    /// How many workers this process has, how much room, and how many events.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state();
        let rooms =
            state.sessions.keys().filter_map(|id| state.book.of(*id)).map(|(_, _, room)| u64::from(room));
        let events = state.sessions.values().map(|session| session.events.len() as u64);
        (state.sessions.len() as u64, rooms.sum(), events.sum())
    }

    /// The workers of a namespace, or of one queue of it, by queue and name.
    pub(super) fn list(&self, namespace: &str, queue: Option<&str>) -> Vec<v1::Worker> {
        let now = self.now();
        let wall = |mono_us: i64| convert::timestamp(now.wall_us - (now.mono_us - mono_us));
        let state = self.state();
        let own = state.sessions.iter().filter(|(_, session)| {
            let of = &session.profile.queue;
            *of.namespace == *namespace && queue.is_none_or(|queue| *of.queue == *queue)
        });
        let mut workers: Vec<_> = own
            .map(|(id, session)| {
                let (capacity, _, room) = state.book.of(*id).unwrap_or_default();
                let mut events: Vec<_> =
                    session.events.iter().map(|(name, held)| (held.since_us, name)).collect();
                events.sort_unstable();
                let Profile { queue, labels, name, polls } = &session.profile;
                v1::Worker {
                    queue: format!("namespaces/{}/queues/{}", queue.namespace, queue.queue),
                    id: id.to_string(),
                    worker: name.clone(),
                    labels: labels.to_vec(),
                    capacity,
                    room,
                    events_count: u32::try_from(events.len()).unwrap_or(u32::MAX),
                    events: events.into_iter().take(NAMED_MAX).map(|(_, name)| name.clone()).collect(),
                    connect_time: Some(wall(session.connected_us)),
                    last_sign_time: Some(wall(session.sign_us)),
                    polls: *polls,
                    given_count: session.given,
                }
            })
            .collect();
        workers.sort_by(|a, b| (&a.queue, &a.worker, &a.id).cmp(&(&b.queue, &b.worker, &b.id)));
        workers
    }
}
