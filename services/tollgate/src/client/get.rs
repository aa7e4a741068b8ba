//! `tollgate get` and `tollgate list`.

use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use prost::{Message, Name};
use tollgate_files::Kind as FileKind;
use tollgate_proto::v1;

use super::namespaces::Everywhere;
use super::output::Format;
use super::table::View;
use super::target::{Target, TargetParser};
use super::watch::{self, WatchArgs};
use super::{Session, complete, fetch, gauges, ids, names, pages, rows};
use crate::usage::Usage;

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Policies.
    #[value(alias = "policy")]
    Policies,
    /// Schedules.
    #[value(alias = "schedule")]
    Schedules,
    /// Calendars.
    #[value(alias = "calendar")]
    Calendars,
    /// Alerts.
    #[value(alias = "alert")]
    Alerts,
    /// Runs.
    #[value(alias = "run")]
    Runs,
    /// Events of a run, or those that ended badly over all runs that have ended.
    #[value(alias = "event")]
    Events,
    /// Triggers of a schedule that made no run.
    Skipped,
    /// A schedule's entries in the launch index.
    #[value(alias = "child")]
    Children,
    /// The emitter's scan windows.
    #[value(alias = "window")]
    Windows,
}

/// Which runs are listed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// Those that are launched last.
    Latest,
    /// Those that are launched first.
    Earliest,
}

/// Arguments of `get` and `list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct GetArgs {
    /// The kind of resource, in the singular or plural, or a resource such as schedule/nightly
    #[arg(value_name = "KIND", value_parser = TargetParser::<Kind>::new())]
    kind: Target<Kind>,

    /// The name of the resource. For skipped and children: the schedule. For events: the event, the run, or nothing
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::named))]
    name: Option<String>,

    /// Terms, joined by AND, that the resources must match: state=PAUSED, policy=imports, schedule=nightly, label.team=data
    #[arg(long, value_name = "TERMS")]
    filter: Option<String>,

    /// Of runs: which launch time comes first; latest without it
    #[arg(long, value_name = "ORDER")]
    order: Option<Order>,

    /// The most resources that are listed; 0 means all
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,

    #[command(flatten)]
    everywhere: Everywhere,

    #[command(flatten)]
    watch: WatchArgs,
}

/// Prints one resource, or a list.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: GetArgs) -> anyhow::Result<()> {
    watch::run(session, args.watch, async |session| once(session, &args).await).await
}

async fn once(session: &Session, args: &GetArgs) -> anyhow::Result<()> {
    let filter = args.filter.clone().unwrap_or_default();
    let (kind, name) = args.kind.and(args.name.clone())?;
    if args.order.is_some() && (kind != Kind::Runs || name.is_some()) {
        return Err(Usage("--order applies to lists of runs".to_owned()).into());
    }
    match (kind, name) {
        (Kind::Skipped, Some(schedule)) => skipped(session, &schedule, args.limit).await,
        (Kind::Children, Some(schedule)) => children(session, &schedule, args.limit).await,
        (Kind::Skipped | Kind::Children, None) => {
            Err(Usage("expected the name of a schedule, as in `tollgate list skipped nightly`".to_owned())
                .into())
        }
        (Kind::Events, Some(name)) => match ids::run_or_event(session, &name).await? {
            ids::Found::Run(run) => events(session, run, filter, args.limit).await,
            ids::Found::Event(event) => one_event(session, &event).await,
        },
        (Kind::Events, None) => events(session, session.parent(), filter, args.limit).await,
        (Kind::Windows, None) => windows(session, args.limit).await,
        (Kind::Windows, Some(_)) => {
            Err(Usage("windows have no names: `tollgate list windows`".to_owned()).into())
        }
        (_, Some(_)) if !filter.is_empty() => {
            Err(Usage("--filter applies to lists, not to one resource".to_owned()).into())
        }
        (kind, Some(name)) => one(session, kind, &name).await,
        (kind, None) => list(session, kind, filter, args).await,
    }
}

