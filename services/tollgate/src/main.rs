//! The one binary: the service, the demonstration, and the commands that speak to a running service.
//!
//! Exit codes: 0 done, 1 refused or failed, 2 used wrongly; `wait`, `results`, `submit` and `diff` have their own.

mod cli;
mod client;
mod commands;
mod config;
mod demo;
mod exit;
mod front;
mod init;
mod key;
mod secrets;
mod serve;
mod shell;
mod store;
mod times;
mod usage;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use mimalloc::MiMalloc;

/// A third less CPU than with the C library's where much is applied at once.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    shell::complete(cli::Cli::command);
    let words = front::reorder(std::env::args_os().collect());
    match cli::run(cli::Cli::try_parse_from(words).unwrap_or_else(|error| cli::unknown::refuse(error))) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(exit) = error.downcast_ref::<exit::Exit>() {
                return ExitCode::from(exit.0);
            }
            // Nobody is left to tell when standard error is gone as well.
            let head = client::style::Tone::Bad.paint("error:");
            let _ = writeln!(anstream::stderr(), "{head} {error:#}");
            ExitCode::from(if cli::is_usage(&error) { 2 } else { 1 })
        }
    }
}

/// Whether the reader of standard output went away, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}
