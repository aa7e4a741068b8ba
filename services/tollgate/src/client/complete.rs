//! Decides which names a shell completes: those that the service knows.
//!
//! A shell runs the binary for it at each press of its key. So it has little time, and says nothing where the service is
//! away, slow or wants another key.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use clap_complete::engine::CompletionCandidate;
use tollgate_proto::v1;

use super::{ClientArgs, Session, fetch, names};

/// The longest time that somebody waits at a prompt.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// The most names that are offered.
const OFFERED_MAX: u32 = 200;
/// Flags that say which service is asked, and as whom. Each takes a value.
const FLAGS: [&str; 7] = ["-n", "--namespace", "--server", "--api-key", "--ca", "--cert", "--key"];

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Schedule,
    Policy,
    Calendar,
    Alert,
    Run,
    Queue,
}

impl Kind {
    /// The kind that the words before a name say; a schedule where none does.
    fn said(words: &[String]) -> Self {
        let said = words.iter().rev().find_map(|word| match word.as_str() {
            "schedule" | "schedules" | "skipped" | "child" | "children" => Some(Self::Schedule),
            "policy" | "policies" => Some(Self::Policy),
            "calendar" | "calendars" => Some(Self::Calendar),
            "alert" | "alerts" | "test-alert" => Some(Self::Alert),
            "run" | "runs" | "event" | "events" | "cancel" | "retry" | "results" => Some(Self::Run),
            "workers" => Some(Self::Queue),
            _ => None,
        });
        said.unwrap_or(Self::Schedule)
    }
}

/// Names of what the words before it say.
pub(crate) fn named(current: &OsStr) -> Vec<CompletionCandidate> {
    let words: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
    let Some(current) = current.to_str().filter(|current| !current.contains('/')) else { return Vec::new() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let offered = runtime.ok().and_then(|runtime| {
        let asked = async { tokio::time::timeout(PATIENCE, offered(&words, current)).await };
        runtime.block_on(asked).ok()?.ok()
    });
    offered.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

async fn offered(words: &[String], current: &str) -> anyhow::Result<Vec<String>> {
    let matches = ClientArgs::augment_args(Command::new("tollgate")).try_get_matches_from(flags(words))?;
    let session = Session::open(ClientArgs::from_arg_matches(&matches)?).await?;
    let parents = [session.parent()];
    let filter = if current.is_empty() { String::new() } else { format!("name={current}*") };
    let found: Vec<String> = match Kind::said(words) {
        Kind::Schedule => {
            let found = fetch::schedules_of(&session, &parents, &filter, OFFERED_MAX).await?.0;
            found.into_iter().map(|schedule| schedule.name).collect()
        }
        Kind::Policy => {
            let found = fetch::policies_of(&session, &parents, &filter, OFFERED_MAX).await?.0;
            found.into_iter().map(|policy| policy.name).collect()
        }
        Kind::Calendar => {
            let found = fetch::calendars_of(&session, &parents, &filter, OFFERED_MAX).await?.0;
            found.into_iter().map(|calendar| calendar.name).collect()
        }
        Kind::Alert => {
            let found = fetch::alerts_of(&session, &parents, &filter, OFFERED_MAX).await?.0;
            found.into_iter().map(|alert| alert.name).collect()
        }
        Kind::Run => {
            let found = fetch::runs(&session, "", OFFERED_MAX).await?.runs;
            found.into_iter().map(|run| run.name).collect()
        }
        Kind::Queue => queues(&session).await?,
    };
    let short = found.iter().map(|name| names::short(name)).filter(|name| name.starts_with(current));
    Ok(short.map(str::to_owned).collect())
}

/// The queues that workers are connected to, each once.
async fn queues(session: &Session) -> anyhow::Result<Vec<String>> {
    let request = v1::ListWorkersRequest { parent: session.parent() };
    let found = session.workers().list_workers(request).await?.into_inner();
    let queues: BTreeSet<String> = found.workers.into_iter().map(|worker| worker.queue).collect();
    Ok(queues.into_iter().take(OFFERED_MAX as usize).collect())
}

/// The flags that say which service is asked, out of a line that need not be whole.
fn flags(words: &[String]) -> Vec<String> {
    let mut found = vec!["tollgate".to_owned()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        if !FLAGS.contains(&name) {
            continue;
        }
        let value = if name.len() < word.len() { None } else { words.next() };
        if name.len() < word.len() || value.is_some() {
            found.push(word.clone());
            found.extend(value.cloned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_words_before_a_name_say_its_kind() {
        assert_eq!(Kind::said(&words("tollgate describe policy ")), Kind::Policy);
        assert_eq!(Kind::said(&words("tollgate delete calendar ho")), Kind::Calendar);
        assert_eq!(Kind::said(&words("tollgate trigger ni")), Kind::Schedule);
        assert_eq!(Kind::said(&words("tollgate get skipped ni")), Kind::Schedule);
        assert_eq!(Kind::said(&words("tollgate wait run 0a")), Kind::Run);
        assert_eq!(Kind::said(&words("tollgate workers re")), Kind::Queue);
    }

    #[test]
    fn the_flags_say_which_service_is_asked() {
        let line = words("tollgate -n team get schedules --server=http://a:1 -o json --api-key k ni");
        let expected = ["tollgate", "-n", "team", "--server=http://a:1", "--api-key", "k"];
        assert_eq!(flags(&line), expected);
        assert_eq!(flags(&words("tollgate get schedules -n")), ["tollgate"]);
    }
}
