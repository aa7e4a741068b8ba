//! Tells the caller of a long call how far it has come.
//!
//! Invariants: what is told never holds up the call; a call whose caller leaves is carried to its end; the answer comes last.

use std::future::Future;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tollgate_proto::v1::{CallProgress, CallStage};
use tonic::{Response, Status};

/// How often a caller is told.
const EVERY: Duration = Duration::from_millis(250);
/// Messages that wait for a caller who reads slowly; of progress, more are left out.
const WAITING_MAX: usize = 2;

/// How far a call has come, whether anybody watches it or not.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    now: watch::Sender<CallProgress>,
}

impl Progress {
    /// Begins a stage, in which `total` resources or runs are to be done.
    pub(crate) fn begin(&self, stage: CallStage, total: usize) {
        let (stage, total_count) = (stage.into(), total as u64);
        self.now.send_replace(CallProgress { stage, done_count: 0, total_count });
    }

    /// Notes that so many more are done.
    pub(crate) fn add(&self, count: usize) {
        self.now.send_modify(|now| now.done_count += count as u64);
    }
}

/// One message of a call that is watched.
pub(crate) enum Step<T> {
    /// How far it has come.
    Progress(CallProgress),
    /// The answer, which comes last.
    Response(T),
}

/// The messages of a call that is watched.
pub(crate) type Steps<M> = ReceiverStream<Result<M, Status>>;

/// Runs a call to its end, and tells whoever reads the answer how far it has come.
pub(crate) fn watched<T, M, F>(
    call: impl FnOnce(Progress) -> F,
    message: fn(Step<T>) -> M,
) -> Response<Steps<M>>
where
    F: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    T: Send + 'static,
    M: Send + 'static,
{
    let progress = Progress::default();
    let mut now = progress.now.subscribe();
    let call = call(progress);
    let (steps, answer) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        let mut call = std::pin::pin!(call);
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = &mut call => {
                    let last = done.map(|response| message(Step::Response(response.into_inner())));
                    // Nobody may be left to read it.
                    let _gone = steps.send(last).await;
                    return;
                }
                _ = ticks.tick() => {
                    if now.has_changed().unwrap_or(false) {
                        let told = *now.borrow_and_update();
                        let _full_or_gone = steps.try_send(Ok(message(Step::Progress(told))));
                    }
                }
            }
        }
    });
    Response::new(ReceiverStream::new(answer))
}

#[cfg(test)]
mod tests {

    use tokio::time::{sleep, timeout};
    use tokio_stream::StreamExt as _;

    use super::*;

    fn text(step: Step<u32>) -> String {
        match step {
            Step::Progress(told) => format!("{} {}/{}", told.stage, told.done_count, told.total_count),
            Step::Response(answer) => format!("answer {answer}"),
        }
    }

    async fn call(progress: Progress) -> Result<Response<u32>, Status> {
        progress.begin(CallStage::Check, 2);
        sleep(EVERY * 2).await;
        progress.begin(CallStage::Write, 30);
        for _ in 0..30 {
            progress.add(1);
            sleep(EVERY / 10).await;
        }
        Ok(Response::new(7))
    }

    #[tokio::test]
    async fn progress_comes_at_a_pace_and_the_answer_last() {
        let steps: Vec<String> =
            watched(call, text).into_inner().map(Result::unwrap_or_default).collect().await;
        assert_eq!(steps.first().map(String::as_str), Some("1 0/2"));
        assert_eq!(steps.last().map(String::as_str), Some("answer 7"));
        assert!((3..=20).contains(&steps.len()), "not each step of the call: {steps:?}");
    }

    #[tokio::test]
    async fn a_caller_who_does_not_read_or_leaves_holds_nothing_up() {
        for leaves in [true, false] {
            let (ended, mut end) = mpsc::channel(1);
            let answer = watched(
                move |progress| async move {
                    let answer = call(progress).await;
                    let _gone = ended.send(()).await;
                    answer
                },
                text,
            );
            let unread = (!leaves).then_some(answer);
            assert_eq!(timeout(Duration::from_secs(30), end.recv()).await, Ok(Some(())), "{leaves}");
            drop(unread);
        }
    }

    #[tokio::test]
    async fn a_refusal_is_the_last_message() {
        let refused = |_| async { Err::<Response<u32>, _>(Status::not_found("no")) };
        let steps: Vec<_> = watched(refused, text).into_inner().collect().await;
        assert_eq!(steps.len(), 1);
        assert!(steps[0].as_ref().is_err_and(|status| status.message() == "no"));
    }
}
