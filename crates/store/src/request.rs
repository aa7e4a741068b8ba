//! What people ask for by hand, so that who asks again under the same id gets the same answer.

use tollgate_core::model::{DAY_US, Run, RunSpec};
use uuid::Uuid;

use crate::plan::Audit;

/// For how long a request is remembered.
pub const REQUESTS_KEPT_US: i64 = 7 * DAY_US;

/// A request of which the id is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The schedule that it is about.
    pub schedule_uid: Uuid,
    /// Chosen by who asks.
    pub id: String,
    /// What was asked for: a JSON object.
    pub content: String,
    /// How far it has come, and with what answer: JSON.
    pub progress: String,
    /// How many runs it has made.
    pub made: u64,
    /// When it was asked for the first time.
    pub created_us: i64,
}

/// How far runs that are made by hand bring a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestStep {
    /// As it is afterwards, but for how many runs it has made.
    pub request: Request,
    /// How far it must have come before; none where it must not be known yet.
    pub from: Option<String>,
}

/// Runs that somebody makes by hand, and what is written with them, in one transaction.
#[derive(Clone, Debug, Default)]
pub struct ByHand {
    /// The runs. One that is there already stays as it is.
    pub runs: Vec<Run>,
    /// Whether all of them must be new.
    pub only_new: bool,
    /// Specs that only these runs have, with their shards.
    pub specs: Vec<(RunSpec, u16)>,
    /// Their policy (its uid, and its id for the error), which must be there.
    pub policy: Option<(Uuid, String)>,
    /// Who makes them, and why.
    pub audit: Option<Audit>,
    /// The request that they answer.
    pub request: Option<RequestStep>,
}
