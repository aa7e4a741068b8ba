//! Policies in trees: what may stand where, where it lives, what new ones get above them.
#![expect(clippy::unwrap_used, reason = "tests")]

mod world;

use serde_json::{Value, json};
use tollgate_core::handle::ShardState;
use tollgate_core::model::{Policy, Run, RunId, RunState, TokenRow};
use tollgate_proto::convert::names;
use tollgate_proto::{json as proto_json, v1};
use tollgate_schedule_master::Options;
use tonic::{Code, Status};
use world::{World, as_alice, policy_name};
