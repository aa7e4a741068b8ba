//! Sends all items: as fast as they are taken, and again from where they were, if the connection is lost.
//!
//! Invariants: a stream comes to its end only if all items that were checked have been sent, and no others; what the service has
//! of another file is not gone on with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::{Stream, StreamExt as _};
use prost_types::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tollgate_clock::Clock;
use tollgate_items::{Batch, Item};
use tollgate_proto::v1;
use tollgate_proto::v1::submit_items_request::Part;
use tonic::{Code, Status};

use super::super::{Session, progress, when};
use super::check::{Checked, ItemsDigest};
use super::source::{Items, Source};

/// Batches that have been read and not taken.
const AHEAD: usize = 4;
/// How long it is tried to go on without getting any further.
const PATIENCE_US: i64 = 10 * 60 * 1_000_000;
/// Between two tries: the first pause, which doubles, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// How long the answer to a question may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The flags of what the service may refuse.
const FLAGS: [(&str, &str); 4] = [
    ("header.request_id", "--request-id"),
    ("header.launch_time", "--launch-time"),
    ("header.priority", "--priority"),
    ("header.payload", "--payload"),
];

/// What the service has.
pub(super) struct Sent {
    /// The submission, which is complete.
    pub(super) submission: v1::Submission,
    /// Whether it had been complete before anything was sent.
    pub(super) had_been: bool,
}

