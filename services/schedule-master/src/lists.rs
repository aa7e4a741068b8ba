//! Decides what lists return: filters, pages.
//!
//! Invariant: one row more than a page is read, so that a last page says that it is the last.

use tollgate_core::model::Schedule;
use tollgate_proto::convert::{names, policy, schedule};
use tollgate_proto::filter::{self, Term};
use tollgate_proto::page::{self, Token};
use tollgate_proto::{FieldError, v1};
use tollgate_store::StoreError;
use tollgate_store::plan::{Audit, AuditFilter, Filter};
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;
use crate::audit;
use tollgate_service::status::status;

/// How many rows that may be large are read at a time.
const FEW: usize = 8;
/// How many are read at a time once they turn out to be small.
const STEP: usize = 100;
const SMALL_BYTES: usize = 4 * 1024;
/// Payloads and the like on one page.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// A page of rows, and the token of the next.
pub(crate) struct Page<R> {
    pub(crate) rows: Vec<R>,
    pub(crate) next: String,
}

/// Cuts off the row too many and makes the token from the last that stays.
pub(crate) fn cut<R, P>(mut rows: Vec<R>, size: usize, query: &[&str], position: impl Fn(&R) -> P) -> Page<R>
where
    P: serde::Serialize + serde::de::DeserializeOwned,
{
    let more = rows.len() > size;
    rows.truncate(size);
    let last = rows.last().filter(|_| more);
    let next = last.map(|last| Token::encode(position(last), query)).unwrap_or_default();
    Page { rows, next }
}

/// A page of rows that may be large: it ends with its size, or with its bytes. The rows are read a few at a time, so that no
/// more are in memory than that.
async fn page_of<R, P, F>(
    size: usize,
    query: &[&str],
    mut after: Option<P>,
    (position, bytes): (impl Fn(&R) -> P, impl Fn(&R) -> usize),
    read: impl Fn(Option<P>, u32) -> F,
) -> Result<Page<R>, Status>
where
    P: serde::Serialize + serde::de::DeserializeOwned,
    F: Future<Output = Result<Vec<R>, StoreError>>,
{
    let (mut rows, mut total) = (Vec::new(), 0);
    loop {
        let are_small = !rows.is_empty() && total <= rows.len() * SMALL_BYTES;
        let wanted = (size + 1 - rows.len()).min(if are_small { STEP } else { FEW });
        let step = read(after.take(), u32::try_from(wanted).unwrap_or(u32::MAX)).await.map_err(status)?;
        let is_last = step.len() < wanted;
        for row in step {
            let is_full = rows.len() == size || total + bytes(&row) > BYTES_MAX;
            if let Some(last) = rows.last().filter(|_| is_full) {
                let next = Token::encode(position(last), query);
                return Ok(Page { rows, next });
            }
            total += bytes(&row);
            rows.push(row);
        }
        if is_last {
            return Ok(Page { rows, next: String::new() });
        }
        after = rows.last().map(&position);
    }
}

/// Rows to read for a page.
pub(crate) fn limit(size: usize) -> u32 {
    u32::try_from(size + 1).unwrap_or(u32::MAX)
}

