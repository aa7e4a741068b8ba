//! What a task cannot say.

use super::{assert_like, parse_jobs};

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
        ("batch.yaml:14: steps: ", "a task has none: write them as steps of the schedule that uses it"),
        ("batch.yaml:20: onFinish: ", "a task has none"),
        ("batch.yaml:22: name: ", "a task has none: it has an id alone"),
        ("batch.yaml:28: steps[1].task: ", "\"nobody\" is no task of these files"),
    ];
    assert_like(&wrong, &expected);
    let names: Vec<_> = entries.iter().map(|entry| entry.name().rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a", "a.report", "a.again"]);
}
