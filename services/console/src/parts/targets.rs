//! The targets of a namespace as they are now: those that refuse first, the idle ones left out.

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::picture::number;
use crate::requests::links::workers;
use crate::requests::visit::Visit;
use crate::words::show::{count, duration, moment, rate, short, tag};

/// How many targets are shown.
const SHOWN_MAX: usize = 20;

/// Nothing where nothing happens at any.
pub(crate) fn targets(now_us: i64, status: &v1::HandlerStatus, namespace: &str) -> Markup {
    let busy: Vec<&v1::TargetGauge> =
        status.targets.iter().filter(|gauge| is_of(gauge, namespace) && is_busy(gauge)).collect();
    let more = busy.len().saturating_sub(SHOWN_MAX) as u64 + u64::from(status.omitted_targets_count);
    html! {
        @if !busy.is_empty() {
            section #targets aria-labelledby="h-targets" {
                h2 #h-targets { "Targets" @if busy.len() > 1 { ", those that refuse first" } }
                (table(now_us, &busy))
                @if more > 0 { p.mute { "And " (count(more)) " more, at which less waits." } }
            }
        }
    }
}

/// What waits for workers of a queue, or of all queues where none is named; nothing where that is nothing.
pub(crate) fn pulled(now_us: i64, status: &v1::HandlerStatus, namespace: &str, queue: &str) -> Markup {
    let is_wanted = |gauge: &&v1::TargetGauge| {
        let of = queue_of(&gauge.target);
        is_of(gauge, namespace) && is_busy(gauge) && of.is_some_and(|of| queue.is_empty() || queue == of)
    };
    let busy: Vec<&v1::TargetGauge> = status.targets.iter().filter(is_wanted).collect();
    html! {
        @if !busy.is_empty() {
            section aria-labelledby="h-targets" {
                h2 #h-targets { "What they take, and what waits for them" }
                (table(now_us, &busy))
            }
        }
    }
}

/// The queue of workers that a target is, without what is required of them.
fn queue_of(target: &str) -> Option<&str> {
    let queue = target.strip_prefix("pull:")?;
    Some(queue.split_once(' ').map_or(queue, |(queue, _)| queue))
}

fn is_of(gauge: &v1::TargetGauge, namespace: &str) -> bool {
    gauge.parent.strip_prefix("namespaces/") == Some(namespace)
}

fn is_busy(gauge: &v1::TargetGauge) -> bool {
    gauge.held_count + gauge.waiting_count > 0 || gauge.accepted_per_second + failed(gauge) > 0.0
}

/// Deliveries per second that did not go well.
fn failed(gauge: &v1::TargetGauge) -> f64 {
    (gauge.refused_per_second + gauge.unclear_per_second).max(0.0)
}

fn table(now_us: i64, busy: &[&v1::TargetGauge]) -> Markup {
    html! {
        div.scroll role="group" aria-labelledby="h-targets" tabindex="0" {
            table.wide.cards {
                thead {
                    tr {
                        th scope="col" { "Target" }
                        th.n scope="col" { "In flight" }
                        th.n scope="col" { "Waiting" }
                        th.n scope="col" { "Oldest wait" }
                        th.n scope="col" { "To be tried again" }
                        th.n scope="col" { "Started/s" }
                        th.n scope="col" { "Refused/s" }
                        th scope="col" { "Latest failure" }
                    }
                }
                tbody { @for gauge in busy.iter().take(SHOWN_MAX) { (row(now_us, gauge)) } }
            }
        }
    }
}

fn row(now_us: i64, gauge: &v1::TargetGauge) -> Markup {
    let cell = |label: &str, n: u64, class: &'static str| {
        let class = if n > 0 { class } else { "mute" };
        html! { td.n.zero[n == 0] data-label=(label) { span class=(class) { (count(n)) } } }
    };
    let refused = failed(gauge);
    html! {
        tr {
            th scope="row" {
                @match (gauge.target.as_str(), queue_of(&gauge.target)) {
                    ("", _) => { "All others together" }
                    (target, None) => { code { (target) } }
                    (target, Some(queue)) => { a href=(workers(short(&gauge.parent), queue)) { code { (target) } } }
                }
                @if gauge.refusing { " " (tag("refusing", "bad")) }
            }
            (cell("In flight", gauge.held_count, ""))
            (cell("Waiting", gauge.waiting_count, ""))
            td.n.zero[gauge.waiting_count == 0] data-label="Oldest wait" {
                @if gauge.waiting_count > 0 { (duration(gauge.oldest_wait.as_ref())) }
            }
            (cell("To be tried again", gauge.retrying_count, "warn"))
            td.n.zero[gauge.started_per_second < 0.05] data-label="Started/s" {
                (rate(gauge.started_per_second.max(0.0)))
            }
            td.n.zero[refused == 0.0] data-label="Refused/s" {
                span class=(if refused > 0.0 { "bad" } else { "mute" }) { (rate(refused)) }
            }
            td.text data-label=[(!gauge.last_error.is_empty()).then_some("Latest failure")] {
                @if !gauge.last_error.is_empty() {
                    (moment(now_us, gauge.last_error_time.as_ref())) ": " (gauge.last_error)
                }
            }
        }
    }
}

