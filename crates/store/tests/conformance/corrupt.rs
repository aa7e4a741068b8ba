//! Tokens and batches that cannot be read: they count, and what becomes of them repairs their rows.

use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome, TokenRow, TokenState};
use tollgate_core::model::{Run, RunId, RunState};
use tollgate_store::Store;
use tollgate_store::handle::Lease;
use uuid::Uuid;

use crate::place::Place;
use crate::samples::*;

const EVENTS: u32 = 600;

/// A run all of whose events have been acquired, with a policy.
fn acquired(id: &str) -> Run {
    let schedule = tollgate_core::model::Schedule { policy_uid: Some(Uuid::new_v4()), ..schedule(id) };
    Run { state: RunState::Running, events: EVENTS, next_index: EVENTS, ..waiting(&schedule, 5, NOON_US) }
}

fn batch(run: RunId, first: u32, count: u32, gone: &[u8], held: &[u8]) -> TokenBatch {
    let bits = (gone.to_vec(), held.to_vec());
    TokenBatch::restore((run, first, count), (NOON_US + 1, None), bits).unwrap()
}

/// Of the first batch, 1 has a row of its own, 2 and 3 have ended; 10 to 12 are in another batch, and the rest has ended.
async fn some(store: &dyn Store) -> (Run, Lease, [TokenBatch; 2]) {
    let one = acquired("one");
    let batches = [batch(one.id, 0, 10, &[0b1110, 0], &[1, 0]), batch(one.id, 10, 3, &[0], &[0])];
    let rest = HistoryRow {
        count: EVENTS - 13,
        attempt: 0,
        acquired_us: None,
        delivered_us: None,
        ..ended(one.id, 13, Outcome::Expired)
    };
    let ends = [2, 3].map(|index| ended(one.id, index, Outcome::Succeeded));
    let changes = Changes {
        runs_new: vec![one.clone()],
        batches_new: batches.to_vec(),
        tokens_put: vec![TokenRow { attempt: 2, ..token(one.id, 1) }],
        history: ends.into_iter().chain([rest]).collect(),
        ..Changes::default()
    };
    let lease = commit(store, 5, changes).await;
    (one, lease, batches)
}

/// How many batches, and how many tokens, are named.
fn named(store: &dyn Store) -> [usize; 2] {
    let rows = store.corrupt_rows();
    ["token_batches", "tokens"].map(|table| rows.iter().filter(|row| row.table == table).count())
}

fn held(batch: &TokenBatch) -> Vec<u32> {
    assert!(batch.rows().all(|row| row.state == TokenState::Held), "{batch:?}");
    batch.rows().map(|row| row.index).collect()
}

/// Which events a batch has follows from where all others are, even where its own row does not say how many there were.
pub(crate) async fn corrupt_batch_is_what_is_nowhere_else(place: &Place) {
    let store = place.open().await;
    let (one, _, [_, sound]) = some(&*store).await;
    let breaks = ["gone = substr(gone, 1, 0)", "events = 0", "events = 513"];
    for set in breaks {
        place.sql(&format!("UPDATE token_batches SET {set} WHERE first_idx = 0")).await;
        let loaded = store.load_shard(5).await.unwrap();
        assert_eq!((loaded.batches.len(), &loaded.batches[1]), (2, &sound), "{set}");
        assert_eq!(held(&loaded.batches[0]), [0, 4, 5, 6, 7, 8, 9], "{set}");
        let own: Vec<(u32, u32)> = loaded.tokens.iter().map(|row| (row.index, row.attempt)).collect();
        assert_eq!(
            (own, loaded.counted),
            (vec![(1, 2)], Vec::new()),
            "{set}: the run is known, and 1 is there once"
        );
        assert_eq!(named(&*store), [1, 0], "{set}");
    }
    place.sql("UPDATE runs SET next_index = 5").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!(held(&loaded.batches[0]), [0, 4], "the others have not been acquired");
    // Of a run that cannot be read, no next index is known.
    place.sql("UPDATE runs SET priority = 99").await;
    assert_eq!(store.load_shard(5).await.unwrap().counted, [(one.policy_uid, 7 + 3 + 1)]);
}

pub(crate) async fn corrupt_batch_is_repaired_by_its_next_change(place: &Place) {
    let store = place.open().await;
    let (_, lease, _) = some(&*store).await;
    place.sql("UPDATE token_batches SET gone = substr(gone, 1, 0), held = substr(held, 1, 0)").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!((held(&loaded.batches[1]), named(&*store)), (vec![10, 11, 12], [2, 0]));
    let [first, second] = [&loaded.batches[0], &loaded.batches[1]];
    let left = batch(first.run, 0, 10, &[0b0101_1110, 0], first.held());
    let changes = Changes {
        batches_changed: vec![left.clone()],
        batches_gone: vec![second.key()],
        ..Changes::default()
    };
    store.commit(&lease, &changes).await.unwrap();
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!((loaded.batches, named(&*store)), (vec![left], [0, 0]));
}

/// The key itself is wrong: nobody knows which events they are, so that nothing of their run starts or ends.
pub(crate) async fn batch_without_a_key_holds_its_run_back(place: &Place) {
    let store = place.open().await;
    let (one, _, _) = some(&*store).await;
    place.sql("UPDATE token_batches SET first_idx = -1 WHERE first_idx = 0").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert!(loaded.runs.is_empty() && loaded.batches.is_empty() && loaded.tokens.is_empty());
    assert_eq!(loaded.counted, [(one.policy_uid, 10 + 3 + 1)], "more may count than are, never fewer");
    assert_eq!(named(&*store), [1, 0]);
}

/// SQLite keeps integers of any size, and keys of any length.
pub(crate) async fn undecodable_rows_count(place: &Place) {
    if place.is_postgres() {
        return;
    }
    let store = place.open().await;
    let (one, _, [_, sound]) = some(&*store).await;
    place.sql("UPDATE token_batches SET events = 5000000000 WHERE first_idx = 0").await;
    place.sql("UPDATE tokens SET attempt = 5000000000").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!(held(&loaded.batches[0]), [0, 4, 5, 6, 7, 8, 9]);
    assert_eq!((loaded.batches.len(), &loaded.batches[1]), (2, &sound));
    let [stands_in] = &loaded.tokens[..] else { panic!("{:?}", loaded.tokens) };
    assert_eq!((stands_in.index, stands_in.state), (1, TokenState::Held));
    assert!(stands_in.heartbeat_ttl_ms > Some(86_400_000 * 365), "no silence ends it");
    assert_eq!(named(&*store), [1, 1]);
    // Without its key, a token holds its run back; without its run, it is counted all the same.
    place.sql("UPDATE tokens SET idx = 5000000000").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert!(loaded.runs.is_empty());
    assert_eq!(loaded.counted, [(one.policy_uid, 1 + 8 + 3)], "1 counts twice");
    place.sql("UPDATE token_batches SET run_id = x'01', events = 10 WHERE first_idx = 0").await;
    assert_eq!(store.load_shard(5).await.unwrap().counted, [(None, 10), (one.policy_uid, 1 + 3)]);
    assert_eq!(named(&*store), [1, 1]);
}
