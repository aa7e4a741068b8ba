//! Decides whether somebody asks again for what has been asked for already.
//!
//! In: the id that a caller gives a request, and what it asks for. Out: what is remembered of the first time, or a refusal that
//! names the difference. Invariant: what is remembered is written in the same transaction as the runs that it answers with.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};
use tollgate_core::model::Schedule;
use tollgate_proto::FieldError;
use tollgate_proto::convert::{self, moment};
use tollgate_service::status::status;
use tollgate_store::plan::Request;
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;

/// Says what a request asks for: `trigger` or `backfill`.
const METHOD: &str = "method";

/// A request with an id.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: String,
    content: Map<String, Value>,
}

impl Asked {
    /// None where it has no id. `content`: the fields of the request, absent ones without a value.
    pub(crate) fn read<const N: usize>(
        id: &str,
        method: &str,
        content: [(&str, Option<Value>); N],
    ) -> Result<Option<Self>, FieldError> {
        let Some(id) = convert::request_id("request_id", id)? else { return Ok(None) };
        let given = content.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
        let mut content: Map<String, Value> = given.collect();
        content.insert(METHOD.to_owned(), Value::from(method));
        Ok(Some(Self { id, content }))
    }

    /// What is remembered of it.
    pub(crate) fn request(
        &self,
        schedule_uid: Uuid,
        progress: &impl Serialize,
        at_us: i64,
    ) -> Result<Request, Status> {
        let progress =
            serde_json::to_string(progress).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Request {
            schedule_uid,
            id: self.id.clone(),
            content: Value::Object(self.content.clone()).to_string(),
            progress,
            made: 0,
            created_us: at_us,
        })
    }

    /// Refuses what asks for something else than the first time.
    fn check(&self, before: &Request) -> Result<(), Status> {
        let content: Map<String, Value> =
            serde_json::from_str(&before.content).map_err(|error| unreadable(before, &error))?;
        let fields: BTreeSet<&String> = content.keys().chain(self.content.keys()).collect();
        let side = |of: Option<&Value>| of.map_or_else(|| "not given".to_owned(), Value::to_string);
        let told: Vec<String> = fields
            .into_iter()
            .map(|field| (field, content.get(field), self.content.get(field)))
            .filter(|(_, old, new)| old != new)
            .map(|(field, old, new)| format!("{field} was {}, and is {}", side(old), side(new)))
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        Err(Status::already_exists(format!(
            "request_id {:?} has been used for another request, at {}: {}",
            self.id,
            moment(before.created_us),
            told.join("; ")
        )))
    }
}

/// What is said of a request that cannot be read.
pub(crate) fn unreadable(request: &Request, error: &serde_json::Error) -> Status {
    tracing::error!(schedule = %request.schedule_uid, request = request.id, %error, "what is remembered of a request cannot be read");
    Status::internal(format!("what is remembered of request {:?} cannot be read: {error}", request.id))
}

impl ScheduleMaster {
    /// What is remembered of a request, where it has an id and has been made before.
    pub(crate) async fn asked_before(
        &self,
        asked: Option<&Asked>,
        schedule: &Schedule,
    ) -> Result<Option<Request>, Status> {
        let Some(asked) = asked else { return Ok(None) };
        let before = self.store().request(schedule.uid, &asked.id).await.map_err(status)?;
        before.as_ref().map_or(Ok(()), |before| asked.check(before))?;
        Ok(before)
    }
}
