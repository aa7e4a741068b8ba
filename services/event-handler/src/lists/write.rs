//! Writes the items of a run into its pages, as they come.
//!
//! In: items, one after the other. Out: how many have been written, all of them. Invariants: nothing is written but under the
//! lease; no more is in memory than the pages that are written next. Not here: where items come from.

use tollgate_core::items::{ItemPage, Pager};
use tollgate_core::model::{EVENTS_MAX, Parent, Policy, Run, RunSpec};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_secrets::item_field;
use tollgate_store::StoreError;
use tollgate_store::handle::Lease;
use tollgate_store::listing::Written;
use tollgate_target::NoPage;

use super::read::PageReader;
use crate::Shared;

/// So many bytes of items are written at once.
const WRITTEN_BYTES: usize = 1024 * 1024;

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
pub(super) struct Writer<'w> {
    pub(super) shared: &'w Shared,
    lease: &'w Lease,
    pub(super) run: &'w Run,
    limits: PolicyLimits,
    pager: Pager,
    /// Whole pages that are not written.
    pages: Vec<ItemPage>,
    bytes: usize,
}

impl<'w> Writer<'w> {
    /// Of a run whose policies let an event take so much.
    pub(super) fn new(shared: &'w Shared, (lease, run): (&'w Lease, &'w Run), limits: PolicyLimits) -> Self {
        Self { shared, lease, run, limits, pager: Pager::default(), pages: Vec::new(), bytes: 0 }
    }

    /// Takes the items that have come.
    pub(super) async fn take(&mut self, reader: &mut PageReader) -> Result<(), Broken> {
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
    pub(super) async fn finish(mut self) -> Result<Fetched, Broken> {
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
pub(super) async fn limits_of(shared: &Shared, spec: &RunSpec) -> Result<PolicyLimits, StoreError> {
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

pub(super) fn written(written: Written) -> Result<(), Broken> {
    match written {
        Written::Done => Ok(()),
        Written::NotWaiting | Written::ElsewhereNow => Err(Broken::ElsewhereNow),
    }
}
