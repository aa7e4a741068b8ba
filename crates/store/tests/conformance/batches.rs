//! Acquired batches, and the statement that carries nearly every commit.

use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome, TokenRow, TokenState};
use tollgate_core::model::{Run, RunId};
use tollgate_store::CommitError;

use crate::place::Place;
use crate::samples::*;

/// A batch of `count` events with these bits.
fn batch(run: RunId, first: u32, count: u32, gone: &[u8], held: &[u8]) -> TokenBatch {
    let delivered_us = held.iter().any(|byte| *byte != 0).then_some(NOON_US + 9);
    let bits = (gone.to_vec(), held.to_vec());
    TokenBatch::restore((run, first, count), (NOON_US + 1, delivered_us), bits).unwrap()
}

/// The rows that a batch stands for.
fn rows(batches: &[TokenBatch]) -> Vec<TokenRow> {
    batches.iter().flat_map(TokenBatch::rows).collect()
}

/// Nothing else is in it: on PostgreSQL it goes by one statement.
fn plain(new: &[TokenBatch], changed: &[TokenBatch], gone: &[(RunId, u32)]) -> Changes {
    Changes {
        batches_new: new.to_vec(),
        batches_changed: changed.to_vec(),
        batches_gone: gone.to_vec(),
        ..Changes::default()
    }
}

/// The same by statements of their own, because something rare goes with it.
fn rare(changes: Changes) -> Changes {
    Changes { schedules: vec![shard_schedule(&schedule("rare"))], ..changes }
}

pub(crate) async fn batches_round_trip(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..Changes::default() }).await;
    for make in [|changes| changes, rare] {
        let first = [batch(one.id, 0, 9, &[0, 0], &[0, 0]), batch(one.id, 9, 1, &[0], &[0])];
        store.commit(&lease, &make(plain(&first, &[], &[]))).await.unwrap();
        assert_eq!(store.load_shard(5).await.unwrap().batches, first);
        // It has taken in what comes after the other one, too.
        let later = batch(one.id, 0, 12, &[0b1000_0001, 0b11], &[0b10, 0b100]);
        let change = plain(&[], std::slice::from_ref(&later), &[(one.id, 9)]);
        store.commit(&lease, &make(change)).await.unwrap();
        assert_eq!(store.load_shard(5).await.unwrap().batches, std::slice::from_ref(&later));
        let left: Vec<(u32, TokenState)> = later.rows().map(|row| (row.index, row.state)).collect();
        assert_eq!((left.len(), left[0], left[6]), (8, (1, TokenState::Held), (10, TokenState::Held)));
        store.commit(&lease, &make(plain(&[], &[], &[(one.id, 0)]))).await.unwrap();
        assert!(store.load_shard(5).await.unwrap().batches.is_empty());
    }
}

/// Every column that can change, and none of those that cannot.
pub(crate) async fn plain_commit_writes_runs_and_ends(place: &Place) {
    let store = place.open().await;
    let old = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![old.clone()], ..Changes::default() }).await;
    let mut run = Run {
        state: tollgate_core::model::RunState::Running,
        next_index: 3,
        generation: old.generation + 1,
        priority: 7,
        reason: "é".to_owned(),
        cursor_in: Some("in".to_owned()),
        cursor_out: Some("out".to_owned()),
        started_us: Some(NOON_US + 2),
        ..old.clone()
    };
    (run.counts.succeeded, run.counts.dead) = (1, 1);
    let ends = vec![ended(old.id, 0, Outcome::Succeeded), ended(old.id, 1, Outcome::Dead)];
    let changes = Changes { runs_changed: vec![run.clone()], history: ends.clone(), ..Changes::default() };
    store.commit(&lease, &changes).await.unwrap();
    assert_eq!(store.runs(5, &[old.id]).await.unwrap(), std::slice::from_ref(&run));
    let found = store.history(5, old.id, 0, None, 10).await.unwrap();
    assert_eq!(found, ends);
    // A second time, and with more: what is there stays, the rest is written.
    let more: Vec<HistoryRow> = ends.iter().cloned().chain([ended(old.id, 2, Outcome::Failed)]).collect();
    let new = batch(old.id, 3, 2, &[0], &[0]);
    let changes = Changes { history: more.clone(), ..plain(std::slice::from_ref(&new), &[], &[]) };
    store.commit(&lease, &changes).await.unwrap();
    assert_eq!(store.history(5, old.id, 0, None, 10).await.unwrap(), more);
    assert_eq!(store.load_shard(5).await.unwrap().batches, [new]);
}

