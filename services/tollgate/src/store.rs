//! `tollgate store`: tells how many queue shards there are, and adds some, in the store itself, beside the processes at work.
//!
//! In: the store's URL, and how many shards there shall be. Out: the number, and what lives in the shards. Invariant: shards are
//! added by one transaction, and only where no process is registered whose version does not know of it. Not here: what is in
//! that transaction, which the store decides; who takes the new shards, which each process finds out by itself.

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
    /// Show how many queue shards there are and what lives in them, or add some. The command may run beside the service
    Shards {
        /// The number of queue shards that there shall be, at most 1024. None is taken away again
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
        Some(to) => add(store.as_ref(), &printer, to).await,
        None => show(store.as_ref(), &printer).await,
    };
    store.close().await;
    done
}

async fn add(store: &dyn Store, printer: &Printer, to: u64) -> anyhow::Result<()> {
    let now = store.read_shards().await.context("cannot read how many queue shards there are")?;
    let to = allowed(to, now)?;
    if to > now {
        refuse_older(store).await?;
    }
    let before = store.add_shards(to, note()).await.context("no queue shards are added")?;
    if printer.is_json() {
        return printer.json(&json!({"shards": to, "before": before}));
    }
    if before == to {
        return printer.line(&format!("there are {to} queue shards already; nothing is changed"));
    }
    printer.line(&format!(
        "there are {to} queue shards now, {before} before; the processes at work take the new ones within seconds. New policies, \
         and new schedules without a policy, are spread over all; what is there stays where it is"
    ))
}

/// The number, if it is one that there may be.
fn allowed(to: u64, now: u16) -> anyhow::Result<u16> {
    let fewer = if to < u64::from(now) { "; none is taken away again" } else { "" };
    match u16::try_from(to) {
        Ok(to) if (now..=SHARDS_MAX.max(now)).contains(&to) => Ok(to),
        _ => bail!(Usage(format!(
            "--to: {to} is not allowed, expected {now} to {SHARDS_MAX}: there are {now} queue shards{fewer}"
        ))),
    }
}

/// Refuses to add shards while a process is registered whose version would not know of them, alive or not: whether one is alive
/// only its lease's time tells, which may be long.
async fn refuse_older(store: &dyn Store) -> anyhow::Result<()> {
    let members = store.members().await.context("cannot read which processes are at work")?;
    let older = members.into_iter().filter(|member| !member.knows_of_added_shards());
    let older: Vec<String> = older.map(|member| member.process).collect();
    if older.is_empty() {
        return Ok(());
    }
    bail!(
        "processes of an older version are at work, which would not find what lives in the new queue shards: {}; update them \
         first. One that was killed is forgotten after 20 times its lease_ttl, once another process is at work",
        older.join(", ")
    )
}

async fn show(store: &dyn Store, printer: &Printer) -> anyhow::Result<()> {
    let first = store.installation().await.context("cannot read the installation")?.shards;
    let fill = store.shard_fill().await.context("cannot read what lives in the queue shards")?;
    if printer.is_json() {
        let row = |(shard, of): (usize, &ShardFill)| json!({"shard": shard, "policies": of.policies, "schedules": of.schedules, "runs": of.runs});
        let rows: Vec<Value> = fill.iter().enumerate().map(row).collect();
        return printer.json(&json!({"shards": fill.len(), "atFirst": first, "fill": rows}));
    }
    printer.text(&told(first, &fill))
}

fn told(first: u16, fill: &[ShardFill]) -> String {
    let line = |what: &str, of: fn(&ShardFill) -> u64| {
        let numbers = || fill.iter().map(of);
        let most = numbers().max().unwrap_or_default();
        let fullest = numbers().position(|number| number == most).unwrap_or_default();
        let least = numbers().min().unwrap_or_default();
        let all: u64 = numbers().sum();
        let where_most = if most > 0 { format!(", most in shard {fullest}") } else { String::new() };
        format!("{what:<14}{all}, {least} to {most} a shard{where_most}\n")
    };
    let added = if fill.len() > usize::from(first) { format!(", {first} at first") } else { String::new() };
    format!(
        "queue shards: {}{added}\n{}{}{}",
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
        action: "add".to_owned(),
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
        for (process, roles) in [("new", "handler,ttl-6000,homes"), ("old", "handler,ttl-6000")] {
            let (process, roles) = (process.to_owned(), roles.to_owned());
            let member = Member { process, roles, address: String::new(), heartbeat: 1 };
            store.heartbeat(&member).await.unwrap();
        }
        let refused = refuse_older(&*store).await.unwrap_err().to_string();
        assert!(refused.contains("the new queue shards: old; update them first"), "{refused}");
        store.forget_member("old").await.unwrap();
        assert!(refuse_older(&*store).await.is_ok());
    }

    #[test]
    fn a_number_that_cannot_be_is_refused_with_what_is_allowed() {
        let said = |to| allowed(to, 64).map_err(|error| error.to_string());
        assert_eq!((said(64), said(1_024)), (Ok(64), Ok(1_024)));
        let allowed = "is not allowed, expected 64 to 1024: there are 64 queue shards";
        assert_eq!(said(1_025), Err(format!("--to: 1025 {allowed}")));
        assert_eq!(said(70_000), Err(format!("--to: 70000 {allowed}")));
        assert_eq!(said(32), Err(format!("--to: 32 {allowed}; none is taken away again")));
    }

    #[test]
    fn the_fullest_shard_is_named() {
        let of = |policies, schedules, runs| ShardFill { policies, schedules, runs };
        let text = told(2, &[of(1, 0, 0), of(3, 7, 0), of(0, 2, 0)]);
        let expected = "queue shards: 3, 2 at first\n\
                        policies:     4, 0 to 3 a shard, most in shard 1\n\
                        schedules:    9, 0 to 7 a shard, most in shard 1\n\
                        open runs:    0, 0 to 0 a shard\n";
        assert_eq!(text, expected);
    }
}
