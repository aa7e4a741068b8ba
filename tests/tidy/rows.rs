//! Columns of a table that a `row!` names are named there alone: a query takes them from it (`{runs}`).

use std::collections::BTreeSet;

use crate::Breach;
use crate::source::Source;

/// Names of columns that may stand side by side in a query.
const SIDE_BY_SIDE_MAX: usize = 5;

/// Queries that list the columns of a row again. `rows` are the sources that declare rows.
pub(crate) fn spelt_again(rows: &[Source], queries: &[Source]) -> Vec<Breach> {
    let tables: Vec<(String, BTreeSet<String>)> =
        rows.iter().flat_map(|source| declared(&source.text)).collect();
    let mut breaches = Vec::new();
    for query in queries {
        let text: String =
            query.text.lines().filter(|line| !line.starts_with("--")).collect::<Vec<_>>().join(" ");
        for (table, columns) in tables.iter().filter(|(table, _)| names(&text, table)) {
            let longest = longest_list(&text, columns);
            if longest > SIDE_BY_SIDE_MAX {
                let says = format!("lists {longest} columns of {table}; take them from its row");
                breaches.push(Breach { at: query.path.clone(), says });
            }
        }
    }
    breaches
}

/// The tables of a source's rows, with their columns.
fn declared(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let table = |row: &str| {
        let body = row.split("\n}").next()?;
        let name = body.split('"').nth(1)?;
        let columns = body.lines().filter_map(|line| line.trim().split_once(": "));
        Some((name.to_owned(), columns.map(|(column, _)| column.to_owned()).collect()))
    };
    text.split("\nrow! {").skip(1).filter_map(table).collect()
}

fn names(text: &str, table: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == table)
}

/// How many of the columns stand side by side, with commas in between, at most.
fn longest_list(text: &str, columns: &BTreeSet<String>) -> usize {
    let (mut longest, mut count) = (0, 0);
    for part in text.split(',') {
        let words: Vec<_> =
            part.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
        let first = words.first().is_some_and(|word| columns.contains(*word));
        let last = words.last().is_some_and(|word| columns.contains(*word));
        count = if first { count + 1 } else { 0 };
        longest = longest.max(count);
        if words.len() > 2 || !first {
            count = usize::from(last);
        }
    }
    longest.max(count)
}

#[test]
fn a_row_that_is_spelt_again_is_seen() {
    let row = "//! A.\n\nrow! {\n    /// A row.\n    A of \"a\" {\n        key {\n            b: i32,\n            c: i64,\n        }\n        \
        changing {\n            d: i32,\n            e: i32,\n            f: Option<i64>,\n            g: i32,\n        }\n    }\n}\n";
    let rows = [Source::sample("rows/a.rs", row)];
    let query = |text: &str| spelt_again(&rows, &[Source::sample("a.sql", text)]);
    assert_eq!(
        query("SELECT b, c, d, e, f, g FROM a")[0].says,
        "lists 6 columns of a; take them from its row"
    );
    assert!(query("INSERT INTO a (b, c, d, e, f, g) VALUES ($1, $2, $3, $4, $5, $6)").len() == 1);
    assert!(query("SELECT b, c, d FROM a WHERE (e, f, g) = ($1, $2, $3)").is_empty());
    assert!(query("SELECT b, c, d, e, f, g FROM h").is_empty());
}
