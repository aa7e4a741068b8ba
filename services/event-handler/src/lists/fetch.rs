//! Fetches a list once, page by page, and writes its items into the pages of a run.
//!
//! In: a run, and where its list is. Out: how many items have been written, all of them. Invariants: what an earlier attempt left
//! is removed first; nothing is written but under the lease; no more is in memory than the pages that are written next, and of an
//! answer that is one object that object.

use std::time::Duration;

use tollgate_core::model::{HttpItems, ItemsFrom, Run, RunSpec};
use tollgate_secrets::item_field;
use tollgate_store::handle::Lease;
use tollgate_store::items::ItemRun;
use tollgate_target::{ListClient, NoPage, Page, PageAsk, next_url, with_parameter};

use super::read::{PageReader, format};
use super::results;
use super::write::{Broken, Fetched, Writer, limits_of, written};
use crate::Shared;

/// The most pages of a list.
const PAGES_MAX: u32 = 10_000;
/// The most bytes of a list, as they come.
const BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// The longest that a list may take as a whole.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Fetches the list of a run.
pub(super) async fn fetch(
    shared: &Shared,
    client: &ListClient,
    (lease, run): (&Lease, &Run),
    spec: &RunSpec,
    from: &ItemsFrom,
) -> Result<Fetched, Broken> {
    let keys = &shared.options.keys;
    let unopened = |error| NoPage::yet(format!("its settings cannot be opened: {error}"));
    let opened = keys.open_list(spec.schedule_uid, from).map_err(unopened)?;
    let payload = keys.open(spec.schedule_uid, "payload", &spec.payload.json).map_err(unopened)?;
    let payload = match payload.is_empty() {
        true => payload,
        false => keys.seal(spec.schedule_uid, &item_field(run.id.0, None), &payload).map_err(unopened)?,
    };
    let carries = ItemRun { schedule_uid: spec.schedule_uid, payload };
    written(shared.store.begin_list(lease, run, carries, shared.clock.wall_us()).await?)?;
    let limits = limits_of(shared, spec).await?;
    let writer = Writer::new(shared, (lease, run), limits);
    let all = async {
        match run.predecessor.as_deref().filter(|before| before.items.is_some()) {
            Some(before) => results::items(before, &opened.http, writer).await,
            None => pages(client, &opened.http, writer).await,
        }
    };
    let all = Box::pin(all);
    tokio::time::timeout(TIME_MAX, all).await.unwrap_or_else(|_| {
        let minutes = TIME_MAX.as_secs() / 60;
        Err(NoPage::yet(format!("it takes longer than {minutes} min, the most of a list")).into())
    })
}

async fn pages(client: &ListClient, list: &HttpItems, mut writer: Writer<'_>) -> Result<Fetched, Broken> {
    let deadline = Duration::from_millis(u64::try_from(list.deadline_ms).unwrap_or_default());
    let (mut url, mut bytes) = (list.url.clone(), 0);
    for number in 1.. {
        if number > PAGES_MAX {
            return Err(
                NoPage::ever(format!("it has more than {PAGES_MAX} pages, the most of a list")).into()
            );
        }
        let ask = PageAsk { namespace: &writer.run.namespace, url: &url, headers: &list.headers, deadline };
        let of_page = |no_page: NoPage| match number {
            1 => no_page,
            _ => NoPage { message: format!("page {number}: {}", no_page.message), ..no_page },
        };
        let page = client.page(ask).await.map_err(of_page)?;
        let next = page_items(page, list, &mut writer, &mut bytes).await;
        let next = next.map_err(|broken| match broken {
            Broken::NoPage(no_page) => of_page(no_page).into(),
            other => other,
        })?;
        let Some(next) = next else { break };
        let next = match (&next, &*list.next_parameter) {
            (Goes::On(value), name) if !name.is_empty() => with_parameter(&list.url, name, value),
            (Goes::On(at) | Goes::Linked(at), _) => next_url(&url, at),
        };
        let next = next.map_err(NoPage::ever)?;
        if next == url {
            return Err(NoPage::yet("the next page is the same one again").into());
        }
        url = next;
    }
    writer.finish().await
}

/// What says where the next page is.
enum Goes {
    /// The member that the schedule names.
    On(String),
    /// The header `Link`.
    Linked(String),
}

/// Takes the items of a page; what says where the next one is.
async fn page_items(
    mut page: Page,
    list: &HttpItems,
    writer: &mut Writer<'_>,
    bytes: &mut u64,
) -> Result<Option<Goes>, Broken> {
    let mut reader = PageReader::new(list, format(list, page.content_type())?)?;
    while let Some(chunk) = page.chunk().await? {
        *bytes += chunk.len() as u64;
        if *bytes > BYTES_MAX {
            return Err(
                NoPage::ever(format!("it has more than {BYTES_MAX} bytes, the most of a list")).into()
            );
        }
        reader.feed(chunk)?;
        writer.take(&mut reader).await?;
    }
    reader.end(list)?;
    writer.take(&mut reader).await?;
    Ok(reader.next().map(Goes::On).or_else(|| page.next_link().map(Goes::Linked)))
}
