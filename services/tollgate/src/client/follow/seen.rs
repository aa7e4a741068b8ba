//! Decides what of two looks is different, and how it is told.

use std::collections::{BTreeMap, HashMap, HashSet};

use tollgate_proto::v1;

use super::super::names::short;
use super::super::rows;
use super::super::style::Tone;
use super::super::when::relative;

/// The most events that ended badly which are told of one look at one run.
const BAD_TOLD_MAX: usize = 5;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// What it happened to, such as `run/0a-12f3`.
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl Line {
    pub(super) fn new(subject: &str, text: &str, tone: Tone) -> Self {
        let text = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        Self { subject: subject.to_owned(), text, tone }
    }
}

/// What a look has seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// By name.
    runs: BTreeMap<String, v1::Run>,
    /// By what they are about, with their sentences.
    troubles: BTreeMap<(i32, String, String), v1::Trouble>,
    /// Waiting, held and refused per second, of the policy.
    bucket: Option<(u64, u64, bool)>,
    /// The events of these runs that ended badly and have been told.
    told: HashMap<String, HashSet<u32>>,
}

impl Seen {
    /// What is so now, and what has been told of it before.
    pub(super) fn new(
        runs: &[v1::Run],
        troubles: Vec<v1::Trouble>,
        gauge: Option<&v1::PolicyGauge>,
        before: Option<&Self>,
    ) -> Self {
        let runs: BTreeMap<_, _> = runs.iter().map(|run| (run.name.clone(), run.clone())).collect();
        let key = |trouble: &v1::Trouble| (trouble.kind, trouble.schedule.clone(), trouble.target.clone());
        let mut told = before.map(|before| before.told.clone()).unwrap_or_default();
        told.retain(|run, _| runs.contains_key(run));
        Self {
            troubles: troubles.into_iter().map(|trouble| (key(&trouble), trouble)).collect(),
            bucket: gauge
                .map(|gauge| (gauge.waiting_count, gauge.held_count, gauge.refused_per_second > 0.0)),
            runs,
            told,
        }
    }

    /// What is different. Of the first look: what goes on.
    pub(super) fn lines(&self, before: Option<&Self>, now_us: i64) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut runs: Vec<&v1::Run> = self.runs.values().collect();
        runs.sort_by_key(|run| run.launch_time.map(|time| (time.seconds, time.nanos)));
        for run in runs {
            let old = before.and_then(|before| before.runs.get(&run.name));
            let is_open = run.finish_time.is_none();
            let is_new = old.is_none_or(|old| old.state != run.state);
            if is_new && (is_open || before.is_some()) {
                lines.push(of_run(run, old.is_none() && before.is_some(), now_us));
            }
        }
        for (key, trouble) in &self.troubles {
            if before.is_none_or(|before| !before.troubles.contains_key(key)) {
                let text = format!("raised: {}", trouble.summary);
                let severity = rows::word(trouble.severity().as_str_name(), "TROUBLE_SEVERITY_");
                lines.push(Line::new("trouble", &text, Tone::of(&severity)));
            }
        }
        for (key, trouble) in before.into_iter().flat_map(|before| &before.troubles) {
            if !self.troubles.contains_key(key) {
                lines.push(Line::new("trouble", &format!("resolved: {}", trouble.summary), Tone::Good));
            }
        }
        if let Some((waiting, held, refuses)) = self.bucket
            && before.is_none_or(|before| before.bucket != self.bucket)
        {
            let more = if refuses { ", deliveries are refused" } else { "" };
            let tone = if refuses { Tone::Bad } else { Tone::Quiet };
            lines.push(Line::new("queue", &format!("{waiting} waiting, {held} held{more}"), tone));
        }
        lines
    }

    /// The runs of which more events have ended badly, with the states in which.
    pub(super) fn worse(&self, before: Option<&Self>) -> Vec<(String, &'static str)> {
        let mut worse = Vec::new();
        for run in self.runs.values() {
            let old = before.and_then(|before| before.runs.get(&run.name)).and_then(|run| run.counts);
            let (old, new) = (old.unwrap_or_default(), run.counts.unwrap_or_default());
            let states = [
                ("DEAD", old.dead, new.dead),
                ("FAILED", old.failed, new.failed),
                ("EXPIRED", old.expired, new.expired),
                ("LOST", old.lost, new.lost),
            ];
            let grown = states.iter().filter(|(_, old, new)| new > old);
            worse.extend(grown.map(|(state, _, _)| (run.name.clone(), *state)));
        }
        worse
    }

    /// What is told of events that ended badly: each once; nothing of the first look, which only remembers them.
    pub(super) fn bad(&mut self, events: &[v1::Event], is_told: bool) -> Vec<Line> {
        let mut fresh = Vec::new();
        for event in events {
            if self.told.entry(event.run.clone()).or_default().insert(event.index) && is_told {
                fresh.push(event);
            }
        }
        let mut lines: Vec<Line> = fresh
            .iter()
            .take(BAD_TOLD_MAX)
            .map(|event| {
                let state = rows::event_state(event.state());
                let text = format!("{state} after attempt {}: {}", event.attempt, event.message);
                Line::new(&format!("event/{}", event.event_id), &text, Tone::of(&state))
            })
            .collect();
        if let Some(event) = fresh.get(BAD_TOLD_MAX) {
            let (run, state) = (short(&event.run), rows::event_state(event.state()));
            let text = format!("{} more {state}", fresh.len() - BAD_TOLD_MAX);
            lines.push(Line::new(&format!("run/{run}"), &text, Tone::of(&state)));
        }
        lines
    }
}

