//! `apply --prune`: deletes what carries a label and is not in the files.
//!
//! It covers schedules, alerts, calendars and policies of the namespaces that the files name. Calendars and policies come last,
//! and only those go that no schedule uses, policies below another one before it. What has changed since it was listed is not
//! deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::ensure;
use clap::Args;
use tollgate_core::model::Parent;
use tollgate_proto::v1;
use tonic::Code;

use super::super::names::{kind_and_id, parent};
use super::super::style::Tone;
use super::super::{Session, fetch};
use crate::usage::Usage;

/// The most resources that are listed before they are deleted.
const LISTED_MAX: usize = 20;

/// Flags of what is deleted.
#[derive(Args, Clone, Debug)]
pub(crate) struct PruneArgs {
    /// Delete schedules, alerts and unused calendars and policies that carry the label of -l and are not in the files, in the
    /// namespaces of the files
    #[arg(long, requires = "label")]
    pub(super) prune: bool,

    /// With --prune: only resources with this label, such as app=backup. Several are joined by AND
    #[arg(short, long = "label", value_name = "KEY=VALUE", requires = "prune")]
    label: Vec<String>,

    /// With --prune: delete without asking. Without a terminal, nobody can be asked
    #[arg(long, requires = "prune")]
    yes: bool,
}

/// What is to be deleted: each with its etag.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    /// Full names and etags, in the order in which they go.
    resources: Vec<(String, String)>,
}

impl Pruned {
    /// The full names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().map(|(name, _)| name.as_str())
    }

    /// Finds what carries the labels and is not among `kept`.
    pub(super) async fn find(
        session: &Session,
        args: &PruneArgs,
        namespaces: &BTreeSet<String>,
        kept: &BTreeSet<String>,
    ) -> anyhow::Result<Self> {
        if !args.prune {
            return Ok(Self::default());
        }
        let filter = filter(&args.label)?;
        let parents: Vec<String> = namespaces.iter().map(|namespace| parent(namespace)).collect();
        let schedules = fetch::schedules_of(session, &parents, &filter, 0).await?.0;
        let alerts = fetch::alerts_of(session, &parents, &filter, 0).await?.0;
        let calendars = fetch::calendars_of(session, &parents, &filter, 0).await?.0;
        let policies = fetch::policies_of(session, &parents, &filter, 0).await?.0;
        let schedules = schedules.into_iter().map(|schedule| (schedule.name, schedule.etag));
        let alerts = alerts.into_iter().map(|alert| (alert.name, alert.etag));
        let policies = leaves_first(policies).into_iter().map(|policy| (policy.name, policy.etag));
        let calendars = calendars.into_iter().map(|calendar| (calendar.name, calendar.etag));
        let all = schedules.chain(alerts).chain(calendars).chain(policies);
        Ok(Self { resources: all.filter(|(name, _)| !kept.contains(name)).collect() })
    }

    /// Says what would be deleted, and asks whether it may be.
    pub(super) fn confirm(&self, args: &PruneArgs) -> anyhow::Result<()> {
        if self.resources.is_empty() || args.yes {
            return Ok(());
        }
        let mut err = std::io::stderr();
        let _nobody = write!(err, "{}", self.text("would be deleted"));
        ensure!(
            std::io::stdin().is_terminal() && err.is_terminal(),
            Usage(format!(
                "--prune: {} would be deleted, and nobody can be asked: --yes does it",
                self.count()
            ))
        );
        let _nobody = write!(err, "Delete {}? [y/N] ", self.count());
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        ensure!(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()), "nothing was changed");
        Ok(())
    }

    fn count(&self) -> String {
        match self.resources.len() {
            1 => "1 resource".to_owned(),
            count => format!("{count} resources"),
        }
    }

    /// A line for each, and how many there are.
    pub(super) fn text(&self, what: &str) -> String {
        let shown = self.names().take(LISTED_MAX);
        let mut text: String =
            shown.map(|name| format!("{} {}\n", kind_and_id(name), Tone::Bad.paint(what))).collect();
        if self.resources.len() > LISTED_MAX {
            text.push_str(&format!("… and {} more\n", self.resources.len() - LISTED_MAX));
        }
        text
    }

    /// Deletes all of it, and says what could not be.
    pub(super) async fn carry_out(self, session: &Session) -> anyhow::Result<Self> {
        let mut gone = Self::default();
        for (name, etag) in self.resources {
            let answer = if name.contains("/schedules/") {
                let request = v1::DeleteScheduleRequest {
                    name: name.clone(),
                    etag: etag.clone(),
                    ..Default::default()
                };
                session.master().delete_schedule(request).await
            } else if name.contains("/calendars/") {
                let request = v1::DeleteCalendarRequest {
                    name: name.clone(),
                    etag: etag.clone(),
                    ..Default::default()
                };
                session.master().delete_calendar(request).await
            } else if name.contains("/alerts/") {
                let request =
                    v1::DeleteAlertRequest { name: name.clone(), etag: etag.clone(), ..Default::default() };
                session.master().delete_alert(request).await
            } else {
                let request =
                    v1::DeletePolicyRequest { name: name.clone(), etag: etag.clone(), ..Default::default() };
                session.master().delete_policy(request).await
            };
            match answer {
                Ok(_) => gone.resources.push((name, etag)),
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) if [Code::FailedPrecondition, Code::Aborted].contains(&status.code()) => {
                    session.note(&format!("{} stays: {}", kind_and_id(&name), status.message()));
                }
                Err(status) => return Err(session.failure(format!("delete {name}"), status)),
            }
        }
        Ok(gone)
    }
}

