//! What comes to a queue shard for something that has gone from it: it is handed on to where that is.
//!
//! In: runs and messages that were read. Out: those that are this shard's own; the others are in the other shard's tables, and
//! its owner is woken. Invariants: it goes by one transaction, which takes it from here; of a message about several runs each
//! shard gets its part. Not here: what has gone, and where (the store).

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::model::{Run, RunId};
use tollgate_store::StoreError;
use tollgate_store::handle::{HandleStore, Lease};
use tollgate_store::moves::{ENDED_MAX, Stray};
use uuid::Uuid;

/// What has gone from a shard, and where.
pub(super) type Gone = BTreeMap<Uuid, u16>;

/// Takes out of what was read of a shard what belongs elsewhere, and hands it on. The shards that have got something.
pub(super) async fn hand_on(
    store: &dyn HandleStore,
    (lease, gone): (&Lease, &Gone),
    runs: &mut Vec<Run>,
    messages: &mut Vec<Message>,
    now_us: i64,
) -> Result<BTreeSet<u16>, StoreError> {
    let shard = lease.shard;
    let mut strays: BTreeMap<u16, Stray> = BTreeMap::new();
    runs.retain(|run| match home_of(gone, run) {
        Some(to) => {
            strays.entry(to).or_default().add(run.id, run.schedule_uid);
            false
        }
        None => true,
    });
    let about: Vec<RunId> = messages.iter().flat_map(|message| message.control.runs()).collect();
    let moved = store.moved_runs(shard, &about).await?;
    let retried = retried(store, (shard, gone), messages, &moved).await?;
    for (run, (to, schedule)) in &retried {
        // Where it is too much, nothing is tried again: who asks for that is told before.
        if let Some(schedule) = schedule {
            strays.entry(*to).or_default().add(*run, *schedule);
        }
    }
    drop_launched(store, (shard, gone), messages).await?;
    let mut own = Vec::with_capacity(messages.len());
    for message in std::mem::take(messages) {
        let run_at = |run: &RunId| moved.get(run).copied().or_else(|| retried.get(run).map(|(to, _)| *to));
        match sort(message, gone, run_at) {
            Sorted::Own(message) => own.push(message),
            Sorted::Stray(to, message) => {
                let stray = strays.entry(to).or_default();
                if let Control::ScheduleChanged { schedule, .. } = &message.control {
                    stray.schedules.insert(schedule.uid);
                }
                stray.messages.push(message);
            }
            Sorted::Parts(message, parts) => {
                own.push(message);
                for (to, part) in parts {
                    strays.entry(to).or_default().parts.push(part);
                }
            }
        }
    }
    *messages = own;
    let to = strays.keys().copied().collect();
    for (to, stray) in strays {
        store.hand_on(lease, to, stray, now_us).await?;
    }
    Ok(to)
}

/// Where a run belongs that somebody has handed over here.
fn home_of(gone: &Gone, run: &Run) -> Option<u16> {
    gone.get(&run.policy_uid.unwrap_or(run.schedule_uid)).copied()
}

/// Of changes of schedules that have gone, takes out the launches that had their runs here: the other shard does not see those
/// that have ended.
async fn drop_launched(
    store: &dyn HandleStore,
    (shard, gone): (u16, &Gone),
    messages: &mut [Message],
) -> Result<(), StoreError> {
    let changes = messages.iter_mut().filter_map(|message| match &mut message.control {
        Control::ScheduleChanged { schedule, .. } if gone.contains_key(&schedule.uid) => Some(schedule),
        _ => None,
    });
    for schedule in changes {
        let run_of = |launch_us: &i64| RunId::derive(schedule.uid, *launch_us);
        let ids: Vec<RunId> = schedule.launches_us.iter().map(run_of).collect();
        if ids.is_empty() {
            continue;
        }
        let here = store.runs(shard, &ids).await?;
        let taken: BTreeSet<RunId> =
            here.iter().filter(|run| !run.state.is_untaken()).map(|run| run.id).collect();
        let uid = schedule.uid;
        schedule.launches_us.retain(|launch_us| !taken.contains(&RunId::derive(uid, *launch_us)));
    }
    Ok(())
}

