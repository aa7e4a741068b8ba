//! What is shown of schedules: previews, children, skipped triggers, the audit log.
#![expect(clippy::unwrap_used, reason = "tests")]

use prost_types::Timestamp;
use serde_json::json;
use tollgate_core::model::{MINUTE_US, SkipReason, Skipped};
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;
use tonic::{Code, Status};

use crate::world::{NOW_S, NOW_US, PARENT, World, as_alice, fields, name, schedule};

async fn preview(
    world: &mut World,
    source: Source,
    from: Option<&str>,
    count: i32,
) -> Result<v1::PreviewScheduleResponse, Status> {
    let from_time = from.map(|text| text.parse::<Timestamp>().unwrap());
    let request = v1::PreviewScheduleRequest { source: Some(source), from_time, count };
    Ok(world.client.preview_schedule(request).await?.into_inner())
}

#[tokio::test]
async fn a_preview_shows_clock_changes() {
    let mut world = World::new().await;
    let given = schedule(json!({"triggers": [{"cron": "30 2 * * *"}], "time_zone": "Europe/Berlin"}));
    let from = Some("2026-03-27T12:00:00Z");
    let shown = preview(&mut world, Source::Schedule(given), from, 3).await.unwrap();
    let rows: Vec<(String, &str, &str)> = shown
        .launch_times
        .iter()
        .map(|row| (row.time.unwrap().to_string(), row.local_time.as_str(), row.utc_offset.as_str()))
        .collect();
    let row = |time: &str, local, offset| (time.to_owned(), local, offset);
    assert_eq!(
        rows,
        [
            row("2026-03-28T01:30:00Z", "2026-03-28 02:30:00", "+01:00"),
            row("2026-03-29T01:00:00Z", "2026-03-29 03:00:00", "+02:00"),
            row("2026-03-30T00:30:00Z", "2026-03-30 02:30:00", "+02:00"),
        ]
    );
    assert_eq!((shown.launch_classes, shown.children_count), (vec!["H".to_owned()], 1));
    assert!(world.ids("").await.is_empty());
}

#[tokio::test]
async fn a_preview_of_a_stored_schedule_shows_its_own_offset() {
    let mut world = World::new().await;
    let every = json!({"triggers": [{"interval": {"every": "1h"}}]});
    world.create("a", every.clone()).await.unwrap();
    let stored = preview(&mut world, Source::Name(name("a")), None, 0).await.unwrap();
    assert_eq!(stored.launch_times.len(), 10);
    assert!(stored.launch_times[0].time.unwrap().seconds > NOW_S);
    let mut given = schedule(every);
    given.name = name("a");
    assert_eq!(preview(&mut world, Source::Schedule(given), None, 10).await.unwrap(), stored);
    let soon = json!({"triggers": [{"at": "2026-03-02T10:00:01Z"}]});
    let once = preview(&mut world, Source::Schedule(schedule(soon)), None, 5).await.unwrap();
    assert_eq!((once.launch_times.len(), once.launch_classes), (1, vec!["A".to_owned()]));
    let manual = Source::Schedule(schedule(json!({"triggers": []})));
    let never = preview(&mut world, manual, None, 5).await.unwrap();
    assert_eq!((never.launch_times.len(), never.children_count), (0, 0));
}

#[tokio::test]
async fn a_wrong_preview_is_refused() {
    let mut world = World::new().await;
    let missing = preview(&mut world, Source::Name(name("a")), None, 1).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    for (source, count, field) in [
        (Source::Name(name("a")), 1001, "count"),
        (Source::Name("a".to_owned()), 1, "name"),
        (Source::Schedule(schedule(json!({"triggers": [{}]}))), 1, "schedule.triggers[0]"),
        (Source::Schedule(schedule(json!({"time_zone": "Mars"}))), 1, "schedule.time_zone"),
    ] {
        let refused = preview(&mut world, source, None, count).await.unwrap_err();
        assert_eq!((refused.code(), fields(&refused)), (Code::InvalidArgument, vec![field.to_owned()]));
    }
    let request = v1::PreviewScheduleRequest::default();
    assert_eq!(fields(&world.client.preview_schedule(request).await.unwrap_err()), ["name"]);
    let many = schedule(json!({"triggers": [{"cron": "* * 1-31 * *"}]}));
    assert!(preview(&mut world, Source::Schedule(many), None, 1).await.unwrap().children_count > 1000);
}