/// Policies in an order in which they can go: those below another one before it.
fn leaves_first(mut policies: Vec<v1::Policy>) -> Vec<v1::Policy> {
    let parents: BTreeMap<String, String> =
        policies.iter().map(|policy| (policy.name.clone(), policy.parent().to_owned())).collect();
    let level = |policy: &v1::Policy| {
        let above = std::iter::successors(Some(&policy.name), |name| parents.get(*name));
        above.take(Parent::LEVELS_MAX).filter(|name| !name.is_empty()).count()
    };
    policies.sort_by_key(|policy| std::cmp::Reverse(level(policy)));
    policies
}

/// The filter that labels come to.
fn filter(labels: &[String]) -> Result<String, Usage> {
    let term = |label: &String| match label.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok(format!("label.{}={}", key.trim(), value.trim())),
        _ => Err(Usage(format!("--label: {label:?} is not allowed, expected a label such as app=backup"))),
    };
    Ok(labels.iter().map(term).collect::<Result<Vec<_>, _>>()?.join(" AND "))
}

#[cfg(test)]
mod tests {
    use super::super::super::style::plain;
    use super::*;

    #[test]
    fn labels_are_joined() {
        let labels =
            |texts: &[&str]| filter(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(labels(&["app=backup", "team = a"]), Ok("label.app=backup AND label.team=a".to_owned()));
        assert!(labels(&["backup"]).is_err() && labels(&["=x"]).is_err());
    }

    #[test]
    fn policies_go_from_the_leaves_on() {
        let policy = |name: &str, parent: &str| v1::Policy {
            name: name.to_owned(),
            parent: Some(parent.to_owned()).filter(|parent| !parent.is_empty()),
            ..v1::Policy::default()
        };
        let policies =
            vec![policy("root", ""), policy("leaf", "middle"), policy("alone", ""), policy("middle", "root")];
        let order: Vec<String> = leaves_first(policies).into_iter().map(|policy| policy.name).collect();
        assert_eq!(order, ["leaf", "middle", "root", "alone"]);
    }

    #[test]
    fn many_are_listed_in_part() {
        let name = |n: usize| (format!("namespaces/a/schedules/s{n}"), "1".to_owned());
        let text = plain(&Pruned { resources: (0..23).map(name).collect() }.text("deleted"));
        assert_eq!(text.lines().count(), 21);
        assert!(text.starts_with("schedule/s0 deleted\n") && text.ends_with("… and 3 more\n"), "{text}");
    }
}
