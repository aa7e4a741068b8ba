//! The chain in which a schedule stands, as one picture: what it follows, what follows it, and who waits for whom.
//!
//! In: the schedule, and of each other one in its chain its latest run, from the API. Out: a list in the order of the chain.
//! Schedules that the same one may follow stand side by side, as these do not follow one another.

use std::collections::BTreeSet;

use futures::future::{join, join_all};
use maud::{Markup, html};
use tollgate_proto::v1;

use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::show::{counted, run_state, short};

/// The most schedules of one chain.
const PLACES_MAX: usize = 8;
/// The most schedules before one that are shown.
const BEFORE_MAX: usize = 40;

/// A schedule in the picture.
pub(crate) struct Link {
    name: String,
    latest: Option<v1::Run>,
}

/// See the head of this file.
pub(crate) struct Chain {
    /// What it follows, place by place, each with the name of what follows it.
    before: Vec<Vec<(String, Link)>>,
    /// The schedule itself, and what follows it, with the condition of each but the first.
    after: Vec<(Option<v1::FinishCondition>, Link)>,
}

/// The chain of a schedule; none where it stands alone.
pub(crate) async fn read(visit: &Visit, schedule: &v1::Schedule) -> Option<Chain> {
    if schedule.on_finish.is_none() && schedule.follows.is_empty() {
        return None;
    }
    let before = read_before(visit, schedule).await;
    let mut names = vec![(None, schedule.name.clone())];
    let mut next = schedule.on_finish.clone();
    while let Some(on_finish) = next.take()
        && names.len() < PLACES_MAX
    {
        names.push((Some(on_finish.when()), on_finish.schedule.clone()));
        next = visit.api.schedule(&on_finish.schedule).await.ok().and_then(|schedule| schedule.on_finish);
    }
    let after = names.into_iter().map(async |(when, name)| (when, link(visit, &name).await));
    Some(Chain { before, after: join_all(after).await })
}

/// What a schedule follows, the first place first.
async fn read_before(visit: &Visit, schedule: &v1::Schedule) -> Vec<Vec<(String, Link)>> {
    let mut places = Vec::new();
    let mut seen = BTreeSet::from([schedule.name.clone()]);
    let pairs = |follows: Vec<String>, next: &str| -> Vec<(String, String)> {
        follows.into_iter().map(|name| (name, next.to_owned())).collect()
    };
    let mut place = pairs(schedule.follows.clone(), &schedule.name);
    while !place.is_empty() && places.len() + 1 < PLACES_MAX {
        place.retain(|(name, _)| seen.len() <= BEFORE_MAX && seen.insert(name.clone()));
        let one = async |(name, next): (String, String)| {
            let (link, schedule) = join(link(visit, &name), visit.api.schedule(&name)).await;
            (next, link, schedule.map(|schedule| schedule.follows).unwrap_or_default())
        };
        let read = join_all(std::mem::take(&mut place).into_iter().map(one)).await;
        let mut links = Vec::with_capacity(read.len());
        for (next, link, follows) in read {
            place.extend(pairs(follows, &link.name));
            links.push((next, link));
        }
        places.push(links);
    }
    places.retain(|links| !links.is_empty());
    places.reverse();
    places
}

async fn link(visit: &Visit, name: &str) -> Link {
    let runs = visit.api.runs(visit.parent(), &format!("schedule={}", short(name)), 1, "").await;
    Link { name: name.to_owned(), latest: runs.ok().and_then(|page| page.runs.into_iter().next()) }
}

/// The picture.
pub(crate) fn picture(chain: &Chain) -> Markup {
    html! {
        section aria-labelledby="h-chain" {
            h2 #h-chain { "Chain" }
            ol.chain {
                @for place in &chain.before {
                    li { @for (_, link) in place { (node(link, false)) } }
                }
                @for (place, (when, link)) in chain.after.iter().enumerate() {
                    li {
                        @if let Some(when) = when { p.mute { (condition(*when)) } }
                        (node(link, place == 0))
                    }
                }
            }
            @for text in waits(chain) { p { (text) } }
        }
    }
}

fn node(link: &Link, is_here: bool) -> Markup {
    html! {
        div.step aria-current=[is_here.then_some("true")] {
            @if is_here { strong { (short(&link.name)) } } @else { a href=(to(&link.name)) { (short(&link.name)) } }
            @match &link.latest {
                Some(run) => { p { a href=(to(&run.name)) { (run_state(run)) } } }
                None => { p.mute { "no run yet" } }
            }
        }
    }
}

/// After what end of the one before.
fn condition(when: v1::FinishCondition) -> &'static str {
    match when {
        v1::FinishCondition::AnyFailed => "if any failed",
        v1::FinishCondition::Always => "always",
        _ => "if all succeeded",
    }
}

/// Who waits for whom: each step behind one of which a run goes on.
fn waits(chain: &Chain) -> Vec<String> {
    let before = chain.before.iter().flatten().map(|(next, link)| (link, next.as_str()));
    let after = chain.after.windows(2).map(|pair| (&pair[0].1, pair[1].1.name.as_str()));
    let wait = |(before, next): (&Link, &str)| {
        let run = before.latest.as_ref().filter(|run| run.finish_time.is_none())?;
        let left = run.waiting_count + run.in_flight_count;
        let (before, after) = (short(&before.name), short(next));
        Some(format!("{after} waits for the end of {before}, of which {} left.", are(left)))
    };
    before.chain(after).filter_map(wait).collect()
}

fn are(events: u32) -> String {
    format!("{} {}", counted(events, "event"), if events == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(id: &str, left: Option<u32>) -> Link {
        let latest = left.map(|left| v1::Run {
            waiting_count: left,
            finish_time: (left == 0).then(Default::default),
            ..v1::Run::default()
        });
        Link { name: format!("namespaces/default/schedules/{id}"), latest }
    }

    #[test]
    fn who_waits_for_whom_is_said() {
        let when = Some(v1::FinishCondition::Always);
        let chain = Chain {
            before: vec![
                vec![("b".to_owned(), link("top", Some(2)))],
                vec![("d".to_owned(), link("a", Some(3))), ("d".to_owned(), link("b", Some(0)))],
            ],
            after: vec![(None, link("d", Some(1))), (when, link("e", Some(0))), (when, link("f", None))],
        };
        let expected = [
            "b waits for the end of top, of which 2 events are left.",
            "d waits for the end of a, of which 3 events are left.",
            "e waits for the end of d, of which 1 event is left.",
        ];
        assert_eq!(waits(&chain), expected);
        let page = picture(&chain).into_string();
        assert!(page.contains("always") && page.contains("no run yet"), "{page}");
    }
}
