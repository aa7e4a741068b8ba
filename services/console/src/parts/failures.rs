//! Events that did not end well, by what was said of them: one line for a hundred that failed in the same way.

use std::collections::BTreeMap;

use maud::{Markup, html};
pub(crate) use tollgate_core::failure::reason as normalised;
use tollgate_proto::v1;

use crate::requests::api::Api;
use crate::requests::links::to;
use crate::words::show::{count, event_state, seen, us};

/// How many events of a state are read.
pub(crate) const READ_MAX: i32 = 1_000;
/// How many groups are shown.
const GROUPS_MAX: usize = 20;

/// Events that ended in one way with one kind of message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    state: v1::EventState,
    /// As [`normalised`] makes it.
    like: String,
    /// The message of one of them.
    example: String,
    /// That one.
    event: String,
    count: u64,
    first_us: i64,
    last_us: i64,
}

/// The events of a run that did not end well, grouped.
pub(crate) struct Failures {
    groups: Vec<Group>,
    /// Of a state there were more than are read.
    cut: bool,
}

/// Groups events, the most first.
fn grouped(events: &[v1::Event]) -> Vec<Group> {
    let mut groups: BTreeMap<(i32, String), Group> = BTreeMap::new();
    for event in events {
        let like = normalised(&event.message);
        let at_us = event.finish_time.as_ref().map(us).unwrap_or_default();
        let group = groups.entry((event.state, like.clone())).or_insert_with(|| Group {
            state: event.state(),
            like,
            example: event.message.clone(),
            event: event.name.clone(),
            count: 0,
            first_us: at_us,
            last_us: at_us,
        });
        group.count += 1;
        group.first_us = group.first_us.min(at_us);
        group.last_us = group.last_us.max(at_us);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    groups
}

/// Reads what did not end well of a run; nothing is read where its counts say that there is nothing.
pub(crate) async fn failures(api: &Api, run: &v1::Run) -> Failures {
    let counts = run.counts.unwrap_or_default();
    let states = [
        ("DEAD", counts.dead),
        ("FAILED", counts.failed),
        ("LOST", counts.lost),
        ("EXPIRED", counts.expired),
    ];
    let mut found = Failures { groups: Vec::new(), cut: false };
    for (state, _) in states.into_iter().filter(|(_, count)| *count > 0) {
        let Ok(read) = api.events(&run.name, &format!("state={state}"), READ_MAX, "").await else { continue };
        found.groups.extend(grouped(&read.events));
        found.cut |= !read.next_page_token.is_empty();
    }
    found
}

/// The groups, with the way to try each again.
pub(crate) fn table(now_us: i64, run: &v1::Run, failures: &Failures) -> Markup {
    html! {
        @if !failures.groups.is_empty() {
            section #failures aria-labelledby="h-failures" {
                h2 #h-failures { "What went wrong" }
                div.scroll role="group" aria-labelledby="h-failures" tabindex="0" {
                    table.wide {
                        thead {
                            tr {
                                th.n scope="col" { "Events" }
                                th scope="col" { "State" }
                                th scope="col" { "What was said" }
                                th.opt scope="col" { "First" }
                                th scope="col" { "Last" }
                                th scope="col" { span.hidden { "Act" } }
                            }
                        }
                        tbody { @for group in failures.groups.iter().take(GROUPS_MAX) { (row(now_us, run, group)) } }
                    }
                }
                @if failures.groups.len() > GROUPS_MAX {
                    p.mute { (count((failures.groups.len() - GROUPS_MAX) as u64)) " more sorts are left out." }
                }
                @if failures.cut {
                    p.mute { "Counted among the first " (count(READ_MAX.unsigned_abs())) " events of each state; there are more." }
                }
            }
        }
    }
}

fn row(now_us: i64, run: &v1::Run, group: &Group) -> Markup {
    html! {
        tr {
            td.n { strong { (count(group.count)) } " ×" }
            td { (event_state(group.state)) }
            th.text scope="row" {
                a href=(to(&group.event)) {
                    @if group.count > 1 || group.example.is_empty() { (group.like) } @else { (group.example) }
                }
            }
            td.opt { (seen(now_us, group.first_us)) }
            td { (seen(now_us, group.last_us)) }
            td.act {
                @if group.state == v1::EventState::Dead {
                    form.ask method="post" action=(to(&run.name)) {
                        input type="hidden" name="like" value=(group.like);
                        button type="submit" name="action" value="retry" { "Try again…" }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_alike_is_one_line() {
        let event = |message: &str, state: v1::EventState| v1::Event {
            message: message.to_owned(),
            state: state.into(),
            ..v1::Event::default()
        };
        let mut events: Vec<v1::Event> = (0..120)
            .map(|n| {
                event(&format!("HTTP 500: row {} of database is read-only", 10_000 + n), v1::EventState::Dead)
            })
            .collect();
        events.push(event("HTTP 503: busy", v1::EventState::Dead));
        let groups = grouped(&events);
        let shown: Vec<(u64, &str)> = groups.iter().map(|group| (group.count, group.like.as_str())).collect();
        assert_eq!(shown, [(120, "HTTP 500: row … of database is read-only"), (1, "HTTP 503: busy")]);
        assert_eq!(normalised("event 0a-0123456789abcdef0123 refused"), "event … refused");
    }
}
