//! `tollgate trigger` and `tollgate backfill`: runs that no clock asked for.

use std::collections::HashSet;

use anyhow::Context as _;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use prost_types::Timestamp;
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;
use tonic::{Response, Status};

use super::many::{self, ManyArgs};
use super::when::{exact, moment, moment_or_span, span, us};
use super::{Session, complete, fetch, names, progress, rows};
use crate::usage::Usage;

/// How many launch times one preview shows.
const PREVIEWED: i32 = 1_000;
/// The most launch times of one backfill.
const BACKFILL_MAX: usize = 10_000;
/// The most launch times that are listed, as in the service's own answer.
const LISTED_MAX: usize = 1_000;

/// Arguments of `trigger`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TriggerArgs {
    /// The schedule; none where schedules are chosen by --label or --filter
    #[arg(value_name = "SCHEDULE", add = ArgValueCompleter::new(complete::named),
          required_unless_present_any = ["label", "filter"], conflicts_with_all = ["label", "filter"])]
    name: Option<String>,

    /// The number of events; the schedule's own by default
    #[arg(long, value_name = "N")]
    events: Option<u32>,

    /// When the run falls due: a moment, or a span from now on such as 15m; 24 hours ahead at most; now by default
    #[arg(long, value_name = "TIME")]
    launch_time: Option<String>,

    /// The priority, from 0 (last) to 9 (first); the schedule's own by default
    #[arg(long, value_name = "N")]
    priority: Option<u32>,

    /// JSON that is merged over the schedule's payload for this run alone, such as '{"dataset": "customers"}'
    #[arg(long, value_name = "JSON", value_parser = json)]
    payload: Option<prost_types::Value>,

    /// A name for this request: the same again, within 7 days, makes no other run, and has the same answer
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,

    #[command(flatten)]
    many: ManyArgs,
}

/// Arguments of `backfill`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BackfillArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE", add = ArgValueCompleter::new(complete::named))]
    name: String,

    /// The first moment of the launch times, such as 2026-03-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Timestamp,

    /// The moment after the last launch time; not in the future
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Timestamp,

    /// The priority, from 0 (last) to 9 (first); 0 by default, so that what is due now comes first
    #[arg(long, value_name = "N")]
    priority: Option<u32>,

    /// A name for this request: the same again, within 7 days, makes no other runs, and has the same answer
    #[arg(long, value_name = "ID", conflicts_with = "dry_run")]
    request_id: Option<String>,

    /// Show the launch times of which runs would be made, and make none
    #[arg(long)]
    dry_run: bool,
}

/// Reads JSON.
fn json(text: &str) -> anyhow::Result<prost_types::Value> {
    let value: serde_json::Value = serde_json::from_str(text).context("expected JSON")?;
    Ok(tollgate_proto::convert::payload::from_json(&value))
}

/// Makes a run of a schedule.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: TriggerArgs) -> anyhow::Result<()> {
    let Some(name) = &args.name else {
        if args.launch_time.is_some() || args.priority.is_some() || args.payload.is_some() {
            let usage = "--launch-time, --priority and --payload are for one schedule by its name";
            return Err(Usage(usage.to_owned()).into());
        }
        let act = many::Act::Trigger { events: args.events, request_id: args.request_id };
        return many::act(&session, act, &args.many).await;
    };
    args.many.refuse()?;
    let name = names::schedule(&session.namespace, name);
    let tried = format!("trigger {name}");
    let launch_time = args.launch_time.as_deref().map(|text| moment_or_span(session.now_us, text));
    let request = v1::TriggerScheduleRequest {
        name,
        events: args.events,
        request_id: args.request_id.unwrap_or_default(),
        launch_time: launch_time.transpose().context("--launch-time")?,
        priority: args.priority,
        payload: args.payload,
    };
    let answer = session.master().trigger_schedule(request).await;
    let run = answer.map_err(|status| session.failure(tried, status))?.into_inner();
    session.show(&run, [run.name.as_str()], || rows::runs(session.view(), std::slice::from_ref(&run)))
}