#[tokio::test]
async fn children_are_listed_in_pages_of_one_generation() {
    let mut world = World::new().await;
    world.create("a", json!({"triggers": [{"cron": "0,30 3-5 * * *"}]})).await.unwrap();
    let mut request =
        v1::ListScheduleChildrenRequest { parent: name("a"), page_size: 4, ..Default::default() };
    let first = world.client.list_schedule_children(request.clone()).await.unwrap().into_inner();
    request.page_token = first.next_page_token;
    let second = world.client.list_schedule_children(request.clone()).await.unwrap().into_inner();
    let keys: Vec<(String, i32)> = first
        .children
        .iter()
        .chain(&second.children)
        .map(|child| (child.launch_expression.clone(), child.slot))
        .collect();
    let expected: Vec<(String, i32)> =
        ["H.3", "H.4", "H.5"].iter().flat_map(|key| [0, 30].map(|slot| ((*key).to_owned(), slot))).collect();
    assert_eq!(keys, expected);
    assert_eq!(second.next_page_token, "");
    assert!(first.children.iter().all(|child| child.launch_class == "H" && child.time_zone == "UTC"));
    world.update("a", json!({"events": 2}), &["events"]).await.unwrap();
    let refused = world.client.list_schedule_children(request).await.unwrap_err();
    assert_eq!(fields(&refused), ["page_token"]);
    let registry = world.store.registry(&["H.3".to_owned(), "H.9".to_owned()]).await.unwrap();
    assert_eq!(registry, [("UTC".to_owned(), "H.3".to_owned())]);
    world.delete("a", "").await.unwrap();
    assert!(world.store.zones().await.unwrap().is_empty());
}

#[tokio::test]
async fn skipped_triggers_are_listed_latest_first() {
    let mut world = World::new().await;
    let made = world.create("a", json!({})).await.unwrap();
    let skipped: Vec<Skipped> = (0..5)
        .map(|at| Skipped {
            schedule_uid: made.uid.parse().unwrap(),
            launch_us: NOW_S * 1_000_000 - at * MINUTE_US,
            reason: SkipReason::Missed,
            recorded_us: NOW_US,
        })
        .collect();
    world.store.emit(&[], &skipped).await.unwrap();
    let mut request =
        v1::ListSkippedTriggersRequest { parent: name("a"), page_size: 2, ..Default::default() };
    let mut seen = Vec::new();
    loop {
        let page = world.client.list_skipped_triggers(request.clone()).await.unwrap().into_inner();
        assert!(page.skipped_triggers.iter().all(|row| row.schedule == name("a")));
        seen.extend(page.skipped_triggers.iter().map(|row| row.launch_time.unwrap().seconds - NOW_S));
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, [0, -60, -120, -180, -240]);
    let missing = v1::ListSkippedTriggersRequest { parent: name("b"), ..Default::default() };
    assert_eq!(world.client.list_skipped_triggers(missing).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn the_audit_log_has_pages_and_a_filter() {
    let mut world = World::new().await;
    for id in ["a", "b", "c"] {
        world.create(id, json!({})).await.unwrap();
    }
    world.pause("b", "").await;
    let large = "x".repeat(100_000);
    world.update("c", json!({"payload": large}), &["payload"]).await.unwrap();
    let mut request =
        v1::ListAuditEntriesRequest { parent: PARENT.to_owned(), page_size: 2, ..Default::default() };
    let mut seen = Vec::new();
    loop {
        let page = world.client.list_audit_entries(as_alice(request.clone())).await.unwrap().into_inner();
        seen.extend(page.audit_entries);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    let rows: Vec<(&str, &str)> =
        seen.iter().map(|row| (row.action.as_str(), row.resource.as_str())).collect();
    let (a, b, c) = (name("a"), name("b"), name("c"));
    let [a, b, c] = [&a, &b, &c].map(String::as_str);
    assert_eq!(rows, [("update", c), ("pause", b), ("create", c), ("create", b), ("create", a)]);
    let of_c = format!("{:?}", seen[0].difference);
    assert!(of_c.contains("100002 bytes, SHA-256") && of_c.len() < 2000, "{of_c}");
    assert_eq!(world.audit(&format!("resource={b}")).await.len(), 2);
    assert_eq!(world.audit("actor=alice").await.len(), 5);
    assert_eq!(world.audit("actor=nobody").await.len(), 0);
    assert_eq!(world.audit("actor=alice AND time>=2999-01-01T00:00:00Z").await.len(), 0);
    let wrong = v1::ListAuditEntriesRequest { filter: "person=x".to_owned(), ..request };
    assert_eq!(fields(&world.client.list_audit_entries(wrong).await.unwrap_err()), ["filter"]);
}
