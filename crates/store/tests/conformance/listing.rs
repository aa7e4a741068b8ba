//! Runs whose items are fetched: who may write of them, and that nothing is handed over by half.

use std::sync::Arc;

use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::Message;
use tollgate_core::items::{Item, ItemPage, Pager};
use tollgate_core::model::{ItemsFrom, Payload, Run, RunState, SECOND_US, Schedule, SkipReason, Skipped};
use tollgate_core::own::Lease;
use tollgate_store::Store;
use tollgate_store::items::ItemRun;
use tollgate_store::listing::{ListingFilter, Written};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, put, run, schedule, take};

fn with_list(id: &str) -> Schedule {
    let from = Some(Arc::new(ItemsFrom::http("http://l.example/".to_owned())));
    let payload = Payload { from, ..Payload::of("{\"a\":1}") };
    Schedule { events: 0, payload, ..schedule(id) }
}

fn listing(schedule: &Schedule, shard: u16, launch_us: i64) -> Run {
    Run { state: RunState::Listing, events: 0, ..run(schedule, shard, launch_us) }
}

fn carries(run: &Run) -> ItemRun {
    ItemRun { schedule_uid: run.schedule_uid, payload: "{\"a\":1}".to_owned() }
}

fn pages(items: u32, what: &str) -> Vec<ItemPage> {
    let mut pager = Pager::default();
    let item = |index: u32| Item {
        key: String::new(),
        units: 0,
        data: format!("\"{what} {index}{}\"", "x".repeat(40_000)),
    };
    let mut pages: Vec<ItemPage> = (0..items).filter_map(|index| pager.push(&item(index))).collect();
    pages.extend(pager.finish());
    pages
}

async fn looked(
    store: &dyn Store,
    shards: &[u16],
    until_us: i64,
    except: &[Uuid],
    each_max: u32,
) -> Vec<Run> {
    let (shards, except) = (shards.to_vec(), except.to_vec());
    store.listing_runs(ListingFilter { shards, until_us, except, each_max, limit: 100 }).await.unwrap()
}

async fn row(store: &dyn Store, of: &Run) -> Run {
    store.runs(of.shard, &[of.id]).await.unwrap().remove(0)
}

pub(crate) async fn runs_that_wait_for_items_are_found_fairly(place: &Place) {
    let store = place.open().await;
    let mut many = with_list("many");
    many.namespace = "busy".to_owned();
    let (one, other) = (with_list("one"), with_list("other"));
    let mut runs: Vec<Run> = (0..30).map(|n| listing(&many, 5, NOON_US + n)).collect();
    runs.extend((0..3).map(|n| listing(&one, 5, NOON_US + 100 + n)));
    runs.push(listing(&other, 6, NOON_US + 50));
    runs.push(listing(&other, 7, NOON_US));
    runs.push(listing(&other, 5, NOON_US + 1_000));
    runs.push(run(&one, 5, NOON_US + 7));
    store.emit(&runs, &[]).await.unwrap();
    let found = looked(&*store, &[5, 6], NOON_US + 500, &[], 3).await;
    let launches: Vec<(&str, i64)> =
        found.iter().map(|run| (run.schedule_id.as_str(), run.launch_us - NOON_US)).collect();
    let expected = [("many", 0), ("other", 50), ("many", 1), ("one", 100), ("many", 2), ("one", 101)];
    assert_eq!(launches, expected, "the next of each schedule first, and no namespace before all others");
    assert!(found.iter().all(|run| run.state == RunState::Listing && run.events == 0));
    let except: Vec<Uuid> = found.iter().map(|run| run.id.0).collect();
    let rest = looked(&*store, &[5, 6], NOON_US + 500, &except, 1).await;
    assert_eq!(rest.iter().map(|run| run.launch_us - NOON_US).collect::<Vec<_>>(), [3, 102]);
    // Nobody takes them for anything else.
    let emitted = store.emitted_runs(5, i64::MIN..i64::MAX, 100).await.unwrap();
    assert_eq!(emitted.runs.iter().map(|run| run.launch_us).collect::<Vec<_>>(), [NOON_US + 7]);
    assert!(store.unreadable_runs(5, Default::default(), 100).await.unwrap().runs.is_empty());
    let loaded = store.load_shard(5).await.unwrap();
    assert!(loaded.runs.is_empty() && loaded.counted.is_empty() && store.corrupt_rows().is_empty());
}

pub(crate) async fn a_list_that_is_fetched_anew_takes_the_place_of_what_was_left(place: &Place) {
    let store = place.open().await;
    let one = listing(&with_list("one"), 5, NOON_US);
    store.emit(std::slice::from_ref(&one), &[]).await.unwrap();
    let lease = take(&*store, 5).await;
    let begin = async || store.begin_list(&lease, &one, carries(&one), NOON_US).await.unwrap();
    assert_eq!(begin().await, Written::Done);
    // More than one transaction removes.
    assert_eq!(store.add_list_pages(&lease, &one, pages(200, "old")).await.unwrap(), Written::Done);
    assert_eq!(begin().await, Written::Done);
    assert_eq!(store.item_page(5, one.id, 0).await.unwrap(), None);
    assert_eq!(store.add_list_pages(&lease, &one, pages(4, "new")).await.unwrap(), Written::Done);
    assert_eq!(store.hand_over_listed(&lease, &one, 4, 9).await.unwrap(), Written::Done);
    let handed = store.emitted_runs(5, i64::MIN..i64::MAX, 10).await.unwrap().runs;
    assert_eq!(handed, [Run { state: RunState::Emitted, events: 4, units_max: 9, ..one.clone() }]);
    let page = store.item_page(5, one.id, 3).await.unwrap().unwrap();
    assert!(page.body.contains("new 3") && !page.body.contains("old"), "{page:?}");
    assert_eq!(store.item_run(5, one.id).await.unwrap().unwrap(), carries(&one));
    assert_eq!(store.item_page(5, one.id, 4).await.unwrap(), None);
    assert_eq!(
        store.hand_over_listed(&lease, &one, 9, 0).await.unwrap(),
        Written::NotWaiting,
        "it is handed over"
    );
    // While its run is there, retention leaves it alone.
    store.prune(NOON_US + 1, NOON_US + 7_200 * SECOND_US).await.unwrap();
    assert!(store.item_page(5, one.id, 3).await.unwrap().is_some());
}