impl ScheduleMaster {
    pub(crate) async fn list_schedules(
        &self,
        request: v1::ListSchedulesRequest,
    ) -> Result<v1::ListSchedulesResponse, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let filter = to_filter(&request.filter, &["name", "state", "policy", "label.*"], &namespace)?;
        let query = ["ListSchedules", &request.parent, &request.filter];
        let after = Token::<String>::decode(&request.page_token, &query)?;
        let (store, namespace, filter) = (self.store(), &namespace, &filter);
        let read = |after: Option<String>, limit| async move {
            store.list_schedules(namespace, filter, after.as_deref(), limit).await
        };
        let of_row = (|row: &Schedule| row.id.clone(), |row: &Schedule| row.payload.bytes());
        let page = page_of(size, &query, after, of_row, read).await?;
        let schedules = page.rows.iter().map(|row| self.shown(row, None)).collect();
        Ok(v1::ListSchedulesResponse { schedules, next_page_token: page.next })
    }

    pub(crate) async fn list_policies(
        &self,
        request: v1::ListPoliciesRequest,
    ) -> Result<v1::ListPoliciesResponse, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let filter = to_filter(&request.filter, &["name", "state", "label.*"], &namespace)?;
        let query = ["ListPolicies", &request.parent, &request.filter];
        let after = Token::<String>::decode(&request.page_token, &query)?;
        let rows = self.store().list_policies(&namespace, &filter, after.as_deref(), limit(size)).await;
        let page = cut(rows.map_err(status)?, size, &query, |row| row.id.clone());
        let policies = page.rows.iter().map(policy::to_message).collect();
        Ok(v1::ListPoliciesResponse { policies, next_page_token: page.next })
    }

    pub(crate) async fn list_namespaces(
        &self,
        request: v1::ListNamespacesRequest,
    ) -> Result<v1::ListNamespacesResponse, Status> {
        const QUERY: [&str; 1] = ["ListNamespaces"];
        let size = page::size(request.page_size)?;
        let after = Token::<String>::decode(&request.page_token, &QUERY)?;
        let rows = self.store().list_namespaces(after.as_deref(), limit(size)).await;
        let page = cut(rows.map_err(status)?, size, &QUERY, Clone::clone);
        let named = page.rows.iter().map(|id| v1::Namespace { name: format!("namespaces/{id}") });
        Ok(v1::ListNamespacesResponse { namespaces: named.collect(), next_page_token: page.next })
    }

    pub(crate) async fn list_schedule_children(
        &self,
        request: v1::ListScheduleChildrenRequest,
    ) -> Result<v1::ListScheduleChildrenResponse, Status> {
        let name = names::schedule("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let stored = self.stored_schedule(&name).await?;
        // Ordinals are those of one generation.
        let generation = stored.generation.to_string();
        let query = ["ListScheduleChildren", &request.parent, &generation];
        let after = Token::<u32>::decode(&request.page_token, &query)?;
        let rows = self.store().children(stored.uid, after, limit(size)).await.map_err(status)?;
        let page = cut(rows, size, &query, |row| row.ordinal);
        let children = page.rows.iter().map(|row| schedule::child_to_message(&row.child)).collect();
        Ok(v1::ListScheduleChildrenResponse { children, next_page_token: page.next })
    }

    pub(crate) async fn list_skipped_triggers(
        &self,
        request: v1::ListSkippedTriggersRequest,
    ) -> Result<v1::ListSkippedTriggersResponse, Status> {
        let name = names::schedule("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let stored = self.stored_schedule(&name).await?;
        let uid = stored.uid.to_string();
        let query = ["ListSkippedTriggers", &request.parent, &uid];
        let before_us = Token::<i64>::decode(&request.page_token, &query)?;
        let rows = self.store().list_skipped(stored.uid, before_us, limit(size)).await.map_err(status)?;
        let page = cut(rows, size, &query, |row| row.launch_us);
        let skipped = page.rows.iter().map(|row| schedule::skipped_to_message(row, &name)).collect();
        Ok(v1::ListSkippedTriggersResponse { skipped_triggers: skipped, next_page_token: page.next })
    }

    pub(crate) async fn list_audit_entries(
        &self,
        request: v1::ListAuditEntriesRequest,
    ) -> Result<v1::ListAuditEntriesResponse, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let filter = audit_filter(&request.filter)?;
        let query = ["ListAuditEntries", &request.parent, &request.filter];
        let before = Token::<Uuid>::decode(&request.page_token, &query)?;
        let (store, namespace, filter) = (self.store(), &namespace, &filter);
        let read = |before, limit| async move { store.audit(namespace, filter, before, limit).await };
        let of_row = (|row: &Audit| row.id, |row: &Audit| row.difference.to_string().len());
        let page = page_of(size, &query, before, of_row, read).await?;
        let audit_entries = page.rows.iter().map(audit::to_message).collect();
        Ok(v1::ListAuditEntriesResponse { audit_entries, next_page_token: page.next })
    }
}

