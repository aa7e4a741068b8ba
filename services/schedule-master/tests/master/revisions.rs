//! Changes with revisions: in any order, late and twice, they end with the latest.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_proto::v1::{self, ApplyAction};
use tollgate_schedule_master::Options;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::world::{World, as_alice, fields, given_policy, given_schedule, name, policy_name};

fn numbered(given: v1::ApplyResourcesRequest, revision: i64) -> v1::ApplyResourcesRequest {
    v1::ApplyResourcesRequest { revision, ..given }
}

/// One schedule with so many events.
fn one(id: &str, events: i64, revision: i64) -> v1::ApplyResourcesRequest {
    numbered(given_schedule(id, &format!("queue:{id}:{revision}"), json!({"events": events})), revision)
}

/// Created, updated, unchanged, outdated, failed.
fn counts(answer: &v1::ApplyResourcesResponse) -> [u32; 5] {
    let v1::ApplyResourcesResponse { created_count, updated_count, unchanged_count, .. } = answer;
    [*created_count, *updated_count, *unchanged_count, answer.outdated_count, answer.failed_count]
}

async fn apply(world: &mut World, given: Vec<v1::ApplyResourcesRequest>) -> [u32; 5] {
    counts(&world.apply(given).await.unwrap())
}

async fn delete(world: &mut World, id: &str, revision: i64) -> Result<(), Status> {
    let request = v1::DeleteScheduleRequest { name: name(id), revision, ..Default::default() };
    world.client.delete_schedule(as_alice(request)).await.map(drop)
}

async fn pause(world: &mut World, id: &str, revision: i64) -> Result<v1::Schedule, Status> {
    let request = v1::PauseScheduleRequest { name: name(id), reason: format!("by {revision}"), revision };
    world.client.pause_schedule(as_alice(request)).await.map(tonic::Response::into_inner)
}

async fn resume(world: &mut World, id: &str, revision: i64) -> Result<v1::Schedule, Status> {
    let request = v1::ResumeScheduleRequest { name: name(id), revision };
    world.client.resume_schedule(as_alice(request)).await.map(tonic::Response::into_inner)
}

