//! `tollgate status`: what is wrong, how full the buckets are, how far the emitter is, who owns the queue shards.
//!
//! Each role may run in another process: what the one that was asked does not play is said, and the rest is shown.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};
use tollgate_proto::json::to_json;
use tollgate_proto::v1;
use tonic::{Code, Response, Status};

use super::names::short;
use super::table::{Table, pairs};
use super::when::{both, duration};
use super::{Session, rows, troubles};

/// Arguments of `status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Show the policies of all namespaces, not only those of -n
    #[arg(short, long)]
    all_namespaces: bool,

    /// Show a line for each queue shard
    #[arg(long)]
    shards: bool,
}

/// Prints the state of the service.
///
/// # Errors
/// What the service says, unless it does not play the role; those of writing.
pub(crate) async fn run(session: Session, args: StatusArgs) -> anyhow::Result<()> {
    let parent = if args.all_namespaces { String::new() } else { session.parent() };
    let troubles = session.handler().list_troubles(troubles::request(parent.clone())).await;
    let troubles = played(&session, "list troubles", troubles)?;
    let asked = v1::GetHandlerStatusRequest { parent, busy_only: false };
    let handler = session.handler().get_handler_status(asked).await;
    let emitter = session.emitter().get_emitter_status(v1::GetEmitterStatusRequest {}).await;
    let handler = played(&session, "read the handler's status", handler)?;
    // It is about all namespaces; a key of one of them sees its own buckets.
    let reaches_all = !emitter.as_ref().is_err_and(|status| status.code() == Code::PermissionDenied);
    let emitter = if reaches_all { played(&session, "read the emitter's status", emitter)? } else { None };
    if session.printer.is_json() {
        let json = |value: Option<Value>| value.unwrap_or(Value::Null);
        return session.printer.json(&json!({
            "handler": json(handler.as_ref().map(to_json)),
            "emitter": json(emitter.as_ref().map(to_json)),
            "troubles": json(troubles.as_ref().map(to_json)),
        }));
    }
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
        Some(handler) => text.push_str(&handler_text(handler, args.shards)),
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

fn handler_text(handler: &v1::HandlerStatus, each_shard: bool) -> String {
    let mut text = pairs(&[
        ("handler", handler.handler.clone()),
        ("tokens held", format!("{}, {} of them suspect", handler.held_count, handler.suspect_count)),
        ("events waiting", handler.waiting_count.to_string()),
        ("runs not due", handler.scheduled_runs_count.to_string()),
        ("queue shards", owners(&handler.shards)),
    ]);
    if !handler.silent_handlers.is_empty() {
        let silent = handler.silent_handlers.join(", ");
        text.push_str(&format!("no answer from {silent}: what these own is missing\n"));
    }
    text.push('\n');
    text.push_str(&gauges(&handler.policies));
    text.push_str(&corrupt(&handler.corrupt_rows));
    if each_shard {
        let mut table = Table::new(["SHARD", "OWNER", "EPOCH", "STATE"]);
        for shard in &handler.shards {
            let state = if shard.paused { "PAUSED" } else { "ACTIVE" };
            table.row([
                shard.shard.to_string(),
                shard.owner.clone(),
                shard.epoch.to_string(),
                state.to_owned(),
            ]);
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

fn gauges(policies: &[v1::PolicyGauge]) -> String {
    let mut table = Table::new([
        "POLICY",
        "STATE",
        "HELD",
        "OF",
        "SUSPECT",
        "WAITING",
        "OLDEST",
        "STARTED/S",
        "RATE",
        "SHARD",
    ]);
    for gauge in policies {
        let name = if gauge.policy.is_empty() { "(no policy)" } else { short(&gauge.policy) };
        table.row([
            name.to_owned(),
            if gauge.paused { "PAUSED" } else { "ACTIVE" }.to_owned(),
            gauge.held_count.to_string(),
            gauge.max_in_flight.map(|max| max.to_string()).unwrap_or_default(),
            gauge.suspect_count.to_string(),
            gauge.waiting_count.to_string(),
            duration(gauge.oldest_wait.as_ref()),
            format!("{:.1}", gauge.started_per_second),
            gauge.rate_per_second.map(|rate| rate.to_string()).unwrap_or_default(),
            if gauge.policy.is_empty() { String::new() } else { gauge.shard.to_string() },
        ]);
    }
    rows::or_none(&table, "no policies")
}

#[cfg(test)]
mod tests {
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
        let text = handler_text(&status, true);
        assert!(text.contains("no answer from b: what these own is missing"), "{text}");
        assert!(text.contains("queue shards:   2 with a, 1 with nobody"), "{text}");
        assert!(text.contains("imports  ACTIVE  4     4   0        96       -       1.2"), "{text}");
        assert_eq!(text.lines().filter(|line| line.ends_with("ACTIVE")).count(), 3, "{text}");
    }
}
