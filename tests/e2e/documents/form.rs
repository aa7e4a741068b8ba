//! What each document keeps to, whatever it says.

use super::{all, quoted, read, rows, section};

/// Both commands that whoever comes first needs stand within README's first lines, and it stays short.
#[test]
fn the_readme_is_short_and_begins_with_two_commands() {
    let text = read("README.md");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 200, "README has {} lines", lines.len());
    for command in ["cargo run --release -- demo", "./tests/run"] {
        let at_top = |line: &&str| line.trim_start().starts_with(command);
        assert!(lines[..8].iter().any(at_top), "{command} is not at the top");
    }
}

/// Lines can be read without scrolling, but for tables, which are as wide as what they say.
#[test]
fn lines_fit() {
    for (path, text) in all() {
        for (at, line) in text.lines().enumerate() {
            let width = line.chars().count();
            assert!(line.starts_with('|') || width <= 150, "{path}:{}: {width} characters", at + 1);
        }
    }
}

/// Each decision has its four parts, and a row in the list.
#[test]
fn decisions_are_whole() {
    let documents = all();
    let list = &documents["docs/decisions/README.md"];
    let mut count = 0;
    for (path, text) in &documents {
        let Some(name) = path.strip_prefix("docs/decisions/").filter(|name| *name != "README.md") else {
            continue;
        };
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
        let expected = ["## Context", "## Choice", "## Figures", "## What would change our mind"];
        assert_eq!(headings, expected, "{path}");
        for heading in expected {
            let lines = section(text, heading);
            assert!(lines.iter().any(|line| !line.trim().is_empty()), "{path}: {heading} is empty");
        }
        let listed = list.lines().filter(|line| line.contains(&format!("({name})"))).count();
        assert_eq!(listed, 1, "{name} in the list of decisions");
        count += 1;
    }
    assert!(count > 10, "{count}");
}

/// Every chapter is reached from README.
#[test]
fn chapters_are_linked_from_the_readme() {
    let readme = read("README.md");
    for path in all().keys().filter(|path| path.starts_with("docs/") && !path.starts_with("docs/decisions/"))
    {
        assert!(readme.contains(&format!("({path})")), "README does not lead to {path}");
    }
    assert!(readme.contains("(docs/decisions/README.md)") && readme.contains("(loadtest/RESULTS.md)"));
}

/// README's words are the glossary's.
#[test]
fn the_words_of_the_readme_stand_in_the_glossary() {
    let (readme, glossary) = (read("README.md"), read("docs/glossary.md"));
    let known: Vec<String> =
        rows(&glossary.lines().collect::<Vec<_>>()).into_iter().map(|row| row[0].clone()).collect();
    let words = rows(&section(&readme, "## The words"));
    assert!(words.len() >= 8, "{words:?}");
    for row in words {
        assert!(known.contains(&row[0]), "the glossary has no {:?}", row[0]);
        assert!(quoted(&row[0]).next().is_none(), "a word is no code: {row:?}");
    }
}