pub(crate) async fn who_has_lost_a_shard_writes_nothing_of_its_lists(place: &Place) {
    let store = place.open().await;
    let one = listing(&with_list("one"), 5, NOON_US);
    store.emit(std::slice::from_ref(&one), &[]).await.unwrap();
    let old = take(&*store, 5).await;
    store.begin_list(&old, &one, carries(&one), NOON_US).await.unwrap();
    store.add_list_pages(&old, &one, pages(3, "old")).await.unwrap();
    let new = store.take_shard(&old, "next").await.unwrap().unwrap();
    let refused = async |lease: &Lease| {
        let skipped = skipped(&one);
        [
            store.begin_list(lease, &one, carries(&one), NOON_US).await.unwrap(),
            store.add_list_pages(lease, &one, pages(1, "late")).await.unwrap(),
            store.hand_over_listed(lease, &one, 3, 0).await.unwrap(),
            store.list_failed(lease, &one, "HTTP 503").await.unwrap(),
            store.give_up_list(lease, &one, &skipped, "HTTP 503", None).await.unwrap(),
            store.drop_list(lease, &one).await.unwrap(),
        ]
    };
    assert_eq!(refused(&old).await, [Written::ElsewhereNow; 6]);
    assert_eq!(row(&*store, &one).await, one, "nothing half done");
    assert!(store.list_skipped(one.schedule_uid, None, 9).await.unwrap().is_empty());
    assert!(store.item_page(5, one.id, 2).await.unwrap().is_some());
    // The next owner begins anew, and commits of the owner do not stop it.
    store.begin_list(&new, &one, carries(&one), NOON_US).await.unwrap();
    store.commit(&new, &Changes::default()).await.unwrap();
    store.add_list_pages(&new, &one, pages(2, "new")).await.unwrap();
    assert_eq!(store.hand_over_listed(&new, &one, 2, 0).await.unwrap(), Written::Done);
    assert_eq!(row(&*store, &one).await.events, 2);
    assert_eq!(store.item_page(5, one.id, 2).await.unwrap(), None);
}

fn skipped(run: &Run) -> Skipped {
    let (schedule_uid, launch_us) = (run.schedule_uid, run.launch_us);
    Skipped { schedule_uid, launch_us, reason: SkipReason::NotListed, recorded_us: NOON_US + 9 }
}

pub(crate) async fn a_list_that_is_given_up_ends_its_run_and_is_recorded(place: &Place) {
    let store = place.open().await;
    let schedule = with_list("one");
    store.write_plan(vec![put(&schedule, None, Vec::new())]).await.unwrap();
    assert_eq!(store.schedule("default", "one").await.unwrap().unwrap(), schedule, "with its list");
    let one = listing(&schedule, 5, NOON_US);
    store.emit(std::slice::from_ref(&one), &[]).await.unwrap();
    let lease = take(&*store, 5).await;
    store.begin_list(&lease, &one, carries(&one), NOON_US).await.unwrap();
    store.add_list_pages(&lease, &one, pages(3, "old")).await.unwrap();
    assert_eq!(store.list_failed(&lease, &one, "HTTP 503").await.unwrap(), Written::Done);
    assert_eq!(row(&*store, &one).await, Run { reason: "HTTP 503".to_owned(), ..one.clone() });
    let newer = Run { generation: one.generation + 1, ..one.clone() };
    let late = store.give_up_list(&lease, &newer, &skipped(&one), "HTTP 401", None).await.unwrap();
    assert_eq!(late, Written::NotWaiting, "of another generation");
    assert!(store.list_skipped(schedule.uid, None, 9).await.unwrap().is_empty());
    let end = Message::run_ended(super::chains::end());
    let given_up =
        store.give_up_list(&lease, &one, &skipped(&one), "HTTP 401", Some(end.clone())).await.unwrap();
    assert_eq!(store.inbox(one.shard, 10).await.unwrap(), [end]);
    assert_eq!((given_up, store.drop_list(&lease, &one).await.unwrap()), (Written::Done, Written::Done));
    let ended = row(&*store, &one).await;
    assert_eq!((ended.state, ended.reason.as_str()), (RunState::Skipped, "HTTP 401"));
    assert_eq!((ended.finished_us, ended.events), (Some(NOON_US + 9), 0));
    assert_eq!(store.list_skipped(schedule.uid, None, 9).await.unwrap(), [skipped(&one)]);
    assert_eq!(store.item_run(5, one.id).await.unwrap(), None);
    let told = store.not_listed_triggers(NOON_US, 10).await.unwrap();
    assert_eq!(told.iter().map(|of| (of.schedule.as_str(), of.triggers)).collect::<Vec<_>>(), [("one", 1)]);
    assert!(store.missed_triggers(NOON_US, 10).await.unwrap().is_empty());
    assert!(store.not_listed_triggers(NOON_US + 10, 10).await.unwrap().is_empty());
    let again = store.give_up_list(&lease, &one, &skipped(&one), "HTTP 401", None).await.unwrap();
    assert_eq!(again, Written::NotWaiting);
    assert!(looked(&*store, &[5], NOON_US, &[], 9).await.is_empty());
}
