//! Reads what events carry of their own, ahead of their deliveries: out of the pages of submitted runs, and out of specs that
//! have items.
//!
//! In: a delivery that is about to begin, or a question of people. Out: its item. Invariants: memory is bounded, for all and for
//! a namespace, however large runs are; a page is read once for all events in it that start soon, and the next one before it is
//! needed; deliveries that wait for one wait for no other run's; what cannot be read is not sent, and counts as no failure. What
//! people ask for is not kept. Not here: how items are put together ([`tollgate_core::items`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate_core::items::{ItemLine, ItemPage, ReadPage};
use tollgate_core::model::{DeliveryItem, Run, RunId, RunSpec, Sent, Target};
use tollgate_secrets::{ITEMS, Keys};
use tollgate_service::room::Rooms;
use tollgate_store::StoreError;
use tollgate_store::items::ItemStore;
use tollgate_target::Leave;
use uuid::Uuid;

/// Pages that are read from the store at once; of one run, one.
const READS_MAX: usize = 2;

/// Where a page lies: its run, and the index of its first item.
type Place = (RunId, u32);

/// What is read ahead; cheap to clone.
#[derive(Clone)]
pub(crate) struct Items(Arc<Inner>);

struct Inner {
    store: Arc<dyn ItemStore>,
    keys: Arc<Keys>,
    bytes_max: usize,
    kept: Mutex<Kept>,
    reads: Rooms<RunId>,
}

impl fmt::Debug for Items {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").field("bytes_max", &self.0.bytes_max).finish_non_exhaustive()
    }
}

/// Pages that are at hand.
#[derive(Debug, Default)]
struct Kept {
    pages: BTreeMap<Place, Arc<Page>>,
    /// Of each namespace, in the order in which they were read, and their bytes.
    namespaces: HashMap<Arc<str>, (VecDeque<Place>, usize)>,
    bytes: usize,
    /// Pages that are being read before they are needed.
    ahead: BTreeSet<Place>,
}

/// A page, and what all events of its run carry.
#[derive(Clone, Debug)]
struct Page {
    items: ReadPage,
    payload: Arc<str>,
}

impl Page {
    fn item(&self, index: u32) -> Option<DeliveryItem> {
        let ItemLine { key, data, .. } = self.items.item(index)?;
        Some(DeliveryItem { key: key.to_owned(), payload: self.payload.clone(), data: data.to_owned() })
    }

    /// What people see of an item.
    fn shown(&self, index: u32) -> Option<ShownItem> {
        let ItemLine { key, units, data } = self.items.item(index)?;
        Some(ShownItem { key: key.to_owned(), units, data: data.to_owned() })
    }

    fn bytes(&self) -> usize {
        self.items.bytes() + self.payload.len()
    }
}

/// What people see of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownItem {
    /// May be empty.
    pub(crate) key: String,
    /// 0 where it does not say them.
    pub(crate) units: u32,
    /// JSON.
    pub(crate) data: String,
}

/// Which event it is about.
#[derive(Clone, Debug)]
pub(crate) struct ItemRef {
    pub(crate) namespace: Arc<str>,
    pub(crate) shard: u16,
    pub(crate) run: RunId,
    pub(crate) index: u32,
    /// What has its item, where that is not the store.
    pub(crate) spec: Option<Arc<RunSpec>>,
}

/// Why an item cannot be had, for people.
#[derive(Clone, Debug)]
pub(crate) enum Unread {
    /// The store did not give it: it may do so later.
    Yet(String),
    /// What is stored cannot be read.
    Ever(String),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Yet(why) | Self::Ever(why)) = self;
        f.write_str(why)
    }
}

impl Items {
    /// At most so many bytes are kept, a quarter of it for one namespace.
    pub(crate) fn new(store: Arc<dyn ItemStore>, keys: Arc<Keys>, bytes_max: usize) -> Self {
        let (kept, reads) = (Mutex::default(), Rooms::new(READS_MAX, 1));
        Self(Arc::new(Inner { store, keys, bytes_max, kept, reads }))
    }

    /// The item of a delivery that is about to begin.
    ///
    /// # Errors
    /// That it does not leave, and why.
    pub(crate) async fn of_delivery(
        &self,
        of: &ItemRef,
        (target, leave): (&Target, &Leave),
    ) -> Result<Box<DeliveryItem>, Sent> {
        // Most are: nobody sets a timer for those.
        if let Some(item) = self.at_hand(of) {
            return Ok(Box::new(item));
        }
        let deadline = Duration::from_millis(u64::try_from(target.deadline_ms()).unwrap_or_default());
        let message = match leave.in_turn(deadline, self.item(of)).await {
            Some(Ok(item)) => return Ok(Box::new(item)),
            Some(Err(why)) => format!("not sent: {why}"),
            None => "not sent: the store did not give its item in time".to_owned(),
        };
        Err(Sent::NotSent { message, retry_after_ms: None })
    }

