//! What others do on the same PostgreSQL server (hold a snapshot, read history, ask for much, fall silent), and what it
//! costs owners.

use std::time::{Duration, Instant};

use futures::future::join_all;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};
use tokio::task::JoinSet;
use tollgate_core::handle::change::{Changes, Outcome};
use tollgate_core::model::{DAY_US, Run, SkipReason};
use tollgate_store::Asker;
use tollgate_store::columns::{Dialect, compose};
use tollgate_store::handle::Member;
use uuid::Uuid;

use super::place::Place;
use super::samples::{NOON_US, commit, ended, schedule, skipped, take, waiting};

/// As many as one stream of releases may have under way.
const LOOK_UPS: usize = 8_192;
/// How many commits are made while a snapshot is held.
const COMMITS: u32 = 3_000;

/// How many buffers a commit touches that writes the row of the one run that there is. Those of a step count for each
/// step around it.
async fn buffers(connection: &mut PgConnection) -> u64 {
    let settings = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
    connection.execute(settings).await.unwrap();
    let ask = "SELECT to_jsonb(runs)::text FROM runs WHERE shard_id = 5";
    let run: String = sqlx::query_scalar(ask).fetch_one(&mut *connection).await.unwrap();
    let run: serde_json::Value = serde_json::from_str(&run).unwrap();
    let text = compose(include_str!("../../src/postgres/queries/commit.sql"), Dialect::Postgres);
    let mut call = text
        .replace("$1::int[]", "ARRAY[5]")
        .replace("$2::uuid[]", "ARRAY[(SELECT lease_id FROM queue_shards WHERE shard_id = 5)]")
        .replace("$3::bigint", "1");
    let mut lists = 0;
    for part in text.split("unnest(").skip(1) {
        let (array, name) = part.split_once(") AS ").unwrap();
        let name =
            name.split(|character: char| character != '_' && !character.is_alphanumeric()).next().unwrap();
        lists += u32::from(name == "shard_id");
        // The first list is that of runs. There is nothing else.
        let values = match &run[name] {
            _ if lists > 1 => String::new(),
            serde_json::Value::Null => "NULL".to_owned(),
            value => format!("'{}'", value.to_string().trim_matches('"')),
        };
        let kind = array.split_once("::").unwrap().1;
        call = call.replace(&format!("unnest({array})"), &format!("unnest(ARRAY[{values}]::{kind})"));
    }
    let rows = connection
        .fetch_all(AssertSqlSafe(format!("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {call}")))
        .await
        .unwrap();
    let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("Update on runs")), "{}", plan.join("\n"));
    let lines = plan
        .iter()
        .take_while(|line| !line.starts_with("Planning"))
        .filter(|line| line.contains("Buffers: shared"));
    lines.flat_map(|line| line.split([' ', '='])).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// A dump, an idle transaction, a standby's feedback: what commits change keeps its old versions as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_costs_the_same_after_thousands_under_a_held_snapshot() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let run = waiting(&schedule("one"), 5, NOON_US);
    let lease = commit(&*store, 5, Changes { runs_new: vec![run.clone()], ..Changes::default() }).await;
    let mut reader = place.postgres_connection().await;
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM queue_shards").await.unwrap();
    let before = buffers(&mut place.postgres_connection().await).await;
    for next in 0..COMMITS {
        let runs_changed = vec![Run { events: COMMITS, next_index: next, ..run.clone() }];
        store.commit(&lease, &Changes { runs_changed, ..Changes::default() }).await.unwrap();
    }
    let after = buffers(&mut place.postgres_connection().await).await;
    assert!(after <= before + 100, "{before} buffers before, {after} after {COMMITS} commits");
    // The fence has left the row as it was, and the row is the latest.
    let versions = place.number("SELECT pg_relation_size('queue_shards') / 8192").await;
    assert!(versions <= 4, "{versions} pages");
    assert_eq!(store.load_shard(5).await.unwrap().runs.len(), 1);
    drop(reader);
    place.remove().await;
}

async fn partitions(place: &Place) -> i64 {
    let tables = "('event_history'::regclass, 'ended_batches'::regclass)";
    place.number(&format!("SELECT count(*) FROM pg_inherits WHERE inhparent IN {tables}")).await
}

