//! Alerts, what is remembered of them, and what they are told from.

use std::collections::BTreeMap;

use tollgate_core::alert::State;
use tollgate_core::model::{
    Alert, AlertRuns, AlertTarget, AlertTroubles, Counts, HttpTarget, Run, RunState, SlackTarget,
};
use tollgate_store::StoreError;
use tollgate_store::alert::Remembered;
use tollgate_store::history::RunFilter;
use tollgate_store::plan::{Filter, PlanWrite};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, SECOND_US, audit, finished, put, schedule, waiting};

fn alert(id: &str) -> Alert {
    let http = HttpTarget {
        url: "https://a.example/".to_owned(),
        headers: BTreeMap::new(),
        secret: Some("whsec_x".to_owned()),
        deadline_ms: 10_000,
        http2: Default::default(),
        batch: None,
    };
    Alert {
        uid: Uuid::now_v7(),
        namespace: "default".to_owned(),
        id: id.to_owned(),
        description: "who is called at night".to_owned(),
        troubles: Some(AlertTroubles {
            kinds: vec!["events_failed".to_owned(), "of_a_later_version".to_owned()],
            critical_only: true,
            installation: true,
        }),
        runs: AlertRuns::FinishedWithFailures,
        schedules: vec!["nightly".to_owned()],
        policies: vec!["p".to_owned()],
        schedule_labels: [("team".to_owned(), "data".to_owned())].into(),
        target: AlertTarget::Http { http },
        group_wait_ms: 30_000,
        repeat_ms: 0,
        send_resolved: true,
        disabled: false,
        enabled_us: 0,
        labels: [("team".to_owned(), "x".to_owned())].into(),
        generation: 1,
        created_us: NOON_US,
        updated_us: NOON_US,
    }
}

fn put_alert(alert: &Alert, expected_generation: Option<i64>) -> PlanWrite {
    PlanWrite::PutAlert {
        alert: Box::new(alert.clone()),
        expected_generation,
        audit: audit(&format!("namespaces/default/alerts/{}", alert.id)),
    }
}

fn delete_alert(alert: &Alert) -> PlanWrite {
    PlanWrite::DeleteAlert {
        uid: alert.uid,
        name: alert.id.clone(),
        expected_generation: alert.generation,
        audit: audit(&format!("namespaces/default/alerts/{}", alert.id)),
    }
}

pub(crate) async fn an_alert_is_read_as_written_and_goes(place: &Place) {
    let store = place.open().await;
    let none = store.alerts_mark().await.unwrap();
    let made = alert("on-call");
    store.write_plan(vec![put_alert(&made, None)]).await.unwrap();
    assert_eq!(store.alert("default", "on-call").await.unwrap().as_ref(), Some(&made));
    assert_eq!(store.alert("other", "on-call").await.unwrap(), None);
    let taken = store.write_plan(vec![put_alert(&alert("on-call"), None)]).await.unwrap_err();
    assert!(matches!(taken, StoreError::Conflict { .. }), "{taken}");
    let slack = SlackTarget { url: "https://a.example/x".to_owned(), deadline_ms: 1 };
    let target = AlertTarget::Slack { slack };
    let changed = Alert { generation: 2, disabled: true, target, ..made.clone() };
    let stale = store.write_plan(vec![put_alert(&changed, Some(7))]).await.unwrap_err();
    assert!(matches!(stale, StoreError::Conflict { .. }), "{stale}");
    let first = store.alerts_mark().await.unwrap();
    store.write_plan(vec![put_alert(&changed, Some(1))]).await.unwrap();
    assert_eq!(
        store.alerts("default", &["on-call".to_owned()]).await.unwrap(),
        std::slice::from_ref(&changed)
    );
    let second = store.alerts_mark().await.unwrap();
    assert!(none < first && first < second, "{none} {first} {second}");
    assert_eq!(store.alerts_count("default", 10).await.unwrap(), 1);
    store.write_plan(vec![delete_alert(&changed)]).await.unwrap();
    assert_eq!(store.alert("default", "on-call").await.unwrap(), None);
    let third = store.alerts_mark().await.unwrap();
    let gone = store.write_plan(vec![delete_alert(&changed)]).await.unwrap_err();
    // Another one of the same name, at the same time.
    store.write_plan(vec![put_alert(&Alert { uid: Uuid::now_v7(), ..made.clone() }, None)]).await.unwrap();
    let fourth = store.alerts_mark().await.unwrap();
    assert!(second < third && third < fourth, "{second} {third} {fourth}");
    assert!(matches!(gone, StoreError::NotFound { .. }), "{gone}");
    assert_eq!(store.audit("default", &Default::default(), None, 10).await.unwrap().len(), 4);
}

