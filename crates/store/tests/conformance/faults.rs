//! PostgreSQL's own ways to fail: what a caller learns of them.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor as _};
use tollgate_core::handle::batch::TokenBatch;
use tollgate_core::handle::change::{Changes, Outcome, Unstarted};
use tollgate_core::model::{Run, RunId, SkipReason, Skipped};
use tollgate_store::{CommitError, Store, StoreError};
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, commit, ended, message, schedule, skipped, take, waiting};

fn changes() -> Changes {
    let one = schedule("one");
    let skipped: Vec<Skipped> = vec![skipped(&one, NOON_US, SkipReason::Overlap)];
    Changes { runs_new: vec![waiting(&one, 5, NOON_US)], skipped, ..Changes::default() }
}

/// Something that happens inside COMMIT, after every statement has succeeded.
async fn at_commit(place: &Place, body: &str) {
    place
        .sql(&format!(
            "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON skipped_triggers DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION at_commit()"
        ))
        .await;
}

async fn runs(store: &dyn Store) -> usize {
    store.load_shard(5).await.unwrap().runs.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_lost_in_commit_leaves_the_outcome_unknown() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let lease = take(&*store, 5).await;
    at_commit(&place, "PERFORM pg_terminate_backend(pg_backend_pid())").await;
    let error = store.commit(&lease, &changes()).await.expect_err("the connection is gone");
    assert!(matches!(error, CommitError::Unknown(StoreError::Unreachable(_))), "{error}");
    // What its caller does: take over from oneself, and look.
    let lease = take(&*store, 5).await;
    assert_eq!(runs(&*store).await, 0);
    store.commit(&lease, &Changes { skipped: vec![], ..changes() }).await.unwrap();
    assert_eq!(runs(&*store).await, 1);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_the_server_refuses_has_failed() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let lease = take(&*store, 5).await;
    at_commit(&place, "RAISE EXCEPTION 'no'").await;
    let error = store.commit(&lease, &changes()).await.expect_err("it is refused");
    assert!(matches!(error, CommitError::Failed(StoreError::Internal(_))), "{error}");
    assert_eq!(runs(&*store).await, 0);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_are_replaced() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let lease = take(&*store, 5).await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'tollgate'";
    assert!(place.number(kill).await > 0, "the store's connections bear its name");
    let mut failures = 0;
    while let Err(error) = store.commit(&lease, &changes()).await {
        assert!(matches!(error, CommitError::Failed(StoreError::Unreachable(_))), "{error}");
        failures += 1;
        assert!(failures < 9, "one for each dead connection at most");
    }
    // Reads have connections of their own.
    while let Err(error) = store.load_shard(5).await {
        assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
        failures += 1;
        assert!(failures < 9, "one for each dead connection at most");
    }
    assert_eq!(runs(&*store).await, 1);
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_owner_does_not_block_its_successor() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let settings = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND application_name = 'tollgate'";
    assert!(place.number(settings).await > 0);
    // The row is held by a transaction that never goes on; the wait for it ends, and says so.
    let mut holder = place.postgres_connection().await;
    sqlx::raw_sql("BEGIN; UPDATE queue_shards SET seq = seq WHERE shard_id = 5")
        .execute(&mut holder)
        .await
        .unwrap();
    let seen = store.leases().await.unwrap()[5].clone();
    let began = std::time::Instant::now();
    let error = store.take_shard(&seen, "next").await.expect_err("the row is held");
    assert!(error.to_string().contains("lock timeout"), "{error}");
    assert!(began.elapsed().as_secs() < 20);
    drop(holder);
    place.remove().await;
}

/// As it is when a process is stopped between two statements: the server ends its transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_of_a_frozen_owner_is_ended_by_the_server() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let timeout = store.leases().await.unwrap();
    assert_eq!(timeout.len(), 64);
    let mut holder = place.postgres_connection().await;
    // With what every connection of the store asks for.
    let settings = format!("SET idle_in_transaction_session_timeout = '{}'", setting(&place).await);
    sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut holder).await.unwrap();
    let began = std::time::Instant::now();
    sqlx::raw_sql("BEGIN; UPDATE queue_shards SET seq = seq WHERE shard_id = 5")
        .execute(&mut holder)
        .await
        .unwrap();
    let seen = store.leases().await.unwrap()[5].clone();
    let lease = store.take_shard(&seen, "next").await.unwrap().expect("it is free");
    let waited_ms = began.elapsed().as_millis();
    assert!((2_000..15_000).contains(&waited_ms), "the takeover came after {waited_ms} ms");
    assert_eq!(lease.owner, "next");
    store.commit(&lease, &changes()).await.unwrap();
    drop(holder);
    place.remove().await;
}

