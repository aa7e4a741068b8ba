//! The token in an event's id releases that event, whoever has it and whatever key there is or is not; nothing else does.

use std::sync::Arc;

use tollgate_harness::resources::{PARENT, http, once, policy, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{
    BatchReleaseTokensRequest, CreatePolicyRequest, CreateScheduleRequest, ExplainEventRequest,
    ExtendTokenRequest, GetEventRequest, GetHandlerStatusRequest, ListAuditEntriesRequest, ListEventsRequest,
    ListRunsRequest, ReleaseStatus, ReleaseTokenRequest, TriggerScheduleRequest,
};
use tonic::Code;

use super::{handler, key, master, rest};

struct World {
    _database: Database,
    service: Service,
    consumer: Consumer,
    admin: String,
    reader: String,
    releaser: String,
    other: String,
}

/// A service that asks for keys, and a consumer that has none.
async fn world(how: Releases, conduct: impl Fn() -> Conduct + Send + Sync + 'static, events: u32) -> World {
    let database = Database::new(Kind::Sqlite).await;
    let admin = key(&database, "ops", "admin", None);
    let reader = key(&database, "viewer", "read", Some("default"));
    let releaser = key(&database, "medic", "read,token:release", Some("default"));
    let other = key(&database, "other", "admin", Some("other"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let conduct = Arc::new(conduct);
    let consumer = Consumer::start(service.link(), how, move |_| conduct()).await;
    let (parent, limit) = (PARENT.to_owned(), Some(policy(50)));
    let made = CreatePolicyRequest {
        parent: parent.clone(),
        policy_id: "p".to_owned(),
        policy: limit,
        ..Default::default()
    };
    let mut master = master(&service, Some(&admin));
    master.create_policy(made).await.unwrap();
    let schedule = once(soon(3_600_000), events, "p", http(&consumer));
    let made = CreateScheduleRequest {
        parent,
        schedule_id: "s".to_owned(),
        schedule: Some(schedule),
        ..Default::default()
    };
    master.create_schedule(made).await.unwrap();
    master
        .trigger_schedule(TriggerScheduleRequest {
            name: schedule_name("s"),
            events: None,
            ..Default::default()
        })
        .await
        .unwrap();
    World { _database: database, service, consumer, admin, reader, releaser, other }
}

fn release(name: &str) -> ReleaseTokenRequest {
    ReleaseTokenRequest { name: name.to_owned(), ..ReleaseTokenRequest::default() }
}

async fn all_released(how: Releases) {
    const EVENTS: u32 = 300;
    let World { service, consumer, admin, .. } = world(how, || Conduct::work(1..5), EVENTS).await;
    wait_for("all releases", 60, async || {
        (consumer.notes.released(ReleaseStatus::Released) == EVENTS as usize).then_some(())
    })
    .await;
    let status = handler(&service, Some(&admin)).get_handler_status(GetHandlerStatusRequest::default()).await;
    assert_eq!(status.unwrap().into_inner().held_count, 0);
    consumer.notes.assert_clean();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_without_a_key_releases_what_it_got() {
    all_released(Releases::Unary).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_without_a_key_releases_by_stream() {
    all_released(Releases::Stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_releases_its_own_event_and_nothing_else_does() {
    let World { _database, service, consumer, admin, reader, releaser, other } =
        world(Releases::Unary, Conduct::keep, 4).await;
    let tokens = wait_for("four events", 20, async || {
        let arrivals = consumer.notes.arrivals();
        (arrivals.len() == 4)
            .then(|| arrivals.into_iter().map(|arrival| arrival.event_id).collect::<Vec<_>>())
    })
    .await;
    let held = async || {
        let status =
            handler(&service, Some(&admin)).get_handler_status(GetHandlerStatusRequest::default()).await;
        status.unwrap().into_inner().held_count
    };
    wait_for("four tokens", 10, async || (held().await == 4).then_some(())).await;

    forgeries_are_unknown(&service, &tokens[0]).await;
    let mut nobody = handler(&service, None);
    // A token gives no look at what it releases.
    let look = GetEventRequest { name: tokens[0].clone() };
    assert_eq!(nobody.get_event(look.clone()).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(rest(service.url(), "GET", &format!("/v1/events/{}", tokens[0]), None).0, 401);
    // A key that is not good is not passed over.
    let bad = format!("tgk_0123456789abcdef_{}", "0".repeat(64));
    let refused = handler(&service, Some(&bad)).release_token(release(&tokens[0])).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);

    let seen = readers_see_no_tokens(&service, &reader, &other, &tokens).await;
    assert_eq!(held().await, 4, "something was released");

    // With the scope for it, the token is seen, and may be left out.
    let mut medic = handler(&service, Some(&releaser));
    let shown =
        medic.list_events(events_of_the_run(&service, &releaser).await).await.unwrap().into_inner().events;
    assert!(shown.iter().all(|event| tokens.contains(&event.event_id)), "{shown:?}");
    let freed = medic.release_token(release(&seen[1])).await.unwrap().into_inner();
    assert_eq!(freed.status(), ReleaseStatus::Released);
    // The token alone is enough, over every way; a foreign key beside it takes nothing away. Deliveries arrive in any order.
    let left: Vec<&String> =
        tokens.iter().filter(|token| !token.starts_with(&format!("{}-", seen[1]))).collect();
    let extend = ExtendTokenRequest { name: left[0].clone(), ..ExtendTokenRequest::default() };
    nobody.extend_token(extend).await.unwrap();
    assert_eq!(
        nobody.release_token(release(left[0])).await.unwrap().into_inner().status(),
        ReleaseStatus::Released
    );
    let (status, body) = rest(service.url(), "POST", &format!("/v1/events/{}:release", left[1]), None);
    assert_eq!((status, body["status"].as_str()), (200, Some("RELEASE_STATUS_RELEASED")));
    let freed = handler(&service, Some(&other)).release_token(release(left[2])).await.unwrap().into_inner();
    assert_eq!(freed.status(), ReleaseStatus::Released);
    wait_for("no tokens", 10, async || (held().await == 0).then_some(())).await;
    service.stop().await;
}

/// Another index under the same seal, a seal of nothing, no seal.
async fn forgeries_are_unknown(service: &Service, token: &str) {
    let (bare, seal) = token.rsplit_once('-').unwrap();
    let (bare, seal) = if bare.matches('-').count() == 2 { (bare, seal) } else { cut(token) };
    let next = format!("{}-9-{seal}", bare.rsplit_once('-').unwrap().0);
    let mut nobody = handler(service, None);
    for forged in [next.as_str(), &format!("{bare}-AAAAAAAAAAA"), bare] {
        let refused = nobody.release_token(release(forged)).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{forged}: {refused}");
        let batch = BatchReleaseTokensRequest { releases: vec![release(forged)] };
        let answers = nobody.batch_release_tokens(batch).await.unwrap().into_inner().responses;
        assert_eq!(answers[0].status(), ReleaseStatus::Unknown, "{answers:?}");
        let extend = ExtendTokenRequest { name: forged.to_owned(), ..ExtendTokenRequest::default() };
        assert_eq!(nobody.extend_token(extend).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(rest(service.url(), "POST", &format!("/v1/events/{forged}:release"), None).0, 404);
    }
}

async fn events_of_the_run(service: &Service, key: &str) -> ListEventsRequest {
    let all = ListRunsRequest { parent: PARENT.to_owned(), ..ListRunsRequest::default() };
    let runs = handler(service, Some(key)).list_runs(all).await.unwrap().into_inner().runs;
    ListEventsRequest { parent: runs[0].name.clone(), ..ListEventsRequest::default() }
}

/// Who may read sees events without their tokens, and cannot release what it sees: their names.
async fn readers_see_no_tokens(
    service: &Service,
    reader: &str,
    other: &str,
    tokens: &[String],
) -> Vec<String> {
    let mut sees = handler(service, Some(reader));
    let seen: Vec<String> = sees
        .list_events(events_of_the_run(service, reader).await)
        .await
        .unwrap()
        .into_inner()
        .events
        .into_iter()
        .map(|event| event.event_id)
        .collect();
    assert_eq!(seen.len(), 4);
    for name in &seen {
        assert_eq!(name.matches('-').count(), 2, "a token is shown to one who may read only: {name}");
        let event = sees.get_event(GetEventRequest { name: name.clone() }).await.unwrap().into_inner();
        assert_eq!(event.event_id, *name);
        let told = sees.explain_event(ExplainEventRequest { name: name.clone() }).await.unwrap().into_inner();
        let told = format!("{told:?}");
        assert!(tokens.iter().all(|token| !told.contains(token.as_str())), "{told}");
        for key in [Some(reader), Some(other), None] {
            let refused = handler(service, key).release_token(release(name)).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound, "{refused}");
        }
        // The event of another namespace is as unknown as one that there is not.
        let foreign = handler(service, Some(other)).get_event(GetEventRequest { name: name.clone() }).await;
        assert_eq!(foreign.unwrap_err().code(), Code::NotFound);
    }
    seen
}

/// An id and its seal, which may hold dashes itself.
fn cut(id: &str) -> (&str, &str) {
    let (at, _) = id.match_indices('-').nth(2).unwrap();
    (&id[..at], &id[at + 1..])
}

/// What an operator does by a key alone stands in the audit log; what comes with the token does not, whatever key is beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_key_releases_stands_in_the_audit_log() {
    let World { service, consumer, admin, releaser, .. } = world(Releases::Unary, Conduct::keep, 5).await;
    let ids = wait_for("the events", 30, async || {
        let arrivals = consumer.notes.arrivals();
        (arrivals.len() == 5)
            .then(|| arrivals.into_iter().map(|arrival| arrival.event_id).collect::<Vec<_>>())
    })
    .await;
    let bare: Vec<String> =
        ids.iter().map(|id| id.splitn(4, '-').take(3).collect::<Vec<_>>().join("-")).collect();
    let full = |id: &str| format!("{PARENT}/events/{id}");
    let (mut ops, mut medic) = (handler(&service, Some(&admin)), handler(&service, Some(&releaser)));
    // With the token: a consumer's, with a key or without.
    ops.release_token(release(&ids[0])).await.unwrap();
    ops.extend_token(ExtendTokenRequest { name: ids[1].clone(), ..Default::default() }).await.unwrap();
    medic.extend_token(ExtendTokenRequest { name: bare[1].clone(), ..Default::default() }).await.unwrap();
    medic.release_token(release(&full(&bare[1]))).await.unwrap();
    // The second time nothing happens.
    medic.release_token(release(&full(&bare[1]))).await.unwrap();
    // One that reaches all namespaces, and names none.
    let releases = vec![release(&bare[2]), release(&bare[3]), release(&ids[4])];
    ops.batch_release_tokens(BatchReleaseTokensRequest { releases }).await.unwrap();
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..Default::default() };
    let entries = master(&service, Some(&admin)).list_audit_entries(request).await.unwrap().into_inner();
    let mut found: Vec<(String, String, String)> = entries
        .audit_entries
        .into_iter()
        .filter(|entry| entry.resource.contains("/events/"))
        .map(|entry| (entry.actor, entry.action, entry.resource))
        .collect();
    found.sort();
    let mut expected = vec![
        ("medic".to_owned(), "extend".to_owned(), full(&bare[1])),
        ("medic".to_owned(), "release".to_owned(), full(&bare[1])),
        ("ops".to_owned(), "release".to_owned(), full(&bare[2])),
        ("ops".to_owned(), "release".to_owned(), full(&bare[3])),
    ];
    expected.sort();
    assert_eq!(found, expected);
    service.stop().await;
}
