//! Reads every statement and migration, and checks what lets the hot tables be distributed by shard (Citus) unchanged.
//!
//! `shard_id` first in every key; `shard_id = $1` joined by AND in every statement but the marked cold reads; whole keys in
//! deletes; nothing that a distributed table cannot have. Also that both drivers have the same statements.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tollgate_store::columns::{Dialect, compose};

const HOT: [&str; 19] = [
    "queue_shards",
    "shard_inbox",
    "shard_policies",
    "shard_schedules",
    "run_specs",
    "runs",
    "tokens",
    "token_batches",
    "event_history",
    "event_history_default",
    "ended_batches",
    "ended_batches_default",
    "closed_failures",
    "item_pages",
    "item_runs",
    "unstarted_events",
    "event_results",
    "moved_homes",
    "moved_runs",
];

/// Clocks, chance, sequences and messages between sessions: no statement and no migration may have them.
const FORBIDDEN: [&str; 20] = [
    "now(",
    "clock_timestamp",
    "statement_timestamp",
    "current_timestamp",
    "current_date",
    "current_time",
    "localtimestamp",
    "strftime",
    "datetime(",
    "unixepoch",
    "julianday",
    "random(",
    "randomblob",
    "gen_random_uuid",
    "uuid_generate",
    "nextval",
    "advisory",
    "notify ",
    "listen ",
    "trigger ",
];

/// What a table definition may not have besides.
const FORBIDDEN_IN_TABLES: [&str; 6] =
    ["serial", "identity", "sequence", "autoincrement", "function", "default now"];

/// What may stand in migrations besides tables, and is read statement by statement.
const FUNCTION: &str = "create function commit_";

/// Functions whose statements name many shards: Citus refuses them, and has those that do not.
const MANY_SHARDS: [&str; 2] = ["0012_commit_many", "0016_commit_at_once"];
/// What writes for many shards at once, with what Citus refuses then. It gets the statements that do not.
const AT_ONCE: &str = "commit";
/// Published functions that set a column to an array's element, which ends Citus 13.2 with signal 11. No version from
/// 0013 on calls them.
const SUBSCRIPTS: [&str; 2] = ["0009_commit_events", "0010_commit_shards"];

/// Some tables that are not distributed: Citus joins none of them with one that is.
const COLD: [&str; 10] = [
    "schedules",
    "policies",
    "schedule_children",
    "scan_tasks",
    "scan_windows",
    "audit_log",
    "minute_counts",
    "event_attempts",
    "resource_revisions",
    "submissions",
];

/// Statements that delete by less than the whole key, each with its reason in its file.
const SHORT_KEYS: [&str; 1] = ["history_delete"];

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn sql_files(path: &str) -> BTreeMap<String, String> {
    let dialect = if path.contains("sqlite") { Dialect::Sqlite } else { Dialect::Postgres };
    composed_files(path, dialect)
}

/// The statements of a folder, as a driver has them.
fn composed_files(path: &str, dialect: Dialect) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(root(path)).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(path.extension().unwrap(), "sql", "{}", path.display());
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        files.insert(name, compose(&fs::read_to_string(&path).unwrap(), dialect).into_owned());
    }
    assert!(files.len() > 3);
    files
}

/// All statements of a driver: its own, and those that stand once for both.
fn statements(driver: &str) -> BTreeMap<String, String> {
    let dialect = if driver == "sqlite" { Dialect::Sqlite } else { Dialect::Postgres };
    let mut all = sql_files(&format!("src/{driver}/queries"));
    for (name, text) in composed_files("src/queries", dialect) {
        assert!(all.insert(name.clone(), text).is_none(), "{driver} has a {name} of its own");
    }
    all
}

/// A statement in lower case, without comments, with single blanks.
fn bare(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("--").next().unwrap());
    lines.collect::<Vec<_>>().join(" ").to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The statement and each of its parenthesised parts, every part without the parts inside it.