/// How long the store's own connections may be idle in a transaction, as the server knows it.
async fn setting(place: &Place) -> String {
    // The store's connections cannot be asked from outside; a function that they call can.
    place
        .sql(
            "CREATE TABLE seen_setting (value text);
             CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO seen_setting VALUES (current_setting('idle_in_transaction_session_timeout'));
                 RETURN NULL; END $$;
             CREATE TRIGGER note_setting AFTER INSERT ON members FOR EACH ROW EXECUTE FUNCTION note_setting()",
        )
        .await;
    let member = tollgate_store::handle::Member {
        process: "probe".to_owned(),
        roles: String::new(),
        address: String::new(),
        heartbeat: 1,
    };
    place.open().await.heartbeat(&member).await.unwrap();
    let mut connection = place.postgres_connection().await;
    let value = sqlx::query_scalar("SELECT max(value) FROM seen_setting").fetch_one(&mut connection).await;
    value.unwrap()
}

/// Behind a pooler that lends a connection for one transaction, a transaction brings its settings along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooler_in_transaction_mode_is_allowed_for() {
    let mut place = Place::postgres().await;
    let mark = if place.url.contains('?') { '&' } else { '?' };
    let direct = std::mem::take(&mut place.url);
    let pooled = format!("{direct}{mark}pooler=transaction");
    let error = tollgate_store::open(&pooled, 2).await.err().expect("there is no schema");
    assert!(
        matches!(&error, StoreError::Invalid { message, .. } if message.contains("start once")),
        "{error}"
    );
    tollgate_store::open(&direct, 2).await.unwrap().close().await;
    place.url = pooled;
    assert_eq!(setting(&place).await, "4s");
    let store = place.open().await;
    let lease = take(&*store, 5).await;
    store.commit(&lease, &changes()).await.unwrap();
    store.commit(&lease, &Changes { skipped: vec![], ..changes() }).await.unwrap();
    assert_eq!(runs(&*store).await, 2);
    let one = waiting(&schedule("one"), 5, NOON_US);
    store.commit(&lease, &plain(&one)).await.unwrap();
    assert_eq!(store.history(5, one.id, 0, None, 10).await.unwrap().len(), 1);
    let wrong = format!("{direct}{mark}pooler=session");
    let error = tollgate_store::open(&wrong, 2).await.err().expect("another pooler");
    assert!(matches!(&error, StoreError::Invalid { message, .. } if message.contains("session")), "{error}");
    place.remove().await;
}

