//! Reads resources and lists of them, for the commands that show them.

use tollgate_proto::convert::timestamp;
use tollgate_proto::v1;

use super::{Session, names, pages};

/// One policy.
pub(super) async fn policy(session: &Session, name: &str) -> anyhow::Result<v1::Policy> {
    let name = names::policy(&session.namespace, name);
    let tried = format!("read policy {name}");
    let answer = session.master().get_policy(v1::GetPolicyRequest { name }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}

/// One calendar.
pub(super) async fn calendar(session: &Session, name: &str) -> anyhow::Result<v1::Calendar> {
    let name = names::calendar(&session.namespace, name);
    let tried = format!("read calendar {name}");
    let answer = session.master().get_calendar(v1::GetCalendarRequest { name }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}

/// One alert.
pub(super) async fn alert(session: &Session, name: &str) -> anyhow::Result<v1::Alert> {
    let name = names::alert(&session.namespace, name);
    let tried = format!("read alert {name}");
    let answer = session.master().get_alert(v1::GetAlertRequest { name }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}

/// One schedule.
pub(super) async fn schedule(session: &Session, name: &str) -> anyhow::Result<v1::Schedule> {
    let name = names::schedule(&session.namespace, name);
    let tried = format!("read schedule {name}");
    let answer = session.master().get_schedule(v1::GetScheduleRequest { name }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}

/// One run.
pub(super) async fn run(session: &Session, name: &str) -> anyhow::Result<v1::Run> {
    let name = names::run(&session.namespace, name);
    let tried = format!("read run {name}");
    let answer = session.handler().get_run(v1::GetRunRequest { name }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}

/// One event.
pub(super) async fn event(session: &Session, name: &str) -> anyhow::Result<v1::Event> {
    let tried = format!("read event {name}");
    let answer = session.handler().get_event(v1::GetEventRequest { name: name.to_owned() }).await;
    Ok(answer.map_err(|status| session.failure(tried, status))?.into_inner())
}

/// The schedules of these namespaces that a filter selects, and the token of what follows.
pub(super) async fn schedules_of(
    session: &Session,
    parents: &[String],
    filter: &str,
    limit: u32,
) -> anyhow::Result<(Vec<v1::Schedule>, String)> {
    pages::collect_all(parents, limit, async |parent, page_size, page_token| {
        let request = v1::ListSchedulesRequest { parent, page_size, page_token, filter: filter.to_owned() };
        let answer = session.master().list_schedules(request).await;
        let page = answer.map_err(|status| session.failure("list schedules", status))?.into_inner();
        Ok((page.schedules, page.next_page_token))
    })
    .await
}

/// The policies of these namespaces that a filter selects, and the token of what follows.
pub(super) async fn policies_of(
    session: &Session,
    parents: &[String],
    filter: &str,
    limit: u32,
) -> anyhow::Result<(Vec<v1::Policy>, String)> {
    pages::collect_all(parents, limit, async |parent, page_size, page_token| {
        let request = v1::ListPoliciesRequest { parent, page_size, page_token, filter: filter.to_owned() };
        let answer = session.master().list_policies(request).await;
        let page = answer.map_err(|status| session.failure("list policies", status))?.into_inner();
        Ok((page.policies, page.next_page_token))
    })
    .await
}

/// The calendars of these namespaces that a filter selects, and the token of what follows.
pub(super) async fn calendars_of(
    session: &Session,
    parents: &[String],
    filter: &str,
    limit: u32,
) -> anyhow::Result<(Vec<v1::Calendar>, String)> {
    pages::collect_all(parents, limit, async |parent, page_size, page_token| {
        let request = v1::ListCalendarsRequest { parent, page_size, page_token, filter: filter.to_owned() };
        let answer = session.master().list_calendars(request).await;
        let page = answer.map_err(|status| session.failure("list calendars", status))?.into_inner();
        Ok((page.calendars, page.next_page_token))
    })
    .await
}

/// The alerts of these namespaces that a filter selects, and the token of what follows.
pub(super) async fn alerts_of(
    session: &Session,
    parents: &[String],
    filter: &str,
    limit: u32,
) -> anyhow::Result<(Vec<v1::Alert>, String)> {
    pages::collect_all(parents, limit, async |parent, page_size, page_token| {
        let request = v1::ListAlertsRequest { parent, page_size, page_token, filter: filter.to_owned() };
        let answer = session.master().list_alerts(request).await;
        let page = answer.map_err(|status| session.failure("list alerts", status))?.into_inner();
        Ok((page.alerts, page.next_page_token))
    })
    .await
}

/// The events of a run that a filter selects, and the token of what follows.
pub(super) async fn events(
    session: &Session,
    run: &str,
    filter: &str,
    limit: u32,
) -> anyhow::Result<(Vec<v1::Event>, String)> {
    pages::collect(limit, async |page_size, page_token| {
        let (parent, filter) = (run.to_owned(), filter.to_owned());
        let request = v1::ListEventsRequest { parent, page_size, page_token, filter };
        let answer = session.handler().list_events(request).await;
        let page =
            answer.map_err(|status| session.failure(format!("list events of {run}"), status))?.into_inner();
        Ok((page.events, page.next_page_token))
    })
    .await
}

/// The runs of the caller's namespace that a filter selects, latest first.
pub(super) async fn runs(
    session: &Session,
    filter: &str,
    limit: u32,
) -> anyhow::Result<v1::ListRunsResponse> {
    runs_of(session, &[session.parent()], (filter, false), limit).await
}

/// The runs of these namespaces that a filter selects: the earliest first, or the latest.
pub(super) async fn runs_of(
    session: &Session,
    parents: &[String],
    (filter, earliest_first): (&str, bool),
    limit: u32,
) -> anyhow::Result<v1::ListRunsResponse> {
    let mut answer = v1::ListRunsResponse::default();
    for parent in parents {
        let (runs, token) = pages::collect(limit, async |page_size, page_token| {
            let (parent, filter) = (parent.clone(), filter.to_owned());
            // The usual order is not named: a service of the version before knows no other.
            let order_by = if earliest_first { "launch_time" } else { "" }.to_owned();
            let request = v1::ListRunsRequest { parent, page_size, page_token, filter, order_by };
            let answer = session.handler().list_runs(request).await;
            let page = answer.map_err(|status| session.failure("list runs", status))?.into_inner();
            Ok((page.runs, page.next_page_token))
        })
        .await?;
        answer.runs.extend(runs);
        if !token.is_empty() {
            answer.next_page_token = token;
        }
    }
    if parents.len() > 1 {
        // The first of all are among the first of each.
        let launch = |run: &v1::Run| run.launch_time.map(|time| (time.seconds, time.nanos));
        answer.runs.sort_by_key(launch);
        if !earliest_first {
            answer.runs.reverse();
        }
        if limit > 0 && answer.runs.len() > limit as usize {
            answer.runs.truncate(limit as usize);
            pages::MORE.clone_into(&mut answer.next_page_token);
        }
    }
    Ok(answer)
}

/// How many runs of a schedule are read to get past those that are not due: runs are emitted ahead.
const AHEAD: u32 = 1_000;

/// As [`runs`], without those whose launch time lies ahead.
pub(super) async fn past_runs(
    session: &Session,
    filter: &str,
    limit: u32,
) -> anyhow::Result<v1::ListRunsResponse> {
    let more = if limit == 0 { 0 } else { limit.saturating_add(AHEAD) };
    let mut answer = runs(session, filter, more).await?;
    let now = timestamp(session.now_us);
    let is_past = |run: &v1::Run| {
        run.launch_time.is_some_and(|launch| (launch.seconds, launch.nanos) <= (now.seconds, now.nanos))
    };
    answer.runs.retain(is_past);
    if limit > 0 {
        answer.runs.truncate(limit as usize);
    }
    Ok(answer)
}

/// The skipped triggers of a schedule, latest first.
pub(super) async fn skipped(
    session: &Session,
    schedule: &str,
    limit: u32,
) -> anyhow::Result<v1::ListSkippedTriggersResponse> {
    let parent = names::schedule(&session.namespace, schedule);
    let (skipped_triggers, next_page_token) = pages::collect(limit, async |page_size, page_token| {
        let request = v1::ListSkippedTriggersRequest { parent: parent.clone(), page_size, page_token };
        let answer = session.master().list_skipped_triggers(request).await;
        let tried = || format!("list skipped triggers of {parent}");
        let page = answer.map_err(|status| session.failure(tried(), status))?.into_inner();
        Ok((page.skipped_triggers, page.next_page_token))
    })
    .await?;
    Ok(v1::ListSkippedTriggersResponse { skipped_triggers, next_page_token })
}
