//! What a task cannot say, and what to write for the id of a step.

use super::{assert_like, parse, parse_jobs};

/// It is told once, where the task is, however many steps use it; what else is wrong is told beside it.
#[test]
fn what_a_task_cannot_say_is_told_at_the_task() {
    let (entries, wrong) = parse_jobs(
        "\
kind: Schedule
id: a
TARGET
steps:
  - task: report
  - task: report
    id: again
---
kind: Task
id: report
triggers: [{cron: '@daily'}]
on_finish: {schedule: mail}
TARGET
steps:
  - id: mail
    TARGET
---
tasks:
  - id: mail
    onFinish: {schedule: a}
    TARGET
  - name: print
    id: print
    events: 3
  - id: copy
    namespace: other
    when: ALWAYS
    itemsFromResults: {}
---
kind: Schedule
id: b
steps: [{task: mail}, {task: nobody}]
TARGET
",
    );
    let expected = [
        ("batch.yaml:11: triggers: ", "a task has none: a step that uses it follows the step before"),
        ("batch.yaml:12: on_finish: ", "a task has none: the next step follows the one that uses it"),
        ("batch.yaml:15: steps: ", "a task has none: write them as steps of the schedule that uses it"),
        ("batch.yaml:20: onFinish: ", "a task has none"),
        ("batch.yaml:22: name: ", "a task has none: it has an id alone"),
        ("batch.yaml:26: namespace: ", "a task has none: it has an id alone, and is where the schedule is"),
        ("batch.yaml:27: when: ", "a task has none: the step that uses it says after what end it follows"),
        (
            "batch.yaml:28: itemsFromResults: ",
            "a task has none: the step that uses it says what its items are",
        ),
        ("batch.yaml:32: steps[1].task: ", "\"nobody\" is no task of these files"),
    ];
    assert_like(&wrong, &expected);
    let names: Vec<_> = entries.iter().map(|entry| entry.name().rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a", "a.report", "a.again"]);
}

/// Who writes what is suggested has a step that is read.
#[test]
fn what_is_suggested_for_a_step_is_its_own_part_of_the_name() {
    let text = |job: &str, step: &str| {
        format!("kind: Schedule\nid: {job}\nTARGET\nsteps:\n  - {{id: '{step}', TARGET}}\n")
    };
    let (long, job) = ("b".repeat(70), "a".repeat(60));
    for (job, given, near) in [
        ("nightly", "Daily Report", "daily-report"),
        ("nightly", "reports/daily", "reports-daily"),
        // What the whole name has room for.
        ("nightly", long.as_str(), &long[..55]),
        (job.as_str(), "Bcde", "bc"),
    ] {
        let (_, wrong) = parse_jobs(&text(job, given));
        let told = format!("\"{job}.{given}\" is not allowed");
        assert_like(&wrong, &[("batch.yaml:5: id: ", told.as_str())]);
        let (_, suggested) = wrong[0].rsplit_once("; write id: ").unwrap();
        assert_eq!(suggested, near);
        let (entries, wrong) = parse_jobs(&text(job, suggested));
        assert_eq!((entries.len(), wrong), (2, Vec::new()));
    }
    // Of nothing, nothing is near; a schedule that is no step is suggested all of its id.
    let (_, wrong) = parse_jobs(&text("nightly", ""));
    assert!(wrong.len() == 1 && !wrong[0].contains("; write"), "{wrong:?}");
    let (_, wrong) = parse("kind: Schedule\nid: Nightly.Report\ntarget: {http: {url: 'http://a/'}}\n");
    assert!(wrong.len() == 1 && wrong[0].ends_with("; write id: nightly.report"), "{wrong:?}");
}
