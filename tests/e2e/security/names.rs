//! Every form of an event's name, by every kind of key, over every way that leads to it: who reaches another namespace's
//! event, and who is handed a token that it did not have.

use std::fmt::Debug;
use std::sync::Mutex;

use prost::Message as _;
use tollgate_harness::resources::{PARENT, http, once, policy, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{
    BatchReleaseTokensRequest, CreatePolicyRequest, CreateScheduleRequest, ExplainEventRequest,
    ExtendTokenRequest, GetEventRequest, GetHandlerStatusRequest, ListEventsRequest, ReleaseStatus,
    ReleaseTokenRequest, ReleaseTokensRequest, RetryDeadEventsRequest, Run, TriggerScheduleRequest,
};
use tonic::{Code, Status};

use super::{handler, key, master, rest};

const EVENTS: u32 = 3;

/// A caller: its key, and whether that key reaches the events' namespace.
struct Caller {
    who: &'static str,
    key: Option<String>,
    own: bool,
    reads: bool,
    releases: bool,
}

struct World {
    _database: Database,
    service: Service,
    _consumer: Consumer,
    callers: Vec<Caller>,
    admin: String,
    /// Two runs of the namespace `default`, and a run of `other`.
    runs: [Run; 3],
    /// The ids as the consumer got them.
    tokens: Vec<String>,
    /// Answers that handed one out.
    leaks: Mutex<Vec<String>>,
}

async fn triggered(service: &Service, admin: &str, parent: &str, consumer: &Consumer) -> Vec<Run> {
    let mut master = master(service, Some(admin));
    let (parent, limit) = (parent.to_owned(), Some(policy(50)));
    let made = CreatePolicyRequest {
        parent: parent.clone(),
        policy_id: "p".to_owned(),
        policy: limit,
        ..Default::default()
    };
    master.create_policy(made).await.unwrap();
    let mut schedule = once(soon(3_600_000), EVENTS, "p", http(consumer));
    schedule.policy = format!("{parent}/policies/p");
    let made = CreateScheduleRequest {
        parent: parent.clone(),
        schedule_id: "s".to_owned(),
        schedule: Some(schedule),
        ..Default::default()
    };
    master.create_schedule(made).await.unwrap();
    let name = schedule_name("s").replace(PARENT, &parent);
    let mut runs = Vec::new();
    for _ in 0..2 {
        let request = TriggerScheduleRequest { name: name.clone(), ..Default::default() };
        runs.push(master.trigger_schedule(request).await.unwrap().into_inner());
    }
    runs
}

async fn world(kind: Kind) -> World {
    let database = Database::new(kind).await;
    let admin = key(&database, "ops", "admin", None);
    let caller = |who: &'static str, scopes: &str, namespace: &str| Caller {
        who,
        key: Some(key(&database, who, scopes, Some(namespace))),
        own: namespace == "default",
        reads: scopes != "token:release" && scopes != "schedule:write",
        releases: scopes.contains("token:release") || scopes == "admin",
    };
    let callers = vec![
        Caller { who: "nobody", key: None, own: false, reads: false, releases: false },
        caller("viewer", "read", "default"),
        caller("ci", "read,schedule:write", "default"),
        caller("foreign-viewer", "read", "other"),
        caller("foreign-ci", "read,schedule:write", "other"),
        caller("foreign-medic", "token:release", "other"),
        caller("foreign-reading-medic", "read,token:release", "other"),
        caller("foreign-admin", "admin", "other"),
    ];
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let mut own = triggered(&service, &admin, PARENT, &consumer).await;
    let foreign = triggered(&service, &admin, "namespaces/other", &consumer).await;
    let arrived = EVENTS as usize * 4;
    wait_for("the events", 30, async || (consumer.notes.arrivals_count() == arrived).then_some(())).await;
    let second = own.remove(1);
    let runs = [own.remove(0), second, foreign[0].clone()];
    let tokens = consumer.notes.arrivals().into_iter().map(|arrival| arrival.event_id).collect();
    World {
        _database: database,
        service,
        _consumer: consumer,
        callers,
        admin,
        runs,
        tokens,
        leaks: Mutex::default(),
    }
}

