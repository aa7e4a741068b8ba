//! `tollgate-loadtest`: makes load, and measures what it comes to.

mod consumer;
mod database;
mod distance;
mod figures;
mod generate;
mod growth;
mod load;
mod peers;
mod report;
mod run;
mod scenario;
mod service;
mod sink;
mod yardstick;

use std::process::ExitCode;

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
    /// Carry scenarios out and print their figures; exit status 1 if a promise was broken
    Run(run::RunArgs),
    /// Measure what costs more the more there is: runs that wait, policies, schedules, queue shards, processes
    Growth(growth::GrowthArgs),
    /// Run other programs that do the same work, as far as they are installed
    Peers(peers::PeersArgs),
    /// Write a file with policies and schedules for `tollgate apply`
    Generate(generate::GenerateArgs),
    /// The consumer that `run` starts
    Sink(sink::SinkArgs),
    /// The bare client that `run` compares with
    Yardstick(yardstick::YardstickArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    let clean = match Cli::parse().command {
        Command::Run(args) => run::run(&args)?,
        Command::Growth(args) => growth::run(&args)?,
        Command::Peers(args) => peers::run(&args).map(|()| true)?,
        Command::Generate(args) => generate::run(&args).map(|()| true)?,
        Command::Sink(args) => sink::run(&args).map(|()| true)?,
        Command::Yardstick(args) => yardstick::run(&args).map(|()| true)?,
    };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
