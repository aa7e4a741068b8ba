//! What is said of a trouble, and what to do: for people.
//!
//! Not here: times, which each page and command shows in its own way.

use super::{Kind, Subject, Trouble};

/// The namespace of commands that name none.
const DEFAULT_NAMESPACE: &str = "default";

/// One sentence.
pub(super) fn summary(trouble: &Trouble) -> String {
    let Trouble { subject, count, runs, words, .. } = trouble;
    let Subject { policy, schedule, target, process, .. } = subject;
    let what = match trouble.kind {
        Kind::StoreFails => format!("the database does not answer the process {process}"),
        Kind::ShardsWithoutOwner => {
            format!("{} no owner", counted(*count, "queue shard has", "queue shards have"))
        }
        Kind::HandlerSilent => {
            format!("the handler {process}, which owns {}, does not answer", shards(*count))
        }
        Kind::ShardsNotLoaded => format!("the handler {process} cannot load {}", shards(*count)),
        Kind::ClockWrong => format!("the clock of the process {process} is wrong"),
        Kind::CorruptRows => {
            format!(
                "{} not be read, and what is described there waits",
                counted(*count, "row can", "rows can")
            )
        }
        Kind::EmitterBehind => "the emitters are behind: schedules fire late".to_owned(),
        Kind::DispatchPaused => "dispatch is paused: nothing starts".to_owned(),
        Kind::TargetRefuses => format!("{target} refuses the events of {schedule}"),
        Kind::TargetSilent => format!("{target} does not answer when it gets the events of {schedule}"),
        Kind::NotSent => format!("the events of {schedule} cannot be sent to {target}"),
        Kind::NoWorker => format!("nobody is able to do the events of {schedule}"),
        Kind::TokensSilent => {
            format!("silent consumers hold {} of {policy}", counted(*count, "token", "tokens"))
        }
        Kind::ConsumerFails => {
            format!("the consumer of {schedule} gives {} back", counted(*count, "event", "events"))
        }
        Kind::PolicyPaused => format!("the policy {policy} is paused"),
        Kind::DeadlineAtRisk => {
            format!("{} of {schedule} will not start in time, as things stand", events_in(*count, *runs))
        }
        Kind::EventsExpired => format!("{} of {schedule} did not start in time", events_in(*count, *runs)),
        Kind::EventsFailed => format!("{} of {schedule} failed for good", events_in(*count, *runs)),
        Kind::TriggersMissed => {
            format!("{schedule} missed {} in an outage", counted(*count, "trigger", "triggers"))
        }
        Kind::ListFails => format!("the list of {schedule} cannot be fetched from {target}"),
        Kind::NotListed => format!(
            "{} of {schedule} made no events, as the list could not be fetched",
            counted(*count, "trigger", "triggers")
        ),
        Kind::Slower => format!("runs of {schedule} take longer"),
        Kind::StoreSlow => format!("the database is slow to commit for the process {process}"),
    };
    let waits = match trouble.waiting {
        0 => String::new(),
        waiting => format!(" ({})", counted(waiting, "event waits", "events wait")),
    };
    // Those of silent tokens say whose they are, which is for what to do.
    let said = if words.is_empty() || trouble.kind == Kind::TokensSilent { "" } else { ": " };
    let words = if said.is_empty() { "" } else { words };
    format!("{what}{waits}{said}{words}")
}

/// What to do. Commands can be copied as they are.
pub(super) fn what_to_do(trouble: &Trouble) -> String {
    match plain(trouble.kind) {
        Some(text) => text.to_owned(),
        None => named(trouble),
    }
}

/// What to do where nothing has to be named.
fn plain(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::StoreFails => {
            "See that the database runs, can be reached from there, and takes writes; the log of the process names the \
             error. What was acknowledged is safe; nothing starts meanwhile, and releases are refused."
        }
        Kind::ShardsWithoutOwner => {
            "See that processes with the role handler run, and what their logs say. One that is well takes the shards \
             within seconds; `tollgate status --shards` shows whose they are."
        }
        Kind::HandlerSilent => {
            "See whether the process runs and can be reached where it advertises. If it has died, others take its \
             shards within seconds."
        }
        Kind::ShardsNotLoaded => {
            "The log of the process says why. Mostly the database is slow or does not answer."
        }
        Kind::ClockWrong => {
            "Set the clock of its machine, and have it kept right (NTP). Until then its shards go to processes whose \
             clocks are right."
        }
        Kind::CorruptRows => {
            "`tollgate status` names table, key and column. A change of the policy, or pause and resume of the \
             schedule, bring a sound row; others are put right by SQL."
        }
        Kind::EmitterBehind => {
            "See that processes with the role emitter run, and that the database is not slow. They catch up by \
             themselves; `tollgate get windows` shows how far they are."
        }
        Kind::DispatchPaused => "`tollgate resume all` ends it, when its reason is gone.",
        Kind::NotSent => {
            "What is missing is here: credentials, an address for the name, a secret key, free connections; or the \
             target asked for a pause. Events go out as soon as they can; these tries count as no failures."
        }
        Kind::StoreSlow => {
            "See what the database does: its disk, its load, locks, its replicas. Nothing is lost; events start later, and \
             releases are answered later."
        }
        _ => return None,
    })
}