/// Sends all items. What is named by its content may be gone on with wherever it was broken off, and may be there already; under
/// a name that somebody gave, only what has been sent from here is known to be the same.
///
/// # Errors
/// What the service says; a file that has changed; a connection that stays lost.
pub(super) async fn all(
    session: &Session,
    source: &Source,
    checked: &Checked,
    header: v1::SubmissionHeader,
    is_named_by_content: bool,
) -> anyhow::Result<Sent> {
    let sending = Sending { session, source, checked, header, is_named_by_content };
    let (clock, mut pause, mut has_sent) = (Clock::system(), PAUSE_MIN, false);
    let (mut further_us, mut received, mut before) = (clock.wall_us(), 0, None);
    loop {
        let lost = match sending.known().await {
            Ok(known) => {
                if !has_sent {
                    before = known.as_ref().and_then(|known| known.create_time);
                }
                let known = known.filter(|known| sending.is_same(known, before.as_ref()));
                if let Some(done) = known.as_ref().filter(|known| is_complete(known)) {
                    return Ok(Sent { submission: done.clone(), had_been: !has_sent });
                }
                let resume_from = known.map_or(0, |known| known.received_count);
                if resume_from > received {
                    (received, further_us, pause) = (resume_from, clock.wall_us(), PAUSE_MIN);
                }
                has_sent = true;
                match sending.attempt(resume_from).await? {
                    Ok(submission) => return Ok(Sent { submission, had_been: false }),
                    Err(status) => status,
                }
            }
            Err(status) => status,
        };
        if !is_passing(&lost) {
            return Err(sending.failure(lost));
        }
        if clock.wall_us() - further_us > PATIENCE_US {
            return Err(sending.failure(lost)).context("given up");
        }
        let said = lost.message();
        session.note(&format!("interrupted: {said}; trying to go on in {}", when::span(millis(pause))));
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn is_complete(submission: &v1::Submission) -> bool {
    submission.state() == v1::SubmissionState::Complete
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whether the same may be tried again.
fn is_passing(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Aborted => true,
        // A connection that breaks is told so by the library in some places.
        Code::Internal => {
            ["h2 ", "http2", "transport", "connection"].iter().any(|word| status.message().contains(word))
        }
        // What an earlier stream had under way has been stored, or what it had is forgotten: to be asked anew.
        Code::InvalidArgument | Code::FailedPrecondition => {
            status.message().starts_with("header.resume_from: ")
        }
        Code::ResourceExhausted => status.metadata().contains_key("retry-after"),
        _ => false,
    }
}

/// What is sent, and where to.
struct Sending<'s> {
    session: &'s Session,
    source: &'s Source,
    checked: &'s Checked,
    header: v1::SubmissionHeader,
    is_named_by_content: bool,
}

impl Sending<'_> {
    fn failure(&self, status: Status) -> anyhow::Error {
        let id = &self.header.request_id;
        let goes_on = is_passing(&status);
        let tried = format!("submit items to {}", self.header.name);
        let failure = self.session.failure_of_flags(tried, status, &FLAGS);
        if !goes_on {
            return failure;
        }
        anyhow!(
            "{failure}\nnothing of it is due; the service keeps what it has for an hour, as {id:?}: run the same again to go on"
        )
    }

    /// Whether what the service has is of this file: it is named by its content, or it has begun after we have.
    fn is_same(&self, known: &v1::Submission, before: Option<&Timestamp>) -> bool {
        self.is_named_by_content || known.create_time.as_ref() != before
    }

    /// What the service has under this name.
    async fn known(&self) -> Result<Option<v1::Submission>, Status> {
        let name = format!("{}/submissions/{}", self.header.name, self.header.request_id);
        let mut master = self.session.master();
        let asked = master.get_submission(v1::GetSubmissionRequest { name });
        match tokio::time::timeout(ANSWER_MAX, asked).await {
            Ok(Ok(known)) => Ok(Some(known.into_inner())),
            // A key that may not read can submit all the same: the service compares what it has.
            Ok(Err(status)) if matches!(status.code(), Code::NotFound | Code::PermissionDenied) => Ok(None),
            Ok(Err(status)) if status.code() == Code::DeadlineExceeded => {
                Err(Status::unavailable(status.message()))
            }
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::unavailable("the service does not answer")),
        }
    }

    /// One stream, from the items on that the service does not have.
    ///
    /// # Errors
    /// A file that cannot be read, or has changed.
    async fn attempt(&self, resume_from: u32) -> anyhow::Result<Result<v1::Submission, Status>> {
        let (batches, receiver) = mpsc::channel(AHEAD);
        let (fault, faulty) = oneshot::channel();
        let sent = Arc::new(AtomicU64::new(u64::from(resume_from)));
        let reading = Reading {
            items: self.source.items()?,
            from: u64::from(resume_from),
            count: self.checked.count,
            digest: self.checked.digest,
            sent: sent.clone(),
        };
        // A thread of its own: the end of the process does not wait for it.
        std::thread::Builder::new().name("items".to_owned()).spawn(move || {
            if let Err(error) = reading.run(&batches) {
                // Nobody may be left who wants to know.
                let _late = fault.send(error);
                // The stream is not to end before the call is given up.
                batches.blocking_send(Next::Never).unwrap_or_default();
            }
        })?;
        let header = v1::SubmissionHeader { resume_from, ..self.header.clone() };
        let mut master = self.session.master();
        let call = async {
            tokio::select! {
                answer = master.submit_items(requests(header, receiver)) => Ok(answer.map(tonic::Response::into_inner)),
                error = of(faulty) => Err(error),
            }
        };
        let (total, from) = (self.checked.count, u64::from(resume_from));
        progress::beside(call, |ms| match sent.load(Ordering::Relaxed) {
            sent if sent < total => format!("sent {}", progress::further(from, sent, total, ms)),
            _ => format!("all {total} are sent; the service makes the run: {}", when::span(ms)),
        })
        .await
    }
}

/// The fault of a reader, if it has one.
async fn of(faulty: oneshot::Receiver<anyhow::Error>) -> anyhow::Error {
    match faulty.await {
        Ok(error) => error,
        Err(_) => std::future::pending().await,
    }
}

/// What the reader hands over.
enum Next {
    Items(Vec<Item>),
    /// All of them have been handed over.
    End,
    /// Something is wrong: there is no end.
    Never,
}