/// A dump, or somebody in the middle of a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_do_not_wait_for_partition_work_that_waits_for_a_reader() {
    let place = Place::postgres().await;
    let store = place.open().await;
    for days in [-30, -20] {
        store.prune(0, NOON_US + days * DAY_US).await.unwrap();
    }
    let lease = take(&*store, 5).await;
    let run = waiting(&schedule("one"), 5, NOON_US);
    let there = partitions(&place).await;
    let mut reader = place.postgres_connection().await;
    reader.execute("BEGIN; SELECT count(*) FROM ended_events").await.unwrap();
    // Room for new days, and none for those of a month ago.
    let pruning = {
        let store = store.clone();
        tokio::spawn(async move { store.prune(NOON_US - 10 * DAY_US, NOON_US + 400 * DAY_US).await })
    };
    let (mut slowest, mut index) = (Duration::ZERO, 0);
    while !pruning.is_finished() || index < 50 {
        let history = vec![ended(run.id, index, Outcome::Succeeded)];
        let began = Instant::now();
        store.commit(&lease, &Changes { history, ..Changes::default() }).await.unwrap();
        slowest = slowest.max(began.elapsed());
        index += 1;
    }
    pruning.await.unwrap().expect("what is in use is left to the next round");
    // Behind the lock that is waited for it would be six.
    assert!(slowest < Duration::from_secs(5), "a commit took {slowest:?}");
    assert_eq!(partitions(&place).await, there, "the reader has them all");
    drop(reader);
    let pruned = store.prune(NOON_US - 10 * DAY_US, NOON_US + 400 * DAY_US).await.unwrap();
    assert_eq!(pruned.events, 16);
    assert_eq!(partitions(&place).await, there - 16 + 8);
    // Whoever has the done queue without its partitions, stops none of it.
    let mut reader = place.postgres_connection().await;
    reader
        .execute("BEGIN; LOCK TABLE ONLY event_history, ONLY ended_batches IN ACCESS SHARE MODE")
        .await
        .unwrap();
    store.prune(0, NOON_US + 500 * DAY_US).await.unwrap();
    assert_eq!(partitions(&place).await, there);
    place.remove().await;
}

/// One shard's commit waits for a lock. Others have joined it already, and nobody joins after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_waits_for_a_lock_stops_no_other_shard() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let mut leases = Vec::new();
    for shard in [5, 6, 7] {
        leases.push(take(&*store, shard).await);
    }
    let mut other = place.postgres_connection().await;
    other.execute("BEGIN; SELECT 1 FROM queue_shards WHERE shard_id = 5 FOR UPDATE").await.unwrap();
    let run = waiting(&schedule("one"), 5, NOON_US);
    let few = |count| Changes {
        history: (0..count).map(|index| ended(run.id, index, Outcome::Succeeded)).collect(),
        ..Changes::default()
    };
    // Of so many rows that no small one goes with it.
    let (one, large) = (store.clone(), few(200));
    let lease = leases.remove(0);
    let stands = tokio::spawn(async move { one.commit(&lease, &large).await });
    // It has begun, and has not been under way for long.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let small = few(1);
    let others = join_all(leases.iter().map(|lease| store.commit(lease, &small)));
    let done = tokio::time::timeout(Duration::from_secs(5), others).await;
    done.expect("they wait for the one that stands").into_iter().for_each(|done| done.unwrap());
    assert!(!stands.is_finished());
    other.execute("ROLLBACK").await.unwrap();
    stands.await.unwrap().unwrap();
    place.remove().await;
}

/// Many ask for what takes long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_who_wait_keep_neither_heartbeats_nor_commits_waiting() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let lease = take(&*store, 5).await;
    let mut other = place.postgres_connection().await;
    other.execute("BEGIN; LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let asking: Vec<_> = (0..40)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.audit("default", &Default::default(), None, 10).await })
        })
        .collect();
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'audit_log'::regclass";
    while place.number(waits).await < 2 {}
    let run = waiting(&schedule("one"), 5, NOON_US);
    for heartbeat in 0..5 {
        let began = Instant::now();
        let member = Member {
            process: "me".to_owned(),
            roles: "handler".to_owned(),
            address: String::new(),
            heartbeat,
        };
        store.heartbeat(&member).await.unwrap();
        store.leases().await.unwrap();
        store.ping().await.unwrap();
        let history = vec![ended(run.id, heartbeat.try_into().unwrap(), Outcome::Succeeded)];
        store.commit(&lease, &Changes { history, ..Changes::default() }).await.unwrap();
        store.shards_with_news(NOON_US).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(place.number(waits).await <= 2, "people have so many connections");
    drop(other);
    for answer in asking {
        // Some came too late for a connection.
        let _answer = answer.await.unwrap();
    }
    place.remove().await;
}

/// What a call comes to, and how long it takes.
async fn timed<T>(call: impl Future<Output = T>) -> (T, Duration) {
    let began = Instant::now();
    let done = call.await;
    (done, began.elapsed())
}

