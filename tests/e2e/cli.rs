//! The client commands against a service: names, namespaces, what a file changes, waiting, watching.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;
use tollgate_harness::resources::{every, http, policy, schedule_name, soon};
use tollgate_harness::{
    Answer, Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, binary, wait_for,
};
use tollgate_proto::v1::{ReleaseOutcome, ReleaseTokenRequest, Run, Schedule, TriggerScheduleRequest};

/// A policy and a schedule that fires once an hour.
fn file(max_in_flight: u32, url: &str) -> String {
    format!(
        "kind: Policy\nid: backups\nmaxInFlight: {max_in_flight}\nlabels: {{app: backup}}\n---\n\
         kind: Schedule\nid: nightly\npolicy: backups\ntriggers: [{{cron: \"0 3 * * *\"}}]\ntimeZone: Europe/Berlin\n\
         events: 20\nlabels: {{app: backup}}\ntarget: {{http: {{url: \"{url}\", secret: \"{SECRET}\"}}}}\n"
    )
}

async fn trigger(service: &Service, id: &str, events: u32) -> Run {
    let request =
        TriggerScheduleRequest { name: schedule_name(id), events: Some(events), ..Default::default() };
    service.master().trigger_schedule(request).await.unwrap().into_inner()
}

fn id(run: &Run) -> &str {
    run.name.rsplit('/').next().unwrap()
}

fn with(cli: &Cli, words: &[&str], input: &str) -> Answer {
    cli.run_with(&[words, &["-f", "-"]].concat(), input)
}

async fn a_file_says_what_it_changes(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let (small, large) = (file(5, &consumer.url()), file(50, &consumer.url()));
    let answer = with(&cli, &["diff"], &small);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains("policy/backups would be created\n"), "{answer:?}");
    let applied = with(&cli, &["apply", "--reason", "größer: a+b"], &small);
    let expected = "policy/backups created\nschedule/nightly created\n2 created, 0 updated, 0 unchanged\n";
    assert_eq!((applied.code, applied.out.as_str()), (0, expected), "{applied:?}");
    let same = with(&cli, &["diff"], &small);
    assert_eq!((same.code, same.out.as_str()), (0, ""), "{same:?}");

    trigger(&service, "nightly", 20).await;
    wait_for("a full policy", 30, async || (consumer.notes.in_flight() == 5).then_some(())).await;
    let effect = wait_for("the number of those that wait", 30, async || {
        let dry = with(&cli, &["apply", "--dry-run"], &large);
        assert_eq!(dry.code, 0, "{dry:?}");
        dry.out.contains("of 15 that wait").then_some(dry.out)
    })
    .await;
    assert!(effect.contains("policy/backups would be updated\n    maxInFlight: 5 -> 50\n"), "{effect}");
    assert!(effect.contains("    15 events may start at once, of 15 that wait.\n"), "{effect}");
    assert!(
        effect.ends_with("0 created, 1 updated, 1 unchanged (dry run: nothing was changed)\n"),
        "{effect}"
    );
    assert_eq!(cli.json(&["get", "policy/backups"])["maxInFlight"], 5, "a dry run changes nothing");

    let applied = with(&cli, &["apply", "-o", "json"], &large);
    let said: serde_json::Value = serde_json::from_str(&applied.out).unwrap();
    assert_eq!(said["results"][0]["difference"], json!({"max_in_flight": {"old": 5, "new": 50}}), "{said}");
    let again = with(&cli, &["apply"], &file(7, &consumer.url()));
    assert!(again.out.starts_with("policy/backups updated (maxInFlight 50 -> 7)\n"), "{again:?}");
    let audit = cli.json(&["audit", "policy/backups"]).to_string();
    assert!(audit.contains("größer: a+b"), "{audit}");
    service.stop().await;
}

