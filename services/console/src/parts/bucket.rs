//! The events that hold a policy's tokens, beside how long tokens are usually held, and the schedules that wait for them.

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::release::outcome_field;
use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::show::{clipped, count, counted, duration, event_state, moment, ms, seen, short, tag, us};

/// The widest bar, in thousandths.
const WIDE: i64 = 1_000;

/// Holders, longest first, each age as a bar with a line at what 99 of 100 stay below.
pub(crate) fn holders(visit: &Visit, policy: &v1::Policy, queue: &v1::PolicyQueue) -> Markup {
    let ages = queue.holders.iter().filter_map(|holder| holder.age.as_ref()).map(ms);
    let p99 = queue.hold_p99.as_ref().map(ms);
    let longest = ages.chain(p99).max().unwrap_or(1).max(1);
    let has_units = queue.holders.iter().any(|holder| holder.units > 1);
    html! {
        section aria-labelledby="h-holders" {
            h2 #h-holders { "Who holds tokens, longest first" }
            @if let (Some(p50), Some(p99)) = (&queue.hold_p50, &queue.hold_p99) {
                p.mute {
                    "Of the latest " (counted(queue.holds_sampled_count, "event")) " that ended, half held their token for at most "
                    (duration(Some(p50))) " and 99 of 100 for at most " (duration(Some(p99))) ": the line in the bars."
                }
            }
            @if queue.holders.is_empty() {
                p.mute { "Nobody." }
            } @else {
                div.scroll role="group" aria-labelledby="h-holders" tabindex="0" {
                    table.wide.cards.named {
                        thead {
                            tr {
                                th scope="col" { "Event" }
                                th scope="col" { "Schedule" }
                                th scope="col" { "State" }
                                @if has_units { th.n scope="col" { "Tokens" } }
                                th.n scope="col" { "Held for" }
                                th.gauge-cell.opt scope="col" { "Beside the p99 of holds" }
                                th scope="col" { "If it stays silent" }
                                th scope="col" { span.hidden { "Action" } }
                            }
                        }
                        tbody { @for holder in &queue.holders { (holder_row((visit, policy), holder, has_units, p99, longest)) } }
                    }
                }
                @if queue.holders_read_count as usize > queue.holders.len() {
                    p.mute { "The " (queue.holders.len()) " that have held theirs longest, of " (count(queue.holders_read_count)) "." }
                }
            }
            @if queue.incomplete { p.mute { "There is more under this policy than is read for one page: some may be missing." } }
        }
    }
}

fn holder_row(
    (visit, policy): (&Visit, &v1::Policy),
    holder: &v1::Holder,
    has_units: bool,
    p99: Option<i64>,
    longest: i64,
) -> Markup {
    let id = short(&holder.event);
    let age = holder.age.as_ref().map(ms).unwrap_or_default();
    let beyond = p99.is_some_and(|p99| age > p99);
    html! {
        tr id={ "h-" (id) } {
            th.id scope="row" { a href=(to(&holder.event)) title=(id) { (clipped(id)) } }
            td { a href=(to(&holder.schedule)) { (short(&holder.schedule)) } }
            td {
                (event_state(holder.state()))
                @if holder.state() == v1::EventState::Acquired { " " span.mute { "delivery under way" } }
            }
            @if has_units { td.n data-label="Tokens" { (holder.units) } }
            td.n data-label="Held for" { (duration(holder.age.as_ref())) @if beyond { span.hidden { ", longer than 99 of 100" } } }
            td.gauge-cell.opt { (age_bar(age, p99, longest, beyond)) }
            td data-label="If it stays silent" {
                @match (&holder.expire_time, policy.reclaim()) {
                    (Some(at), _) => { (seen(visit.now_us, us(at))) }
                    (None, v1::Reclaim::Never) => { span.mute { "nothing: an operator frees it" } }
                    (None, _) => {}
                }
            }
            td {
                details.free id={ "f-" (id) } {
                    summary { "Free…" span.hidden { " the token of " (id) } }
                    form method="post" action=(to(&policy.name)) data-keep {
                        input type="hidden" name="event" value=(holder.event);
                        (outcome_field(id))
                        label for={ "m-" (id) } { "Reason" }
                        input id={ "m-" (id) } name="reason" required maxlength="1000" autocomplete="off";
                        button.danger type="submit" name="action" value="release" { "Free the token" }
                    }
                }
            }
        }
    }
}

