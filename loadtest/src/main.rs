//! `tollgate-loadtest`: makes what load tests need.

mod generate;

use clap::{Parser, Subcommand};

/// Load for Tollgate.
#[derive(Parser, Debug)]
#[command(name = "tollgate-loadtest", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Write a file with policies and schedules for `tollgate apply`
    Generate(generate::GenerateArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Generate(args) => generate::run(&args),
    }
}
