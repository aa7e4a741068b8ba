//! Decides what a process that died left undone: between the commit of a change and the message about it.
//!
//! In: the audit log of the last minutes, which was written with the changes. Out: the messages once more. Invariant:
//! harmless when there was nothing to repair, because a shard ignores generations that it knows, and a message that
//! still waits keeps its id.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{SECOND_US, Schedule, SkipReason};
use tollgate_core::plan::Plan;
use tollgate_proto::convert::{Name, names};
use tollgate_store::StoreError;
use tollgate_store::plan::Audit;
use uuid::Uuid;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::change::Change;
use crate::placement::message_id;

const PAGE: u32 = 1000;

/// What the log says of one schedule, over all its changes of the last minutes.
#[derive(Debug, Default)]
struct Trace {
    /// The queue shards in which it had lived before a change.
    shards: BTreeSet<u16>,
    /// It was not only made.
    changed: bool,
    /// It was resumed: skips of its pause may have to go.
    resumed: bool,
    /// The generation of its deletion, and when that was.
    deleted: Option<(i64, i64)>,
}

impl ScheduleMaster {
    /// Tells the queue shards again of all that was changed in the last minutes ([`crate::Options::repair_s`]). To
    /// be called at start; harmless at any time.
    ///
    /// # Errors
    /// Of the store. What was told before stays told.
    pub async fn repair(&self) -> Result<(), StoreError> {
        let from_us = self.now_us() - self.options().repair_s * SECOND_US;
        let mut after = None;
        let mut traces: BTreeMap<(String, String, Uuid), Trace> = BTreeMap::new();
        loop {
            let page = self.store().audit_since(from_us, after, PAGE).await?;
            page.iter().for_each(|entry| follow(&mut traces, entry));
            match page.last() {
                Some(last) if page.len() == PAGE as usize => after = Some(last.id),
                _ => break,
            }
        }
        let mut namespaces: BTreeMap<String, Vec<(String, Uuid, Trace)>> = BTreeMap::new();
        for ((namespace, id, uid), trace) in traces {
            namespaces.entry(namespace).or_default().push((id, uid, trace));
        }
        for (namespace, traces) in namespaces {
            for some in traces.chunks(PAGE as usize) {
                self.repair_some(&namespace, some).await?;
            }
        }
        Ok(())
    }

    /// Those of the schedules that are there and can be read: a corrupt row must not keep the others from being told.
    async fn readable(&self, namespace: &str, ids: &[String]) -> Result<Vec<Schedule>, StoreError> {
        match self.store().schedules(namespace, ids).await {
            Err(StoreError::Corrupt { .. }) => {}
            other => return other,
        }
        let mut stored = Vec::with_capacity(ids.len());
        for id in ids {
            match self.store().schedule(namespace, id).await {
                Ok(schedule) => stored.extend(schedule),
                Err(error @ StoreError::Corrupt { .. }) => {
                    tracing::error!(namespace, id, %error, "a schedule cannot be read, and its shard is not told again");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(stored)
    }

    async fn repair_some(&self, namespace: &str, traces: &[(String, Uuid, Trace)]) -> Result<(), StoreError> {
        let ids: Vec<String> = traces.iter().map(|(id, ..)| id.clone()).collect();
        let stored = self.readable(namespace, &ids).await?;
        let stored: BTreeMap<Uuid, Schedule> =
            stored.into_iter().map(|schedule| (schedule.uid, schedule)).collect();
        let opened_until_us = self.store().frontier().await?.opened_until_us;
        let mut posts: BTreeMap<u16, Vec<Message>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for (id, uid, trace) in traces {
            let Some(schedule) = stored.get(uid) else {
                for (shard, message) in deletion((namespace, id, *uid), trace, opened_until_us) {
                    posts.entry(shard).or_default().push(message);
                }
                continue;
            };
            let Some(change) = latest(schedule, trace) else { continue };
            if let (true, None, Some(until_us)) = (trace.resumed, &schedule.pause, opened_until_us) {
                let since_us = schedule.updated_us;
                self.store().forget_skipped(*uid, SkipReason::Paused, since_us, until_us).await?;
            }
            skipped.extend(change.skipped(opened_until_us, self.now_us()));
            if let Some((shard, message)) = change.message(opened_until_us, self.inner.shards) {
                posts.entry(shard).or_default().push(message);
            }
        }
        if !skipped.is_empty() {
            self.store().emit(&[], &skipped).await?;
        }
        self.post(posts).await
    }
}

/// The change to the schedule's present generation.
fn latest(schedule: &Schedule, trace: &Trace) -> Option<Change> {
    match Plan::compile(&schedule.timing, schedule.uid.as_bytes()) {
        Ok(plan) => Some(Change {
            before: trace.changed.then(|| schedule.clone()),
            after: Some((schedule.clone(), plan)),
            deed: Deed { at_us: schedule.updated_us, actor: String::new(), action: "repair" },
        }),
        Err(error) => {
            tracing::error!(schedule = schedule.id, %error, "a stored timing cannot be compiled");
            None
        }
    }
}

fn deletion(
    (namespace, id, uid): (&str, &str, Uuid),
    trace: &Trace,
    opened_until_us: Option<i64>,
) -> Vec<(u16, Message)> {
    let Some((generation, at_us)) = trace.deleted else { return Vec::new() };
    let row = ShardSchedule {
        uid,
        generation,
        changed_us: at_us,
        until_us: opened_until_us.unwrap_or(at_us).max(at_us),
        launches_us: Vec::new(),
        events: 1,
        priority: 0,
        pause: None,
        deleted: true,
        cursor: None,
        earlier: Vec::new(),
        home: None,
    };
    let message = |shard: u16| Message {
        id: message_id(uid, generation, shard),
        control: Control::ScheduleChanged {
            schedule: row.clone(),
            namespace: namespace.to_owned(),
            schedule_id: id.to_owned(),
            policy_uid: None,
            onward: Vec::new(),
        },
    };
    trace.shards.iter().map(|shard| (*shard, message(*shard))).collect()
}

fn follow(traces: &mut BTreeMap<(String, String, Uuid), Trace>, entry: &Audit) {
    let number = |key, side| audit::number(&entry.difference, key, side);
    let uid = ["new", "old"].iter().find_map(|side| {
        entry.difference.get("uid")?.get(side)?.as_str().and_then(|text| Uuid::parse_str(text).ok())
    });
    let (Ok(Name { namespace, id }), Some(uid)) = (names::schedule("resource", &entry.resource), uid) else {
        return;
    };
    let trace = traces.entry((namespace, id, uid)).or_default();
    trace.shards.extend(audit::shards(&entry.difference, "old"));
    trace.changed |= number("generation", "old").is_some();
    trace.resumed |= entry.action == "resume";
    if entry.action == "delete" {
        trace.deleted = number("generation", "new").map(|generation| (generation, entry.at_us));
    }
}
