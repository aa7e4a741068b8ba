//! Each command that an error, a hint or a warning names can be typed as it is: no argument is missing, no flag unknown.
//!
//! What is in backticks in the texts of the program counts; what stands for a value (`{name}`, `FILE`) is a word like any other.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::Cli;

/// The sources of all that ships.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut open = vec![root.join("crates"), root.join("services")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                open.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    found
}

/// The commands that a source's texts name, without its comments and tests.
fn named(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut joined = String::new();
    for line in lines {
        match line.strip_suffix('\\') {
            // The text goes on at the first letter of the next line.
            Some(line) => joined.push_str(if joined.ends_with('\n') { line } else { line.trim_start() }),
            None => {
                joined.push_str(if joined.ends_with('\n') || joined.is_empty() {
                    line
                } else {
                    line.trim_start()
                });
                joined.push('\n');
            }
        }
    }
    let mut commands = Vec::new();
    for line in joined.lines() {
        let quoted = line.split('`').skip(1).step_by(2);
        commands.extend(quoted.filter(|quoted| quoted.starts_with("tollgate ")).map(str::to_owned));
    }
    commands
}

#[test]
fn every_command_that_is_hinted_at_can_be_typed() {
    let (mut count, mut wrong) = (0, Vec::new());
    for path in sources() {
        for command in named(&std::fs::read_to_string(&path).unwrap()) {
            // What the program fills in: a kind of resource, and a namespace's flag or nothing.
            let words = command.replace("{kinds}", "schedules").replace("{n}", "");
            let words = words.replace("\\\"", "\"").replace(['{', '}', '"'], "");
            let read = Cli::command().try_get_matches_from(words.split_whitespace());
            let shows = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
            if let Err(error) = read
                && !shows.contains(&error.kind())
            {
                wrong.push(format!(
                    "{}: `{command}`: {}",
                    path.display(),
                    error.to_string().lines().next().unwrap()
                ));
            }
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn commands_are_found_in_texts_alone() {
    let source = "//! `tollgate a`\nlet x = \"b `tollgate b \\\n   --c` d\";\nlet y = \"`tollgate e {f}`\";\n#[cfg(test)]\n`tollgate g`";
    assert_eq!(named(source), ["tollgate b --c", "tollgate e {f}"]);
}
