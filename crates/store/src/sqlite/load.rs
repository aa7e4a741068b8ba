//! Everything of a shard, for a new owner.

use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Column as _, FromRow, Row as _, SqliteConnection};
use tollgate_core::model::RunId;
use uuid::Uuid;

use crate::StoreError;
use crate::corrupt::CorruptRow;
use crate::failure::Failure;
use crate::handle::LoadedShard;
use crate::rows::{
    Assembly, BatchRecord, EndedRecord, HistoryRecord, RunRow, SPAN, ScheduleBody, ShardPolicyRow, SpecKey,
    SpecRecord, TokenRecord, UnstartedRow, int, json,
};

/// How many specs, or runs by their ids, one statement reads.
const KEYS_AT_ONCE: usize = 1000;

type Query = sqlx::query::Query<'static, sqlx::Sqlite, SqliteArguments>;

/// A query for specs by their keys.
pub(super) fn specs_query(shard: i32, keys: &[(Uuid, i64)]) -> Result<Query, StoreError> {
    let keys: Vec<SpecKey> =
        keys.iter().map(|&(schedule_uid, generation)| SpecKey { schedule_uid, generation }).collect();
    Ok(sqlx::query(sql!("specs_by_keys")).bind(shard).bind(json(&keys)?))
}

/// Reads a shard, and names what of it is corrupt.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    shard: i32,
) -> Result<(LoadedShard, Vec<CorruptRow>), Failure> {
    let mut assembly = Assembly::new(shard);
    let rows = sqlx::query(both_sql!("shard_policies_load")).bind(shard).fetch_all(&mut *connection).await?;
    let policies = note(&mut assembly, decoded::<ShardPolicyRow>("shard_policies", shard, &rows));
    assembly.policies(policies);
    let rows = sqlx::query(both_sql!("shard_schedules_load")).bind(shard).fetch_all(&mut *connection).await?;
    let schedules = note(&mut assembly, decoded::<ScheduleBody>("shard_schedules", shard, &rows));
    assembly.schedules(schedules);
    let rows = sqlx::query(both_sql!("runs_load")).bind(shard).fetch_all(&mut *connection).await?;
    let runs = runs_of(&mut assembly, shard, &rows);
    assembly.runs(runs);
    let rows = sqlx::query(both_sql!("runs_unknown")).bind(shard).fetch_all(&mut *connection).await?;
    let unknown = runs_of(&mut assembly, shard, &rows);
    assembly.unknown_states(unknown);
    let rows = sqlx::query(both_sql!("tokens_load")).bind(shard).fetch_all(&mut *connection).await?;
    let tokens = tokens_of(&mut assembly, shard, &rows);
    assembly.tokens(tokens);
    let rows = sqlx::query(both_sql!("batches_load")).bind(shard).fetch_all(&mut *connection).await?;
    let batches = batches_of(&mut assembly, shard, &rows);
    assembly.batches(batches);
    let rows = sqlx::query(both_sql!("unstarted_load")).bind(shard).fetch_all(&mut *connection).await?;
    let unstarted = unstarted_of(&mut assembly, shard, &rows);
    assembly.unstarted(unstarted);
    for (number, (run, first, limit)) in assembly.doubtful().into_iter().enumerate() {
        let query = sqlx::query(both_sql!("history_list")).bind(shard).bind(run).bind(first);
        let rows = query.bind(None::<&str>).bind(limit).fetch_all(&mut *connection).await?;
        let own = note(&mut assembly, decoded::<HistoryRecord>("event_history", shard, &rows));
        let query = sqlx::query(both_sql!("ended_list")).bind(shard).bind(run).bind(first);
        let rows = query.bind(limit).bind(int(SPAN)).fetch_all(&mut *connection).await?;
        let batches = note(&mut assembly, decoded::<EndedRecord>("ended_batches", shard, &rows));
        assembly.ended(number, &own, &batches);
    }
    let paused = sqlx::query_scalar::<_, Option<String>>(both_sql!("shard_pause_read")).bind(shard);
    assembly.pause(paused.fetch_optional(&mut *connection).await?.flatten());
    for keys in assembly.spec_keys().chunks(KEYS_AT_ONCE) {
        let rows = specs_query(shard, keys)?.fetch_all(&mut *connection).await?;
        let specs = note(&mut assembly, decoded::<SpecRecord>("run_specs", shard, &rows));
        assembly.specs(specs);
    }
    for strays in assembly.strays().chunks(KEYS_AT_ONCE) {
        let query = sqlx::query(sql!("runs_by_ids")).bind(shard).bind(json(strays)?);
        let rows = query.fetch_all(&mut *connection).await?;
        let runs = runs_of(&mut assembly, shard, &rows);
        assembly.stray_runs(strays, runs);
    }
    Ok(assembly.finish())
}

