//! `tollgate why --schedule`: what the next run of a schedule that follows others waits for, up its chain.
//!
//! In: a schedule. Out: the way up to the runs that go on, and why the next event of each waits. Where none goes on, that is
//! said.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tollgate_proto::json::to_rest_json;
use tollgate_proto::v1;

use super::explanation::explanation;
use super::names::{namespace_of, parent, short};
use super::rows::{run_state, word};
use super::{Session, fetch};

/// The most schedules that are looked at.
const LOOKED_AT_MAX: usize = 40;

/// One schedule of the chain.
pub(super) struct Link {
    schedule: v1::Schedule,
    /// Its latest run.
    latest: Option<v1::Run>,
    /// Why the next event of that waits, where the run goes on and an event waits.
    next: Option<v1::Explanation>,
}

impl Link {
    fn goes_on(&self) -> bool {
        self.latest.as_ref().is_some_and(|run| run.finish_time.is_none())
    }
}

/// The schedule and those before it, up to the runs that go on.
///
/// # Errors
/// What the service says.
pub(super) async fn links(session: &Session, name: &str) -> anyhow::Result<Vec<Link>> {
    let mut links: Vec<Link> = Vec::new();
    let mut waiting = VecDeque::from([name.to_owned()]);
    let mut seen = vec![name.to_owned()];
    while let Some(name) = waiting.pop_front() {
        let schedule = fetch::schedule(session, &name).await?;
        let mut link = Link { schedule, latest: latest(session, &name).await?, next: None };
        if let Some(run) = link.latest.as_ref().filter(|_| link.goes_on()) {
            link.next = next_event(session, run).await;
        } else {
            for before in &link.schedule.follows {
                if !seen.contains(before) && seen.len() < LOOKED_AT_MAX {
                    seen.push(before.clone());
                    waiting.push_back(before.clone());
                }
            }
        }
        links.push(link);
    }
    Ok(links)
}

/// As text for people.
pub(super) fn text(links: &[Link]) -> String {
    let mut text = String::new();
    for link in links {
        text.push_str(&line(&link.schedule, link.latest.as_ref()));
        text.push_str(&link.next.as_ref().map(event).unwrap_or_default());
    }
    if !links.iter().any(Link::goes_on) {
        text.push_str("no run goes on in its chain: it begins with the next trigger of the first schedule\n");
    }
    text
}

/// As data: resources as the REST API has them.
pub(super) fn json(links: &[Link]) -> Value {
    let links = links.iter().map(|link| {
        json!({
            "schedule": to_rest_json(&link.schedule),
            "latestRun": link.latest.as_ref().map(to_rest_json),
            "nextEvent": link.next.as_ref().map(to_rest_json),
        })
    });
    json!({ "schedules": links.collect::<Vec<_>>() })
}

async fn latest(session: &Session, name: &str) -> anyhow::Result<Option<v1::Run>> {
    let request = v1::ListRunsRequest {
        parent: parent(namespace_of(name)),
        filter: format!("schedule={}", short(name)),
        page_size: 1,
        ..Default::default()
    };
    let answer = session.handler().list_runs(request).await;
    let page = answer.map_err(|status| session.failure(format!("list runs of {name}"), status))?.into_inner();
    Ok(page.runs.into_iter().next())
}

/// What became of the latest run of a schedule, and what the schedule follows.
fn line(schedule: &v1::Schedule, latest: Option<&v1::Run>) -> String {
    let id = short(&schedule.name);
    let run = match latest {
        None => "has had no run".to_owned(),
        Some(run) if run.finish_time.is_some() => {
            format!("has no run that goes on; the latest one, {}, is {}", short(&run.name), run_state(run))
        }
        Some(run) => format!(
            "goes on: of {} events of run {}, {} wait and {} are in flight",
            run.events,
            short(&run.name),
            run.waiting_count,
            run.in_flight_count
        ),
    };
    let follows: Vec<&str> = schedule.follows.iter().map(|name| short(name)).collect();
    let follows =
        if follows.is_empty() { String::new() } else { format!("; it follows {}", follows.join(", ")) };
    let paused = if schedule.pause.is_some() { "; it is paused: nothing of it is launched" } else { "" };
    format!("{id} {run}{follows}{paused}\n")
}