/// A server that takes what it is sent and says nothing more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_server_is_given_up_and_its_connections_are_replaced() {
    let place = Place::postgres().await;
    let store = tollgate_store::open(&place.url, 2).await.unwrap();
    let lease = take(&*store, 5).await;
    // Nobody can silence one connection of a server from outside, but a statement that hangs looks the same.
    at_commit(&place, "PERFORM set_config('statement_timeout', '0', true); PERFORM pg_sleep(60)").await;
    let began = std::time::Instant::now();
    let error = store.commit(&lease, &changes()).await.expect_err("nothing comes");
    assert!(matches!(error, CommitError::Unknown(StoreError::Unreachable(_))), "{error}");
    assert!((10..40).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    for _ in 0..4 {
        store.ping().await.unwrap();
    }
    place.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_server_is_named_without_its_password() {
    let url = format!("postgres://ada:{}@127.0.0.1:1/tollgate", Uuid::nil());
    let error = tollgate_store::open(&url, 2).await.err().expect("nothing listens there");
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1/tollgate") && !text.contains(&Uuid::nil().to_string()), "{text}");
    let error = tollgate_store::open("postgres://[", 2).await.err().expect("no URL");
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
}

/// A commit of events only, which is one statement.
fn plain(run: &Run) -> Changes {
    let outcome = Outcome::Succeeded;
    let history = vec![ended(run.id, 1, outcome)];
    Changes { batches_new: vec![TokenBatch::of(run.id, 0, NOON_US)], history, ..Changes::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_although_a_commit_is_under_way() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let one = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..Changes::default() }).await;
    let mut other = place.postgres_connection().await;
    other.execute("BEGIN; SELECT 1 FROM queue_shards WHERE shard_id = 5 FOR UPDATE").await.unwrap();
    let (committing, changes) = (store.clone(), plain(&one));
    let commit = tokio::spawn(async move { committing.commit(&lease, &changes).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while place.number(waits).await == 0 {}
    let closing = store.close();
    let release = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        other.execute("ROLLBACK").await.unwrap();
        commit.await.unwrap().unwrap();
    };
    let both = futures::future::join(closing, release);
    assert!(tokio::time::timeout(Duration::from_secs(10), both).await.is_ok(), "closing does not end");
    place.remove().await;
}

/// The server no longer takes the statement for whole commits, and says so as Citus does.
async fn refuse(place: &Place) {
    place
        .sql(
            "CREATE SEQUENCE refused;
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF current_query() LIKE '-- commit: %' THEN
                     PERFORM nextval('refused');
                     RAISE EXCEPTION 'could not create distributed plan' USING ERRCODE = 'feature_not_supported';
                 END IF;
                 RETURN NULL; END $$;
             CREATE TRIGGER refuse AFTER INSERT ON token_batches FOR EACH ROW EXECUTE FUNCTION refuse();
             CREATE TRIGGER refuse AFTER INSERT OR UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION refuse();
             CREATE TRIGGER refuse AFTER INSERT OR DELETE ON shard_inbox FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .await;
}

/// Also where something rare goes with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_does_not_take_the_one_statement_gets_several() {
    for rare in [Vec::new(), vec![(RunId(Uuid::nil()), 0)]] {
        let place = Place::postgres().await;
        let store = place.open().await;
        let one = waiting(&schedule("one"), 5, NOON_US);
        let lease = commit(&*store, 5, Changes { runs_new: vec![one.clone()], ..Changes::default() }).await;
        refuse(&place).await;
        let changed = Run { reason: "by kind".to_owned(), sorted_to: Some(2), ..one.clone() };
        let unstarted = vec![Unstarted { run: one.id, first: 0, bits: vec![2] }];
        let (made, told) = (waiting(&schedule("two"), 5, NOON_US + 1_000), message());
        let all = Changes {
            runs_new: vec![made.clone()],
            inbox_new: vec![told.clone()],
            runs_changed: vec![changed.clone()],
            tokens_gone: rare.clone(),
            unstarted_put: unstarted.clone(),
            ..plain(&one)
        };
        store.commit(&lease, &all).await.unwrap();
        let loaded = store.load_shard(5).await.unwrap();
        assert_eq!(loaded.unstarted, unstarted);
        assert_eq!((loaded.batches.len(), loaded.runs), (1, vec![changed, made.clone()]), "it is written");
        assert_eq!(store.inbox(5, 10).await.unwrap(), std::slice::from_ref(&told));
        assert_eq!(store.history(5, one.id, 0, None, 10).await.unwrap().len(), 1);
        let gone = Changes {
            batches_gone: vec![(one.id, 0)],
            unstarted_gone: vec![(one.id, 0)],
            inbox_done: vec![told.id],
            tokens_gone: rare,
            ..Changes::default()
        };
        store.commit(&lease, &Changes { runs_changed: vec![one.clone()], ..gone }).await.unwrap();
        let loaded = store.load_shard(5).await.unwrap();
        assert_eq!((loaded.batches.len(), loaded.runs), (0, vec![one, made]));
        assert!(store.inbox(5, 10).await.unwrap().is_empty());
        assert_eq!(place.number("SELECT last_value FROM refused").await, 1, "it is not tried again");
        place.remove().await;
    }
}

/// Whoever waits for a new owner to be written must not pass for it. (PostgreSQL 16.2 and others look at the place of a row
/// alone then; on others this holds in any case.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_waits_for_a_take_over_is_fenced() {
    let place = Place::postgres().await;
    let store = place.open().await;
    for count in [1, 30] {
        let runs: Vec<Run> = (0..count).map(|i| waiting(&schedule("one"), 5, NOON_US + i)).collect();
        let old = commit(&*store, 5, Changes { runs_new: runs.clone(), ..Changes::default() }).await;
        let runs_changed = runs.iter().map(|run| Run { reason: "late".to_owned(), ..run.clone() }).collect();
        let changes = Changes { runs_changed, ..Changes::default() };
        let mut other = place.postgres_connection().await;
        let take = format!(
            "BEGIN; UPDATE queue_shards SET lease_id = '{}', epoch = epoch + 1 WHERE shard_id = 5",
            Uuid::from_u128(7)
        );
        other.execute(AssertSqlSafe(take)).await.unwrap();
        let (zombie, taken) = (old.clone(), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            other.execute("COMMIT").await.unwrap();
        });
        let (late, ()) = futures::future::join(store.commit(&zombie, &changes), taken).await;
        assert!(matches!(late, Err(CommitError::Fenced)), "{count}: {late:?}");
        assert_eq!(place.number("SELECT count(*) FROM runs WHERE reason = 'late'").await, 0);
        place.sql("DELETE FROM runs").await;
    }
    place.remove().await;
}