fn blocks(statement: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![String::new()];
    for character in statement.chars() {
        match character {
            '(' => {
                open.last_mut().unwrap().push_str("( ");
                open.push(String::new());
            }
            ')' => {
                done.push(open.pop().unwrap());
                open.last_mut().unwrap().push(')');
            }
            other => open.last_mut().unwrap().push(other),
        }
    }
    done.extend(open);
    done
}

/// The hot tables that a block reads or changes, with the names under which it knows them.
fn hot_tables(block: &str) -> Vec<(String, String)> {
    let words: Vec<&str> = block.split([' ', ',', ';']).filter(|word| !word.is_empty()).collect();
    let mut found = Vec::new();
    for (i, word) in words.iter().enumerate() {
        let Some(table) = words.get(i + 1).filter(|table| HOT.contains(table)) else { continue };
        if ["from", "join", "update", "using"].contains(word) {
            let alias = if words.get(i + 2) == Some(&"as") { words[i + 3] } else { table };
            found.push(((*table).to_owned(), alias.to_owned()));
        }
    }
    found
}

/// What is wrong with a statement.
fn faults(name: &str, text: &str, keys: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut lines = text.lines();
    if !lines.next().unwrap_or_default().starts_with(&format!("-- {name}: ")) {
        faults.push("the first line does not say its name and what it does".to_owned());
    }
    let cold = lines.any(|line| line.starts_with("-- cold: "));
    let statement = bare(text);
    if cold && !statement.starts_with("select ") {
        faults.push("only a read may be cold".to_owned());
    }
    faults.extend(
        // One statement asks for the server's clock, to compare; what it says goes into no other.
        FORBIDDEN
            .iter()
            .filter(|word| name != "clock" && statement.contains(*word))
            .map(|word| format!("it has {word}")),
    );
    if statement.rfind("insert into").is_some_and(|at| at > 0) {
        faults.push("an INSERT inside another statement".to_owned());
    }
    if statement.trim_end_matches(';').contains(';') {
        faults.push("more than one statement".to_owned());
    }
    if subscripted(&statement) {
        faults.push("a column is set to an element of an array".to_owned());
    }
    let read: Vec<&str> = ["from ", "join ", "update ", "into ", "using "]
        .iter()
        .flat_map(|word| statement.split(word).skip(1))
        .filter_map(|rest| rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next())
        .collect();
    let hot = HOT.iter().find(|table| read.contains(*table));
    let cold_table = COLD.iter().find(|table| read.contains(*table));
    if let (Some(hot), Some(cold_table)) = (hot, cold_table) {
        faults.push(format!("{hot} together with {cold_table}"));
    }
    for block in blocks(&statement) {
        for (table, alias) in hot_tables(&block) {
            if cold {
                continue;
            }
            let by_shard = [format!(" {alias}.shard_id = $1"), " shard_id = $1".to_owned()];
            if !by_shard.iter().any(|condition| format!("{block} ").contains(&format!("{condition} "))) {
                faults.push(format!("{table} without shard_id = $1"));
            }
            if block.contains(" or ") {
                faults.push(format!("{table} with an OR beside shard_id = $1"));
            }
        }
    }
    faults.extend(short_key(name, &statement, keys));
    faults.extend(insert_order(&statement));
    faults
}

/// Whether an UPDATE takes a column's value from an array by nothing but a subscript: `SET a = $1[i]`.
fn subscripted(statement: &str) -> bool {
    let Some((_, set)) = statement.split_once(" set ") else { return false };
    let set = set.split(" where ").next().unwrap().split(" from ").next().unwrap();
    set.split(", ").any(|column| {
        let value = column.split_once(" = ").map_or("", |(_, value)| value.trim());
        value.ends_with(']') && value.contains('[')
    })
}

