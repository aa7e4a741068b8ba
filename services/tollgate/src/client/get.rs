//! `tollgate get` and `tollgate list`.

use clap::{Args, ValueEnum};
use prost::{Message, Name};
use tollgate_proto::v1;

use super::{Session, fetch, names, pages, rows};
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

/// Arguments of `get` and `list`.
#[derive(Args, Clone, Debug)]
pub(crate) struct GetArgs {
    /// The kind of resource, in the singular or plural
    #[arg(value_name = "KIND")]
    kind: Kind,

    /// The name of the resource. For skipped and children: the schedule. For events: the event, the run, or nothing
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Terms, joined by AND, that the resources must match: state=PAUSED, policy=imports, schedule=nightly, label.team=data
    #[arg(long, value_name = "TERMS")]
    filter: Option<String>,

    /// The most resources that are listed; 0 means all
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u32,
}

/// Prints one resource, or a list.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: GetArgs) -> anyhow::Result<()> {
    let filter = args.filter.clone().unwrap_or_default();
    let GetArgs { kind, name, limit, .. } = args;
    match (kind, name) {
        (Kind::Policies, None) => policies(&session, filter, limit).await,
        (Kind::Schedules, None) => schedules(&session, filter, limit).await,
        (Kind::Alerts, None) => alerts(&session, filter, limit).await,
        (Kind::Runs, None) => list_runs(&session, filter, limit).await,
        (Kind::Events, Some(run)) if names::is_run(&session.namespace, &run) => {
            events(&session, names::run(&session.namespace, &run), filter, limit).await
        }
        (Kind::Windows, None) => windows(&session, limit).await,
        (Kind::Skipped, Some(schedule)) => skipped(&session, &schedule, limit).await,
        (Kind::Children, Some(schedule)) => children(&session, &schedule, limit).await,
        (Kind::Skipped | Kind::Children, None) => {
            Err(Usage("expected the name of a schedule, as in `tollgate list skipped nightly`".to_owned())
                .into())
        }
        (Kind::Events, None) => events(&session, session.parent(), filter, limit).await,
        (Kind::Windows, Some(_)) => {
            Err(Usage("windows have no names: `tollgate list windows`".to_owned()).into())
        }
        (_, Some(_)) if !filter.is_empty() => {
            Err(Usage("--filter applies to lists, not to one resource".to_owned()).into())
        }
        (kind, Some(name)) => one(&session, kind, &name).await,
    }
}

async fn one(session: &Session, kind: Kind, name: &str) -> anyhow::Result<()> {
    let (printer, now_us) = (&session.printer, session.now_us);
    match kind {
        Kind::Policies => printer.message(&fetch::policy(session, name).await?, |policy| {
            rows::policies(std::slice::from_ref(policy))
        }),
        Kind::Schedules => printer.message(&fetch::schedule(session, name).await?, |schedule| {
            rows::schedules(now_us, std::slice::from_ref(schedule))
        }),
        Kind::Alerts => printer.message(&fetch::alert(session, name).await?, |alert| {
            rows::alerts(now_us, std::slice::from_ref(alert))
        }),
        Kind::Runs => printer
            .message(&fetch::run(session, name).await?, |run| rows::runs(now_us, std::slice::from_ref(run))),
        _ => {
            let event = fetch::event(session, name).await?;
            printer.message(&event, |event| rows::events(now_us, std::slice::from_ref(event)))
        }
    }
}

async fn policies(session: &Session, filter: String, limit: u32) -> anyhow::Result<()> {
    let (policies, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let parent = session.parent();
        let request = v1::ListPoliciesRequest { parent, page_size, page_token, filter: filter.clone() };
        let answer = session.master().list_policies(request).await;
        let page = answer.map_err(|status| session.failure("list policies", status))?.into_inner();
        Ok((page.policies, page.next_page_token))
    })
    .await?;
    let answer = v1::ListPoliciesResponse { policies, next_page_token };
    print(session, &answer, &answer.next_page_token, rows::policies(&answer.policies))
}

async fn schedules(session: &Session, filter: String, limit: u32) -> anyhow::Result<()> {
    let (schedules, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let parent = session.parent();
        let request = v1::ListSchedulesRequest { parent, page_size, page_token, filter: filter.clone() };
        let answer = session.master().list_schedules(request).await;
        let page = answer.map_err(|status| session.failure("list schedules", status))?.into_inner();
        Ok((page.schedules, page.next_page_token))
    })
    .await?;
    let answer = v1::ListSchedulesResponse { schedules, next_page_token };
    print(session, &answer, &answer.next_page_token, rows::schedules(session.now_us, &answer.schedules))
}

async fn alerts(session: &Session, filter: String, limit: u32) -> anyhow::Result<()> {
    let (alerts, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let parent = session.parent();
        let request = v1::ListAlertsRequest { parent, page_size, page_token, filter: filter.clone() };
        let answer = session.master().list_alerts(request).await;
        let page = answer.map_err(|status| session.failure("list alerts", status))?.into_inner();
        Ok((page.alerts, page.next_page_token))
    })
    .await?;
    let answer = v1::ListAlertsResponse { alerts, next_page_token };
    print(session, &answer, &answer.next_page_token, rows::alerts(session.now_us, &answer.alerts))
}

async fn list_runs(session: &Session, filter: String, limit: u32) -> anyhow::Result<()> {
    let answer = fetch::runs(session, &filter, limit).await?;
    print(session, &answer, &answer.next_page_token, rows::runs(session.now_us, &answer.runs))
}

async fn events(session: &Session, run: String, filter: String, limit: u32) -> anyhow::Result<()> {
    let (events, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let (parent, filter) = (run.clone(), filter.clone());
        let request = v1::ListEventsRequest { parent, page_size, page_token, filter };
        let answer = session.handler().list_events(request).await;
        let page =
            answer.map_err(|status| session.failure(format!("list events of {run}"), status))?.into_inner();
        Ok((page.events, page.next_page_token))
    })
    .await?;
    let answer = v1::ListEventsResponse { events, next_page_token };
    print(session, &answer, &answer.next_page_token, rows::events(session.now_us, &answer.events))
}

async fn skipped(session: &Session, schedule: &str, limit: u32) -> anyhow::Result<()> {
    let answer = fetch::skipped(session, schedule, limit).await?;
    print(session, &answer, &answer.next_page_token, rows::skipped(session.now_us, &answer.skipped_triggers))
}

async fn children(session: &Session, schedule: &str, limit: u32) -> anyhow::Result<()> {
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
    print(session, &answer, &answer.next_page_token, rows::children(&answer.children))
}

async fn windows(session: &Session, limit: u32) -> anyhow::Result<()> {
    let (windows, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let answer = session.emitter().list_windows(v1::ListWindowsRequest { page_size, page_token }).await;
        let page = answer.map_err(|status| session.failure("list windows", status))?.into_inner();
        Ok((page.windows, page.next_page_token))
    })
    .await?;
    let answer = v1::ListWindowsResponse { windows, next_page_token };
    print(session, &answer, &answer.next_page_token, rows::windows(session.now_us, &answer.windows))
}

/// Prints a list, and says where it is not complete.
fn print<M: Message + Name>(session: &Session, answer: &M, next: &str, text: String) -> anyhow::Result<()> {
    session.printer.message(answer, |_| match next {
        "" => text,
        _ => format!("{text}… and more: --limit 0 shows all\n"),
    })
}
