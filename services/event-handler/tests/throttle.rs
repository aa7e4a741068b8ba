//! A handler over a real SQLite file, with a real consumer on a real port that releases by gRPC.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::*;
use tollgate_event_emitter::Follower;
use tollgate_event_handler::{EventHandler, Options, Peers, Stores};
use tollgate_proto::convert::names;
use tollgate_proto::v1;
use tollgate_proto::v1::event_handler_service_client::EventHandlerServiceClient;
use tollgate_proto::v1::event_handler_service_server::EventHandlerServiceServer;
use tollgate_service::follow::Follow;
use tollgate_service::wake::Wake;
use tollgate_store::Store;
use tollgate_store::plan::{Audit, PlanWrite};
use tollgate_target::{ListClient, Post, PrivateAddresses, TargetOptions, Targets};
use tonic::transport::{Channel, ClientTlsConfig, Server};
use uuid::Uuid;

const EVENTS: u32 = 120;
const TOKENS: u32 = 5;

#[derive(Default)]
struct Seen {
    attempts: HashMap<String, Vec<u32>>,
    in_flight: u32,
    in_flight_max: u32,
    statuses: HashMap<i32, u32>,
}

struct World {
    store: Arc<dyn Store>,
    stop: CancellationToken,
    handler: tokio::task::JoinHandle<()>,
    client: EventHandlerServiceClient<Channel>,
}

