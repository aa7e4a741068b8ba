//! Decides what a line of each list shows.

use prost_types::Timestamp;
use tollgate_proto::v1;
use tollgate_proto::v1::trigger::Trigger;

use super::names::{namespace_of, short};
use super::style::Tone;
use super::table::{Cell, NAMESPACE, Table, View, always, filled, wide};
use super::when::{duration, exact, relative};

/// The name of an enum's value without the enum's.
pub(super) fn word(full: &'static str, prefix: &str) -> String {
    full.strip_prefix(prefix).unwrap_or(full).to_owned()
}

/// `RUNNING`.
pub(super) fn run_state(run: &v1::Run) -> String {
    word(run.state().as_str_name(), "RUN_STATE_")
}

/// `HELD`.
pub(super) fn event_state(state: v1::EventState) -> String {
    word(state.as_str_name(), "EVENT_STATE_")
}

/// `MISSED`.
pub(super) fn skip_reason(skipped: &v1::SkippedTrigger) -> String {
    word(skipped.reason().as_str_name(), "SKIP_REASON_")
}

/// Whether it runs, for people.
pub(super) fn active(pause: Option<&v1::Pause>) -> String {
    if pause.is_some() { "PAUSED" } else { "ACTIVE" }.to_owned()
}

/// How many events each run has, a list says so when it is fetched; and how many tokens each takes, where that is more than one.
fn events_of(schedule: &v1::Schedule) -> String {
    let events = match schedule.items_from {
        Some(_) => "a list".to_owned(),
        None => schedule.events.unwrap_or(1).to_string(),
    };
    match schedule.units.unwrap_or(1) {
        0 | 1 => events,
        units => format!("{events} (units {units})"),
    }
}