async fn what_is_not_in_the_files_is_pruned(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let url = "http://127.0.0.1:9/";
    let old = "kind: Schedule\nid: old\ntriggers: [{cron: \"0 3 * * *\"}]\nlabels: {app: backup}\n\
               target: {http: {url: \"http://127.0.0.1:9/\"}}\n---\n\
               kind: Schedule\nid: other\ntriggers: [{cron: \"0 3 * * *\"}]\nlabels: {app: other}\n\
               target: {http: {url: \"http://127.0.0.1:9/\"}}\n---\n\
               kind: Policy\nid: unused\nmaxInFlight: 1\nlabels: {app: backup}\n";
    assert_eq!(with(&cli, &["apply"], old).code, 0);
    let prune = ["apply", "--prune", "-l", "app=backup"];
    let dry = with(&cli, &[&prune[..], &["--dry-run"]].concat(), &file(5, url));
    assert_eq!(dry.code, 0, "{dry:?}");
    assert!(dry.out.contains("schedule/old would be deleted\npolicy/unused would be deleted\n"), "{dry:?}");
    let nobody = with(&cli, &prune, &file(5, url));
    assert_eq!(nobody.code, 2, "nobody can be asked: {nobody:?}");
    assert!(
        nobody.err.contains("2 resources would be deleted") && nobody.err.contains("--yes"),
        "{nobody:?}"
    );
    assert_eq!(
        cli.ok(&["get", "schedules", "-o", "name"]),
        "schedule/old\nschedule/other\n",
        "nothing was changed"
    );
    let done = with(&cli, &[&prune[..], &["--yes"]].concat(), &file(5, url));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("schedule/old deleted\npolicy/unused deleted\n"), "{done:?}");
    assert_eq!(cli.ok(&["get", "schedules", "-o", "name"]), "schedule/nightly\nschedule/other\n");
    assert_eq!(cli.ok(&["get", "policies", "-o", "name"]), "policy/backups\n");
    service.stop().await;
}

