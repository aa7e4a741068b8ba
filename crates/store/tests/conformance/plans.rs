//! Which way statements go: by key to the rows that they need, whatever else a table holds.

use std::fs;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tollgate_store::columns::{Dialect, compose, with_parts};

use super::place::Place;

/// What SQLite may read from one end to the other: tables with few rows, whatever is stored, and results of a part of the
/// same statement.
const SHORT: [&str; 20] = [
    "CONSTANT",
    "alert_changes",
    "api_keys",
    "before",
    "counted",
    "free",
    "launch_shards",
    "known",
    "leaving",
    "members",
    "missed",
    "next",
    "of_each",
    "of_minutes",
    "of_shards",
    "queue_shards",
    "scan_tasks",
    "scan_windows",
    "sqlite_schema",
    "unfinished",
];

/// Statements that read a whole shard, or a table in the order of an index, because that is what they are for.
const WHOLE: [&str; 24] = [
    "alerts_count",
    "audit_list",
    "batches_load",
    "fill_policies",
    "fill_schedules",
    "inbox_list",
    "inbox_pauses",
    "moved_homes_list",
    "moves_about_runs",
    "moves_ends",
    "moves_policies",
    "news",
    "outbox_lanes",
    "prune_homes",
    "prune_specs",
    "prune_windows",
    "runs_list_open",
    "runs_list_open_rising",
    "runs_listing",
    "schedules_count",
    "shard_policies_load",
    "shard_schedules_load",
    "tokens_load",
    "unstarted_load",
];

/// Whether a step of SQLite's plan reads more than it needs, but for statements in [`WHOLE`].
fn detour(step: &str) -> bool {
    if let Some(table) = step.strip_prefix("SCAN ") {
        return !table.contains("VIRTUAL TABLE") && !SHORT.contains(&table.split(' ').next().unwrap());
    }
    // Indexes of part of a table are made for it.
    let partial = ["runs_emitted", "runs_open", "runs_unknown", "policies_adopting"]
        .iter()
        .any(|index| step.contains(index));
    !partial && (step.ends_with("(shard_id=?)") || step.ends_with("(namespace=?)"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_looks_up_by_key() {
    let place = Place::sqlite();
    place.open().await.close().await;
    let mut connection = place.sqlite_connection().await;
    let mut detours = Vec::new();
    let files = ["src/sqlite/queries", "src/queries"]
        .map(|folder| fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap());
    let mut whole = WHOLE.to_vec();
    for file in files.into_iter().flatten() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        // Without parameters, all are NULL; nothing is carried out.
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", compose(&text, Dialect::Sqlite)));
        let rows = sqlx::raw_sql(explain).fetch_all(&mut connection).await.unwrap();
        let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
        assert!(!steps.is_empty() || text.contains("VALUES") || !text.contains("FROM"), "{name}");
        let of_it: Vec<&String> = steps.iter().filter(|step| detour(step)).collect();
        match whole.iter().position(|whole| *whole == name) {
            Some(at) if !of_it.is_empty() => drop(whole.swap_remove(at)),
            _ => detours.extend(of_it.iter().map(|step| format!("{name}: {step}"))),
        }
        // Not even those look at a shard's runs for each row of something else.
        let walks_runs = steps.iter().any(|step| step.starts_with("SEARCH runs ") && detour(step));
        assert!(!walks_runs, "{name}: {steps:?}");
    }
    // Those who look by themselves, at a run.
    let own = "EXPLAIN QUERY PLAN SELECT idx FROM ended_events WHERE shard_id = 5 AND run_id = x'00'";
    let rows = sqlx::raw_sql(own).fetch_all(&mut connection).await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get("detail")).collect();
    let by_key = |step: &&String| step.ends_with("USING PRIMARY KEY (shard_id=? AND run_id=?)");
    assert_eq!(steps.iter().filter(by_key).count(), 2, "{steps:?}");
    assert!(detours.is_empty(), "{}", detours.join("\n"));
    assert!(whole.is_empty(), "no such statements, or they look up by key: {whole:?}");
    connection.close().await.unwrap();
    place.remove().await;
}

/// What the planner makes of statements once and for all, in the states that a young table goes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_made_on_an_empty_table_look_up_by_key() {
    const STATEMENTS: [(&str, &str); 13] = [
        ("tokens_delete", include_str!("../../src/postgres/queries/tokens_delete.sql")),
        ("history_delete", include_str!("../../src/postgres/queries/history_delete.sql")),
        ("unstarted_delete", include_str!("../../src/postgres/queries/unstarted_delete.sql")),
        ("runs_delete", include_str!("../../src/postgres/queries/runs_delete.sql")),
        ("inbox_delete", include_str!("../../src/postgres/queries/inbox_delete.sql")),
        ("shard_schedules_delete", include_str!("../../src/postgres/queries/shard_schedules_delete.sql")),
        ("shard_policies_delete", include_str!("../../src/postgres/queries/shard_policies_delete.sql")),
        ("specs_by_keys", include_str!("../../src/postgres/queries/specs_by_keys.sql")),
        ("runs_emitted", include_str!("../../src/queries/runs_emitted.sql")),
        ("tokens_list", include_str!("../../src/queries/tokens_list.sql")),
        ("history_list", include_str!("../../src/queries/history_list.sql")),
        ("ended_list", include_str!("../../src/queries/ended_list.sql")),
        ("scan", include_str!("../../src/postgres/queries/scan.sql")),
    ];
    let place = Place::postgres().await;
    let store = place.open().await;
    store.close().await;
    let mut connection = place.postgres_connection().await;
    let settings = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
                    SET plan_cache_mode = force_generic_plan";
    sqlx::raw_sql(settings).execute(&mut connection).await.unwrap();
    for state in ["SELECT 1", "VACUUM ANALYZE"] {
        sqlx::raw_sql(state).execute(&mut connection).await.unwrap();
        for (name, text) in STATEMENTS {
            let text = compose(text, Dialect::Postgres);
            let parameters = (1..10).take_while(|n| text.contains(&format!("${n}"))).count();
            let nulls = vec!["NULL"; parameters].join(", ");
            let prepare = format!("DEALLOCATE ALL; PREPARE {name} AS {text}");
            sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut connection).await.unwrap();
            let explain = format!("EXPLAIN (COSTS OFF) EXECUTE {name} ({nulls})");
            let plan: Vec<String> = sqlx::query_scalar(AssertSqlSafe(explain))
                .persistent(false)
                .fetch_all(&mut connection)
                .await
                .unwrap();
            let plan = plan.join("\n");
            assert!(!plan.contains("Join Filter") && !plan.contains("Seq Scan"), "{state}: {name}\n{plan}");
            let by_shard_alone = plan.lines().any(|line| line.trim() == "Index Cond: (shard_id = $1)");
            assert!(!by_shard_alone, "{state}: {name}\n{plan}");
            assert!(!plan.contains("Filter: (shard_id"), "{state}: {name}\n{plan}");
            assert!(plan.contains("Index Cond"), "{state}: {name}\n{plan}");
        }
    }
    place.remove().await;
}

