//! The client commands of the binary.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::binary;

/// Runs the binary with a server to speak to.
#[derive(Clone, Debug)]
pub struct Cli {
    server: String,
}

/// What a command gave.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its exit status; -1 where a signal ended it.
    pub code: i32,
    /// What it wrote to standard output.
    pub out: String,
    /// What it wrote to standard error.
    pub err: String,
}

impl Cli {
    /// Commands to the service at this URL.
    pub fn new(server: &str) -> Self {
        Self { server: server.to_owned() }
    }

    /// Runs a command to its end. It must not wait for the test itself.
    pub fn run(&self, arguments: &[&str]) -> Answer {
        self.run_with(arguments, "")
    }

    /// As [`Cli::run`], with a text on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Answer {
        let mut process = Command::new(binary())
            .args(arguments)
            .env("TOLLGATE_SERVER", &self.server)
            .env("TOLLGATE_ACTOR", "tester")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = process.stdin.take().unwrap();
        let input = input.to_owned();
        // Written beside reading: a large answer would else block a large question.
        let writer = std::thread::spawn(move || {
            // A command that refuses its arguments does not read.
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = process.wait_with_output().unwrap();
        writer.join().unwrap();
        Answer {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed, and returns its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 0, "tollgate {}: {answer:?}", arguments.join(" "));
        answer.out
    }

    /// Runs a command that must succeed with `-o json`, and returns its output as JSON.
    ///
    /// # Panics
    /// When it fails, or gives no JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let out = self.ok(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Applies a text of YAML documents.
    pub fn apply(&self, yaml: &str) -> Answer {
        self.run_with(&["apply", "-f", "-"], yaml)
    }
}
