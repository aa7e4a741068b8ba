//! What owners read, step by step, each of which shows the store as of another moment; callers who wait for it; and who tells
//! owners that there is something to read.

use std::collections::BTreeSet;

use tollgate_core::handle::MessageNeeds;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::*;
use tollgate_core::own::{Ask, News, Page, TakenIn};
use uuid::Uuid;

use crate::bug::Bug;
use crate::totals::Seen;
use crate::world::{At, Event, SHARDS, World};

/// A read of a shard's news.
pub(crate) struct Read {
    ask: Ask,
    news: News,
    inbox: Vec<Message>,
    step: ReadStep,
}

enum ReadStep {
    Runs,
    Inbox,
    Contexts,
    News,
    Specs(Vec<(Uuid, i64)>),
}

impl World {
    pub(crate) fn begin_read(&mut self, at: At, ask: Ask) {
        let wait_us = self.read_us();
        if let Some(owner) = self.living(at) {
            owner.read = Some(Read { ask, news: News::default(), inbox: Vec::new(), step: ReadStep::Runs });
            self.after(wait_us, Event::Read(at));
        }
    }

    fn read_us(&mut self) -> i64 {
        self.wait_us(&[0, 0, 1_000, 100_000])
    }

    pub(crate) fn go_on_reading(&mut self, at: At) {
        let (now, cut) = (self.now_at(at.slot), self.is_cut(at.slot));
        let wait_us = self.read_us();
        let Some(owner) = self.living(at) else { return };
        let Some(mut read) = owner.read.take() else { return };
        if cut {
            if let Some(core) = &mut owner.core {
                core.read_failed(now);
            }
            self.count(Seen::ReadFailed);
            self.touch(at);
            return;
        }
        read.step = match std::mem::replace(&mut read.step, ReadStep::News) {
            ReadStep::Runs => {
                self.read_runs(at.shard, &mut read);
                ReadStep::Inbox
            }
            ReadStep::Inbox => {
                self.read_inbox(at, &mut read);
                ReadStep::Contexts
            }
            ReadStep::Contexts => {
                let store = &self.stores[usize::from(at.shard)];
                let inbox = std::mem::take(&mut read.inbox).into_iter();
                read.news.messages = inbox
                    .map(|m| (store.context(&MessageNeeds::of(&m.control)), m))
                    .map(|(c, m)| (m, c))
                    .collect();
                ReadStep::News
            }
            ReadStep::Specs(wanted) => {
                read.news.specs.extend(self.stores[usize::from(at.shard)].specs_of(&[], &wanted));
                ReadStep::News
            }
            ReadStep::News => {
                self.take_in(at, read);
                return;
            }
        };
        if let Some(owner) = self.living(at) {
            owner.read = Some(read);
            self.after(wait_us, Event::Read(at));
        }
    }

    fn read_runs(&mut self, shard: u16, read: &mut Read) {
        let store = &self.stores[usize::from(shard)];
        let part = &read.ask.part;
        let (mut emitted, _) = store.emitted(part.recent_us.end);
        emitted.sort_by_key(|run| (run.launch_us, run.id));
        let max = part.runs_max as usize;
        let mut runs: Vec<Run> = emitted.iter().take(max).cloned().collect();
        read.news.full = part.is_full(runs.len());
        if part.wants_recent(runs.len(), runs.last().map(|run| run.launch_us)) {
            let recent = emitted.iter().skip(max).filter(|run| part.recent_us.contains(&run.launch_us));
            runs.extend(recent.take(max).cloned());
        }
        let mut specs = store.specs_of(&runs, &[]);
        if let Some(after) = read.ask.again {
            let (mut again, their) = store.unreadable();
            again.retain(|run| run.id > after);
            read.news.again = Some((again.len(), again.last().map_or(after, |run| run.id)));
            runs.extend(again);
            specs.extend(their);
        }
        read.news.mended = !store.specs_of(&[], &read.ask.specs).is_empty();
        (read.news.runs, read.news.specs) = (runs, specs);
        if read.news.full {
            self.count(Seen::ReadInParts);
        }
    }

