//! `tollgate store`: tells how many queue shards there are, and changes their number, in the store itself, beside the processes
//! at work.
//!
//! In: the store's URL, and how many shards are to be used. Out: the number, and what lives in the shards. Invariant: the
//! number is changed by one transaction, and only where no process is registered whose version does not know of it. Not here:
//! what is in that transaction, which the store decides; who takes new shards and moves what is to move, which each process
//! finds out by itself.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tollgate_clock::Clock;
use tollgate_core::plan::SHARDS_MAX;
use tollgate_store::Store;
use tollgate_store::layout::ShardFill;
use tollgate_store::plan::Audit;
use uuid::Uuid;

use crate::client::output::{Format, Printer};
use crate::config::{self, ServeArgs};
use crate::usage::Usage;

/// Arguments of `store`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,

    /// The store [default: the setting of `serve`]
    #[arg(long, value_name = "URL", global = true)]
    store: Option<String>,

    /// The file with the settings of `serve`
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<String>,

    /// The format of the output
    #[arg(short, long, value_enum, default_value_t, global = true)]
    output: Format,
}

#[derive(Subcommand, Clone, Debug)]
enum StoreCommand {
    /// Show how many queue shards there are, what lives in them and what is still to move, or change their number. The command
    /// may run beside the service
    Shards {
        /// The number of queue shards that are to be used, at most 1024. What lives in others moves while everything goes on
        #[arg(long, value_name = "NUMBER")]
        to: Option<u64>,
    },
}

/// Carries out the command.
///
/// # Errors
/// A store that cannot be opened, a number that is not allowed, processes of an older version at work.
pub(crate) fn run(args: StoreArgs) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(Box::pin(carry_out(args)))
}

async fn carry_out(args: StoreArgs) -> anyhow::Result<()> {
    let flags = args.store.map(|store| ("store", store)).into_iter().collect::<BTreeMap<_, _>>();
    let settings = ServeArgs { file: args.config, flags };
    let url = config::load(&settings, &std::env::vars().collect())?.config.store;
    let printer = Printer::stdout(args.output);
    printer.refuse_names()?;
    let store =
        tollgate_store::open_beside(&url).await.context("cannot open the store that --store names")?;
    let StoreCommand::Shards { to } = args.command;
    let done = match to {
        Some(to) => change(store.as_ref(), &printer, to).await,
        None => show(store.as_ref(), &printer).await,
    };
    store.close().await;
    done
}

async fn change(store: &dyn Store, printer: &Printer, to: u64) -> anyhow::Result<()> {
    let to = allowed(to)?;
    store.read_shards().await.context("cannot read how many queue shards there are")?;
    if to != store.shard_count().used() {
        refuse_older(store).await?;
    }
    let before = store.use_shards(to, note()).await.context("the number of queue shards is not changed")?;
    if printer.is_json() {
        return printer.json(&json!({"shards": to, "before": before}));
    }
    if before == to {
        return printer.line(&format!("{to} queue shards are used already; nothing is changed"));
    }
    printer.line(&format!(
        "{to} queue shards are used now, {before} before. What belongs into another one moves bit by bit, while everything goes on; \
         `tollgate store shards` tells how much is left"
    ))
}

/// The number, if it is one that there may be.
fn allowed(to: u64) -> anyhow::Result<u16> {
    match u16::try_from(to) {
        Ok(to) if (1..=SHARDS_MAX).contains(&to) => Ok(to),
        _ => bail!(Usage(format!("--to: {to} is not allowed, expected 1 to {SHARDS_MAX}"))),
    }
}

/// Refuses to change the number while a process is registered whose version would not know of moves, alive or not: whether one is
/// alive only its lease's time tells, which may be long.
async fn refuse_older(store: &dyn Store) -> anyhow::Result<()> {
    let members = store.members().await.context("cannot read which processes are at work")?;
    let older = members.into_iter().filter(|member| !member.knows_of_moves());
    let older: Vec<String> = older.map(|member| member.process).collect();
    if older.is_empty() {
        return Ok(());
    }
    bail!(
        "processes of an older version are at work, which would not find what has moved to another queue shard: {}; update them \
         first. One that was killed is forgotten after 20 times its lease_ttl, once another process is at work",
        older.join(", ")
    )
}

