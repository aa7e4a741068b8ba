//! Everything of a shard, for a new owner.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::corrupt::CorruptRow;
use crate::failure::Failure;
use crate::handle::LoadedShard;
use crate::rows::{
    Assembly, BatchRecord, EndedRecord, HistoryRecord, RunRow, SPAN, ScheduleBody, ShardPolicyRow,
    SpecRecord, TokenRecord, UnstartedRow, int,
};

/// How many specs, or runs by their ids, one statement reads.
const KEYS_AT_ONCE: usize = 1000;

/// A query for specs by their keys.
pub(super) fn specs_query(
    shard: i32,
    keys: &[(Uuid, i64)],
) -> sqlx::query::QueryAs<'static, sqlx::Postgres, SpecRecord, sqlx::postgres::PgArguments> {
    let (uids, generations): (Vec<Uuid>, Vec<i64>) = keys.iter().copied().unzip();
    sqlx::query_as(sql!("specs_by_keys")).bind(shard).bind(uids).bind(generations)
}

/// A query for runs by their ids.
pub(super) fn runs_query(
    shard: i32,
    ids: &[Uuid],
) -> sqlx::query::QueryAs<'static, sqlx::Postgres, RunRow, sqlx::postgres::PgArguments> {
    sqlx::query_as(sql!("runs_by_ids")).persistent(false).bind(shard).bind(ids.to_vec())
}

/// Reads a shard, and names what of it is corrupt.
pub(super) async fn load(
    connection: &mut PgConnection,
    shard: i32,
) -> Result<(LoadedShard, Vec<CorruptRow>), Failure> {
    let mut assembly = Assembly::new(shard);
    let policies = sqlx::query_as::<_, ShardPolicyRow>(both_sql!("shard_policies_load")).bind(shard);
    assembly.policies(policies.fetch_all(&mut *connection).await?);
    let schedules = sqlx::query_as::<_, ScheduleBody>(both_sql!("shard_schedules_load")).bind(shard);
    assembly.schedules(schedules.fetch_all(&mut *connection).await?);
    let runs = sqlx::query_as::<_, RunRow>(both_sql!("runs_load")).persistent(false).bind(shard);
    assembly.runs(runs.fetch_all(&mut *connection).await?);
    let unknown = sqlx::query_as::<_, RunRow>(both_sql!("runs_unknown")).persistent(false).bind(shard);
    assembly.unknown_states(unknown.fetch_all(&mut *connection).await?);
    let tokens = sqlx::query_as::<_, TokenRecord>(both_sql!("tokens_load")).bind(shard);
    assembly.tokens(tokens.fetch_all(&mut *connection).await?);
    let batches = sqlx::query_as::<_, BatchRecord>(both_sql!("batches_load")).bind(shard);
    assembly.batches(batches.fetch_all(&mut *connection).await?);
    let unstarted = sqlx::query_as::<_, UnstartedRow>(both_sql!("unstarted_load")).bind(shard);
    assembly.unstarted(unstarted.fetch_all(&mut *connection).await?);
    for (number, (run, first, limit)) in assembly.doubtful().into_iter().enumerate() {
        let own =
            sqlx::query_as::<_, HistoryRecord>(both_sql!("history_list")).bind(shard).bind(run).bind(first);
        let own = own.bind(None::<&str>).bind(limit).fetch_all(&mut *connection).await?;
        let batches =
            sqlx::query_as::<_, EndedRecord>(both_sql!("ended_list")).bind(shard).bind(run).bind(first);
        let batches = batches.bind(limit).bind(int(SPAN)).fetch_all(&mut *connection).await?;
        assembly.ended(number, &own, &batches);
    }
    let paused = sqlx::query_scalar::<_, Option<String>>(both_sql!("shard_pause_read")).bind(shard);
    assembly.pause(paused.fetch_optional(&mut *connection).await?.flatten());
    for keys in assembly.spec_keys().chunks(KEYS_AT_ONCE) {
        assembly.specs(specs_query(shard, keys).fetch_all(&mut *connection).await?);
    }
    for strays in assembly.strays().chunks(KEYS_AT_ONCE) {
        assembly.stray_runs(strays, runs_query(shard, strays).fetch_all(&mut *connection).await?);
    }
    Ok(assembly.finish())
}