/// Whoever asks, asks by the thousand, and again.
pub(crate) async fn look_ups_keep_no_role_waiting(place: &Place) {
    let store = place.open().await;
    let run = waiting(&schedule("one"), 5, NOON_US);
    commit(&*store, 5, Changes { runs_new: vec![run.clone()], ..Changes::default() }).await;
    let people = store.on_behalf_of(Asker::People);
    let mut asking = JoinSet::new();
    for _ in 0..LOOK_UPS {
        let (people, run) = (people.clone(), run.clone());
        asking.spawn(async move {
            loop {
                // Some come too late for a connection.
                let _leases = people.leases().await;
                let _runs = people.runs(5, &[run.id]).await;
                let _specs = people.specs(5, &[(run.schedule_uid, run.generation)]).await;
            }
        });
    }
    let mut late = Vec::new();
    for heartbeat in 0..5 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let roles = async {
            let (process, roles) = ("me".to_owned(), "handler".to_owned());
            let member = Member { process, roles, address: String::new(), heartbeat };
            let (beaten, beat) = timed(store.heartbeat(&member)).await;
            let (leases, others) = timed(store.leases()).await;
            let lease = leases.unwrap().remove(6);
            let (taken, takeover) = timed(store.take_shard(&lease, "me")).await;
            let (loaded, load) = timed(store.load_shard(5)).await;
            let (read, news) = timed(store.shards_with_news(NOON_US)).await;
            let claim = store.claim_tasks(Uuid::new_v4(), NOON_US + 10, NOON_US, 1);
            let (claimed, claim) = timed(claim).await;
            beaten.unwrap();
            assert!(taken.unwrap().is_some() && loaded.is_ok() && read.is_ok() && claimed.is_ok());
            [beat, others, takeover, load, news, claim]
        };
        let (took, (_leases, asked)) = futures::future::join(roles, timed(people.leases())).await;
        // At once, or where the machine has no time for anybody, still far sooner than those who ask.
        let limit = Duration::from_secs(1).max(asked / 2);
        if took.iter().any(|took| *took >= limit) {
            late.push((took, asked));
        }
    }
    // The machine may stand still for a moment, but not each time.
    assert!(late.len() <= 2, "{late:?}: roles, and a look-up meanwhile");
    assert_eq!(asking.len(), LOOK_UPS);
}

/// As while the only synchronous standby is away: each commit hangs, and is given up, and the next one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_backends_do_not_grow_in_number() {
    const CONNECTIONS: u32 = 4;
    let place = Place::postgres().await;
    let store = tollgate_store::open(&place.url, CONNECTIONS).await.unwrap();
    let mut leases = Vec::new();
    for shard in 5..8 {
        leases.push(take(&*store, shard).await);
    }
    place
        .sql(
            "CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                PERFORM set_config('statement_timeout', '0', true); PERFORM pg_sleep(100); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON skipped_triggers DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION at_commit()",
        )
        .await;
    let backends = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'tollgate'";
    let mut most = 0;
    for round in 0..3 {
        let commits = leases.iter().enumerate().map(async |(number, lease)| {
            let one = schedule(&format!("s-{round}-{number}"));
            let skipped = vec![skipped(&one, NOON_US, SkipReason::Overlap)];
            store.commit(lease, &Changes { skipped, ..Changes::default() }).await
        });
        let watch = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            place.number(backends).await
        };
        let (ended, seen) = futures::future::join(join_all(commits), watch).await;
        assert!(ended.iter().all(Result::is_err), "{ended:?}");
        most = most.max(seen);
    }
    // Those that are in use, as many that are left, and the one that looks after them.
    assert!(most <= i64::from(2 * CONNECTIONS), "{most} backends");
    // When the others end, everything goes on.
    let ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND query LIKE 'COMMIT%' AND pid <> pg_backend_pid()";
    place.number(ends).await;
    let began = Instant::now();
    while store.ping().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not come back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_ne!(take(&*store, 5).await.lease_id, Uuid::nil());
    place.remove().await;
}

/// A standby, or a server that was told to take no writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads_is_left_and_found_again() {
    let place = Place::postgres().await;
    let store = place.open().await;
    let member =
        Member { process: "me".to_owned(), roles: String::new(), address: String::new(), heartbeat: 1 };
    store.heartbeat(&member).await.unwrap();
    let reads_only = async |on: bool| {
        // Sessions that are there keep what they have: as when connections have come to another server, all are new.
        let text = format!(
            "BEGIN READ WRITE; DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {on}',
                current_database()); END $$; COMMIT"
        );
        place.sql(&text).await;
    };
    reads_only(true).await;
    let ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'tollgate'";
    place.number(ends).await;
    // Whatever is tried meanwhile fails, and nothing says that all is well.
    for _ in 0..3 {
        assert!(store.heartbeat(&member).await.is_err());
        assert!(store.ping().await.is_err());
    }
    assert!(tollgate_store::open(&place.url, 2).await.is_err());
    reads_only(false).await;
    store.heartbeat(&member).await.expect("a new connection writes");
    store.ping().await.unwrap();
    place.remove().await;
}
