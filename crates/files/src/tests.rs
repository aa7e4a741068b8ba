//! What is read from files, and what is refused.

#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_clock::instant_now;

use super::*;

mod tasks;

fn parse(text: &str) -> (Vec<FileEntry>, Vec<String>) {
    let (mut entries, mut wrong) = (Vec::new(), Vec::new());
    super::parse(&"batch.yaml".into(), text, "default", &mut entries, &mut wrong);
    (entries, wrong)
}

const GOOD: &str = "\
# A batch.
kind: Schedule
id: nightly
timeZone: Europe/Berlin
triggers:
  - cron: 30 2 * * *
  - interval: {every: 15m}
events: 1000
policy: imports
catchUp: {mode: LATEST}
target:
  http: {url: 'http://127.0.0.1:9000/'}
  release: explicit
payload: {on: no, count: 3}
---
kind: Policy
name: namespaces/team/policies/imports
max_in_flight: 4
token_ttl: 15m
";

#[test]
fn documents_become_messages() {
    let (entries, wrong) = parse(GOOD);
    assert_eq!(wrong, [] as [&str; 0]);
    let [schedule, policy] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(schedule.location.to_string(), "batch.yaml:2");
    let Resource::Schedule(message) = &schedule.resource else { panic!("{schedule:?}") };
    assert_eq!(message.name, "namespaces/default/schedules/nightly");
    assert_eq!(message.events, Some(1_000));
    assert_eq!(message.catch_up.unwrap().mode(), v1::CatchUpMode::Latest);
    assert_eq!(message.triggers.len(), 2);
    // `no` is text: only true and false are truth values.
    let payload = tollgate_proto::json::to_json(message)["payload"].clone();
    assert_eq!(payload, serde_json::json!({"on": "no", "count": 3}));
    assert_eq!(policy.location.to_string(), "batch.yaml:16");
    assert_eq!(policy.namespace, "team");
    let Resource::Policy(message) = &policy.resource else { panic!("{policy:?}") };
    assert_eq!(message.name, "namespaces/team/policies/imports");
    assert_eq!(message.token_ttl.unwrap().seconds, 900);
}

#[test]
fn lists_in_one_document_have_places_of_their_own() {
    let text = "---\nnamespace: team\nschedules:\n  - id: a\n    triggers: [{cron: '@daily'}]\n  - id: b\n\
                policies:\n  - {id: p, max_in_flight: 2}\n";
    let (entries, wrong) = parse(text);
    assert_eq!(wrong, [] as [&str; 0]);
    let locations: Vec<String> =
        entries.iter().map(|entry| format!("{} {}", entry.location, entry.namespace)).collect();
    assert_eq!(locations, ["batch.yaml:8 team", "batch.yaml:4 team", "batch.yaml:6 team"]);
    // The service's refusals are found on the lines of their fields.
    assert_eq!(entries[1].location.of_field("schedule.triggers[0].cron").to_string(), "batch.yaml:5");
    assert_eq!(entries[1].location.of_field("target").to_string(), "batch.yaml:4");
}

/// Each line begins, and has a part, as is expected.
fn assert_like(wrong: &[String], expected: &[(&str, &str)]) {
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (line, (start, part)) in wrong.iter().zip(expected) {
        assert!(line.starts_with(start) && line.contains(part), "{line}\n{start}{part}");
    }
}

