//! Decides what a caller learns of a store's error.
//!
//! Invariant: what is public names resources and fields; what a database said goes to the log only.

use tollgate_proto::FieldError;
use tollgate_store::StoreError;
use tonic::{Code, Status};

/// The answer for a store's error. A conflict is ABORTED: read again, try again.
pub fn status(error: StoreError) -> Status {
    match error {
        StoreError::NotFound { .. } => Status::not_found(error.to_string()),
        StoreError::Conflict { what } => Status::aborted(what),
        StoreError::InUse { what } => Status::failed_precondition(what),
        StoreError::Invalid { field, message } => FieldError::said(field, message).into(),
        StoreError::Unreachable(private) => {
            tracing::warn!(error = %private, "the database is unreachable");
            Status::unavailable("the database is unreachable, try again later")
        }
        StoreError::Full(_) => {
            tracing::error!(%error, "nothing can be written");
            Status::unavailable(
                "the database's disk is full, nothing was written; try again once there is room",
            )
        }
        StoreError::CannotOpen { .. } | StoreError::Locked { .. } | StoreError::WrongSchema { .. } => {
            internal(&error, "the database cannot be used")
        }
        StoreError::Corrupt { table, .. } => internal(&error, &format!("a row in {table} is corrupt")),
        StoreError::Internal(_) => internal(&error, "the database refused"),
    }
}

/// As [`status`] where something is created: a conflict is a name that is taken.
pub fn status_of_create(error: StoreError) -> Status {
    match error {
        StoreError::Conflict { what } => Status::already_exists(what),
        other => status(other),
    }
}

/// Whether an answer says that nothing was written because others wrote first.
pub fn is_conflict(status: &Status) -> bool {
    status.code() == Code::Aborted
}

fn internal(error: &StoreError, public: &str) -> Status {
    tracing::error!(error = %error, "{public}");
    Status::internal(format!("{public}; the log has the details"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_code_and_keeps_its_secrets() {
        let what = || "schedule a".to_owned();
        for (error, code) in [
            (StoreError::NotFound { what: what() }, Code::NotFound),
            (StoreError::Conflict { what: what() }, Code::Aborted),
            (StoreError::InUse { what: what() }, Code::FailedPrecondition),
            (StoreError::Invalid { field: what(), message: what() }, Code::InvalidArgument),
            (StoreError::Unreachable("10.1.2.3".to_owned()), Code::Unavailable),
            (StoreError::Full("10.1.2.3".to_owned()), Code::Unavailable),
            (StoreError::CannotOpen { place: "/10.1.2.3".to_owned(), why: what() }, Code::Internal),
            (StoreError::Locked { path: "/10.1.2.3".to_owned() }, Code::Internal),
            (StoreError::WrongSchema { found: 9, known: 4 }, Code::Internal),
            (StoreError::Internal("password 10.1.2.3".to_owned()), Code::Internal),
        ] {
            let status = status(error);
            assert_eq!(status.code(), code, "{status}");
            assert!(!status.message().contains("10.1.2.3"), "{status}");
        }
        let taken = status_of_create(StoreError::Conflict { what: what() });
        assert_eq!(taken.code(), Code::AlreadyExists);
    }
}
