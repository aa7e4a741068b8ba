//! Brings messages of an SQS queue in, and keeps them hidden from others while they are in hand.
//!
//! Invariants: no more are asked for than there is room for, and none while the service is away; what is in hand is hidden anew
//! at half of the time for which it is hidden.

use std::time::Duration;

use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tollgate_clock::instant_now;

use crate::backoff::Backoff;
use crate::hands::MESSAGES_MAX;
use crate::intake::Intake;
use crate::sqs::{Queue, WAIT};

/// The most calls under way at once: receivers, and calls that hide.
const RECEIVERS_MAX: usize = 4;
pub(crate) const HIDING_MAX: usize = 8;
/// The least time for a call that hides anew.
const HIDE_MIN: Duration = Duration::from_millis(500);
/// How long a call may take to answer after a stop. One that is broken off goes on at SQS, and may take what others could have,
/// even what this process has just given back.
const LAST_ANSWER_MAX: Duration = WAIT.saturating_add(Duration::from_secs(2));

/// How many receivers a queue has of which so many messages may be in hand.
pub(crate) fn receivers(in_hand: usize) -> usize {
    in_hand.div_ceil(MESSAGES_MAX).clamp(1, RECEIVERS_MAX)
}

/// What a call says; nothing where it says nothing until so long after a stop.
async fn answer<T>(
    call: impl Future<Output = T>,
    stop: &CancellationToken,
    after_max: Duration,
) -> Option<T> {
    let last = async {
        stop.cancelled().await;
        tokio::time::sleep(after_max).await;
    };
    tokio::select! {
        biased;
        said = call => Some(said),
        () = last => None,
    }
}

/// Asks for messages while there is room, and the service answers.
pub(crate) async fn receive(queue: Queue, intake: Intake, visibility: Duration) {
    let Intake { counts, arrivals, mut open, stop, .. } = intake;
    let mut backoff = Backoff::default();
    while !stop.is_cancelled() {
        let wanted = async {
            open.wait_for(|open| *open).await.map(drop).ok()?;
            Some(counts.hands.room().await)
        };
        let Some(Some(mut room)) = stop.run_until_cancelled(wanted).await else { return };
        // SQS may have handed out early what it answers late.
        let asked_at = instant_now();
        match answer(queue.receive(room.count, visibility), &stop, LAST_ANSWER_MAX).await {
            Some(Ok(messages)) => {
                counts.source.worked();
                backoff = Backoff::default();
                for message in messages {
                    let place = room.take(&message, asked_at);
                    if arrivals.send((message, place)).await.is_err() {
                        return;
                    }
                }
            }
            Some(Err(said)) => {
                drop(room);
                counts.source.failed(&said);
                stop.run_until_cancelled(tokio::time::sleep(backoff.next(None))).await;
            }
            None => return,
        }
    }
}

/// Hides what is in hand anew. What fails is tried again a moment later.
pub(crate) async fn keep_hidden(queue: Queue, intake: Intake, visibility: Duration) {
    // After a stop, too, as long as something is in hand; but that brings nothing in.
    let Intake { counts, arrivals, end, .. } = intake;
    drop(arrivals);
    let tick = visibility / 8;
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(tick) => {}
        }
        let due = counts.hands.due(visibility / 2);
        let chunks: Vec<Vec<_>> = due.chunks(MESSAGES_MAX).map(<[_]>::to_vec).collect();
        let hide = |some: Vec<(u64, String)>| {
            let (queue, counts) = (&queue, &counts);
            async move {
                let at = instant_now();
                let messages: Vec<(String, Duration)> =
                    some.iter().map(|(_, receipt)| (receipt.clone(), visibility)).collect();
                match tokio::time::timeout(tick.max(HIDE_MIN), queue.hide(&messages)).await {
                    Ok(Ok(failed)) => {
                        let done = some.iter().enumerate().filter(|(at, _)| !failed.contains(at));
                        done.for_each(|(_, (number, _))| counts.hands.hidden(*number, at));
                    }
                    Ok(Err(said)) => counts.source.failed(&said),
                    Err(_) => counts.source.failed(&"no answer in time"),
                }
            }
        };
        futures::stream::iter(chunks).for_each_concurrent(HIDING_MAX, hide).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_on_its_way_at_a_stop_is_taken() {
        let stop = CancellationToken::new();
        let (soon, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let call = async || tokio::time::sleep(soon).await;
        assert_eq!(answer(call(), &stop, Duration::ZERO).await, Some(()), "nothing ends it before a stop");
        stop.cancel();
        assert_eq!(answer(call(), &stop, long).await, Some(()));
        assert_eq!(answer(std::future::pending::<()>(), &stop, soon).await, None);
    }
}