/// What to do with what the subject names.
fn named(trouble: &Trouble) -> String {
    let Trouble { subject, words, .. } = trouble;
    let Subject { policy, schedule, target, .. } = subject;
    let n = match subject.namespace.as_str() {
        "" | DEFAULT_NAMESPACE => String::new(),
        other => format!(" -n {other}"),
    };
    match trouble.kind {
        Kind::TargetRefuses => format!(
            "Look at the consumer, and at url, headers and secret of the schedule. Events are tried again by \
             themselves; `tollgate pause schedule {schedule}{n}` stops that meanwhile."
        ),
        Kind::TargetSilent => format!(
            "See whether the consumer hangs, or takes longer to accept an event than the schedule's deadline. Events \
             keep their tokens and are sent again; `tollgate pause schedule {schedule}{n}` stops that meanwhile."
        ),
        Kind::NoWorker => format!(
            "Start a worker of the queue {}; `tollgate workers{n}` lists those that are there. Or correct target.pull of \
             {schedule}, if the queue or a label is wrong. The events start by themselves as soon as such a worker comes.",
            of_workers(target)
        ),
        Kind::TokensSilent => {
            let of = if words.is_empty() { String::new() } else { format!(" of {words}") };
            format!(
                "See whether the consumers{of} live. `tollgate why EVENT{n}` names the events that hold tokens, `tollgate release \
                 EVENT --outcome failed{n}` frees one. Those that are slow need heartbeats, or a longer token_ttl of \
                 {policy}."
            )
        }
        Kind::ConsumerFails => format!(
            "Look at the consumer: it asks to get its events again, or dies with them. `tollgate history \
             {schedule}{n}` shows the runs."
        ),
        Kind::PolicyPaused => {
            format!("`tollgate resume policy {policy}{n}` ends it, when its reason is gone.")
        }
        Kind::DeadlineAtRisk if !policy.is_empty() => format!(
            "`tollgate describe policy {policy}{n}` shows how much waits and how fast it goes. End what holds it up, which is \
             another trouble of this list, raise the limit of {policy}, or give the schedule a longer finish_by."
        ),
        Kind::DeadlineAtRisk => format!(
            "End what holds it up, which is another trouble of this list, or give the schedule a longer finish_by. \
             `tollgate history {schedule}{n}` shows the runs."
        ),
        Kind::EventsExpired => format!(
            "Nobody makes up for them: `tollgate trigger {schedule}{n}` starts another run. What kept them waiting is \
             another trouble of this list, or a limit that is too low."
        ),
        Kind::ListFails => format!(
            "Look at what serves the list, and at items_from of the schedule: url, headers, format. It is fetched again by itself, \
             until give_up_after; `tollgate history {schedule}{n}` shows the run."
        ),
        Kind::NotListed => format!(
            "Nobody makes up for them: when the list can be fetched again, `tollgate trigger {schedule}{n}` starts another run. \
             `tollgate history {schedule}{n}` shows why."
        ),
        Kind::Slower => format!(
            "See whether the work has grown, or what it waits for has become slow: a database, a disk, tokens of its policy. It \
             ends with a run that takes no longer than others. `tollgate history {schedule}{n}` shows the runs."
        ),
        Kind::TriggersMissed => format!(
            "No emitter ran when they fell due, or none could reach the database. `tollgate history {schedule}{n}` shows them, \
             `tollgate trigger {schedule}{n}` starts a run; catch_up says which of them are made up for after an outage."
        ),
        _ => format!(
            "`tollgate history {schedule}{n}` shows the runs, `tollgate get events RUN{n}` what was said. When the \
             cause is gone, `tollgate retry RUN{n}` tries the dead ones again."
        ),
    }
}

/// The queue of a target of workers, and what is required: `render [eu, gpu]` in words.
fn of_workers(target: &str) -> String {
    let target = target.trim_start_matches("pull:");
    match target.strip_suffix(']').and_then(|target| target.split_once(" [")) {
        Some((queue, labels)) => format!("{queue} that has the labels {}", labels.replace(", ", " and ")),
        None => target.to_owned(),
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

fn shards(count: u64) -> String {
    counted(count, "queue shard", "queue shards")
}

fn events_in(events: u64, runs: u64) -> String {
    let events = counted(events, "event", "events");
    if runs == 0 { events } else { format!("{events} in {}", counted(runs, "run", "runs")) }
}