/// Each column of many rows, which are looked up in another way than those of few.
pub(crate) async fn plain_commit_of_many_rows_writes_each_column(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let old: Vec<Run> = (0..20).map(|i| waiting(&one, 5, NOON_US + i)).collect();
    let batches = |count: u32, gone: &[u8], held: &[u8]| -> Vec<TokenBatch> {
        old.iter().map(|run| batch(run.id, 0, count, gone, held)).collect()
    };
    let runs_new = Changes { runs_new: old.clone(), ..Changes::default() };
    let lease = commit(&*store, 5, runs_new).await;
    store.commit(&lease, &plain(&batches(8, &[0], &[0]), &[], &[])).await.unwrap();
    let changed = |(run, i): (&Run, u32)| {
        let mut run = Run {
            state: tollgate_core::model::RunState::Running,
            next_index: 100 + i,
            generation: run.generation + i64::from(i),
            events: 200 + i,
            priority: 7,
            reason: format!("reason {i}"),
            cursor_in: Some(format!("in {i}")),
            cursor_out: Some(format!("out {i}")),
            started_us: Some(NOON_US + 300 + i64::from(i)),
            finished_us: Some(NOON_US + 400 + i64::from(i)),
            ..run.clone()
        };
        let counts = &mut run.counts;
        (counts.succeeded, counts.failed, counts.dead) = (i + 1, i + 2, i + 3);
        (counts.expired, counts.cancelled, counts.lost) = (i + 4, i + 5, i + 6);
        run
    };
    let runs_changed: Vec<Run> = old.iter().zip(0..).map(changed).collect();
    let mut batches_left = batches(10, &[0b10, 0], &[0b1, 0b10]);
    let gone: Vec<_> = batches_left.drain(..5).map(|batch| batch.key()).collect();
    let changes = Changes { runs_changed: runs_changed.clone(), ..plain(&[], &batches_left, &gone) };
    store.commit(&lease, &changes).await.unwrap();
    let mut loaded = store.load_shard(5).await.unwrap();
    loaded.runs.sort_by_key(|run| run.launch_us);
    loaded.batches.sort_by_key(|batch| batch.key());
    batches_left.sort_by_key(|batch| batch.key());
    assert_eq!((loaded.runs, loaded.batches), (runs_changed, batches_left));
}

pub(crate) async fn plain_commit_is_fenced(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let old = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..Changes::default() }).await;
    let lease = take(&*store, 5).await;
    let new = batch(one.id, 0, 8, &[0], &[0]);
    let changes = Changes {
        history: vec![ended(one.id, 9, Outcome::Succeeded)],
        ..plain(std::slice::from_ref(&new), &[], &[])
    };
    let zombie = old.clone();
    assert!(matches!(store.commit(&zombie, &changes).await, Err(CommitError::Fenced)));
    assert_eq!(zombie, old, "its number has not moved");
    assert!(store.load_shard(5).await.unwrap().batches.is_empty());
    assert!(store.history(5, one.id, 0, None, 10).await.unwrap().is_empty());
    store.commit(&lease, &changes).await.unwrap();
    let stale = lease.clone();
    let _lease = take(&*store, 5).await;
    assert!(matches!(store.commit(&stale, &changes).await, Err(CommitError::Fenced)));
    assert_eq!(store.load_shard(5).await.unwrap().batches, [new]);
}

