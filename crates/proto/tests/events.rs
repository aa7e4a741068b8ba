//! Runs and events as callers see them, and releases as they send them.
#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_core::handle::change::{HistoryRow, Outcome, TokenRow, TokenState};
use tollgate_core::handle::release::ReleaseOutcome;
use tollgate_core::model::{Counts, EventKeyring, EventRef, Run, RunId, RunKind, RunState};
use tollgate_proto::convert::event::{self, EventRecord};
use tollgate_proto::convert::{heartbeat_ttl_ms, names, run, timestamp};
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::v1;
use uuid::Uuid;

fn a_run() -> Run {
    Run {
        shard: 5,
        id: RunId::derive(Uuid::nil(), 60_000_000),
        schedule_uid: Uuid::nil(),
        generation: 2,
        namespace: "a".to_owned(),
        schedule_id: "b".to_owned(),
        policy_uid: Some(Uuid::nil()),
        launch_us: 60_000_000,
        events: 10,
        priority: 7,
        kind: RunKind::Manual,
        state: RunState::Running,
        next_index: 6,
        counts: Counts { succeeded: 2, expired: 1, ..Counts::default() },
        cursor_in: Some("c".to_owned()),
        emitted_us: 1,
        started_us: Some(60_000_001),
        ..Run::default()
    }
}

#[test]
fn a_run_shows_its_numbers() {
    let shown = run::to_message(&a_run(), Some("p"));
    assert_eq!(names::run("name", &shown.name).unwrap(), ("a".to_owned(), 5, a_run().id));
    assert_eq!(
        (shown.schedule.as_str(), shown.policy.as_str()),
        ("namespaces/a/schedules/b", "namespaces/a/policies/p")
    );
    assert_eq!((shown.started_count, shown.waiting_count, shown.in_flight_count), (6, 4, 3));
    assert_eq!((shown.kind(), shown.state()), (v1::RunKind::Manual, v1::RunState::Running));
    assert_eq!((shown.start_time, shown.finish_time), (Some(timestamp(60_000_001)), None));
    assert_eq!(from_json::<v1::Run>(to_json(&shown)).unwrap(), shown);
    assert_eq!(run::to_message(&a_run(), None).policy, "");
}

#[test]
fn moments_before_the_epoch_keep_a_positive_fraction() {
    assert_eq!(timestamp(-1), prost_types::Timestamp { seconds: -1, nanos: 999_999_000 });
}

#[test]
fn an_event_shows_where_it_stands() {
    let keys = EventKeyring::new(&[1; 32]);
    let id = keys.id(EventRef { shard: 5, run: a_run().id, index: 3 });
    let show = |record: EventRecord<'_>| event::to_message(&id, &a_run(), 3, 61_000_000, record);
    let token = |state| TokenRow {
        run: a_run().id,
        index: 3,
        state,
        attempt: 2,
        failures: 1,
        checks: 0,
        due_us: 5,
        acquired_us: 6,
        delivered_us: Some(7),
        heartbeat_ttl_ms: None,
        message: "503".to_owned(),
    };
    assert_eq!(show(EventRecord::Scheduled).state(), v1::EventState::Scheduled);
    assert_eq!(show(EventRecord::Waiting).state(), v1::EventState::Waiting);
    for (state, suspect, expected) in [
        (TokenState::Acquired, false, v1::EventState::Acquired),
        (TokenState::Held, false, v1::EventState::Held),
        (TokenState::Held, true, v1::EventState::Suspect),
        (TokenState::Waiting, false, v1::EventState::Retrying),
    ] {
        let row = token(state);
        let shown = show(EventRecord::Token { row: &row, suspect });
        assert_eq!((shown.state(), shown.attempt, shown.message.as_str()), (expected, 2, "503"));
        assert_eq!(shown.due_time.is_some(), state == TokenState::Waiting);
    }
    let done = HistoryRow {
        run: a_run().id,
        index: 3,
        count: 1,
        outcome: Outcome::Dead,
        attempt: 9,
        acquired_us: Some(6),
        delivered_us: None,
        finished_us: 8,
        message: "gone".to_owned(),
    };
    let shown = show(EventRecord::Done(&done));
    assert_eq!((shown.state(), shown.finish_time), (v1::EventState::Dead, Some(timestamp(8))));
    assert_eq!(names::event("name", &shown.name).unwrap(), (Some("a".to_owned()), id.to_string()));
}

#[test]
fn states_in_filters_are_found_by_name() {
    let several = |text: &str| run::states_in_filter(text).unwrap();
    assert_eq!(several("finished"), (vec![RunState::Finished], Some(false)));
    assert_eq!(several("FINISHED_WITH_FAILURES"), (vec![RunState::Finished], Some(true)));
    assert_eq!(several("RUN_STATE_SKIPPED"), (vec![RunState::Skipped], None));
    assert_eq!(several("FINISHED,FINISHED_WITH_FAILURES"), (vec![RunState::Finished], None));
    assert_eq!(several("running, finished"), (vec![RunState::Running, RunState::Finished], Some(false)));
    assert_eq!(
        several("FINISHED_WITH_FAILURES,CANCELLED").1,
        Some(true),
        "those that are not finished are asked nothing"
    );
    for text in ["FINISHED,", "FINISHED,x", ","] {
        assert_eq!(run::states_in_filter(text).unwrap_err().field, "filter", "{text}");
    }
    assert_eq!(event::state_in_filter("Dead").unwrap(), v1::EventState::Dead);
    for text in ["", "UNSPECIFIED", "RUN_STATE_", "x"] {
        assert_eq!(run::states_in_filter(text).unwrap_err().field, "filter");
        assert_eq!(event::state_in_filter(text).unwrap_err().field, "filter");
    }
}

#[test]
fn releases_are_checked() {
    let convert =
        |message: &v1::ReleaseTokenRequest| event::release_to_core("releases[3]", message, (a_run().id, 3));
    let taken = convert(&v1::ReleaseTokenRequest::default()).unwrap();
    assert_eq!((taken.outcome, taken.attempt, taken.cursor), (ReleaseOutcome::Succeeded, None, None));
    let wrong = v1::ReleaseTokenRequest {
        attempt: Some(0),
        outcome: v1::ReleaseOutcome::Retry.into(),
        message: "x".repeat(4097),
        cursor: Some("x".repeat(4097)),
        next_check_time: Some(timestamp(1)),
        ..Default::default()
    };
    let errors = convert(&wrong).unwrap_err();
    let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        fields,
        ["attempt", "message", "cursor", "next_check_time"].map(|field| format!("releases[3].{field}"))
    );
    let unknown = v1::ReleaseTokenRequest { outcome: 9, ..Default::default() };
    assert_eq!(convert(&unknown).unwrap_err()[0].field, "releases[3].outcome");
}

#[test]
fn heartbeats_ask_for_bounded_silence() {
    let ask = |text: &str| {
        let request: v1::ExtendTokenRequest = from_json(serde_json::json!({ "ttl": text })).unwrap();
        heartbeat_ttl_ms(&request).map_err(|error| error.field)
    };
    assert_eq!(ask("1m"), Ok(Some(60_000)));
    assert_eq!(heartbeat_ttl_ms(&v1::ExtendTokenRequest::default()).unwrap(), None);
    assert_eq!((ask("0s"), ask("31d")), (Err("ttl".to_owned()), Err("ttl".to_owned())));
}