/// Why the next event of a run waits, if one does.
async fn next_event(session: &Session, run: &v1::Run) -> Option<v1::Explanation> {
    let request = v1::ListEventsRequest {
        parent: run.name.clone(),
        filter: "state=WAITING".to_owned(),
        page_size: 1,
        ..Default::default()
    };
    let page = session.handler().list_events(request).await.ok()?.into_inner();
    explanation(session, &page.events.first()?.event_id).await.ok()
}

fn event(told: &v1::Explanation) -> String {
    let reasons = told.reasons.iter();
    let reasons = reasons.map(|reason| {
        format!("    {}: {}\n", word(reason.code().as_str_name(), "REASON_CODE_"), reason.message)
    });
    let id = told.event.as_ref().map(|event| event.event_id.as_str()).unwrap_or_default();
    format!("  its next event, {id}: {}\n{}", told.summary, reasons.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_goes_on_and_what_is_followed() {
        let schedule = v1::Schedule {
            name: "namespaces/default/schedules/report".to_owned(),
            follows: vec!["namespaces/default/schedules/work".to_owned()],
            ..Default::default()
        };
        assert_eq!(line(&schedule, None), "report has had no run; it follows work\n");
        let run = v1::Run {
            name: "namespaces/default/runs/0a-1".to_owned(),
            events: 5,
            waiting_count: 3,
            in_flight_count: 1,
            ..Default::default()
        };
        let expected =
            "report goes on: of 5 events of run 0a-1, 3 wait and 1 are in flight; it follows work\n";
        assert_eq!(line(&schedule, Some(&run)), expected);
        let ended = v1::Run {
            finish_time: Some(prost_types::Timestamp::default()),
            state: v1::RunState::Finished.into(),
            ..run
        };
        let paused = v1::Schedule { pause: Some(v1::Pause::default()), follows: Vec::new(), ..schedule };
        let expected = "report has no run that goes on; the latest one, 0a-1, is FINISHED; it is paused: nothing of it is launched\n";
        assert_eq!(line(&paused, Some(&ended)), expected);
    }

    #[test]
    fn as_data_it_has_resources_and_says_nothing_of_what_there_is_not() {
        let schedule = |id: &str| v1::Schedule {
            name: format!("namespaces/default/schedules/{id}"),
            ..Default::default()
        };
        let run = v1::Run { name: "namespaces/default/runs/0a-1".to_owned(), ..Default::default() };
        let event = v1::Event { event_id: "0a-1-0".to_owned(), ..Default::default() };
        let told =
            v1::Explanation { summary: "It waits.".to_owned(), event: Some(event), ..Default::default() };
        let links = [
            Link { schedule: schedule("report"), latest: None, next: None },
            Link { schedule: schedule("work"), latest: Some(run), next: Some(told) },
        ];
        let data = json(&links);
        assert_eq!(data["schedules"][0]["schedule"]["name"], "namespaces/default/schedules/report");
        assert_eq!(
            (&data["schedules"][0]["latestRun"], &data["schedules"][0]["nextEvent"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(data["schedules"][1]["latestRun"]["name"], "namespaces/default/runs/0a-1");
        assert_eq!(data["schedules"][1]["nextEvent"]["summary"], "It waits.");
        let text = text(&links);
        assert!(
            text.contains("  its next event, 0a-1-0: It waits.\n") && !text.contains("no run goes on"),
            "{text}"
        );
        assert!(super::text(&links[..1]).ends_with("the next trigger of the first schedule\n"));
    }
}