/// As an owner takes in what an emitter has handed over: few runs go one by one, many by one statement.
pub(crate) async fn commit_of_runs_alone_is_fenced(place: &Place) {
    let store = place.open().await;
    let one = schedule("one");
    let emitted: Vec<Run> = (0..100).map(|i| run(&one, 5, NOON_US + i)).collect();
    let ids: Vec<RunId> = emitted.iter().map(|run| run.id).collect();
    store.emit(&emitted, &[]).await.unwrap();
    let read = async |count: usize| {
        let mut runs = store.runs(5, &ids[..count]).await.unwrap();
        runs.sort_by_key(|run| run.id);
        runs
    };
    for count in [1, 64, 65, 100] {
        let old = take(&*store, 5).await;
        let lease = take(&*store, 5).await;
        let before = read(count).await;
        let reason = count.to_string();
        let runs_changed: Vec<Run> =
            before.iter().map(|run| Run { reason: reason.clone(), ..run.clone() }).collect();
        let changes = Changes { runs_changed, ..Changes::default() };
        let zombie = old.clone();
        assert!(matches!(store.commit(&zombie, &changes).await, Err(CommitError::Fenced)), "{count}");
        assert_eq!(read(count).await, before, "{count}");
        store.commit(&lease, &changes).await.unwrap();
        assert_eq!(read(count).await, changes.runs_changed, "{count}");
    }
}

/// Plain commits that come at once may share a statement: each writes its own, whatever becomes of the others.
pub(crate) async fn plain_commits_of_many_shards_at_once_stand_or_fall_alone(place: &Place) {
    const STALE: u16 = 7;
    const NO_RUN: u16 = 20;
    const THERE_ALREADY: u16 = 33;
    let store = place.open().await;
    let mut owners = Vec::new();
    for shard in 0..40 {
        let run = waiting(&schedule("one"), shard, NOON_US);
        let runs_new = if shard == NO_RUN { Vec::new() } else { vec![run.clone()] };
        let lease = commit(&*store, shard, Changes { runs_new, ..Changes::default() }).await;
        owners.push((lease, run));
    }
    take(&*store, STALE).await;
    let there = batch(owners[usize::from(THERE_ALREADY)].1.id, 0, 2, &[0], &[0]);
    store.commit(&owners[usize::from(THERE_ALREADY)].0, &plain(&[there], &[], &[])).await.unwrap();
    let of = |run: &Run, round: u32| {
        let run = Run { next_index: round * 100 + u32::from(run.shard), ..run.clone() };
        let (first, second) = (batch(run.id, 0, 2, &[0], &[0]), batch(run.id, 2, 2, &[0b01], &[0b10]));
        let batches = match round {
            1 => plain(&[first, batch(run.id, 2, 2, &[0], &[0])], &[], &[]),
            _ => plain(&[], std::slice::from_ref(&second), &[first.key()]),
        };
        let history = vec![ended(run.id, round, Outcome::Succeeded)];
        (second, Changes { runs_changed: vec![run], history, ..batches })
    };
    for round in [1, 2] {
        let commits = owners.iter().map(async |(lease, run)| store.commit(lease, &of(run, round).1).await);
        let done = futures::future::join_all(commits).await;
        for (shard, done) in (0..).zip(done) {
            match shard {
                STALE => assert!(matches!(done, Err(CommitError::Fenced)), "{done:?}"),
                NO_RUN => assert!(matches!(done, Err(CommitError::Failed(_))), "{done:?}"),
                _ => done.unwrap(),
            }
        }
    }
    for (shard, (_, run)) in (0..).zip(&owners) {
        let (left, changes) = of(run, 2);
        let loaded = store.load_shard(shard).await.unwrap();
        let history = store.history(shard, run.id, 0, None, 10).await.unwrap();
        if [STALE, NO_RUN].contains(&shard) {
            assert_eq!((loaded.batches.len(), history.len()), (0, 0), "shard {shard}");
            assert!(loaded.runs.iter().all(|loaded| loaded == run), "shard {shard}");
        } else {
            assert_eq!((loaded.batches, loaded.runs), (vec![left], changes.runs_changed), "shard {shard}");
            assert_eq!(history.iter().map(|row| row.index).collect::<Vec<_>>(), [1, 2], "shard {shard}");
        }
    }
}

