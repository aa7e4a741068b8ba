//! Decides what the answer to a change shows: to a key that may not read, nothing but what it could have given itself.

use tollgate_auth::Access;
use tollgate_proto::{convert, v1};

/// A schedule, as this caller may see it.
pub(crate) fn schedule(access: &Access, mut schedule: v1::Schedule) -> v1::Schedule {
    if !access.reads() {
        schedule.payload = None;
        if let Some(target) = &mut schedule.target {
            convert::hide_headers(target);
        }
    }
    schedule
}