/// What a version before batches left.
const BEFORE_BATCHES: &str =
    "DROP TABLE token_batches; DROP TABLE api_keys; DROP FUNCTION commit_events; DROP FUNCTION commit_shards;
    DROP FUNCTION commit_many; DROP FUNCTION commit_one_by_one; DROP FUNCTION commit_at_once;
    DROP TABLE plan_outbox; DROP TABLE pruning; DROP TABLE minute_counts; DROP INDEX skipped_triggers_missed;
    DROP INDEX skipped_triggers_not_listed;
    DROP TABLE alerts; DROP TABLE alert_states; DROP TABLE alert_changes; DROP TABLE calendars; DROP TABLE calendar_users;
    DROP INDEX runs_not_well; DROP INDEX runs_failed; DROP INDEX event_history_failed; DROP TABLE closed_failures;
    DROP TABLE requests; ALTER TABLE schedules DROP COLUMN done_us;
    ALTER TABLE policies DROP COLUMN parent_uid; ALTER TABLE policies DROP COLUMN adopts;
    ALTER TABLE schedules DROP COLUMN items; ALTER TABLE runs DROP COLUMN sorted_to; DROP TABLE unstarted_events;
    DROP VIEW ended_events; DROP TABLE ended_batches;
    DROP TABLE event_attempts; DROP TABLE resource_revisions; DROP TABLE shard_layout;
    DROP TABLE moved_homes; DROP TABLE moved_runs; ALTER TABLE runs DROP COLUMN born_shard;
    DROP TABLE event_results; ALTER TABLE runs DROP COLUMN result_bytes; ALTER TABLE runs DROP COLUMN result_count;
    ALTER TABLE runs DROP COLUMN units_max; ALTER TABLE runs DROP COLUMN predecessor;
    DROP INDEX schedules_next; ALTER TABLE schedules DROP COLUMN next_id;
    DROP TABLE item_pages; DROP TABLE item_runs; DROP TABLE submissions;
    ALTER TABLE shard_policies DROP COLUMN deleted_us;
    UPDATE schema_compatibility SET oldest = 6; DELETE FROM _sqlx_migrations WHERE version > 6";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schema_is_not_raised_under_versions_that_cannot_live_with_it() {
    let place = Place::postgres().await;
    place.open().await.close().await;
    place.sql(BEFORE_BATCHES).await;
    place.sql("INSERT INTO members VALUES ('dead', 'master', '', 3), ('old-1', 'handler', '', 7)").await;
    let beats = async {
        loop {
            place.sql("UPDATE members SET heartbeat = heartbeat + 1 WHERE process = 'old-1'").await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let opened = tokio::select! {
        opened = tollgate_store::open(&place.url, 2) => opened,
        () = beats => unreachable!("it beats on"),
    };
    let Err(StoreError::InUse { what }) = opened else { panic!("an old version is at work") };
    assert!(what.ends_with("stop them first: old-1"), "{what}");
    assert_eq!(place.number("SELECT max(version) FROM _sqlx_migrations").await, 6, "nothing is changed");
    // Without a planned stop its row stays, and does not move.
    let store = place.open().await;
    assert_eq!(store.leases().await.unwrap().len(), 64);
    place.remove().await;
}
