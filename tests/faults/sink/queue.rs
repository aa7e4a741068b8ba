//! A stand-in for SQS: takes SendMessageBatch in the AWS JSON protocol 1.0, throttles, and fails in parts.

use hyper::{Response, StatusCode};
use serde_json::json;
use tollgate_harness::now_us;
use tollgate_harness::sqs::{self, Batch, Entry};

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
    /// Everything is taken, and the answer says that something went wrong.
    Failed,
    /// Nothing is taken, and no answer comes.
    Hangs,
}

impl Sink {
    /// One SendMessageBatch. Also which attempts of which events it held.
    pub(super) async fn take_batch(
        &self,
        body: &[u8],
    ) -> Result<(Response<Body>, Vec<(String, u32)>), Broken> {
        let request = Batch::read(body).ok_or("no SendMessageBatch")?;
        let mut batch = Vec::new();
        for entry in &request.entries {
            match read(entry.body.as_bytes()) {
                Ok(delivery) => batch.push((entry, delivery)),
                Err(problem) => self.journal().problems.push(problem),
            }
        }
        let attempts =
            batch.iter().map(|(_, delivery)| (delivery.event.id.clone(), delivery.attempt)).collect();
        let call = self.call(&batch);
        if let Some(kind) = call.misbehaviour() {
            self.journal().misbehaves(kind);
        }
        let slow = self.orders().slow_call;
        let is_slow = batch.iter().any(|(_, delivery)| is_slow(delivery));
        let (mut successful, mut failed, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, delivery) in batch {
            let on_response = delivery.on_response;
            if let Some((number, attempt)) = self.entry(call, delivery) {
                taken.push((number, attempt, on_response));
                successful.push(entry);
            } else {
                failed.push(entry);
            }
        }
        if is_slow {
            tokio::time::sleep(slow).await;
        }
        {
            // Whoever does not wait any longer does not come here.
            let (mut journal, now_us) = (self.journal(), now_us());
            for (number, attempt, on_response) in taken {
                if on_response {
                    journal.finishes(number, now_us);
                }
                journal.answers(number, attempt, now_us);
            }
        }
        let (status, body) = match call {
            Call::Taken => (StatusCode::OK, sqs::answer(successful, failed)),
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

    /// One entry; its number and attempt where it is taken.
    fn entry(&self, call: Call, delivery: Delivery) -> Option<(u32, u32)> {
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
            journal.misbehaves("SQS: failed entry");
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

    fn call(&self, batch: &[(&Entry<'_>, Delivery)]) -> Call {
        if batch.iter().any(|(_, delivery)| is_slow(delivery)) {
            return Call::Taken;
        }
        let outage = self.orders().outage;
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

fn is_slow(delivery: &Delivery) -> bool {
    delivery.event.schedule.starts_with(kind::SLOW_QUEUE)
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
