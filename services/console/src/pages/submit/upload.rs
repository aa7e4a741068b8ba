//! Takes the body of an upload apart, and sends its items on as they come.
//!
//! In: the body of a form with a file. Out: a held submission, with how its first items are read, or the first thing that is
//! wrong, with its line. Invariants: no more of a body is in memory than a few batches; it is read no faster than its items are
//! taken; one that says nothing for too long is given up. Not here: what items look like (`tollgate_items`).

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{FutureExt as _, SinkExt as _};
use http::StatusCode;
use multer::{Constraints, Field, Multipart, SizeLimit};
use tollgate_items::{Batch, Format, Item, ItemsError, Next, Options, Packing, Reader};
use tollgate_metrics::Bound;
use tollgate_proto::v1;
use tollgate_proto::v1::submit_items_request::Part;

use crate::parts::confirm;
use crate::requests::problem::{self, Problem};
use crate::requests::visit::Visit;
use crate::words::show::shortened;

/// How long a body may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Batches that have been read and not taken.
const AHEAD: usize = 2;
/// The most bytes of a field that is no file.
const FIELD_MAX_BYTES: u64 = 1_024;
/// Items that are shown.
const ROWS: usize = 10;
/// The most characters of an item that are shown.
const ROW_CHARS: usize = 300;
/// Of what is refused, so much is still read: a browser shows no answer before it has sent all.
const UNREAD_MAX_BYTES: usize = 64 * 1024 * 1024;

/// What the form says beside the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) format: String,
    pub(super) key_field: String,
    pub(super) units_field: String,
    pub(super) wrapped: bool,
}

/// An item, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: String,
    /// 0 where it does not say.
    pub(super) units: u32,
    pub(super) data: String,
}

/// What has been read, and lies in the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Read {
    pub(super) request_id: String,
    pub(super) items: u32,
    /// Items with a key.
    pub(super) keyed: u32,
    /// Items that say how many tokens their events take.
    pub(super) with_units: u32,
    /// The first ones; none where they are not known any more.
    pub(super) rows: Vec<Row>,
}

/// Takes an upload to a schedule: what its form says, and what became of its file.
pub(super) async fn take(
    visit: &Visit,
    schedule: &str,
    (body, boundary): (Body, String),
) -> (Said, Result<Read, Problem>) {
    let small = ["format", "key_field", "units_field", "wrapped"].into_iter();
    let limits = small.fold(SizeLimit::new(), |limits, name| limits.for_field(name, FIELD_MAX_BYTES));
    let constraints = Constraints::new().size_limit(limits);
    let mut form = Multipart::with_constraints(body.into_data_stream(), boundary, constraints);
    let mut said = Said::default();
    let Some(_place) = visit.console.uploads.take(visit.key_id()) else {
        visit.console.metrics.refused(Bound::Submissions);
        let title = "Too many files are read at once.".to_owned();
        let lines = vec!["Send it again when another one is done.".to_owned()];
        let busy = Problem { status: StatusCode::TOO_MANY_REQUESTS, title, lines, fields: Vec::new() };
        return (said, Err(busy));
    };
    let read = match file(&mut form, &mut said, SILENCE_MAX).await {
        Ok((field, reader)) => upload(visit, schedule, field, reader).await,
        Err(problem) => Err(problem),
    };
    if read.is_err() {
        // A body that does not end is left.
        let _left = tokio::time::timeout(SILENCE_MAX, discard(&mut form)).await;
    }
    (said, read)
}

/// The fields before the file, and the file with what reads it.
async fn file(
    form: &mut Multipart<'static>,
    said: &mut Said,
    silence_max: Duration,
) -> Result<(Field<'static>, Reader), Problem> {
    loop {
        let field = in_time(silence_max, form.next_field()).await?;
        let Some(field) = field else {
            return Err(wrong("file", "there is none, expected a file with a list"));
        };
        let name = field.name().unwrap_or_default().to_owned();
        if name != "file" {
            let text = in_time(silence_max, field.text()).await?.trim().to_owned();
            match name.as_str() {
                "format" => said.format = text,
                "key_field" => said.key_field = text,
                "units_field" => said.units_field = text,
                "wrapped" => said.wrapped = text == "true",
                _ => {}
            }
            continue;
        }
        let reader = Reader::new(options(said, field.file_name().unwrap_or_default())?);
        return Ok((field, reader.map_err(|error| of_items(&error))?));
    }
}

