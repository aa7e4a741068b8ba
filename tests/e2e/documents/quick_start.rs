//! README's quick start, typed into a shell line by line.
//!
//! Blocks of `sh` are the lines; a block of `text` is what the lines before it show. Numbers and words are those of README;
//! moments, spans and ids are others each time, and `…` stands for whatever comes. Only the ports are not README's, so that
//! tests run beside whatever has these.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tollgate_harness::{binary, free_port, wait_for};

use super::{read, section};

/// How long the lines of one block may take.
const BLOCK_MAX_S: u64 = 120;

#[derive(Debug, PartialEq, Eq)]
enum Block {
    Typed(String),
    Shown(String),
}

fn blocks(lines: &[&str]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in lines {
        match (&mut open, *line) {
            (None, "```sh") => open = Some(Block::Typed(String::new())),
            (None, "```text") => open = Some(Block::Shown(String::new())),
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(Block::Typed(text) | Block::Shown(text)), line) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, line) => assert!(!line.starts_with("```"), "neither sh nor text: {line}"),
        }
    }
    assert_eq!(open, None, "a block has no end");
    blocks
}

/// Whether a word is the one that is shown. Of moments, spans, ids and the like only the kind counts: digits among others.
fn is_word(word: &str, shown: &str) -> bool {
    let is_value = |word: &str| {
        word.contains(|c: char| c.is_ascii_digit()) && word.contains(|c: char| !c.is_ascii_digit())
    };
    word == shown || is_value(word) && is_value(shown)
}

/// Whether the words of a line are those that are shown, where `…` stands for any.
fn are_words(words: &[&str], shown: &[&str]) -> bool {
    match (shown, words) {
        ([], []) => true,
        (["…", rest @ ..], _) => (0..=words.len()).any(|skipped| are_words(&words[skipped..], rest)),
        ([shown, rest @ ..], [word, words @ ..]) => is_word(word, shown) && are_words(words, rest),
        _ => false,
    }
}

fn is_like(line: &str, shown: &str) -> bool {
    let words = |text| str::split_whitespace(text).collect::<Vec<_>>();
    are_words(&words(line), &words(shown))
}

/// A shell, ended with what it has started when dropped.
struct Shell {
    child: Child,
}

impl Shell {
    fn start(folder: &Path, output: &Path, ports: &[(&str, u16)]) -> Self {
        let own = binary().parent().unwrap().to_owned();
        let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap());
        let tollgate = format!("127.0.0.1:{}", ports[0].1);
        let (out, err) = (File::create(output).unwrap(), File::options().append(true).open(output).unwrap());
        let child = Command::new("setsid")
            .args(["bash", "--norc"])
            .current_dir(folder)
            .env("PATH", path)
            .env("TMPDIR", folder)
            .env("TOLLGATE_SERVER", format!("http://{tollgate}"))
            .env("TOLLGATE_LISTEN", tollgate)
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|error| panic!("setsid bash: {error}"));
        Self { child }
    }

    fn type_in(&mut self, text: &str) {
        self.child.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Whatever it left behind is in its session; it may have ended by itself.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_quick_start_shows_what_it_says() {
    let readme = read("README.md");
    let blocks = blocks(&section(&readme, "## Quick start"));
    let shown = blocks.iter().filter(|block| matches!(block, Block::Shown(_))).count();
    assert!(shown >= 3, "it shows nothing");
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("output");
    let ports = [("7411", free_port().unwrap()), ("8080", free_port().unwrap())];
    let mut shell = Shell::start(folder.path(), &output, &ports);
    let mut fresh = String::new();
    for (at, block) in blocks.iter().enumerate() {
        match block {
            Block::Typed(text) => {
                let text =
                    ports.iter().fold(text.clone(), |text, (from, to)| text.replace(from, &to.to_string()));
                let before = std::fs::read_to_string(&output).unwrap().len();
                let mark = format!("== end of block {at}");
                shell.type_in(&format!("{text}echo '{mark}'\n"));
                let all = wait_for(&format!("the end of {text}"), BLOCK_MAX_S, async || {
                    let all = std::fs::read_to_string(&output).unwrap();
                    all.lines().any(|line| line == mark).then_some(all)
                })
                .await;
                fresh = all[before..].to_owned();
            }
            Block::Shown(text) => {
                let mut lines = fresh.lines();
                for pattern in text.lines() {
                    let found = lines.any(|line| is_like(line, pattern));
                    assert!(found, "README shows {pattern:?}; the shell showed:\n{fresh}");
                }
            }
        }
    }
    let all = std::fs::read_to_string(&output).unwrap();
    for wrong in ["error", "command not found", "Traceback", "syntax"] {
        assert!(!all.contains(wrong), "{all}");
    }
}

#[test]
fn lines_are_compared_in_order_with_gaps() {
    assert!(is_like("a   b c", "a b c") && is_like("a 17 c", "a … c") && is_like("a b c", "a …"));
    assert!(!is_like("a b c", "a b") && !is_like("a 17 c d", "a … c") && !is_like("x a", "a"));
    assert!(is_like("at 03:00:00 in 7h20m", "at 04:00:00 in 2d7h") && !is_like("5 done", "6 done"));
    let lines = ["x", "```sh", "a", "b", "```", "```text", "c", "```"];
    assert_eq!(blocks(&lines), [Block::Typed("a\nb\n".to_owned()), Block::Shown("c\n".to_owned())]);
}
