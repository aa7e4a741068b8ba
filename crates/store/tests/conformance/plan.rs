//! Schedules, policies, children, the registry, the audit log.

use futures::future::join_all;
use tollgate_core::model::{Payload, Policy, Schedule, Target};
use tollgate_core::plan::Notice;
use tollgate_store::plan::{AuditFilter, Filter, PlanWrite};
use tollgate_store::{Store, StoreError};
use uuid::Uuid;

use super::outbox::tell;
use super::place::Place;
use super::samples::{
    NOON_US, audit, child, delete, delete_policy, finished, pause, policy, put, put_policy, schedule,
};

async fn write(store: &dyn Store, writes: Vec<PlanWrite>) {
    store.write_plan(writes).await.unwrap();
}

/// (zone, launch expression) pairs of the cron classes that the tests use.
async fn registry(store: &dyn Store) -> Vec<String> {
    let eligible: Vec<String> = ["H.1", "H.2", "H.3"].map(str::to_owned).to_vec();
    store.registry(&eligible).await.unwrap().into_iter().map(|(_, expression)| expression).collect()
}

pub(crate) async fn schedule_is_read_as_written(place: &Place) {
    let store = place.open().await;
    let mut one = schedule("one");
    one.pause = Some(pause("why"));
    one.labels.insert("team".to_owned(), "red \"1\"".to_owned());
    write(&*store, vec![put(&one, None, vec![child("H.2", 30)])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(one.clone()));
    assert_eq!(store.schedule("other", "one").await.unwrap(), None);
    let changed = Schedule { generation: 2, events: 7, priority: 9, pause: None, ..one };
    write(&*store, vec![put(&changed, Some(1), vec![])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(changed));
}

/// What a version does that knows no items: it leaves their column as it is, and writes the rest.
pub(crate) async fn items_go_with_their_generation(place: &Place) {
    let store = place.open().await;
    let items = "acme\t{\"a\":\"é\\n\"}\n\t12\t7\n";
    let mut one = schedule("one");
    one.payload = one.payload.with_items(items);
    one.units = 3;
    write(&*store, vec![put(&one, None, vec![child("H.2", 30)])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(one.clone()));
    let specs = store.specs(0, &[(one.uid, 1)]).await.unwrap();
    assert!(
        specs.iter().all(|spec| (&*spec.payload.items, spec.payload.units_max, spec.units) == (items, 12, 3)),
        "{specs:?}"
    );
    let changed = Schedule { generation: 2, priority: 9, ..one.clone() };
    write(&*store, vec![put(&changed, Some(1), vec![])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(changed.clone()));
    let spec =
        serde_json::to_string(&Schedule { generation: 3, payload: Payload::default(), ..changed.clone() });
    let update = format!("UPDATE schedules SET generation = 3, spec = '{}' WHERE id = 'one'", spec.unwrap());
    place.sql(&update).await;
    let read = store.schedule("default", "one").await.unwrap().unwrap();
    assert_eq!((&*read.payload.items, read.payload.units_max, read.generation), ("", 0, 3));
    let with_others = Schedule { generation: 4, payload: one.payload.with_items("\t8\n"), ..changed };
    write(&*store, vec![put(&with_others, Some(3), vec![])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(with_others));
}

pub(crate) async fn taken_name_conflicts(place: &Place) {
    let store = place.open().await;
    write(&*store, vec![put(&schedule("one"), None, vec![])]).await;
    let error =
        store.write_plan(vec![put(&schedule("one"), None, vec![])]).await.expect_err("the name is taken");
    assert!(
        matches!(&error, StoreError::Conflict { what } if what == "schedule \"one\" already exists"),
        "{error}"
    );
    let twice = vec![put(&schedule("two"), None, vec![]), put(&schedule("two"), None, vec![])];
    assert!(matches!(store.write_plan(twice).await, Err(StoreError::Conflict { .. })));
    write(&*store, vec![put_policy(&policy("p"), None)]).await;
    let error = store.write_plan(vec![put_policy(&policy("p"), None)]).await.expect_err("the name is taken");
    assert!(
        matches!(&error, StoreError::Conflict { what } if what == "policy \"p\" already exists"),
        "{error}"
    );
}

pub(crate) async fn stale_etag_conflicts_and_names_both(place: &Place) {
    let store = place.open().await;
    let one = Schedule { generation: 5, ..schedule("one") };
    write(&*store, vec![put(&one, None, vec![])]).await;
    let stale = Schedule { generation: 4, ..one };
    for write in [put(&stale, Some(3), vec![]), delete(&Schedule { generation: 3, ..stale.clone() })] {
        let error = store.write_plan(vec![write]).await.expect_err("stale");
        let expected = "schedule \"one\" was changed meanwhile: etag is 5, given 3";
        assert!(matches!(&error, StoreError::Conflict { what } if what == expected), "{error}");
    }
    let p = policy("p");
    write(&*store, vec![put_policy(&p, None)]).await;
    let error = store.write_plan(vec![put_policy(&p, Some(9))]).await.expect_err("stale");
    assert!(error.to_string().contains("etag is 1, given 9"), "{error}");
}

pub(crate) async fn missing_schedule_is_not_found(place: &Place) {
    let store = place.open().await;
    for write in
        [put(&schedule("one"), Some(1), vec![]), delete(&schedule("one")), delete_policy(&policy("one"))]
    {
        let error = store.write_plan(vec![write]).await.expect_err("it is not there");
        assert!(matches!(&error, StoreError::NotFound { what } if what.ends_with("\"one\"")), "{error}");
    }
}

pub(crate) async fn missing_policy_is_not_found(place: &Place) {
    let store = place.open().await;
    let p = policy("p");
    let under = Schedule { policy: Some("p".to_owned()), policy_uid: Some(p.uid), ..schedule("one") };
    let error = store.write_plan(vec![put(&under, None, vec![])]).await.expect_err("no such policy");
    assert!(matches!(&error, StoreError::NotFound { what } if what == "policy \"p\""), "{error}");
    write(&*store, vec![put_policy(&p, None), put(&under, None, vec![])]).await;
}

pub(crate) async fn policy_in_use_cannot_go(place: &Place) {
    let store = place.open().await;
    let p = policy("p");
    let mut writes = vec![put_policy(&p, None)];
    for id in ["a", "b", "c", "d"] {
        let under = Schedule { policy: Some("p".to_owned()), policy_uid: Some(p.uid), ..schedule(id) };
        writes.push(put(&under, None, vec![]));
    }
    write(&*store, writes).await;
    let error = store.write_plan(vec![delete_policy(&p)]).await.expect_err("it is in use");
    let expected = r#"policy "p" is used by schedules "a", "b", "c" and others"#;
    assert!(matches!(&error, StoreError::InUse { what } if what == expected), "{error}");
    assert_eq!(store.policy("default", "p").await.unwrap(), Some(p));
}

pub(crate) async fn policy_goes(place: &Place) {
    let store = place.open().await;
    let p = policy("p");
    write(&*store, vec![put_policy(&p, None)]).await;
    write(&*store, vec![delete_policy(&p)]).await;
    assert_eq!(store.policy("default", "p").await.unwrap(), None);
}

pub(crate) async fn policy_is_replaced(place: &Place) {
    let store = place.open().await;
    let mut p = policy("p");
    write(&*store, vec![put_policy(&p, None)]).await;
    p.generation = 2;
    p.limits.max_in_flight = Some(3);
    write(&*store, vec![put_policy(&p, Some(1))]).await;
    assert_eq!(store.policy("default", "p").await.unwrap(), Some(p));
}

pub(crate) async fn all_or_nothing(place: &Place) {
    let store = place.open().await;
    let writes = vec![
        put_policy(&policy("p"), None),
        tell(&Notice::of_policy(&policy("p"))),
        put(&schedule("one"), None, vec![child("H.1", 0)]),
        delete(&schedule("missing")),
    ];
    store.write_plan(writes).await.expect_err("the last one fails");
    assert_eq!(store.schedule("default", "one").await.unwrap(), None);
    assert_eq!(store.policy("default", "p").await.unwrap(), None);
    assert!(registry(&*store).await.is_empty());
    assert_eq!(store.audit("default", &Default::default(), None, 10).await.unwrap(), []);
    assert_eq!(store.outbox_lanes().await.unwrap(), []);
}

pub(crate) async fn children_are_replaced_in_order(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let children = vec![child("H.2", 30), child("H.1", 5), child("H.1", 5), child("H.3", 0)];
    write(&*store, vec![put(&one, None, children.clone())]).await;
    let stored = store.children(one.uid, None, 10).await.unwrap();
    assert_eq!(stored.iter().map(|stored| stored.ordinal).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(stored.into_iter().map(|stored| stored.child).collect::<Vec<_>>(), children);
    let rest = store.children(one.uid, Some(1), 1).await.unwrap();
    assert_eq!(rest.iter().map(|stored| stored.ordinal).collect::<Vec<_>>(), [2]);
    let changed = Schedule { generation: 2, ..one.clone() };
    write(&*store, vec![put(&changed, Some(1), vec![child("H.9", 1)])]).await;
    let stored = store.children(one.uid, None, 10).await.unwrap();
    assert_eq!(stored.into_iter().map(|stored| stored.child).collect::<Vec<_>>(), [child("H.9", 1)]);
}

pub(crate) async fn registry_counts_children(place: &Place) {
    let store = place.open().await;
    let (one, two) = (schedule("one"), schedule("two"));
    write(
        &*store,
        vec![
            put(&one, None, vec![child("H.1", 0), child("H.1", 1)]),
            put(&two, None, vec![child("H.1", 0), child("H.2", 0)]),
        ],
    )
    .await;
    assert_eq!(place.number("SELECT children FROM launch_shards WHERE launch_expression = 'H.1'").await, 3);
    assert_eq!(registry(&*store).await, ["H.1", "H.2"]);
    // A replacement moves one, and takes the others away.
    let moved = Schedule { generation: 2, ..one };
    write(&*store, vec![put(&moved, Some(1), vec![child("H.3", 0)])]).await;
    assert_eq!(place.number("SELECT children FROM launch_shards WHERE launch_expression = 'H.1'").await, 1);
    assert_eq!(registry(&*store).await, ["H.1", "H.2", "H.3"]);
    write(&*store, vec![delete(&two)]).await;
    assert_eq!(registry(&*store).await, ["H.3"]);
    assert_eq!(store.zones().await.unwrap(), ["Europe/Berlin"]);
    write(&*store, vec![delete(&moved)]).await;
    assert_eq!(place.number("SELECT count(*) FROM launch_shards").await, 0);
    assert!(store.zones().await.unwrap().is_empty());
}

pub(crate) async fn delete_and_create_again_in_one_transaction(place: &Place) {
    let store = place.open().await;
    let (old, new) = (schedule("one"), schedule("one"));
    write(&*store, vec![put(&old, None, vec![child("H.1", 0)])]).await;
    write(&*store, vec![delete(&old), put(&new, None, vec![child("H.1", 7)])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(new.clone()));
    assert_eq!(place.number("SELECT children FROM launch_shards").await, 1);
    // And the same schedule twice in one transaction.
    let (second, third) = (Schedule { generation: 2, ..new.clone() }, Schedule { generation: 3, ..new });
    write(&*store, vec![put(&second, Some(1), vec![]), put(&third, Some(2), vec![child("H.2", 7)])]).await;
    assert_eq!(registry(&*store).await, ["H.2"]);
}

pub(crate) async fn several_by_id_leave_out_the_missing(place: &Place) {
    let store = place.open().await;
    write(&*store, vec![put(&schedule("b"), None, vec![]), put(&schedule("a"), None, vec![])]).await;
    write(&*store, vec![put_policy(&policy("q"), None)]).await;
    let ids = ["b", "none", "a"].map(str::to_owned);
    let found = store.schedules("default", &ids).await.unwrap();
    assert_eq!(found.iter().map(|found| found.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(store.policies("default", &["q".to_owned(), "r".to_owned()]).await.unwrap().len(), 1);
    assert!(store.schedules("default", &[]).await.unwrap().is_empty());
}

pub(crate) async fn list_pages_in_id_order(place: &Place) {
    let store = place.open().await;
    // By bytes, whatever the server's collation.
    let ids = ["B", "a", "a-1", "a_1", "b", "z"];
    write(&*store, ids.iter().rev().map(|id| put(&schedule(id), None, vec![])).collect()).await;
    let mut seen: Vec<String> = Vec::new();
    loop {
        let after = seen.last().cloned();
        let page = store.list_schedules("default", &Filter::default(), after.as_deref(), 4).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|schedule| schedule.id));
    }
    assert_eq!(seen, ids);
}

pub(crate) async fn list_filters_hold_together(place: &Place) {
    let store = place.open().await;
    let p = policy("p");
    let label = |value: &str| [("team".to_owned(), value.to_owned())];
    let mut one = Schedule { policy: Some("p".to_owned()), policy_uid: Some(p.uid), ..schedule("job-1") };
    one.labels.extend(label("red"));
    one.labels.insert("size".to_owned(), "l".to_owned());
    let mut two = Schedule { pause: Some(pause("x")), ..schedule("job-2") };
    two.labels.extend(label("red"));
    let mut three = schedule("other");
    three.timing.time_zone = "UTC".to_owned();
    write(
        &*store,
        vec![
            put_policy(&p, None),
            put(&one, None, vec![]),
            put(&two, None, vec![]),
            put(&three, None, vec![]),
        ],
    )
    .await;
    let found = async |filter: Filter| {
        let page = store.list_schedules("default", &filter, None, 10).await.unwrap();
        page.into_iter().map(|schedule| schedule.id).collect::<Vec<_>>()
    };
    let all = Filter::default();
    assert_eq!(found(Filter { id_prefix: Some("job-".to_owned()), ..all.clone() }).await, ["job-1", "job-2"]);
    assert_eq!(found(Filter { id_part: Some("b-2".to_owned()), ..all.clone() }).await, ["job-2"]);
    assert_eq!(found(Filter { policy: Some("p".to_owned()), ..all.clone() }).await, ["job-1"]);
    assert_eq!(found(Filter { time_zone: Some("UTC".to_owned()), ..all.clone() }).await, ["other"]);
    assert_eq!(found(Filter { paused: Some(true), ..all.clone() }).await, ["job-2"]);
    assert_eq!(found(Filter { paused: Some(false), ..all.clone() }).await, ["job-1", "other"]);
    assert_eq!(found(Filter { labels: label("red").to_vec(), ..all.clone() }).await, ["job-1", "job-2"]);
    assert_eq!(found(Filter { labels: label("blue").to_vec(), ..all.clone() }).await, [""; 0]);
    let both = [("team".to_owned(), "red".to_owned()), ("size".to_owned(), "l".to_owned())];
    assert_eq!(found(Filter { labels: both.to_vec(), ..all.clone() }).await, ["job-1"]);
    assert_eq!(found(Filter { labels: label("red").to_vec(), paused: Some(true), ..all }).await, ["job-2"]);
}

pub(crate) async fn policies_are_listed_and_filtered(place: &Place) {
    let store = place.open().await;
    let mut paused = policy("b");
    paused.pause = Some(pause("x"));
    let mut labelled = policy("c");
    labelled.labels.insert("team".to_owned(), "red".to_owned());
    write(
        &*store,
        vec![put_policy(&labelled, None), put_policy(&paused, None), put_policy(&policy("a"), None)],
    )
    .await;
    let found = async |filter: Filter, after: Option<&str>| {
        let page = store.list_policies("default", &filter, after, 2).await.unwrap();
        page.into_iter().map(|policy| policy.id).collect::<Vec<_>>()
    };
    let all = Filter::default();
    assert_eq!(found(all.clone(), None).await, ["a", "b"]);
    assert_eq!(found(all.clone(), Some("b")).await, ["c"]);
    assert_eq!(found(Filter { paused: Some(true), ..all.clone() }, None).await, ["b"]);
    let label = ("team".to_owned(), "red".to_owned());
    assert_eq!(found(Filter { labels: vec![label], ..all.clone() }, None).await, ["c"]);
    assert_eq!(found(Filter { id_prefix: Some("a".to_owned()), ..all }, None).await, ["a"]);
}

pub(crate) async fn namespaces_are_listed(place: &Place) {
    let store = place.open().await;
    assert!(store.list_namespaces(None, 9).await.unwrap().is_empty());
    let schedule_of = |namespace: &str, id: &str| {
        let schedule = Schedule { namespace: namespace.to_owned(), ..schedule(id) };
        put(&schedule, None, vec![])
    };
    let policy_of =
        |namespace: &str| put_policy(&Policy { namespace: namespace.to_owned(), ..policy("p") }, None);
    // By bytes, whatever the server's collation.
    let writes = ["b", "a-1", "b"].iter().enumerate().map(|(n, of)| schedule_of(of, &format!("s{n}")));
    write(&*store, writes.chain(["a", "z", "b"].iter().map(|of| policy_of(of))).collect()).await;
    assert_eq!(store.list_namespaces(None, 9).await.unwrap(), ["a", "a-1", "b", "z"]);
    assert_eq!(store.list_namespaces(Some("a"), 2).await.unwrap(), ["a-1", "b"]);
    assert!(store.list_namespaces(Some("z"), 2).await.unwrap().is_empty());
}

pub(crate) async fn audit_is_newest_first_by_page(place: &Place) {
    let store = place.open().await;
    let mut notes: Vec<_> =
        (0..5).map(|i| audit(&format!("namespaces/default/schedules/{}", i % 2))).collect();
    for (i, note) in notes.iter_mut().enumerate() {
        note.id = Uuid::from_u128(0x0193_0000_0000_7000_8000_0000_0000_0000 + i as u128);
    }
    write(&*store, notes.iter().map(|audit| PlanWrite::Note { audit: audit.clone() }).collect()).await;
    notes.reverse();
    let first = store.audit("default", &Default::default(), None, 3).await.unwrap();
    assert_eq!(first, notes[..3]);
    assert_eq!(store.audit("default", &Default::default(), Some(first[2].id), 3).await.unwrap(), notes[3..]);
    let one =
        AuditFilter { resource: Some("namespaces/default/schedules/1".to_owned()), ..AuditFilter::default() };
    let of_one = store.audit("default", &one, None, 10).await.unwrap();
    assert_eq!(of_one, [notes[1].clone(), notes[3].clone()]);
    let before = store.audit("default", &one, Some(of_one[0].id), 10).await.unwrap();
    assert_eq!(before, of_one[1..]);
    let by = |actor: &str, from_us, to_us| AuditFilter {
        actor: Some(actor.to_owned()),
        from_us,
        to_us,
        ..AuditFilter::default()
    };
    let (of, at_us) = (&notes[0].actor, notes[0].at_us);
    let found = async |filter: AuditFilter| store.audit("default", &filter, None, 10).await.unwrap().len();
    assert_eq!(
        found(by(of, Some(at_us), Some(at_us + 1))).await,
        notes.iter().filter(|n| n.at_us == at_us).count()
    );
    assert_eq!(found(by(of, Some(i64::MAX - 1), None)).await, 0);
    assert_eq!(found(by("nobody", None, None)).await, 0);
    assert_eq!(store.audit("other", &Default::default(), None, 10).await.unwrap(), []);
}

/// Whoever prunes says how far before; of two that saw the same, one goes on.
pub(crate) async fn pruning_is_noted_once(place: &Place) {
    let store = place.open().await;
    assert_eq!(store.pruned_before_us().await.unwrap(), None);
    assert!(store.note_pruning(None, 5).await.unwrap());
    assert!(!store.note_pruning(None, 6).await.unwrap());
    assert!(!store.note_pruning(Some(4), 6).await.unwrap());
    assert!(store.note_pruning(Some(5), 6).await.unwrap());
    assert_eq!(store.pruned_before_us().await.unwrap(), Some(6));
    store.close().await;
}

pub(crate) async fn deleting_keeps_runs(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    write(&*store, vec![put(&one, None, vec![])]).await;
    let run = finished(&one, 5, NOON_US);
    store.emit(std::slice::from_ref(&run), &[]).await.unwrap();
    write(&*store, vec![delete(&one)]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), None);
    assert_eq!(store.runs(5, &[run.id]).await.unwrap(), [run]);
}

#[expect(clippy::print_stderr, reason = "a measure for people")]
pub(crate) async fn ten_thousand_schedules(place: &Place) {
    let store = place.open().await;
    let p = policy("p");
    write(&*store, vec![put_policy(&p, None)]).await;
    let began = std::time::Instant::now();
    for chunk in 0..20 {
        let writes = (0..500).map(|i| {
            let id = format!("job-{:05}", chunk * 500 + i);
            let one = Schedule { policy: Some("p".to_owned()), policy_uid: Some(p.uid), ..schedule(&id) };
            put(&one, None, vec![child("H.1", i % 60), child("H.2", i % 60)])
        });
        write(&*store, writes.collect()).await;
    }
    let rate = 10_000.0 / began.elapsed().as_secs_f64();
    eprintln!("{rate:.0} schedules/s");
    assert_eq!(place.number("SELECT count(*) FROM schedules").await, 10_000);
    assert_eq!(
        place.number("SELECT children FROM launch_shards WHERE launch_expression = 'H.2'").await,
        10_000
    );
    assert_eq!(place.number("SELECT count(*) FROM run_specs WHERE shard_id = 5").await, 10_000);
    assert_eq!(place.number("SELECT count(*) FROM audit_log").await, 10_001);
}

pub(crate) async fn concurrent_writers_keep_the_registry(place: &Place) {
    let store = place.open().await;
    let writers = (0..8).map(|writer| {
        let store = store.clone();
        async move {
            for round in 0..10 {
                let one = schedule(&format!("{writer}-{round}"));
                // In opposite orders, so that writers would wait for each other without an order of their own.
                let mut children = vec![child("H.1", 0), child("H.2", 0), child("H.3", 0)];
                if writer % 2 == 0 {
                    children.reverse();
                }
                store.write_plan(vec![put(&one, None, children)]).await.unwrap();
                if round % 2 == 0 {
                    store.write_plan(vec![delete(&one)]).await.unwrap();
                }
            }
        }
    });
    join_all(writers).await;
    assert_eq!(place.number("SELECT count(*) FROM launch_shards WHERE children = 40").await, 3);
}

pub(crate) async fn corrupt_schedule_is_named(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    write(&*store, vec![put(&one, None, vec![])]).await;
    place.sql("UPDATE schedules SET spec = '{\"uid\": 1}'").await;
    let error = store.schedule("default", "one").await.expect_err("it is corrupt");
    let StoreError::Corrupt { table, key, column, .. } = &error else { panic!("{error}") };
    assert_eq!((*table, *column), ("schedules", "spec"));
    assert!(key.contains(&one.uid.to_string()));
}

pub(crate) async fn text_survives(place: &Place) {
    let store = place.open().await;
    let mut one = schedule("one");
    one.payload.json = format!("\"{}'%_\\u0000\u{1F9FE}\"", "x".repeat(200_000));
    one.description = "'; DROP TABLE schedules; --\t\u{0}".to_owned();
    if let Target::Http { http, .. } = &mut one.target {
        http.headers.insert("X-A".to_owned(), "\\ \" ü".to_owned());
    }
    write(&*store, vec![put(&one, None, vec![])]).await;
    assert_eq!(store.schedule("default", "one").await.unwrap(), Some(one.clone()));
    let spec = store.specs(5, &[(one.uid, 1)]).await.unwrap();
    assert_eq!(spec[0].payload, one.payload);
}
