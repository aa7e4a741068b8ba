//! Every subject of the end-to-end tests.
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

mod ahead;
mod alerts;
mod attacks;
mod bad_input;
mod browser;
mod by_hand;
mod calendars;
mod chains;
mod change;
mod churn;
mod cli;
mod cluster;
mod commands;
mod console;
mod container;
mod corrupt;
mod crash;
mod database;
mod documents;
mod drift;
mod event_batches;
mod examples;
mod failures;
mod fairness;
mod first_steps;
mod history;
mod http2;
mod image;
mod item_keys;
mod item_lists;
mod keys;
mod main_job;
mod many;
mod metrics;
mod mistakes;
mod neighbours;
mod open_files;
mod operation_files;
mod outbox;
mod outlook;
mod progress;
mod pulled;
mod quotas;
mod reflection;
mod releases;
mod rest;
mod results;
mod schedule_items;
mod sdk;
mod secrets;
mod security;
mod seed_example;
mod shell;
mod slow_queue;
mod submissions;
mod submit;
mod targets;
mod ten_million;
mod throttle;
mod times;
mod traces;
mod tree_limits;
mod trees;
mod troubles;
mod units;
mod worker_list;
mod wrong_clock;
