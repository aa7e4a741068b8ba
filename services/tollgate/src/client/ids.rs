//! Decides which run or event is meant by the beginning of its id, as long as it is the only one that begins so.
//!
//! A run's id is `<shard>-<run>`, and is found with its shard or without. An event's id is `<shard>-<run>-<index>-<seal>`:
//! its run may be cut short, and the seal may be cut short or left out. Whole ids are passed on without a look-up.

use anyhow::anyhow;
use tollgate_proto::v1;

use super::{Session, fetch, names};

/// The least characters of an id by which it is looked for.
const CHARS_MIN: usize = 4;
/// How many events of a run are looked through, by index.
const EVENTS_READ: u32 = 10_000;
/// The most candidates that are listed.
const LISTED_MAX: usize = 10;
/// The characters of a run's own part.
const RUN_CHARS: usize = 32;
/// The characters of a whole seal.
const SEAL_CHARS: usize = 11;

/// A run or an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The run's full name.
    Run(String),
    /// The event's id or full name.
    Event(String),
}

/// What an event's id has in it, as far as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts<'a> {
    /// `<shard>-<run>`, or the beginning of it, or of the run's own part.
    run: &'a str,
    index: Option<u32>,
    seal: &'a str,
}

impl<'a> Parts<'a> {
    /// None for a text that is no beginning of an id.
    fn read(text: &'a str) -> Option<Self> {
        let is_hex =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let (shard, rest) = text.split_once('-').unwrap_or(("", text));
        let rest = rest.split_once('-').map_or("", |(_, rest)| rest);
        let (index, seal) = rest.split_once('-').unwrap_or((rest, ""));
        let index = if index.is_empty() { None } else { Some(index.parse().ok()?) };
        let run = &text[..text.len() - rest.len() - usize::from(index.is_some())].trim_end_matches('-');
        let own = run.rsplit('-').next().unwrap_or_default();
        let is_shard = shard.is_empty() || tollgate_proto::convert::names::shard(shard).is_some();
        let known =
            is_shard && is_hex(shard) && is_hex(own) && own.len() <= RUN_CHARS && text.len() >= CHARS_MIN;
        known.then_some(Self { run, index, seal })
    }

    fn is_whole(&self) -> bool {
        self.index.is_some() && self.seal.len() >= SEAL_CHARS
    }
}

/// The full name of the run that is meant.
///
/// # Errors
/// Several that are, or what the service says.
pub(super) async fn run(session: &Session, text: &str) -> anyhow::Result<String> {
    let full = names::run(&session.namespace, text);
    if names::is_run(&session.namespace, text) {
        return Ok(full);
    }
    match Parts::read(names::short(&full)) {
        Some(Parts { run, index: None, .. }) if full.starts_with(&session.parent()) => {
            Ok(find(session, run).await?.map_or(full, |run| run.name))
        }
        _ => Ok(full),
    }
}

/// The name of the event that is meant.
///
/// # Errors
/// Several that are, or what the service says.
pub(super) async fn event(session: &Session, text: &str) -> anyhow::Result<String> {
    match run_or_event(session, text).await? {
        Found::Event(event) => Ok(event),
        Found::Run(run) => {
            let (events, token) = fetch::events(session, &run, "", 1).await?;
            match events.first() {
                Some(event) if token.is_empty() => Ok(event.event_id.clone()),
                _ => Err(anyhow!(
                    "{text:?} is a run with several events: `tollgate list events {}` shows them; {}-0 is the first",
                    names::short(&run),
                    names::short(&run)
                )),
            }
        }
    }
}

/// The run or the event that is meant.
///
/// # Errors
/// Several that are, or what the service says.
pub(super) async fn run_or_event(session: &Session, text: &str) -> anyhow::Result<Found> {
    let bare = names::event(text);
    if names::is_run(&session.namespace, bare) {
        return Ok(Found::Run(names::run(&session.namespace, bare)));
    }
    let given = || Ok(Found::Event(bare.to_owned()));
    let Some(parts) = Parts::read(bare).filter(|parts| !parts.is_whole()) else { return given() };
    let run = match names::is_run(&session.namespace, parts.run) {
        true => Some(names::run(&session.namespace, parts.run)),
        false => find(session, parts.run).await?.map(|run| run.name),
    };
    let (Some(run), index) = (run, parts.index) else { return given() };
    let Some(index) = index else { return Ok(Found::Run(run)) };
    if index >= EVENTS_READ {
        return given();
    }
    let (events, _) = fetch::events(session, &run, "", index + 1).await?;
    let beginning = format!("{}-{index}", names::short(&run));
    let is_meant = |event: &v1::Event| {
        // A key that may not release is shown ids without their seals.
        let seal = event.event_id.strip_prefix(&beginning).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
        event.index == index && seal.is_some_and(|seal| seal.starts_with(parts.seal))
    };
    events.into_iter().find(is_meant).map_or_else(given, |event| Ok(Found::Event(event.event_id)))
}

/// The only run of the namespace that begins so, with its queue shard before it or without; none where none does.
async fn find(session: &Session, beginning: &str) -> anyhow::Result<Option<v1::Run>> {
    let limit = u32::try_from(LISTED_MAX + 1).unwrap_or(u32::MAX);
    let mut found = fetch::runs(session, &format!("name={beginning}*"), limit).await?.runs;
    if found.len() > 1 {
        return Err(ambiguous(beginning, &found));
    }
    Ok(found.pop())
}

fn ambiguous(beginning: &str, found: &[v1::Run]) -> anyhow::Error {
    let mut text = format!("{beginning:?} is the beginning of several runs, give more of it:");
    for run in found.iter().take(LISTED_MAX) {
        let (id, schedule) = (names::short(&run.name), names::short(&run.schedule));
        text.push_str(&format!("\n  {id}  {schedule}  {}", super::when::exact(run.launch_time.as_ref())));
    }
    if found.len() > LISTED_MAX {
        text.push_str("\n  … and more");
    }
    anyhow!(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0a-0123456789abcdef0123456789abcdef";

    #[test]
    fn beginnings_of_ids_are_read() {
        let parts = |run: &'static str, index, seal| Some(Parts { run, index, seal });
        assert_eq!(Parts::read("0a-12f3"), parts("0a-12f3", None, ""));
        assert_eq!(Parts::read("3ff-12f3-7"), parts("3ff-12f3", Some(7), ""), "a shard that was added");
        assert_eq!(Parts::read("12f3"), parts("12f3", None, ""));
        assert_eq!(Parts::read(RUN), parts(RUN, None, ""));
        assert_eq!(Parts::read("0a-12f3-7"), parts("0a-12f3", Some(7), ""));
        assert_eq!(Parts::read("0a-12f3-7-aB_-c"), parts("0a-12f3", Some(7), "aB_-c"));
        for other in ["12f", "nightly", "0-12f3", "00a-12f3", "0a-12f3-x", "namespaces/a/events/x", "0a-12F3"]
        {
            assert_eq!(Parts::read(other), None, "{other}");
        }
        assert!(Parts::read("0a-12f3-7-aB_-cdEfGhI").is_some_and(|parts| parts.is_whole()));
    }

    #[test]
    fn the_candidates_are_listed() {
        let run = v1::Run { name: format!("namespaces/a/runs/{RUN}"), ..v1::Run::default() };
        let text = ambiguous("0123", &vec![run; 11]).to_string();
        assert!(text.starts_with("\"0123\" is the beginning of several runs"), "{text}");
        assert!(text.ends_with("… and more") && text.lines().count() == 12, "{text}");
    }
}
