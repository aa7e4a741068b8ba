//! `examples/chain`: a night of three steps by workers in two languages, each part of which is killed in the midst.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate_harness::{Cli, Database, Kind, Service, free_port, now_us, wait_for};
use tollgate_proto::v1::{GetEventRequest, Run, RunState};

use super::{Program, go, python, serve};
use crate::examples::in_january;

const PIECES: usize = 500;
const TENANTS: usize = 25;
const OF_A_TENANT: usize = 2;
const IN_ALL: usize = 50;

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/chain")
}

/// Everybody who works that night.
struct Night {
    database: Database,
    listen: String,
    service: Service,
    /// Lines of workers that have ended, with the moment when each was killed.
    ended: Vec<(Vec<String>, i64)>,
}

impl Night {
    async fn begin(kind: Kind) -> Self {
        let database = Database::new(kind).await;
        let listen = format!("127.0.0.1:{}", free_port().unwrap());
        let service = serve(&database, &listen).await;
        Self { database, listen, service, ended: Vec::new() }
    }

    fn worker(&self, mut command: Command) -> Program {
        Program::start(command.env("TOLLGATE", self.service.url()).env("CONCURRENCY", "32"))
    }

    fn python(&self, queue: &str) -> Program {
        let mut command = python::program(&folder().join("worker.py"));
        command.env("QUEUE", queue);
        self.worker(command)
    }

    fn go(&self) -> Program {
        self.worker(go::of_chain())
    }

    fn kill(&mut self, worker: Program) {
        let lines = worker.kill();
        self.ended.push((lines, now_us()));
    }

    async fn kill_the_server(self) -> Self {
        self.service.kill9();
        let service = serve(&self.database, &self.listen).await;
        Self { service, ..self }
    }

    async fn run_of(&self, schedule: &str, is: impl Fn(&Run) -> bool) -> Run {
        wait_for(&format!("a run of {schedule}"), 120, async || {
            self.service.runs(schedule).await.into_iter().find(|run| is(run))
        })
        .await
    }
}

/// Never more were at work than the policy allows, of any tenant and in all; answers the pieces that were done.
fn pieces(lines: &[(Vec<String>, i64)]) -> BTreeSet<String> {
    let mut moments: Vec<(i64, i32, String)> = Vec::new();
    let mut done = BTreeSet::new();
    for (lines, ended_us) in lines {
        let mut at_work: BTreeMap<String, String> = BTreeMap::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let (word, at_us, event, tenant) = match words[..] {
                [word, at_us, event, tenant] if tenant != "-" => {
                    (word, at_us.parse::<i64>().unwrap(), event, tenant)
                }
                // It has no tenant; or it is the last one of a process that was killed, and a part.
                _ => continue,
            };
            if word == "begin" {
                moments.push((at_us, 1, tenant.to_owned()));
                at_work.insert(event.to_owned(), tenant.to_owned());
            } else if at_work.remove(event).is_some() {
                moments.push((at_us, -1, tenant.to_owned()));
                done.insert(event.to_owned());
            }
        }
        moments.extend(at_work.into_values().map(|tenant| (*ended_us, -1, tenant)));
    }
    moments.sort();
    let (mut all, mut of): (i32, BTreeMap<String, i32>) = (0, BTreeMap::new());
    for (_, change, tenant) in moments {
        all += change;
        let own = of.entry(tenant.clone()).or_default();
        *own += change;
        assert!(*own <= OF_A_TENANT as i32, "{own} of {tenant} at once");
        assert!(all <= IN_ALL as i32, "{all} at once");
    }
    assert_eq!(of.len(), TENANTS);
    done
}

async fn a_night_goes_on_whatever_dies(kind: Kind) {
    let mut night = Night::begin(kind).await;
    let cli = Cli::new(night.service.url());
    let yaml = std::fs::read_to_string(folder().join("chain.yaml")).unwrap();
    let applied = cli.apply(&in_january(&yaml));
    assert_eq!(applied.code, 0, "{applied:?}");

    // The first worker dies with the list in its hands, and the server before the next one has it.
    cli.ok(&["trigger", "tenants"]);
    let first = night.python("tenants");
    wait_for("the list", 30, async || (!first.lines().is_empty()).then_some(())).await;
    night.kill(first);
    night = night.kill_the_server().await;
    let tenants = night.python("tenants");
    let (python, go) = (night.python("work"), night.go());

    // In the midst of the work each part dies once.
    let under_way =
        |least: u32| move |run: &Run| run.counts.as_ref().is_some_and(|counts| counts.succeeded >= least);
    night.run_of("tenants.work", under_way(60)).await;
    night.kill(python);
    let python = night.python("work");
    night.run_of("tenants.work", under_way(140)).await;
    night.kill(go);
    let go = night.go();
    night.run_of("tenants.work", under_way(220)).await;
    night = night.kill_the_server().await;
    let work = night.run_of("tenants.work", |run| run.state() == RunState::Finished).await;
    assert_eq!(work.counts.map(|counts| counts.succeeded as usize), Some(PIECES), "{work:?}");

    // The one who reports dies, too, before another says how the work went.
    let reporter = night.python("report");
    wait_for("the report", 30, async || (!reporter.lines().is_empty()).then_some(())).await;
    night.kill(reporter);
    let reporter = night.python("report");
    let report = night.run_of("tenants.report", |run| run.state() == RunState::Finished).await;
    let name = night.service.events(&report.name).await.remove(0).name;
    let event = night.service.handler().get_event(GetEventRequest { name }).await.unwrap().into_inner();
    assert_eq!(event.result, r#""500 pieces of work succeeded, 0 failed""#);

    for schedule in ["tenants", "tenants.work", "tenants.report"] {
        assert_eq!(night.service.runs(schedule).await.len(), 1, "{schedule} has run more than once");
    }
    let (by_python, by_go) = (python.lines().len(), go.lines().len());
    assert!(by_python > 0 && by_go > 0, "{by_python} lines in Python, {by_go} in Go");
    for worker in [python, go] {
        night.kill(worker);
    }
    assert_eq!(pieces(&night.ended).len(), PIECES);
    drop((tenants, reporter));
    night.service.stop().await;
}

on_both_stores!(a_night_goes_on_whatever_dies);