/// The messages of a stream: without an end where nobody says that it is the end.
fn requests(
    header: v1::SubmissionHeader,
    batches: mpsc::Receiver<Next>,
) -> impl Stream<Item = v1::SubmitItemsRequest> + Send + 'static {
    let items = futures::stream::unfold(batches, |mut batches| async move {
        match batches.recv().await {
            Some(Next::Items(items)) => {
                let items = items
                    .into_iter()
                    .map(|Item { data, key, units }| v1::Item { data, key, units })
                    .collect();
                Some((Part::Items(v1::Items { items }), batches))
            }
            Some(Next::End) => None,
            Some(Next::Never) | None => std::future::pending().await,
        }
    });
    let parts = futures::stream::iter([Part::Header(header)]).chain(items);
    parts.map(|part| v1::SubmitItemsRequest { part: Some(part) })
}

/// Reads the file once more, and hands its items over.
struct Reading {
    items: Items,
    /// Items that the service has.
    from: u64,
    count: u64,
    digest: [u8; 32],
    sent: Arc<AtomicU64>,
}

impl Reading {
    /// Reads to the end, or until nobody takes items any more.
    fn run(mut self, batches: &mpsc::Sender<Next>) -> anyhow::Result<()> {
        let (mut digest, mut batch, mut read) = (ItemsDigest::default(), Batch::default(), 0);
        while let Some(item) = self.items.next()? {
            digest.add(&item);
            read += 1;
            if read <= self.from {
                continue;
            }
            if let Some(items) = batch.add(item)
                && !self.hand_over(items, batches)
            {
                return Ok(());
            }
        }
        if (read, digest.finish()) != (self.count, self.digest) {
            return Err(anyhow!(
                "the file has changed while it was sent: nothing of it falls due; submit it again"
            ));
        }
        let is_taken = batch.rest().is_none_or(|items| self.hand_over(items, batches));
        if is_taken {
            // Where nobody takes it, the call has ended otherwise.
            let _ended = batches.blocking_send(Next::End);
        }
        Ok(())
    }

    fn hand_over(&self, items: Vec<Item>, batches: &mpsc::Sender<Next>) -> bool {
        let count = items.len() as u64;
        let is_taken = batches.blocking_send(Next::Items(items)).is_ok();
        self.sent.fetch_add(count, Ordering::Relaxed);
        is_taken
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[tokio::test]
    async fn a_stream_without_an_end_does_not_end() {
        for (end, has_end) in [(Some(Next::End), true), (Some(Next::Never), false), (None, false)] {
            let (sender, receiver) = mpsc::channel(4);
            for part in [Next::Items(Vec::new())].into_iter().chain(end) {
                sender.try_send(part).ok().unwrap();
            }
            drop(sender);
            let all = requests(v1::SubmissionHeader::default(), receiver).collect::<Vec<_>>();
            let all = tokio::time::timeout(Duration::from_millis(50), all).await;
            assert_eq!(all.ok().map(|all| all.len()), has_end.then_some(2));
        }
    }

    #[test]
    fn what_passes_is_tried_again() {
        let h2 = Status::internal("h2 protocol error: error reading a body from connection");
        for passing in
            [Status::unavailable(""), Status::unknown("transport error"), Status::cancelled(""), h2]
        {
            assert!(is_passing(&passing), "{passing}");
        }
        let stale = Status::invalid_argument("header.resume_from: \"7\" is not allowed, expected 0, or 9");
        assert!(is_passing(&stale));
        let mut quota = Status::resource_exhausted("quota");
        for lasting in
            [Status::invalid_argument(""), Status::already_exists(""), Status::internal("x"), quota.clone()]
        {
            assert!(!is_passing(&lasting), "{lasting}");
        }
        quota.metadata_mut().insert("retry-after", "1".parse().unwrap());
        assert!(is_passing(&quota));
    }
}