fn of_run(run: &v1::Run, is_new: bool, now_us: i64) -> Line {
    let state = rows::run_state(run);
    let counts = rows::counts(run);
    let mut text = format!("{} {state}", short(&run.schedule));
    if is_new {
        text.push_str(&format!(
            " (new), {} events, launch {}",
            run.events,
            relative(now_us, run.launch_time.as_ref())
        ));
    }
    if !counts.is_empty() {
        text.push_str(&format!(": {counts}"));
    }
    if !run.reason.is_empty() {
        text.push_str(&format!(", because {}", run.reason));
    }
    Line::new(&format!("run/{}", short(&run.name)), &text, Tone::of(&state))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, state: v1::RunState, counts: v1::RunCounts) -> v1::Run {
        v1::Run {
            name: format!("namespaces/a/runs/{id}"),
            schedule: "namespaces/a/schedules/nightly".to_owned(),
            events: 10,
            state: state.into(),
            counts: Some(counts),
            ..v1::Run::default()
        }
    }

    fn texts(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| format!("{} {}", line.subject, line.text)).collect()
    }

    #[test]
    fn what_is_different_is_told_once() {
        let none = v1::RunCounts::default();
        let first = Seen::new(&[run("0a-1", v1::RunState::Running, none)], Vec::new(), None, None);
        assert_eq!(texts(&first.lines(None, 0)), ["run/0a-1 nightly RUNNING"]);
        assert_eq!(first.lines(Some(&first), 0), []);
        let trouble = v1::Trouble { kind: 9, summary: "it refuses".to_owned(), ..v1::Trouble::default() };
        let done = v1::RunCounts { succeeded: 9, dead: 1, ..none };
        let gauge = v1::PolicyGauge { waiting_count: 3, held_count: 5, ..v1::PolicyGauge::default() };
        let runs =
            [run("0a-1", v1::RunState::FinishedWithFailures, done), run("0a-2", v1::RunState::Emitted, none)];
        let second = Seen::new(&runs, vec![trouble], Some(&gauge), Some(&first));
        assert_eq!(
            texts(&second.lines(Some(&first), 0)),
            [
                "run/0a-1 nightly FINISHED_WITH_FAILURES: 9 succeeded, 1 dead",
                "run/0a-2 nightly EMITTED (new), 10 events, launch ",
                "trouble raised: it refuses",
                "queue 3 waiting, 5 held",
            ]
        );
        assert_eq!(second.worse(Some(&first)), [("namespaces/a/runs/0a-1".to_owned(), "DEAD")]);
        let third = Seen::new(&runs, Vec::new(), Some(&gauge), Some(&second));
        assert_eq!(texts(&third.lines(Some(&second), 0)), ["trouble resolved: it refuses"]);
    }

    #[test]
    fn events_that_end_badly_are_told_with_their_messages() {
        let event = |index: u32| v1::Event {
            run: "namespaces/a/runs/0a-1".to_owned(),
            event_id: format!("0a-1-{index}"),
            index,
            state: v1::EventState::Dead.into(),
            attempt: 3,
            message: "HTTP 500:\nno disk".to_owned(),
            ..v1::Event::default()
        };
        let mut seen = Seen::default();
        assert_eq!(seen.bad(&[event(0)], false), [], "the first look only remembers");
        let events: Vec<v1::Event> = (0..8).map(event).collect();
        let lines = texts(&seen.bad(&events, true));
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "event/0a-1-1 DEAD after attempt 3: HTTP 500: no disk");
        assert_eq!(lines[5], "run/0a-1 2 more DEAD");
        assert_eq!(seen.bad(&events, true), []);
    }
}
