//! Runs that take longer than they did are a trouble: told everywhere with both spans, also after a restart, until a run takes as
//! long as before, or the schedule is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_harness::resources::{http, policy, policy_name, schedule_name, us};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::v1::{
    DeleteScheduleRequest, ListTroublesRequest, RunState, Schedule, TriggerScheduleRequest, Trouble,
    TroubleKind, TroubleSeverity,
};

use crate::metrics::page;

/// A run by hand, from its start to its end.
async fn ran(service: &Service, schedule: &str) {
    let request =
        TriggerScheduleRequest { name: schedule_name(schedule), ..TriggerScheduleRequest::default() };
    let run = service.master().trigger_schedule(request).await.unwrap().into_inner();
    wait_for("the end of the run", 60, async || {
        (service.run(&run.name).await.state() == RunState::Finished).then_some(())
    })
    .await;
}

async fn slower(service: &Service) -> Vec<Trouble> {
    let request = ListTroublesRequest { filter: "kind=slower".to_owned(), ..ListTroublesRequest::default() };
    service.handler().list_troubles(request).await.unwrap().into_inner().troubles
}

/// Waits until it is told that `nightly` takes longer.
async fn told(service: &Service) -> Trouble {
    wait_for("the trouble", 20, async || slower(service).await.pop()).await
}

async fn well_again(service: &Service) {
    wait_for("the end of the trouble", 20, async || slower(service).await.is_empty().then_some(())).await;
}

async fn runs_that_take_longer_are_told_until_one_takes_as_long_as_before(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let (work_ms, link) = (Arc::new(AtomicU64::new(1_000)), service.link());
    let script = work_ms.clone();
    let consumer = Consumer::start(link.clone(), Releases::Unary, move |arrival| {
        // Its neighbour takes as long as ever.
        let ms = if arrival.schedule == "nightly" { script.load(Ordering::SeqCst) } else { 1_000 };
        Conduct::work(ms..ms + 1)
    })
    .await;
    service.create_policy("p", policy(2)).await.unwrap();
    for id in ["nightly", "hourly"] {
        let schedule = Schedule {
            events: Some(1),
            policy: "p".to_owned(),
            target: Some(http(&consumer)),
            ..Schedule::default()
        };
        service.create_schedule(id, schedule).await.unwrap();
    }
    for _ in 0..6 {
        tokio::join!(ran(&service, "nightly"), ran(&service, "hourly"));
    }
    work_ms.store(8_000, Ordering::SeqCst);
    let began_us = now_us();
    tokio::join!(ran(&service, "nightly"), ran(&service, "hourly"));
    let trouble = told(&service).await;
    assert_eq!((trouble.kind(), trouble.severity()), (TroubleKind::Slower, TroubleSeverity::Warning));
    assert_eq!((trouble.schedule, trouble.policy), (schedule_name("nightly"), policy_name("p")));
    let text = &trouble.summary;
    let spans = text.strip_prefix("runs of nightly take longer: the last one took ").unwrap();
    let (last, median) = spans.split_once(", the median of 6 before it is ").unwrap();
    assert!(last.trim_end_matches('s').parse::<f64>().unwrap() >= 8.0 && median.ends_with('s'), "{text}");
    assert!((began_us + 8_000_000..now_us()).contains(&us(trouble.since_time)), "{text}");
    assert_eq!(slower(&service).await.len(), 1, "its neighbour is well");
    let shown = Cli::new(service.url()).ok(&["troubles"]);
    assert!(shown.contains(text.as_str()) && shown.contains("`tollgate history nightly`"), "{shown}");
    let now = page(&service, "/n/default", "text/html").await.body;
    assert!(now.contains("runs of nightly take longer"), "{now}");
    let metrics = page(&service, "/metrics", "text/plain").await.body;
    assert!(metrics.lines().any(|line| line == "tollgate_troubles{kind=\"slower\"} 1.0"), "{metrics}");
    // It is known from what is stored.
    service.stop().await;
    let service = Service::start(&database).await;
    link.follow(&service);
    assert_eq!(told(&service).await.summary, trouble.summary);
    work_ms.store(1_000, Ordering::SeqCst);
    ran(&service, "nightly").await;
    well_again(&service).await;
    work_ms.store(8_000, Ordering::SeqCst);
    ran(&service, "nightly").await;
    told(&service).await;
    let request = DeleteScheduleRequest { name: schedule_name("nightly"), ..Default::default() };
    service.master().delete_schedule(request).await.unwrap();
    well_again(&service).await;
    // Nor is it found again, although its runs are there.
    service.stop().await;
    let service = Service::start(&database).await;
    link.follow(&service);
    ran(&service, "hourly").await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert_eq!(slower(&service).await, []);
    service.stop().await;
}

on_both_stores!(runs_that_take_longer_are_told_until_one_takes_as_long_as_before);