async fn one(session: &Session, kind: Kind, name: &str) -> anyhow::Result<()> {
    let view = session.view();
    match kind {
        Kind::Policies => {
            let policy = fetch::policy(session, name).await?;
            if documents(session, FileKind::Policy, std::slice::from_ref(&policy), "")? {
                return Ok(());
            }
            let gauges = gauges::of(session, session.parent()).await;
            session.show(&policy, [policy.name.as_str()], || {
                gauges::policies(view, std::slice::from_ref(&policy), &gauges)
            })
        }
        Kind::Schedules => {
            let schedule = fetch::schedule(session, name).await?;
            if documents(session, FileKind::Schedule, std::slice::from_ref(&schedule), "")? {
                return Ok(());
            }
            session.show(&schedule, [schedule.name.as_str()], || {
                rows::schedules(view, std::slice::from_ref(&schedule))
            })
        }
        Kind::Calendars => {
            let calendar = fetch::calendar(session, name).await?;
            if documents(session, FileKind::Calendar, std::slice::from_ref(&calendar), "")? {
                return Ok(());
            }
            session.show(&calendar, [calendar.name.as_str()], || {
                rows::calendars(view, std::slice::from_ref(&calendar))
            })
        }
        Kind::Alerts => {
            let alert = fetch::alert(session, name).await?;
            if documents(session, FileKind::Alert, std::slice::from_ref(&alert), "")? {
                return Ok(());
            }
            session.show(&alert, [alert.name.as_str()], || rows::alerts(view, std::slice::from_ref(&alert)))
        }
        _ => {
            let run = fetch::run(session, &ids::run(session, name).await?).await?;
            session.show(&run, [run.name.as_str()], || rows::runs(view, std::slice::from_ref(&run)))
        }
    }
}

async fn one_event(session: &Session, name: &str) -> anyhow::Result<()> {
    let event = fetch::event(session, name).await?;
    session.show(&event, [event.name.as_str()], || rows::events(session.view(), std::slice::from_ref(&event)))
}

async fn list(session: &Session, kind: Kind, filter: String, args: &GetArgs) -> anyhow::Result<()> {
    let parents = args.everywhere.parents(session).await?;
    let view = View { everywhere: args.everywhere.all_namespaces, ..session.view() };
    match kind {
        Kind::Policies => policies(session, &parents, filter, args, view).await,
        Kind::Schedules => schedules(session, &parents, filter, args.limit, view).await,
        Kind::Calendars => calendars(session, &parents, filter, args.limit, view).await,
        Kind::Alerts => alerts(session, &parents, filter, args.limit, view).await,
        _ => {
            let answer =
                fetch::runs_of(session, &parents, (&filter, args.order == Some(Order::Earliest)), args.limit)
                    .await?;
            let names = answer.runs.iter().map(|run| run.name.as_str());
            print(session, &answer, names, &answer.next_page_token, || rows::runs(view, &answer.runs))
        }
    }
}

async fn policies(
    session: &Session,
    parents: &[String],
    filter: String,
    args: &GetArgs,
    view: View,
) -> anyhow::Result<()> {
    let (policies, next_page_token) = fetch::policies_of(session, parents, &filter, args.limit).await?;
    if documents(session, FileKind::Policy, &policies, &next_page_token)? {
        return Ok(());
    }
    let answer = v1::ListPoliciesResponse { policies, next_page_token };
    let gauges = match session.printer.is_text() {
        true => gauges::of(session, args.everywhere.parent(session)).await,
        false => gauges::Gauges::default(),
    };
    let names = answer.policies.iter().map(|policy| policy.name.as_str());
    print(session, &answer, names, &answer.next_page_token, || {
        gauges::policies(view, &answer.policies, &gauges)
    })
}

async fn schedules(
    session: &Session,
    parents: &[String],
    filter: String,
    limit: u32,
    view: View,
) -> anyhow::Result<()> {
    let (schedules, next_page_token) = fetch::schedules_of(session, parents, &filter, limit).await?;
    if documents(session, FileKind::Schedule, &schedules, &next_page_token)? {
        return Ok(());
    }
    let answer = v1::ListSchedulesResponse { schedules, next_page_token };
    let names = answer.schedules.iter().map(|schedule| schedule.name.as_str());
    print(session, &answer, names, &answer.next_page_token, || rows::schedules(view, &answer.schedules))
}