impl World {
    /// How many events hold tokens, in all namespaces.
    async fn held(&self) -> u32 {
        let status = handler(&self.service, Some(&self.admin))
            .get_handler_status(GetHandlerStatusRequest::default())
            .await;
        u32::try_from(status.unwrap().into_inner().held_count).unwrap()
    }

    /// Notes an answer that hands out a token which the caller did not give itself.
    fn look(&self, what: &str, given: &str, answer: &str) {
        for seal in self.tokens.iter().map(|token| seal(token)) {
            if answer.contains(seal) && !given.contains(seal) {
                self.leaks.lock().unwrap().push(format!("{what}: {given} gets {answer}"));
            }
        }
    }
}

/// The part of an id that authorises.
fn seal(token: &str) -> &str {
    let (at, _) = token.match_indices('-').nth(2).unwrap();
    &token[at + 1..]
}

/// Without it.
fn unsealed(token: &str) -> &str {
    &token[..token.len() - seal(token).len() - 1]
}

/// Names that are none, around an id.
fn odd(id: &str) -> Vec<String> {
    vec![
        format!("x/{id}"),
        format!("/{id}"),
        format!("{id}/"),
        format!(" {id}"),
        format!("namespaces/default/eventz/{id}"),
        format!("namespaces/default/events/x/{id}"),
        format!("namespaces/default/events//{id}"),
        format!("namespaces//events/{id}"),
        format!("namespaces/other/eventz/{id}"),
        format!("namespaces/other/events/../../default/events/{id}"),
        format!("Namespaces/other/events/{id}"),
    ]
}

fn release(name: &str) -> ReleaseTokenRequest {
    ReleaseTokenRequest { name: name.to_owned(), ..ReleaseTokenRequest::default() }
}

fn code<T: Debug>(answer: &Result<T, Status>) -> Code {
    answer.as_ref().map_or_else(Status::code, |_| Code::Ok)
}

/// What a release, a heartbeat, a batch and a stream come to by gRPC: codes for the first two, statuses for the others.
async fn release_all_ways(world: &World, caller: &Caller, name: &str) -> ([Code; 2], [ReleaseStatus; 2]) {
    let mut client = handler(&world.service, caller.key.as_deref());
    let what = |way: &str| format!("{way} by {}", caller.who);
    let single = client.release_token(release(name)).await;
    world.look(&what("release"), name, &format!("{single:?}"));
    let extend = ExtendTokenRequest { name: name.to_owned(), ..ExtendTokenRequest::default() };
    let extended = client.extend_token(extend).await;
    world.look(&what("extend"), name, &format!("{extended:?}"));
    let batch = BatchReleaseTokensRequest { releases: vec![release(name)] };
    let batched = client.batch_release_tokens(batch).await;
    world.look(&what("batch"), name, &format!("{batched:?}"));
    let batched = batched.unwrap().into_inner().responses[0].status();
    let stream = tokio_stream::iter([ReleaseTokensRequest { releases: vec![release(name)] }]);
    let streamed = client.release_tokens(stream).await;
    world.look(&what("stream"), name, &format!("{streamed:?}"));
    let problems = streamed.unwrap().into_inner().problems;
    let streamed = problems.first().map_or(ReleaseStatus::Released, |problem| problem.status());
    ([code(&single), code(&extended)], [batched, streamed])
}

