//! `tollgate pause` and `tollgate resume`.

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use tollgate_proto::v1;

use super::many::{self, ManyArgs};
use super::target::{Target, TargetParser};
use super::when::both;
use super::{Session, complete, names};
use crate::usage::Usage;

/// What can be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A schedule: its triggers are recorded as skipped, and its waiting events do not start.
    #[value(alias = "schedules")]
    Schedule,
    /// A policy: no event under it starts.
    #[value(alias = "policies")]
    Policy,
    /// Everything: no event starts anywhere.
    All,
}

/// Arguments of `pause`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    what: ResumeArgs,
}

/// Arguments of `resume`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ResumeArgs {
    /// The kind of resource, or a resource such as policy/imports
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    kind: Target<Kind>,

    /// The name of the resource; none with `all`, or where schedules are chosen by --label or --filter
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,

    #[command(flatten)]
    many: ManyArgs,
}

/// Pauses a schedule, a policy or everything.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn pause(session: Session, args: PauseArgs) -> anyhow::Result<()> {
    if args.what.many.are_given() {
        args.what.only_schedules()?;
        return many::act(&session, many::Act::Pause, &args.what.many).await;
    }
    let (kind, name) = full_name(&session, &args.what)?;
    let reason = session.reason.clone();
    let failed = |status| session.failure(format!("pause {name}"), status);
    match kind {
        Kind::Schedule => {
            let request = v1::PauseScheduleRequest { name: name.clone(), reason, ..Default::default() };
            let schedule = session.master().pause_schedule(request).await.map_err(failed)?.into_inner();
            session.show(&schedule, [name.as_str()], || paused(&session, &name, schedule.pause.as_ref()))
        }
        Kind::Policy => {
            let request = v1::PausePolicyRequest { name: name.clone(), reason, ..Default::default() };
            let policy = session.master().pause_policy(request).await.map_err(failed)?.into_inner();
            session.show(&policy, [name.as_str()], || paused(&session, &name, policy.pause.as_ref()))
        }
        Kind::All => {
            let request = v1::PauseDispatchRequest { reason };
            let state = session.handler().pause_dispatch(request).await.map_err(failed)?.into_inner();
            session.printer.message(&state, |state| paused(&session, &name, state.pause.as_ref()))
        }
    }
}

/// Ends a pause.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn resume(session: Session, what: ResumeArgs) -> anyhow::Result<()> {
    if what.many.are_given() {
        what.only_schedules()?;
        return many::act(&session, many::Act::Resume, &what.many).await;
    }
    let (kind, name) = full_name(&session, &what)?;
    let failed = |status| session.failure(format!("resume {name}"), status);
    let resumed = format!("resumed {name}\n");
    match kind {
        Kind::Schedule => {
            let request = v1::ResumeScheduleRequest { name: name.clone(), ..Default::default() };
            let schedule = session.master().resume_schedule(request).await.map_err(failed)?.into_inner();
            session.show(&schedule, [name.as_str()], || resumed)
        }
        Kind::Policy => {
            let request = v1::ResumePolicyRequest { name: name.clone(), ..Default::default() };
            let policy = session.master().resume_policy(request).await.map_err(failed)?.into_inner();
            session.show(&policy, [name.as_str()], || resumed)
        }
        Kind::All => {
            let answer = session.handler().resume_dispatch(v1::ResumeDispatchRequest {}).await;
            session.printer.message(&answer.map_err(failed)?.into_inner(), |_| resumed)
        }
    }
}

impl ResumeArgs {
    /// Refuses --label and --filter for what is not many schedules.
    fn only_schedules(&self) -> Result<(), Usage> {
        match self.kind.and(self.name.clone())? {
            (Kind::Schedule, None) => Ok(()),
            _ => Err(Usage(
                "--label and --filter choose schedules, without a name: pause schedules -l a=b".to_owned(),
            )),
        }
    }
}

fn full_name(session: &Session, what: &ResumeArgs) -> anyhow::Result<(Kind, String)> {
    what.many.refuse()?;
    let (kind, name) = what.kind.and(what.name.clone())?;
    let name = match (kind, name) {
        (Kind::Schedule, Some(name)) => names::schedule(&session.namespace, &name),
        (Kind::Policy, Some(name)) => names::policy(&session.namespace, &name),
        (Kind::All, None) => "all dispatch".to_owned(),
        (Kind::All, Some(_)) => return Err(Usage("`all` takes no name".to_owned()).into()),
        (_, None) => return Err(Usage("expected a name, as in `policy imports`".to_owned()).into()),
    };
    Ok((kind, name))
}

fn paused(session: &Session, name: &str, pause: Option<&v1::Pause>) -> String {
    let Some(pause) = pause else { return format!("{name} is not paused\n") };
    let reason = if pause.reason.is_empty() { String::new() } else { format!(": {}", pause.reason) };
    format!(
        "paused {name} since {}, by {}{reason}\n",
        both(session.now_us, pause.since.as_ref()),
        pause.actor
    )
}
