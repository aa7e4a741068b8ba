//! Worker programs that poll, in two languages, killed again and again in the midst of their work.

use std::collections::BTreeSet;

use serde_json::json;
use tollgate_harness::{Cli, Database, Kind, Service, free_port, now_us, wait_for};
use tollgate_proto::v1::RunState;

use super::{Program, chain, go, python, serve};

const EVENTS: u32 = 600;
const LIMIT: u64 = 8;
const WORKERS: usize = 4;
const KILLS: usize = 12;
/// Events that are done between two kills, at least.
const STEP: usize = 30;

fn schedule() -> String {
    let policy = json!({
        "kind": "Policy", "id": "gentle", "maxInFlight": LIMIT, "tokenTtl": "4s", "suspectPeriod": "1s",
    });
    let schedule = json!({
        "kind": "Schedule", "id": "pieces", "events": EVENTS, "policy": "gentle",
        "target": {"pull": {"queue": "work"}},
        "retry": {"minBackoff": "100ms", "maxBackoff": "500ms", "maxAttempts": 100},
    });
    format!("{policy}\n---\n{schedule}\n")
}

/// A worker of `examples/chain`, in Go or in Python. All of them together have room for more than the limit.
fn worker(service: &Service, place: usize) -> Program {
    let mut command = if place.is_multiple_of(2) {
        go::of_chain()
    } else {
        python::program(&chain::folder().join("worker.py"))
    };
    command.env("QUEUE", "work").env("TOLLGATE", service.url()).env("CONCURRENCY", "3");
    Program::start(&mut command)
}

fn is_at_work(worker: &Program) -> bool {
    worker.after("begin").len() > worker.after("done").len()
}

/// By the lines of each process, and the moment when it was dead: how many events were at work at once, and which were done.
fn worked(ended: &[(Vec<String>, i64)], events: &BTreeSet<String>) -> (i32, BTreeSet<String>) {
    let (mut moments, mut done) = (Vec::new(), BTreeSet::new());
    for (lines, ended_us) in ended {
        let mut at_work = BTreeSet::new();
        for line in lines {
            let mut words = line.split(' ');
            let (Some(word), Some(at_us), Some(event)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            // The last line of a process that was killed may be a part of one.
            let Some(event) = events.get(event) else { continue };
            let at_us: i64 = at_us.parse().unwrap();
            if word == "begin" && at_work.insert(event) {
                moments.push((at_us, 1));
            } else if word == "done" && at_work.remove(event) {
                moments.push((at_us, -1));
                done.insert(event.clone());
            }
        }
        moments.extend(at_work.into_iter().map(|_| (*ended_us, -1)));
    }
    moments.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in moments {
        now += change;
        most = most.max(now);
    }
    (most, done)
}

async fn programs_that_poll_and_are_killed_lose_nothing(kind: Kind) {
    let database = Database::new(kind).await;
    let service = serve(&database, &format!("127.0.0.1:{}", free_port().unwrap())).await;
    let cli = Cli::new(service.url());
    let applied = cli.apply(&schedule());
    assert_eq!(applied.code, 0, "{applied:?}");
    let mut workers: Vec<Program> = (0..WORKERS).map(|place| worker(&service, place)).collect();
    cli.ok(&["trigger", "pieces"]);
    let name = service.first_run("pieces").await.name;
    let run = async || {
        let held = service.held_count().await;
        assert!(held <= LIMIT, "{held} tokens are held");
        service.run(&name).await
    };
    let mut ended = Vec::new();
    for kill in 1..=KILLS {
        let place = wait_for("a worker to be killed at work", 90, async || {
            let counts = run().await.counts.unwrap_or_default();
            let mut places = (0..WORKERS).map(|place| (kill + place) % WORKERS);
            places.find(|place| counts.succeeded as usize >= kill * STEP && is_at_work(&workers[*place]))
        })
        .await;
        let killed = std::mem::replace(&mut workers[place], worker(&service, place));
        ended.push((killed.kill(), now_us()));
    }
    let end = wait_for("the end of the run", 90, async || {
        Some(run().await).filter(|run| run.finish_time.is_some())
    })
    .await;
    assert_eq!((end.state(), end.counts.unwrap().succeeded), (RunState::Finished, EVENTS), "{end:?}");
    ended.extend(workers.into_iter().map(|worker| (worker.kill(), now_us())));
    let events = service.events(&name).await;
    assert!(events.iter().any(|event| event.attempt > 1), "nothing was lost with those who were killed");
    let events: BTreeSet<String> = events.into_iter().map(|event| event.event_id).collect();
    assert_eq!(events.len(), EVENTS as usize);
    let (most, done) = worked(&ended, &events);
    assert_eq!(done, events, "each of them was done by somebody");
    assert!((2..=LIMIT as i32).contains(&most), "{most} at work at once, of {LIMIT}");
    assert_eq!(service.held_count().await, 0);
    service.stop().await;
}

on_both_stores!(programs_that_poll_and_are_killed_lose_nothing);