async fn start(store: Arc<dyn Store>) -> World {
    let reach =
        TargetOptions { allow_private_addresses: PrivateAddresses::Allow, ..TargetOptions::default() };
    let ways = (
        Targets::new(reach.clone()).unwrap(),
        Post::new(reach.clone()).unwrap(),
        ListClient::new(&reach).unwrap(),
    );
    let options = Options { exclusive_store: true, poll_ms: 50, lease_ttl_ms: 3_000, ..Options::default() };
    let secret = store.installation().await.unwrap().secret.try_into().unwrap();
    let stores = Stores::of(store.clone());
    let peers = Peers::new(&stores, secret, ClientTlsConfig::new());
    let (waker, shards) = (peers.clone(), store.installation().await.unwrap().shards);
    let wake: Wake = Arc::new(move |shard| waker.wake(shard));
    let follower =
        Follower::new((store.clone(), shards), Clock::system(), wake, 60_000_000, options.metrics.clone());
    let ways = (ways, Arc::new(follower) as Arc<dyn Follow>);
    let handler = EventHandler::new(&stores, ways, Clock::system(), peers, options);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = EventHandlerServiceServer::new(handler.service());
    tokio::spawn(
        Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let stop = CancellationToken::new();
    let token = stop.clone();
    let handler = tokio::spawn(async move { handler.run(token).await });
    let client = EventHandlerServiceClient::connect(format!("http://{address}")).await.unwrap();
    World { store, stop, handler, client }
}

async fn consumer(client: EventHandlerServiceClient<Channel>, seen: Arc<Mutex<Seen>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (client, seen) = (client.clone(), seen.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| take(request, client.clone(), seen.clone()));
                let server = hyper::server::conn::http1::Builder::new();
                let _closed = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

async fn take(
    request: Request<Incoming>,
    mut client: EventHandlerServiceClient<Channel>,
    seen: Arc<Mutex<Seen>>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let event: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let id = event["id"].as_str().unwrap().to_owned();
    {
        let mut seen = seen.lock().unwrap();
        let attempt = u32::try_from(event["attempt"].as_u64().unwrap()).unwrap();
        seen.attempts.entry(id.clone()).or_default().push(attempt);
        seen.in_flight += 1;
        seen.in_flight_max = seen.in_flight_max.max(seen.in_flight);
    }
    tokio::spawn(async move {
        // Long enough that all tokens are in use at once on a slow machine, too.
        tokio::time::sleep(Duration::from_millis(100)).await;
        seen.lock().unwrap().in_flight -= 1;
        let request = v1::ReleaseTokenRequest { name: id, ..v1::ReleaseTokenRequest::default() };
        let status = client.release_token(request).await.unwrap().into_inner().status;
        *seen.lock().unwrap().statuses.entry(status).or_default() += 1;
    });
    Ok(Response::new(Empty::new()))
}

fn policy() -> Policy {
    Policy {
        uid: Uuid::now_v7(),
        namespace: "default".into(),
        id: "p".into(),
        description: String::new(),
        limits: Limits { max_in_flight: Some(TOKENS), rate_per_s: None, burst: None },
        keys: Default::default(),
        adopts: false,
        parent: None,
        reclaim: Reclaim::AfterTtl,
        token_ttl_ms: 60_000,
        suspect_ms: 10_000,
        ttl_from: TtlFrom::TargetDefault,
        unstarted_ttl_ms: 600_000,
        pause: None,
        labels: Default::default(),
        shard: 3,
        generation: 1,
        created_us: 0,
        updated_us: 0,
    }
}

fn schedule(policy: &Policy, address: SocketAddr) -> Schedule {
    Schedule {
        uid: Uuid::now_v7(),
        namespace: "default".into(),
        id: "s".into(),
        description: String::new(),
        timing: Timing {
            triggers: vec![Trigger::At { at_us: 0 }],
            time_zone: "UTC".into(),
            ..Timing::default()
        },
        events: EVENTS,
        target: Target::Http {
            http: HttpTarget::plain(format!("http://{address}/"), 5_000),
            release: ReleaseMode::TargetDefault,
        },
        payload: Payload::of("{\"x\":1}"),
        policy: Some(policy.id.clone()),
        policy_uid: Some(policy.uid),
        shard: None,
        key: None,
        key_label: None,
        units: 1,
        priority: 5,
        retry: RetryPolicy::default(),
        catch_up: CatchUp::Latest,
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        start_within_percent: None,
        check_again: CheckAgain::default(),
        on_finish: None,
        when_done: Default::default(),
        pause: None,
        labels: Default::default(),
        past_pauses: Vec::new(),
        former_homes: Vec::new(),
        generation: 1,
        created_us: 0,
        updated_us: 0,
    }
}

fn audit() -> Audit {
    Audit {
        id: Uuid::now_v7(),
        at_us: 0,
        actor: "test".into(),
        namespace: "default".into(),
        resource: "x".into(),
        action: "create".into(),
        difference: serde_json::json!({}),
    }
}

/// Writes a policy, a schedule and a run of it that is due now.
async fn due_run(store: &dyn Store, address: SocketAddr) -> Run {
    let policy = policy();
    let schedule = schedule(&policy, address);
    let now_us = Clock::system().wall_us();
    let run = Run {
        shard: policy.shard,
        id: RunId::derive(schedule.uid, now_us),
        schedule_uid: schedule.uid,
        generation: 1,
        namespace: "default".into(),
        schedule_id: "s".into(),
        policy_uid: Some(policy.uid),
        launch_us: now_us,
        events: EVENTS,
        priority: 5,
        kind: RunKind::Manual,
        state: RunState::Emitted,
        emitted_us: now_us,
        ..Run::default()
    };
    let message = Message { id: Uuid::now_v7(), control: Control::PolicyChanged { policy: policy.clone() } };
    let shard = policy.shard;
    let put_policy =
        PlanWrite::PutPolicy { policy: Box::new(policy), expected_generation: None, audit: audit() };
    let put_schedule = PlanWrite::PutSchedule {
        schedule: Box::new(schedule),
        expected_generation: None,
        lived_in: None,
        children: Vec::new(),
        shard,
        audit: audit(),
    };
    store.write_plan(vec![put_policy, put_schedule]).await.unwrap();
    store.post(shard, &[message]).await.unwrap();
    assert_eq!(store.emit(std::slice::from_ref(&run), &[]).await.unwrap(), 1);
    run
}

async fn wait_for(
    client: &mut EventHandlerServiceClient<Channel>,
    run: &Run,
    state: v1::RunState,
) -> v1::Run {
    let name = names::of_run(&run.namespace, run.shard, run.id);
    for _ in 0..2_400 {
        let shown = client.get_run(v1::GetRunRequest { name: name.clone() }).await.unwrap().into_inner();
        if shown.state() == state {
            return shown;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the run did not become {state:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_goes_through_its_tokens_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("t.db").display());
    let mut world = start(tollgate_store::open(&url, 4).await.unwrap()).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let address = consumer(world.client.clone(), seen.clone()).await;
    let run = due_run(&*world.store, address).await;
    let shown = wait_for(&mut world.client, &run, v1::RunState::Finished).await;
    assert_eq!(shown.counts.unwrap().succeeded, EVENTS);
    // The run is finished before its last consumers have heard that they released.
    while seen.lock().unwrap().statuses.values().sum::<u32>() < EVENTS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen.attempts.len(), EVENTS as usize);
        assert!(seen.attempts.values().all(|attempts| attempts == &[1]), "nothing comes twice");
        assert_eq!(seen.in_flight_max, TOKENS);
        assert_eq!(seen.statuses, HashMap::from([(v1::ReleaseStatus::Released as i32, EVENTS)]));
    }
    // What is released again changes nothing, and says so.
    let id = seen.lock().unwrap().attempts.keys().next().unwrap().clone();
    let again = v1::ReleaseTokenRequest { name: id.clone(), ..v1::ReleaseTokenRequest::default() };
    let status = world.client.release_token(again).await.unwrap().into_inner().status();
    assert_eq!(status, v1::ReleaseStatus::AlreadyReleased);
    let foreign = v1::ReleaseTokenRequest {
        name: format!("namespaces/other/events/{id}"),
        ..v1::ReleaseTokenRequest::default()
    };
    let refused = world.client.release_token(foreign).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::NotFound);
    world.stop.cancel();
    world.handler.await.unwrap();
    assert!(world.store.members().await.unwrap().is_empty(), "a planned stop leaves no member");
    assert!(world.store.leases().await.unwrap().iter().all(|lease| lease.owner.is_empty()));
}
