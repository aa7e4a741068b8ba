//! Policies that stand in trees: in which order they are shown, and one policy's tree with its bars.
//!
//! In: policies, or their buckets. Out: places, rows. Invariant: each policy has one place. One whose parent is not among them
//! has the place of a root.

use std::collections::BTreeMap;

use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::picture::tree_gauge;
use crate::requests::links::to;
use crate::words::show::{count, short};

/// How far in the deepest level is shown.
const DEEPEST: usize = 3;

/// The place of a policy among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which of them it is.
    pub(crate) index: usize,
    /// How many levels it stands below the first one.
    pub(crate) depth: usize,
    /// Its own limit, else the nearest above.
    pub(crate) limit: Option<u32>,
}

impl Place {
    /// The class of its row.
    pub(crate) fn class(self) -> Option<&'static str> {
        [None, Some("in-1"), Some("in-2"), Some("in-3")].get(self.depth).copied().flatten()
    }
}

/// The places of policies (each with its name, its parent's name and its limit): those below a policy follow it.
pub(crate) fn places<'a>(policies: impl Iterator<Item = (&'a str, &'a str, Option<u32>)>) -> Vec<Place> {
    let all: Vec<(&str, &str, Option<u32>)> = policies.collect();
    let index_of: BTreeMap<&str, usize> =
        all.iter().enumerate().map(|(index, (name, ..))| (*name, index)).collect();
    let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut roots = Vec::new();
    for (index, (_, parent, _)) in all.iter().enumerate() {
        match index_of.get(parent) {
            Some(above) => below.entry(*above).or_default().push(index),
            None => roots.push(index),
        }
    }
    let mut places = Vec::new();
    let mut next: Vec<(usize, usize, Option<u32>)> =
        roots.into_iter().rev().map(|index| (index, 0, None)).collect();
    while let Some((index, depth, above)) = next.pop() {
        let limit = all.get(index).and_then(|(.., limit)| *limit).or(above);
        places.push(Place { index, depth: depth.min(DEEPEST), limit });
        let children = below.remove(&index).unwrap_or_default();
        next.extend(children.into_iter().rev().map(|child| (child, depth + 1, limit)));
    }
    places
}

/// The tree that a policy stands in, from its root on; empty where nothing is above or below it.
fn around<'a>(gauges: &'a [v1::PolicyGauge], name: &str) -> Vec<(Place, &'a v1::PolicyGauge)> {
    let ends = gauges.iter().map(|gauge| (gauge.policy.as_str(), gauge.parent.as_str(), gauge.max_in_flight));
    let mut tree = Vec::new();
    for place in places(ends) {
        let Some(gauge) = gauges.get(place.index) else { continue };
        if place.depth == 0 {
            if tree.iter().any(|(_, gauge): &(Place, &v1::PolicyGauge)| gauge.policy == name) {
                break;
            }
            tree.clear();
        }
        tree.push((place, gauge));
    }
    let is_its = tree.len() > 1 && tree.iter().any(|(_, gauge)| gauge.policy == name);
    if is_its { tree } else { Vec::new() }
}

/// A policy's tree with its bars; nothing where it stands in none.
pub(crate) fn tree(gauges: &[v1::PolicyGauge], name: &str) -> Markup {
    let rows = around(gauges, name);
    if rows.is_empty() {
        return Markup::default();
    }
    html! {
        section aria-labelledby="h-tree" {
            h2 #h-tree { "Its tree" }
            p.mute {
                "An event takes a token of its policy and of each one above. A bar shows the tokens of a policy's own events, and paler those of "
                "the events below it; the line is its floor."
            }
            div.scroll role="group" aria-labelledby="h-tree" tabindex="0" {
                table.wide.cards.named {
                    thead {
                        tr {
                            th scope="col" { "Policy" }
                            th.gauge-cell scope="col" { "In flight" }
                            th.n scope="col" { "Held" }
                            th.n scope="col" { "Held below" }
                            th.n scope="col" { "Limit" }
                            th.n scope="col" { "Floor" }
                            th.n scope="col" { "Waiting" }
                        }
                    }
                    tbody { @for (place, now) in rows { (row(place, now, now.policy == name)) } }
                }
            }
        }
    }
}

fn row(place: Place, now: &v1::PolicyGauge, is_this: bool) -> Markup {
    html! {
        tr id={ "t-" (short(&now.policy)) } class=[place.class()] {
            th scope="row" {
                @if is_this { (short(&now.policy)) } @else { a href=(to(&now.policy)) { (short(&now.policy)) } }
            }
            td.gauge-cell { (tree_gauge(now, place.limit)) }
            td.n data-label="Held" { (count(now.held_count)) }
            td.n data-label="Held below" { (count(now.below_count)) }
            td.n data-label="Limit" {
                @match now.max_in_flight {
                    Some(limit) => { (count(limit)) }
                    None => { span.mute { "none of its own" } }
                }
            }
            td.n data-label=[(now.floor > 0).then_some("Floor")] { @if now.floor > 0 { (count(now.floor)) } }
            td.n data-label="Waiting" { (count(now.waiting_count)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(id: &str, parent: &str, max_in_flight: Option<u32>) -> v1::PolicyGauge {
        let name = |id: &str| format!("namespaces/a/policies/{id}");
        let parent = if parent.is_empty() { String::new() } else { name(parent) };
        v1::PolicyGauge { policy: name(id), parent, max_in_flight, ..v1::PolicyGauge::default() }
    }

    fn forest() -> Vec<v1::PolicyGauge> {
        vec![
            gauge("alone", "", Some(1)),
            gauge("leaf", "middle", None),
            gauge("middle", "root", Some(5)),
            gauge("other", "elsewhere", Some(3)),
            gauge("root", "", Some(9)),
            gauge("second", "root", None),
        ]
    }

    #[test]
    fn those_below_follow() {
        let forest = forest();
        let ends = forest.iter().map(|g| (g.policy.as_str(), g.parent.as_str(), g.max_in_flight));
        let shown: Vec<(&str, usize, Option<u32>)> = places(ends)
            .iter()
            .map(|place| (short(&forest[place.index].policy), place.depth, place.limit))
            .collect();
        let expected = [
            ("alone", 0, Some(1)),
            ("other", 0, Some(3)),
            ("root", 0, Some(9)),
            ("middle", 1, Some(5)),
            ("leaf", 2, Some(5)),
            ("second", 1, Some(9)),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_policy_is_shown_in_its_tree_alone() {
        let forest = forest();
        let ids = |id: &str| -> Vec<&str> {
            let tree = around(&forest, &format!("namespaces/a/policies/{id}"));
            tree.into_iter().map(|(_, gauge)| short(&gauge.policy)).collect()
        };
        assert_eq!(ids("leaf"), ["root", "middle", "leaf", "second"]);
        assert_eq!(ids("root"), ids("second"));
        assert_eq!((ids("alone"), ids("other"), ids("none")), (vec![], vec![], vec![]));
        let drawn = tree(&forest, "namespaces/a/policies/leaf").into_string();
        assert!(
            drawn.contains(r#"id="t-leaf" class="in-2""#) && drawn.contains("none of its own"),
            "{drawn}"
        );
        assert!(tree(&forest, "namespaces/a/policies/alone").into_string().is_empty());
    }
}
