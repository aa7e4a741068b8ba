//! What comes and goes leaves nothing behind: schedules, policies, runs, keys and processes, for as long as
//! `TOLLGATE_CHURN_SECONDS` says, a quarter of a minute by default. In an hour it is more than most have in a day.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tollgate_harness::resources::{http, once, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};

/// Schedules of a round, each with a policy of its own.
const SCHEDULES: usize = 40;
const PAYLOAD_BYTES: usize = 4_096;
/// Memory that the allocator may keep beyond what was there after the first third.
const SLACK_BYTES: u64 = 24 << 20;
/// A schedule and its policy are remembered for a day, which no test waits for: docs/memory.md.
const REMEMBERED_BYTES: u64 = 2_048;
/// SQLite's connections keep pages: so many of them, up to so many bytes each.
const CACHES: (u64, u64) = (7, 16 << 20);
const DAY_US: i64 = 86_400_000_000;
/// After so many prunings, ten minutes apart, everything has had its turn.
const PRUNINGS: i64 = 160;
/// What stays for ever, in all of them together: one row for what is known of the installation, and the newest window.
const SPARE_ROWS: i64 = 8;

fn length() -> Duration {
    let seconds = std::env::var("TOLLGATE_CHURN_SECONDS").map_or(15, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// One round: all that users do, and its end.
async fn round(service: &Service, consumer: &Consumer, database: &Database, number: usize) {
    let cli = Cli::new(service.url());
    let ids: Vec<String> = (0..SCHEDULES).map(|at| format!("r{number}-{at}")).collect();
    for id in &ids {
        service.create_policy(id, policy(3)).await.unwrap();
        let far = soon(300 * 86_400_000);
        service.create_schedule(id, once(far, 2, id, http(consumer))).await.unwrap();
    }
    for id in &ids {
        let payload = format!("{{\"pad\":\"{}\"}}", "x".repeat(PAYLOAD_BYTES));
        let text = format!(
            "kind: Schedule\nid: {id}\ntriggers: [{{cron: '0 0 1 1 *'}}]\nevents: 2\npolicy: {id}\npayload: {payload}\n\
             target: {{http: {{url: '{}', secret: '{}'}}}}\n",
            consumer.url(),
            tollgate_harness::SECRET,
        );
        if id.ends_with("-0") {
            // One by a file, the others by the API: both ways leave traces of their own.
            let applied = cli.run_with(&["apply", "-f", "-"], &text);
            assert_eq!(applied.code, 0, "{applied:?}");
        }
        let name = schedule_name(id);
        let paused = tollgate_proto::v1::PauseScheduleRequest {
            name: name.clone(),
            reason: "churn".to_owned(),
            ..Default::default()
        };
        service.master().pause_schedule(paused).await.unwrap();
        service
            .master()
            .resume_schedule(tollgate_proto::v1::ResumeScheduleRequest {
                name: name.clone(),
                ..Default::default()
            })
            .await
            .unwrap();
        let trigger = tollgate_proto::v1::TriggerScheduleRequest { name, ..Default::default() };
        service.master().trigger_schedule(trigger).await.unwrap();
    }
    let key = cli.run(&[
        "key",
        "create",
        &format!("churn{number}"),
        "--scopes",
        "read",
        "--namespace",
        "default",
        "--store",
        &database.url(),
        "-o",
        "json",
    ]);
    assert_eq!(key.code, 0, "{key:?}");
    let key: serde_json::Value = serde_json::from_str(&key.out).unwrap();
    let revoked = cli.run(&["key", "revoke", key["id"].as_str().unwrap(), "--store", &database.url()]);
    assert_eq!(revoked.code, 0, "{revoked:?}");
    for id in &ids {
        service.finished(id, 30).await;
        let name = schedule_name(id);
        let gone = tollgate_proto::v1::DeleteScheduleRequest { name, ..Default::default() };
        service.master().delete_schedule(gone).await.unwrap();
    }
    for id in &ids {
        let name = policy_name(id);
        let gone = tollgate_proto::v1::DeletePolicyRequest { name, ..Default::default() };
        service.master().delete_policy(gone).await.unwrap();
    }
}

async fn what_comes_and_goes_leaves_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    // What is loaded once, the first caches, the pools.
    round(&service, &consumer, &database, 0).await;
    let before = rows(&database).await;
    let (start, mut rounds, mut early) = (Instant::now(), 1, None);
    while start.elapsed() < length() || rounds < 3 {
        round(&service, &consumer, &database, rounds).await;
        rounds += 1;
        if kind == Kind::Postgres && rounds % 3 == 0 {
            // Processes come and go, too.
            let other = Service::join(&database, &[]).await;
            wait_for("the other process at work", 30, async || {
                let status = other
                    .handler()
                    .get_handler_status(tollgate_proto::v1::GetHandlerStatusRequest::default())
                    .await
                    .ok()?
                    .into_inner();
                status.shards.iter().any(|shard| shard.owner == status.handler).then_some(())
            })
            .await;
            other.stop().await;
        }
        if early.is_none() && start.elapsed() > length() / 3 {
            early = Some((service.rss_bytes(), rounds, file_bytes(&database)));
        }
    }
    consumer.notes.assert_clean();
    let (early_bytes, early_rounds, early_file_bytes) = early.unwrap();
    let late_bytes = service.rss_bytes();
    let remembered = (rounds - early_rounds) as u64 * SCHEDULES as u64 * REMEMBERED_BYTES;
    let cached = CACHES.0 * CACHES.1.min(file_bytes(&database).saturating_sub(early_file_bytes));
    assert!(
        late_bytes < early_bytes + SLACK_BYTES + remembered + cached,
        "memory grew from {early_bytes} to {late_bytes} bytes in {rounds} rounds"
    );
    service.stop().await;
    // What shards remember of schedules and policies goes a day later.
    for sql in aged(kind) {
        database.sql(&sql).await;
    }
    let service = Service::start(&database).await;
    wait_for("what shards remember to be forgotten", 60, async || {
        let left = database.count("shard_schedules").await + database.count("shard_policies").await;
        (left <= SPARE_ROWS).then_some(())
    })
    .await;
    service.stop().await;
    // A retention later, nothing of it is there. Run specs have their turns, so many prunings are needed.
    let store = tollgate_store::open(&database.url(), 4).await.unwrap();
    for turn in 0..PRUNINGS {
        let now_us = now_us() + 3 * DAY_US + turn * 600_000_000;
        store.prune(now_us - DAY_US, now_us).await.unwrap();
    }
    store.close().await;
    drop(store);
    let after = rows(&database).await;
    for (table, rows) in &after {
        let had = before.get(table).copied().unwrap_or(0);
        assert!(
            *rows <= had.max(SPARE_ROWS),
            "{table}: {had} rows after one round, {rows} after {rounds} and a retention"
        );
    }
}

/// How large the database's file is; 0 where it has none of its own.
fn file_bytes(database: &Database) -> u64 {
    let url = database.url();
    let path = url.strip_prefix("sqlite:").unwrap_or_default();
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// Statements by which what shards remember becomes three days older.
fn aged(kind: Kind) -> [String; 2] {
    let ago = 3 * DAY_US;
    let until = match kind {
        Kind::Sqlite => {
            let aged = |field| format!("'$.{field}', json_extract(body, '$.{field}') - {ago}");
            format!("json_set(body, {}, {})", aged("until_us"), aged("changed_us"))
        }
        Kind::Postgres => {
            let aged = |field| format!("'{field}', (body::jsonb ->> '{field}')::bigint - {ago}");
            format!("(body::jsonb || jsonb_build_object({}, {}))::text", aged("until_us"), aged("changed_us"))
        }
    };
    [
        format!("UPDATE shard_policies SET deleted_us = deleted_us - {ago} WHERE deleted_us IS NOT NULL"),
        format!("UPDATE shard_schedules SET body = {until}"),
    ]
}

/// How many rows each table has.
async fn rows(database: &Database) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for table in database.tables().await {
        rows.insert(table.clone(), database.count(&table).await);
    }
    rows
}

on_both_stores!(what_comes_and_goes_leaves_nothing);