    /// An item whose page has been read.
    fn at_hand(&self, of: &ItemRef) -> Option<DeliveryItem> {
        let page = self.kept().at(of.run, of.index)?;
        self.read_ahead(of, page.items.range());
        page.item(of.index)
    }

    async fn item(&self, of: &ItemRef) -> Result<DeliveryItem, Unread> {
        let kept = self.kept().at(of.run, of.index);
        let page = if let Some(page) = kept { page } else { self.read(of).await? };
        self.read_ahead(of, page.items.range());
        page.item(of.index).ok_or_else(|| missing(of.index))
    }

    /// The page that holds an event's item; one of those that wait for it reads it.
    async fn read(&self, of: &ItemRef) -> Result<Arc<Page>, Unread> {
        if let Some(spec) = &of.spec {
            let page = Arc::new(page_of_spec(spec, &self.0.keys)?);
            self.kept().keep(of, &page, self.0.bytes_max);
            return Ok(page);
        }
        let turn = self.0.reads.take(of.run, 1).await;
        let payload = {
            let kept = self.kept();
            if let Some(page) = kept.at(of.run, of.index) {
                return Ok(page);
            }
            kept.payload(of.run)
        };
        // It comes to its end also where nobody waits any more: the next delivery needs it, too.
        let (items, of) = (self.clone(), of.clone());
        let read = tokio::spawn(async move {
            let Inner { store, keys, bytes_max, .. } = &*items.0;
            let page = read_page(store.as_ref(), keys, (of.shard, of.run), of.index, payload).await?;
            let page = Arc::new(page);
            items.kept().keep(&of, &page, *bytes_max);
            drop(turn);
            Ok(page)
        });
        read.await.unwrap_or_else(|error| Err(Unread::Yet(format!("its item cannot be read: {error}"))))
    }

    /// Where an event in the second half of its page starts, the next page is soon needed.
    fn read_ahead(&self, of: &ItemRef, range: std::ops::Range<u32>) {
        let is_early = of.index - range.start < (range.end - range.start) / 2;
        if of.spec.is_some() || is_early || !self.kept().begins_ahead((of.run, range.end)) {
            return;
        }
        let next = ItemRef { index: range.end, ..of.clone() };
        let items = self.clone();
        tokio::spawn(async move {
            // There may be none; whatever goes wrong is told to the delivery that needs it.
            let _page = items.read(&next).await;
            items.kept().ended_ahead((next.run, next.index));
        });
    }

