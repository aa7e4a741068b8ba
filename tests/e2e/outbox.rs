//! What was acknowledged is told to the queue shards, also where the process that acknowledged it dies first.

use std::time::{Duration, Instant};

use sqlx::{Connection as _, PgConnection};
use tollgate_harness::resources::{every, http, policy, policy_name, schedule_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{PausePolicyRequest, PauseScheduleRequest};

/// Inboxes take nothing while pauses of a schedule and of a policy are acknowledged, and the process dies then. Asking for the
/// same again finds it done already, and must not have to tell anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledged_pause_outlives_its_process() {
    let database = Database::new(Kind::Postgres).await;
    let dies = Service::start(&database).await;
    let lives = Service::join(&database, &[]).await;
    let consumer = Consumer::start(lives.link(), Releases::Unary, |_| Conduct::work(0..1)).await;
    lives.create_policy("two", policy(2)).await.unwrap();
    for (id, policy) in [("tick", ""), ("tock", "two")] {
        lives.create_schedule(id, every(1, soon(1_000), 2, policy, http(&consumer))).await.unwrap();
    }
    let arrived = || consumer.notes.arrivals_count();
    wait_for("deliveries", 40, async || (arrived() > 8).then_some(())).await;

    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE shard_inbox IN ACCESS EXCLUSIVE MODE")
        .execute(&mut connection)
        .await
        .unwrap();
    let locked = Instant::now();
    let pause = || PauseScheduleRequest {
        name: schedule_name("tick"),
        reason: "a test".to_owned(),
        ..Default::default()
    };
    let pause_policy =
        || PausePolicyRequest { name: policy_name("two"), reason: "a test".to_owned(), ..Default::default() };
    let (mut one, mut other) = (dies.master(), dies.master());
    let answers = tokio::join!(one.pause_schedule(pause()), other.pause_policy(pause_policy()));
    assert!(answers.0.is_ok() && answers.1.is_ok(), "{answers:?}");
    dies.kill9();
    tokio::time::sleep(Duration::from_secs(9).saturating_sub(locked.elapsed())).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
    let answer = lives.master().pause_schedule(pause()).await.unwrap().into_inner();
    assert_eq!(answer.pause.unwrap().reason, "a test");
    let answer = lives.master().pause_policy(pause_policy()).await.unwrap().into_inner();
    assert_eq!(answer.pause.unwrap().reason, "a test");

    // Those in flight come to their end; what the dead process owned is taken over first.
    let mut quiet = (arrived(), Instant::now());
    wait_for("eight seconds without a delivery", 60, async || {
        if arrived() != quiet.0 {
            quiet = (arrived(), Instant::now());
        }
        (quiet.1.elapsed() > Duration::from_secs(8)).then_some(())
    })
    .await;
    let paused = arrived();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(arrived(), paused, "what is paused goes on");
    assert_eq!(rows(&mut connection, "plan_outbox").await, 0);
    lives.stop().await;
}

async fn rows(connection: &mut PgConnection, table: &str) -> i64 {
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
    sqlx::query_scalar(sql).fetch_one(connection).await.unwrap()
}
