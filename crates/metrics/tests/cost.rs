//! What is noted of each event costs no allocation while traces are off.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_clock::Clock;
use tollgate_core::handle::change::Changes;
use tollgate_core::model::*;
use tollgate_metrics::{Metrics, OwnerWatch, ReleaseAnswer};
use uuid::Uuid;

fn delivery(run: RunId) -> Delivery {
    let http = HttpTarget::plain(String::new(), 1);
    Delivery {
        event_id: EventKeyring::new(&[7; 32]).id(EventRef { shard: 0, run, index: 0 }),
        attempt: 1,
        index: 0,
        events: 9,
        launch_us: 0,
        checks: 0,
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
        item: None,
    }
}

/// 64 events: released, committed, delivered.
fn round(metrics: &Metrics, owner: &mut OwnerWatch, clock: &Clock, (run, delivery): (RunId, &Delivery)) {
    for _ in 0..64 {
        let watch = metrics.release(clock).about(None, || unreachable!("traces are off"));
        owner.released(run);
        watch.ended(ReleaseAnswer::Released);
    }
    owner.commit(&Changes::default()).ended(&Ok(()));
    for _ in 0..64 {
        let watched = pin!(owner.delivery(run, delivery).over(std::future::ready(Sent::Accepted)));
        assert_eq!(watched.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Sent::Accepted));
        owner.answered(run, &Sent::Accepted);
    }
}

#[test]
fn nothing_is_allocated_for_an_event() {
    let (metrics, clock) = (Metrics::default(), Clock::manual(0));
    let mut owner = metrics.owner(&clock);
    let run = RunId::derive(Uuid::nil(), 0);
    let delivery = delivery(run);
    // What grows, grows once.
    for _ in 0..3 {
        round(&metrics, &mut owner, &clock, (run, &delivery));
    }
    let used = allocation_counter::measure(|| {
        for _ in 0..10 {
            round(&metrics, &mut owner, &clock, (run, &delivery));
        }
    });
    assert_eq!(used.count_total, 0, "{used:?}");
    // The counter counts.
    let used = allocation_counter::measure(|| drop(Box::new([0_u8; 64])));
    assert!(used.count_total >= 1);
    assert!(!metrics.traces().is_on());
}
