//! What metrics and traces cost per event: all that an owner notes of 64 events from their releases to the answers of the
//! next ones, without any of the work itself.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher, black_box};
use tollgate_clock::Clock;
use tollgate_core::handle::change::{Changes, HistoryRow, Outcome};
use tollgate_core::model::*;
use tollgate_metrics::trace::{TraceOptions, Traces};
use tollgate_metrics::{Metrics, ReleaseAnswer};
use uuid::Uuid;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

/// Events of one commit.
const EVENTS: u32 = 64;

fn main() {
    divan::main();
}

fn delivery(run: RunId) -> Delivery {
    let http = HttpTarget::plain(String::new(), 1);
    Delivery {
        event_id: EventKeyring::new(&[7; 32]).id(EventRef { shard: 0, run, index: 0 }),
        attempt: 1,
        index: 0,
        events: EVENTS,
        launch_us: 0,
        cursor: None,
        predecessor: None,
        explicit_release: true,
        spec: Arc::new(RunSpec {
            schedule_uid: Uuid::nil(),
            generation: 1,
            namespace: "default".to_owned(),
            schedule_id: "s".to_owned(),
            policy_uid: Some(Uuid::nil()),
            policy_id: Some("p".to_owned()),
            key: None,
            units: 1,
            target: Target::Http { http, release: ReleaseMode::TargetDefault },
            payload: Payload::default(),
            retry: RetryPolicy::default(),
            overlap: OverlapRule::Allow,
            delay_after_finish_s: None,
            finish_by_s: None,
            spread_s: None,
            start_within_s: None,
            check_again: CheckAgain::default(),
            on_finish: None,
        }),
        checks: 0,
        item: None,
    }
}

fn history(run: RunId, index: u32) -> HistoryRow {
    HistoryRow {
        run,
        index,
        count: 1,
        outcome: Outcome::Succeeded,
        attempt: 1,
        acquired_us: Some(0),
        delivered_us: Some(0),
        finished_us: 1,
        message: String::new(),
    }
}

fn cycle(bencher: Bencher, metrics: &Metrics) {
    let clock = Clock::system();
    let mut owner = metrics.owner(&clock);
    let run = RunId::derive(Uuid::nil(), 0);
    let delivery = delivery(run);
    let changes =
        Changes { history: (0..EVENTS).map(|index| history(run, index)).collect(), ..Changes::default() };
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        for index in 0..EVENTS {
            let event = || Some((EventRef { shard: 0, run, index }, Some(1)));
            let watch = metrics.release(&clock).about(None, event);
            owner.released(run);
            watch.ended(ReleaseAnswer::Released);
        }
        owner.commit(black_box(&changes)).ended(&Ok(()));
        for _ in 0..EVENTS {
            let watched = pin!(owner.delivery(run, &delivery).over(std::future::ready(Sent::Accepted)));
            let _answer = black_box(watched.poll(&mut Context::from_waker(Waker::noop())));
            owner.answered(run, &Sent::Accepted);
        }
    });
}

/// Metrics alone.
#[divan::bench]
fn metrics_of_64_events(bencher: Bencher) {
    cycle(bencher, &Metrics::default());
}

/// Traces of all, and of one in a hundred. Nothing listens at the other end, so most spans are dropped at the queue.
#[divan::bench(args = [1.0, 0.01, 0.0])]
fn with_traces(bencher: Bencher, ratio: f64) {
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return };
    let _entered = runtime.enter();
    let endpoint = "http://127.0.0.1:1".to_owned();
    let options = TraceOptions { endpoint, ratio, version: "0", instance: String::new() };
    let Ok(traces) = Traces::start(&options) else { return };
    cycle(bencher, &Metrics::with_traces(traces));
}
