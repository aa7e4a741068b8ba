//! The namespaces that are known, with what waits in each, and the way to any other.

use std::collections::BTreeMap;

use axum::response::Response;
use maud::{Markup, html};
use tollgate_proto::v1;

use crate::parts::shell::{Body, Section};
use crate::requests::links::link;
use crate::requests::problem::Problem;
use crate::requests::visit::Visit;
use crate::words::show::{count, short, tag};

/// What happens in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    policies: u64,
    paused: u64,
    held: u64,
    waiting: u64,
    suspect: u64,
    troubles: u64,
}

/// How many namespaces are read.
const NAMESPACES_READ: i32 = 1_000;
/// How many troubles are looked through.
const TROUBLES_READ: i32 = 1_000;

/// The page.
pub(crate) async fn page(visit: Visit) -> Response {
    let own = visit.session.as_ref().and_then(|session| session.visitor.namespace.clone());
    // A key of one namespace asks for that one only.
    let parent = own.map_or_else(String::new, |own| format!("namespaces/{own}"));
    let reaches_all = visit.reaches_all();
    let (status, wrong, named) = futures::future::join3(
        visit.api.handler_status(parent.clone()),
        visit.api.troubles(parent, TROUBLES_READ),
        async {
            if reaches_all { visit.api.namespaces(NAMESPACES_READ).await } else { Ok(Default::default()) }
        },
    )
    .await;
    let (mut known, problem): (BTreeMap<String, Sum>, Option<Problem>) = match status {
        Ok(status) => (sums(&status.policies), None),
        Err(problem) => (BTreeMap::new(), Some(problem)),
    };
    add_troubles(&mut known, &wrong.map(|wrong| wrong.troubles).unwrap_or_default());
    known.entry(visit.ns.clone()).or_default();
    let (named, unnamed) = match named {
        Ok(named) => (named, None),
        Err(problem) => (v1::ListNamespacesResponse::default(), Some(problem)),
    };
    for namespace in &named.namespaces {
        known.entry(short(&namespace.name).to_owned()).or_default();
    }
    let content = html! {
        h1 { "Namespaces" }
        (table(&visit.ns, &known))
        @if let Some(problem) = &unnamed {
            p.notice.warn { "Only those with policies or troubles are shown: " (problem.text()) }
        } @else if !named.next_page_token.is_empty() {
            p.mute { "The first " (count(named.namespaces.len() as u64)) ", and those with policies; any other is reached by its name." }
        }
        form.filters method="get" action=(visit.link("go")) {
            div {
                label for="ns" { "Another namespace" }
                input #ns name="ns" required maxlength="63" autocomplete="off" spellcheck="false";
            }
            button type="submit" { "Show" }
        }
    };
    visit.respond(Ok(Body { problem, ..Body::new("Namespaces", Section::None, content) }))
}

/// Namespaces in which something is wrong are known by that, too.
fn add_troubles(known: &mut BTreeMap<String, Sum>, troubles: &[v1::Trouble]) {
    for trouble in troubles {
        let name = if trouble.schedule.is_empty() { &trouble.policy } else { &trouble.schedule };
        if let Some(namespace) = name.split('/').nth(1) {
            known.entry(namespace.to_owned()).or_default().troubles += 1;
        }
    }
}

fn sums(gauges: &[v1::PolicyGauge]) -> BTreeMap<String, Sum> {
    let mut known: BTreeMap<String, Sum> = BTreeMap::new();
    for gauge in gauges {
        let Some(namespace) = gauge.policy.split('/').nth(1) else { continue };
        let sum = known.entry(namespace.to_owned()).or_default();
        sum.policies += 1;
        sum.paused += u64::from(gauge.paused);
        sum.held += gauge.held_count;
        sum.waiting += gauge.waiting_count;
        sum.suspect += gauge.suspect_count;
    }
    known
}

fn table(here: &str, known: &BTreeMap<String, Sum>) -> Markup {
    html! {
        div.scroll role="group" aria-label="Namespaces" tabindex="0" {
            table.wide {
                thead {
                    tr {
                        th scope="col" { "Namespace" }
                        th.n scope="col" { "Troubles" }
                        th.n scope="col" { "Events waiting under policies" }
                        th.n scope="col" { "Tokens held" }
                        th.n scope="col" { "Suspect" }
                        th.n.opt scope="col" { "Policies" }
                        th.n.opt scope="col" { "Paused" }
                    }
                }
                tbody {
                    @for (namespace, sum) in known {
                        tr {
                            th scope="row" {
                                a href=(link(namespace, "")) { (namespace) }
                                @if namespace == here { " " (tag("here", "go")) }
                            }
                            td.n { span class=(if sum.troubles > 0 { "bad" } else { "mute" }) { (count(sum.troubles)) } }
                            td.n { (count(sum.waiting)) }
                            td.n { (count(sum.held)) }
                            td.n { span class=(if sum.suspect > 0 { "warn" } else { "mute" }) { (count(sum.suspect)) } }
                            td.n.opt { (count(sum.policies)) }
                            td.n.opt { span class=(if sum.paused > 0 { "warn" } else { "mute" }) { (count(sum.paused)) } }
                        }
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
    fn each_namespace_has_its_own_numbers() {
        let gauge = |policy: &str, waiting_count| v1::PolicyGauge {
            policy: policy.to_owned(),
            waiting_count,
            ..v1::PolicyGauge::default()
        };
        let gauges = [gauge("namespaces/a/policies/x", 3), gauge("namespaces/b/policies/y", 5), gauge("", 9)];
        let known = sums(&gauges);
        assert_eq!(known.len(), 2);
        assert_eq!((known["a"].waiting, known["b"].waiting), (3, 5));
        let trouble = |schedule: &str, policy: &str| v1::Trouble {
            schedule: schedule.to_owned(),
            policy: policy.to_owned(),
            ..v1::Trouble::default()
        };
        let troubles = [
            trouble("namespaces/c/schedules/s", "namespaces/c/policies/p"),
            trouble("", ""),
            trouble("", "namespaces/b/policies/y"),
        ];
        let mut known = known;
        add_troubles(&mut known, &troubles);
        assert_eq!((known["a"].troubles, known["b"].troubles, known["c"].troubles), (0, 1, 1));
    }
}
