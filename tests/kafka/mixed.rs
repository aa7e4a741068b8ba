//! Builds with and without Kafka, one after the other over one store.

use tollgate_harness::resources::{PARENT, once, policy, soon};
use tollgate_harness::{Cli, Database, Kind, Service, wait_for};
use tollgate_proto::v1::{GetHandlerStatusRequest, ReleaseMode, RunState};

use crate::broker::Broker;
use crate::service::{kafka, start, target};

on_both_stores!(a_build_without_kafka_says_so_and_loses_nothing);

async fn a_build_without_kafka_says_so_and_loses_nothing(kind: Kind) {
    let (broker, database) = (Broker::with("orders", 1), Database::new(kind).await);
    let with = start(&database).await;
    with.create_policy("few", policy(2)).await.unwrap();
    let to = || target(kafka(&broker.servers(), "orders"), ReleaseMode::OnResponse);
    with.create_schedule("s", once(soon(86_400_000), 3, "few", to())).await.unwrap();
    with.stop().await;
    // TOLLGATE_BIN is built without.
    let without = Service::start(&database).await;
    let refusal = without.create_schedule("t", once(soon(1_000), 3, "few", to())).await.unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::InvalidArgument);
    let words = refusal.message();
    assert!(words.contains("schedule.target.kafka") && words.contains("built without Kafka"), "{refusal:?}");
    Cli::new(without.url()).ok(&["trigger", "s"]);
    let told = wait_for("its word", 30, async || {
        let asked = GetHandlerStatusRequest { parent: PARENT.to_owned(), busy_only: false };
        let all = without.handler().get_handler_status(asked).await.unwrap().into_inner().targets;
        all.into_iter().find(|gauge| gauge.target == broker.servers() && !gauge.last_error.is_empty())
    })
    .await;
    assert!(told.last_error.contains("built without Kafka"), "{told:?}");
    without.stop().await;
    let with = start(&database).await;
    let run = with.finished("s", 60).await;
    assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 3), "{run:?}");
    assert_eq!(broker.records("orders", 1, 3).await.len(), 3);
    with.stop().await;
}
