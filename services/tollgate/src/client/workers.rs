//! `tollgate workers`: who takes events, what each is able to do, and what it has.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tollgate_proto::v1;

use super::rows::or_none;
use super::style::Tone;
use super::table::{Cell, Table, View, always, wide};
use super::watch::{self, WatchArgs};
use super::when::{exact, relative};
use super::{Session, complete, names};

/// Arguments of `workers`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkersArgs {
    /// Only workers of this queue
    #[arg(value_name = "QUEUE", add = ArgValueCompleter::new(complete::named))]
    queue: Option<String>,

    #[command(flatten)]
    watch: WatchArgs,
}

/// Prints the workers that are connected to any process.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: WorkersArgs) -> anyhow::Result<()> {
    session.printer.refuse_names()?;
    let parent = match &args.queue {
        Some(queue) => names::queue(&session.namespace, queue),
        None => session.parent(),
    };
    watch::run(session, args.watch, async |session| once(session, &parent).await).await
}

async fn once(session: &Session, parent: &str) -> anyhow::Result<()> {
    let request = v1::ListWorkersRequest { parent: parent.to_owned() };
    let answer = session.workers().list_workers(request).await;
    let answer = answer.map_err(|status| session.failure("list workers", status))?.into_inner();
    session.printer.message(&answer, |answer| text(session.view(), answer))
}

fn text(view: View, answer: &v1::ListWorkersResponse) -> String {
    let head = [
        always("QUEUE"),
        always("WORKER"),
        always("LABELS"),
        always("CAPACITY"),
        always("ROOM"),
        always("EVENTS"),
        always("LAST SIGN"),
        always("SINCE"),
        wide("WAY"),
        wide("GIVEN"),
        wide("CONNECTED"),
        wide("HAS"),
    ];
    let mut table = Table::of(view, head);
    for worker in &answer.workers {
        let name = match (worker.worker.as_str(), worker.id.as_str()) {
            ("", "") => "(nameless)".to_owned(),
            ("", id) => format!("({id})"),
            (name, _) => name.to_owned(),
        };
        table.row([
            Cell::from(names::short(&worker.queue)),
            name.into(),
            worker.labels.join(",").into(),
            worker.capacity.to_string().into(),
            worker.room.to_string().into(),
            worker.events_count.to_string().into(),
            relative(view.now_us, worker.last_sign_time.as_ref()).into(),
            relative(view.now_us, worker.connect_time.as_ref()).into(),
            if worker.polls { "poll" } else { "stream" }.into(),
            worker.given_count.to_string().into(),
            exact(worker.connect_time.as_ref()).into(),
            held(worker).into(),
        ]);
    }
    let mut text = or_none(&table, "no workers");
    if answer.more_count > 0 {
        text.push_str(&format!("and {} more: name a queue to see fewer\n", answer.more_count));
    }
    if answer.unreached_count > 0 {
        let said = format!("{} handlers did not answer: workers may be missing", answer.unreached_count);
        text.push_str(&format!("{}\n", Tone::Warning.paint(&said)));
    }
    text
}

/// The events that it has, and how many more than are named.
fn held(worker: &v1::Worker) -> String {
    let more = worker.events_count.saturating_sub(u32::try_from(worker.events.len()).unwrap_or(u32::MAX));
    let named = worker.events.join(",");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert::timestamp;

    use super::super::style::plain;
    use super::*;

    #[test]
    fn each_worker_is_a_line_and_what_is_missing_is_said() {
        let now_us = 1_700_000_000_000_000;
        let worker = v1::Worker {
            queue: "namespaces/team/queues/render".to_owned(),
            id: "17".to_owned(),
            worker: "render-7".to_owned(),
            labels: vec!["eu".to_owned(), "gpu".to_owned()],
            capacity: 4,
            room: 1,
            events_count: 3,
            events: vec!["15-01-0".to_owned(), "15-01-1".to_owned()],
            connect_time: Some(timestamp(now_us - 3_600_000_000)),
            last_sign_time: Some(timestamp(now_us - 2_000_000)),
            polls: false,
            given_count: 90,
        };
        let nameless = v1::Worker { worker: String::new(), polls: true, ..worker.clone() };
        let workers = vec![worker, nameless];
        let answer = v1::ListWorkersResponse { workers, unreached_count: 2, more_count: 5 };
        let view = View { now_us, wide: false, everywhere: false };
        let said = plain(&text(view, &answer));
        let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["render", "render-7", "eu,gpu", "4", "1", "3", "2s", "ago", "1h", "ago"]);
        assert_eq!(lines[2][1], "(17)", "{said}");
        assert!(said.contains("and 5 more") && said.contains("2 handlers did not answer"), "{said}");
        assert!(!said.contains("15-01"), "{said}");
        let said = plain(&text(View { wide: true, ..view }, &answer));
        assert!(said.contains("15-01-0,15-01-1 and 1 more") && said.contains("poll"), "{said}");
        assert_eq!(text(view, &v1::ListWorkersResponse::default()), "no workers\n");
    }
}
