//! Command lines that the documents show are read as they stand there.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::Cli;

/// The documents, from their paths to their texts.
fn documents() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "docs/decisions", "examples", "loadtest"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// The simple commands of a line for a shell, as their words: without comments, redirections and variables before them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(letters.next()),
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, '&' | ';' | '|' | '(' | ')') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, '<' | '>') => {
                // The number before it and the file behind it belong to it; `<(` opens a command.
                if !word.as_ref().is_some_and(|word| word.chars().all(|c| c.is_ascii_digit())) {
                    words.extend(word.take());
                }
                word = None;
                while letters.next_if(|next| next.is_whitespace() || *next == '>').is_some() {}
                while letters.next_if(|next| !next.is_whitespace() && !"();&|".contains(*next)).is_some() {}
            }
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    let is_variable = |word: &String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    let bare = commands.into_iter().map(|words| words.into_iter().skip_while(is_variable).collect());
    // What a shell's own words lead to is a command, too.
    let open = |words: Vec<String>| match words.first().map(String::as_str) {
        Some("until" | "while" | "if" | "do" | "then" | "!") => words[1..].to_vec(),
        _ => words,
    };
    bare.map(open).filter(|words: &Vec<String>| !words.is_empty()).collect()
}

/// The lines of code for a shell: indented, and fenced without another language.
fn shell_lines(text: &str) -> Vec<String> {
    let (mut lines, mut fence) = (Vec::new(), None::<bool>);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(language), None) => fence = Some(["", "sh", "bash"].contains(&language)),
            (None, Some(true)) => lines.push(line.trim().to_owned()),
            (None, None) if line.starts_with("    ") => lines.push(line.trim().to_owned()),
            _ => {}
        }
    }
    // One that goes on below is one.
    let mut whole: Vec<String> = Vec::new();
    for line in lines {
        match whole.last_mut().filter(|last| last.ends_with('\\')) {
            Some(last) => {
                last.pop();
                last.push_str(&line);
            }
            None => whole.push(line),
        }
    }
    whole
}

#[test]
fn lines_of_code_are_read() {
    let mut count = 0;
    for (path, text) in documents() {
        for line in shell_lines(&text) {
            for words in commands(&line).iter().filter(|words| words[0] == "tollgate") {
                if let Err(error) = Cli::command().try_get_matches_from(words) {
                    panic!("{}: {line}\n{error}", path.display());
                }
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count}");
}

/// What is named within a sentence may leave arguments out; what it has must be known.
#[test]
fn commands_in_sentences_are_known() {
    let left_out = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    let mut count = 0;
    for (path, text) in documents() {
        for line in text.lines().filter(|line| !line.starts_with("    ")) {
            for quoted in line.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("tollgate "))
            {
                let read = Cli::command().try_get_matches_from(&commands(quoted)[0]);
                let known = read.as_ref().map_or_else(|error| left_out.contains(&error.kind()), |_| true);
                assert!(known, "{}: `{quoted}`: {read:?}", path.display());
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn lines_are_split_as_a_shell_does() {
    let split = |line| commands(line).iter().map(|words| words.join("|")).collect::<Vec<_>>();
    assert_eq!(split("tollgate a --b \"c d\" 'e f'  # g"), ["tollgate|a|--b|c d|e f"]);
    assert_eq!(
        split("tollgate key list; tollgate key revoke ID"),
        ["tollgate|key|list", "tollgate|key|revoke|ID"]
    );
    assert_eq!(split("A=b tollgate x > keys && chmod 600 keys"), ["tollgate|x", "chmod|600|keys"]);
    assert_eq!(
        split("until tollgate ping 2> /dev/null; do sleep 1; done"),
        ["tollgate|ping", "sleep|1", "done"]
    );
    assert_eq!(split("source <(tollgate completions bash)"), ["source", "tollgate|completions|bash"]);
    assert_eq!(split("tollgate serve 2> serve.log &"), ["tollgate|serve"]);
    let text = "a\n    tollgate b\n```sh\ntollgate c \\\n  d\n```\n```python\ntollgate = 1\n```\n";
    assert_eq!(shell_lines(text), ["tollgate b", "tollgate c d"]);
}
