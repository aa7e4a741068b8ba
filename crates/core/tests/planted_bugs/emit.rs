//! Bugs of emission: windows, scans, judgements, doubt.

use crate::edit::{Planted, edit};

pub(crate) const BUGS: &[Planted] = &[
    Planted {
        name: "WindowSkipped",
        breaks: "A window is left out.",
        edits: &[edit(
            "emit/windows.rs",
            "«Some(Window { start_us, end_us })»",
            "Some(Window { start_us: end_us, end_us: end_us + length_us })",
        )],
    },
    Planted {
        name: "EdgeInNeitherWindow",
        breaks: "A launch at the very start of a window is in none.",
        edits: &[edit(
            "emit.rs",
            "(«second_ceil(self.start_us)», second_ceil(self.end_us))",
            "second_ceil(self.start_us) + 1",
        )],
    },
    Planted {
        name: "DoneThoughPageLeft",
        breaks: "A task is done after its first page.",
        edits: &[edit(
            "emit/scan.rs",
            "let Some(checkpoint) = «page.next» else {",
            "page.next.filter(|_| !page.is_first)",
        )],
    },
    Planted {
        name: "DoneBeforeHandOver",
        breaks: "Tasks are done before what was judged is handed over.",
        edits: &[edit(
            "emit/scan.rs",
            "None => «Stage::Flush(Flush::Unheard, Then::Complete)»",
            "Stage::Complete",
        )],
    },
    Planted {
        name: "DoneThoughPutOff",
        breaks: "A task is done though what it found waits for a shard to hear of a change.",
        edits: &[edit("emit/scan.rs", "self.done.retain(|task| !put_off.contains(task));", "")],
    },
    Planted {
        name: "CheckpointBeforeHandOver",
        breaks: "A checkpoint moves before what lies before it has been handed over.",
        edits: &[edit(
            "emit/scan.rs",
            "«Stage::Flush(Flush::Unheard, Then::Mark(page.task))»",
            "Stage::Mark(page.task)",
        )],
    },
    Planted {
        name: "AgainForgotten",
        breaks: "A task that was claimed before is taken for new.",
        edits: &[edit("emit/scan.rs", "JudgedBatch::new(«tasks.iter().any(|task| task.again)»)", "false")],
    },
    Planted {
        name: "MissedRuns",
        breaks: "What has been missed fires, whatever the rule.",
        edits: &[edit(
            "emit/judge.rs",
            "if «launch_us.saturating_add(schedule.start_delay_us()) >= self.late_us» {",
            "true",
        )],
    },
    Planted {
        name: "LatestIgnoresPauses",
        breaks: "A launch in a pause takes the place of the latest one before it.",
        edits: &[edit(
            "emit/judge.rs",
            "«*us <= self.now_us && schedule.paused_until_us(*us).is_none()»",
            "*us <= self.now_us",
        )],
    },
    Planted {
        name: "PastPausesForgotten",
        breaks: "A launch fires that fell due in a pause which was lifted before it was scanned.",
        edits: &[edit(
            "model/schedule.rs",
            "let past = «self.past_pauses.iter()»;",
            "self.past_pauses[..0].iter()",
        )],
    },
    Planted {
        name: "DoubtIgnored",
        breaks: "An emitter does not ask whether a launch has a run where its schedule lived before.",
        edits: &[edit(
            "emit/batch.rs",
            "«!schedule.former_homes.is_empty() && (self.again || is_recent(schedule, launch_us))»",
            "false",
        )],
    },
    Planted {
        name: "DoubtEndsEarly",
        breaks: "There is no doubt about what falls due after a change.",
        edits: &[edit(
            "emit/batch.rs",
            "«launch_us <= schedule.updated_us.saturating_add(DOUBT_US)»",
            "launch_us <= schedule.updated_us",
        )],
    },
    Planted {
        name: "UnheardIgnored",
        breaks: "An emitter does not ask whether a former shard of a schedule has yet to hear of a change.",
        edits: &[edit(
            "emit/batch.rs",
            "«!schedule.former_homes.is_empty() && (now_us - PUT_OFF_US..=until_us).contains(&launch_us)»",
            "false",
        )],
    },
];
