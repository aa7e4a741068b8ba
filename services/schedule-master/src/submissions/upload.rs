//! Items on their way into pages.
//!
//! Invariants: a page is written once, in its place; what the service has already is compared, and not written; of two streams
//! of one submission one goes on.

use serde::de::IgnoredAny;
use tollgate_core::items::{ITEM_MAX_BYTES, Item, ItemPage, ItemsDigest, Pager, in_one_line};
use tollgate_core::model::{EVENTS_MAX, Schedule};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_proto::convert::items;
use tollgate_proto::{FieldError, v1};
use tollgate_secrets::{ENVELOPE, is_sealed, item_field};
use tollgate_service::status::status;
use tollgate_store::items::StoredSubmission;
use tonic::Status;

use super::asked::differs;
use crate::ScheduleMaster;

/// So many bytes of pages are written at once.
const WRITTEN_BYTES: usize = 1024 * 1024;
/// After so many items the quota is asked.
const ASK_EVERY: u32 = 1_000_000;

/// A stream of items under way.
pub(super) struct Upload<'m> {
    master: &'m ScheduleMaster,
    namespace: &'m str,
    /// As it is stored.
    stored: StoredSubmission,
    pager: Pager,
    /// Whole pages that are not stored, with the digest after the last of them.
    pages: Vec<ItemPage>,
    bytes: usize,
    to: (u32, ItemsDigest, u32),
    limits: PolicyLimits,
}

impl<'m> Upload<'m> {
    /// Goes on after `resume_from` items.
    pub(super) fn new(
        master: &'m ScheduleMaster,
        schedule: &'m Schedule,
        stored: StoredSubmission,
        resume_from: u32,
        limits: PolicyLimits,
    ) -> Result<Self, Status> {
        let pager = match resume_from {
            0 => Pager::default(),
            from if from == stored.items => Pager::resume(from, stored.digest),
            from => {
                let expected = format!("0, or {}: so many items the service has", stored.items);
                return Err(FieldError::new("header.resume_from", from, expected).into());
            }
        };
        let to = (stored.items, stored.digest, stored.units_max);
        let (namespace, pages) = (schedule.namespace.as_str(), Vec::new());
        Ok(Self { master, namespace, stored, pager, pages, bytes: 0, to, limits })
    }

    /// Takes items in.
    pub(super) async fn take(&mut self, items: v1::Items) -> Result<(), Status> {
        if items.items.is_empty() {
            return Err(FieldError::new("items", "", "at least one item").into());
        }
        for item in items.items {
            let number = self.pager.items();
            if number >= EVENTS_MAX {
                return Err(FieldError::new("items", "more than 10000000", "at most 10,000,000 items").into());
            }
            if number > 0 && number.is_multiple_of(ASK_EVERY) {
                self.master.admit_events(self.namespace, number.into()).await?;
            }
            let item = checked(item, number)?;
            if let Some((units, expected)) = self.limits.exceeded(&item.key, item.units) {
                return Err(FieldError::new(format!("items[{number}].units"), units, expected).into());
            }
            let whole = self.pager.push(&item);
            self.page(whole).await?;
        }
        Ok(())
    }

    /// All items have come. The submission, all of whose items are durable.
    pub(super) async fn finish(mut self) -> Result<StoredSubmission, Status> {
        if self.pager.items() == 0 {
            return Err(FieldError::new("items", "0", "1 to 10,000,000 items").into());
        }
        let last = self.pager.finish();
        self.page(last).await?;
        self.write().await?;
        let come = (self.pager.items(), self.pager.digest());
        if come != (self.stored.items, self.stored.digest) {
            let difference = format!("it had {} items, and has {}", self.stored.items, come.0);
            return Err(differs(&self.stored.request_id, &difference));
        }
        Ok(self.stored)
    }

    /// A page is whole.
    async fn page(&mut self, whole: Option<ItemPage>) -> Result<(), Status> {
        let Some(page) = whole else { return Ok(()) };
        let end = page.first_index + page.events;
        if page.first_index < self.stored.items {
            // The last page that is stored may have been the last of all.
            let is_known = end < self.stored.items
                || (end == self.stored.items && self.pager.digest() == self.stored.digest);
            if is_known {
                return Ok(());
            }
            let difference = format!("its first {} items are not the same", self.stored.items);
            return Err(differs(&self.stored.request_id, &difference));
        }
        if self.stored.made_us.is_some() {
            let difference = format!("it had {} items, and has more", self.stored.items);
            return Err(differs(&self.stored.request_id, &difference));
        }
        self.bytes += page.body.len();
        self.pages.push(page);
        self.to = (end, self.pager.digest(), self.stored.units_max.max(self.pager.units_max()));
        if self.bytes >= WRITTEN_BYTES { self.write().await } else { Ok(()) }
    }

    /// Writes the pages that are whole. Where its caller leaves, it is carried to its end all the same.
    async fn write(&mut self) -> Result<(), Status> {
        if self.pages.is_empty() {
            return Ok(());
        }
        let (mut pages, to) = (std::mem::take(&mut self.pages), self.to);
        self.bytes = 0;
        let (master, seen, namespace) = (self.master.clone(), self.stored.clone(), self.namespace.to_owned());
        let written = tokio::spawn(async move {
            let keys = &master.options().keys;
            for page in pages.iter_mut().filter(|_| !keys.is_empty()) {
                let field = item_field(seen.run.0, Some(page.first_index));
                let sealed = keys.seal(seen.schedule_uid, &field, &page.body);
                page.body = sealed.map_err(|error| Status::internal(error.to_string()))?;
            }
            let _turn = master.turn(&namespace).await;
            tollgate_fault_points::pass("master.submission.pages");
            master.store().add_item_pages(&seen, pages, to, master.now_us()).await.map_err(status)
        });
        let written = written.await.map_err(|error| Status::internal(format!("pages: {error}")))??;
        if !written {
            return Err(Status::aborted(
                "another stream of this request id has gone on, or the submission was given up; ask how far it is, and \
                 go on from there",
            ));
        }
        (self.stored.items, self.stored.digest, self.stored.units_max) = to;
        Ok(())
    }
}

/// Checks an item: the one of this number.
fn checked(item: v1::Item, number: u32) -> Result<Item, FieldError> {
    let v1::Item { data, key, units } = item;
    let field = |name: &str| format!("items[{number}].{name}");
    if data.len() > ITEM_MAX_BYTES {
        let expected = format!("at most {ITEM_MAX_BYTES} bytes of JSON");
        return Err(FieldError::new(field("data"), format!("{} bytes", data.len()), expected));
    }
    if let Err(error) = serde_json::from_str::<IgnoredAny>(&data) {
        return Err(FieldError::new(field("data"), data, format!("JSON text: {error}")));
    }
    items::key(&field("key"), &key)?;
    items::units(&field("units"), units)?;
    if is_sealed(&key) {
        let expected = format!("a text that does not begin with {ENVELOPE}, which stands for a sealed one");
        return Err(FieldError::new(field("key"), key, expected));
    }
    let data = match in_one_line(&data) {
        std::borrow::Cow::Borrowed(line) if line.len() == data.len() => data,
        line => line.into_owned(),
    };
    Ok(Item { key, units, data })
}
