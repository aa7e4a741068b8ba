//! `tollgate limit`: what a policy says of one key.

use anyhow::Context as _;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tollgate_proto::v1;

use super::{Session, complete, names};
use crate::usage::Usage;

/// Arguments of `limit`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitArgs {
    /// The policy
    #[arg(value_name = "POLICY", add = ArgValueCompleter::new(complete::named))]
    policy: String,

    /// The key of which something is said
    #[arg(value_name = "KEY")]
    of_key: String,

    /// The most events of the key in flight at once, instead of what is said of each key
    #[arg(long, value_name = "N")]
    max_in_flight: Option<u32>,

    /// The most events of the key that may start per second, instead of what is said of each key
    #[arg(long, value_name = "RATE")]
    rate_per_second: Option<f64>,

    /// How many may start at once after the rate has been unused
    #[arg(long, value_name = "N")]
    burst: Option<u32>,

    /// How many turns in a row the key has
    #[arg(long, value_name = "N")]
    weight: Option<u32>,

    /// Nothing of the key starts; --reason says why
    #[arg(long, conflicts_with = "resume")]
    pause: bool,

    /// End the pause of the key
    #[arg(long)]
    resume: bool,

    /// Forget all that is said of the key: what is said of each key holds
    #[arg(long, conflicts_with_all = ["max_in_flight", "rate_per_second", "burst", "weight", "pause", "resume"])]
    clear: bool,
}

impl LimitArgs {
    fn says_nothing(&self) -> bool {
        let Self { max_in_flight, rate_per_second, burst, weight, pause, resume, clear, .. } = self;
        let numbers = max_in_flight.is_none() && burst.is_none() && weight.is_none();
        numbers && rate_per_second.is_none() && !(*pause || *resume || *clear)
    }

    /// What is said of the key from now on, where that is anything.
    fn changed(&self, before: v1::KeyRule, reason: &str) -> Option<v1::KeyRule> {
        if self.clear {
            return None;
        }
        let (paused, reason) = match (self.pause, self.resume) {
            (true, _) => (true, reason.to_owned()),
            (_, true) => (false, String::new()),
            _ => (before.paused, before.reason),
        };
        Some(v1::KeyRule {
            max_in_flight: self.max_in_flight.or(before.max_in_flight),
            rate_per_second: self.rate_per_second.or(before.rate_per_second),
            burst: self.burst.or(before.burst),
            weight: self.weight.or(before.weight),
            paused,
            reason,
        })
    }
}

/// Changes what a policy says of one key.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: LimitArgs) -> anyhow::Result<()> {
    if args.says_nothing() {
        let usage = "expected what is said of the key: --max-in-flight, --rate-per-second, --burst, --weight, --pause, \
                     --resume or --clear";
        return Err(Usage(usage.to_owned()).into());
    }
    let name = names::policy(&session.namespace, &args.policy);
    let tried = format!("limit the key {:?} of {name}", args.of_key);
    let failed = |status| session.failure(tried.clone(), status);
    let mut master = session.master();
    let request = v1::GetPolicyRequest { name: name.clone() };
    let mut policy = master.get_policy(request).await.map_err(failed)?.into_inner();
    let before = policy.keys.remove(&args.of_key).unwrap_or_default();
    if let Some(rule) = args.changed(before, &session.reason) {
        policy.keys.insert(args.of_key.clone(), rule);
    }
    let paths = vec![format!("keys.{}", args.of_key)];
    let update_mask = Some(prost_types::FieldMask { paths });
    let request = v1::UpdatePolicyRequest { policy: Some(policy), update_mask, validate_only: false };
    let policy = master.update_policy(request).await.map_err(failed)?.into_inner();
    let said = policy.keys.get(&args.of_key).map_or_else(
        || Ok("what is said of each key".to_owned()),
        |rule| {
            serde_json::to_string(&tollgate_proto::json::to_rest_json(rule)).context("the rule of the key")
        },
    )?;
    session.show(&policy, [name.as_str()], || format!("the key {:?} of {name}: {said}\n", args.of_key))
}
