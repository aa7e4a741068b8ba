//! Who may take events of a queue.

use std::time::Duration;

use tokio_stream::wrappers::UnboundedReceiverStream;
use tollgate_harness::resources::{PARENT, policy, schedule_name};
use tollgate_harness::{Database, Kind, Service, wait_for};
use tollgate_proto::v1::work_request::Message as Say;
use tollgate_proto::v1::work_response::Message as Told;
use tollgate_proto::v1::worker_service_client::WorkerServiceClient;
use tollgate_proto::v1::{
    AcceptEvent, AcquireEventsRequest, CreatePolicyRequest, CreateScheduleRequest, Policy,
    ReleaseTokenRequest, TriggerScheduleRequest, WorkEvent, WorkRequest, WorkResponse, WorkerHello,
};
use tonic::{Code, Streaming};

use super::talk::patient;
use super::worker::{Deed, Notes, Worker, hello, open, place};
use super::{given, pull, trigger};
use crate::security::{Wire, handler, id, key, key_command, master, wire};

const WORD_MAX: Duration = Duration::from_secs(60);

fn workers(service: &Service, key: Option<&str>) -> WorkerServiceClient<Wire> {
    let header = key.map(|key| format!("Bearer {key}"));
    WorkerServiceClient::new(wire(service.channel(), header.as_deref()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_may_be_for_one_queue() {
    let database = Database::new(Kind::Sqlite).await;
    let render = key(&database, "render", "work=render", Some("default"));
    let any = key(&database, "any", "work", Some("default"));
    let reader = key(&database, "reader", "read,token:release", Some("default"));
    let elsewhere = key(&database, "elsewhere", "work", Some("team"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let ask = async |key: Option<&str>, queue: &str| {
        let name = format!("namespaces/default/queues/{queue}");
        let wait = Some(prost_types::Duration { seconds: 0, nanos: 0 });
        let request = AcquireEventsRequest { name, wait, ..AcquireEventsRequest::default() };
        let answer = workers(&service, key).acquire_events(request).await;
        answer.map_err(|status| (status.code(), status.message().to_owned()))
    };
    ask(Some(&render), "render").await.unwrap();
    ask(Some(&any), "audio").await.unwrap();
    let (code, text) = ask(Some(&render), "audio").await.unwrap_err();
    assert_eq!(code, Code::PermissionDenied);
    assert!(text.contains("takes no events of the queue audio: its scopes are work=render"), "{text}");
    assert_eq!(ask(Some(&reader), "render").await.unwrap_err().0, Code::PermissionDenied);
    let (code, text) = ask(Some(&elsewhere), "render").await.unwrap_err();
    assert_eq!(code, Code::PermissionDenied);
    assert!(text.contains("reaches the namespace team only"), "{text}");
    assert_eq!(ask(None, "render").await.unwrap_err().0, Code::Unauthenticated);
    let stream = open(service.channel(), Some(Say::Hello(hello("w", &[], 1)))).await;
    assert_eq!(stream.unwrap_err().code(), Code::Unauthenticated);
    service.stop().await;
}

/// A stream says whose events it wants in its first word, after its call has been let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_for_the_queues_of_its_key() {
    let database = Database::new(Kind::Sqlite).await;
    let render = key(&database, "render", "work=render", Some("default"));
    let team = key(&database, "team", "work", Some("team"));
    let reader = key(&database, "reader", "read,token:release", Some("default"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let stream = async |key: &str, queue: &str| {
        let (say, said) = tokio::sync::mpsc::unbounded_channel();
        let hello = WorkerHello { queue: queue.to_owned(), ..hello("w", &[], 1) };
        say.send(WorkRequest { message: Some(Say::Hello(hello)) }).unwrap();
        let told = workers(&service, Some(key)).work(UnboundedReceiverStream::new(said)).await;
        let mut told = told?.into_inner();
        tokio::time::timeout(WORD_MAX, told.message()).await.expect("a word within a minute")
    };
    let poll = async |key: &str, queue: &str| {
        let wait = Some(prost_types::Duration { seconds: 0, nanos: 0 });
        let request =
            AcquireEventsRequest { name: queue.to_owned(), wait, ..AcquireEventsRequest::default() };
        workers(&service, Some(key)).acquire_events(request).await
    };
    for (key, queue) in
        [(&render, "namespaces/default/queues/render"), (&team, "namespaces/team/queues/sound")]
    {
        let first = stream(key, queue).await.unwrap().unwrap().message;
        assert!(matches!(first, Some(Told::Welcome(_))), "{queue}: {first:?}");
        poll(key, queue).await.unwrap();
    }
    let refused = [
        (
            &render,
            "namespaces/default/queues/sound",
            "takes no events of the queue sound: its scopes are work=render",
        ),
        (&render, "namespaces/team/queues/render", "reaches the namespace default only"),
        (&team, "namespaces/default/queues/sound", "reaches the namespace team only"),
        (&reader, "namespaces/default/queues/render", "lacks the scope work"),
    ];
    for (key, queue, said) in refused {
        let by_stream = stream(key, queue).await.unwrap_err();
        let by_poll = poll(key, queue).await.unwrap_err();
        for status in [by_stream, by_poll] {
            assert_eq!(status.code(), Code::PermissionDenied, "{queue}: {status}");
            assert!(status.message().contains(said), "{queue}: {status}");
        }
    }
    service.stop().await;
}

async fn event(told: &mut Streaming<WorkResponse>) -> WorkEvent {
    loop {
        let message = tokio::time::timeout(WORD_MAX, told.message()).await.unwrap().unwrap().unwrap();
        if let Some(Told::Event(event)) = message.message {
            return event;
        }
    }
}

/// Six events fall due, two of which are a worker's when its key goes: it gets no third one, and what it has may be released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_is_given_no_further_event() {
    let database = Database::new(Kind::Sqlite).await;
    let admin = key(&database, "ops", "admin", None);
    let worker = key(&database, "render", "work=render", Some("default"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let mut ops = master(&service, Some(&admin));
    let policy = Policy { token_ttl: None, ..policy(5) };
    let parent = PARENT.to_owned();
    let request = CreatePolicyRequest {
        parent: parent.clone(),
        policy_id: "p".to_owned(),
        policy: Some(policy),
        ..Default::default()
    };
    ops.create_policy(request).await.unwrap();
    let schedule = Some(patient(6, "p", &[]));
    let request =
        CreateScheduleRequest { parent, schedule_id: "frames".to_owned(), schedule, ..Default::default() };
    ops.create_schedule(request).await.unwrap();
    let request = TriggerScheduleRequest { name: schedule_name("frames"), ..Default::default() };
    ops.trigger_schedule(request).await.unwrap();

    let (say, said) = tokio::sync::mpsc::unbounded_channel();
    let tell = |message| {
        // It may have ended already.
        let _gone = say.send(WorkRequest { message: Some(message) });
    };
    tell(Say::Hello(hello("w", &[], 2)));
    let stream = workers(&service, Some(&worker)).work(UnboundedReceiverStream::new(said)).await;
    let mut told = stream.unwrap().into_inner();
    let mut held = Vec::new();
    for _ in 0..2 {
        let WorkEvent { name, attempt, .. } = event(&mut told).await;
        tell(Say::Accept(AcceptEvent { name: name.clone(), attempt }));
        held.push(ReleaseTokenRequest { name, attempt: Some(attempt), ..Default::default() });
    }
    assert_eq!(key_command(&database, &["revoke", id(&worker)]).code, 0);
    wait_for("the revocation", 10, async || {
        // A good key may not take events of this one either, and so takes none.
        let name = "namespaces/default/queues/audio".to_owned();
        let request = AcquireEventsRequest { name, ..AcquireEventsRequest::default() };
        let answer = workers(&service, Some(&worker)).acquire_events(request).await;
        answer.is_err_and(|status| status.code() == Code::Unauthenticated).then_some(())
    })
    .await;
    // Room that comes free, or is told of, gets nothing any more.
    handler(&service, None).release_token(held[0].clone()).await.unwrap();
    tell(Say::Release(held[1].clone()));
    let mut further = 0;
    let end = loop {
        match tokio::time::timeout(WORD_MAX, told.message()).await.unwrap() {
            Ok(Some(message)) => further += usize::from(matches!(message.message, Some(Told::Event(_)))),
            Ok(None) => panic!("it ends without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!((end.code(), further), (Code::Unauthenticated, 0), "{end}");
    handler(&service, None).release_token(held[1].clone()).await.unwrap();
    service.stop().await;
}

/// A message that is too large ends the stream of its worker, and its neighbours work on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_ends_its_stream_alone() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let (notes, place) = (Notes::default(), place(&service));
    let _neighbour = Worker::start(&place, hello("neighbour", &[], 2), &notes, |_| Deed::Work(10));
    let (say, mut told) =
        open(service.channel(), Some(Say::Hello(hello("large", &["gpu"], 1)))).await.unwrap();
    let message = Say::Release(ReleaseTokenRequest { message: "x".repeat(5 << 20), ..Default::default() });
    say.send(WorkRequest { message: Some(message) }).unwrap();
    let end = loop {
        match tokio::time::timeout(WORD_MAX, told.message()).await.unwrap() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends without a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::OutOfRange, "{end}");
    trigger(&service, "frames", pull(20, "p", &[])).await;
    given(&notes, 20).await;
    assert_eq!(service.finished("frames", 20).await.counts.unwrap().succeeded, 20);
    service.stop().await;
}
