//! The files of the tree, and their code without what comments and strings say.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with code.
const FOLDERS: [&str; 7] = ["crates", "services", "tests", "loadtest", "examples", "proto", "sdk"];

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// From the root.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    #[cfg(test)]
    pub(crate) fn sample(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The text, in which comments and what is within quotes are blank. Lines stay lines.
    pub(crate) fn code(&self) -> String {
        blanked(&self.text)
    }
}

/// All Rust files.
pub(crate) fn of_rust() -> Vec<Source> {
    with_endings(&["rs"])
}

/// All files with lines that people read side by side.
pub(crate) fn of_text() -> Vec<Source> {
    with_endings(&["rs", "sql", "proto"])
}

/// All query files.
pub(crate) fn of_queries() -> Vec<Source> {
    with_endings(&["sql"])
}

fn with_endings(endings: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut paths = Vec::new();
    for folder in FOLDERS {
        walk(&root.join(folder), &mut paths);
    }
    paths.retain(|path| path.extension().is_some_and(|e| endings.contains(&e.to_str().unwrap())));
    paths.sort();
    assert!(paths.len() > 10, "no sources below {}", root.display());
    let source = |path: &PathBuf| Source {
        path: path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(),
        text: fs::read_to_string(path).unwrap(),
    };
    paths.iter().map(source).collect()
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let foreign = name.starts_with('.') || ["node_modules", "corpus"].contains(&name);
        if path.is_dir() && !foreign {
            walk(&path, paths);
        } else if path.is_file() {
            paths.push(path);
        }
    }
}

/// Replaces comments, and the inside of strings and characters, by spaces.
fn blanked(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = end_of_token(&chars, at);
        if end == at + 1 {
            code.push(chars[at]);
        } else {
            code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        }
        at = end;
    }
    code
}

/// Where the comment, the string or the character that begins here ends; the next place if none does.
fn end_of_token(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let joined = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match rest {
        ['/', '/', ..] => at + rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => at + 2 + position(&rest[2..], &['*', '/']),
        ['r', '"' | '#', ..] | ['b', 'r', '"' | '#', ..] if !joined => {
            let start = rest.iter().take_while(|c| matches!(c, 'r' | 'b')).count();
            let hashes = rest[start..].iter().take_while(|c| **c == '#').count();
            if rest.get(start + hashes) != Some(&'"') {
                return at + 1; // r#type
            }
            let mut close = vec!['"'];
            close.resize(1 + hashes, '#');
            let from = start + hashes + 1;
            at + from + position(&rest[from..], &close)
        }
        ['"', ..] => at + closing(rest, '"'),
        ['\'', '\\', ..] => at + closing(rest, '\''),
        ['\'', _, '\'', ..] => at + 3,
        _ => at + 1,
    }
}

/// Where the end of the mark is.
fn position(chars: &[char], mark: &[char]) -> usize {
    chars.windows(mark.len()).position(|window| window == mark).map_or(chars.len(), |at| at + mark.len())
}

/// Where a quoted text ends, behind its last quote.
fn closing(chars: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

#[test]
fn comments_and_texts_are_blank_and_code_is_not() {
    let sample = "let a = 'b'; // fn c\nlet d: &'e str = r#\"fn \"f\n\"#; /* fn */ g(\"\\\"h\", b\"i\", '\\'');\nj(r#k);";
    let code = Source::sample("a.rs", sample).code();
    let words: Vec<_> = code.split_whitespace().collect();
    let wanted =
        ["let", "a", "=", ";", "let", "d:", "&'e", "str", "=", ";", "g(", ",", "b", ",", ");", "j(r#k);"];
    assert_eq!(words, wanted);
    assert_eq!(code.lines().count(), sample.lines().count());
}