/// How the items are written: as is said, or as the file's name says.
fn options(said: &Said, file_name: &str) -> Result<Options, Problem> {
    let name = file_name.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    let format = match (said.format.as_str(), ending) {
        _ if file_name.is_empty() => {
            return Err(wrong("file", "none was chosen, expected a file with a list"));
        }
        ("ndjson", _) | ("", "ndjson" | "jsonl") => Format::Ndjson,
        ("json", _) | ("", "json") => Format::Json,
        ("csv", _) | ("", "csv") => Format::Csv,
        _ => return Err(wrong("format", "the file's name does not say it: choose how the list is written")),
    };
    let named = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
    let (key_field, units_field) = (named(&said.key_field), named(&said.units_field));
    let (packing, wrapped) = (Packing::Detect, said.wrapped);
    Ok(Options { packing, key_field, units_field, wrapped, ..Options::new(format) })
}

/// Sends the items of a file to the service, which holds them.
async fn upload(
    visit: &Visit,
    schedule: &str,
    file: Field<'static>,
    reader: Reader,
) -> Result<Read, Problem> {
    let (_, request_id) = confirm::once("");
    let header = v1::SubmissionHeader {
        name: schedule.to_owned(),
        request_id: request_id.clone(),
        hold: true,
        ..v1::SubmissionHeader::default()
    };
    let (sender, parts) = mpsc::channel(AHEAD);
    let mut master = visit.api.for_long().master();
    let call = master.submit_items(parts).fuse();
    let pump = pump(Part::Header(header), (file, reader), sender, SILENCE_MAX).fuse();
    let (mut call, mut pump) = (std::pin::pin!(call), std::pin::pin!(pump));
    let mut read = futures::select_biased! {
        // The service has answered before the end: it says why. Else a stream ends where its items do.
        answer = call => return Err(answer.err().map_or_else(early, Problem::from)),
        read = pump => read?,
    };
    let held = call.await?.into_inner();
    (read.request_id, read.items) = (request_id, held.received_count);
    Ok(read)
}

fn early() -> Problem {
    Problem::from(tonic::Status::unavailable("the service has answered before the end of the list"))
}

/// Reads a file to its end, and sends its items on. The channel is closed behind the last one.
async fn pump(
    header: Part,
    (mut file, mut reader): (Field<'static>, Reader),
    mut sender: mpsc::Sender<v1::SubmitItemsRequest>,
    silence_max: Duration,
) -> Result<Read, Problem> {
    let mut read = Read::default();
    let mut batch = Batch::default();
    let mut part = Some(header);
    loop {
        if let Some(part) = part.take() {
            let sent = sender.send(v1::SubmitItemsRequest { part: Some(part) }).await;
            if sent.is_err() {
                // The service has answered, or is about to.
                std::future::pending::<()>().await;
            }
        }
        match reader.advance() {
            Ok(Next::Item(item)) => {
                read.note(&item);
                part = batch.add(item).map(items);
            }
            Ok(Next::Busy) => tokio::task::yield_now().await,
            Ok(Next::Hungry) => match in_time(silence_max, file.chunk()).await? {
                Some(bytes) => reader.feed(bytes),
                None => reader.end(),
            },
            Ok(Next::End) => match batch.rest() {
                Some(rest) => part = Some(items(rest)),
                None => return Ok(read),
            },
            Err(error) => return Err(of_items(&error)),
        }
    }
}

fn items(items: Vec<Item>) -> Part {
    let items = items.into_iter().map(|Item { data, key, units }| v1::Item { data, key, units }).collect();
    Part::Items(v1::Items { items })
}

impl Read {
    fn note(&mut self, item: &Item) {
        self.keyed += u32::from(!item.key.is_empty());
        self.with_units += u32::from(item.units > 0);
        if self.rows.len() < ROWS {
            self.rows.push(Row {
                key: item.key.clone(),
                units: item.units,
                data: shortened(&item.data, ROW_CHARS),
            });
        }
    }
}

/// What comes of a body, if it comes soon enough.
async fn in_time<T>(
    silence_max: Duration,
    next: impl Future<Output = multer::Result<T>>,
) -> Result<T, Problem> {
    match tokio::time::timeout(silence_max, next).await {
        Ok(next) => next.map_err(|error| wrong("file", &format!("the upload cannot be read: {error}"))),
        Err(_) => Err(wrong("file", &format!("nothing of it has come for {} s", silence_max.as_secs_f64()))),
    }
}

async fn discard(form: &mut Multipart<'static>) {
    let mut left = UNREAD_MAX_BYTES;
    while let Ok(Some(mut field)) = form.next_field().await {
        while let Ok(Some(bytes)) = field.chunk().await {
            let Some(rest) = left.checked_sub(Bytes::len(&bytes)) else { return };
            left = rest;
        }
    }
}

fn wrong(field: &str, said: &str) -> Problem {
    let field = problem::Field { name: field.to_owned(), message: said.to_owned() };
    Problem { title: "Nothing was made.".to_owned(), ..Problem::of_fields(vec![field]) }
}

fn of_items(error: &ItemsError) -> Problem {
    let place = [error.place.as_str(), error.field.as_str()].into_iter().filter(|part| !part.is_empty());
    wrong(&place.collect::<Vec<_>>().join(": "), &error.said)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