/// Whether a DELETE leaves a column of the key out.
fn short_key(name: &str, statement: &str, keys: &BTreeMap<String, Vec<String>>) -> Option<String> {
    let table = statement.strip_prefix("delete from ")?.split(' ').next()?;
    let key = keys.get(table.trim_end_matches("_default")).filter(|_| HOT.contains(&table))?;
    let missing: Vec<&String> = key.iter().filter(|column| !statement.contains(column.as_str())).collect();
    let wanted = !missing.is_empty() && !SHORT_KEYS.contains(&name);
    wanted.then(|| format!("the key of {table} without {missing:?}"))
}

/// Whether an INSERT into a hot table does not begin with the shard.
fn insert_order(statement: &str) -> Option<String> {
    let rest = statement.strip_prefix("insert into ")?;
    let (table, columns) = rest.split_once('(')?;
    let wrong = HOT.contains(&table.trim()) && !columns.trim_start().starts_with("shard_id");
    wrong.then(|| format!("an INSERT into {table} whose first column is not shard_id"))
}

/// The text without the function that may be there.
fn without_functions(text: &str) -> String {
    let text = text.replace("create or replace ", "create ");
    let Some((before, rest)) = text.split_once(FUNCTION) else { return text };
    let after = rest.split("$$").nth(2).unwrap();
    format!("{before}{after}")
}

/// The statements in the function's body, each as it would stand on its own.
fn statements_of_function(text: &str) -> Vec<String> {
    let Some((_, rest)) = text.split_once(FUNCTION.trim_start_matches("create ")) else { return Vec::new() };
    let body = rest.split("$$").nth(1).unwrap().replace("perform from ", "select 1 from ");
    let starts = ["update ", "delete from ", "insert into ", "select "];
    let parts = body.split(';').filter_map(|part| {
        let at = starts.iter().filter_map(|start| part.find(start)).min()?;
        // A loop's query ends where the loop's first statement begins.
        Some(part[at..].split(" loop ").map(str::to_owned).collect::<Vec<_>>())
    });
    parts.flatten().map(|part| of_one_shard(part.trim())).collect()
}

/// A statement whose shard comes from an array, an element for each row, as one for a single shard.
fn of_one_shard(statement: &str) -> String {
    let mut parts = statement.split("shard_id = $");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        let place = part.trim_start_matches(|character: char| character.is_ascii_digit());
        match place.strip_prefix("[i]") {
            Some(rest) => text + "shard_id = $1" + rest,
            None => text + "shard_id = $" + part,
        }
    })
}

