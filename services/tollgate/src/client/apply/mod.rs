//! `tollgate apply` and `tollgate diff`: makes policies, calendars, schedules and alerts be as files say, or shows what that
//! would change.
//!
//! In: YAML files. Out: one stream of resources, policies first, each with the file and line where it was written; then
//! what was done to which resource. Invariant: nothing is sent unless every file can be read to its end. Not here: whether
//! values are allowed, which the service says, resource by resource.

mod prune;
mod results;
mod warnings;

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, anyhow};
use clap::Args;
use tollgate_files::{FileEntry, Files, Location, Resource, given_twice, wrong_values};
use tollgate_proto::json::to_rest_json;
use tollgate_proto::v1;
use tonic::{Response, Status};
use tonic_types::StatusExt;

use super::failure::unlisted;
use super::{Session, progress};
use crate::exit::Exit;
use crate::usage::{Usage, plain};
use prune::{PruneArgs, Pruned};

/// The most errors that are printed.
const ERRORS_MAX: usize = 100;

/// Arguments of `apply`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ApplyArgs {
    /// A YAML file with any number of policies, schedules, calendars and alerts; - means standard input
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Check everything at the service, change nothing, and show what would change, with its effects
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    prune: PruneArgs,
}

/// Arguments of `diff`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiffArgs {
    /// A YAML file with any number of policies, schedules, calendars and alerts; - means standard input
    #[arg(short, long = "file", value_name = "FILE", required = true)]
    files: Vec<String>,
}

/// Applies files.
///
/// # Errors
/// What is wrong with the files or refused by the service, each with its location; those of writing.
pub(crate) async fn run(session: Session, args: ApplyArgs) -> anyhow::Result<()> {
    let entries = read_files(&args.files, &session.namespace)?;
    let namespaces = entries.iter().map(|entry| entry.namespace.clone()).collect();
    let kept = entries.iter().map(|entry| name_of(entry).to_owned()).collect();
    let pruned = Pruned::find(&session, &args.prune, &namespaces, &kept).await?;
    if !args.dry_run {
        pruned.confirm(&args.prune)?;
    }
    let (answer, locations) = send(&session, entries, args.dry_run).await?;
    let is_refused = answer.failed_count > 0;
    let pruned = if args.dry_run || is_refused { pruned } else { pruned.carry_out(&session).await? };
    print(&session, &answer, &pruned, &args).await?;
    if is_refused { Err(refused(&answer, &locations)) } else { Ok(()) }
}

/// Shows what applying files would change. Ends with 1 where anything would be, as diff(1) does.
///
/// # Errors
/// As [`run`], all of which end with 2; that something would change.
pub(crate) async fn diff(session: Session, args: DiffArgs) -> anyhow::Result<()> {
    let compared = async {
        let entries = read_files(&args.files, &session.namespace)?;
        let (answer, locations) = send(&session, entries, true).await?;
        if answer.failed_count > 0 {
            return Err(refused(&answer, &locations));
        }
        let names = answer.results.iter().map(|result| result.name.as_str());
        let text = if session.printer.is_text() {
            results::text(&session, &answer, true).await
        } else {
            String::new()
        };
        session.show(&answer, names, || text)?;
        Ok(answer.created_count + answer.updated_count == 0)
    };
    match compared.await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Exit(1).into()),
        Err(error) => Err(Usage(format!("{error:#}")).into()),
    }
}

/// Asks the service for all of it.
async fn send(
    session: &Session,
    entries: Vec<FileEntry>,
    dry_run: bool,
) -> anyhow::Result<(v1::ApplyResourcesResponse, HashMap<String, Location>)> {
    // What is kept to name locations later is small: the texts are shared.
    let locations: HashMap<String, Location> =
        entries.iter().map(|entry| (entry.location.to_string(), entry.location.clone())).collect();
    let requests: Arc<[_]> = entries.into_iter().map(|entry| entry.request(dry_run)).collect();
    let plain = async {
        let requests = tokio_stream::iter(each(&requests));
        session.master().apply_resources(requests).await.map(Response::into_inner)
    };
    let answer = progress::watched_or_plain(Box::pin(watched(session, &requests)), plain).await;
    let answer = answer.map_err(|status| {
        refused_whole(&status, &locations).unwrap_or_else(|| session.failure("apply", status))
    })?;
    warnings::print(&answer, &locations);
    Ok((answer, locations))
}

