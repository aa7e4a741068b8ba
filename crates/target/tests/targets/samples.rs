//! Deliveries to send, and targets to send them with.

use std::sync::Arc;

use tollgate_core::model::{
    ContentMode, Delivery, EventKeyring, EventRef, HttpTarget, KafkaTarget, OverlapRule, Payload,
    ReleaseMode, RunId, RunSpec, Sent, SqsTarget, Target,
};
use tollgate_target::{PrivateAddresses, TargetOptions, Targets};
use uuid::Uuid;

pub(crate) const LAUNCH_US: i64 = 1_780_000_000_250_000;

/// Targets that may go to this machine.
pub(crate) fn targets() -> Targets {
    with(|_| {})
}

pub(crate) fn with(change: impl FnOnce(&mut TargetOptions)) -> Targets {
    let mut options =
        TargetOptions { allow_private_addresses: PrivateAddresses::Allow, ..Default::default() };
    change(&mut options);
    Targets::new(options).unwrap()
}

pub(crate) fn http(url: impl Into<String>) -> HttpTarget {
    HttpTarget::plain(url.into(), 10_000)
}

pub(crate) fn sqs(queue_url: impl Into<String>, endpoint_url: impl Into<String>) -> SqsTarget {
    SqsTarget {
        queue_url: queue_url.into(),
        region: Some("eu-central-1".into()),
        endpoint_url: Some(endpoint_url.into()),
        message_group_id: None,
        group_by_key: false,
        deadline_ms: 10_000,
    }
}

pub(crate) fn kafka(bootstrap_servers: impl Into<String>) -> KafkaTarget {
    KafkaTarget {
        bootstrap_servers: bootstrap_servers.into(),
        topic: "orders".to_owned(),
        key: None,
        headers: [].into(),
        content_mode: ContentMode::Structured,
        deadline_ms: 20_000,
    }
}

/// Event 3 of 7 of a run of `namespaces/acme/schedules/nightly`.
pub(crate) fn delivery(target: impl Into<AnyTarget>) -> Delivery {
    event(target, 3)
}

/// The event with this index.
pub(crate) fn event(target: impl Into<AnyTarget>, index: u32) -> Delivery {
    let run = RunId::derive(Uuid::from_u128(5), LAUNCH_US);
    let spec = RunSpec {
        schedule_uid: Uuid::from_u128(5),
        generation: 1,
        namespace: "acme".into(),
        schedule_id: "nightly".into(),
        policy_uid: None,
        policy_id: None,
        key: None,
        units: 1,
        target: target.into().0,
        payload: Payload::of(r#"{"order":17}"#),
        retry: Default::default(),
        overlap: OverlapRule::Allow,
        delay_after_finish_s: None,
        finish_by_s: None,
        spread_s: None,
        start_within_s: None,
        check_again: Default::default(),
        on_finish: None,
    };
    Delivery {
        event_id: EventKeyring::new(&[9; 32]).id(EventRef { shard: 4, run, index }),
        attempt: 2,
        index,
        events: 7,
        launch_us: LAUNCH_US,
        checks: 0,
        cursor: None,
        predecessor: None,
        explicit_release: false,
        spec: Arc::new(spec),
        item: None,
    }
}

pub(crate) struct AnyTarget(Target);

impl From<HttpTarget> for AnyTarget {
    fn from(http: HttpTarget) -> Self {
        Self(Target::Http { http, release: ReleaseMode::TargetDefault })
    }
}

impl From<SqsTarget> for AnyTarget {
    fn from(sqs: SqsTarget) -> Self {
        Self(Target::Sqs { sqs, release: ReleaseMode::TargetDefault })
    }
}

impl From<KafkaTarget> for AnyTarget {
    fn from(kafka: KafkaTarget) -> Self {
        Self(Target::Kafka { kafka, release: ReleaseMode::TargetDefault })
    }
}

/// The message and the wish of a refusal that may be tried again.
#[track_caller]
pub(crate) fn refusal(sent: Sent) -> (String, Option<i64>) {
    match sent {
        Sent::Refused { message, retry_after_ms, permanent: false } => (message, retry_after_ms),
        other => panic!("not a refusal: {other:?}"),
    }
}

/// The message of a refusal for good.
#[track_caller]
pub(crate) fn permanent(sent: Sent) -> String {
    match sent {
        Sent::Refused { message, retry_after_ms: None, permanent: true } => message,
        other => panic!("not a permanent refusal: {other:?}"),
    }
}

/// The message of what nobody knows.
#[track_caller]
pub(crate) fn doubt(sent: Sent) -> String {
    match sent {
        Sent::Unclear { message, .. } => message,
        other => panic!("not unclear: {other:?}"),
    }
}

/// The message and the wait of what did not leave, for no reason of its target's.
#[track_caller]
pub(crate) fn not_sent(sent: Sent) -> (String, Option<i64>) {
    match sent {
        Sent::NotSent { message, retry_after_ms } => (message, retry_after_ms),
        other => panic!("not unsent: {other:?}"),
    }
}
