//! `tollgate submit`: makes one run of a schedule, each of whose events carries an item of a file.
//!
//! In: a file or standard input. Out: the run. Invariants: nothing is sent unless every item of the file can be read; memory does
//! not grow with the file; the same items, submitted again, go on where they were broken off and make no second run. Not here:
//! what items look like (`tollgate_items`).

mod check;
mod send;
mod source;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use prost_types::{Timestamp, Value};
use rand::Rng as _;
use serde_json::json;
use tollgate_proto::convert::payload;
use tollgate_proto::v1;
use tonic::Code;

use super::when::{exact, moment};
use super::{Session, complete, names, rows};
use crate::exit::{Exit, HAD_BEEN};
use crate::usage::{Usage, plain};
use check::Checked;
use source::Source;

/// How items are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A JSON value a line.
    #[value(alias = "jsonl")]
    Ndjson,
    /// One JSON array.
    Json,
    /// A header row, and then an item a row.
    Csv,
}

/// Arguments of `submit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SubmitArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE", add = ArgValueCompleter::new(complete::named))]
    name: String,

    /// The file with the items; - means standard input, which is kept in a temporary file until it is sent
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: String,

    /// How the items are written [default: as the file's name ends: .ndjson, .jsonl, .json or .csv, each also with .gz]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,

    /// Refuse a file that is not packed as gzip; one that is, is known by its beginning
    #[arg(long)]
    gzip: bool,

    /// The member of each item, or the column, whose text or number is the event's key
    #[arg(long, value_name = "NAME")]
    key_field: Option<String>,

    /// The member of each item, or the column, that says how many tokens the event takes, 1 to 1000 [default: as the
    /// schedule says]
    #[arg(long, value_name = "NAME")]
    units_field: Option<String>,

    /// Each item is an object of "data", of "key" and "units" where it has them, and of nothing else
    #[arg(long, conflicts_with_all = ["key_field", "units_field"])]
    wrapped: bool,

    /// Names the submission, so that it makes one run however often it is repeated [default: made of all that is submitted]
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,

    /// Make another run of items that have been submitted before
    #[arg(long, conflicts_with = "request_id")]
    again: bool,

    /// When the run falls due, such as 2026-12-24T18:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    launch_time: Option<Timestamp>,

    /// The priority, from 0 (last) to 9 (first) [default: the schedule's]
    #[arg(long, value_name = "N")]
    priority: Option<u32>,

    /// What all events carry under the data of their items: JSON, or @ and the file that has it
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,

    /// Read and check the items, say how many there are, and send none
    #[arg(long)]
    dry_run: bool,
}

/// Submits items.
///
/// # Errors
/// What is wrong with the file, and where; what the service says; those of writing; [`Exit`] where the same items had been
/// submitted before.
pub(crate) async fn run(session: Session, args: SubmitArgs) -> anyhow::Result<()> {
    let name = names::schedule(&session.namespace, &args.name);
    let payload = args.payload.as_deref().map(read_payload).transpose()?;
    let source = Source::open(&args)?;
    // A name that is written wrong is told before gigabytes are read; where the key may not read, afterwards.
    let asked = session.master().get_schedule(v1::GetScheduleRequest { name: name.clone() }).await;
    if let Err(status) = asked
        && status.code() != Code::PermissionDenied
    {
        return Err(session.failure(format!("read schedule {name}"), status));
    }
    let checked = check::all(&source)?;
    if args.dry_run {
        return show_checked(&session, &checked);
    }
    let mut header = v1::SubmissionHeader {
        name,
        launch_time: args.launch_time,
        priority: args.priority,
        payload,
        ..v1::SubmissionHeader::default()
    };
    let derived = checked.request_id(&header);
    header.request_id = match (&args.request_id, args.again) {
        (Some(given), _) => given.clone(),
        (None, false) => derived,
        (None, true) => format!("{derived}-{:08x}", rand::rng().random::<u32>()),
    };
    let other = if args.again { "; to go on after an interruption: --request-id and that name" } else { "" };
    session.note(&format!("submitting {} items as {}{other}", checked.count, header.request_id));
    // What is named by its content is the same content; under a given name there may be another.
    let is_named_by_content = args.request_id.is_none();
    let sent = send::all(&session, &source, &checked, header, is_named_by_content).await?;
    let run = sent.submission.run.ok_or_else(|| anyhow!("the service has the items, and names no run"))?;
    session.show(&run, [run.name.as_str()], || rows::runs(session.view(), std::slice::from_ref(&run)))?;
    if sent.had_been {
        session.note(&format!(
            "these items had been submitted before, at {}: that is their run, and no other was made; --again makes another",
            exact(sent.submission.create_time.as_ref())
        ));
        return Err(Exit(HAD_BEEN).into());
    }
    Ok(())
}

/// JSON, or the file behind an @ that has it.
fn read_payload(given: &str) -> anyhow::Result<Value> {
    let text = match given.strip_prefix('@') {
        None => given.to_owned(),
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Usage(format!("--payload: {file:?} cannot be read: {}", plain(&error))))?,
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| Usage(format!("--payload: expected JSON: {error}")))?;
    Ok(payload::from_json(&value))
}

/// What has been found in a file, without sending any of it.
fn show_checked(session: &Session, checked: &Checked) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    if session.printer.is_json() {
        return session.printer.json(&json!({
            "items": checked.count,
            "bytes": checked.bytes,
            "keyedItems": checked.keyed,
            "unitsMax": checked.units_max,
            "keys": checked.keys(),
        }));
    }
    let (count, bytes, keyed) = (checked.count, checked.bytes, checked.keyed);
    let keys = match (keyed, checked.keys()) {
        (0, _) => "no keys".to_owned(),
        (_, Some(keys)) => format!("{keyed} with a key, {keys} different ones"),
        (_, None) => format!("{keyed} with a key, more than {} different ones", check::KEYS_MAX),
    };
    let units = match checked.units_max {
        0 => String::new(),
        most => format!(", {most} units at most"),
    };
    session
        .printer
        .line(&format!("{count} items, {bytes} bytes of data, {keys}{units} (dry run: nothing was sent)"))
}

/// Adds the name of what was being read to an error.
fn of_file<T>(name: &str, result: Result<T, tollgate_items::ItemsError>) -> anyhow::Result<T> {
    result.map_err(|error| anyhow!("{name}: {error}")).context("no run was made")
}
