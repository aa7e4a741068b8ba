//! A worker's stream that a test speaks on, word by word.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::mpsc;
use tollgate_harness::Service;
use tollgate_proto::v1::target::Target as Kinds;
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::{
    AcceptEvent, ExtendTokenRequest, ReleaseStatus, ReleaseTokenRequest, Schedule, Target, WorkEvent,
    WorkRequest, WorkResponse, WorkerExtended, WorkerHello,
};
use tonic::{Status, Streaming};

use super::pull;
use super::worker::open;

/// As [`pull`], with half a minute to accept an event: a machine that is slow is not too late.
pub(crate) fn patient(events: u32, policy: &str, requires: &[&str]) -> Schedule {
    let mut schedule = pull(events, policy, requires);
    if let Some(Target { target: Some(Kinds::Pull(pull)), .. }) = &mut schedule.target {
        pull.deadline = Some(prost_types::Duration { seconds: 30, nanos: 0 });
    }
    schedule
}

/// That it has taken an event, under this attempt.
pub(crate) fn accept(event: &WorkEvent, attempt: u32) -> Say {
    Say::Accept(AcceptEvent { name: event.name.clone(), attempt })
}

/// A worker's stream. Events that come while it waits for another word are kept for later.
pub(crate) struct Talk {
    say: mpsc::UnboundedSender<WorkRequest>,
    told: Streaming<WorkResponse>,
    pub(crate) came: VecDeque<WorkEvent>,
}

impl Talk {
    /// Opens one, which is welcome.
    pub(crate) async fn open(service: &Service, hello: WorkerHello) -> Self {
        let (say, told) = open(service.channel(), Some(Say::Hello(hello))).await.unwrap();
        let mut talk = Self { say, told, came: VecDeque::new() };
        let first = talk.heard().await.unwrap();
        assert!(matches!(first, Told::Welcome(_)), "{first:?}");
        talk
    }

    /// Says something.
    pub(crate) fn tell(&self, message: Say) {
        // It may have ended meanwhile.
        let _ended = self.say.send(WorkRequest { message: Some(message) });
    }

    /// The next word, or what the stream ends with.
    async fn heard(&mut self) -> Result<Told, Status> {
        let heard = tokio::time::timeout(Duration::from_secs(30), self.told.message()).await;
        let heard = heard.expect("a word within 30 s")?;
        Ok(heard.expect("a stream that goes on, or a reason").message.unwrap())
    }

    /// The next word that is no event.
    async fn answer(&mut self) -> Told {
        loop {
            match self.heard().await.unwrap() {
                Told::Event(event) => self.came.push_back(event),
                other => return other,
            }
        }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> WorkEvent {
        if let Some(event) = self.came.pop_front() {
            return event;
        }
        match self.heard().await.unwrap() {
            Told::Event(event) => event,
            other => panic!("{other:?}"),
        }
    }

    /// The next event, which it accepts.
    pub(crate) async fn takes(&mut self) -> WorkEvent {
        let event = self.event().await;
        self.tell(accept(&event, event.attempt));
        event
    }

    /// What a release comes to. While nobody can tell, it releases again.
    pub(crate) async fn releases(&mut self, event: &WorkEvent, attempt: u32) -> ReleaseStatus {
        let release = ReleaseTokenRequest {
            name: event.name.clone(),
            attempt: Some(attempt),
            ..ReleaseTokenRequest::default()
        };
        for _ in 0..100 {
            self.tell(Say::Release(release.clone()));
            match self.answer().await {
                Told::Released(released) if released.try_again => {
                    assert!(released.response.is_none(), "{released:?}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Told::Released(released) => {
                    assert_eq!(released.name, event.name);
                    return released.response.unwrap().status();
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("nobody can tell what the release of {} came to", event.name);
    }

    /// What a heartbeat comes to.
    pub(crate) async fn extends(&mut self, event: &WorkEvent, attempt: u32) -> WorkerExtended {
        let extend = ExtendTokenRequest { name: event.name.clone(), attempt: Some(attempt), ttl: None };
        for _ in 0..100 {
            self.tell(Say::Extend(extend.clone()));
            match self.answer().await {
                Told::Extended(extended) if extended.try_again => {
                    assert!(extended.remaining.is_none(), "{extended:?}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Told::Extended(extended) => {
                    assert_eq!(extended.name, event.name);
                    return extended;
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("nobody can tell what the heartbeat of {} came to", event.name);
    }

    /// What the stream ends with.
    pub(crate) async fn ends(&mut self) -> Status {
        loop {
            if let Err(status) = self.heard().await {
                return status;
            }
        }
    }
}