/// Each of the requests, one after the other.
fn each(
    requests: &Arc<[v1::ApplyResourcesRequest]>,
) -> impl Iterator<Item = v1::ApplyResourcesRequest> + Send + 'static {
    let requests = Arc::clone(requests);
    (0..requests.len()).filter_map(move |at| requests.get(at).cloned())
}

/// Asks the service for all of it, with a line that says how far it has come.
async fn watched(
    session: &Session,
    requests: &Arc<[v1::ApplyResourcesRequest]>,
) -> Result<v1::ApplyResourcesResponse, Status> {
    let (total, sent) = (requests.len() as u64, Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&sent);
    let requests = tokio_stream::iter(each(requests).inspect(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    let mut master = session.master();
    let before = |ms| format!("sent {}", progress::text(sent.load(Ordering::Relaxed), total, ms));
    let said = |stage, text: &str| match stage {
        v1::CallStage::Write => format!("written {text}"),
        _ => format!("checked {text}"),
    };
    progress::told(master.apply_resources_with_progress(requests), before, said).await
}

/// Prints what was done, or would be.
async fn print(
    session: &Session,
    answer: &v1::ApplyResourcesResponse,
    pruned: &Pruned,
    args: &ApplyArgs,
) -> anyhow::Result<()> {
    if session.printer.is_json() {
        let mut json = to_rest_json(answer);
        if args.prune.prune {
            json["pruned"] = pruned.names().collect();
        }
        return session.printer.json(&json);
    }
    let names = answer.results.iter().map(|result| result.name.as_str()).chain(pruned.names());
    let text = if session.printer.is_text() {
        let what = if args.dry_run { "would be deleted" } else { "deleted" };
        let done = results::text(session, answer, args.dry_run).await;
        done + &pruned.text(what) + &summary(answer, args.dry_run)
    } else {
        String::new()
    };
    session.show(answer, names, || text)
}

fn name_of(entry: &FileEntry) -> &str {
    match &entry.resource {
        Resource::Policy(policy) => &policy.name,
        Resource::Schedule(schedule) => &schedule.name,
        Resource::Calendar(calendar) => &calendar.name,
        Resource::Alert(alert) => &alert.name,
    }
}

/// The resources of files, policies and calendars before schedules, else in the order of the files.
///
/// # Errors
/// Everything that is wrong with the files, one line each.
pub(crate) fn read_files(files: &[String], namespace: &str) -> anyhow::Result<Vec<FileEntry>> {
    let mut parsed = Files::new(namespace);
    for file in files {
        let (name, text) = read(file)?;
        parsed.read(&name, &text);
    }
    let (mut entries, mut wrong) = parsed.end();
    wrong.extend(given_twice(&entries));
    if !wrong.is_empty() {
        // Nothing is sent, so what the service would refuse is said here, as far as it can be known.
        wrong.extend(wrong_values(&entries, ERRORS_MAX));
        return Err(listed(format!("nothing was sent, because {} wrong:", are(wrong.len())), wrong));
    }
    if entries.is_empty() {
        let files = files.join(", ");
        return Err(anyhow!(
            "{files}: no policies, schedules, calendars or alerts in it; `tollgate init` writes an example"
        ));
    }
    entries.sort_by_key(|entry| matches!(entry.resource, Resource::Schedule(_)));
    Ok(entries)
}

fn read(file: &str) -> anyhow::Result<(Arc<str>, String)> {
    if file != "-" {
        let text = std::fs::read_to_string(file).map_err(|error| unread(file, &error))?;
        return Ok((file.into(), text));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(("<stdin>".into(), text))
}

/// Why a file cannot be read, in plain words.
fn unread(file: &str, error: &std::io::Error) -> anyhow::Error {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => {
            "it is a folder; name the files in it, each after an -f".to_owned()
        }
        std::io::ErrorKind::InvalidData => "it is no text in UTF-8".to_owned(),
        _ => plain(error),
    };
    anyhow!("cannot read {file:?}: {why}")
}

fn summary(answer: &v1::ApplyResourcesResponse, dry_run: bool) -> String {
    let v1::ApplyResourcesResponse { created_count, updated_count, unchanged_count, failed_count, .. } =
        answer;
    let mut text = format!("{created_count} created, {updated_count} updated, {unchanged_count} unchanged");
    if *failed_count > 0 {
        text.push_str(&format!(", {failed_count} refused"));
    }
    text + if dry_run { " (dry run: nothing was changed)\n" } else { "\n" }
}

/// The service's refusals, each at the line of its field where that can be found.
fn refused(answer: &v1::ApplyResourcesResponse, locations: &HashMap<String, Location>) -> anyhow::Error {
    let lines = answer.errors.iter().map(|error| match locations.get(&error.source) {
        Some(location) => placed(location, &error.name, &error.field, &error.message),
        None => joined([&error.source, &error.name, &error.field, &error.message]),
    });
    listed(format!("{} refused:", are(answer.failed_count as usize)), lines.collect())
}

/// The service's refusals of the stream as a whole, whose fields are `source: name: field`.
fn refused_whole(status: &Status, locations: &HashMap<String, Location>) -> Option<anyhow::Error> {
    let fields = status.get_details_bad_request()?.field_violations;
    let mut sources: Vec<&str> = Vec::new();
    let lines = fields.iter().map(|violation| {
        let mut parts = violation.field.splitn(3, ": ");
        let source = parts.next().unwrap_or_default();
        let at = locations.get(source).and_then(|location| Some((location, parts.next()?, parts.next()?)));
        let Some((location, name, field)) = at else {
            return ((usize::MAX, 0), format!("{}: {}", violation.field, violation.description));
        };
        let turn = sources.iter().position(|seen| *seen == source).unwrap_or_else(|| {
            sources.push(source);
            sources.len() - 1
        });
        let text = placed(location, name, field, &violation.description);
        ((turn, location.of_field(field).line()), text)
    });
    let mut lines: Vec<((usize, u64), String)> = lines.collect();
    // By resource in the order in which they were sent, and by line within each.
    lines.sort_by_key(|(at, _)| *at);
    let mut lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    if lines.is_empty() {
        return None;
    }
    let unlisted = unlisted(status).unwrap_or(0);
    let count = lines.len() + usize::try_from(unlisted).unwrap_or(usize::MAX);
    if unlisted > 0 {
        lines.push(format!("… and {unlisted} more"));
    }
    Some(listed(format!("nothing was changed, because {} refused:", are(count)), lines))
}

/// A refusal at its line, in the spelling of its file.
fn placed(location: &Location, name: &str, field: &str, message: &str) -> String {
    let place = location.of_field(field).to_string();
    joined([&place, name, &location.spelled(field), &location.spelled_text(message)])
}

fn joined(parts: [&str; 4]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

fn are(count: usize) -> String {
    if count == 1 { "1 thing is".to_owned() } else { format!("{count} things are") }
}

fn listed(head: String, lines: Vec<String>) -> anyhow::Error {
    let mut text = head;
    for line in lines.iter().take(ERRORS_MAX) {
        text.push_str(&format!("\n  {line}"));
    }
    if lines.len() > ERRORS_MAX {
        text.push_str(&format!("\n  … and {} more", lines.len() - ERRORS_MAX));
    }
    anyhow!(text)
}

#[cfg(test)]
mod tests;