async fn show(store: &dyn Store, printer: &Printer) -> anyhow::Result<()> {
    let to_move = store.residents_to_move(usize::MAX).await.context("cannot read what is to move")?;
    let to_move: usize = to_move.values().map(Vec::len).sum();
    let fill = store.shard_fill().await.context("cannot read what lives in the queue shards")?;
    if printer.is_json() {
        let row = |(shard, of): (usize, &ShardFill)| json!({"shard": shard, "policies": of.policies, "schedules": of.schedules, "runs": of.runs});
        let rows: Vec<Value> = fill.iter().enumerate().map(row).collect();
        let used = store.shard_count().used();
        return printer.json(&json!({"shards": fill.len(), "used": used, "toMove": to_move, "fill": rows}));
    }
    printer.text(&told(store.shard_count().used(), to_move, &fill))
}

fn told(used: u16, to_move: usize, fill: &[ShardFill]) -> String {
    let line = |what: &str, of: fn(&ShardFill) -> u64| {
        let numbers = || fill.iter().map(of);
        let most = numbers().max().unwrap_or_default();
        let fullest = numbers().position(|number| number == most).unwrap_or_default();
        let least = numbers().min().unwrap_or_default();
        let all: u64 = numbers().sum();
        let where_most = if most > 0 { format!(", most in shard {fullest}") } else { String::new() };
        format!("{what:<14}{all}, {least} to {most} a shard{where_most}\n")
    };
    let unused =
        if fill.len() > usize::from(used) { format!(", {used} of them used") } else { String::new() };
    format!(
        "queue shards: {}{unused}\n{}{}{}to move:      {to_move} trees of policies, and schedules without one\n",
        fill.len(),
        line("policies:", |of| of.policies),
        line("schedules:", |of| of.schedules),
        line("open runs:", |of| of.runs),
    )
}

fn note() -> Audit {
    let user = std::env::var("USER").ok().filter(|user| !user.is_empty());
    Audit {
        id: Uuid::now_v7(),
        at_us: Clock::system().wall_us(),
        actor: format!("tollgate store/{}", user.unwrap_or_else(|| "anonymous".to_owned())),
        namespace: String::new(),
        resource: "shards".to_owned(),
        action: "change".to_owned(),
        difference: Value::Null,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tollgate_store::handle::Member;

    use super::*;

    #[tokio::test]
    async fn whoever_knows_of_nothing_holds_up_new_shards_until_it_is_forgotten() {
        let store = tollgate_store::open("sqlite::memory:", 1).await.unwrap();
        for (process, roles) in [("new", "handler,ttl-6000,moves"), ("old", "handler,ttl-6000")] {
            let (process, roles) = (process.to_owned(), roles.to_owned());
            let member = Member { process, roles, address: String::new(), heartbeat: 1 };
            store.heartbeat(&member).await.unwrap();
        }
        let refused = refuse_older(&*store).await.unwrap_err().to_string();
        assert!(refused.contains("another queue shard: old; update them first"), "{refused}");
        store.forget_member("old").await.unwrap();
        assert!(refuse_older(&*store).await.is_ok());
    }

    #[test]
    fn a_number_that_cannot_be_is_refused_with_what_is_allowed() {
        let said = |to| allowed(to).map_err(|error| error.to_string());
        assert_eq!((said(1), said(1_024)), (Ok(1), Ok(1_024)));
        for to in [0, 1_025, 70_000] {
            assert_eq!(said(to), Err(format!("--to: {to} is not allowed, expected 1 to 1024")));
        }
    }

    #[test]
    fn the_fullest_shard_is_named() {
        let of = |policies, schedules, runs| ShardFill { policies, schedules, runs };
        let text = told(2, 5, &[of(1, 0, 0), of(3, 7, 0), of(0, 2, 0)]);
        let expected = "queue shards: 3, 2 of them used\n\
                        policies:     4, 0 to 3 a shard, most in shard 1\n\
                        schedules:    9, 0 to 7 a shard, most in shard 1\n\
                        open runs:    0, 0 to 0 a shard\n\
                        to move:      5 trees of policies, and schedules without one\n";
        assert_eq!(text, expected);
    }
}
