//! Fetches a list once, page by page, and writes its items into the pages of a run.
//!
//! In: a run, and where its list is. Out: how many items have been written, all of them. Invariants: what an earlier attempt left
//! is removed first; nothing is written but under the lease; no more is in memory than the pages that are written next, and of an
//! answer that is one object that object.

use std::time::Duration;

use tollgate_core::items::{ItemPage, Pager};
use tollgate_core::model::{EVENTS_MAX, HttpItems, ItemsFrom, Parent, Policy, Run, RunSpec};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_secrets::item_field;
use tollgate_store::StoreError;
use tollgate_store::handle::Lease;
use tollgate_store::items::ItemRun;
use tollgate_store::listing::Written;
use tollgate_target::{ListClient, NoPage, Page, PageAsk, next_url, with_parameter};

use super::read::{PageReader, format};
use crate::Shared;

/// The most pages of a list.
const PAGES_MAX: u32 = 10_000;
/// The most bytes of a list, as they come.
const BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// So many bytes of items are written at once.
const WRITTEN_BYTES: usize = 1024 * 1024;
/// The longest that a list may take as a whole.
const TIME_MAX: Duration = Duration::from_secs(30 * 60);

/// Why a fetch came to no end.
pub(super) enum Broken {
    /// It is told at the run.
    NoPage(NoPage),
    /// The run is another process's by now, or waits no more.
    ElsewhereNow,
    /// The store did not take it.
    Store(StoreError),
}

impl From<NoPage> for Broken {
    fn from(no_page: NoPage) -> Self {
        Self::NoPage(no_page)
    }
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What has been fetched, all of it.
pub(super) struct Fetched {
    pub(super) events: u32,
    /// The most units that an item says.
    pub(super) units_max: u32,
}

/// Where items of a run go.
struct Writer<'w> {
    shared: &'w Shared,
    lease: &'w Lease,
    run: &'w Run,
    limits: PolicyLimits,
    pager: Pager,
    /// Whole pages that are not written.
    pages: Vec<ItemPage>,
    bytes: usize,
}

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
    let writer = Writer { shared, lease, run, limits, pager: Pager::default(), pages: Vec::new(), bytes: 0 };
    let all = Box::pin(pages(client, &opened.http, writer));
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

impl Writer<'_> {
    /// Takes the items that have come.
    async fn take(&mut self, reader: &mut PageReader) -> Result<(), Broken> {
        while let Some(item) = reader.item().await? {
            if self.pager.items() >= EVENTS_MAX {
                return Err(
                    NoPage::ever(format!("it has more than {EVENTS_MAX} items, the most of a list")).into()
                );
            }
            if let Some((units, expected)) = self.limits.exceeded(&item.key, item.units) {
                let at = self.pager.items() + 1;
                return Err(
                    NoPage::yet(format!("item {at} takes {units} tokens, expected {expected}")).into()
                );
            }
            let whole = self.pager.push(&item);
            self.page(whole).await?;
        }
        Ok(())
    }

    /// All items have come, and are durable.
    async fn finish(mut self) -> Result<Fetched, Broken> {
        if self.pager.items() == 0 {
            return Err(NoPage::yet("it has no items").into());
        }
        let last = self.pager.finish();
        self.page(last).await?;
        self.write().await?;
        Ok(Fetched { events: self.pager.items(), units_max: self.pager.units_max() })
    }

    async fn page(&mut self, whole: Option<ItemPage>) -> Result<(), Broken> {
        let Some(page) = whole else { return Ok(()) };
        self.bytes += page.body.len();
        self.pages.push(page);
        if self.bytes >= WRITTEN_BYTES { self.write().await } else { Ok(()) }
    }

    async fn write(&mut self) -> Result<(), Broken> {
        if self.pages.is_empty() {
            return Ok(());
        }
        let (mut pages, keys) = (std::mem::take(&mut self.pages), &self.shared.options.keys);
        self.bytes = 0;
        for page in pages.iter_mut().filter(|_| !keys.is_empty()) {
            let field = item_field(self.run.id.0, Some(page.first_index));
            let sealed = keys.seal(self.run.schedule_uid, &field, &page.body);
            page.body =
                sealed.map_err(|error| NoPage::yet(format!("its items cannot be sealed: {error}")))?;
        }
        let _turn = self.shared.lists.turn_to_write().await;
        tollgate_fault_points::pass("handler.list.pages");
        written(self.shared.store.add_list_pages(self.lease, self.run, pages).await?)
    }
}

/// What the policy of a run and those above it let one event take.
async fn limits_of(shared: &Shared, spec: &RunSpec) -> Result<PolicyLimits, StoreError> {
    let mut policies: Vec<Policy> = Vec::new();
    let mut next = spec.policy_id.clone().map(|id| (spec.namespace.clone(), id));
    while let Some((namespace, id)) = next.filter(|_| policies.len() < Parent::LEVELS_MAX) {
        let Some(policy) = shared.people.policy_by_name(&namespace, &id).await? else { break };
        next = policy.parent.as_ref().map(|parent| (parent.namespace.clone(), parent.id.clone()));
        policies.push(policy);
    }
    let limits = policies.split_first().map(|(own, above)| PolicyLimits::of(own, above));
    Ok(limits.unwrap_or_default().with_defaults(spec.key(), spec.units))
}

fn written(written: Written) -> Result<(), Broken> {
    match written {
        Written::Done => Ok(()),
        Written::NotWaiting | Written::ElsewhereNow => Err(Broken::ElsewhereNow),
    }
}
