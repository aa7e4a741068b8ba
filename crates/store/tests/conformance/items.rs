//! Items of submitted runs, and the submissions that bring them.

use tollgate_core::items::{Item, ItemLine, ItemPage, ItemsDigest, Pager, ReadPage};
use tollgate_core::model::{DAY_US, Run, RunId, RunKind, SECOND_US};
use tollgate_store::Store;
use tollgate_store::items::StoredSubmission;
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, finished, schedule};

const HOUR_US: i64 = 3_600 * SECOND_US;

fn submission(schedule_uid: Uuid, request_id: &str, at_us: i64) -> StoredSubmission {
    StoredSubmission {
        schedule_uid,
        request_id: request_id.to_owned(),
        shard: 5,
        run: RunId::derive(schedule_uid, at_us),
        launch_us: at_us,
        asked: "{}".to_owned(),
        created_us: at_us,
        items: 0,
        digest: ItemsDigest::default(),
        units_max: 0,
        made_us: None,
    }
}

/// Pages of items whose keys are `k0` to `k2` in turn, the last without; the digest, and the most units that one says.
fn pages(from: u32, items: u32, digest: ItemsDigest) -> (Vec<ItemPage>, ItemsDigest, u32) {
    let mut pager = Pager::resume(from, digest);
    let item = |index: u32| Item {
        key: if index % 4 == 3 { String::new() } else { format!("k{}", index % 4) },
        units: if index == 7 { 40 } else { index % 2 },
        data: format!("\"{index}{}\"", "é".repeat(20_000)),
    };
    let mut pages: Vec<ItemPage> =
        (from..from + items).filter_map(|index| pager.push(&item(index))).collect();
    pages.extend(pager.finish());
    (pages, pager.digest(), pager.units_max())
}

async fn add(store: &dyn Store, seen: &mut StoredSubmission, items: u32) -> bool {
    let (pages, digest, units_max) = pages(seen.items, items, seen.digest);
    let to = (seen.items + items, digest, seen.units_max.max(units_max));
    let is_added = store.add_item_pages(seen, pages, to, NOON_US).await.unwrap();
    if is_added {
        (seen.items, seen.digest, seen.units_max) = to;
    }
    is_added
}

