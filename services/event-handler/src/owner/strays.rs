//! What comes to a queue shard for something that has gone from it: it is handed on to where that is.
//!
//! In: runs and messages that were read. Out: those that are this shard's own; the others are in the other shard's tables, and its
//! owner is woken. Invariants: it goes by one transaction, which takes it from here; of a message about several runs each shard
//! gets its part. Not here: what has gone, and where (the store).

use std::collections::{BTreeMap, BTreeSet};

use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::model::{Run, RunId};
use tollgate_store::StoreError;
use tollgate_store::handle::{HandleStore, Lease};
use tollgate_store::moves::Stray;
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
    let about: Vec<RunId> = messages.iter().flat_map(|message| runs_of(&message.control)).collect();
    let moved = store.moved_runs(shard, &about).await?;
    let retried = retried(store, (shard, gone), messages, &moved).await?;
    for (run, (to, schedule)) in &retried {
        strays.entry(*to).or_default().add(*run, *schedule);
    }
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
                    strays.entry(to).or_default().messages.push(part);
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

fn runs_of(control: &Control) -> Vec<RunId> {
    match control {
        Control::CancelRun { run, .. } | Control::RetryDead { run, .. } | Control::Sent { run, .. } => {
            vec![*run]
        }
        Control::Release { release } => vec![release.run],
        Control::UnderWay { deliveries } => deliveries.iter().map(|one| one.run).collect(),
        _ => Vec::new(),
    }
}

/// Runs that have ended here, whose dead events are to be tried again, and whose policies have gone: they go there too. Where, and
/// of which schedules they are.
async fn retried(
    store: &dyn HandleStore,
    (shard, gone): (u16, &Gone),
    messages: &[Message],
    moved: &BTreeMap<RunId, u16>,
) -> Result<BTreeMap<RunId, (u16, Uuid)>, StoreError> {
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
    Ok(runs.iter().filter_map(|run| Some((run.id, (home_of(gone, run)?, run.schedule_uid)))).collect())
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
        control => (runs_of(&control).first().and_then(run_at), control),
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
