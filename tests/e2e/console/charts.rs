//! What the console draws of the past is what the service says, also after a restart.

use tollgate_harness::resources::{PARENT, http, once, policy, policy_name, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, Service, now_us, wait_for};
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1::{
    HistoryPoint, ListHistoryRequest, PausePolicyRequest, ReleaseMode, RetryPolicy, Schedule, Target,
};

use super::{Browser, short};

/// The columns of the table beside the time.
const COLUMNS: usize = 11;

/// Columns of the table, in its order.
fn columns(point: &HistoryPoint) -> [u64; COLUMNS] {
    [
        point.due_count,
        point.started_count,
        point.retried_count,
        point.succeeded_count,
        point.failed_count,
        point.dead_count,
        point.lost_count,
        point.expired_count,
        point.cancelled_count,
        point.waiting_count,
        point.held_count,
    ]
}

/// What the service says of the last hour, minutes in which something was counted only.
async fn said(service: &Service, parent: &str) -> Vec<[u64; COLUMNS]> {
    let request = ListHistoryRequest {
        parent: parent.to_owned(),
        from_time: Some(timestamp(now_us() - 3_500_000_000)),
        to_time: Some(timestamp(now_us())),
        ..ListHistoryRequest::default()
    };
    let points = service.handler().list_history(request).await.unwrap().into_inner().points;
    points.iter().map(columns).filter(|columns| columns.iter().any(|n| *n > 0)).collect()
}

/// The rows of a page's table, earliest first.
fn table(text: &str) -> Vec<[u64; COLUMNS]> {
    let (_, rest) = text.split_once("id=\"numbers\"").unwrap();
    let (table, _) = rest.split_once("</details>").unwrap();
    let rows = table.split("<tr>").skip(2).map(|row| {
        let cells = row.split("<td class=\"n\">").skip(1).map(|cell| {
            let (cell, _) = cell.split_once("</td>").unwrap();
            let digits: String = cell.split(['<', '>']).filter(|part| !part.contains("span")).collect();
            digits.replace(',', "").parse().unwrap()
        });
        cells.collect::<Vec<u64>>().try_into().unwrap()
    });
    let mut rows: Vec<_> = rows.collect();
    rows.reverse();
    rows
}

async fn agree(service: &Service, browser: &Browser, parent: &str, path: &str) {
    wait_for(&format!("the numbers of {path}"), 30, async || {
        let before = said(service, parent).await;
        let shown = table(&browser.page(path).await.text);
        // What is counted meanwhile is not held against the page.
        (shown == before && before == said(service, parent).await).then_some(())
    })
    .await;
}

async fn charts_are_what_the_service_says(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer = Consumer::start(link.clone(), Releases::Unary, |arrival| {
        if arrival.schedule == "batch" && arrival.index % 4 == 0 {
            Conduct::Answer(400)
        } else {
            Conduct::work(0..20)
        }
    })
    .await;
    service.create_policy("p", policy(10)).await.unwrap();
    service.create_policy("idle", policy(10)).await.unwrap();
    let retry = RetryPolicy { max_attempts: Some(1), ..RetryPolicy::default() };
    let batch = Schedule { retry: Some(retry), ..once(soon(1_000), 20, "p", http(&consumer)) };
    service.create_schedule("batch", batch).await.unwrap();
    service.create_schedule("free", once(soon(1_000), 8, "", http(&consumer))).await.unwrap();
    let run = service.finished("batch", 60).await;
    service.finished("free", 60).await;
    let p = policy_name("p");
    // Their ends may stand in another minute than their starts, and be written later.
    wait_for("the history of both runs", 60, async || {
        let sums = |said: Vec<[u64; COLUMNS]>| {
            let sum = |column: usize| said.iter().map(|row| row[column]).sum::<u64>();
            (sum(1), sum(3) + sum(5))
        };
        let (of_policy, all) = (said(&service, &p).await, said(&service, PARENT).await);
        (sums(of_policy) == (20, 20) && sums(all) == (28, 28)).then_some(())
    })
    .await;
    let mut browser = Browser::new(&service);
    for restarted in [false, true] {
        if restarted {
            service.kill9();
            service = Service::start(&database).await;
            link.follow(&service);
            browser = Browser::new(&service);
        }
        agree(&service, &browser, &p, "/n/default/policies/p?span=1h").await;
        agree(&service, &browser, PARENT, "/n/default/history?span=1h").await;
        let page = browser.page("/n/default/policies/p?span=1h").await;
        page.shows(&["The last hour", "by the minute: 20 in all", "by the minute: 5 in all", "5 dead"]);
        let page = browser.page("/n/default/policies/idle").await;
        page.shows(&["Started: first attempts, ", ": none.", "Nothing was counted in this time."]);
        // What has no policy is the namespace's.
        browser.in_time("/n/default", "by the minute: 28 in all").await.shows(&["by 15 minutes: 28 in all"]);
        for (span, words) in [
            ("6h", "by 5 minutes: 20 in all"),
            ("7d", "by 2 hours: 20 in all"),
            ("45d", "by 12 hours: 20 in all"),
        ] {
            browser.page(&format!("/n/default/policies/p?span={span}")).await.shows(&[words]);
        }
        let page = browser.page("/n/default/schedules/batch?span=6h").await;
        page.shows(&[
            "Past runs of the last 6 hours",
            "All under ",
            "in the last 6 hours",
            "by 5 minutes: 20 in all",
        ]);
        browser.page("/n/default/schedules/free").await.shows(&["All of default", "28 in all"]);
        browser
            .page(&format!("/n/default/runs/{}", short(&run.name)))
            .await
            .shows(&["meanwhile", "20 in all"]);
    }
    consumer.notes.assert_sound();
    service.stop().await;
}

/// What does not go on says so, where somebody looks for its end.
async fn ends_are_expected_or_it_is_said_why_not(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("stopped", policy(2)).await.unwrap();
    let pause = PausePolicyRequest {
        name: policy_name("stopped"),
        reason: "the disk is full".to_owned(),
        ..Default::default()
    };
    service.master().pause_policy(pause).await.unwrap();
    service.create_schedule("batch", once(soon(500), 9, "stopped", http(&consumer))).await.unwrap();
    let target = Target { release: ReleaseMode::Explicit.into(), ..http(&consumer) };
    service.create_schedule("free", once(soon(500), 7, "", target)).await.unwrap();
    let browser = Browser::new(&service);
    let page = browser.in_time("/n/default/policies/stopped", "What waits now will have started").await;
    page.shows(&["never, while the policy stopped is paused", "Refused/s", "Unclear/s"]);
    let run = service.runs("batch").await.remove(0);
    let page = browser.page(&format!("/n/default/runs/{}", short(&run.name))).await;
    page.shows(&["Its last event will have ended", "never, while the policy stopped is paused"]);
    browser
        .page("/n/default/runs")
        .await
        .shows(&["Expected end", "never, while the policy stopped is paused"]);
    // What runs without a policy counts in its namespace, and in no other.
    let now =
        browser.in_time("/n/default", "Of these, without a policy: 0 events waiting, 7 in flight").await;
    now.shows(&["<dt>Events waiting</dt><dd>9</dd>", "<dt>In flight</dt><dd>7</dd>"]);
    let other = browser.page("/n/empty").await;
    other.shows(&["<dt>Events waiting</dt><dd>0</dd>", "<dt>In flight</dt><dd>0</dd>"]);
    assert!(!other.text.contains("id=\"without\""), "{}", other.text);
    service.stop().await;
}

on_both_stores!(charts_are_what_the_service_says, ends_are_expected_or_it_is_said_why_not);
