//! Decides what lists return: filters, pages.
//!
//! Invariant: one row more than a page is read, so that a last page says that it is the last.

use tollgate_proto::convert::{names, policy, schedule};
use tollgate_proto::filter::{self, Term};
use tollgate_proto::page::{self, Token};
use tollgate_proto::{FieldError, v1};
use tollgate_store::plan::Filter;
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;
use crate::audit;
use tollgate_status::status;

/// A page of rows, and the token of the next.
struct Page<R> {
    rows: Vec<R>,
    next: String,
}

/// Cuts off the row too many and makes the token from the last that stays.
fn cut<R, P>(mut rows: Vec<R>, size: usize, query: &[&str], position: impl Fn(&R) -> P) -> Page<R>
where
    P: serde::Serialize + serde::de::DeserializeOwned,
{
    let more = rows.len() > size;
    rows.truncate(size);
    let last = rows.last().filter(|_| more);
    let next = last.map(|last| Token::encode(position(last), query)).unwrap_or_default();
    Page { rows, next }
}

/// Rows to read for a page.
fn limit(size: usize) -> u32 {
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
        let rows = self.store().list_schedules(&namespace, &filter, after.as_deref(), limit(size)).await;
        let page = cut(rows.map_err(status)?, size, &query, |row| row.id.clone());
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
        let resource = filter::parse(&request.filter, &["resource"])?.pop().map(|term| term.value);
        let query = ["ListAuditEntries", &request.parent, &request.filter];
        let before = Token::<Uuid>::decode(&request.page_token, &query)?;
        let rows = self.store().audit(&namespace, resource.as_deref(), before, limit(size)).await;
        let page = cut(rows.map_err(status)?, size, &query, |row| row.id);
        let audit_entries = page.rows.iter().map(audit::to_message).collect();
        Ok(v1::ListAuditEntriesResponse { audit_entries, next_page_token: page.next })
    }
}

fn to_filter(text: &str, keys: &[&str], namespace: &str) -> Result<Filter, FieldError> {
    let mut filter = Filter::default();
    for Term { key, value } in filter::parse(text, keys)? {
        match key.as_str() {
            "state" => {
                filter.paused = match value.to_ascii_uppercase().as_str() {
                    "PAUSED" => Some(true),
                    "ACTIVE" => Some(false),
                    _ => return Err(FieldError::new("filter", value, "state=PAUSED or state=ACTIVE")),
                }
            }
            "name" => {
                let start = value.strip_suffix('*').filter(|start| !start.is_empty());
                let start = start.ok_or_else(|| FieldError::new("filter", &value, "name=START*"))?;
                filter.id_prefix = Some(start.to_owned());
            }
            "policy" => filter.policy = Some(names::policy_within("filter", namespace, &value)?.id),
            _ => filter.labels.push((key.strip_prefix("label.").unwrap_or(&key).to_owned(), value)),
        }
    }
    Ok(filter)
}