/// How a schedule's target is, with all that its namespace sends there; nothing where nobody knows of it.
pub(crate) async fn of_schedule(visit: &Visit, schedule: &v1::Schedule) -> Markup {
    let status = visit.api.handler_status(visit.parent()).await.unwrap_or_default();
    let target = schedule.target.as_ref().and_then(|target| target.target.as_ref());
    let own = status.targets.iter().find(|gauge| is_of(gauge, &visit.ns) && goes_to(target, &gauge.target));
    html! { @if let Some(gauge) = own { (line(visit.now_us, gauge)) } }
}

fn line(now_us: i64, gauge: &v1::TargetGauge) -> Markup {
    let per_second = |n: f64| html! { (rate(n.max(0.0))) };
    let refused = failed(gauge);
    html! {
        section #target aria-labelledby="h-target" {
            h2 #h-target { "Its target, with other schedules of the namespace" }
            p { code { (gauge.target) } @if gauge.refusing { " " (tag("refusing", "bad")) } }
            dl.numbers.small aria-label="Per second, over the last minute" {
                (number("Started/s", per_second(gauge.started_per_second), ""))
                (number("Accepted/s", per_second(gauge.accepted_per_second), ""))
                (number("Refused or unclear/s", per_second(refused), if refused > 0.0 { "bad" } else { "" }))
            }
            @if !gauge.last_error.is_empty() {
                p { strong { "Latest failure" } ", " (moment(now_us, gauge.last_error_time.as_ref())) ": " (gauge.last_error) }
            }
        }
    }
}

/// Whether a schedule's target is at this address.
fn goes_to(target: Option<&v1::target::Target>, address: &str) -> bool {
    match target {
        Some(v1::target::Target::Http(http)) => {
            let rest = http.url.strip_prefix(address).filter(|_| !address.is_empty());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
        }
        Some(v1::target::Target::Sqs(sqs)) => sqs.queue_url == address,
        Some(v1::target::Target::Kafka(kafka)) => kafka.address() == address,
        Some(v1::target::Target::Pull(pull)) => pull.address() == address,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(namespace: &str, target: &str, waiting_count: u64) -> v1::TargetGauge {
        v1::TargetGauge {
            parent: format!("namespaces/{namespace}"),
            target: target.to_owned(),
            waiting_count,
            ..v1::TargetGauge::default()
        }
    }

    #[test]
    fn busy_targets_of_the_namespace_are_shown_and_what_they_say_is_no_markup() {
        let sick = v1::TargetGauge {
            refusing: true,
            refused_per_second: 0.5,
            last_error: "<b>full</b>".to_owned(),
            ..gauge("a", "http://sick", 3)
        };
        let targets = vec![
            sick,
            gauge("a", "http://well", 1),
            gauge("a", "", 9),
            gauge("a", "http://idle", 0),
            gauge("ab", "http://foreign", 5),
        ];
        let mut status = v1::HandlerStatus { targets, ..v1::HandlerStatus::default() };
        let drawn = targets_of(&status);
        for part in ["http://sick", "refusing", "&lt;b&gt;full", "http://well", "All others together"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        for part in ["idle", "foreign", "more"] {
            assert!(!drawn.contains(part), "{part}: {drawn}");
        }
        status.omitted_targets_count = 1_200;
        assert!(targets_of(&status).contains("And 1,200 more"));
        assert_eq!(targets_of(&v1::HandlerStatus::default()), "");
    }

    fn targets_of(status: &v1::HandlerStatus) -> String {
        targets(0, status, "a").into_string()
    }

    #[test]
    fn a_queue_of_workers_leads_to_them() {
        let targets = vec![
            gauge("a", "pull:render [eu, gpu]", 3),
            gauge("a", "pull:audio", 1),
            gauge("b", "pull:render", 9),
            gauge("a", "http://well", 1),
        ];
        let status = v1::HandlerStatus { targets, ..v1::HandlerStatus::default() };
        let drawn = targets_of(&status);
        for part in ["/n/a/workers?queue=render\"", "/n/a/workers?queue=audio\"", "pull:render [eu, gpu]"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        let all = pulled(0, &status, "a", "").into_string();
        assert!(all.contains("render [eu") && all.contains("audio") && !all.contains("well"), "{all}");
        let one = pulled(0, &status, "a", "audio").into_string();
        assert!(!one.contains("render") && one.contains("audio"), "{one}");
        assert_eq!(pulled(0, &status, "a", "mail").into_string(), "");
    }

    #[test]
    fn an_address_is_no_mere_beginning_of_another() {
        let http = |url: &str| {
            let http = v1::HttpTarget { url: url.to_owned(), ..v1::HttpTarget::default() };
            Some(v1::target::Target::Http(http))
        };
        for (url, address, goes) in [
            ("http://shop/orders", "http://shop", true),
            ("http://shop?x", "http://shop", true),
            ("http://shop:80", "http://shop:80", true),
            ("http://shop:8080/", "http://shop:80", false),
            ("http://shop/", "", false),
        ] {
            assert_eq!(goes_to(http(url).as_ref(), address), goes, "{url}");
        }
    }
}