/// The columns of each table's primary key; panics over what tables may not have.
fn keys(path: &str) -> BTreeMap<String, Vec<String>> {
    let mut keys = BTreeMap::new();
    for (file, text) in sql_files(path) {
        let tables = without_functions(&bare(&text));
        for word in FORBIDDEN.iter().chain(&FORBIDDEN_IN_TABLES) {
            assert!(!tables.contains(word), "{path}/{file}: {word}");
        }
        for statement in tables.split(';').map(str::trim) {
            let Some(rest) = statement.strip_prefix("create table ") else { continue };
            let table = rest.split([' ', '(']).next().unwrap().to_owned();
            let key = match rest.split_once("primary key (") {
                Some((_, columns)) => columns
                    .split(')')
                    .next()
                    .unwrap()
                    .split(',')
                    .map(|column| column.trim().to_owned())
                    .collect(),
                None => rest
                    .split([',', '('])
                    .filter(|column| column.contains(" primary key"))
                    .map(|column| column.trim().split(' ').next().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            };
            if HOT.contains(&table.as_str()) && !rest.contains("partition of") {
                assert_eq!(key.first().map(String::as_str), Some("shard_id"), "{path}/{file}: {table}");
                assert!(
                    !rest.contains(" unique") && !rest.contains(" references "),
                    "{path}/{file}: {table}"
                );
            }
            keys.insert(table, key);
        }
    }
    keys
}

#[test]
fn statements_keep_to_one_shard() {
    let mut all = Vec::new();
    for driver in ["sqlite", "postgres"] {
        let keys = keys(&format!("../../migrations/{driver}"));
        let mut functions = sql_files(&format!("../../migrations/{driver}"));
        for text in MANY_SHARDS.iter().map(|name| functions.remove(*name).unwrap()) {
            for statement in statements_of_function(&bare(&text)) {
                assert!(!subscripted(&statement), "{statement}");
            }
        }
        for (file, text) in functions {
            let bodies = statements_of_function(&bare(&text));
            let is_one = driver == "postgres" && text.contains("FUNCTION commit_");
            assert!(!is_one || bodies.len() >= 6, "{file}: {bodies:?}");
            for statement in bodies {
                if SUBSCRIPTS.contains(&file.as_str()) && subscripted(&statement) {
                    continue;
                }
                let text = format!("-- commit: a part of it\n{statement}");
                all.extend(
                    faults("commit", &text, &keys)
                        .into_iter()
                        .map(|fault| format!("{file}: {statement}: {fault}")),
                );
            }
        }
        for (name, text) in statements(driver) {
            // In SQLite all tables are in one place.
            let counts = |fault: &String| driver == "postgres" || !fault.contains(" together with ");
            let is_refused = |fault: &String| {
                name == AT_ONCE
                    && (fault.contains("INSERT inside") || fault.ends_with("without shard_id = $1"))
            };
            let found =
                faults(&name, &text, &keys).into_iter().filter(counts).filter(|fault| !is_refused(fault));
            all.extend(found.map(|fault| format!("{driver}/{name}: {fault}")));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn keys_and_indexes_begin_with_the_shard() {
    for driver in ["sqlite", "postgres"] {
        let path = format!("../../migrations/{driver}");
        let keys = keys(&path);
        assert!(
            HOT.iter().filter(|table| !table.ends_with("_default")).all(|table| keys.contains_key(*table))
        );
        for (file, text) in sql_files(&path) {
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let index = pair[1].to_lowercase();
                let Some((_, on)) = index.split_once(" on ").filter(|_| index.starts_with("create")) else {
                    continue;
                };
                let hot = HOT.contains(&on.split([' ', '(']).next().unwrap());
                let by_shard = on.contains("(shard_id");
                assert!(!hot || by_shard || pair[0].starts_with("-- cold: "), "{driver}/{file}: {index}");
            }
        }
    }
}

#[test]
fn both_drivers_have_the_same_statements_and_use_them() {
    let names =
        |driver: &str| sql_files(&format!("src/{driver}/queries")).into_keys().collect::<BTreeSet<_>>();
    let (sqlite, postgres) = (names("sqlite"), names("postgres"));
    // Only PostgreSQL has partitions, several writers, and a round trip to save; only SQLite a file of its own to rewrite.
    let own: Vec<&String> = postgres.symmetric_difference(&sqlite).collect();
    assert!(
        own.iter().all(|name| name.starts_with("partition")
            || [
                "clock",
                "shard_lock",
                "commit",
                "fence",
                "runs_update",
                "batches_put",
                "batches_delete",
                "history_insert",
                "ended_insert",
                "prune_specs_old",
                "prune_specs_current",
                "session",
                "backends_living",
                "scrub",
                "unstarted_put",
                "unstarted_delete"
            ]
            .contains(&name.as_str())),
        "{own:?}"
    );
    let migrations =
        |driver: &str| sql_files(&format!("../../migrations/{driver}")).into_keys().collect::<Vec<_>>();
    assert_eq!(migrations("sqlite"), migrations("postgres"));
    // What a folder's sources call for, by a macro's name.
    let source = |folder: &str| -> String {
        let files = fs::read_dir(root(folder)).unwrap().map(|entry| entry.unwrap().path());
        let sources = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        sources.map(|path| fs::read_to_string(path).unwrap()).collect()
    };
    let both = source("src/both");
    for (driver, names) in [("sqlite", sqlite), ("postgres", postgres)] {
        let driver_source = source(&format!("src/{driver}")) + &both;
        for name in names {
            let used =
                ["sql!(", "own_sql!("].iter().any(|by| driver_source.contains(&format!("{by}\"{name}\")")));
            assert!(used, "{driver} does not use {name}");
        }
    }
    let all = both + &source("src/sqlite") + &source("src/postgres");
    for name in composed_files("src/queries", Dialect::Sqlite).into_keys() {
        assert!(all.contains(&format!("sql!(\"{name}\")")), "nobody uses {name}");
    }
}

#[test]
fn what_is_the_same_for_both_stands_once() {
    let read = |driver: &str, name: &str| {
        fs::read_to_string(root(&format!("src/{driver}/queries/{name}.sql"))).unwrap_or_default()
    };
    let twice: Vec<String> = sql_files("src/sqlite/queries")
        .into_keys()
        .filter(|name| read("sqlite", name) == read("postgres", name))
        .collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn planted_faults_are_seen() {
    let keys = keys("../../migrations/postgres");
    let seen = |text: &str| faults("x", &format!("-- x: something.\n{text}"), &keys);
    let sound = [
        "SELECT idx FROM tokens WHERE shard_id = $1 AND run_id = $2",
        "SELECT a FROM runs AS r WHERE r.shard_id = $1 AND (state = 'A' OR state = 'B')",
        "DELETE FROM tokens\nUSING unnest($2::int[]) AS g (idx)\nWHERE tokens.shard_id = $1 AND run_id = $3 AND tokens.idx = g.idx",
        "SELECT id FROM policies WHERE uid = $1 OR id = $2",
        "UPDATE runs SET state = coalesce($3[1]) WHERE shard_id = $1 AND run_id = $2",
        "-- cold: for users.\nSELECT run_id FROM runs WHERE namespace = $1",
    ];
    for text in sound {
        assert_eq!(seen(text), [""; 0], "{text}");
    }
    let faulty = [
        "SELECT idx FROM tokens WHERE run_id = $1",
        "SELECT idx FROM tokens WHERE shard_id = $1 OR run_id = $2",
        "SELECT idx FROM tokens WHERE shard_id = $10 AND run_id = $2",
        "SELECT idx FROM tokens WHERE shard_id = ANY($1)",
        "SELECT 1 FROM tokens WHERE shard_id = $1 AND run_id IN (SELECT run_id FROM runs WHERE launch_us < $2)",
        "UPDATE runs SET state = 'X' WHERE run_id = $1",
        "UPDATE runs SET finished_us = extract(epoch FROM now()) WHERE shard_id = $1 AND run_id = $2",
        "DELETE FROM tokens WHERE shard_id = $1 AND run_id = $2",
        "-- cold: no.\nDELETE FROM tokens WHERE run_id = $1 AND idx = $2 AND shard_id = $3",
        "WITH a AS (INSERT INTO runs (shard_id) VALUES ($1)) SELECT 1",
        "INSERT INTO runs (run_id, shard_id) VALUES ($1, $2)",
        "SELECT idx FROM tokens WHERE shard_id = $1; SELECT 1",
        "UPDATE runs SET state = $3[1] WHERE shard_id = $1 AND run_id = $2",
        "UPDATE runs SET state = $4, reason = ('{5,6}'::text[])[1] WHERE shard_id = $1 AND run_id = $2",
        "SELECT run_id FROM runs WHERE shard_id = $1 AND NOT EXISTS (SELECT 1 FROM schedules WHERE uid = runs.schedule_uid)",
    ];
    for text in faulty {
        assert!(!seen(text).is_empty(), "{text}");
    }
    assert!(!faults("y", "-- x: something.\nSELECT 1", &keys).is_empty());
}
