//! Giving a shard up on purpose, without making anybody wait for a slow consumer.
//!
//! Nothing new starts; answers that come within a moment are committed as usual. Then a note about the deliveries still
//! under way goes into the shard's own inbox, the lease is given up, and the others are told. This process goes on
//! waiting for those answers, and reports each to the inbox; the next owner does not make these deliveries again
//! meanwhile. Invariants: the note is durable before the lease is given up; everything that the machine took in is
//! durable before that, too; nothing leaves later that has not left when the note is written.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tollgate_core::handle::Shard;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::model::{RunId, Sent};
use tollgate_target::Leave;

use super::{Beside, Ended, Left, Owner};
use crate::Shared;
use crate::routes::Input;

/// So long a shard is kept for answers under way.
const MOMENT: Duration = Duration::from_millis(300);
/// A shard whose last changes cannot be committed for so long is left to its lease.
const LAST_COMMIT: Duration = Duration::from_secs(3);
/// How long to wait before a report is tried again.
const AGAIN: Duration = Duration::from_millis(200);
/// How many answers one report has.
const REPORT_MAX: usize = 500;

/// An owner that is about to give its shard up.
pub(super) struct Closing {
    until: Instant,
    /// No input is taken any more.
    closed: bool,
}

impl Closing {
    pub(super) fn begin() -> Self {
        Self { until: Instant::now() + MOMENT, closed: false }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// When to look again.
    pub(super) fn deadline(&self) -> Instant {
        if self.closed { self.until + LAST_COMMIT } else { self.until }
    }
}

impl Owner {
    /// One step on the way to giving the shard up, if it is on it.
    pub(super) fn close(&self, machine: &mut Shard, beside: &mut Beside) -> Option<Left> {
        let closing = beside.closing.as_mut()?;
        let now = Instant::now();
        if !closing.closed && (now >= closing.until || machine.sending() == 0) {
            closing.closed = true;
            // Whoever asks from now on is sent elsewhere; what waits in line is turned away at the end.
            self.shared.peers.routes().remove(self.lease.shard);
        }
        if closing.closed && beside.commit.is_none() && machine.durable_after().is_none() {
            return Some(Left::Drained(machine.under_way(self.wait_ms(), self.shared.clock.now())));
        }
        if now >= closing.until + LAST_COMMIT {
            tracing::warn!(
                shard = self.lease.shard,
                "the last changes cannot be committed; the lease runs out"
            );
            return Some(Left::Lost);
        }
        None
    }

    /// How long this process will wait for answers.
    fn wait_ms(&self) -> i64 {
        if self.shared.leaving.is_cancelled() {
            i64::try_from(self.shared.options.stop_grace_ms).unwrap_or(i64::MAX)
        } else {
            i64::MAX
        }
    }

    /// Gives the shard up, and has the answers under way reported.
    pub(super) async fn hand_over(self, under_way: Vec<UnderWay>) -> Ended {
        let Self { shared, lease, inputs, loopback, replies, begun, .. } = self;
        let shard = lease.shard;
        shared.peers.routes().remove(shard);
        // What has not left stays: the next owner may hear of a release, and could not take these back. They are reported
        // as not sent.
        begun.values().for_each(Leave::revoke);
        // Ends the line of answers with the last delivery; turns away whoever waits.
        drop((loopback, replies));
        if !under_way.is_empty() {
            let control = Control::UnderWay { deliveries: under_way.clone() };
            if let Err(error) = shared.store.post(shard, &[Message::first(rand::random(), control)]).await {
                tracing::warn!(shard, %error, "what is under way cannot be noted; the lease runs out");
                return Ended::Lost;
            }
        }
        tollgate_fault_points::pass("handler.handover.before");
        if let Err(error) = shared.store.give_up_shard(&lease).await {
            tracing::warn!(shard, %error, "the shard could not be given up; its lease runs out");
            return Ended::Lost;
        }
        tollgate_fault_points::pass("handler.handover.after");
        tracing::debug!(shard, under_way = under_way.len(), "gave the shard up");
        shared.peers.placement_changed();
        // Former owners report what they have begun.
        let own = under_way.into_iter().filter(|u| begun.contains_key(&(u.run, u.index, u.attempt)));
        let own: BTreeMap<_, _> = own.map(|one| ((one.run, one.index), one)).collect();
        if !own.is_empty() {
            let reports = shared.reports.clone();
            reports.spawn(report(shared, shard, inputs, own));
        }
        Ended::HandedOver
    }
}

/// Waits for the answers, and puts each into the shard's inbox.
async fn report(
    shared: Shared,
    shard: u16,
    mut inputs: mpsc::UnboundedReceiver<Input>,
    mut waiting: BTreeMap<(RunId, u32), UnderWay>,
) {
    let longest_ms = waiting.values().map(|one| one.grace_ms).max().unwrap_or_default();
    let mut until = Instant::now() + Duration::from_millis(u64::try_from(longest_ms).unwrap_or_default());
    let mut hurried = false;
    while !waiting.is_empty() {
        let mut answers = Vec::new();
        tokio::select! {
            input = inputs.recv() => match input {
                Some(input) => answers.extend(answered(&mut waiting, input)),
                None => break,
            },
            () = shared.leaving.cancelled(), if !hurried => {
                hurried = true;
                until = until.min(Instant::now() + Duration::from_millis(shared.options.stop_grace_ms));
            }
            () = tokio::time::sleep_until(until) => break,
        }
        while answers.len() < REPORT_MAX
            && let Ok(input) = inputs.try_recv()
        {
            answers.extend(answered(&mut waiting, input));
        }
        post(&shared, shard, answers, until).await;
    }
    // Nobody waits for the rest any more.
    let deliveries: Vec<UnderWay> =
        waiting.into_values().map(|one| UnderWay { grace_ms: 0, ..one }).collect();
    if !deliveries.is_empty() {
        let last = Message::first(rand::random(), Control::UnderWay { deliveries });
        post(&shared, shard, vec![last], Instant::now()).await;
    }
}

fn answered(waiting: &mut BTreeMap<(RunId, u32), UnderWay>, input: Input) -> Option<Message> {
    let control = match input {
        // Versions before this one do not know the answer; that nobody waits for the delivery any more says the same.
        Input::Sent { run, index, sent: Sent::NotSent { .. }, .. } | Input::Unsent { run, index, .. } => {
            let one = waiting.remove(&(run, index))?;
            Control::UnderWay { deliveries: vec![UnderWay { grace_ms: 0, ..one }] }
        }
        Input::Sent { run, index, attempt, sent } => {
            waiting.remove(&(run, index))?;
            Control::Sent { run, index, attempt, sent }
        }
        _ => return None,
    };
    Some(Message::first(rand::random(), control))
}

async fn post(shared: &Shared, shard: u16, messages: Vec<Message>, until: Instant) {
    if messages.is_empty() {
        return;
    }
    loop {
        match shared.store.post(shard, &messages).await {
            Ok(()) => break,
            Err(error) if Instant::now() >= until => {
                tracing::warn!(shard, %error, "answers could not be reported; their deliveries are made again");
                break;
            }
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
    shared.peers.wake(shard);
}