pub(crate) async fn alerts_are_listed_and_filtered(place: &Place) {
    let store = place.open().await;
    let mut all: Vec<Alert> = ["a", "b", "c"].map(alert).into();
    all[1].disabled = true;
    all[2].labels = BTreeMap::new();
    let foreign = Alert { namespace: "other".to_owned(), ..alert("z") };
    let writes = all.iter().chain([&foreign]).map(|one| put_alert(one, None)).collect();
    store.write_plan(writes).await.unwrap();
    let listed = async |filter: Filter, after: Option<&str>, limit| {
        let found = store.list_alerts("default", &filter, after, limit).await.unwrap();
        found.into_iter().map(|alert| alert.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(Filter::default(), None, 2).await, ["a", "b"]);
    assert_eq!(listed(Filter::default(), Some("b"), 2).await, ["c"]);
    assert_eq!(listed(Filter { paused: Some(true), ..Filter::default() }, None, 9).await, ["b"]);
    let labels = vec![("team".to_owned(), "x".to_owned())];
    assert_eq!(listed(Filter { labels, ..Filter::default() }, None, 9).await, ["a", "b"]);
    let (first, next) = store.every_alert(None, 3).await.unwrap();
    let (rest, last) = store.every_alert(next, 3).await.unwrap();
    assert_eq!((first.len(), rest.len(), last), (3, 1, None), "of all namespaces");
    assert!(first.iter().chain(&rest).is_sorted_by_key(|alert| alert.uid));
}

pub(crate) async fn what_is_remembered_is_written_by_one(place: &Place) {
    let store = place.open().await;
    let alert = alert("a");
    let first = Remembered { alert: alert.uid, version: 0, state: State { sent: 7, ..State::default() } };
    assert!(!store.write_alert_state(&first).await.unwrap(), "there is no such alert");
    store.write_plan(vec![put_alert(&alert, None)]).await.unwrap();
    assert_eq!(store.alert_states(&[alert.uid]).await.unwrap(), []);
    assert!(store.write_alert_state(&first).await.unwrap());
    assert!(!store.write_alert_state(&first).await.unwrap(), "somebody has written");
    let read = store.alert_states(&[alert.uid, Uuid::now_v7()]).await.unwrap();
    assert_eq!(read, [Remembered { version: 1, ..first.clone() }]);
    let second = Remembered { version: 1, state: State { sent: 8, ..State::default() }, ..first.clone() };
    assert!(store.write_alert_state(&second).await.unwrap());
    assert!(!store.write_alert_state(&second).await.unwrap());
    assert_eq!(store.alert_states(&[alert.uid]).await.unwrap()[0].state.sent, 8);
    store.write_plan(vec![delete_alert(&alert)]).await.unwrap();
    assert_eq!(store.alert_states(&[alert.uid]).await.unwrap(), []);
}

pub(crate) async fn what_cannot_be_read_of_an_alert_begins_anew(place: &Place) {
    let store = place.open().await;
    let alert = alert("a");
    store.write_plan(vec![put_alert(&alert, None)]).await.unwrap();
    for version in 0..3 {
        let state = State { made: 2, sent: 2, ..State::default() };
        assert!(store.write_alert_state(&Remembered { alert: alert.uid, version, state }).await.unwrap());
    }
    place.sql("UPDATE alert_states SET state = 'torn'").await;
    let anew = store.alert_states(&[alert.uid]).await.unwrap().remove(0);
    assert_eq!((anew.version, anew.state.sent), (3, 0));
    assert!(anew.state.made >= 2, "no number of a message is used again");
    assert!(anew.state.error.contains("cannot be read"), "{}", anew.state.error);
    assert!(store.write_alert_state(&anew).await.unwrap());
    assert_eq!(store.alert_states(&[alert.uid]).await.unwrap(), [Remembered { version: 4, ..anew }]);
}

pub(crate) async fn an_alert_is_replaced_where_nobody_was_faster(place: &Place) {
    let store = place.open().await;
    let old = alert("a");
    store.write_plan(vec![put_alert(&old, None)]).await.unwrap();
    let new = Alert { description: "sealed".to_owned(), ..old.clone() };
    let mark = store.alerts_mark().await.unwrap();
    assert!(store.replace_alert(&old, &new).await.unwrap());
    assert!(store.alerts_mark().await.unwrap() > mark);
    assert!(!store.replace_alert(&old, &new).await.unwrap());
    assert_eq!(store.alert("default", "a").await.unwrap(), Some(new));
}

pub(crate) async fn schedules_with_labels_are_found(place: &Place) {
    let store = place.open().await;
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    for (id, pairs) in [("a", &[("team", "x"), ("size", "l")][..]), ("b", &[("team", "x")]), ("c", &[])] {
        let mut schedule = schedule(id);
        schedule.labels = labels(pairs);
        store.write_plan(vec![put(&schedule, None, vec![])]).await.unwrap();
    }
    let ids: Vec<String> = ["a", "c", "b", "nobody"].map(str::to_owned).into();
    let found = async |pairs: &[(&str, &str)]| {
        let mut found = store.schedules_labelled("default", &ids, &labels(pairs)).await.unwrap();
        found.sort();
        found
    };
    assert_eq!(found(&[("team", "x")]).await, ["a", "b"]);
    assert_eq!(found(&[("team", "x"), ("size", "l")]).await, ["a"]);
    assert!(found(&[("team", "y")]).await.is_empty());
}

pub(crate) async fn finished_runs_come_in_the_order_of_their_ends(place: &Place) {
    let store = place.open().await;
    let schedule = schedule("s");
    store.write_plan(vec![put(&schedule, None, vec![])]).await.unwrap();
    let mut runs: Vec<Run> =
        (0..5).map(|n| Run { finished_us: Some(NOON_US), ..finished(&schedule, 3, NOON_US + n) }).collect();
    runs[0].finished_us = Some(NOON_US + SECOND_US);
    runs.push(Run { state: RunState::Cancelled, ..finished(&schedule, 3, NOON_US + 10) });
    runs.push(waiting(&schedule, 3, NOON_US + 11));
    store.emit(&runs, &[]).await.unwrap();
    let default = ["default".to_owned()];
    let read = async |since, limit| store.runs_finished(3, &default, since, limit).await.unwrap();
    let all = async |limit| {
        let (mut place, mut seen) = (Some((NOON_US, None)), Vec::new());
        while let Some(from) = place {
            let (page, next) = read(from, limit).await;
            seen.extend(page.iter().map(|run| (run.finished_us.unwrap(), run.id)));
            place = next.map(|(us, run)| (us, Some(run)));
        }
        seen
    };
    let mut expected: Vec<_> = runs[..5].iter().map(|run| (run.finished_us.unwrap(), run.id)).collect();
    expected.sort();
    assert_eq!(all(2).await, expected);
    assert_eq!(store.runs_finished(4, &default, (NOON_US, None), 9).await.unwrap(), (vec![], None));
    let others = ["other".to_owned()];
    assert_eq!(store.runs_finished(3, &others, (NOON_US, None), 9).await.unwrap(), (vec![], None));
    let (page, next) = read((NOON_US + 1, None), 9).await;
    assert_eq!((page.len(), next), (1, None));
    // Those after one that cannot be read are found.
    let torn = runs.iter().find(|run| run.id == expected[1].1).unwrap();
    place.sql(&format!("UPDATE runs SET priority = 99 WHERE launch_us = {}", torn.launch_us)).await;
    expected.remove(1);
    for limit in 1..4 {
        assert_eq!(all(limit).await, expected, "{limit}");
    }
}

/// A run of which events expired, and that is all, is one with failures, whoever asks.
pub(crate) async fn expired_events_are_failures(place: &Place) {
    let store = place.open().await;
    let schedule = schedule("s");
    store.write_plan(vec![put(&schedule, None, vec![])]).await.unwrap();
    let mut good = finished(&schedule, 3, NOON_US);
    good.counts = Counts { succeeded: good.events, ..Counts::default() };
    let mut runs = vec![good];
    for n in 1..5_i64 {
        let mut run = finished(&schedule, 3, NOON_US + n);
        let events = run.events;
        let of = |at: i64| if at == n { events } else { 0 };
        run.counts = Counts { failed: of(1), dead: of(2), expired: of(3), lost: of(4), ..Counts::default() };
        runs.push(run);
    }
    runs.iter_mut().for_each(|run| run.finished_us = Some(NOON_US + SECOND_US));
    store.emit(&runs, &[]).await.unwrap();
    assert!(runs[0].counts.badly() == 0 && runs[1..].iter().all(|run| run.counts.badly() > 0));
    let sorted = |runs: &[Run]| {
        let mut ids: Vec<_> = runs.iter().map(|run| run.id).collect();
        ids.sort();
        ids
    };
    let bad = sorted(&runs[1..]);
    let not_well = store.runs_not_well(3, NOON_US, 9).await.unwrap();
    assert_eq!(sorted(&not_well), bad);
    for schedule_uid in [None, Some(schedule.uid)] {
        for (asked, expected) in [(Some(true), bad.clone()), (Some(false), sorted(&runs[..1]))] {
            let filter = RunFilter { failures: asked, schedule_uid, ..RunFilter::default() };
            let found = store.list_runs("default", &filter, None, 9).await.unwrap();
            assert_eq!(sorted(&found), expected, "{asked:?} {schedule_uid:?}");
        }
    }
}