fn age_bar(age: i64, p99: Option<i64>, longest: i64, beyond: bool) -> Markup {
    let place = |ms: i64| (ms.saturating_mul(WIDE) / longest).clamp(0, WIDE);
    html! {
        svg.gauge viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="1000" height="10" {}
            rect class=(if beyond { "long" } else { "fill" }) width=(place(age).max(4)) height="10" {}
            @if let Some(p99) = p99 { rect.p99 x=(place(p99).min(WIDE - 6)) width="6" height="10" {} }
        }
    }
}

/// What the events of each key hold and wait for; nothing where the policy says nothing of keys.
pub(crate) fn keys(visit: &Visit, queue: &v1::PolicyQueue) -> Markup {
    if queue.keys.is_empty() {
        return Markup::default();
    }
    html! {
        section aria-labelledby="h-keys" {
            h2 #h-keys { "Keys, most waiting events first" }
            div.scroll role="group" aria-labelledby="h-keys" tabindex="0" {
                table.wide.cards.named {
                    thead {
                        tr {
                            th scope="col" { "Key" }
                            th.n scope="col" { "In flight" }
                            th.n scope="col" { "At most" }
                            th.n scope="col" { "Per second at most" }
                            th.n scope="col" { "Turns in a row" }
                            th.n scope="col" { "Waiting" }
                            th scope="col" { "Oldest" }
                            th scope="col" { "State" }
                        }
                    }
                    tbody { @for key in &queue.keys { (key_row(visit, key)) } }
                }
            }
            @if queue.keys_read_count as usize > queue.keys.len() {
                p.mute { "The first " (queue.keys.len()) " of " (counted(queue.keys_read_count, "key")) "." }
            }
            @if queue.keys_unread_count > 0 {
                p.mute { "The keys of " (queue.keys_unread_count) " more waiting events have not been read yet." }
            }
        }
    }
}

fn key_row(visit: &Visit, key: &v1::PolicyKey) -> Markup {
    let since_us = key.oldest_wait.as_ref().map(|wait| visit.now_us - ms(wait) * 1_000);
    html! {
        tr {
            th.id scope="row" { @if key.key.is_empty() { span.mute { "without a key" } } @else { (key.key) } }
            td.n data-label="In flight" { (count(key.held_count)) }
            td.n data-label="At most" { @if let Some(limit) = key.max_in_flight { (count(limit)) } }
            td.n data-label="Per second at most" { @if let Some(rate) = key.rate_per_second { (rate) } }
            td.n data-label="Turns in a row" { (key.weight) }
            td.n data-label="Waiting" { (count(key.waiting_count)) }
            td data-label="Oldest" { @if let Some(since_us) = since_us { (seen(visit.now_us, since_us)) } }
            td {
                @if key.paused { (tag("warn", "PAUSED")) @if !key.reason.is_empty() { " " (key.reason) } }
                @else if key.max_in_flight.is_some_and(|limit| key.held_count >= limit) { (tag("warn", "FULL")) }
            }
        }
    }
}

