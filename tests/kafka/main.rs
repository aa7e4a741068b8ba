//! Kafka targets, end to end: the binary with the feature `kafka`, real stores, brokers that speak Kafka's protocol.
#![expect(clippy::unwrap_used, reason = "tests")]

/// Stamps a test for each store.
macro_rules! on_both_stores {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(tollgate_harness::Kind::Sqlite).await;
            })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(tollgate_harness::Kind::Postgres).await;
            })+
        }
    };
}

mod broker;
mod delivered;
mod mixed;
mod service;
mod trouble;