/// Makes the runs of past launch times that do not exist.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn backfill(session: Session, args: BackfillArgs) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let name = names::schedule(&session.namespace, &args.name);
    if args.dry_run {
        return would_make(&session, &name, &args).await;
    }
    let tried = format!("backfill {name}");
    let request = v1::BackfillScheduleRequest {
        name,
        start_time: Some(args.from),
        end_time: Some(args.to),
        priority: args.priority,
        request_id: args.request_id.unwrap_or_default(),
    };
    let watched = Box::pin(watched(&session, request.clone()));
    let plain = async { session.master().backfill_schedule(request).await.map(Response::into_inner) };
    let made = progress::watched_or_plain(watched, plain).await;
    let flags = [("start_time", "--from"), ("end_time", "--to"), ("priority", "--priority")];
    let made = made.map_err(|status| session.failure_of_flags(tried, status, &flags))?;
    session.printer.message(&made, |made| {
        let head = format!("{} runs made, {} existed\n", made.created_count, made.existing_count);
        head + &listed(made)
    })
}

/// Makes the runs, with a line that says how many of them are made.
async fn watched(
    session: &Session,
    request: v1::BackfillScheduleRequest,
) -> Result<v1::BackfillScheduleResponse, Status> {
    let mut master = session.master();
    let before = |ms| format!("the service looks for launch times without a run: {}", span(ms));
    let said = |_, text: &str| format!("runs made: {text}");
    progress::told(master.backfill_schedule_with_progress(request), before, said).await
}

/// The launch times, and how many more there are.
fn listed(made: &v1::BackfillScheduleResponse) -> String {
    let mut text = String::new();
    for time in &made.launch_times {
        text.push_str(&format!("  {}\n", exact(Some(time))));
    }
    let shown = u32::try_from(made.launch_times.len()).unwrap_or(u32::MAX);
    if made.created_count > shown {
        text.push_str(&format!("  … and {} more\n", made.created_count - shown));
    }
    text
}

/// Shows what a backfill would make.
async fn would_make(session: &Session, name: &str, args: &BackfillArgs) -> anyhow::Result<()> {
    let schedule = fetch::schedule(session, name).await?;
    let mut launches = Vec::new();
    // A preview begins after its moment, a backfill with it.
    let mut after = timestamp(us(&args.from) - 1);
    loop {
        let source = v1::preview_schedule_request::Source::Name(name.to_owned());
        let request =
            v1::PreviewScheduleRequest { source: Some(source), from_time: Some(after), count: PREVIEWED };
        let answer = session.master().preview_schedule(request).await;
        let answer =
            answer.map_err(|status| session.failure(format!("preview {name}"), status))?.into_inner();
        let read = answer.launch_times.len();
        let times = answer.launch_times.into_iter().filter_map(|launch| launch.time);
        let inside: Vec<_> = times.take_while(|time| us(time) < us(&args.to)).collect();
        let is_last = inside.len() < read || read < PREVIEWED.unsigned_abs() as usize;
        launches.extend(inside);
        anyhow::ensure!(
            launches.len() <= BACKFILL_MAX,
            "more than {BACKFILL_MAX} launch times lie between --from and --to: split the range, and backfill the parts \
             one after the other"
        );
        match launches.last() {
            Some(last) if !is_last => after = *last,
            _ => break,
        }
    }
    let filter = format!(
        "schedule={} AND launch_time>={} AND launch_time<={}",
        names::short(name),
        exact(Some(&args.from)),
        exact(Some(&args.to))
    );
    let parents = [names::parent(names::namespace_of(name))];
    let runs = fetch::runs_of(session, &parents, (&filter, false), 0).await?.runs;
    let taken: HashSet<i64> = runs.iter().filter_map(|run| run.launch_time.as_ref()).map(us).collect();
    let all = launches.len();
    launches.retain(|time| !taken.contains(&us(time)));
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let made = v1::BackfillScheduleResponse {
        created_count: count(launches.len()),
        existing_count: count(all - launches.len()),
        launch_times: launches.into_iter().take(LISTED_MAX).collect(),
    };
    let events = u64::from(schedule.events.unwrap_or(1)) * u64::from(made.created_count);
    session.printer.message(&made, |made| {
        let (runs, existing) = (made.created_count, made.existing_count);
        let head = format!("{runs} runs with {events} events would be made, {existing} exist\n");
        head + &listed(made)
    })
}