/// Says that it is outdated, and by which revision.
fn outdated<T: std::fmt::Debug>(answer: Result<T, Status>, said: &str) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    let violations = status.get_details_precondition_failure().unwrap().violations;
    assert_eq!(violations.iter().map(|one| one.r#type.as_str()).collect::<Vec<_>>(), ["OUTDATED"]);
    assert!(status.message().contains(said), "{}", status.message());
}

#[tokio::test]
async fn an_older_revision_of_a_resource_changes_nothing() {
    let mut world = World::new().await;
    assert_eq!(apply(&mut world, vec![one("a", 5, 5)]).await, [1, 0, 0, 0, 0]);
    let before = world.state().await;
    for revision in [5, 4, 1] {
        let answer = world.apply(vec![one("a", 7, revision)]).await.unwrap();
        assert_eq!(counts(&answer), [0, 0, 0, 1, 0]);
        let result = &answer.results[0];
        assert_eq!((result.action(), result.name.as_str()), (ApplyAction::Outdated, name("a").as_str()));
        assert_eq!(result.source, format!("queue:a:{revision}"));
    }
    assert_eq!(world.state().await, before);
    // Nor does it keep the others of its call from being written.
    assert_eq!(apply(&mut world, vec![one("a", 7, 3), one("b", 1, 3)]).await, [1, 0, 0, 1, 0]);
    assert_eq!(apply(&mut world, vec![one("a", 7, 6)]).await, [0, 1, 0, 0, 0]);
    assert_eq!(world.get("a").await.unwrap().events, Some(7));
    // Without a revision, all is as ever.
    assert_eq!(apply(&mut world, vec![one("a", 8, 0)]).await, [0, 1, 0, 0, 0]);
    assert_eq!(apply(&mut world, vec![one("a", 9, 6)]).await, [0, 0, 0, 1, 0]);
}

#[tokio::test]
async fn what_is_the_same_already_has_its_revision_noted() {
    let mut world = World::new().await;
    let policy = |m: u32, revision| numbered(given_policy("p", "", json!({"max_in_flight": m})), revision);
    assert_eq!(apply(&mut world, vec![one("a", 5, 1), policy(1, 1)]).await, [2, 0, 0, 0, 0]);
    assert_eq!(apply(&mut world, vec![one("a", 5, 9), policy(1, 9)]).await, [0, 0, 2, 0, 0]);
    assert_eq!(apply(&mut world, vec![one("a", 6, 8), policy(2, 8)]).await, [0, 0, 0, 2, 0]);
    assert_eq!(world.get("a").await.unwrap().events, Some(5));
}

#[tokio::test]
async fn what_was_deleted_is_not_brought_back_by_what_came_late() {
    let mut world = World::new().await;
    assert_eq!(apply(&mut world, vec![one("a", 5, 1)]).await, [1, 0, 0, 0, 0]);
    outdated(
        delete(&mut world, "a", 1).await,
        "revision: 1 of namespaces/default/schedules/a is outdated by 1",
    );
    delete(&mut world, "a", 3).await.unwrap();
    assert_eq!(apply(&mut world, vec![one("a", 5, 2)]).await, [0, 0, 0, 1, 0]);
    assert_eq!(world.get("a").await.unwrap_err().code(), Code::NotFound);
    outdated(delete(&mut world, "a", 3).await, "is outdated by 3, which deleted it");
    // The deletion may be there before what it deletes.
    delete(&mut world, "never", 7).await.unwrap();
    assert_eq!(apply(&mut world, vec![one("never", 5, 6)]).await, [0, 0, 0, 1, 0]);
    assert_eq!(apply(&mut world, vec![one("never", 5, 8)]).await, [1, 0, 0, 0, 0]);
    // Without a revision, what is not there cannot be deleted.
    assert_eq!(delete(&mut world, "a", 0).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(fields(&delete(&mut world, "a", -1).await.unwrap_err()), ["revision"]);
}

#[tokio::test]
async fn each_kind_of_resource_has_revisions() {
    let mut world = World::new().await;
    let calendar =
        || v1::Calendar { name: "c".to_owned(), dates: vec!["2026-05-01".to_owned()], ..Default::default() };
    let http = v1::HttpTarget { url: "https://a.example/hook".to_owned(), ..Default::default() };
    let alert = v1::Alert {
        name: "x".to_owned(),
        troubles: Some(v1::AlertTroubles::default()),
        target: Some(v1::AlertTarget { target: Some(v1::alert_target::Target::Http(http)) }),
        ..Default::default()
    };
    let all = |revision: i64| {
        use v1::apply_resources_request::Resource;
        [Resource::Calendar(calendar()), Resource::Alert(alert.clone())].map(|resource| {
            v1::ApplyResourcesRequest {
                namespace: "default".to_owned(),
                resource: Some(resource),
                revision,
                ..Default::default()
            }
        })
    };
    assert_eq!(apply(&mut world, all(2).to_vec()).await, [2, 0, 0, 0, 0]);
    let policy = numbered(given_policy("p", "", json!({"max_in_flight": 1})), 2);
    assert_eq!(apply(&mut world, vec![policy.clone()]).await, [1, 0, 0, 0, 0]);
    let calendar = |revision| v1::DeleteCalendarRequest {
        name: "namespaces/default/calendars/c".to_owned(),
        revision,
        ..Default::default()
    };
    let alert = |revision| v1::DeleteAlertRequest {
        name: "namespaces/default/alerts/x".to_owned(),
        revision,
        ..Default::default()
    };
    let of_policy =
        |revision| v1::DeletePolicyRequest { name: policy_name("p"), revision, ..Default::default() };
    for revision in [2, 4] {
        let answers = [
            world.client.delete_calendar(as_alice(calendar(revision))).await.map(drop),
            world.client.delete_alert(as_alice(alert(revision))).await.map(drop),
            world.client.delete_policy(as_alice(of_policy(revision))).await.map(drop),
        ];
        for answer in answers {
            if revision == 2 { outdated(answer, "is outdated by 2") } else { answer.unwrap() }
        }
    }
    assert_eq!(apply(&mut world, all(3).to_vec()).await, [0, 0, 0, 2, 0]);
    assert_eq!(apply(&mut world, vec![numbered(policy, 3)]).await, [0, 0, 0, 1, 0]);
}

#[tokio::test]
async fn a_pause_has_a_revision_of_its_own() {
    let mut world = World::new().await;
    apply(&mut world, vec![one("a", 5, 9)]).await;
    // It was sent before the update, and counts all the same.
    assert_eq!(pause(&mut world, "a", 7).await.unwrap().pause.unwrap().reason, "by 7");
    outdated(resume(&mut world, "a", 6).await, "is outdated by 7");
    // Paused already: the later one is noted.
    assert_eq!(pause(&mut world, "a", 7).await.unwrap_err().code(), Code::FailedPrecondition);
    assert!(resume(&mut world, "a", 10).await.unwrap().pause.is_none());
    assert!(resume(&mut world, "a", 12).await.unwrap().pause.is_none());
    outdated(pause(&mut world, "a", 11).await, "is outdated by 12");
    delete(&mut world, "a", 20).await.unwrap();
    outdated(pause(&mut world, "a", 19).await, "is outdated by 20, which deleted it");
    apply(&mut world, vec![one("a", 5, 21)]).await;
    outdated(pause(&mut world, "a", 19).await, "is outdated by 20, which deleted it");
    assert!(pause(&mut world, "a", 22).await.unwrap().pause.is_some());
    assert_eq!(pause(&mut world, "missing", 1).await.unwrap_err().code(), Code::NotFound);
    // Made anew before the deletion comes, which is outdated, and ends what was paused before it.
    apply(&mut world, vec![one("b", 5, 7)]).await;
    outdated(delete(&mut world, "b", 5).await, "is outdated by 7");
    outdated(pause(&mut world, "b", 3).await, "is outdated by 5, which deleted it");
    assert!(world.get("b").await.unwrap().pause.is_none());

    world.create_policy("p", json!({"max_in_flight": 1})).await.unwrap();
    let request =
        |revision| v1::PausePolicyRequest { name: policy_name("p"), revision, ..Default::default() };
    let paused = world.client.pause_policy(as_alice(request(3))).await.unwrap().into_inner();
    assert!(paused.pause.is_some());
    let request = |revision| v1::ResumePolicyRequest { name: policy_name("p"), revision };
    outdated(world.client.resume_policy(as_alice(request(3))).await, "policies/p is outdated by 3");
    let resumed = world.client.resume_policy(as_alice(request(4))).await.unwrap().into_inner();
    assert!(resumed.pause.is_none());
}

#[tokio::test]
async fn a_refused_or_only_checked_call_notes_no_revision() {
    let mut world = World::new().await;
    let bad = numbered(given_schedule("b", "f:2", json!({"events": 0})), 9);
    let refused = world.apply(vec![one("a", 1, 9), bad]).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let checked = v1::ApplyResourcesRequest { validate_only: true, ..one("a", 1, 9) };
    assert_eq!(apply(&mut world, vec![checked]).await, [1, 0, 0, 0, 0]);
    assert_eq!(apply(&mut world, vec![one("a", 1, 1)]).await, [1, 0, 0, 0, 0]);
    let checked = v1::ApplyResourcesRequest { validate_only: true, ..one("a", 1, 5) };
    assert_eq!(apply(&mut world, vec![checked]).await, [0, 0, 1, 0, 0]);
    assert_eq!(apply(&mut world, vec![one("a", 2, 2)]).await, [0, 1, 0, 0, 0]);
    let negative = world.apply(vec![one("a", 1, -2)]).await.unwrap_err();
    assert_eq!(fields(&negative), ["queue:a:-2: a: revision"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_at_the_same_time_the_later_one_stays() {
    let world = World::new().await;
    let beside = world.beside(Options::default()).await;
    for round in 0..20 {
        let (low, high) = (2 * round + 1, 2 * round + 2);
        let calls = [(&world, low), (&beside, high)].map(|(world, revision)| {
            let mut client = world.client.clone();
            async move {
                loop {
                    let given = vec![one("a", revision, revision), one(&format!("b{revision}"), 1, 1)];
                    let given = as_alice(tokio_stream::iter(given));
                    let answer = client.apply_resources(given).await.unwrap().into_inner();
                    if answer.failed_count == 0 {
                        return answer;
                    }
                    // Somebody else wrote meanwhile.
                    assert!(answer.errors[0].message.ends_with("apply it again"), "{answer:?}");
                }
            }
        });
        let [low, high] = calls;
        let (_, high) = tokio::join!(low, high);
        let of_a = |answer: &v1::ApplyResourcesResponse| {
            answer
                .results
                .iter()
                .any(|result| result.action() == ApplyAction::Outdated && result.name == name("a"))
        };
        assert!(!of_a(&high), "{high:?}");
        let stored = world.store.schedule("default", "a").await.unwrap().unwrap();
        assert_eq!(i64::from(stored.events), 2 * round + 2);
    }
}

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Apply,
    Delete,
    Pause,
    Resume,
}

fn acts() -> impl Strategy<Value = (Vec<Act>, Vec<usize>)> {
    let act = prop_oneof![4 => Just(Act::Apply), 1 => Just(Act::Delete)];
    proptest::collection::vec(act, 1..12).prop_flat_map(|acts| {
        let order: Vec<usize> = (0..acts.len()).chain(0..acts.len() / 2).collect();
        (Just(acts), Just(order).prop_shuffle())
    })
}

fn pauses() -> impl Strategy<Value = (Vec<Act>, Vec<usize>)> {
    let act = prop_oneof![Just(Act::Apply), Just(Act::Pause), Just(Act::Resume)];
    proptest::collection::vec(act, 1..12).prop_flat_map(|acts| {
        let order: Vec<usize> = (0..acts.len()).chain(0..acts.len() / 2).collect();
        (Just(acts), Just(order).prop_shuffle())
    })
}

async fn carry_out(world: &mut World, id: &str, act: Act, revision: i64) {
    let done = match act {
        Act::Apply => world.apply(vec![one(id, revision, revision)]).await.map(drop),
        Act::Delete => delete(world, id, revision).await,
        Act::Pause => pause(world, id, revision).await.map(drop),
        Act::Resume => resume(world, id, revision).await.map(drop),
    };
    if let Err(refused) = done {
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    }
}

#[test]
fn in_any_order_the_latest_stays() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = tokio::sync::Mutex::new((runtime.block_on(World::new()), 0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let done = runner.run(&(acts(), pauses()), |((acts, order), (paused, paused_order))| {
        runtime.block_on(async {
            let (world, number) = &mut *world.lock().await;
            *number += 1;
            let (id, steady) = (format!("s{number}"), format!("p{number}"));
            for at in order {
                carry_out(world, &id, acts[at], at as i64 + 1).await;
            }
            let stored = world.store.schedule("default", &id).await.unwrap();
            let is_there = acts.last() == Some(&Act::Apply);
            assert_eq!(stored.map(|stored| stored.events as usize), is_there.then_some(acts.len()));

            apply(world, vec![one(&steady, 500, 0)]).await;
            for at in paused_order {
                carry_out(world, &steady, paused[at], at as i64 + 1).await;
            }
            let stored = world.store.schedule("default", &steady).await.unwrap().unwrap();
            let last = paused.iter().rev().find(|act| **act != Act::Apply);
            assert_eq!(stored.pause.is_some(), last == Some(&Act::Pause));
            let last = paused.iter().rposition(|act| *act == Act::Apply);
            assert_eq!(stored.events as usize, last.map_or(500, |at| at + 1));
        });
        Ok(())
    });
    done.unwrap();
}

#[tokio::test]
async fn calendars_and_their_schedules_go_together() {
    let mut world = World::new().await;
    let calendar = |date: &str, revision: i64| v1::ApplyResourcesRequest {
        namespace: "default".to_owned(),
        resource: Some(v1::apply_resources_request::Resource::Calendar(v1::Calendar {
            name: "c".to_owned(),
            dates: vec![date.to_owned()],
            ..Default::default()
        })),
        revision,
        ..Default::default()
    };
    let with = |events: u32| -> Value { json!({"events": events, "exclude_calendars": ["c"]}) };
    let schedule = |events, revision| numbered(given_schedule("a", "", with(events)), revision);
    assert_eq!(apply(&mut world, vec![calendar("2026-05-01", 1), schedule(1, 1)]).await, [2, 0, 0, 0, 0]);
    // The schedule is written with the calendar's dates, and its revision is noted.
    assert_eq!(apply(&mut world, vec![calendar("2026-05-02", 4), schedule(1, 4)]).await, [0, 1, 1, 0, 0]);
    assert_eq!(apply(&mut world, vec![calendar("2026-05-03", 3), schedule(2, 3)]).await, [0, 0, 0, 2, 0]);
    assert_eq!(apply(&mut world, vec![calendar("2026-05-03", 5), schedule(2, 5)]).await, [0, 2, 0, 0, 0]);
    assert_eq!(world.get("a").await.unwrap().events, Some(2));
}