async fn calendars(
    session: &Session,
    parents: &[String],
    filter: String,
    limit: u32,
    view: View,
) -> anyhow::Result<()> {
    let (calendars, next_page_token) = fetch::calendars_of(session, parents, &filter, limit).await?;
    if documents(session, FileKind::Calendar, &calendars, &next_page_token)? {
        return Ok(());
    }
    let answer = v1::ListCalendarsResponse { calendars, next_page_token };
    let names = answer.calendars.iter().map(|calendar| calendar.name.as_str());
    print(session, &answer, names, &answer.next_page_token, || rows::calendars(view, &answer.calendars))
}

async fn alerts(
    session: &Session,
    parents: &[String],
    filter: String,
    limit: u32,
    view: View,
) -> anyhow::Result<()> {
    let (alerts, next_page_token) = fetch::alerts_of(session, parents, &filter, limit).await?;
    if documents(session, FileKind::Alert, &alerts, &next_page_token)? {
        return Ok(());
    }
    let answer = v1::ListAlertsResponse { alerts, next_page_token };
    let names = answer.alerts.iter().map(|alert| alert.name.as_str());
    print(session, &answer, names, &answer.next_page_token, || rows::alerts(view, &answer.alerts))
}

async fn events(session: &Session, run: String, filter: String, limit: u32) -> anyhow::Result<()> {
    let (events, next_page_token) = fetch::events(session, &run, &filter, limit).await?;
    let answer = v1::ListEventsResponse { events, next_page_token };
    let names = answer.events.iter().map(|event| event.name.as_str());
    print(session, &answer, names, &answer.next_page_token, || rows::events(session.view(), &answer.events))
}

async fn skipped(session: &Session, schedule: &str, limit: u32) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let answer = fetch::skipped(session, schedule, limit).await?;
    let text = || rows::skipped(session.now_us, &answer.skipped_triggers);
    print(session, &answer, [], &answer.next_page_token, text)
}

async fn children(session: &Session, schedule: &str, limit: u32) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let parent = names::schedule(&session.namespace, schedule);
    let (children, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let request = v1::ListScheduleChildrenRequest { parent: parent.clone(), page_size, page_token };
        let answer = session.master().list_schedule_children(request).await;
        let tried = || format!("list children of {parent}");
        let page = answer.map_err(|status| session.failure(tried(), status))?.into_inner();
        Ok((page.children, page.next_page_token))
    })
    .await?;
    let answer = v1::ListScheduleChildrenResponse { children, next_page_token };
    print(session, &answer, [], &answer.next_page_token, || rows::children(&answer.children))
}

async fn windows(session: &Session, limit: u32) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let (windows, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let answer = session.emitter().list_windows(v1::ListWindowsRequest { page_size, page_token }).await;
        let page = answer.map_err(|status| session.failure("list windows", status))?.into_inner();
        Ok((page.windows, page.next_page_token))
    })
    .await?;
    let answer = v1::ListWindowsResponse { windows, next_page_token };
    print(session, &answer, [], &answer.next_page_token, || rows::windows(session.now_us, &answer.windows))
}

/// What a list that is not complete says.
const MORE: &str = "… and more: --limit 0 shows all";

/// Prints resources as files have them, where YAML is asked for: documents that an apply finds unchanged. Whether it was.
fn documents<M: Message + Name>(
    session: &Session,
    kind: FileKind,
    resources: &[M],
    next: &str,
) -> anyhow::Result<bool> {
    if session.printer.format() != Format::Yaml {
        return Ok(false);
    }
    let documents: Vec<String> =
        resources.iter().map(|resource| tollgate_files::document(kind, resource)).collect();
    session.printer.text(&documents.join("---\n"))?;
    if !next.is_empty() {
        session.note(MORE);
    }
    Ok(true)
}

/// Prints a list, and says where it is not complete: beside it where programs read it.
fn print<'a, M: Message + Name>(
    session: &Session,
    answer: &M,
    names: impl IntoIterator<Item = &'a str>,
    next: &str,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let is_text = session.printer.is_text();
    session.show(answer, names, || if next.is_empty() { text() } else { format!("{}{MORE}\n", text()) })?;
    if !is_text && !next.is_empty() {
        session.note(MORE);
    }
    Ok(())
}