/// The same of the statement that carries nearly every commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_finds_each_row_by_its_key() {
    let place = Place::postgres().await;
    place.open().await.close().await;
    let mut connection = place.postgres_connection().await;
    // As connections for commits have it.
    let settings = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
                    SET plan_cache_mode = force_generic_plan";
    sqlx::raw_sql(settings).execute(&mut connection).await.unwrap();
    let text = include_str!("../../src/postgres/queries/commit.sql");
    for state in ["SELECT 1", "VACUUM ANALYZE"] {
        sqlx::raw_sql(state).execute(&mut connection).await.unwrap();
        let plan = commit_plan(&mut connection, &compose(text, Dialect::Postgres)).await;
        let count = |what: &str| plan.iter().filter(|line| line.contains(what)).count();
        let plan_text = || format!("{state}\n{}", plan.join("\n"));
        // Runs and batches that change, batches, stretches and messages that go: written where they were found.
        assert_eq!(count("Tid Scan on"), 5, "{}", plan_text());
        // From the end, where the latest version is, and not by sorting all of them.
        assert_eq!(count("Index Scan Backward using runs_pkey"), 1, "{}", plan_text());
        assert_eq!(count("run_id <= "), 1, "{}", plan_text());
        assert_eq!(count("(first_idx = "), 3, "{}", plan_text());
        assert_eq!(count("(message_id = "), 1, "{}", plan_text());
        assert_eq!(count("Seq Scan") + count("Join Filter") + count("Sort"), 0, "{}", plan_text());
    }
    // With some of its parts alone.
    let parts = [
        "batches_gone",
        "batches_changed",
        "batches_new",
        "unstarted_gone",
        "unstarted_put",
        "ended",
        "runs_new",
        "inbox_new",
        "inbox_done",
        "history",
    ];
    for there in 0..1_usize << parts.len() {
        let has =
            |name: &str| parts.iter().position(|part| *part == name).is_some_and(|at| there & (1 << at) != 0);
        let of_them = compose(&with_parts(text, has), Dialect::Postgres).into_owned();
        let plan = commit_plan(&mut connection, &of_them).await.join("\n");
        assert!(
            !["Seq Scan", "Join Filter", "Sort"].iter().any(|detour| plan.contains(detour)),
            "{of_them}\n{plan}"
        );
        assert_eq!(plan.matches(" on ended_batches").count(), usize::from(has("ended")), "{plan}");
        assert_eq!(
            plan.matches("Insert on token_batches").count(),
            usize::from(has("batches_new")),
            "{plan}"
        );
        for (what, part) in [
            ("Insert on runs", "runs_new"),
            ("Insert on shard_inbox", "inbox_new"),
            ("Delete on shard_inbox", "inbox_done"),
            ("(message_id = ", "inbox_done"),
        ] {
            assert_eq!(plan.matches(what).count(), usize::from(has(part)), "{plan}");
        }
    }
    place.remove().await;
}

/// How the statement goes that carries commits.
async fn commit_plan(connection: &mut sqlx::PgConnection, text: &str) -> Vec<String> {
    let parameters = (1..200).take_while(|n| text.contains(&format!("${n}::"))).count();
    let nulls = vec!["NULL"; parameters].join(", ");
    let prepare = format!("DEALLOCATE ALL; PREPARE at_once AS {text}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *connection).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN (COSTS OFF) EXECUTE at_once ({nulls})"));
    sqlx::query_scalar(explain).persistent(false).fetch_all(connection).await.unwrap()
}
