//! A stand-in for SQS: takes SendMessageBatch in the AWS JSON protocol 1.0, throttles, and fails in parts.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body, Broken};
use super::{Conduct, Delivery, Sink, conduct, read};
use crate::journal::{Met, Task};

/// What becomes of a whole call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    /// Entries end one by one.
    Taken,
    /// Nothing is taken.
    Throttled,
    /// Everything is taken, and the answer says that something went wrong.
    Failed,
    /// Nothing is taken, and no answer comes.
    Hangs,
}

impl Sink {
    /// One SendMessageBatch.
    pub(super) async fn take_batch(&self, body: &[u8]) -> Result<Response<Body>, Broken> {
        let request: Value = serde_json::from_slice(body)?;
        let mut batch = Vec::new();
        for entry in request["Entries"].as_array().into_iter().flatten() {
            let id = entry["Id"].as_str().unwrap_or_default().to_owned();
            match read(entry["MessageBody"].as_str().unwrap_or_default().as_bytes()) {
                Ok(delivery) => batch.push((id, delivery)),
                Err(problem) => self.journal().problems.push(problem),
            }
        }
        let call = self.call(&batch);
        if let Some(kind) = call.misbehaviour() {
            self.journal().misbehaves(kind);
        }
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for (id, delivery) in batch {
            if self.entry(call, delivery) {
                successful.push(json!({"Id": id, "MessageId": id, "MD5OfMessageBody": "none"}));
            } else {
                failed.push(
                    json!({"Id": id, "SenderFault": false, "Code": "InternalError", "Message": "not now"}),
                );
            }
        }
        match call {
            Call::Taken => {
                let body = json!({"Successful": successful, "Failed": failed});
                Ok(answer::json(StatusCode::OK, &body))
            }
            Call::Throttled => {
                let body = json!({"__type": "com.amazonaws.sqs#RequestThrottled", "message": "slower"});
                Ok(answer::json(StatusCode::BAD_REQUEST, &body))
            }
            Call::Failed => {
                let body = json!({"__type": "com.amazonaws.sqs#InternalFailure", "message": "who knows"});
                Ok(answer::json(StatusCode::INTERNAL_SERVER_ERROR, &body))
            }
            Call::Hangs => std::future::pending().await,
        }
    }

    /// One entry; whether it is taken.
    fn entry(&self, call: Call, delivery: Delivery) -> bool {
        let now_us = tollgate_tests::now_us();
        let Delivery { event, attempt, .. } = delivery;
        let mut journal = self.journal();
        let drawn = conduct::draw(self.seed, &event.id, attempt) % 1_000;
        // Work that has been done is taken, unless the whole call ends otherwise.
        let fails = call == Call::Taken && attempt < 4 && drawn < 50 && !journal.is_done(&event.id);
        let met = match call {
            Call::Taken if !fails => Met::Taken,
            Call::Taken | Call::Throttled => Met::Refused,
            Call::Failed | Call::Hangs => Met::Doubtful,
        };
        if fails {
            journal.misbehaves("SQS: failed entry");
        }
        let (number, task) = journal.arrived(&event, attempt, met, now_us);
        match met {
            Met::Refused => journal.refuses(number, now_us),
            Met::Taken => journal.answers(number, attempt, now_us),
            Met::Doubtful | Met::Abandoned => {}
        }
        if task == Task::ReleaseAgain {
            drop(journal);
            let sink = self.clone();
            tokio::spawn(async move { sink.release(number, &event).await });
            return met == Met::Taken;
        }
        let works = task == Task::Work || (call == Call::Failed && journal.begins_work(number));
        drop(journal);
        if works {
            self.work_later(number, event);
        }
        met == Met::Taken
    }

    fn call(&self, batch: &[(String, Delivery)]) -> Call {
        let outage = *self.outage.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match outage {
            Some(Conduct::Hang) => return Call::Hangs,
            Some(Conduct::Refuse(_)) => return Call::Throttled,
            Some(Conduct::Reset) => return Call::Failed,
            _ => {}
        }
        let Some((_, first)) = batch.iter().find(|(_, delivery)| delivery.attempt < 4) else {
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

impl Call {
    fn misbehaviour(self) -> Option<&'static str> {
        match self {
            Self::Taken => None,
            Self::Throttled => Some("SQS: throttled call"),
            Self::Failed => Some("SQS: 500, messages taken"),
            Self::Hangs => Some("SQS: no answer"),
        }
    }
}
