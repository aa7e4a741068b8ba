//! Workers that take their events themselves: by streams and by polls. They misbehave as every consumer here does, and release,
//! or give back, at whatever process answers.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tollgate_harness::now_us;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, AcquireEventsRequest, ReleaseOutcome, ReleaseTokenRequest, WorkEvent, WorkRequest,
    WorkerHello,
};
use tonic::Status;

use super::{Conduct, Delivery, Sink, TOO_LATE, read};
use crate::journal::{Event, HUNG_UP_MAX_US, Met, Task};

/// The queue of workers with streams, and the policy of its events.
pub(crate) const PULLED: &str = "pulled";
/// The queue of workers that poll, and the policy of its events.
pub(crate) const POLLED: &str = "polled";
/// Streams at once, polls at once, and what each of them does at once.
const STREAMS: usize = 4;
const POLLS: usize = 2;
const CAPACITY: u32 = 4;
/// Pause before a stream is opened again, or a poll that failed is made again.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a poll waits.
const WAIT_MS: i64 = 1_500;

/// What a worker says on its stream.
#[derive(Clone)]
struct Voice(mpsc::UnboundedSender<WorkRequest>);

impl Voice {
    fn say(&self, message: Say) {
        // Its stream may have ended: then nobody is to hear it.
        let _ended = self.0.send(WorkRequest { message: Some(message) });
    }
}

/// What has been accepted on a stream, and when.
type Accepted = Vec<(String, u32, i64)>;

fn queue(name: &str) -> String {
    format!("namespaces/default/queues/{name}")
}

impl Sink {
    /// Starts the workers. They end with the runtime.
    pub(crate) fn start_workers(&self) {
        for number in 0..STREAMS {
            let sink = self.clone();
            tokio::spawn(async move {
                loop {
                    let mut accepted = Accepted::default();
                    // Wherever it ends, the worker opens another one.
                    let _ended = sink.stream(number, &mut accepted).await;
                    sink.not_heard(&accepted);
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        for number in 0..POLLS {
            let sink = self.clone();
            tokio::spawn(async move {
                loop {
                    if sink.poll(number).await.is_err() {
                        tokio::time::sleep(AGAIN).await;
                    }
                }
            });
        }
    }

    /// What was accepted right before a stream ended may not have been heard.
    fn not_heard(&self, accepted: &Accepted) {
        let now_us = now_us();
        for (id, attempt, at_us) in accepted {
            self.journal().hung_up(id, *attempt, (*at_us, now_us));
        }
    }

    /// One stream, until it ends.
    async fn stream(&self, number: usize, accepted: &mut Accepted) -> Result<(), Status> {
        let (say, said) = mpsc::unbounded_channel();
        let mut voice = Some(Voice(say));
        let hello = WorkerHello {
            queue: queue(PULLED),
            capacity: CAPACITY,
            labels: vec!["campaign".to_owned()],
            worker: format!("stream-{number}"),
        };
        voice.iter().for_each(|voice| voice.say(Say::Hello(hello.clone())));
        let (process, channel) = self.doors.one();
        let mut client = WorkerServiceClient::new(channel);
        let mut told = client.work(UnboundedReceiverStream::new(said)).await?.into_inner();
        while let Some(message) = told.message().await? {
            match (message.message, &voice) {
                (Some(Told::Event(event)), Some(voice))
                    if !self.given((process, &event), voice, accepted) =>
                {
                    return Ok(());
                }
                (Some(Told::GoAway(_)), _) => voice = None,
                _ => {}
            }
        }
        Ok(())
    }

    /// Meets an event that came on a stream of this process. Whether the stream goes on.
    fn given(&self, (process, given): (usize, &WorkEvent), voice: &Voice, accepted: &mut Accepted) -> bool {
        let Some(delivery) = self.read_event(given) else { return true };
        let conduct = self.conduct(&delivery);
        let Delivery { event, attempt, .. } = delivery;
        let accept = Say::Accept(AcceptEvent { name: event.id.clone(), attempt });
        let release =
            ReleaseTokenRequest { name: event.id.clone(), attempt: Some(attempt), ..Default::default() };
        let (number, task, met) = self.came(conduct, &event, attempt, process);
        if task == Task::ReleaseAgain {
            self.accepts((number, &event.id, attempt), (voice, accept), accepted);
            self.works(Duration::ZERO, number, event, voice.clone());
            return true;
        }
        match conduct {
            Conduct::Hang => true,
            Conduct::Reset => false,
            Conduct::Refuse(_) | Conduct::Redirect | Conduct::HugeRefusal => {
                if met != Met::GivenBack {
                    self.accepts((number, &event.id, attempt), (voice, accept), accepted);
                    return true;
                }
                let (sink, voice) = (self.clone(), voice.clone());
                tokio::spawn(async move {
                    sink.give_back(number, &event, attempt).await;
                    let outcome = ReleaseOutcome::Retry.into();
                    voice.say(Say::Release(ReleaseTokenRequest { outcome, ..release }));
                });
                true
            }
            Conduct::Late | Conduct::Keep | Conduct::Garbage => {
                if self.journal().begins_work(number) {
                    self.works(self.work_time(&event), number, event, voice.clone());
                }
                if conduct == Conduct::Late {
                    let voice = voice.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(TOO_LATE).await;
                        voice.say(accept);
                    });
                } else {
                    voice.say(accept);
                }
                conduct != Conduct::Garbage
            }
            Conduct::Prompt | Conduct::Slow | Conduct::Huge | Conduct::Die => {
                self.accepts((number, &event.id, attempt), (voice, accept), accepted);
                if task == Task::Work {
                    self.works(self.work_time(&event), number, event, voice.clone());
                }
                true
            }
        }
    }

    /// Writes down an event that came on a stream of this process. What the consumer has in hand it does not give back: that it
    /// takes.
    fn came(&self, conduct: Conduct, event: &Event, attempt: u32, process: usize) -> (u32, Task, Met) {
        let mut journal = self.journal();
        if let Some(kind) = conduct.misbehaviour() {
            journal.misbehaves(kind);
        }
        let is_in_hand = journal.is_taken(&event.id);
        let met = match conduct.met() {
            _ if journal.is_done(&event.id) => Met::Taken,
            Met::Refused if is_in_hand => Met::Taken,
            Met::Refused => Met::GivenBack,
            met => met,
        };
        let now_us = now_us();
        let (number, task) = journal.arrived_by(event, attempt, met, (now_us, u8::try_from(process).ok()));
        if met == Met::GivenBack {
            journal.gives_back(number, now_us);
        }
        (number, task, met)
    }

    fn accepts(
        &self,
        (number, id, attempt): (u32, &str, u32),
        (voice, accept): (&Voice, Say),
        accepted: &mut Accepted,
    ) {
        let now_us = now_us();
        self.journal().answers(number, attempt, now_us);
        accepted.retain(|(_, _, at_us)| at_us + HUNG_UP_MAX_US > now_us);
        accepted.push((id.to_owned(), attempt, now_us));
        voice.say(accept);
    }

    /// Works, releases at whatever process answers, and says on the stream that there is room again.
    fn works(&self, time: Duration, number: u32, event: Event, voice: Voice) {
        let sink = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            sink.release(number, &event).await;
            let release = ReleaseTokenRequest { name: event.id, ..ReleaseTokenRequest::default() };
            voice.say(Say::Release(release));
        });
    }