#[test]
fn everything_wrong_is_reported_with_its_line() {
    let text = "\
kind: Policy
id: p
max_in_flight: many
---
kind: Schedule
id: Wrong Name
---
kind: Schedule
id: a
triggers:
  - cron: */5 * * * *
---
kind: Job
id: x
---
kind: Schedule
id: b
colour: red
---
kind: Schedule
id: c
name: c
---
- 1
---
kind: Schedule
events: 3
---
kind: Schedule
id: twice
id: again
---
schedules:
  - id: d
    retry:
      max_attempts: x
  - 7
";
    let (entries, wrong) = parse(text);
    assert!(entries.is_empty(), "{entries:?}");
    let expected = [
        ("batch.yaml:3: max_in_flight: ", "\"many\" is not allowed"),
        // The rest of a resource is read all the same.
        ("batch.yaml:5: target: ", "expected http, sqs, kafka or pull"),
        ("batch.yaml:6: id: ", "\"Wrong Name\" is not allowed"),
        ("batch.yaml:11: ", "text that begins with * must stand in quotes"),
        (
            "batch.yaml:13: kind: ",
            "\"Job\" is not allowed, expected Policy, Schedule, Calendar or Alert; did you mean Schedule?",
        ),
        // What seems to be missing beside a field that is not known may be meant by it.
        ("batch.yaml:18: colour: ", "no such field, expected catchUp"),
        ("batch.yaml:20: target: ", "http, sqs, kafka or pull"),
        ("batch.yaml:22: name: ", "excludes id"),
        ("batch.yaml:24: ", "a list is not allowed as a document"),
        ("batch.yaml:26: id: ", "is missing: write id: my-schedule"),
        ("batch.yaml:26: target: ", "http, sqs, kafka or pull"),
        ("batch.yaml:31: ", "id: is given twice: remove one of them"),
        ("batch.yaml:34: target: ", "http, sqs, kafka or pull"),
        ("batch.yaml:36: retry.max_attempts: ", "\"x\" is not allowed"),
        ("batch.yaml:37: schedules[1]: ", "expected an object"),
    ];
    assert_like(&wrong, &expected);
}