/// Runs that are made, and messages that come and go, of many shards: each gets its own.
pub(crate) async fn new_rows_of_many_shards_at_once_stand_or_fall_alone(place: &Place) {
    const STALE: u16 = 7;
    const MADE_ALREADY: u16 = 12;
    const TOLD_ALREADY: u16 = 13;
    let store = place.open().await;
    let mut owners = Vec::new();
    for shard in 0..20 {
        let [old, new] = [0, 1_000].map(|after_us| waiting(&schedule("one"), shard, NOON_US + after_us));
        let told = message();
        let before =
            Changes { runs_new: vec![old.clone()], inbox_new: vec![told.clone()], ..Changes::default() };
        owners.push((commit(&*store, shard, before).await, old, new, told));
    }
    take(&*store, STALE).await;
    let changed = |run: &Run| Run { reason: "by now".to_owned(), ..run.clone() };
    let commits = owners.iter().map(async |(lease, old, new, told)| {
        let mut changes =
            Changes { runs_new: vec![new.clone()], inbox_new: vec![message()], ..Changes::default() };
        match lease.shard {
            MADE_ALREADY => {
                changes.runs_new.push(old.clone());
                changes.runs_changed.push(changed(old));
            }
            TOLD_ALREADY => changes.inbox_new.push(told.clone()),
            _ => changes.inbox_done.push(told.id),
        }
        (store.commit(lease, &changes).await, changes)
    });
    let done = futures::future::join_all(commits).await;
    for ((done, changes), (lease, old, new, told)) in done.into_iter().zip(&owners) {
        let shard = lease.shard;
        let mut inbox = store.inbox(shard, 10).await.unwrap();
        inbox.sort_by_key(|message| message.id);
        let runs = store.load_shard(shard).await.unwrap().runs;
        if shard == STALE {
            assert!(matches!(done, Err(CommitError::Fenced)), "{done:?}");
            assert_eq!((runs, inbox), (vec![old.clone()], vec![told.clone()]), "nothing of it");
            continue;
        }
        done.unwrap();
        let old = if shard == MADE_ALREADY { changed(old) } else { old.clone() };
        assert_eq!(runs, [old, new.clone()], "shard {shard}");
        let stays = [MADE_ALREADY, TOLD_ALREADY].contains(&shard);
        let told = stays.then_some(told).into_iter().chain([&changes.inbox_new[0]]);
        assert_eq!(inbox, told.cloned().collect::<Vec<_>>(), "shard {shard}");
    }
}

pub(crate) async fn plain_commit_of_a_run_that_is_not_there_writes_nothing(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..Changes::default() }).await;
    let changed = Run { priority: one.priority + 1, ..one.clone() };
    let missing = waiting(&schedule("two"), 5, NOON_US);
    let history = vec![ended(one.id, 0, Outcome::Succeeded)];
    let runs_changed = vec![changed.clone(), missing.clone()];
    let changes = Changes { runs_changed, history: history.clone(), ..Changes::default() };
    let error = store.commit(&lease, &changes).await.expect_err("a run is missing");
    let named = missing.id.0.to_string();
    assert!(matches!(&error, CommitError::Failed(error) if error.to_string().contains(&named)), "{error}");
    assert_eq!(store.runs(5, &[one.id, missing.id]).await.unwrap(), std::slice::from_ref(&one));
    assert!(store.history(5, one.id, 0, None, 10).await.unwrap().is_empty());
    let changes = Changes { runs_changed: vec![changed.clone()], history, ..Changes::default() };
    store.commit(&lease, &changes).await.unwrap();
    assert_eq!(store.runs(5, &[one.id]).await.unwrap(), [changed]);
}

pub(crate) async fn events_are_listed_from_batches_and_rows(place: &Place) {
    let store = place.open().await;
    let (one, two) = (waiting(&schedule("one"), 5, NOON_US), waiting(&schedule("two"), 5, NOON_US));
    let full = vec![0; 64];
    let batches = [
        batch(one.id, 0, 512, &full, &full),
        batch(one.id, 512, 3, &[0b010], &[0b100]),
        batch(two.id, 0, 1, &[0], &[0]),
    ];
    let own = TokenRow { attempt: 2, ..token(one.id, 513) };
    let changes = Changes {
        runs_new: vec![one.clone(), two.clone()],
        tokens_put: vec![own.clone()],
        ..plain(&batches, &[], &[])
    };
    commit(&*store, 5, changes).await;
    let mut all = rows(&batches[..2]);
    all.insert(513, own);
    assert_eq!(all.len(), 515);
    assert_eq!(store.tokens(5, one.id, 0, 1000).await.unwrap(), all);
    assert_eq!(store.tokens(5, one.id, 500, 14).await.unwrap(), all[500..514]);
    assert_eq!(store.tokens(5, one.id, 513, 1).await.unwrap(), all[513..514]);
    assert_eq!(store.tokens(5, one.id, 514, 9).await.unwrap(), all[514..]);
    assert!(store.tokens(5, one.id, 515, 9).await.unwrap().is_empty());
    assert_eq!(store.tokens(5, two.id, 0, 9).await.unwrap(), rows(&batches[2..]));
}