    /// One poll. What its answer has is accepted.
    async fn poll(&self, number: usize) -> Result<(), Status> {
        let request = AcquireEventsRequest {
            name: queue(POLLED),
            max_events: CAPACITY,
            wait: Some(tollgate_harness::resources::ms(WAIT_MS)),
            labels: Vec::new(),
            worker: format!("poll-{number}"),
        };
        let (process, channel) = self.doors.one();
        let answer = WorkerServiceClient::new(channel).acquire_events(request).await?;
        for given in answer.into_inner().events {
            let Some(Delivery { event, attempt, .. }) = self.read_event(&given) else { continue };
            let (number, task) = {
                let mut journal = self.journal();
                let (now_us, by) = (now_us(), u8::try_from(process).ok());
                let (number, task) = journal.arrived_by(&event, attempt, Met::Taken, (now_us, by));
                journal.answers(number, attempt, now_us);
                (number, task)
            };
            match task {
                Task::Work => self.work_later(number, event),
                Task::ReleaseAgain => self.release_again(number, event),
                Task::Nothing => {}
            }
        }
        Ok(())
    }

    /// What the event says; none where that is a problem of its own.
    fn read_event(&self, given: &WorkEvent) -> Option<Delivery> {
        let delivery = read(given.event.as_bytes()).and_then(|delivery| {
            let is_same = delivery.event.id == given.name && delivery.attempt == given.attempt;
            let said = || format!("{} under {} is {}", given.name, given.attempt, given.event);
            is_same.then_some(delivery).ok_or_else(said)
        });
        delivery.map_err(|problem| self.journal().problems.push(problem)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{event, sink};
    use super::*;
    use crate::journal::What;

    #[test]
    fn a_worker_gives_back_only_what_it_has_not_in_hand() {
        let sink = sink();
        let refused = Conduct::Refuse(500);
        let (number, task, met) = sink.came(refused, &event(0), 1, 2);
        assert_eq!((task, met), (Task::Nothing, Met::GivenBack));
        let entries = sink.journal().entries.clone();
        let came = What::Arrived { attempt: 1, met: Met::GivenBack, enters: true, by: Some(2) };
        assert_eq!(entries.iter().map(|entry| entry.what).collect::<Vec<_>>(), [came, What::Left]);
        // It works on it since an attempt in doubt.
        assert!(sink.journal().begins_work(number));
        assert_eq!(sink.came(refused, &event(0), 2, 2), (number, Task::Nothing, Met::Taken));
        // It has done it.
        sink.journal().finishes(number, 0);
        assert_eq!(sink.came(refused, &event(0), 3, 2), (number, Task::ReleaseAgain, Met::Taken));
        // What it does otherwise is what it does with every delivery.
        assert_eq!(sink.came(Conduct::Hang, &event(1), 1, 0).2, Met::Doubtful);
        assert_eq!(sink.came(Conduct::Prompt, &event(2), 1, 0).1, Task::Work);
    }
}