#[test]
fn nine_faults_of_one_resource_are_nine_lines_in_its_spelling() {
    let text = "\
kind: Schedule
id: nightly
timezone: Europe/Berln
events: 0
priority: 12
triggers:
  - cron: 0 25 * * *
  - cron: 61 * * * *
    timeZone: UTC
retry: {maxAttempts: 0}
finishBy: 15
target: {http: {url: ftp://x}}
";
    let (entries, wrong) = parse(text);
    assert!(entries.is_empty(), "{entries:?}");
    let expected = [
        ("batch.yaml:3: timezone: ", "no such field; did you mean timeZone?"),
        ("batch.yaml:4: events: ", "1 to 10000000"),
        ("batch.yaml:5: priority: ", "\"12\" is not allowed, expected 0 to 9"),
        ("batch.yaml:7: triggers[0].cron: hour: ", "0-23"),
        ("batch.yaml:8: triggers[1].cron: minute: ", "0-59"),
        ("batch.yaml:9: triggers[1].timeZone: ", "timeZone belongs to the schedule, one level up"),
        ("batch.yaml:10: retry.maxAttempts: ", "1 to 1000"),
        ("batch.yaml:11: finishBy: ", "for seconds write 15s"),
        ("batch.yaml:12: target.http.url: ", "http://"),
    ];
    assert_like(&wrong, &expected);
}

#[test]
fn values_are_judged_without_the_service() {
    let text = "kind: Schedule\nid: a\ntriggers:\n  - cron: 0 25 * * *\n  - cron: 61 * * * *\ntimeZone: Berlin\n\
                target: {http: {url: 'http://a/', hasSecret: true}}\n---\nkind: Policy\nid: p\nburst: 3\n";
    let (entries, wrong) = parse(text);
    assert_eq!(wrong, [] as [&str; 0]);
    let wrong = wrong_values(&entries, 100);
    let expected = [
        ("batch.yaml:4: triggers[0].cron: hour: ", "\"25\" is not allowed, expected 0-23"),
        ("batch.yaml:5: triggers[1].cron: minute: ", "\"61\" is not allowed, expected 0-59"),
        ("batch.yaml:6: timeZone: ", "did you mean Europe/Berlin?"),
        ("batch.yaml:9: maxInFlight: ", "a limit, such as maxInFlight: 5, or ratePerSecond: 10, or both"),
        ("batch.yaml:11: burst: ", "no burst without ratePerSecond"),
    ];
    assert_like(&wrong, &expected);
    assert_eq!(wrong_values(&entries, 2).len(), 2);
}

#[test]
fn units_are_said_by_schedules_items_and_lists() {
    let text = "kind: Schedule\nid: a\nunits: 5\nitems: [{data: 1, units: 3}, {data: 2}]\ntarget: {http: {url: 'http://a/'}}\n---\n\
                kind: Schedule\nid: b\nitemsFrom: {http: {url: 'http://l/', unitsField: n}}\ntarget: {http: {url: 'http://a/'}}\n";
    let (entries, wrong) = parse(text);
    assert_eq!(wrong, [] as [&str; 0]);
    assert_eq!(wrong_values(&entries, 100), [] as [String; 0]);
    let schedule = |entry: &FileEntry| match &entry.resource {
        Resource::Schedule(schedule) => schedule.clone(),
        other => panic!("{other:?}"),
    };
    let schedules: Vec<_> = entries.iter().map(schedule).collect();
    let units: Vec<u32> = schedules[0].items.iter().map(|item| item.units).collect();
    assert_eq!((schedules[0].units, units), (Some(5), vec![3, 0]));
    // What is exported says the same.
    for said in &schedules {
        let (again, wrong) = parse(&document(Kind::Schedule, said));
        assert_eq!(wrong, [] as [&str; 0]);
        let again = schedule(&again[0]);
        assert_eq!(
            (again.units, &again.items, &again.items_from),
            (said.units, &said.items, &said.items_from)
        );
    }
    let text = text.replace("units: 5", "units: 0").replace("units: 3", "units: 1001");
    let (entries, _) = parse(&text);
    let expected = [
        ("batch.yaml:3: units: ", "\"0\" is not allowed, expected 1 to 1000"),
        ("batch.yaml:4: items[0].units: ", "\"1001\" is not allowed, expected 0 to 1000"),
    ];
    let mut wrong = wrong_values(&entries, 100);
    wrong.sort();
    assert_like(&wrong, &expected);
}

#[test]
fn other_shapes_are_answered_with_what_to_write() {
    for (text, start, part) in [
        (
            "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: n}\nspec: {schedule: '0 3 * * *'}\n",
            "batch.yaml:1: this is a CronJob",
            "id: n\n",
        ),
        (
            "# jobs\n*/5 * * * * /usr/bin/backup --all\n",
            "batch.yaml:2: this is a line of a crontab",
            "cron: \"*/5 * * * *\"",
        ),
        ("id: a\ntriggers: []\n", "batch.yaml:1: kind is missing", "kind: Schedule"),
        ("maxInFlight: 3\n", "batch.yaml:1: kind is missing", "kind: Policy"),
        ("kind: Schedul\n", "batch.yaml:1: kind: ", "did you mean Schedule?"),
    ] {
        let (entries, wrong) = parse(text);
        assert!(entries.is_empty(), "{entries:?}");
        let [line] = wrong.as_slice() else { panic!("{text}: {wrong:?}") };
        assert!(line.starts_with(start) && line.contains(part), "{text}: {line}");
    }
}

#[test]
fn ten_thousand_documents_are_read_quickly() {
    let text: String = (0..10_000)
        .map(|n| format!("---\n{}", GOOD.split("---").next().unwrap().replace("nightly", &format!("s{n}"))))
        .collect();
    let start = instant_now();
    let (entries, wrong) = parse(&text);
    assert_eq!((entries.len(), wrong.len()), (10_000, 0));
    assert!(given_twice(&entries).is_empty());
    // Generous, because tests are not optimised: what is tested is that the time does not grow with the square.
    assert!(start.elapsed().as_secs() < 30, "{:?}", start.elapsed());
}

#[test]
fn fields_of_a_text_have_lines() {
    let lines = Lines::of(
        "{\n  \"target\": {\n    \"http\": {\n      \"url\": \"x\"\n    }\n  },\n  \"triggers\": [\n{\"at\": 1},\n{\"at\": 2}]\n}",
    );
    assert_eq!(lines.field("schedule.target.http.url"), Some(4));
    assert_eq!(lines.field("triggers[1].at"), Some(9));
    assert_eq!(lines.field("nothing"), None);
    assert_eq!(Lines::of("{").field("a"), None);
}

const JOB: &str = r#"kind: Schedule
id: nightly
triggers: [{cron: "0 2 * * *"}]
policy: backups
labels: {team: data}
target: {http: {url: "http://a/list"}}
steps:
  - id: backup
    itemsFromResults: {keyField: tenant}
    target: {http: {url: "http://a/backup"}}
  - task: report
    when: ALWAYS
    policy: reports
    payload: {of: nightly}
---
kind: Task
id: report
target: {http: {url: "http://a/report"}}
payload: {of: nobody}
"#;

#[test]
fn steps_are_schedules_that_follow_one_another() {
    let (entries, wrong) = parse(JOB);
    assert_eq!(wrong, [] as [&str; 0]);
    let schedules: Vec<&v1::Schedule> = entries
        .iter()
        .map(|entry| match &entry.resource {
            Resource::Schedule(schedule) => schedule,
            other => panic!("{other:?}"),
        })
        .collect();
    let name = |id: &str| format!("namespaces/default/schedules/{id}");
    let names: Vec<&str> = schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!(names, [name("nightly"), name("nightly.backup"), name("nightly.report")]);
    let next = |schedule: &v1::Schedule| {
        schedule.on_finish.as_ref().map(|on_finish| (on_finish.schedule.clone(), on_finish.when()))
    };
    assert_eq!(next(schedules[0]), Some(("nightly.backup".to_owned(), v1::FinishCondition::Unspecified)));
    assert_eq!(next(schedules[1]), Some(("nightly.report".to_owned(), v1::FinishCondition::Always)));
    assert_eq!(next(schedules[2]), None);
    let policies: Vec<&str> = schedules.iter().map(|schedule| schedule.policy.as_str()).collect();
    assert_eq!(policies, ["backups", "backups", "reports"]);
    assert_eq!(schedules[1].labels, schedules[0].labels);
    assert_eq!((schedules[0].triggers.len(), schedules[1].triggers.len()), (1, 0));
    let items = |schedule: &v1::Schedule| schedule.on_finish.as_ref().unwrap().items_from_results.clone();
    let keyed = v1::ItemsFromResults { key_field: "tenant".to_owned(), ..Default::default() };
    assert_eq!((items(schedules[0]), items(schedules[1])), (Some(keyed), None));
    // What the step says counts, and each is where it is written.
    let payload = tollgate_proto::json::to_json(schedules[2]);
    assert_eq!(payload["payload"]["of"], "nightly");
    let lines: Vec<u64> = entries.iter().map(|entry| entry.location.line()).collect();
    assert_eq!(lines, [1, 8, 11]);
}

#[test]
fn a_task_of_one_file_is_used_in_another() {
    let mut files = Files::new("default");
    files.read(&"job.yaml".into(), JOB.split("---").next().unwrap());
    files.read(&"tasks.yaml".into(), "tasks:\n  - id: report\n    target: {http: {url: 'http://a/'}}\n");
    let (entries, wrong) = files.end();
    assert_eq!((entries.len(), wrong), (3, Vec::new()));
}

#[test]
fn what_is_wrong_with_steps_is_said_where_they_are() {
    let text = "kind: Schedule\nid: a\nonFinish: {schedule: b}\ntarget: {http: {url: 'http://a/'}}\nsteps:\n  \
                - task: reprot\n  - id: x\n    triggers: [{cron: '@daily'}]\n  - events: 3\n  - 7\n---\n\
                kind: Task\nid: report\n---\nkind: Task\nid: report\n---\nkind: Task\n---\n\
                kind: Schedule\nid: b\nsteps: []\ntarget: {http: {url: 'http://a/'}}\n---\n\
                kind: Schedule\nid: c\ntarget: {http: {url: 'http://a/'}}\nsteps:\n  - id: d\n    evnts: 3\n";
    let (_, wrong) = parse(text);
    let expected = [
        "batch.yaml:16: id: \"report\" is the id of another task: each has one of its own",
        "batch.yaml:18: id: is missing: write id: my-task",
        "batch.yaml:3: onFinish: excludes steps, the first of which follows",
        "batch.yaml:6: steps[0].task: \"reprot\" is no task of these files: write one as kind: Task; did you mean report?",
        "batch.yaml:8: steps[1].triggers: a step has none: it follows the step before",
        "batch.yaml:9: steps[2].id: is missing: write id: my-step, or task: with the id of a task",
        "batch.yaml:10: steps[3]: expected an object",
        "batch.yaml:22: steps: 0 steps are not allowed, expected 1 to 7",
        "batch.yaml:30: evnts: no such field; did you mean events?",
    ];
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (wrong, expected) in wrong.iter().zip(expected) {
        assert_eq!(wrong, expected);
    }
}

/// Schedules with one target; what stands for it is written `TARGET`.
fn parse_jobs(text: &str) -> (Vec<FileEntry>, Vec<String>) {
    parse(&text.replace("TARGET", "target: {http: {url: 'http://a/'}}"))
}

#[test]
fn what_a_step_says_of_the_one_before_is_told_at_the_step() {
    let (_, wrong) = parse_jobs(
        "\
schedules:
  - id: a
    TARGET
    steps:
      - id: b
        TARGET
        when: SUCCEEDED
      - id: c
        TARGET
        itemsFromResults:
          keyFeld: id
        when: NEVER
",
    );
    let expected = [
        ("batch.yaml:7: steps[0].when: ", "\"SUCCEEDED\" is not allowed, expected ALL_SUCCEEDED"),
        ("batch.yaml:11: steps[1].itemsFromResults.keyFeld: ", "no such field; did you mean keyField?"),
        ("batch.yaml:12: steps[1].when: ", "\"NEVER\" is not allowed"),
    ];
    assert_like(&wrong, &expected);
    // What the service refuses is found there, too.
    let (entries, _) = parse(JOB);
    for (at, field, line, spelled) in [
        (0, "on_finish.items_from_results.key_field", 9, "steps[0].itemsFromResults.keyField"),
        (1, "on_finish.when", 12, "steps[1].when"),
        (1, "on_finish.schedule", 11, "steps[1]"),
        (2, "on_finish.when", 11, "onFinish.when"),
    ] {
        let (location, field) = (&entries[at].location, format!("schedule.{field}"));
        assert_eq!((location.of_field(&field).line(), location.spelled(&field).as_str()), (line, spelled));
    }
}

#[test]
fn what_is_wrong_with_the_name_of_a_step_is_told_once() {
    let text = "kind: Schedule\nid: a\nTARGET\nsteps:\n  - {id: b, TARGET}\n  - {id: b, TARGET}\n";
    let (entries, wrong) = parse_jobs(text);
    assert_eq!(wrong, [] as [&str; 0]);
    let twice = "namespaces/default/schedules/a.b is given twice, first at batch.yaml:5: remove one of them";
    assert_eq!(given_twice(&entries), [format!("batch.yaml:6: {twice}")]);
    assert_eq!(wrong_values(&entries, 100), [] as [&str; 0]);
    let (entries, wrong) = parse_jobs(&text.replacen("id: b", "id: B", 1));
    assert_like(&wrong, &[("batch.yaml:5: id: ", "\"a.B\" is not allowed")]);
    assert_eq!(wrong_values(&entries, 100), [] as [&str; 0]);
}

#[test]
fn a_job_without_an_id_is_told_of_and_not_its_steps() {
    let (entries, wrong) = parse_jobs(
        "\
kind: Schedule
TARGET
steps:
  - {id: b, TARGET}
  - {id: B, TARGET}
  - {id: c, evnts: 3, TARGET}
---
kind: Schedule
TARGET
steps:
  - {id: b, events: 0, TARGET}
---
kind: Schedule
id: d
namespace: Not One
TARGET
steps:
  - {id: b, TARGET}
",
    );
    let expected = [
        ("batch.yaml:1: id: ", "is missing: write id: my-schedule"),
        // What is wrong beside the names is told.
        ("batch.yaml:6: evnts: ", "no such field; did you mean events?"),
        ("batch.yaml:8: id: ", "is missing: write id: my-schedule"),
        ("batch.yaml:11: events: ", "1 to 10000000"),
        ("batch.yaml:15: namespace: ", "\"Not One\" is not allowed"),
    ];
    assert_like(&wrong, &expected);
    assert!(entries.is_empty(), "{entries:?}");
}

#[test]
fn steps_are_called_after_their_job_however_it_says_its_name() {
    for (given, namespace, id) in
        [("id: 2024", "default", "2024"), ("name: namespaces/team/schedules/a", "team", "a")]
    {
        let text = format!("kind: Schedule\n{given}\nTARGET\nsteps:\n  - {{id: b, TARGET}}\n");
        let (entries, wrong) = parse_jobs(&text);
        assert_eq!(wrong, [] as [&str; 0]);
        let names: Vec<&str> = entries.iter().map(FileEntry::name).collect();
        let of = format!("namespaces/{namespace}/schedules/{id}");
        assert_eq!(names, [of.clone(), format!("{of}.b")]);
        assert!(entries.iter().all(|entry| entry.namespace == namespace), "{entries:?}");
    }
}
