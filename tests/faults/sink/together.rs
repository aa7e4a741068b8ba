//! Takes several deliveries at once: as a stand-in for SQS, which takes SendMessageBatch in the AWS JSON protocol 1.0, and as a
//! target of CloudEvents batches. Throttles, and fails in parts.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tollgate_harness::now_us;
use tollgate_harness::sqs::{self, Batch};

use super::answer::{self, Body, Broken};
use super::{Conduct, Delivery, Sink, conduct, kind, read};
use crate::journal::{Met, Task};

/// What becomes of a whole call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Entries end one by one.
    Taken,
    /// Nothing is taken.
    Throttled,
    /// Everything is taken, and the answer says that something went wrong, or there is none.
    Failed,
    /// Nothing is taken, and no answer comes.
    Hangs,
}

/// What a call is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Sqs,
    Events,
}

/// Which attempts of which events a call held.
type Attempts = Vec<(String, u32)>;

impl Sink {
    /// One SendMessageBatch.
    pub(super) async fn take_messages(&self, body: &[u8]) -> Result<(Response<Body>, Attempts), Broken> {
        let request = Batch::read(body).ok_or("no SendMessageBatch")?;
        let (mut entries, mut batch) = (Vec::new(), Vec::new());
        for entry in &request.entries {
            match read(entry.body.as_bytes()) {
                Ok(delivery) => {
                    entries.push(entry);
                    batch.push(delivery);
                }
                Err(problem) => self.journal().problems.push(problem),
            }
        }
        let attempts = attempts(&batch);
        let (call, taken) = self.take_together(By::Sqs, batch).await;
        let of = |wanted: bool| {
            let both = entries.iter().zip(&taken);
            both.filter(move |(_, is_taken)| **is_taken == wanted)
                .map(|(entry, _)| *entry)
                .collect::<Vec<_>>()
        };
        let (status, body) = match call {
            Call::Taken => (StatusCode::OK, sqs::answer(of(true), of(false))),
            Call::Throttled => {
                let body = json!({"__type": "com.amazonaws.sqs#RequestThrottled", "message": "slower"});
                (StatusCode::BAD_REQUEST, body.to_string().into())
            }
            Call::Failed => {
                let body = json!({"__type": "com.amazonaws.sqs#InternalFailure", "message": "who knows"});
                (StatusCode::INTERNAL_SERVER_ERROR, body.to_string().into())
            }
            Call::Hangs => std::future::pending().await,
        };
        Ok((answer::json(status, body), attempts))
    }

    /// One request with a batch of CloudEvents.
    pub(super) async fn take_events(&self, events: &[Value]) -> Result<(Response<Body>, Attempts), Broken> {
        let mut batch = Vec::new();
        for event in events {
            match read(event.to_string().as_bytes()) {
                Ok(delivery) => batch.push(delivery),
                Err(problem) => self.journal().problems.push(problem),
            }
        }
        let attempts = attempts(&batch);
        let (call, taken) = self.take_together(By::Events, batch).await;
        let refused = attempts.iter().zip(taken).filter(|(_, is_taken)| !is_taken);
        let named: Vec<Value> =
            refused.map(|((id, _), _)| json!({"id": id, "status": "REFUSED", "retryAfterMs": 100})).collect();
        let (status, body) = match call {
            Call::Taken => (StatusCode::OK, json!({"events": named})),
            Call::Throttled => (StatusCode::SERVICE_UNAVAILABLE, json!("slower")),
            Call::Failed => return Err("reset".into()),
            Call::Hangs => std::future::pending().await,
        };
        Ok((answer::json(status, body.to_string().into()), attempts))
    }