/// A schedule's triggers on one line.
fn triggers(schedule: &v1::Schedule) -> String {
    if schedule.triggers.is_empty() {
        return "manual".to_owned();
    }
    let texts = schedule.triggers.iter().map(|trigger| match &trigger.trigger {
        Some(Trigger::Cron(cron)) => cron.clone(),
        Some(Trigger::Fields(fields)) => {
            let part = |field: &Option<String>| field.clone().unwrap_or_else(|| "*".to_owned());
            let minute =
                fields.minute.clone().filter(|minute| minute != "*").unwrap_or_else(|| "0".to_owned());
            let (hour, day) = (part(&fields.hour), part(&fields.day_of_month));
            format!("{minute} {hour} {day} {} {}", part(&fields.month), part(&fields.day_of_week))
        }
        Some(Trigger::Interval(interval)) => format!("every {}", duration(interval.every.as_ref())),
        Some(Trigger::At(at)) => format!("at {}", exact(Some(at))),
        None => String::new(),
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Schedules.
pub(super) fn schedules(view: impl Into<View>, schedules: &[v1::Schedule]) -> String {
    let view = view.into();
    let head = [
        NAMESPACE,
        always("SCHEDULE"),
        always("STATE"),
        always("POLICY"),
        always("EVENTS"),
        always("TRIGGERS"),
        always("ZONE"),
        always("NEXT"),
        wide("STARTS"),
        wide("PRIORITY"),
        wide("FINISH BY"),
        wide("TARGET"),
        wide("LABELS"),
    ];
    let mut table = Table::of(view, head);
    for schedule in schedules {
        table.row([
            namespace_of(&schedule.name).into(),
            short(&schedule.name).into(),
            Cell::state(active(schedule.pause.as_ref())),
            short(&schedule.policy).into(),
            events_of(schedule).into(),
            triggers(schedule).into(),
            schedule.time_zone.as_str().into(),
            Cell::from(relative(view.now_us, schedule.next_launch_time.as_ref())),
            Cell::from(relative(view.now_us, schedule.next_start_time.as_ref())),
            schedule.priority.map(|priority| priority.to_string()).unwrap_or_default().into(),
            duration(schedule.finish_by.as_ref()).into(),
            target(schedule.target.as_ref()).into(),
            labels(&schedule.labels).into(),
        ]);
    }
    or_none(&table, "no schedules")
}

/// Where events go.
fn target(target: Option<&v1::Target>) -> String {
    match target.and_then(|target| target.target.as_ref()) {
        Some(v1::target::Target::Http(http)) => http.url.clone(),
        Some(v1::target::Target::Sqs(sqs)) => sqs.queue_url.clone(),
        Some(v1::target::Target::Kafka(kafka)) => kafka.shown(),
        Some(v1::target::Target::Pull(pull)) => pull.address(),
        None => String::new(),
    }
}

/// `team=data,tier=1`.
fn labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let mut texts: Vec<String> = labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    texts.sort();
    texts.join(",")
}

/// Calendars.
pub(super) fn calendars(view: impl Into<View>, calendars: &[v1::Calendar]) -> String {
    let head = [
        NAMESPACE,
        always("CALENDAR"),
        always("DATES"),
        always("LAST"),
        always("SCHEDULES"),
        always("DESCRIPTION"),
        wide("LABELS"),
    ];
    let mut table = Table::of(view.into(), head);
    for calendar in calendars {
        let last = calendar.dates.iter().filter_map(|range| range.rsplit("..").next()).max();
        table.row([
            namespace_of(&calendar.name).to_owned(),
            short(&calendar.name).to_owned(),
            calendar.dates.len().to_string(),
            last.unwrap_or_default().to_owned(),
            calendar.used_by_count.to_string(),
            calendar.description.lines().next().unwrap_or_default().to_owned(),
            labels(&calendar.labels),
        ]);
    }
    or_none(&table, "no calendars")
}

/// Alerts.
pub(super) fn alerts(view: impl Into<View>, alerts: &[v1::Alert]) -> String {
    use v1::alert_target::Target;
    let view = view.into();
    let head = [
        NAMESPACE,
        always("ALERT"),
        always("STATE"),
        always("TO"),
        always("RAISED"),
        always("SENT"),
        always("LAST SENT"),
        always("LAST ERROR"),
        wide("LABELS"),
    ];
    let mut table = Table::of(view, head);
    for alert in alerts {
        let status = alert.status.clone().unwrap_or_default();
        let to = match alert.target.as_ref().and_then(|target| target.target.as_ref()) {
            Some(Target::Http(http)) => http.url.clone(),
            Some(Target::Slack(slack)) => slack.url.clone(),
            Some(Target::Sqs(sqs)) => sqs.queue_url.clone(),
            None => String::new(),
        };
        table.row([
            namespace_of(&alert.name).into(),
            short(&alert.name).into(),
            Cell::state(if alert.disabled { "DISABLED" } else { "ENABLED" }),
            to.into(),
            status.raised_count.to_string().into(),
            status.sent_count.to_string().into(),
            relative(view.now_us, status.last_send_time.as_ref()).into(),
            Cell::toned(relative(view.now_us, status.last_error_time.as_ref()), Tone::Warning),
            labels(&alert.labels).into(),
        ]);
    }
    or_none(&table, "no alerts")
}

/// Runs.
pub(super) fn runs(view: impl Into<View>, runs: &[v1::Run]) -> String {
    let view = view.into();
    let head = [
        NAMESPACE,
        always("RUN"),
        always("SCHEDULE"),
        always("STATE"),
        always("LAUNCH"),
        always("EVENTS"),
        always("WAITING"),
        always("IN FLIGHT"),
        always("OK"),
        always("NOT OK"),
        wide("POLICY"),
        wide("KIND"),
        wide("PRIORITY"),
        wide("STARTED"),
        wide("AT RISK"),
        always("ENDS"),
        wide("REASON"),
    ];
    let mut table = Table::of(view, head);
    for run in runs {
        let counts = run.counts.unwrap_or_default();
        table.row([
            namespace_of(&run.name).into(),
            short(&run.name).into(),
            short(&run.schedule).into(),
            Cell::state(run_state(run)),
            relative(view.now_us, run.launch_time.as_ref()).into(),
            run.events.to_string().into(),
            run.waiting_count.to_string().into(),
            run.in_flight_count.to_string().into(),
            counts.succeeded.to_string().into(),
            Cell::count(bad(&counts), Tone::Bad),
            short(&run.policy).into(),
            word(run.kind().as_str_name(), "RUN_KIND_").into(),
            run.priority.to_string().into(),
            relative(view.now_us, run.start_time.as_ref()).into(),
            Cell::count(run.at_risk_count, Tone::Warning),
            end(view.now_us, run),
            run.reason.as_str().into(),
        ]);
    }
    or_none(&table, "no runs")
}

/// Why an end cannot be said: that there is none is bad, that it is not known yet is not.
pub(super) fn unknown_end(why: &str) -> Cell {
    Cell::toned(why, if why.starts_with("never") { Tone::Warning } else { Tone::Quiet })
}

/// When it ended, or is expected to, or why that cannot be said.
pub(super) fn end(now_us: i64, run: &v1::Run) -> Cell {
    if run.finish_time.is_some() {
        return relative(now_us, run.finish_time.as_ref()).into();
    }
    let tone = Tone::Warning.if_any(run.at_risk_count.into());
    match &run.expected_finish_time {
        Some(time) => Cell::toned(relative(now_us, Some(time)), tone),
        None => unknown_end(&run.no_expected_finish_reason),
    }
}

/// Events that ended otherwise than well.
pub(super) fn bad(counts: &v1::RunCounts) -> u64 {
    [counts.failed, counts.dead, counts.expired, counts.cancelled, counts.lost]
        .into_iter()
        .map(u64::from)
        .sum()
}

/// A run's counts on one line, those of zero left out.
pub(super) fn counts(run: &v1::Run) -> String {
    let counts = run.counts.unwrap_or_default();
    let words = [
        (run.waiting_count, "waiting"),
        (run.in_flight_count, "in flight"),
        (counts.succeeded, "succeeded"),
        (counts.failed, "failed"),
        (counts.dead, "dead"),
        (counts.expired, "expired"),
        (counts.cancelled, "cancelled"),
        (counts.lost, "lost"),
    ];
    let shown = words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    shown.collect::<Vec<_>>().join(", ")
}

/// Events.
pub(super) fn events(view: impl Into<View>, events: &[v1::Event]) -> String {
    let view = view.into();
    let head = [
        always("EVENT"),
        filled("KEY", events.iter().any(|event| !event.key.is_empty())),
        filled("TOKENS", events.iter().any(|event| event.units > 1)),
        always("STATE"),
        always("ATTEMPT"),
        always("LAUNCH"),
        wide("ACQUIRED"),
        always("DELIVERED"),
        wide("AGAIN"),
        always("ENDED"),
        always("MESSAGE"),
    ];
    let mut table = Table::of(view, head);
    for event in events {
        let seen = |time: &Option<Timestamp>| Cell::from(relative(view.now_us, time.as_ref()));
        table.row([
            event.event_id.as_str().into(),
            event.key.as_str().into(),
            event.units.to_string().into(),
            Cell::state(event_state(event.state())),
            event.attempt.to_string().into(),
            seen(&event.launch_time),
            seen(&event.acquire_time),
            seen(&event.deliver_time),
            seen(&event.due_time),
            seen(&event.finish_time),
            event.message.as_str().into(),
        ]);
    }
    or_none(&table, "no events")
}

/// Triggers that made no run.
pub(super) fn skipped(now_us: i64, skipped: &[v1::SkippedTrigger]) -> String {
    let mut table = Table::new(["LAUNCH TIME", "SEEN FROM NOW", "REASON", "RECORDED"]);
    for trigger in skipped {
        table.row([
            exact(trigger.launch_time.as_ref()),
            relative(now_us, trigger.launch_time.as_ref()),
            skip_reason(trigger),
            exact(trigger.record_time.as_ref()),
        ]);
    }
    or_none(&table, "no skipped triggers")
}

/// Index entries of a schedule.
pub(super) fn children(children: &[v1::ScheduleChild]) -> String {
    let mut table = Table::new(["CLASS", "LAUNCH EXPRESSION", "SLOT", "ZONE", "RULE"]);
    for child in children {
        table.row([
            child.launch_class.clone(),
            child.launch_expression.clone(),
            child.slot.to_string(),
            child.time_zone.clone(),
            child.rule.clone(),
        ]);
    }
    or_none(&table, "no children")
}

/// Scan windows.
pub(super) fn windows(now_us: i64, windows: &[v1::Window]) -> String {
    let mut table = Table::new(["START", "END", "SEEN FROM NOW", "STATE", "TASKS", "RUNS", "COMPLETED"]);
    for window in windows {
        table.row([
            exact(window.start_time.as_ref()),
            exact(window.end_time.as_ref()),
            relative(now_us, window.start_time.as_ref()),
            word(window.state().as_str_name(), "WINDOW_STATE_"),
            format!("{}/{}", window.tasks_done_count, window.tasks_count),
            window.runs_count.to_string(),
            relative(now_us, window.complete_time.as_ref()),
        ]);
    }
    or_none(&table, "no windows")
}

/// Runs and skipped triggers of a schedule together, latest launch time first.
pub(super) fn history(now_us: i64, runs: &[v1::Run], skipped: &[v1::SkippedTrigger]) -> String {
    let order = |time: &Option<Timestamp>| time.map(|time| (time.seconds, time.nanos));
    let mut lines = Vec::new();
    for run in runs {
        let end = match (&run.finish_time, &run.expected_finish_time) {
            (Some(time), _) => exact(Some(time)),
            (None, Some(_)) => format!("expected {}", relative(now_us, run.expected_finish_time.as_ref())),
            (None, None) => run.no_expected_finish_reason.clone(),
        };
        let kind = word(run.kind().as_str_name(), "RUN_KIND_");
        let notes = [counts(run), run.reason.clone()].into_iter().filter(|note| !note.is_empty());
        let notes = notes.collect::<Vec<_>>().join("; ");
        let cells = [run_state(run), kind, run.events.to_string(), notes, end, short(&run.name).to_owned()];
        lines.push((order(&run.launch_time), run.launch_time, cells));
    }
    for trigger in skipped {
        let cells = ["NOT RUN".to_owned(), String::new(), String::new(), skip_reason(trigger)];
        let [state, kind, events, notes] = cells;
        let cells = [state, kind, events, notes, String::new(), String::new()];
        lines.push((order(&trigger.launch_time), trigger.launch_time, cells));
    }
    lines.sort_by_key(|(order, _, _)| std::cmp::Reverse(*order));
    let mut table =
        Table::new(["LAUNCH TIME", "SEEN FROM NOW", "STATE", "KIND", "EVENTS", "NOTES", "ENDED", "RUN"]);
    for (_, time, [state, kind, events, notes, end, run]) in lines {
        let (at, seen) = (exact(time.as_ref()), relative(now_us, time.as_ref()));
        let plain = [kind, events, notes, end, run].map(Cell::from);
        let [kind, events, notes, end, run] = plain;
        table.row([at.into(), seen.into(), Cell::state(state), kind, events, notes, end, run]);
    }
    or_none(&table, "no runs and no skipped triggers")
}

/// The table, or a sentence where it is empty.
pub(super) fn or_none(table: &Table, none: &str) -> String {
    if table.is_empty() { format!("{none}\n") } else { table.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::style::plain;
    use super::*;

    fn at(us: i64) -> Option<Timestamp> {
        Some(tollgate_proto::convert::timestamp(us))
    }

    #[test]
    fn schedules_show_their_timing() {
        let cron = v1::Trigger { trigger: Some(Trigger::Cron("30 2 * * *".to_owned())) };
        let fields = v1::FieldTimes {
            hour: Some("3,6".to_owned()),
            minute: Some("*".to_owned()),
            ..Default::default()
        };
        let fields = v1::Trigger { trigger: Some(Trigger::Fields(fields)) };
        let schedule = v1::Schedule {
            name: "namespaces/default/schedules/nightly".to_owned(),
            triggers: vec![cron, fields],
            time_zone: "Europe/Berlin".to_owned(),
            events: Some(1_000),
            policy: "namespaces/default/policies/imports".to_owned(),
            pause: Some(v1::Pause::default()),
            next_launch_time: at(180_000_000),
            ..Default::default()
        };
        let text = plain(&schedules(0_i64, &[schedule]));
        let line = text.lines().nth(1).unwrap_or_default();
        let cells: Vec<&str> = line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
        let expected =
            ["nightly", "PAUSED", "imports", "1000", "30 2 * * *; 0 3,6 * * *", "Europe/Berlin", "in 3m"];
        assert_eq!(cells, expected);
        assert_eq!(schedules(0_i64, &[]), "no schedules\n");
    }

    #[test]
    fn history_is_in_order_of_launch_times() {
        let counts = Some(v1::RunCounts { succeeded: 8, dead: 2, ..Default::default() });
        let run = |us: i64| v1::Run {
            name: format!("namespaces/default/runs/{us}"),
            launch_time: at(us),
            state: v1::RunState::Finished.into(),
            events: 10,
            counts,
            ..Default::default()
        };
        let skip = v1::SkippedTrigger {
            launch_time: at(60_000_000),
            reason: v1::SkipReason::Missed.into(),
            ..Default::default()
        };
        let text = plain(&history(180_000_000, &[run(120_000_000), run(0)], &[skip]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[1].contains("FINISHED") && lines[1].contains("8 succeeded, 2 dead"), "{text}");
        assert!(lines[2].contains("NOT RUN") && lines[2].contains("MISSED"), "{text}");
        assert!(lines[3].starts_with("1970-01-01T00:00:00Z"), "{text}");
    }
}
