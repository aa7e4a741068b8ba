//! Everything of a shard, for a new owner.

use sqlx::PgConnection;
use tollgate_core::handle::change::TokenRow;
use uuid::Uuid;

use crate::failure::Failure;
use crate::handle::LoadedShard;
use crate::rows::{BodyRow, RunRow, SpecRecord, TokenRecord, all, pause, sound, spec_keys};

/// How many specs one statement reads.
const SPECS_AT_ONCE: usize = 1000;

/// A query for specs by their keys.
pub(super) fn specs_query(
    shard: i32,
    keys: &[(Uuid, i64)],
) -> sqlx::query::QueryAs<'static, sqlx::Postgres, SpecRecord, sqlx::postgres::PgArguments> {
    let (uids, generations): (Vec<Uuid>, Vec<i64>) = keys.iter().copied().unzip();
    sqlx::query_as(sql!("specs_by_keys")).bind(shard).bind(uids).bind(generations)
}

/// Reads a shard. A corrupt run, token, spec or schedule is left out and named in the log; a corrupt policy fails the
/// shard, because its limits would not hold.
pub(super) async fn load(connection: &mut PgConnection, shard: i32) -> Result<LoadedShard, Failure> {
    let policies = sqlx::query_as::<_, BodyRow>(sql!("shard_policies_load"))
        .bind(shard)
        .fetch_all(&mut *connection)
        .await?;
    let schedules = sqlx::query_as::<_, BodyRow>(sql!("shard_schedules_load"))
        .bind(shard)
        .fetch_all(&mut *connection)
        .await?;
    let runs = sqlx::query_as::<_, RunRow>(sql!("runs_load"))
        .persistent(false)
        .bind(shard)
        .fetch_all(&mut *connection)
        .await?;
    let tokens =
        sqlx::query_as::<_, TokenRecord>(sql!("tokens_load")).bind(shard).fetch_all(&mut *connection).await?;
    let paused = sqlx::query_scalar::<_, Option<String>>(sql!("shard_pause_read"))
        .bind(shard)
        .fetch_optional(&mut *connection)
        .await?;
    let mut loaded = LoadedShard {
        policies: all(policies)?,
        schedules: sound(schedules),
        runs: sound(runs),
        pause: pause(shard, paused.flatten())?,
        ..LoadedShard::default()
    };
    loaded.keep_tokens(sound::<_, TokenRow>(tokens));
    for keys in spec_keys(&loaded.runs, &loaded.schedules).chunks(SPECS_AT_ONCE) {
        loaded.specs.extend(sound(specs_query(shard, keys).fetch_all(&mut *connection).await?));
    }
    Ok(loaded)
}
