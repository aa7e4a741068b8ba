//! The service that speaks to Kafka, and schedules that lead there.

use std::process::Command;

use serde_json::Value;
use tollgate_harness::resources::{PARENT, ms};
use tollgate_harness::{Database, FREE_PORT, Serve, Service, wait_for};
use tollgate_proto::v1::{
    GetHandlerStatusRequest, KafkaTarget, ReleaseMode, ReleaseTokenRequest, RetryPolicy, Target, TargetGauge,
    target,
};

use crate::broker::Seen;

/// The brokers of tests are here.
const FLAGS: [&str; 4] = ["--allow-private-addresses", "127.0.0.0/8", "--lease-ttl", "4s"];

/// The build with Kafka.
pub(crate) fn binary() -> Command {
    let path = std::env::var_os("TOLLGATE_KAFKA_BIN");
    let path = path
        .expect("TOLLGATE_KAFKA_BIN names the binary with the feature kafka; ./tests/run kafka builds it");
    Command::new(path)
}

/// Starts a process of the build with Kafka, and waits until it owns all.
pub(crate) async fn start(database: &Database) -> Service {
    start_at(database, FREE_PORT).await
}

/// The same, with more flags.
pub(crate) async fn start_with(database: &Database, flags: &[&str]) -> Service {
    let serve = Serve::new(binary(), &database.url(), FREE_PORT).flags(FLAGS).flags(flags.iter().copied());
    Service::launch(serve).await.unwrap()
}

/// The same, at this address.
pub(crate) async fn start_at(database: &Database, address: &str) -> Service {
    let serve = Serve::new(binary(), &database.url(), address).flags(FLAGS);
    let service = Service::launch(serve).await.unwrap();
    service.owns_all().await.unwrap();
    service
}

/// A topic of some brokers; a record has five seconds.
pub(crate) fn kafka(servers: &str, topic: &str) -> KafkaTarget {
    KafkaTarget {
        bootstrap_servers: vec![servers.to_owned()],
        topic: topic.to_owned(),
        deadline: Some(ms(5_000)),
        ..KafkaTarget::default()
    }
}

/// As a target.
pub(crate) fn target(kafka: KafkaTarget, release: ReleaseMode) -> Target {
    Target { target: Some(target::Target::Kafka(kafka)), release: release.into() }
}

/// Tries again soon, and as often as it takes.
pub(crate) fn patient() -> Option<RetryPolicy> {
    Some(RetryPolicy {
        max_attempts: Some(1_000),
        min_backoff: Some(ms(200)),
        max_backoff: Some(ms(500)),
        ..RetryPolicy::default()
    })
}

/// The event that a record has as its value.
pub(crate) fn document(record: &Seen) -> Value {
    serde_json::from_str(record.value.as_deref().unwrap()).unwrap()
}

/// Releases an event as its consumer would.
pub(crate) async fn release(service: &Service, id: &str) {
    let request = ReleaseTokenRequest { name: id.to_owned(), ..ReleaseTokenRequest::default() };
    service.handler().release_token(request).await.unwrap();
}

/// The targets, as they are seen now.
pub(crate) async fn targets(service: &Service) -> Vec<TargetGauge> {
    let asked = GetHandlerStatusRequest { parent: PARENT.to_owned(), busy_only: false };
    service.handler().get_handler_status(asked).await.unwrap().into_inner().targets
}

/// Waits until the target of these brokers looks as wanted.
pub(crate) async fn seen(
    service: &Service,
    servers: &str,
    wanted: impl Fn(&TargetGauge) -> bool,
) -> TargetGauge {
    wait_for("the target", 60, async || {
        let all = targets(service).await;
        all.into_iter().find(|gauge| gauge.target == servers && wanted(gauge))
    })
    .await
}