    /// The keys and the units of the items of a page, the one that holds this index, and the index of its first item.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub(crate) async fn loads_of_page(&self, of: &ItemRef) -> Result<(u32, Vec<(String, u32)>), Unread> {
        let kept = self.kept().at(of.run, of.index);
        let page = if let Some(page) = kept { page } else { self.read(of).await? };
        let items = page.items.range().filter_map(|index| page.items.item(index));
        let loads = items.map(|ItemLine { key, units, .. }| (key.to_owned(), units));
        Ok((page.items.range().start, loads.collect()))
    }

    /// The items of some events of a run, by ascending index, for people. `spec`: what has them, where that is not the store.
    ///
    /// # Errors
    /// Why one cannot be had, for people.
    pub(crate) async fn look_up(
        &self,
        store: &dyn ItemStore,
        (run, spec): (&Run, Option<&RunSpec>),
        indexes: impl Iterator<Item = u32>,
    ) -> Result<Vec<ShownItem>, String> {
        let page_of_spec = |spec| page_of_spec(spec, &self.0.keys).map_err(|error| error.to_string());
        let mut page = spec.map(page_of_spec).transpose()?;
        let mut items = Vec::new();
        for index in indexes {
            if page.as_ref().is_none_or(|page| !page.items.range().contains(&index)) {
                if spec.is_some() {
                    return Err(missing(index).to_string());
                }
                let payload = page.take().map(|page| page.payload);
                let at = (run.shard, run.id);
                let read = read_page(store, &self.0.keys, at, index, payload).await;
                page = Some(read.map_err(|error| error.to_string())?);
            }
            items.extend(page.as_ref().and_then(|page| page.shown(index)));
        }
        Ok(items)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn at(&self, run: RunId, index: u32) -> Option<Arc<Page>> {
        let (_, page) = self.pages.range((run, 0)..=(run, index)).next_back()?;
        page.items.range().contains(&index).then(|| Arc::clone(page))
    }

    fn payload(&self, run: RunId) -> Option<Arc<str>> {
        let (_, page) = self.pages.range((run, 0)..=(run, u32::MAX)).next()?;
        Some(page.payload.clone())
    }

    /// Whether somebody is to read a page that nobody reads, and nobody has.
    fn begins_ahead(&mut self, place: Place) -> bool {
        !self.pages.contains_key(&place) && self.ahead.insert(place)
    }

    fn ended_ahead(&mut self, place: Place) {
        self.ahead.remove(&place);
    }

    /// Keeps a page. The oldest of its namespace make room for it, and where there is too much of all, the oldest of whoever has
    /// most.
    fn keep(&mut self, of: &ItemRef, page: &Arc<Page>, bytes_max: usize) {
        let place = (of.run, page.items.range().start);
        if self.pages.insert(place, Arc::clone(page)).is_some() {
            return;
        }
        let (places, bytes) = self.namespaces.entry(of.namespace.clone()).or_default();
        places.push_back(place);
        *bytes += page.bytes();
        self.bytes += page.bytes();
        while self
            .namespaces
            .get(&of.namespace)
            .is_some_and(|(places, bytes)| *bytes > bytes_max / 4 && places.len() > 1)
        {
            self.drop_oldest(&of.namespace.clone());
        }
        while self.bytes > bytes_max {
            let most = self.namespaces.iter().max_by_key(|(_, (_, bytes))| *bytes);
            let Some(namespace) = most.map(|(namespace, _)| namespace.clone()) else { return };
            self.drop_oldest(&namespace);
        }
    }

    fn drop_oldest(&mut self, namespace: &Arc<str>) {
        let Some((places, bytes)) = self.namespaces.get_mut(namespace) else { return };
        if let Some(page) = places.pop_front().and_then(|place| self.pages.remove(&place)) {
            *bytes -= page.bytes();
            self.bytes -= page.bytes();
        }
        if places.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

async fn read_page(
    store: &dyn ItemStore,
    keys: &Keys,
    (shard, run): (u16, RunId),
    index: u32,
    payload: Option<Arc<str>>,
) -> Result<Page, Unread> {
    let failed = |error| {
        let message = format!("its item cannot be read: {error}");
        if matches!(error, StoreError::Corrupt { .. }) { Unread::Ever(message) } else { Unread::Yet(message) }
    };
    let of_run = store.item_run(shard, run).await.map_err(failed)?.ok_or_else(|| missing(index))?;
    let open = |first: Option<u32>, text: &str| {
        let schedule: Uuid = of_run.schedule_uid;
        let field = tollgate_secrets::item_field(run.0, first);
        let opened = keys.open(schedule, &field, text);
        opened.map_err(|error| Unread::Ever(format!("its item cannot be opened: {error}")))
    };
    let payload = match payload {
        Some(payload) => payload,
        None if of_run.payload.is_empty() => Arc::from(""),
        None => Arc::from(open(None, &of_run.payload)?),
    };
    let stored = store.item_page(shard, run, index).await.map_err(failed)?.ok_or_else(|| missing(index))?;
    let body = open(Some(stored.first_index), &stored.body)?;
    let items = ReadPage::of(ItemPage { body, ..stored });
    let items = items.map_err(|error| Unread::Ever(format!("its item cannot be read: {error}")))?;
    Ok(Page { items, payload })
}

/// The items of a spec as one page. What lies under them is in the spec as well.
fn page_of_spec(spec: &RunSpec, keys: &Keys) -> Result<Page, Unread> {
    let body = keys.open(spec.schedule_uid, ITEMS, &spec.payload.items);
    let body = body.map_err(|error| Unread::Ever(format!("its item cannot be opened: {error}")))?;
    let events = body.bytes().filter(|byte| *byte == b'\n').count();
    let events = u32::try_from(events).unwrap_or(u32::MAX);
    let items = ReadPage::of(ItemPage { first_index: 0, events, keys: Vec::new(), body });
    let items = items.map_err(|error| Unread::Ever(format!("its item cannot be read: {error}")))?;
    Ok(Page { items, payload: Arc::from("") })
}

fn missing(index: u32) -> Unread {
    Unread::Ever(format!("its item cannot be read: there is no item {index} of its run"))
}

#[cfg(test)]
mod tests;