/// Schedules that wait, in the order in which they go.
pub(crate) fn waiters(visit: &Visit, queue: &v1::PolicyQueue, now: Option<&v1::PolicyGauge>) -> Markup {
    let shared = shared_reason(&queue.waiters);
    let waiting = now.map_or(0, |now| now.waiting_count);
    html! {
        section aria-labelledby="h-waiters" {
            h2 #h-waiters { "Schedules that wait, in the order in which they go" }
            @if queue.waiters.is_empty() && waiting > 0 {
                p {
                    "Nobody waits for a token: " strong { (counted(waiting, "event")) }
                    " wait to be tried again, or until their consumers asked to look."
                }
            } @else if queue.waiters.is_empty() {
                p.mute { "Nobody: all that is due under this policy has started." }
            } @else {
                @if let Some(reason) = shared { p { (reason) "." } }
                div.scroll role="group" aria-labelledby="h-waiters" tabindex="0" {
                    table.wide.cards.named {
                        thead {
                            tr {
                                th.n scope="col" { "Priority" }
                                th scope="col" { "Schedule" }
                                th scope="col" { "Run, due" }
                                th.n scope="col" { "Waiting" }
                                th.n scope="col" { "Before its next" }
                                @if shared.is_none() { th scope="col" { "Why" } }
                                th scope="col" { "Finish by" }
                            }
                        }
                        tbody {
                            @for waiter in &queue.waiters { (waiter_row(visit, waiter, shared.is_none())) }
                        }
                    }
                }
                p.mute { "Higher priorities go first; schedules of the same priority take turns." }
                @if queue.waiters_read_count as usize > queue.waiters.len() {
                    p.mute { "The first " (queue.waiters.len()) " of " (counted(queue.waiters_read_count, "schedule")) " that wait." }
                }
            }
        }
    }
}

/// What all of them wait for, where it is the same: the sentence before the one about their places.
fn shared_reason(waiters: &[v1::PolicyWaiter]) -> Option<&str> {
    let mut reasons = waiters
        .iter()
        .map(|waiter| waiter.summary.split(". ").next().unwrap_or_default().trim_end_matches('.'));
    let first = reasons.next().filter(|first| !first.is_empty())?;
    (waiters.len() > 1 && reasons.all(|reason| reason == first)).then_some(first)
}

fn waiter_row(visit: &Visit, waiter: &v1::PolicyWaiter, with_reason: bool) -> Markup {
    let end_us = waiter.finish_by_time.as_ref().map(us);
    html! {
        tr id={ "w-" (short(&waiter.run)) } {
            td.n data-label="Priority" { (waiter.priority) }
            th scope="row" { a href=(to(&waiter.schedule)) { (short(&waiter.schedule)) } }
            td data-label="Due" { a href=(to(&waiter.run)) { (moment(visit.now_us, waiter.launch_time.as_ref())) } }
            td.n data-label="Waiting" {
                (count(waiter.waiting_count))
                @if waiter.runs_count > 1 { " " span.mute { "in " (waiter.runs_count) " runs" } }
            }
            td.n data-label="Before its next" {
                @match waiter.place_in_line {
                    0 => { "next" }
                    ahead @ 1.. => { (count(ahead.unsigned_abs())) }
                    _ => { span.mute { "–" } }
                }
            }
            @if with_reason {
                td.text {
                    @if !waiter.summary.is_empty() { a href=(to(&waiter.event)) { (waiter.summary) } }
                }
            }
            td data-label=[(end_us.is_some() || waiter.at_risk_count > 0).then_some("Finish by")] {
                @if let Some(end_us) = end_us { (seen(visit.now_us, end_us)) }
                @if waiter.at_risk_count > 0 { " " (tag("at risk", "bad")) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reason_of_many_is_said_once() {
        let waiter =
            |summary: &str| v1::PolicyWaiter { summary: summary.to_owned(), ..v1::PolicyWaiter::default() };
        let held = "It waits: all tokens are held";
        let same = [waiter(&format!("{held}. 3 events go before it.")), waiter(&format!("{held}."))];
        assert_eq!(shared_reason(&same), Some(held));
        assert_eq!(shared_reason(&[waiter(held), waiter("It waits: paused.")]), None);
        assert_eq!(shared_reason(&[waiter(held)]), None);
    }

    #[test]
    fn ages_stand_beside_the_p99() {
        let drawn = age_bar(500, Some(1_000), 2_000, false).into_string();
        assert!(
            drawn.contains(r#"class="fill" width="250""#) && drawn.contains(r#"x="500" width="6""#),
            "{drawn}"
        );
        let drawn = age_bar(2_000, Some(1_000), 2_000, true).into_string();
        assert!(drawn.contains(r#"class="long" width="1000""#), "{drawn}");
    }
}