pub(crate) async fn items_are_read_page_by_page(place: &Place) {
    let store = place.open().await;
    let mut seen = submission(Uuid::new_v4(), "r", NOON_US);
    assert!(store.begin_submission(&seen, r#"{"a":"é"}"#).await.unwrap());
    assert!(add(&*store, &mut seen, 10).await && add(&*store, &mut seen, 1).await);
    assert_eq!(store.submission(seen.schedule_uid, "r").await.unwrap().as_ref(), Some(&seen));
    assert_eq!(seen.units_max, 40);
    let of_run = store.item_run(5, seen.run).await.unwrap().unwrap();
    assert_eq!((of_run.schedule_uid, of_run.payload.as_str()), (seen.schedule_uid, r#"{"a":"é"}"#));
    assert_eq!(store.item_run(6, seen.run).await.unwrap(), None);
    let mut starts = Vec::new();
    for index in 0..11 {
        let page = ReadPage::of(store.item_page(5, seen.run, index).await.unwrap().unwrap()).unwrap();
        let ItemLine { key, units, data } = page.item(index).unwrap();
        assert_eq!(units, if index == 7 { 40 } else { index % 2 });
        assert!(data.starts_with(&format!("\"{index}é")), "{index}");
        assert_eq!(key, ["k0", "k1", "k2", ""][index as usize % 4]);
        starts.push(page.range().start);
    }
    starts.dedup();
    assert!(starts.len() > 3 && starts.last() == Some(&10), "{starts:?}");
    assert_eq!(store.item_page(5, seen.run, 11).await.unwrap(), None);
    assert_eq!(store.item_page(6, seen.run, 0).await.unwrap(), None);
    let keys = store.item_page_keys(5, seen.run, 0, 100).await.unwrap();
    assert_eq!(keys.iter().map(|page| page.first_index).collect::<Vec<_>>(), starts);
    assert!(keys.iter().all(|page| page.body.is_empty() && !page.may_have("k7")));
    assert!(keys[0].may_have("k0") && keys[0].may_have("k2") && !keys.last().unwrap().may_have("k0"));
    let rest = store.item_page_keys(5, seen.run, starts[1] + 1, 1).await.unwrap();
    assert_eq!(rest.iter().map(|page| page.first_index).collect::<Vec<_>>(), [starts[1]]);
}

pub(crate) async fn of_two_who_add_one_does(place: &Place) {
    let store = place.open().await;
    let uid = Uuid::new_v4();
    let mut seen = submission(uid, "r", NOON_US);
    assert!(store.begin_submission(&seen, "").await.unwrap());
    assert!(!store.begin_submission(&submission(uid, "r", NOON_US + 1), "").await.unwrap(), "the request id");
    assert!(!store.begin_submission(&submission(uid, "s", NOON_US), "").await.unwrap(), "the run");
    assert!(store.begin_submission(&submission(Uuid::new_v4(), "r", NOON_US), "").await.unwrap());
    let mut other = seen.clone();
    assert!(add(&*store, &mut seen, 3).await);
    assert!(!add(&*store, &mut other, 2).await, "it has gone on");
    let page = store.item_page(5, seen.run, 2).await.unwrap().unwrap();
    assert_eq!(page.first_index + page.events, 3, "nothing of the other one is there");
    store.submission_made(&seen, NOON_US + 5).await.unwrap();
    store.submission_made(&seen, NOON_US + 9).await.unwrap();
    assert_eq!(store.submission(uid, "r").await.unwrap().unwrap().made_us, Some(NOON_US + 5));
    assert!(!add(&*store, &mut seen, 1).await, "nothing is added to a run that was made");
}

pub(crate) async fn what_belongs_to_no_run_goes(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let mut left = Vec::new();
    // Given up, gone on with, made and there, made and gone.
    for (name, at) in [("given up", 0), ("open", 1), ("made", 2), ("gone", -20 * DAY_US)] {
        let mut seen = submission(one.uid, name, NOON_US + at);
        assert!(store.begin_submission(&seen, "1").await.unwrap());
        assert!(add(&*store, &mut seen, 200).await);
        left.push(seen);
    }
    let made = |seen: &StoredSubmission| Run {
        id: seen.run,
        kind: RunKind::Submitted,
        finished_us: None,
        ..finished(&one, 5, seen.launch_us)
    };
    store.emit(&[made(&left[2])], &[]).await.unwrap();
    store.submission_made(&left[2], NOON_US).await.unwrap();
    store.submission_made(&left[3], NOON_US - 20 * DAY_US).await.unwrap();
    let is_there = async |seen: &StoredSubmission| {
        let page = store.item_page(5, seen.run, 199).await.unwrap().is_some();
        assert_eq!(store.item_run(5, seen.run).await.unwrap().is_some(), page);
        (store.submission(one.uid, &seen.request_id).await.unwrap().is_some(), page)
    };
    store.prune(NOON_US - 10 * DAY_US, NOON_US + HOUR_US / 2).await.unwrap();
    for (at, expected) in [(0, (true, true)), (1, (true, true)), (2, (true, true)), (3, (false, false))] {
        assert_eq!(is_there(&left[at]).await, expected, "{at}");
    }
    // One goes on in time.
    let mut open = left[1].clone();
    let (pages, digest, _) = pages(open.items, 1, open.digest);
    let to = (open.items + 1, digest, 0);
    assert!(store.add_item_pages(&open, pages, to, NOON_US + HOUR_US).await.unwrap());
    open.items += 1;
    store.prune(NOON_US - 10 * DAY_US, NOON_US + HOUR_US + 10 * SECOND_US).await.unwrap();
    for (at, expected) in [(0, (false, false)), (1, (true, true)), (2, (true, true))] {
        assert_eq!(is_there(&left[at]).await, expected, "{at}");
    }
    assert!(!add(&*store, &mut left[0], 1).await, "nobody goes on with what was given up");
    // A week later nobody remembers the request; its run has its items.
    store.prune(NOON_US - 10 * DAY_US, NOON_US + 7 * DAY_US + 2).await.unwrap();
    assert_eq!(is_there(&left[2]).await, (false, true));
}

pub(crate) async fn texts_are_replaced_where_nobody_was_faster(place: &Place) {
    let store = place.open().await;
    let mut seen = submission(Uuid::new_v4(), "r", NOON_US);
    assert!(store.begin_submission(&seen, "7").await.unwrap());
    assert!(add(&*store, &mut seen, 9).await);
    let of = store.stored_item_runs(5, RunId::default(), 10).await.unwrap().remove(0);
    assert_eq!((of.run, of.schedule_uid, of.payload.as_str()), (seen.run, seen.schedule_uid, "7"));
    assert!(store.stored_item_runs(5, seen.run, 10).await.unwrap().is_empty());
    let first = store.stored_item_pages(5, seen.run, None, 1).await.unwrap().remove(0);
    let rest = store.stored_item_pages(5, seen.run, Some(first.0), 100).await.unwrap();
    assert!(first.0 == 0 && rest[0].0 > 0);
    let texts = vec![
        (None, "7".to_owned(), "8".to_owned()),
        (Some(0), first.1.clone(), "another".to_owned()),
        (Some(rest[0].0), "as it never was".to_owned(), "lost".to_owned()),
    ];
    assert_eq!(store.replace_items(5, seen.run, texts).await.unwrap(), 2);
    assert_eq!(store.item_run(5, seen.run).await.unwrap().unwrap().payload, "8");
    assert_eq!(store.item_page(5, seen.run, 0).await.unwrap().unwrap().body, "another");
    assert_eq!(store.stored_item_pages(5, seen.run, Some(0), 100).await.unwrap(), rest);
}
