//! `tollgate status`: what is wrong, how full the buckets are, how targets are, how far the emitter is, who owns the queue
//! shards.
//!
//! Each role may run in another process: what the one that was asked does not play is said, and the rest is shown.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;
use tollgate_proto::json::to_rest_json;
use tollgate_proto::v1;
use tonic::{Code, Response, Status};

use super::namespaces::Everywhere;
use super::style::Tone;
use super::table::{Cell, Table, View, pairs};
use super::watch::{self, WatchArgs};
use super::when::{both, duration};
use super::{Session, gauges, targets, troubles};

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    everywhere: Everywhere,

    /// Show a line for each queue shard
    #[arg(long)]
    shards: bool,

    #[command(flatten)]
    watch: WatchArgs,
}

/// Prints the state of the service.
///
/// # Errors
/// What the service says, unless it does not play the role; those of writing.
pub(crate) async fn run(session: Session, args: StatusArgs) -> anyhow::Result<()> {
    watch::run(session, args.watch, async |session| once(session, &args).await).await
}

async fn once(session: &Session, args: &StatusArgs) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let parent = args.everywhere.parent(session);
    let troubles = session.handler().list_troubles(troubles::request(parent.clone())).await;
    let troubles = played(session, "list troubles", troubles)?;
    let asked = v1::GetHandlerStatusRequest { parent, busy_only: false };
    let handler = session.handler().get_handler_status(asked).await;
    let emitter = session.emitter().get_emitter_status(v1::GetEmitterStatusRequest {}).await;
    let handler = played(session, "read the handler's status", handler)?;
    // It is about all namespaces; a key of one of them sees its own buckets.
    let reaches_all = !emitter.as_ref().is_err_and(|status| status.code() == Code::PermissionDenied);
    let emitter = if reaches_all { played(session, "read the emitter's status", emitter)? } else { None };
    if session.printer.is_json() {
        return session.printer.json(&json!({
            "handler": handler.as_ref().map(to_rest_json),
            "emitter": emitter.as_ref().map(to_rest_json),
            "troubles": troubles.as_ref().map(to_rest_json),
        }));
    }
    let view = View { everywhere: args.everywhere.all_namespaces, ..session.view() };
    let mut text = String::new();
    if let Some(troubles) = &troubles {
        text.push_str(&troubles::text(session.now_us, troubles, false));
        text.push('\n');
    }
    match &emitter {
        Some(emitter) => {
            text.push_str(&emitter_text(session.now_us, emitter));
            text.push_str(&corrupt(&emitter.corrupt_rows));
        }
        None if !reaches_all => text.push_str("emitter: for keys that reach all namespaces\n"),
        None => text.push_str("emitter: not in this process\n"),
    }
    text.push('\n');
    match &handler {
        Some(handler) => text.push_str(&handler_text(view, handler, args.shards)),
        None => text.push_str("handler: not in this process\n"),
    }
    session.printer.text(&text)
}

fn played<T>(
    session: &Session,
    tried: &str,
    answer: Result<Response<T>, Status>,
) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(session.failure(tried, status)),
    }
}

fn emitter_text(now_us: i64, emitter: &v1::EmitterStatus) -> String {
    let lag = duration(emitter.lag.as_ref());
    pairs(&[
        ("emitted up to", both(now_us, emitter.frontier_time.as_ref())),
        ("opened up to", both(now_us, emitter.opened_until_time.as_ref())),
        ("lag", if lag.is_empty() { "0ms".to_owned() } else { lag }),
        ("open windows", emitter.open_windows_count.to_string()),
        ("time zones", emitter.time_zones.join(", ")),
    ])
}

fn handler_text(view: View, handler: &v1::HandlerStatus, each_shard: bool) -> String {
    let mut text = pairs(&[
        ("handler", handler.handler.clone()),
        ("tokens held", format!("{}, {} of them suspect", handler.held_count, handler.suspect_count)),
        ("events waiting", handler.waiting_count.to_string()),
        ("runs not due", handler.scheduled_runs_count.to_string()),
        ("queue shards", owners(&handler.shards)),
    ]);
    if !handler.silent_handlers.is_empty() {
        let silent = handler.silent_handlers.join(", ");
        let said = format!("no answer from {silent}: what these own is missing");
        text.push_str(&format!("{}\n", Tone::Warning.paint(&said)));
    }
    text.push('\n');
    text.push_str(&gauges::table(view, &handler.policies));
    text.push_str(&targets::table(view, handler));
    text.push_str(&corrupt(&handler.corrupt_rows));
    if each_shard {
        let mut table = Table::new(["SHARD", "OWNER", "EPOCH", "STATE"]);
        for shard in &handler.shards {
            let state = if shard.paused { "PAUSED" } else { "ACTIVE" };
            let (number, epoch) = (shard.shard.to_string(), shard.epoch.to_string());
            table.row([number.into(), shard.owner.as_str().into(), epoch.into(), Cell::state(state)]);
        }
        text.push_str(&format!("\n{table}"));
    }
    text
}

/// How many shards each handler owns, and how many are paused.
fn owners(shards: &[v1::ShardGauge]) -> String {
    let mut owned: BTreeMap<&str, u32> = BTreeMap::new();
    for shard in shards {
        *owned.entry(if shard.owner.is_empty() { "nobody" } else { &shard.owner }).or_default() += 1;
    }
    let mut texts: Vec<String> = owned.iter().map(|(owner, count)| format!("{count} with {owner}")).collect();
    let paused = shards.iter().filter(|shard| shard.paused).count();
    if paused > 0 {
        texts.push(format!("{paused} PAUSED"));
    }
    texts.join(", ")
}

/// What is passed over, if anything is.
fn corrupt(rows: &[v1::CorruptRow]) -> String {
    let mut table = Table::new(["CORRUPT ROW IN", "SHARD", "KEY", "COLUMN", "WHAT IS WRONG"]);
    for row in rows {
        let shard = row.shard.map(|shard| shard.to_string()).unwrap_or_default();
        table.row([row.table.clone(), shard, row.key.clone(), row.column.clone(), row.message.clone()]);
    }
    if rows.is_empty() { String::new() } else { format!("\n{table}") }
}

#[cfg(test)]
mod tests {
    use super::super::style::plain;
    use super::*;

    #[test]
    fn a_status_counts_shards_by_owner() {
        let shard =
            |shard: u32, owner: &str| v1::ShardGauge { shard, owner: owner.to_owned(), ..Default::default() };
        let status = v1::HandlerStatus {
            handler: "a".to_owned(),
            shards: vec![shard(0, "a"), shard(1, ""), shard(2, "a")],
            policies: vec![v1::PolicyGauge {
                policy: "namespaces/default/policies/imports".to_owned(),
                max_in_flight: Some(4),
                held_count: 4,
                waiting_count: 96,
                started_per_second: 1.25,
                ..Default::default()
            }],
            silent_handlers: vec!["b".to_owned()],
            ..Default::default()
        };
        let text = plain(&handler_text(View::default(), &status, true));
        assert!(text.contains("no answer from b: what these own is missing"), "{text}");
        assert!(text.contains("queue shards:   2 with a, 1 with nobody"), "{text}");
        assert!(
            text.contains("imports  ACTIVE  4     4   0        96       -       1.2        0.0"),
            "{text}"
        );
        assert_eq!(text.lines().filter(|line| line.ends_with("ACTIVE")).count(), 3, "{text}");
    }
}
