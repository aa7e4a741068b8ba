//! The same to all schedules that match.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_proto::v1;
use tollgate_schedule_master::{Options, Quota, Quotas};
use tonic::{Code, Status};

use crate::world::{PARENT, World, as_alice, fields, name};

/// Schedules of two teams: `b000`, `b001`, … of billing, and two of others.
async fn world(billing: usize) -> World {
    let mut world = World::new().await;
    for number in 0..billing {
        let labels = json!({"labels": {"team": "billing"}});
        world.create(&format!("b{number:03}"), labels).await.unwrap();
    }
    world.create("other", json!({"labels": {"team": "data"}})).await.unwrap();
    world.create("plain", json!({})).await.unwrap();
    world
}

const BILLING: &str = "label.team=billing";

async fn pause(
    world: &mut World,
    filter: &str,
    page_token: &str,
    validate_only: bool,
) -> Result<v1::PauseSchedulesResponse, Status> {
    let request = v1::PauseSchedulesRequest {
        parent: PARENT.to_owned(),
        filter: filter.to_owned(),
        page_token: page_token.to_owned(),
        validate_only,
        reason: "month end".to_owned(),
    };
    Ok(world.client.pause_schedules(as_alice(request)).await?.into_inner())
}

#[tokio::test]
async fn all_that_match_are_paused_and_resumed_in_steps() {
    let mut world = world(130).await;
    world.pause("b007", "another reason").await;
    let before = world.state().await;
    let first = pause(&mut world, BILLING, "", true).await.unwrap();
    assert_eq!((first.matched_count, first.paused_count), (100, 0));
    let rest = pause(&mut world, BILLING, &first.next_page_token, true).await.unwrap();
    assert_eq!((rest.matched_count, rest.next_page_token.as_str()), (30, ""));
    assert_eq!(world.state().await, before, "a count changes nothing");
    let done = pause(&mut world, BILLING, "", false).await.unwrap();
    assert_eq!((done.matched_count, done.paused_count, done.refused_count), (100, 99, 0));
    let again = pause(&mut world, BILLING, "", false).await.unwrap();
    assert_eq!((again.matched_count, again.paused_count), (100, 0), "a step may be repeated");
    assert_eq!(again.next_page_token, done.next_page_token);
    let rest = pause(&mut world, BILLING, &first.next_page_token, false).await.unwrap();
    assert_eq!((rest.matched_count, rest.paused_count, rest.next_page_token.as_str()), (30, 30, ""));
    assert_eq!(world.ids("state=ACTIVE").await, ["other", "plain"]);
    assert_eq!(world.get("b007").await.unwrap().pause.unwrap().reason, "another reason");
    assert_eq!(world.get("b129").await.unwrap().pause.unwrap().reason, "month end");
    let notes: Vec<_> = world.audit("").await.into_iter().filter(|entry| entry.action == "pause").collect();
    assert_eq!((notes.len(), notes[0].actor.as_str()), (130, "alice"));
    let request = v1::ResumeSchedulesRequest {
        parent: PARENT.to_owned(),
        filter: "state=PAUSED AND name=b00*".to_owned(),
        ..Default::default()
    };
    let resumed = world.client.resume_schedules(as_alice(request)).await.unwrap().into_inner();
    assert_eq!((resumed.matched_count, resumed.resumed_count), (10, 10));
}

#[tokio::test]
async fn all_that_match_are_deleted() {
    let mut world = world(3).await;
    let request = v1::DeleteSchedulesRequest {
        parent: PARENT.to_owned(),
        filter: BILLING.to_owned(),
        ..Default::default()
    };
    let deleted = world.client.delete_schedules(as_alice(request.clone())).await.unwrap().into_inner();
    assert_eq!((deleted.matched_count, deleted.deleted_count), (3, 3));
    assert_eq!(world.ids("").await, ["other", "plain"]);
    let again = world.client.delete_schedules(as_alice(request)).await.unwrap().into_inner();
    assert_eq!((again.matched_count, again.deleted_count), (0, 0));
}

#[tokio::test]
async fn all_that_match_are_triggered_once_for_an_id() {
    let mut world = world(4).await;
    world.pause("b002", "bad data").await;
    let request = v1::TriggerSchedulesRequest {
        parent: PARENT.to_owned(),
        filter: BILLING.to_owned(),
        request_id: "x".to_owned(),
        events: Some(3),
        ..Default::default()
    };
    for _ in 0..2 {
        let made = world.client.trigger_schedules(as_alice(request.clone())).await.unwrap().into_inner();
        assert_eq!((made.matched_count, made.triggered_count, made.refused_count), (4, 3, 1));
        assert_eq!(made.refusals[0].schedule, name("b002"));
        assert!(made.refusals[0].message.contains("bad data"), "{:?}", made.refusals);
    }
    let runs = world.store.list_runs("default", &Default::default(), None, 100).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.events).collect::<Vec<_>>(), [3, 3, 3]);
}

#[tokio::test]
async fn what_is_wrong_is_refused_before_anything_is_done() {
    let mut world = world(2).await;
    let before = world.state().await;
    for (filter, token, field) in
        [("", "", "filter"), ("colour=red", "", "filter"), (BILLING, "x", "page_token"), ("  ", "", "filter")]
    {
        let refused = pause(&mut world, filter, token, false).await.unwrap_err();
        assert_eq!(
            (refused.code(), fields(&refused)),
            (Code::InvalidArgument, vec![field.to_owned()]),
            "{filter}"
        );
    }
    let request = v1::TriggerSchedulesRequest {
        parent: PARENT.to_owned(),
        filter: BILLING.to_owned(),
        events: Some(0),
        ..Default::default()
    };
    let refused = world.client.trigger_schedules(as_alice(request)).await.unwrap_err();
    assert_eq!(fields(&refused), ["events"]);
    assert_eq!(world.state().await, before);
}

/// A quota ends the step, which tells what was done; the next step begins where it ended.
#[tokio::test]
async fn a_step_that_a_quota_ends_tells_what_was_done() {
    let mut world = world(30).await;
    let each = Quota { waiting_events: 12, ..Quota::default() };
    let mut bounded =
        world.beside(Options { quotas: Quotas { each, ..Quotas::default() }, ..Options::default() }).await;
    let mut request = v1::TriggerSchedulesRequest {
        parent: PARENT.to_owned(),
        filter: BILLING.to_owned(),
        ..Default::default()
    };
    let made = bounded.client.trigger_schedules(as_alice(request.clone())).await.unwrap().into_inner();
    assert_eq!((made.matched_count, made.triggered_count), (12, 12));
    request.page_token = made.next_page_token;
    let refused = bounded.client.trigger_schedules(as_alice(request.clone())).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let rest = world.client.trigger_schedules(as_alice(request)).await.unwrap().into_inner();
    assert_eq!((rest.matched_count, rest.triggered_count, rest.next_page_token.as_str()), (18, 18, ""));
}