/// The same by REST and by gRPC-Web: HTTP statuses, and the code of gRPC.
fn release_over_http(world: &World, caller: &Caller, name: &str) -> (Vec<u16>, Option<String>) {
    let path = match name.strip_prefix("namespaces/") {
        Some(_) => format!("/v1/{name}"),
        None => format!("/v1/events/{name}"),
    };
    let mut statuses = Vec::new();
    for (verb, end) in [("POST", ":release"), ("POST", ":extend"), ("GET", ""), ("GET", ":explain")] {
        let path = format!("{}{end}", path.replace(' ', "%20"));
        let (status, body) = rest(world.service.url(), verb, &path, caller.key.as_deref());
        // A path is the caller's own text as well.
        world.look(&format!("{verb} {path} by {}", caller.who), name, &body.to_string());
        statuses.push(status);
    }
    let message = release(name).encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend(message);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &body).unwrap();
    let url = format!("{}/tollgate.v1.EventHandlerService/ReleaseToken", world.service.url());
    let data = format!("@{}", file.path().display());
    let mut arguments = vec!["-i", &url, "--data-binary", &data];
    let header = caller.key.as_ref().map(|key| format!("authorization: Bearer {key}"));
    arguments.extend(["-H", "content-type: application/grpc-web+proto"]);
    if let Some(header) = &header {
        arguments.extend(["-H", header]);
    }
    let (_, answer) = curl_lossy(&arguments);
    world.look(&format!("gRPC-Web by {}", caller.who), name, &answer);
    let web = answer
        .split("grpc-status:")
        .nth(1)
        .map(|rest| rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>());
    (statuses, web)
}