async fn names_lead_from_one_command_to_the_next(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let yaml = file(5, "http://127.0.0.1:9/");
    assert_eq!(with(&cli, &["apply"], &yaml).code, 0);
    assert_eq!(with(&cli, &["-n", "team", "apply"], &yaml).code, 0);
    for kind in ["schedules", "policies"] {
        let listed = cli.ok(&["get", kind, "-A", "-o", "name"]);
        assert_eq!(listed.lines().count(), 2, "{listed}");
        for name in listed.lines() {
            let json = cli.json(&["get", name]);
            assert!(json["name"].as_str().unwrap().ends_with(name.rsplit('/').next().unwrap()), "{json}");
            assert!(cli.ok(&["describe", name]).contains("labels:"), "{name}");
        }
    }
    let everywhere = cli.ok(&["list", "policies", "-A"]);
    assert!(everywhere.starts_with("NAMESPACE  POLICY"), "{everywhere}");
    assert!(everywhere.lines().any(|line| line.starts_with("team ")), "{everywhere}");
    assert!(cli.ok(&["status", "-a"]).contains("team "), "the old flag is still known");
    let wide = cli.ok(&["get", "schedules", "-o", "wide", "-n", "team"]);
    assert!(wide.contains("http://127.0.0.1:9/") && wide.contains("app=backup"), "{wide}");
    let yaml = cli.ok(&["get", "schedule", "nightly", "-o", "yaml"]);
    assert!(yaml.contains("timeZone: Europe/Berlin"), "{yaml}");
    let alert = format!(
        "kind: Alert\nid: ops\nnamespace: team\ntroubles: {{}}\nschedules: [nightly]\n\
         target: {{http: {{url: 'http://127.0.0.1:9/', secret: {}}}}}\n",
        SECRET
    );
    assert_eq!(with(&cli, &["apply"], &alert).code, 0);
    for resource in ["schedule/nightly", "policy/backups", "alert/ops"] {
        let printed = cli.ok(&["-n", "team", "get", resource, "-o", "yaml"]);
        assert!(printed.contains("\nid: ") || printed.starts_with("kind: "), "{printed}");
        assert!(!printed.contains(SECRET), "{printed}");
        let again = with(&cli, &["apply"], &printed);
        assert!(again.out.ends_with("0 created, 0 updated, 1 unchanged\n"), "{again:?}\n{printed}");
    }
    let all = cli.ok(&["get", "schedules", "-A", "-o", "yaml"]);
    assert_eq!(all.matches("kind: Schedule\n").count(), 2, "{all}");
    let again = with(&cli, &["apply"], &all);
    assert!(again.out.ends_with("0 created, 0 updated, 2 unchanged\n"), "{again:?}\n{all}");
    let refused = cli.run(&["status", "-o", "name"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let run = cli.ok(&["trigger", "schedule/nightly", "-o", "name"]);
    assert!(run.starts_with("run/") && cli.ok(&["get", run.trim()]).contains("nightly"), "{run}");
    cli.ok(&["pause", "schedule/nightly", "--reason", "a reason"]);
    assert!(cli.ok(&["audit", "schedule/nightly"]).contains("a reason"));
    cli.ok(&["resume", "schedule", "nightly"]);
    cli.ok(&["delete", "namespaces/team/schedules/nightly"]);
    assert_eq!(cli.ok(&["get", "schedules", "-n", "team"]), "no schedules\n");
    service.stop().await;
}

async fn the_beginning_of_an_id_is_enough(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", policy(100)).await.unwrap();
    let hourly = every(3_600, soon(1_800_000), 2, "p", http(&consumer));
    service.create_schedule("hourly", hourly).await.unwrap();
    let run = trigger(&service, "hourly", 12).await;
    let other = trigger(&service, "hourly", 1).await;
    wait_for("all events at the consumer", 30, async || (consumer.notes.in_flight() == 13).then_some(()))
        .await;
    // As long as both ids are the same, the beginning is that of two runs.
    let shared = id(&run).bytes().zip(id(&other).bytes()).take_while(|(a, b)| a == b).count();
    let unique = &id(&run)[..(shared + 1).max(9)];
    assert!(cli.ok(&["get", "run", unique]).contains(id(&run)));
    assert!(cli.ok(&["describe", "run", &unique[3..]]).contains(id(&run)), "without the queue shard");
    if shared >= 4 {
        let two = cli.run(&["get", "run", &id(&run)[..shared]]);
        assert_eq!(two.code, 1, "{two:?}");
        assert!(two.err.contains(id(&run)) && two.err.contains(id(&other)), "{two:?}");
    }
    let event = consumer
        .notes
        .arrivals()
        .into_iter()
        .find(|arrival| arrival.event_id.contains(&format!("{}-11-", id(&run))));
    let event = event.unwrap().event_id;
    assert!(cli.ok(&["why", &format!("{unique}-11")]).contains(&event));
    assert!(cli.ok(&["describe", "event", &event[..event.len() - 3]]).contains(&event));
    assert!(cli.ok(&["get", "events", unique]).lines().count() == 13);
    assert_eq!(cli.ok(&["release", &format!("{unique}-11")]), "RELEASED\n");
    let several = cli.run(&["why", unique]);
    assert!(several.code == 1 && several.err.contains("several events"), "{several:?}");
    let none = cli.run(&["get", "run", "0123456789"]);
    assert_eq!(none.code, 1, "{none:?}");
    service.stop().await;
}

async fn a_backfill_is_shown_before_it_is_made(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let anchor =
        prost_types::Timestamp { seconds: tollgate_harness::now_us() / 60_000_000 * 60 - 360_000, nanos: 0 };
    let target = tollgate_proto::json::from_json(json!({"http": {"url": "http://127.0.0.1:9/"}})).unwrap();
    service.create_schedule("old", every(60, anchor, 2, "", target)).await.unwrap();
    let at = |minutes: i64| {
        chrono::DateTime::from_timestamp(anchor.seconds + minutes * 60, 0).unwrap().to_rfc3339()
    };
    let backfill = |from: i64, to: i64, more: &[&str]| {
        cli.run(&[&["backfill", "old", "--from", &at(from), "--to", &at(to)][..], more].concat())
    };
    let dry = backfill(0, 1_500, &["--dry-run"]);
    assert!(dry.out.starts_with("1500 runs with 3000 events would be made, 0 exist\n"), "{dry:?}");
    assert!(dry.out.ends_with("… and 500 more\n"), "{dry:?}");
    assert_eq!(cli.ok(&["get", "runs", "--filter", &format!("launch_time<={}", at(1_500))]), "no runs\n");
    let made = backfill(10, 13, &[]);
    assert!(made.out.starts_with("3 runs made, 0 existed\n"), "{made:?}");
    let filter = format!("launch_time<={}", at(13));
    let listed = |more: &[&str]| {
        let list = ["list", "runs", "--filter", &filter, "-o", "name"];
        let text = cli.ok(&[&list[..], more].concat());
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let latest = listed(&["--order", "latest"]);
    assert_eq!((latest.len(), &latest), (3, &listed(&[])), "the latest first, where nothing is said");
    assert_eq!(listed(&["--order", "earliest"]), latest.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(listed(&["--order", "earliest", "--limit", "1"]), latest[2..]);
    assert!(
        cli.run(&["list", "schedules", "--order", "latest"]).err.contains("--order applies to lists of runs")
    );
    let dry = backfill(9, 14, &["--dry-run"]);
    assert!(dry.out.starts_with("2 runs with 4 events would be made, 3 exist\n"), "{dry:?}");
    service.stop().await;
}

/// Ends with the code that says how the run ended.
async fn waiting_says_how_a_run_ended(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::work(50..60)).await;
    service.create_policy("p", policy(5)).await.unwrap();
    let hourly = every(3_600, soon(1_800_000), 2, "p", http(&consumer));
    service.create_schedule("hourly", hourly.clone()).await.unwrap();
    let target = serde_json::json!({"http": {"url": "http://127.0.0.1:9/"}});
    let target = tollgate_proto::json::from_json(target).unwrap();
    let refused = Schedule { target: Some(target), policy: String::new(), ..hourly };
    service.create_schedule("refused", refused).await.unwrap();
    let run = trigger(&service, "hourly", 40).await;
    let waited = cli.run(&["wait", "run", id(&run), "--for", "finished", "--timeout", "60s"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    assert!(waited.out.contains("FINISHED"), "{waited:?}");
    assert_eq!(cli.run(&["wait", "schedule", "hourly"]).code, 0, "its latest run is this one");
    let stuck = trigger(&service, "refused", 3).await;
    let late = cli.run(&["wait", "run", id(&stuck), "--timeout", "1s"]);
    assert_eq!(late.code, 4, "{late:?}");
    assert!(late.err.contains("timed out") && late.err.contains("0 of 3 ended"), "{late:?}");
    cli.ok(&["cancel", id(&stuck), "--reason", "enough"]);
    let ended = cli.run(&["wait", "schedule/refused", "--timeout", "60s"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert_eq!(cli.run(&["wait", "schedule", "nothing", "--timeout", "1s"]).code, 1);
    service.stop().await;
}

/// A command that goes on, and its lines.
struct GoesOn {
    process: std::process::Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl GoesOn {
    fn start(service: &Service, words: &[&str]) -> Self {
        let mut process = Command::new(binary())
            .args(words)
            .args(["--interval", "200ms", "--server", service.url()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (send, lines) = std::sync::mpsc::channel();
        let out = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Self { process, lines, seen: Vec::new() }
    }

    /// Waits until some line has this part.
    async fn says(&mut self, part: &str) {
        let look = async || {
            self.seen.extend(self.lines.try_iter());
            self.seen.iter().any(|line| line.contains(part)).then_some(())
        };
        wait_for(part, 30, look).await;
    }
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Runs, what waits and what fails are told as they happen.
async fn what_happens_is_told(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let consumer = Consumer::start(service.link(), Releases::Unary, |arrival| {
        let outcome = if arrival.index == 0 { ReleaseOutcome::Failed } else { ReleaseOutcome::Succeeded };
        Conduct::release(ReleaseTokenRequest {
            outcome: outcome.into(),
            message: "no such tenant".to_owned(),
            ..ReleaseTokenRequest::default()
        })
    })
    .await;
    service.create_policy("p", policy(5)).await.unwrap();
    let hourly = every(3_600, soon(1_800_000), 2, "p", http(&consumer));
    service.create_schedule("hourly", hourly).await.unwrap();
    let mut followed = GoesOn::start(&service, &["follow", "schedule/hourly"]);
    followed.says("0 waiting, 0 held").await;
    let run = trigger(&service, "hourly", 20).await;
    followed.says(&format!("run/{}  hourly FINISHED_WITH_FAILURES", id(&run))).await;
    followed.says("FAILED after attempt 1: no such tenant").await;
    drop(followed);
    service.stop().await;
}

/// What is watched outlives the service, and says that it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_outlives_the_service() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    service.create_policy("first", policy(5)).await.unwrap();
    let mut watching = GoesOn::start(&service, &["get", "policies", "--watch"]);
    watching.says("first").await;
    service.create_policy("second", policy(5)).await.unwrap();
    watching.says("second").await;
    service.stop().await;
    watching.says("no answer: ").await;
    assert!(watching.process.try_wait().unwrap().is_none(), "it goes on");
}

on_both_stores!(
    a_file_says_what_it_changes,
    what_is_not_in_the_files_is_pruned,
    names_lead_from_one_command_to_the_next,
    the_beginning_of_an_id_is_enough,
    a_backfill_is_shown_before_it_is_made,
    waiting_says_how_a_run_ended,
    what_happens_is_told,
);