fn audit_filter(text: &str) -> Result<AuditFilter, FieldError> {
    let mut wanted = AuditFilter::default();
    for Term { key, value } in filter::parse(text, &["resource", "actor", "time>", "time<"])? {
        match key.as_str() {
            "resource" => wanted.resource = Some(value),
            "actor" => wanted.actor = Some(value),
            "time>" => wanted.from_us = Some(filter::moment(&value)?),
            _ => wanted.to_us = Some(filter::moment(&value)?.saturating_add(1)),
        }
    }
    Ok(wanted)
}

pub(crate) fn to_filter(text: &str, keys: &[&str], namespace: &str) -> Result<Filter, FieldError> {
    let mut filter = Filter::default();
    for Term { key, value } in filter::parse(text, keys)? {
        match key.as_str() {
            "state" => {
                filter.paused = match value.to_ascii_uppercase().as_str() {
                    "PAUSED" | "DISABLED" => Some(true),
                    "ACTIVE" | "ENABLED" => Some(false),
                    _ => {
                        let expected = "state=PAUSED or ACTIVE; of alerts, DISABLED or ENABLED";
                        return Err(FieldError::new("filter", value, expected));
                    }
                }
            }
            "name" => {
                let start = value.strip_suffix('*').filter(|start| !start.trim_matches('*').is_empty());
                let start =
                    start.ok_or_else(|| FieldError::new("filter", &value, "name=START* or name=*PART*"))?;
                match start.strip_prefix('*') {
                    Some(part) => filter.id_part = Some(part.to_owned()),
                    None => filter.id_prefix = Some(start.to_owned()),
                }
            }
            "policy" => filter.policy = Some(names::policy_within("filter", namespace, &value)?.id),
            _ => filter.labels.push((key.strip_prefix("label.").unwrap_or(&key).to_owned(), value)),
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::sync::Mutex;

    use super::*;

    /// The pages of rows with these sizes in bytes, and the most bytes that were read at once.
    async fn pages(rows: &[usize], size: usize) -> (Vec<Vec<usize>>, usize) {
        let (mut found, mut after, most) = (Vec::new(), None, Mutex::new(0));
        loop {
            let read = |after: Option<usize>, limit: u32| {
                let from = after.map_or(0, |after| after + 1);
                let step: Vec<usize> = (from..rows.len()).take(limit as usize).collect();
                let bytes = step.iter().map(|row| rows[*row]).sum::<usize>();
                let mut most = most.lock().unwrap();
                *most = bytes.max(*most);
                async move { Ok(step) }
            };
            let of_row = (|row: &usize| *row, |row: &usize| rows[*row]);
            let page = page_of(size, &["x"], after, of_row, read).await.unwrap();
            found.push(page.rows);
            after = Token::<usize>::decode(&page.next, &["x"]).unwrap();
            if after.is_none() {
                let most = *most.lock().unwrap();
                return (found, most);
            }
        }
    }

    #[tokio::test]
    async fn a_page_ends_with_its_size_or_with_its_bytes() {
        let small = vec![10; 250];
        let (found, _) = pages(&small, 100).await;
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 50]);
        let large = vec![BYTES_MAX / 4; 10];
        let (found, most) = pages(&large, 100).await;
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        assert!(most <= FEW * BYTES_MAX / 4);
        let (found, _) = pages(&[2 * BYTES_MAX, 2 * BYTES_MAX, 1], 100).await;
        assert_eq!(found, [vec![0], vec![1], vec![2]], "one at least");
        for (rows, size) in [(8, 8), (9, 8), (0, 8), (16, 8), (7, 1)] {
            let (found, _) = pages(&vec![1; rows], size).await;
            assert_eq!(found.concat(), (0..rows).collect::<Vec<_>>());
            assert!(found.iter().all(|page| page.len() <= size));
        }
    }
}
