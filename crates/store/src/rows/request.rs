//! Rows of requests.

use uuid::Uuid;

use crate::columns::row;
use crate::plan::Request;

row! {
    /// A row of `requests`.
    RequestRow of "requests" {
        key {
            schedule_uid: Uuid,
            request_id: String,
        }
        fixed {
            content: String,
            created_us: i64,
        }
        changing {
            progress: String,
            made: i64,
        }
    }
}

impl From<&Request> for RequestRow {
    fn from(request: &Request) -> Self {
        Self {
            schedule_uid: request.schedule_uid,
            request_id: request.id.clone(),
            content: request.content.clone(),
            created_us: request.created_us,
            progress: request.progress.clone(),
            made: i64::try_from(request.made).unwrap_or(i64::MAX),
        }
    }
}

impl From<RequestRow> for Request {
    fn from(row: RequestRow) -> Self {
        Self {
            schedule_uid: row.schedule_uid,
            id: row.request_id,
            content: row.content,
            progress: row.progress,
            made: u64::try_from(row.made).unwrap_or_default(),
            created_us: row.created_us,
        }
    }
}