    /// What becomes of a call, and which of its deliveries are taken.
    async fn take_together(&self, by: By, batch: Vec<Delivery>) -> (Call, Vec<bool>) {
        let call = self.call(&batch);
        if let Some(kind) = call.misbehaviour(by) {
            self.journal().misbehaves(kind);
        }
        let slow = self.orders().slow_call;
        let is_slow = batch.iter().any(is_slow);
        let meet = |delivery: Delivery| {
            let on_response = delivery.on_response;
            self.entry((by, call), delivery).map(|(number, attempt)| (number, attempt, on_response))
        };
        let taken: Vec<Option<(u32, u32, bool)>> = batch.into_iter().map(meet).collect();
        if is_slow {
            tokio::time::sleep(slow).await;
        }
        // Whoever does not wait any longer does not come here.
        let (mut journal, now_us) = (self.journal(), now_us());
        for (number, attempt, on_response) in taken.iter().flatten() {
            if *on_response {
                journal.finishes(*number, now_us);
            }
            journal.answers(*number, *attempt, now_us);
        }
        (call, taken.iter().map(Option::is_some).collect())
    }

    /// One entry; its number and attempt where it is taken.
    fn entry(&self, (by, call): (By, Call), delivery: Delivery) -> Option<(u32, u32)> {
        let now_us = now_us();
        let is_slow = is_slow(&delivery);
        let Delivery { event, attempt, on_response } = delivery;
        let mut journal = self.journal();
        let drawn = conduct::draw(self.seed, &event.id, attempt) % 1_000;
        // Work that has been done is taken, unless the whole call ends otherwise.
        let fails =
            call == Call::Taken && attempt < 4 && drawn < 50 && !is_slow && !journal.is_done(&event.id);
        let met = match call {
            Call::Taken if !fails => Met::Taken,
            Call::Taken | Call::Throttled => Met::Refused,
            Call::Failed | Call::Hangs => Met::Doubtful,
        };
        if fails {
            journal.misbehaves(match by {
                By::Sqs => "SQS: failed entry",
                By::Events => "batch: refused event",
            });
        }
        let (number, task) = journal.arrived(&event, attempt, met, now_us);
        if met == Met::Refused {
            journal.refuses(number, now_us);
        }
        let taken = (met == Met::Taken).then_some((number, attempt));
        if on_response {
            return taken;
        }
        if task == Task::ReleaseAgain {
            drop(journal);
            self.release_again(number, event);
            return taken;
        }
        let works = task == Task::Work || (call == Call::Failed && journal.begins_work(number));
        drop(journal);
        if works {
            self.work_later(number, event);
        }
        taken
    }

    fn call(&self, batch: &[Delivery]) -> Call {
        if batch.iter().any(is_slow) {
            return Call::Taken;
        }
        let outage = self.orders().outage;
        match outage {
            Some(Conduct::Hang) => return Call::Hangs,
            Some(Conduct::Refuse(_)) => return Call::Throttled,
            Some(Conduct::Reset) => return Call::Failed,
            _ => {}
        }
        let Some(first) = batch.iter().find(|delivery| delivery.attempt < 4) else {
            return Call::Taken;
        };
        match conduct::draw(self.seed, &first.event.id, first.attempt + 100) % 100 {
            0..4 => Call::Throttled,
            4..6 => Call::Failed,
            6 => Call::Hangs,
            _ => Call::Taken,
        }
    }
}

fn is_slow(delivery: &Delivery) -> bool {
    delivery.event.schedule.starts_with(kind::SLOW_QUEUE)
}

fn attempts(batch: &[Delivery]) -> Attempts {
    batch.iter().map(|delivery| (delivery.event.id.clone(), delivery.attempt)).collect()
}

impl Call {
    fn misbehaviour(self, by: By) -> Option<&'static str> {
        Some(match (self, by) {
            (Self::Taken, _) => return None,
            (Self::Throttled, By::Sqs) => "SQS: throttled call",
            (Self::Failed, By::Sqs) => "SQS: 500, messages taken",
            (Self::Hangs, By::Sqs) => "SQS: no answer",
            (Self::Throttled, By::Events) => "batch: 503",
            (Self::Failed, By::Events) => "batch: reset, events taken",
            (Self::Hangs, By::Events) => "batch: no answer",
        })
    }
}