    fn read_inbox(&mut self, at: At, read: &mut Read) {
        let part = &read.ask.part;
        let store = &self.stores[usize::from(at.shard)];
        let wanted = store.inbox.values().filter(|m| !read.ask.except.contains(&m.id));
        let mut inbox: Vec<Message> = wanted.take(part.messages_max as usize).cloned().collect();
        let rows = inbox.len();
        if self.bug == Bug::InboxCursor
            && let Some(owner) = self.processes[at.slot].owners.get_mut(&at.shard)
        {
            let of = |id: &Uuid| self.sequence.get(id).copied().unwrap_or(u64::MAX);
            inbox.retain(|m| of(&m.id) > owner.cursor);
            let last = inbox.iter().map(|m| of(&m.id)).filter(|n| *n < u64::MAX).max();
            owner.cursor = last.unwrap_or(owner.cursor);
        }
        let Page { messages, full, releases_whole } = part.page(rows, inbox, &[]);
        read.inbox = messages;
        read.news.full |= full;
        read.news.releases_whole = releases_whole;
    }

    fn take_in(&mut self, at: At, read: Read) {
        self.totals.steps += (read.news.messages.len() + read.news.runs.len()) as u64;
        let (now, ask) = (self.now_at(at.slot), read.ask);
        let Some(owner) = self.living(at) else { return };
        let Some(core) = &mut owner.core else { return };
        let TakenIn { revoked, synced, wants } = core.news(read.news, now);
        if let Some((news, wanted)) = wants {
            owner.read = Some(Read { ask, news, inbox: Vec::new(), step: ReadStep::Specs(wanted) });
            self.after(0, Event::Read(at));
        }
        self.revoke(at.slot, revoked);
        self.synced(synced);
        self.touch(at);
    }

    /// A process asks for all its shards at once whether there is news.
    pub(crate) fn watch(&mut self, slot: usize, id: u32) {
        let pause_us = if self.chaos { self.random.within(10_000, SECOND_US) } else { 2 * SECOND_US };
        self.after(pause_us, Event::Watch(slot, id));
        if self.is_cut(slot) {
            return;
        }
        let now = self.now_at(slot);
        let until_us = now.wall_us + 600 * SECOND_US;
        let has_news = |shard: &u16| {
            let store = &self.stores[usize::from(*shard)];
            let untaken = |run: &Run| run.state == RunState::Emitted && run.launch_us < until_us;
            !store.inbox.is_empty() || store.runs.values().any(untaken)
        };
        let news: BTreeSet<u16> = (0..SHARDS).filter(has_news).collect();
        let wait_us = self.wait_us(&[0, 0, 1_000, 100_000]);
        self.after(wait_us, Event::Watched(slot, id, now.mono_us, news));
    }

    pub(crate) fn watched(&mut self, slot: usize, id: u32, began_us: i64, news: &BTreeSet<u16>) {
        let now = self.now_at(slot);
        let process = &mut self.processes[slot];
        if process.id != id {
            return;
        }
        for (shard, owner) in &mut process.owners {
            let Some(core) = owner.open() else { continue };
            if news.contains(shard) {
                core.woken(now);
            } else {
                core.no_news(began_us);
            }
            self.touched.push((slot, *shard));
        }
    }

    /// Somebody wants what is in a shard's inbox to be carried out.
    pub(crate) fn sync(&mut self, shard: u16) {
        self.numbers += 1;
        let caller = self.numbers;
        for slot in 0..self.processes.len() {
            let now = self.now_at(slot);
            if let Some(owner) = self.processes[slot].owners.get_mut(&shard)
                && let Some(core) = owner.open()
            {
                core.sync(caller, now);
                let inbox = self.stores[usize::from(shard)].inbox.values();
                // Those that come once; and of those about dead events of one run, one after the other is carried out.
                let once = |m: &&Message| {
                    m.id.as_u64_pair().1 == 0 && !matches!(m.control, Control::RetryDead { .. })
                };
                let inbox = inbox.filter(once).map(|m| m.id).collect();
                self.model.syncs.insert(caller, (shard, inbox));
                self.touched.push((slot, shard));
                return;
            }
        }
    }

    /// What was in the inbox when they asked is not there any more.
    pub(crate) fn synced(&mut self, callers: Vec<u64>) {
        for caller in callers {
            self.count(Seen::Synced);
            let Some((shard, asked)) = self.model.syncs.remove(&caller) else { continue };
            let inbox = &self.stores[usize::from(shard)].inbox;
            let left = asked.iter().find(|id| inbox.contains_key(id));
            assert!(
                left.is_none(),
                "a caller is told that shard {shard} has carried out {left:?}, which waits"
            );
        }
    }
}
