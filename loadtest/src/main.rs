//! Load for Tollgate. So far it makes files of schedules; each run with one seed makes the same file.

mod generate;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "tollgate-loadtest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write policies and schedules for `tollgate apply`
    Generate(generate::GenerateArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Generate(args) => generate::run(&args),
    }
}