/// Runs that have ended here, whose dead events are to be tried again, and whose policies have gone: they go there too. Where,
/// and of which schedules they are; no schedule where too much would go with one.
async fn retried(
    store: &dyn HandleStore,
    (shard, gone): (u16, &Gone),
    messages: &[Message],
    moved: &BTreeMap<RunId, u16>,
) -> Result<BTreeMap<RunId, (u16, Option<Uuid>)>, StoreError> {
    let wanted: Vec<RunId> = messages
        .iter()
        .filter_map(|message| match &message.control {
            Control::RetryDead { run, .. } if !moved.contains_key(run) => Some(*run),
            _ => None,
        })
        .collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let runs = store.runs(shard, &wanted).await?;
    let schedule_of = |run: &Run| (run.counts.total() <= ENDED_MAX).then_some(run.schedule_uid);
    Ok(runs.iter().filter_map(|run| Some((run.id, (home_of(gone, run)?, schedule_of(run))))).collect())
}

/// Whose a message is.
enum Sorted {
    Own(Message),
    Stray(u16, Message),
    /// Parts of it go elsewhere.
    Parts(Message, Vec<(u16, Message)>),
}

fn sort(message: Message, gone: &Gone, run_at: impl Fn(&RunId) -> Option<u16>) -> Sorted {
    let Message { id, control } = message;
    let of = |uid: &Uuid| gone.get(uid).copied();
    let (to, control) = match control {
        Control::PolicyChanged { mut policy } => {
            let to = of(&policy.uid);
            policy.shard = to.unwrap_or(policy.shard);
            (to, Control::PolicyChanged { policy })
        }
        Control::PolicyDeleted { uid } => (of(&uid), Control::PolicyDeleted { uid }),
        Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, mut onward } => {
            let to = of(&schedule.uid);
            match (to, policy_uid.as_ref().and_then(of)) {
                // What lies behind it on the way has been told, or is where it goes.
                (Some(to), _) => {
                    if let Some(at) = onward.iter().rposition(|shard| *shard == to) {
                        onward.drain(..=at);
                    }
                }
                // It has been put under a policy that is not here any more: this shard gives up what it has of it first.
                (None, Some(home)) if onward.is_empty() => onward.push(home),
                (None, _) => {}
            }
            (to, Control::ScheduleChanged { schedule, namespace, schedule_id, policy_uid, onward })
        }
        Control::CursorLeft { schedule_uid, cursor, left_us } => {
            (of(&schedule_uid), Control::CursorLeft { schedule_uid, cursor, left_us })
        }
        Control::ChainEnded { schedule_uid, run } => {
            (of(&schedule_uid), Control::ChainEnded { schedule_uid, run })
        }
        Control::UnderWay { deliveries } => return in_parts(id, deliveries, run_at),
        control => (control.runs().first().and_then(run_at), control),
    };
    let message = Message { id, control };
    match to {
        Some(to) => Sorted::Stray(to, message),
        None => Sorted::Own(message),
    }
}

fn in_parts(id: Uuid, deliveries: Vec<UnderWay>, run_at: impl Fn(&RunId) -> Option<u16>) -> Sorted {
    let mut parts: BTreeMap<u16, Vec<UnderWay>> = BTreeMap::new();
    for one in &deliveries {
        if let Some(to) = run_at(&one.run) {
            parts.entry(to).or_default().push(one.clone());
        }
    }
    let message = Message { id, control: Control::UnderWay { deliveries } };
    let part = |(to, deliveries)| (to, Message { id, control: Control::UnderWay { deliveries } });
    Sorted::Parts(message, parts.into_iter().map(part).collect())
}

#[cfg(test)]
mod tests;