/// Rows of `runs`. Of one that cannot be taken apart, the policy is all that matters.
fn runs_of(assembly: &mut Assembly, shard: i32, rows: &[SqliteRow]) -> Vec<RunRow> {
    for row in rows.iter().filter(|row| RunRow::from_row(*row).is_err()) {
        if let Ok(id) = row.try_get("run_id") {
            assembly.unfit(RunId(id), row.try_get("policy_uid").unwrap_or_default());
        }
    }
    note(assembly, decoded("runs", shard, rows))
}

/// Rows of `tokens`. One that cannot be taken apart counts by its key.
fn tokens_of(assembly: &mut Assembly, shard: i32, rows: &[SqliteRow]) -> Vec<TokenRecord> {
    let broken = rows.iter().filter_map(|row| Some((row, TokenRecord::from_row(row).err()?)));
    for (row, error) in broken {
        let (Ok(run_id), Ok(idx)) = (row.try_get("run_id"), row.try_get("idx")) else {
            assembly.nameless_token(row.try_get("run_id").ok());
            continue;
        };
        let token = TokenRecord {
            run_id,
            idx,
            state: String::new(),
            attempt: number(row, "attempt"),
            failures: number(row, "failures"),
            checks: number(row, "checks"),
            due_us: number(row, "due_us"),
            acquired_us: number(row, "acquired_us"),
            delivered_us: row.try_get("delivered_us").unwrap_or_default(),
            heartbeat_ttl_ms: None,
            message: String::new(),
        };
        assembly.token_stands_in(&token, error.to_string());
    }
    note(assembly, decoded("tokens", shard, rows))
}

/// Rows of `token_batches`. One that cannot be taken apart counts by its key.
fn batches_of(assembly: &mut Assembly, shard: i32, rows: &[SqliteRow]) -> Vec<BatchRecord> {
    for row in rows.iter().filter(|row| BatchRecord::from_row(*row).is_err()) {
        let (Ok(run_id), Ok(first_idx)) = (row.try_get("run_id"), row.try_get("first_idx")) else {
            assembly.nameless_batch(row.try_get("run_id").ok(), number(row, "events"));
            continue;
        };
        assembly.batch_stands_in(&BatchRecord {
            run_id,
            first_idx,
            events: number(row, "events"),
            acquired_us: number(row, "acquired_us"),
            gone: Vec::new(),
            held: Vec::new(),
            delivered_us: row.try_get("delivered_us").unwrap_or_default(),
        });
    }
    note(assembly, decoded("token_batches", shard, rows))
}

/// Rows of `unstarted_events`. One that cannot be taken apart keeps its run from going on.
fn unstarted_of(assembly: &mut Assembly, shard: i32, rows: &[SqliteRow]) -> Vec<UnstartedRow> {
    for row in rows.iter().filter(|row| UnstartedRow::from_row(*row).is_err()) {
        assembly.unstarted_unknown(row.try_get("run_id").ok());
    }
    note(assembly, decoded("unstarted_events", shard, rows))
}

/// A column's number; zero where it cannot be read.
fn number<'r, N>(row: &'r SqliteRow, column: &str) -> N
where
    N: Default + sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(column).unwrap_or_default()
}

fn note<R>(assembly: &mut Assembly, (rows, found): (Vec<R>, Vec<CorruptRow>)) -> Vec<R> {
    assembly.undecodable(found);
    rows
}

/// Rows taken apart one by one: SQLite keeps integers of any size and bytes of any length, and one that does not fit must
/// not stop the others.
pub(super) fn decoded<R>(table: &'static str, shard: i32, rows: &[SqliteRow]) -> (Vec<R>, Vec<CorruptRow>)
where
    R: for<'r> FromRow<'r, SqliteRow>,
{
    let (mut kept, mut found) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in rows {
        match R::from_row(row) {
            Ok(value) => kept.push(value),
            Err(error) => found.push(undecodable(table, shard, row, &error)),
        }
    }
    (kept, found)
}

fn undecodable(table: &'static str, shard: i32, row: &SqliteRow, error: &sqlx::Error) -> CorruptRow {
    let (column, message) = match error {
        sqlx::Error::ColumnDecode { index, source } => {
            (index.trim_matches('"').to_owned(), source.to_string())
        }
        other => (String::new(), other.to_string()),
    };
    let keys = row.columns().iter().filter_map(|column| {
        let name = column.name();
        let of_key = matches!(name, "uid" | "run_id" | "idx" | "first_idx" | "schedule_uid" | "generation");
        of_key.then(|| format!("{name} {}", shown(row, name)))
    });
    let key = keys.collect::<Vec<_>>().join(", ");
    CorruptRow { table, shard: u16::try_from(shard).ok(), key, column, message }
}

/// A column of a key as text, also one of a wrong type.
fn shown(row: &SqliteRow, column: &str) -> String {
    if let Ok(uid) = row.try_get::<Uuid, _>(column) {
        return uid.to_string();
    }
    if let Ok(number) = row.try_get::<i64, _>(column) {
        return number.to_string();
    }
    let bytes: Vec<u8> = row.try_get(column).unwrap_or_default();
    bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect()
}
