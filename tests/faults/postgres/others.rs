//! What others than the service do in its database: people who read, old snapshots, rows that nobody can read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Context as _, Result};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tollgate_harness::now_us;

use super::Postgres;

/// Runs that cannot be read, in each shard that is to be full of them: more than the service reads at once.
const FULL: i32 = 2_100;
/// In every other shard.
const SOME: i32 = 40;
/// A partition of a day long ago, to be dropped by whoever prunes.
const OLD_PARTITION: &str = "CREATE TABLE IF NOT EXISTS event_history_20200101 PARTITION OF event_history \
     FOR VALUES FROM (1577836800000000) TO (1577923200000000)";
/// What the service makes a specification of; this is none.
const UNREADABLE: &str = "{\"unreadable";

impl Postgres {
    /// A transaction that others have to live with, until it is dropped.
    pub(crate) async fn hold(&self, statements: &[&'static str]) -> Result<PgConnection> {
        let mut connection = self.connect().await?;
        for statement in statements {
            sqlx::raw_sql(*statement)
                .execute(&mut connection)
                .await
                .with_context(|| (*statement).to_owned())?;
        }
        Ok(connection)
    }

    /// Somebody who always has a snapshot, and an old one, until told to stop. Counts the seconds.
    pub(crate) fn snapshots(&self, held_s: Arc<AtomicU64>) -> impl Future<Output = ()> + Send + use<> {
        let url = self.server.url("tollgate");
        async move {
            loop {
                // The server may be down; then the next is the old one.
                if let Ok(mut connection) = PgConnection::connect(&url).await {
                    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current_snapshot()";
                    let mut last = sqlx::raw_sql(begin).execute(&mut connection).await;
                    while last.is_ok() {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        held_s.fetch_add(1, SeqCst);
                        last = sqlx::raw_sql("SELECT 1").execute(&mut connection).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }

    /// As on a new day: a partition of the done queue is to be made, and an old one to be dropped.
    pub(crate) async fn new_day(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        let latest: Option<String> = sqlx::query_scalar(
            "SELECT max(relname::text) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid \
             WHERE inhparent = 'event_history'::regclass AND relname ~ '^event_history_[0-9]{8}$'",
        )
        .fetch_one(&mut connection)
        .await?;
        if let Some(name) = latest {
            // The catalogue gave the name.
            sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {name}"))).execute(&mut connection).await?;
        }
        sqlx::raw_sql(OLD_PARTITION).execute(&mut connection).await?;
        Ok(())
    }

    /// How many dead rows the leases of the queue shards have left.
    pub(crate) async fn dead_lease_rows(&self) -> Result<i64> {
        let sql = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'queue_shards'";
        Ok(sqlx::query_scalar(sql).fetch_one(&mut self.connect().await?).await?)
    }

    /// Fills these shards with runs and messages that cannot be read, older than everything else; some runs in every shard.
    pub(crate) async fn add_unreadable(&self, shards: &[u16]) -> Result<()> {
        let full: Vec<i32> = shards.iter().map(|shard| i32::from(*shard)).collect();
        let mut connection = self.connect().await?;
        let mut transaction = connection.begin().await?;
        sqlx::query(
            "INSERT INTO run_specs (shard_id, schedule_uid, generation, created_us, body) \
             SELECT shard_id, md5('unreadable' || shard_id)::uuid, 1, $1, $2 FROM queue_shards ON CONFLICT DO NOTHING",
        )
        .bind(now_us())
        .bind(UNREADABLE)
        .execute(&mut *transaction)
        .await?;
        // As the runs that are there, whatever columns they have.
        sqlx::query(
            "INSERT INTO runs SELECT made.* FROM (SELECT runs FROM runs LIMIT 1) AS one (run), queue_shards AS shard, \
             generate_series(1, CASE WHEN shard.shard_id = ANY ($2) THEN $3 ELSE $4 END) AS number, \
             LATERAL jsonb_populate_record(one.run, jsonb_build_object( \
                 'shard_id', shard.shard_id, 'run_id', gen_random_uuid(), \
                 'schedule_uid', md5('unreadable' || shard.shard_id)::uuid, 'generation', 1, \
                 'namespace', 'unreadable', 'schedule_id', 'unreadable', 'policy_uid', NULL, \
                 'launch_us', $1 - 600000000 + number, 'events', 1, 'priority', 5, 'kind', 'SCHEDULED', \
                 'state', 'EMITTED', 'reason', '', 'next_index', 0, 'succeeded', 0, 'failed', 0, 'dead', 0, \
                 'expired', 0, 'cancelled', 0, 'lost', 0, 'cursor_in', NULL, 'cursor_out', NULL, \
                 'emitted_us', $1, 'started_us', NULL, 'finished_us', NULL)) AS made",
        )
        .bind(now_us())
        .bind(&full)
        .bind(FULL)
        .bind(SOME)
        .execute(&mut *transaction)
        .await?;
        // Identifiers that come before all others.
        sqlx::query(
            "INSERT INTO shard_inbox (shard_id, message_id, body) \
             SELECT shard, ('00000000-0000-4000-8000-' || lpad(to_hex(number), 12, '0'))::uuid, $3 \
             FROM unnest($1) AS shard, generate_series(1, $2) AS number",
        )
        .bind(&full)
        .bind(FULL)
        .bind(UNREADABLE)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction.commit().await?)
    }

    /// Takes them away again.
    pub(crate) async fn remove_unreadable(&self) -> Result<()> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql("DELETE FROM runs WHERE namespace = 'unreadable'").execute(&mut connection).await?;
        for sql in ["DELETE FROM run_specs WHERE body = $1", "DELETE FROM shard_inbox WHERE body = $1"] {
            sqlx::query(sql).bind(UNREADABLE).execute(&mut connection).await?;
        }
        Ok(())
    }
}
