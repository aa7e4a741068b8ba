//! The calls of a worker for one event: heartbeats, and releases that are repeated until they are answered.

use std::sync::OnceLock;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backoff::{Backoff, Outage};
use crate::client::{CallError, Client, Refused};
use crate::known::Known;
use crate::outcome::{Release, Status};

/// What a heartbeat came to.
#[derive(Debug)]
pub(crate) enum Beat {
    /// For how long silence is allowed from now, where that is said.
    Held(Option<Duration>),
    Lost,
    /// It is to be repeated, not before so long.
    Failed(Duration),
}

#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) client: Client,
    pub(crate) known: Known,
    pub(crate) taking: Outage,
    releasing: Outage,
    beating: Outage,
    /// Ends when even releases are given up.
    pub(crate) over: CancellationToken,
    /// Ends when the server refuses the worker; why is in `refused`.
    pub(crate) refusing: CancellationToken,
    refused: OnceLock<Refused>,
}

impl Calls {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            known: Known::default(),
            taking: Outage::new("taking events"),
            releasing: Outage::new("releasing tokens"),
            beating: Outage::new("the heartbeat"),
            over: CancellationToken::new(),
            refusing: CancellationToken::new(),
            refused: OnceLock::new(),
        }
    }

    /// Why the server refuses the worker.
    pub(crate) fn refusal(&self) -> Option<Refused> {
        self.refused.get().cloned()
    }

    fn refuses(&self, refused: &Refused) -> bool {
        if refused.is_of_caller() {
            // The first one is told.
            let _later = self.refused.set(refused.clone());
            self.refusing.cancel();
        }
        refused.is_of_caller()
    }

    /// A heartbeat under the attempt that came last.
    pub(crate) async fn beat(&self, id: &str, attempt: u32) -> Beat {
        let attempt = self.known.attempt(id, attempt);
        match self.client.extend(id, attempt).await {
            Ok(remaining) => {
                self.beating.worked();
                Beat::Held(remaining)
            }
            Err(CallError::Refused(refused)) if refused.is_not_held() => {
                // It may have come again meanwhile, and be held under that attempt.
                let again = self.known.attempt(id, attempt) > attempt;
                if again { Beat::Held(None) } else { Beat::Lost }
            }
            Err(CallError::Refused(refused)) if self.refuses(&refused) => Beat::Failed(Duration::ZERO),
            Err(error) => {
                self.beating.failed(&error);
                Beat::Failed(if let CallError::Busy(_, after) = error { after } else { Duration::ZERO })
            }
        }
    }

    /// Releases an event, until that is answered; false where it was given up before.
    pub(crate) async fn release(&self, id: &str, mut release: Release) -> bool {
        let mut backoff = Backoff::default();
        loop {
            if !release.is_open() {
                // Under the attempt that came last: what is done is done, whichever it was.
                release.attempt = self.known.attempt(id, release.attempt);
            }
            let answer = tokio::select! {
                answer = self.client.release(id, &release) => answer,
                () = self.over.cancelled() => return false,
            };
            match answer {
                Ok(()) => {
                    self.releasing.worked();
                    return true;
                }
                Err(CallError::Refused(refused)) if self.refuses(&refused) => return false,
                Err(CallError::Refused(refused))
                    if matches!(refused.http_status, 400 | 413) && release.outcome != Status::Retry =>
                {
                    tracing::error!(
                        "event {id}: the release was refused, the event is to come again: {refused}"
                    );
                    let why = format!("the release was refused: {}", refused.message);
                    release = Release::retry(release.attempt, &why);
                    self.known.ended(id, &release);
                }
                Err(CallError::Refused(refused)) => {
                    tracing::error!("event {id}: not released: {refused}");
                    return true;
                }
                Err(CallError::Busy(message, after)) => {
                    self.releasing.failed(&message);
                    tokio::select! {
                        () = tokio::time::sleep(backoff.next(after)) => {}
                        () = self.over.cancelled() => return false,
                    }
                }
            }
        }
    }
}