/// As `curl`, for answers that are no text.
fn curl_lossy(arguments: &[&str]) -> (u16, String) {
    let output = std::process::Command::new("curl")
        .args(["-s", "-w", "\n%{http_code}", "--max-time", "20"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

async fn a_key_reaches_no_event_of_another_namespace_by_any_name(kind: Kind) {
    let world = world(kind).await;
    let all = EVENTS * 4;
    wait_for("all tokens", 20, async || (world.held().await == all).then_some(())).await;
    let events = handler(&world.service, Some(&world.admin))
        .list_events(ListEventsRequest { parent: world.runs[0].name.clone(), ..Default::default() })
        .await
        .unwrap()
        .into_inner()
        .events;
    let sealed = events[0].event_id.clone();
    let id = unsealed(&sealed);
    let within = |namespace: &str| format!("namespaces/{namespace}/events/{id}");
    for caller in &world.callers {
        let who = caller.who;
        let keyed = caller.key.is_some();
        // By its namespace: refused before anything is looked up, so that what is not there is refused in the same way.
        let gone = within("default").replace(&id[3..20], "00000000000000000");
        for name in [within("default"), gone] {
            let (codes, statuses) = release_all_ways(&world, caller, &name).await;
            let (http, web) = release_over_http(&world, caller, &name);
            let foreign = keyed && !caller.own;
            let expected = if foreign { Code::PermissionDenied } else { Code::NotFound };
            assert_eq!(codes, [expected; 2], "{who} {name}");
            assert_eq!(statuses, [ReleaseStatus::Unknown; 2], "{who} {name}");
            assert_eq!(http[..2], if foreign { [403; 2] } else { [404; 2] }, "{who} {name}");
            assert_eq!(web.as_deref(), Some(if foreign { "7" } else { "5" }), "{who} {name}");
            let looked = match (keyed, caller.own) {
                (false, _) => 401,
                (true, false) => 403,
                (true, true) if name == within("default") => 200,
                (true, true) => 404,
            };
            assert_eq!(http[2..], [looked; 2], "{who} {name}");
        }
        // The run of another namespace under the own one's name, and the bare id, which means the own one's.
        if !caller.own {
            for name in [within("other"), id.to_owned()] {
                let (codes, statuses) = release_all_ways(&world, caller, &name).await;
                let (http, web) = release_over_http(&world, caller, &name);
                assert_eq!((codes, statuses), ([Code::NotFound; 2], [ReleaseStatus::Unknown; 2]), "{who}");
                assert_eq!(http[..2], [404; 2], "{who} {name}");
                assert_eq!(web.as_deref(), Some("5"), "{who} {name}");
                let looked = match (keyed, caller.reads) {
                    (false, _) => 401,
                    (true, false) => 403,
                    (true, true) => 404,
                };
                assert_eq!(http[2..], [looked; 2], "{who} {name}");
            }
        }
        for name in odd(id) {
            let (codes, _) = release_all_ways(&world, caller, &name).await;
            assert_ne!(codes[0], Code::Ok, "{who} {name}");
            assert_ne!(codes[1], Code::Ok, "{who} {name}");
            let (_, web) = release_over_http(&world, caller, &name);
            assert_ne!(web.as_deref(), Some("0"), "{who} {name}");
        }
        assert_eq!(world.held().await, all, "{who} has released something");
        reads_hand_out_no_token(&world, caller, id).await;
        retries_hand_out_no_token(&world, caller, &unsealed_of_other_runs(&world)).await;
    }
    let leaks = world.leaks.lock().unwrap().clone();
    assert!(leaks.is_empty(), "{} answers hand out tokens, such as {}", leaks.len(), leaks[0]);
    // Whoever may, does, by the same names; and the token alone is enough under its own namespace's name.
    let medic = Caller {
        who: "medic",
        key: Some(key(&world._database, "medic", "token:release", Some("default"))),
        own: true,
        reads: false,
        releases: true,
    };
    wait_for("the new key", 10, async || {
        let answer = handler(&world.service, medic.key.as_deref()).release_token(release("-")).await;
        (code(&answer) != Code::Unauthenticated).then_some(())
    })
    .await;
    assert!(medic.releases && !medic.reads && medic.own);
    let mut client = handler(&world.service, medic.key.as_deref());
    let freed = client.release_token(release(&within("default"))).await.unwrap().into_inner();
    assert_eq!(freed.status(), ReleaseStatus::Released);
    let name = format!("{PARENT}/events/{}", events[1].event_id);
    let foreign = world.callers.iter().find(|caller| caller.who == "foreign-admin").unwrap();
    assert!(foreign.releases);
    let mut client = handler(&world.service, foreign.key.as_deref());
    let freed = client.release_token(release(&name)).await.unwrap().into_inner();
    assert_eq!(freed.status(), ReleaseStatus::Released, "a key beside a token takes nothing away");
    wait_for("two fewer", 10, async || (world.held().await == all - 2).then_some(())).await;
    world.service.stop().await;
}

/// Ids, without their seals, of events that are not the first run's.
fn unsealed_of_other_runs(world: &World) -> Vec<String> {
    let first = world.runs[0].name.rsplit_once('/').unwrap().1;
    let others = world.tokens.iter().filter(|token| !token.starts_with(first));
    others.map(|token| unsealed(token).to_owned()).collect()
}

/// GetEvent and ExplainEvent by names that are none, or that are wrong.
async fn reads_hand_out_no_token(world: &World, caller: &Caller, id: &str) {
    let mut client = handler(&world.service, caller.key.as_deref());
    let mut names = odd(id);
    names
        .extend(["default", "other", "third"].map(|namespace| format!("namespaces/{namespace}/events/{id}")));
    names.extend([id.to_owned(), id.to_uppercase(), format!("{id}-"), format!("{id}-AAAAAAAAAAA")]);
    // An index that the run does not have.
    names.push(format!("{}-99", id.rsplit_once('-').unwrap().0));
    for name in names {
        let what = format!("a look by {}", caller.who);
        let event = client.get_event(GetEventRequest { name: name.clone() }).await;
        world.look(&what, &name, &format!("{event:?}"));
        let told = client.explain_event(ExplainEventRequest { name: name.clone() }).await;
        world.look(&what, &name, &format!("{told:?}"));
        if let Err(refused) = event
            && refused.code() == Code::NotFound
        {
            assert!(refused.message().contains(&name), "the caller's own text: {refused}");
        }
    }
}

/// RetryDeadEvents of a run, with events of others.
async fn retries_hand_out_no_token(world: &World, caller: &Caller, others: &[String]) {
    let mut client = handler(&world.service, caller.key.as_deref());
    for run in &world.runs {
        for id in others {
            for name in [id.clone(), format!("{PARENT}/events/{id}"), format!("namespaces/other/events/{id}")]
            {
                let request = RetryDeadEventsRequest { parent: run.name.clone(), events: vec![name.clone()] };
                let answer = client.retry_dead_events(request).await;
                world.look(&format!("a retry by {}", caller.who), &name, &format!("{answer:?}"));
            }
        }
    }
}

on_both_stores!(a_key_reaches_no_event_of_another_namespace_by_any_name);
