//! Gives a shard up: the note, the lease, and the reports of answers that come later.
//!
//! In: what the owner has under way. Out: messages in the shard's inbox. What is told, and in which order, the core says
//! (`own::Report`, and the head of its file).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::model::RunId;
use tollgate_core::own::Report;
use tollgate_store::handle::Lease;
use tollgate_store::moves::Moved;
use tollgate_target::Leave;

use super::{Owner, OwnerEnd, instant};
use crate::Shared;
use crate::routes::Input;

/// How long to wait before a report is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How many answers one report has.
const REPORT_MAX: usize = 500;

impl Owner {
    /// How long this process will wait for answers.
    pub(super) fn wait_ms(&self) -> i64 {
        if self.shared.leaving.is_cancelled() {
            i64::try_from(self.shared.options.stop_grace_ms).unwrap_or(i64::MAX)
        } else {
            i64::MAX
        }
    }

    /// Gives the shard up, and has the answers under way reported.
    pub(super) async fn hand_over(self, under_way: Vec<UnderWay>) -> OwnerEnd {
        let Self { shared, lease, inputs, loopback, replies, begun, .. } = self;
        let shard = lease.shard;
        shared.peers.routes().remove(shard);
        // What has not left stays: the next owner may hear of a release, and could not take these back. They are reported
        // as not sent.
        begun.values().for_each(Leave::revoke);
        // Ends the line of answers with the last delivery; turns away the callers that wait.
        drop((loopback, replies));
        let Ok(moved) = move_away(&shared, &lease, &under_way).await else { return OwnerEnd::Lost };
        let stays: Vec<UnderWay> =
            under_way.iter().filter(|one| !moved.runs.contains_key(&one.run)).cloned().collect();
        if !stays.is_empty() {
            let control = Control::UnderWay { deliveries: stays };
            if let Err(error) = shared.store.post(shard, &[message(control)]).await {
                tracing::warn!(shard, %error, "the deliveries under way cannot be noted; the lease runs out");
                return OwnerEnd::Lost;
            }
        }
        // The next owner goes on where this one has stopped to count.
        shared.write_last_minutes(shard).await;
        tollgate_fault_points::pass("handler.handover.before");
        if let Err(error) = shared.store.give_up_shard(&lease).await {
            tracing::warn!(shard, %error, "the shard could not be given up; its lease runs out");
            return OwnerEnd::Lost;
        }
        tollgate_fault_points::pass("handler.handover.after");
        tracing::debug!(shard, under_way = under_way.len(), "gave the shard up");
        shared.peers.placement_changed();
        if moved.residents > 0 {
            moved.to.iter().for_each(|shard| shared.peers.wake(*shard));
        }
        // Former owners report what they have begun.
        let own = under_way.into_iter().filter(|u| begun.contains_key(&(u.run, u.index, u.attempt)));
        let waiting = Report::new(own, shared.clock.mono_us());
        if waiting.until_us().is_some() {
            let reports = shared.reports.clone();
            reports.spawn(report(shared, (shard, moved.runs), inputs, waiting));
        }
        OwnerEnd::HandedOver
    }
}

/// Moves what is to go from the shard. An error where the lease is another one by now.
async fn move_away(shared: &Shared, lease: &Lease, under_way: &[UnderWay]) -> Result<Moved, ()> {
    let residents = shared.moves.take(lease.shard);
    if residents.is_empty() {
        return Ok(Moved::default());
    }
    tollgate_fault_points::pass("handler.move.before");
    let moved = shared.store.move_residents(lease, &residents, under_way, shared.clock.wall_us()).await;
    tollgate_fault_points::pass("handler.move.after");
    let moved = match moved {
        Ok(Some(moved)) => moved,
        Ok(None) => return Err(()),
        // Whatever of it has gone: what is told here is handed on.
        Err(error) => {
            tracing::warn!(shard = lease.shard, %error, "what belongs into other queue shards stays for now");
            Moved::default()
        }
    };
    shared.moves.went(lease.shard, moved.residents);
    if moved.residents > 0 {
        let (residents, runs) = (moved.residents, moved.runs.len());
        tracing::info!(
            shard = lease.shard,
            residents,
            runs,
            "policies and schedules have moved to other queue shards"
        );
    }
    Ok(moved)
}

/// Waits for the answers, and puts each into the inbox of its run's shard.
async fn report(
    shared: Shared,
    (shard, moved): (u16, BTreeMap<RunId, u16>),
    mut inputs: mpsc::UnboundedReceiver<Input>,
    mut waiting: Report,
) {
    let shard_of = |run: &RunId| moved.get(run).copied().unwrap_or(shard);
    let mut hurried = false;
    while let Some(until_us) = waiting.until_us() {
        let mut answers = Vec::new();
        tokio::select! {
            input = inputs.recv() => match input {
                Some(input) => answers.extend(answered(&mut waiting, input)),
                None => break,
            },
            () = shared.leaving.cancelled(), if !hurried => {
                hurried = true;
                let grace_us = i64::try_from(shared.options.stop_grace_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
                waiting.hurry(shared.clock.mono_us().saturating_add(grace_us));
            }
            () = tokio::time::sleep_until(instant(&shared.clock, until_us)) => break,
        }
        while answers.len() < REPORT_MAX
            && let Ok(input) = inputs.try_recv()
        {
            answers.extend(answered(&mut waiting, input));
        }
        let mut by_shard: BTreeMap<u16, Vec<Message>> = BTreeMap::new();
        for (run, message) in answers {
            by_shard.entry(shard_of(&run)).or_default().push(message);
        }
        for (shard, messages) in by_shard {
            post(&shared, shard, messages, until_us).await;
        }
    }
    // Nobody waits for the rest any more.
    post(&shared, shard, waiting.rest().map(message).into_iter().collect(), i64::MIN).await;
}

fn answered(waiting: &mut Report, input: Input) -> Option<(RunId, Message)> {
    let (run, control) = match input {
        Input::Unsent { run, index, attempt } => (run, waiting.answered(run, index, attempt, None)),
        Input::Sent { run, index, attempt, sent } => (run, waiting.answered(run, index, attempt, Some(sent))),
        _ => return None,
    };
    Some((run, message(control?)))
}

fn message(control: Control) -> Message {
    Message::first(rand::random(), control)
}

async fn post(shared: &Shared, shard: u16, messages: Vec<Message>, until_us: i64) {
    if messages.is_empty() {
        return;
    }
    loop {
        match shared.store.post(shard, &messages).await {
            Ok(()) => break,
            Err(error) if shared.clock.mono_us() >= until_us => {
                tracing::warn!(shard, %error, "answers could not be reported; their deliveries are made again");
                break;
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
    shared.peers.wake(shard);
}
