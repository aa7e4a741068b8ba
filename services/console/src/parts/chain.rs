//! The chain in which a schedule stands, as one picture: what it follows, what follows it, and who waits for whom.
//!
//! In: the schedule, and of each other one in its chain its latest run, from the API. Out: a list in the order of the chain.
//! What it follows stands side by side, as these do not follow one another.

use futures::future::join_all;
use maud::{Markup, html};
use tollgate_proto::v1;

use crate::requests::links::to;
use crate::requests::visit::Visit;
use crate::words::show::{counted, run_state, short};

/// The most schedules of one chain.
const PLACES_MAX: usize = 8;

/// A schedule in the picture.
pub(crate) struct Link {
    name: String,
    latest: Option<v1::Run>,
}

/// See the head of this file.
pub(crate) struct Chain {
    before: Vec<Link>,
    /// The schedule itself, and what follows it, with the condition of each but the first.
    after: Vec<(Option<v1::FinishCondition>, Link)>,
}

/// The chain of a schedule; none where it stands alone.
pub(crate) async fn read(visit: &Visit, schedule: &v1::Schedule) -> Option<Chain> {
    if schedule.on_finish.is_none() && schedule.follows.is_empty() {
        return None;
    }
    let before = join_all(schedule.follows.iter().map(|name| link(visit, name))).await;
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
                @if !chain.before.is_empty() {
                    li { @for link in &chain.before { (node(link, false)) } }
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
    let first = chain.after.first().map(|(_, link)| link);
    let here = chain.before.iter().filter_map(|before| first.map(|first| (before, first)));
    let pairs = here.chain(chain.after.windows(2).map(|pair| (&pair[0].1, &pair[1].1)));
    let wait = |(before, after): (&Link, &Link)| {
        let run = before.latest.as_ref().filter(|run| run.finish_time.is_none())?;
        let left = run.waiting_count + run.in_flight_count;
        let (before, after) = (short(&before.name), short(&after.name));
        Some(format!("{after} waits for the end of {before}, of which {} left.", are(left)))
    };
    pairs.filter_map(wait).collect()
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
            before: vec![link("a", Some(3)), link("b", Some(0)), link("c", None)],
            after: vec![(None, link("d", Some(1))), (when, link("e", Some(0))), (when, link("f", None))],
        };
        let expected = [
            "d waits for the end of a, of which 3 events are left.",
            "e waits for the end of d, of which 1 event is left.",
        ];
        assert_eq!(waits(&chain), expected);
        let page = picture(&chain).into_string();
        assert!(page.contains("always") && page.contains("no run yet"), "{page}");
    }
}