/// Lists while events leave their batch one by one, each for a row of its own.
pub(crate) async fn an_event_that_moves_is_always_listed(place: &Place) {
    const EVENTS: u32 = 128;
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let mut gone = vec![0; 16];
    let all = batch(one.id, 0, EVENTS, &gone, &[0; 16]);
    let changes = Changes { runs_new: vec![one.clone()], ..plain(&[all], &[], &[]) };
    let lease = commit(&*store, 5, changes).await;
    let moves = {
        let store = store.clone();
        tokio::spawn(async move {
            for index in 0..EVENTS {
                gone[index as usize / 8] |= 1 << (index % 8);
                let own = TokenRow { attempt: 2, ..token(one.id, index) };
                let left = batch(one.id, 0, EVENTS, &gone, &[0; 16]);
                let changes = Changes { tokens_put: vec![own], ..plain(&[], &[left], &[]) };
                store.commit(&lease, &changes).await.unwrap();
            }
        })
    };
    let mut attempts = 0;
    while attempts < 2 * EVENTS {
        let over = moves.is_finished();
        let listed = store.tokens(5, one.id, 0, 1000).await.unwrap();
        let indexes: Vec<u32> = listed.iter().map(|row| row.index).collect();
        assert_eq!(indexes, Vec::from_iter(0..EVENTS));
        let before = std::mem::replace(&mut attempts, listed.iter().map(|row| row.attempt).sum());
        assert!(before <= attempts, "an own row is the newer one");
        assert!(!over || attempts == 2 * EVENTS);
    }
    moves.await.unwrap();
}

/// A batch behind those that are asked for is not even looked at.
pub(crate) async fn a_list_reads_no_further_than_it_must(place: &Place) {
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let batches = [batch(one.id, 0, 5, &[0b10], &[0]), batch(one.id, 5, 3, &[0], &[0])];
    commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..plain(&batches, &[], &[]) }).await;
    place.sql("UPDATE token_batches SET gone = substr(gone, 1, 0) WHERE first_idx = 5").await;
    let first = rows(&batches[..1]);
    assert_eq!(store.tokens(5, one.id, 0, 4).await.unwrap(), first);
    assert_eq!(store.tokens(5, one.id, 2, 2).await.unwrap(), first[1..3]);
    assert!(store.tokens(5, one.id, 2, 4).await.is_err(), "one of them cannot be read");
}

/// What cannot be read counts as held; what belongs to a run that cannot be read counts against its policy.
pub(crate) async fn corrupt_batches_are_named_and_count(place: &Place) {
    let store = place.open().await;
    let runs = ["good", "bad"].map(|id| Run { next_index: 8, ..waiting(&schedule(id), 5, NOON_US) });
    let [good, bad] = &runs;
    let batches = [
        batch(good.id, 0, 3, &[0], &[0]),
        batch(good.id, 3, 5, &[0b00001], &[0]),
        batch(bad.id, 0, 6, &[0b000011], &[0]),
    ];
    commit(&*store, 5, Changes { runs_new: runs.to_vec(), ..plain(&batches, &[], &[]) }).await;
    place.sql("UPDATE runs SET next_index = -1 WHERE schedule_id = 'bad'").await;
    place.sql("UPDATE token_batches SET held = gone, gone = substr(gone, 1, 0) WHERE first_idx = 3").await;
    let loaded = store.load_shard(5).await.unwrap();
    assert_eq!((&loaded.batches[..1], loaded.tokens.len()), (&batches[..1], 0));
    let stands_in: Vec<_> = loaded.batches[1].rows().map(|row| (row.index, row.state)).collect();
    let held = Vec::from_iter((3..8).map(|index| (index, TokenState::Held)));
    assert_eq!(stands_in, held, "more may be held than are, never fewer");
    assert_eq!(loaded.counted, [(bad.policy_uid, 4)]);
    let named = store.corrupt_rows();
    let (table, key) = ("token_batches", good.id.to_string());
    assert!(named.iter().any(|row| row.table == table && row.key.contains(&key)), "{named:?}");
}
