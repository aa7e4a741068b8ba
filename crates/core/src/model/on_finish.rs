//! What a schedule says of the ends of its runs.

use serde::{Deserialize, Serialize};

/// After what end of a run another one follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FinishCondition {
    /// Every event has succeeded.
    #[default]
    AllSucceeded,
    /// Some event has failed, died, expired or been lost; or the run's items could not be fetched.
    AnyFailed,
    /// It has ended, however: also where it was cancelled.
    Always,
}

/// What is launched when a run of a schedule has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnFinish {
    /// The id of the schedule in the same namespace of which a run follows.
    pub schedule: String,
    /// After what end.
    #[serde(default)]
    pub when: FinishCondition,
    /// How many events that run has, where that schedule is not to say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u32>,
    /// Set where that run has an event for each item in the results of the run before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<ResultItems>>,
}

/// How the items of a run are read from the results of the run before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultItems {
    /// The member of each item that is its key; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_field: String,
    /// The member of each item that says how many tokens its event takes; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub units_field: String,
}
