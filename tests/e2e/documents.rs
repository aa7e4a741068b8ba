//! What the documents say is so: README, the chapters in `docs/`, and the pages of examples and load tests.
//!
//! - [`tables`]: tables that are made from the code, or list what the code has.
//! - [`links`]: links, anchors and paths lead somewhere.
//! - [`form`]: lengths, and what each page of a kind has.
//! - [`quick_start`]: README's lines, typed into a shell.
//! - [`sample`]: the delivery that the API's chapter shows.
//!
//! Not here: command lines, which the binary's own tests parse; metrics, which are held to `/metrics` beside its tests.

mod form;
mod links;
mod quick_start;
mod sample;
mod tables;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of the checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// One document, by its path from the root.
fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All documents, from their paths to their texts.
fn all() -> BTreeMap<String, String> {
    let mut paths = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/decisions", "examples", "loadtest"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                paths.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(paths.len() > 20, "{paths:?}");
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The lines of a chapter below a heading, to the next one of its depth or above.
fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let depth = |line: &str| line.chars().take_while(|c| *c == '#').count();
    let mut lines = text.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no {heading:?}");
    let mut in_code = false;
    lines
        .take_while(|line| {
            in_code ^= line.starts_with("```");
            in_code || depth(line) == 0 || depth(line) > depth(heading)
        })
        .collect()
}

/// The cells of a table's rows, without its head.
fn rows(lines: &[&str]) -> Vec<Vec<String>> {
    let rows = lines.iter().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

/// The texts between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}
