//! `tollgate delete`.

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use tollgate_proto::v1;

use super::many::{self, ManyArgs};
use super::target::{Target, TargetParser};
use super::{Session, complete, names};
use crate::usage::Usage;

/// What can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A schedule.
    #[value(alias = "schedules")]
    Schedule,
    /// A policy that no schedule uses.
    #[value(alias = "policies")]
    Policy,
    /// A calendar that no schedule uses.
    #[value(alias = "calendars")]
    Calendar,
    /// An alert.
    #[value(alias = "alerts")]
    Alert,
}

/// Arguments of `delete`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DeleteArgs {
    /// The kind of resource, or a resource such as schedule/nightly
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    kind: Target<Kind>,

    /// The name of the resource
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,

    /// Delete the resource only if it has this etag, which `get -o json` shows
    #[arg(long, value_name = "ETAG", default_value = "")]
    etag: String,

    #[command(flatten)]
    many: ManyArgs,
}

/// Deletes a schedule, policy, calendar or alert.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: DeleteArgs) -> anyhow::Result<()> {
    let DeleteArgs { kind, name, etag, many } = args;
    if many.are_given() {
        let (Kind::Schedule, None) = kind.and(name)? else {
            let usage = "--label and --filter choose schedules, without a name: delete schedules -l a=b";
            return Err(Usage(usage.to_owned()).into());
        };
        return many::act(&session, many::Act::Delete, &many).await;
    }
    many.refuse()?;
    let (kind, name) = kind.named(name, "tollgate delete schedule nightly")?;
    let (answer, name) = match kind {
        Kind::Schedule => {
            let name = names::schedule(&session.namespace, &name);
            let request = v1::DeleteScheduleRequest { name: name.clone(), etag, ..Default::default() };
            (session.master().delete_schedule(request).await, name)
        }
        Kind::Policy => {
            let name = names::policy(&session.namespace, &name);
            let request = v1::DeletePolicyRequest { name: name.clone(), etag, ..Default::default() };
            (session.master().delete_policy(request).await, name)
        }
        Kind::Calendar => {
            let name = names::calendar(&session.namespace, &name);
            let request = v1::DeleteCalendarRequest { name: name.clone(), etag, ..Default::default() };
            (session.master().delete_calendar(request).await, name)
        }
        Kind::Alert => {
            let name = names::alert(&session.namespace, &name);
            let request = v1::DeleteAlertRequest { name: name.clone(), etag, ..Default::default() };
            (session.master().delete_alert(request).await, name)
        }
    };
    answer.map_err(|status| session.failure(format!("delete {name}"), status))?;
    if session.printer.is_json() {
        return session.printer.json(&serde_json::json!({}));
    }
    if session.printer.is_name() {
        return session.printer.line(&names::usable(&session.namespace, &name));
    }
    session.printer.line(&format!("deleted {name}"))
}
