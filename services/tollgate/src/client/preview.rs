//! `tollgate preview`: when a schedule fires, stored or not.

use std::collections::BTreeMap;

use anyhow::anyhow;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use prost_types::{Duration, Timestamp};
use serde_json::Value;
use tollgate_proto::json::to_rest_json;
use tollgate_proto::v1;
use tollgate_proto::v1::preview_schedule_request::Source;
use tollgate_proto::v1::trigger::Trigger;

use super::apply::read_files;
use super::table::{Table, View, always, wide};
use super::when::{exact, moment, parse_span, relative};
use super::{Session, complete, names, rows};
use tollgate_files::Resource;

/// Arguments of `preview`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PreviewArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// The time zone of --cron
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,

    /// The number of launch times
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: i32,

    /// The moment after which launch times are shown; now by default
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Timestamp>,
}

#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
struct SourceArgs {
    /// The name of a stored schedule
    #[arg(value_name = "SCHEDULE", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,

    /// A cron expression, as in '30 2 * * MON-FRI'
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,

    /// An interval, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    every: Option<Duration>,

    /// A file with schedules; - means standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<String>,
}

/// Prints launch times to come.
///
/// # Errors
/// What is wrong with the file, what the service says, or those of writing.
pub(crate) async fn run(session: Session, args: PreviewArgs) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let mut answers: Vec<(String, v1::PreviewScheduleResponse)> = Vec::new();
    for (title, source) in sources(&session, &args)? {
        let request =
            v1::PreviewScheduleRequest { source: Some(source), from_time: args.from, count: args.count };
        let answer = session.master().preview_schedule(request).await;
        let answer = answer.map_err(|status| session.failure(format!("preview {title}"), status))?;
        answers.push((title, answer.into_inner()));
    }
    if let [(_, answer)] = answers.as_slice() {
        return session.printer.message(answer, |answer| text(session.now_us, answer));
    }
    if session.printer.is_json() {
        let json = answers.iter().map(|(title, answer)| (title.clone(), to_rest_json(answer)));
        return session.printer.json(&Value::Object(json.collect()));
    }
    for (title, answer) in &answers {
        session.printer.text(&format!("{title}\n{}\n", text(session.now_us, answer)))?;
    }
    Ok(())
}

fn sources(session: &Session, args: &PreviewArgs) -> anyhow::Result<Vec<(String, Source)>> {
    let timed = |trigger: Trigger| {
        let triggers = vec![v1::Trigger { trigger: Some(trigger) }];
        Source::Schedule(v1::Schedule { triggers, time_zone: args.zone.clone(), ..Default::default() })
    };
    let given = &args.source;
    if let Some(name) = &given.name {
        let name = names::schedule(&session.namespace, name);
        return Ok(vec![(name.clone(), Source::Name(name))]);
    }
    if let Some(cron) = &given.cron {
        return Ok(vec![(format!("{cron:?} in {}", args.zone), timed(Trigger::Cron(cron.clone())))]);
    }
    if let Some(every) = given.every {
        return Ok(vec![(
            "the interval".to_owned(),
            timed(Trigger::Interval(v1::Interval { every: Some(every), anchor: None })),
        )]);
    }
    let Some(file) = &given.file else { return Ok(Vec::new()) };
    let documents = read_files(std::slice::from_ref(file), &session.namespace)?;
    let (mut schedules, mut calendars) = (Vec::new(), BTreeMap::new());
    for entry in documents {
        match entry.resource {
            Resource::Schedule(schedule) => schedules.push(schedule),
            Resource::Calendar(calendar) => drop(calendars.insert(calendar.name, calendar.dates)),
            Resource::Policy(_) | Resource::Alert(_) => {}
        }
    }
    schedules.iter_mut().for_each(|schedule| take_dates(schedule, &calendars));
    let schedules: Vec<_> =
        schedules.into_iter().map(|schedule| (schedule.name.clone(), Source::Schedule(schedule))).collect();
    if schedules.is_empty() { Err(anyhow!("{file}: no schedules in it")) } else { Ok(schedules) }
}

/// Gives a schedule the dates of calendars that stand in the same file, and need not be stored yet.
fn take_dates(schedule: &mut v1::Schedule, calendars: &BTreeMap<String, Vec<String>>) {
    let namespace = names::namespace_of(&schedule.name).to_owned();
    let mut dates = Vec::new();
    schedule.exclude_calendars.retain(|calendar| {
        let found = calendars.get(&names::calendar(&namespace, calendar));
        dates.extend(found.into_iter().flatten().cloned());
        found.is_none()
    });
    schedule.exclude.extend(dates);
}

/// Launch times with what clocks in the zone show.
pub(super) fn text(now_us: i64, answer: &v1::PreviewScheduleResponse) -> String {
    let is_delayed = answer.launch_times.iter().any(|launch| launch.start_time.is_some());
    let view = View { wide: is_delayed, ..View::default() };
    let head =
        [always("LOCAL TIME"), always("OFFSET"), always("UTC"), always("SEEN FROM NOW"), wide("STARTS")];
    let mut table = Table::of(view, head);
    for launch in &answer.launch_times {
        table.row([
            launch.local_time.clone(),
            launch.utc_offset.clone(),
            exact(launch.time.as_ref()),
            relative(now_us, launch.time.as_ref()),
            exact(launch.start_time.as_ref()),
        ]);
    }
    let classes = answer.launch_classes.join(", ");
    if answer.children_count == 0 {
        return "it is manual: it fires by `tollgate trigger ID` alone\n".to_owned();
    }
    let never = rows::or_none(&table, "it never fires again");
    format!("{never}launch classes: {classes}; children: {}\n", answer.children_count)
}
