//! Items that are read ahead, from a store that counts.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tollgate_core::items::{Item, Pager};
use tollgate_core::model::{CheckAgain, HttpTarget, OverlapRule, Payload, ReleaseMode, RetryPolicy};
use tollgate_store::StoreError;
use tollgate_store::items::ItemRun;

use super::*;

/// Runs of [`ITEMS`] items, all alike; the run of number 9 has a page that is broken.
#[derive(Debug)]
struct Fake {
    pages: Vec<ItemPage>,
    reads: AtomicUsize,
}

const ITEMS: u32 = 1_000;
/// Items of 1 KiB: some 120 a page.
const BROKEN: u128 = 9;

impl Fake {
    fn new() -> Arc<Self> {
        let mut pager = Pager::default();
        let item = |index: u32| Item {
            key: format!("k{index}"),
            units: 0,
            data: format!("\"{}\"", "x".repeat(1_024)),
        };
        let mut pages: Vec<ItemPage> = (0..ITEMS).filter_map(|index| pager.push(&item(index))).collect();
        pages.extend(pager.finish());
        Arc::new(Self { pages, reads: AtomicUsize::new(0) })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl ItemStore for Fake {
    async fn item_run(&self, _: u16, run: RunId) -> Result<Option<ItemRun>, StoreError> {
        let payload = format!("{{\"run\": \"{run}\"}}");
        Ok(Some(ItemRun { schedule_uid: Uuid::nil(), payload }))
    }

    async fn item_page(&self, _: u16, run: RunId, index: u32) -> Result<Option<ItemPage>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        let page = self.pages.iter().rfind(|page| page.first_index <= index && index < ITEMS).cloned();
        Ok(page.map(|page| match run.0.as_u128() {
            BROKEN => ItemPage { body: page.body.replace('\t', " "), ..page },
            _ => page,
        }))
    }

    async fn item_page_keys(&self, _: u16, _: RunId, _: u32, _: u32) -> Result<Vec<ItemPage>, StoreError> {
        Ok(self.pages.clone())
    }

    async fn results(&self, _: u16, _: RunId, _: u32, _: u32) -> Result<Vec<(u32, String)>, StoreError> {
        Ok(Vec::new())
    }
}

fn of(namespace: &str, run: u128, index: u32) -> ItemRef {
    ItemRef { namespace: namespace.into(), shard: 1, run: RunId(Uuid::from_u128(run)), index, spec: None }
}

async fn get(items: &Items, of: &ItemRef) -> Result<Box<DeliveryItem>, Sent> {
    let http = HttpTarget::plain("http://a.example/".to_owned(), 10_000);
    let target = Target::Http { http, release: ReleaseMode::default() };
    items.of_delivery(of, (&target, &Leave::always())).await
}

fn items(store: &Arc<Fake>, bytes_max: usize) -> Items {
    Items::new(store.clone(), Arc::default(), bytes_max)
}

#[tokio::test]
async fn a_page_is_read_once_for_all_that_wait_for_it() {
    let store = Fake::new();
    let items = items(&store, 10 << 20);
    let starts = (0..100).map(|index| {
        let items = items.clone();
        async move { get(&items, &of("a", 1, index)).await.unwrap() }
    });
    let got = futures::future::join_all(starts).await;
    assert!(got.iter().zip(0..).all(|(item, index)| item.key == format!("k{index}")));
    assert!(got[0].payload.contains("0001"), "{}", got[0].payload);
    assert!(store.reads() <= 2, "{} reads: the page, and the next one ahead", store.reads());
    for index in 0..ITEMS {
        assert_eq!(get(&items, &of("a", 1, index)).await.unwrap().key, format!("k{index}"));
    }
    // One look behind the last page.
    assert!(store.reads() <= store.pages.len() + 1, "{} reads of {} pages", store.reads(), store.pages.len());
}

#[tokio::test]
async fn what_is_kept_is_bounded_and_one_namespace_leaves_the_others_theirs() {
    const MAX: usize = 2 << 20;
    let store = Fake::new();
    let items = items(&store, MAX);
    get(&items, &of("b", 1, 0)).await.unwrap();
    for run in 100..130 {
        for index in (0..ITEMS).step_by(120) {
            get(&items, &of("a", run, index)).await.unwrap();
            let kept = items.kept();
            assert!(kept.bytes <= MAX && kept.namespaces["a"].1 <= MAX / 4 + 200_000, "{}", kept.bytes);
            let counted: usize = kept.pages.values().map(|page| page.bytes()).sum();
            assert_eq!(counted, kept.bytes);
        }
    }
    let before = store.reads();
    get(&items, &of("b", 1, 0)).await.unwrap();
    assert_eq!(store.reads(), before, "it is there still");
}

#[tokio::test]
async fn what_cannot_be_read_does_not_leave_and_stops_no_other_run() {
    let store = Fake::new();
    let items = items(&store, 10 << 20);
    let stuck = futures::future::join_all((0..50).map(|index| {
        let items = items.clone();
        async move { get(&items, &of("a", BROKEN, index)).await.unwrap_err() }
    }));
    let well = of("a", 1, 7);
    let (stuck, other) = futures::future::join(stuck, get(&items, &well)).await;
    assert_eq!(other.unwrap().key, "k7");
    let told = "not sent: its item cannot be read: line 1 is no item's";
    assert!(
        stuck.iter().all(|sent| matches!(sent, Sent::NotSent { message, .. } if message == told)),
        "{stuck:?}"
    );
    let beyond = get(&items, &of("a", 1, ITEMS)).await.unwrap_err();
    let Sent::NotSent { message, .. } = beyond else { panic!("{beyond:?}") };
    assert_eq!(message, "not sent: its item cannot be read: there is no item 1000 of its run");
}

/// A spec whose items are these lines.
fn spec(items: &str) -> RunSpec {
    let http = HttpTarget::plain("http://a.example/".to_owned(), 10_000);
    RunSpec {
        schedule_uid: Uuid::from_u128(7),
        generation: 1,
        namespace: "a".to_owned(),
        schedule_id: "s".to_owned(),
        policy_uid: None,
        policy_id: None,
        key: None,
        units: 1,
        target: Target::Http { http, release: ReleaseMode::default() },
        payload: Payload::of("{}").with_items(items),
        retry: RetryPolicy::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        check_again: CheckAgain::default(),
        on_finish: None,
    }
}

#[tokio::test]
async fn items_of_a_spec_are_had_without_the_store_in_clear_and_sealed() {
    let lines = "acme\t{\"a\":1}\n\t7\nglobex\t3\tnull\n";
    let keys = Keys::parse(&tollgate_secrets::generate_line("k").unwrap()).unwrap();
    let sealed = keys.seal(Uuid::from_u128(7), tollgate_secrets::ITEMS, lines).unwrap();
    let store = Fake::new();
    let items = Items::new(store.clone(), Arc::new(keys), 10 << 20);
    let run = Run { id: RunId(Uuid::from_u128(1)), events: 3, ..Run::default() };
    for (number, text) in [(1, lines), (2, &sealed)] {
        let with = Arc::new(spec(text));
        let at = |index| ItemRef { spec: Some(Arc::clone(&with)), ..of("a", number, index) };
        let mut got = Vec::new();
        for index in 0..3 {
            got.push(get(&items, &at(index)).await.unwrap());
        }
        let got: Vec<(&str, &str, &str)> =
            got.iter().map(|item| (&*item.key, &*item.payload, &*item.data)).collect();
        assert_eq!(got, [("acme", "", "{\"a\":1}"), ("", "", "7"), ("globex", "", "null")]);
        assert!(get(&items, &at(3)).await.is_err());
        let found = items.look_up(&*store, (&run, Some(&with)), [0, 2].into_iter()).await.unwrap();
        let shown =
            |key: &str, units, data: &str| ShownItem { key: key.to_owned(), units, data: data.to_owned() };
        assert_eq!(found, [shown("acme", 0, "{\"a\":1}"), shown("globex", 3, "null")]);
        assert!(items.look_up(&*store, (&run, Some(&with)), [3].into_iter()).await.is_err());
    }
    assert_eq!((store.reads(), items.kept().pages.len()), (0, 2));
    let unknown = Items::new(store.clone(), Arc::default(), 10 << 20);
    let at = ItemRef { spec: Some(Arc::new(spec(&sealed))), ..of("a", 1, 0) };
    let Sent::NotSent { message, .. } = get(&unknown, &at).await.unwrap_err() else { panic!("it left") };
    assert!(
        message.starts_with("not sent: its item cannot be opened") && message.contains("\"k\""),
        "{message}"
    );
}

#[tokio::test]
async fn people_look_up_some_and_leave_nothing() {
    let store = Fake::new();
    let items = items(&store, 10 << 20);
    let run = Run { id: RunId(Uuid::from_u128(1)), events: ITEMS, ..Run::default() };
    let found = items.look_up(&*store, (&run, None), [0, 3, 500, 501, 999].into_iter()).await.unwrap();
    let keys: Vec<&str> = found.iter().map(|item| item.key.as_str()).collect();
    assert_eq!((keys, store.reads()), (vec!["k0", "k3", "k500", "k501", "k999"], 3));
    assert!(items.kept().pages.is_empty());
}
