//! Who is told what and when: nothing twice, nothing left open, and the same message at each attempt.

#![expect(clippy::unwrap_used, reason = "tests")]

mod always;

use std::collections::BTreeMap;

use tollgate_core::alert::{
    AGE_MAX_US, Ended, LISTED_MAX, Look, Message, RAISED_MAX, Rules, SEEN_MAX, Selection, State,
};
use tollgate_core::model::{Alert, AlertRuns, AlertTarget, AlertTroubles, HttpTarget, SECOND_US};
use tollgate_core::trouble::{Kind, Severity, Subject, Trouble};

const WAIT_US: i64 = 10 * SECOND_US;
const REPEAT_US: i64 = 100 * SECOND_US;
const RULES: Rules = Rules {
    generation: 1,
    enabled_us: 0,
    group_wait_us: WAIT_US,
    repeat_us: REPEAT_US,
    resolved: true,
    deadline_us: 10 * SECOND_US,
};

fn trouble(schedule: &str) -> Trouble {
    let subject =
        Subject { namespace: "default".to_owned(), schedule: schedule.to_owned(), ..Subject::default() };
    Trouble { count: 3, ..Trouble::new(Kind::EventsFailed, subject) }
}

fn troubles(schedules: &[&str]) -> Vec<Trouble> {
    schedules.iter().map(|schedule| trouble(schedule)).collect()
}

fn step(state: &mut State, schedules: &[&str], at_s: i64) -> Option<Message> {
    let found = troubles(schedules);
    state.step(&RULES, Look { troubles: &found, is_sure: true }, at_s * SECOND_US)
}

fn schedules(message: &Message) -> (Vec<&str>, Vec<&str>) {
    let of = |items: &'_ [tollgate_core::alert::Item]| -> Vec<usize> { (0..items.len()).collect() };
    let raised = of(&message.raised).into_iter().map(|at| message.raised[at].subject.schedule.as_str());
    let resolved = of(&message.resolved).into_iter().map(|at| message.resolved[at].subject.schedule.as_str());
    (raised.collect(), resolved.collect())
}

#[test]
fn what_is_raised_within_the_wait_goes_in_one_message_is_repeated_and_resolved() {
    let mut state = State::default();
    assert_eq!(step(&mut state, &["a"], 0), None);
    assert_eq!(step(&mut state, &["a", "b"], 5), None);
    let first = step(&mut state, &["a", "b"], 10).unwrap();
    assert_eq!((first.number, schedules(&first)), (1, (vec!["a", "b"], vec![])));
    assert!(first.raised[0].summary.contains("failed for good") && !first.raised[0].what_to_do.is_empty());
    state.taken(1, 11 * SECOND_US);
    assert_eq!(step(&mut state, &["a", "b"], 109), None);
    let again = step(&mut state, &["a", "b"], 110).unwrap();
    assert_eq!((schedules(&again), again.raised[0].is_repeated), ((vec!["a", "b"], vec![]), true));
    state.taken(2, 110 * SECOND_US);
    assert_eq!(step(&mut state, &["b"], 120), None);
    assert_eq!(step(&mut state, &["b"], 129), None, "it may come back");
    let over = step(&mut state, &["b"], 130).unwrap();
    assert_eq!(schedules(&over), (vec![], vec!["a"]));
    state.taken(3, 130 * SECOND_US);
    assert_eq!((state.raised.len(), state.sent, state.made), (1, 3, 3));
}

#[test]
fn what_flaps_is_told_once() {
    let mut state = State::default();
    assert_eq!(step(&mut state, &["a"], 0), None);
    assert_eq!(step(&mut state, &[], 5), None);
    assert_eq!(state, State::default(), "it came and went within the wait");
    assert_eq!(step(&mut state, &["a"], 6), None);
    assert!(step(&mut state, &["a"], 16).is_some());
    state.taken(1, 16 * SECOND_US);
    for s in (20..90).step_by(5) {
        let now: &[&str] = if s % 10 == 0 { &["a"] } else { &[] };
        assert_eq!(step(&mut state, now, s), None, "{s}");
    }
}

#[test]
fn a_message_is_tried_again_as_it_was_and_ever_more_rarely() {
    let mut state = State::default();
    step(&mut state, &["a"], 0);
    let first = step(&mut state, &["a"], 10).unwrap();
    assert_eq!(step(&mut state, &["a"], 24), None, "nobody else while an attempt may be under way");
    state.failed(1, "HTTP 503".to_owned(), None, 11 * SECOND_US);
    assert_eq!(step(&mut state, &["a", "b"], 12), None);
    assert_eq!(step(&mut state, &["a", "b"], 13).as_ref(), Some(&first), "b waits for the next one");
    state.failed(1, "HTTP 503".to_owned(), Some(60 * SECOND_US), 14 * SECOND_US);
    assert_eq!(step(&mut state, &["a", "b"], 73), None);
    let changed = Rules { generation: 2, ..RULES };
    let found = troubles(&["a", "b"]);
    let at_once = state.clone().step(&changed, Look { troubles: &found, is_sure: true }, 20 * SECOND_US);
    assert_eq!(at_once.as_ref(), Some(&first), "the alert was changed");
    assert_eq!(step(&mut state, &["a", "b"], 74), Some(first));
    state.taken(1, 75 * SECOND_US);
    assert_eq!(schedules(&step(&mut state, &["a", "b"], 76).unwrap()).0, ["b"]);
    assert_eq!((state.error.as_str(), state.error_us), ("HTTP 503", Some(14 * SECOND_US)));
}

#[test]
fn what_nobody_took_for_a_day_is_told_anew() {
    let mut state = State::default();
    step(&mut state, &["a"], 0);
    let first = step(&mut state, &["a"], 10).unwrap();
    state.failed(1, "no".to_owned(), None, 11 * SECOND_US);
    let later_s = 10 + AGE_MAX_US / SECOND_US;
    assert_eq!(step(&mut state, &["a"], later_s), None);
    assert_eq!(state.dropped, 1);
    let second = step(&mut state, &["a"], later_s + 10).unwrap();
    assert_eq!((second.number, second.raised[0].is_repeated), (first.number + 1, false));
}

#[test]
fn what_cannot_be_seen_has_not_ended() {
    let mut state = State::default();
    step(&mut state, &["a"], 0);
    step(&mut state, &["a"], 10);
    state.taken(1, 10 * SECOND_US);
    let unsure =
        |state: &mut State, s: i64| state.step(&RULES, Look { troubles: &[], is_sure: false }, s * SECOND_US);
    assert_eq!(unsure(&mut state, 20), None);
    assert_eq!(unsure(&mut state, 319), None);
    assert_eq!(schedules(&unsure(&mut state, 320).unwrap()).1, ["a"], "but for ever it is not waited");
    let blind = Trouble::new(Kind::ShardsWithoutOwner, Subject::default());
    assert!(Look::is_whole(&troubles(&["a"])) && !Look::is_whole(&[trouble("a"), blind]));
}

#[test]
fn lists_and_state_are_bounded() {
    let names: Vec<String> = (0..RAISED_MAX + 100).map(|n| format!("s{n:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state = State::default();
    step(&mut state, &names, 0);
    assert_eq!(state.raised.len(), RAISED_MAX);
    let message = step(&mut state, &names, 10).unwrap();
    assert_eq!(message.raised.len(), LISTED_MAX);
    assert_eq!(message.raised_more as usize, names.len() - LISTED_MAX);
    state.taken(1, 10 * SECOND_US);
    step(&mut state, &[], 11);
    let over = step(&mut state, &[], 21).unwrap();
    assert_eq!((over.resolved.len(), over.resolved_more as usize), (LISTED_MAX, RAISED_MAX - LISTED_MAX));
}

#[test]
fn warnings_keep_out_nothing_critical() {
    let names: Vec<String> = (0..RAISED_MAX + 100).map(|n| format!("s{n:04}")).collect();
    let mut found: Vec<Trouble> = names.iter().map(|name| trouble(name)).collect();
    let mut state = State::default();
    state.step(&RULES, Look { troubles: &found, is_sure: true }, 0);
    state.step(&RULES, Look { troubles: &found, is_sure: true }, 10 * SECOND_US).unwrap();
    state.taken(1, 10 * SECOND_US);
    found.insert(0, critical("late"));
    assert_eq!(state.step(&RULES, Look { troubles: &found, is_sure: true }, 11 * SECOND_US), None);
    let message = state.step(&RULES, Look { troubles: &found, is_sure: true }, 21 * SECOND_US).unwrap();
    assert_eq!(schedules(&message).0, ["late"]);
    let all: Vec<Trouble> = names.iter().chain(&names).map(|name| critical(name)).collect();
    let others = (0..2 * RAISED_MAX).map(|n| critical(&format!("t{n:04}")));
    let all: Vec<Trouble> = all.into_iter().chain(others).collect();
    state.step(&RULES, Look { troubles: &all, is_sure: true }, 30 * SECOND_US);
    assert_eq!(state.raised.len(), 2 * RAISED_MAX, "but they are bounded, too");
}

fn critical(schedule: &str) -> Trouble {
    Trouble { severity: Severity::Critical, ..trouble(schedule) }
}

#[test]
fn what_gets_worse_is_told_again() {
    let mut state = State::default();
    let go = |state: &mut State, found: Trouble, s: i64| {
        state.step(&RULES, Look { troubles: &[found], is_sure: true }, s * SECOND_US)
    };
    assert_eq!(go(&mut state, trouble("a"), 0), None);
    assert!(!go(&mut state, trouble("a"), 10).unwrap().raised[0].is_worse);
    state.taken(1, 10 * SECOND_US);
    assert_eq!(go(&mut state, critical("a"), 20), None, "it may pass");
    assert_eq!(go(&mut state, trouble("a"), 25), None);
    assert_eq!(go(&mut state, critical("a"), 26), None);
    let worse = go(&mut state, critical("a"), 36).unwrap();
    let item = &worse.raised[0];
    assert_eq!((item.severity, item.is_repeated, item.is_worse), (Severity::Critical, true, true));
    state.failed(2, "no".to_owned(), None, 36 * SECOND_US);
    let later_s = 36 + AGE_MAX_US / SECOND_US;
    let rules = Rules { repeat_us: 0, ..RULES };
    let again = |state: &mut State, s: i64| {
        state.step(&rules, Look { troubles: &[critical("a")], is_sure: true }, s * SECOND_US)
    };
    assert_eq!(again(&mut state, later_s), None, "nobody took it");
    assert!(again(&mut state, later_s + 10).unwrap().raised[0].is_worse);
    state.taken(3, (later_s + 10) * SECOND_US);
    for s in [20, 40, 60] {
        assert_eq!(again(&mut state, later_s + s), None, "it is known");
    }
}

/// What a changed alert, which wants only some of what there is, has told of.
fn renewed(state: &mut State, rules: &Rules, all: &[&str], wanted: &[&str], at_s: i64) -> Option<Message> {
    let (all, wanted) = (troubles(all), troubles(wanted));
    state.renew(rules, &all, &wanted);
    state.step(rules, Look { troubles: &wanted, is_sure: true }, at_s * SECOND_US)
}

#[test]
fn what_is_not_wanted_any_more_is_not_over() {
    let mut state = State::default();
    let both = ["a", "b"];
    renewed(&mut state, &RULES, &both, &both, 0);
    renewed(&mut state, &RULES, &both, &both, 10).unwrap();
    state.taken(1, 10 * SECOND_US);
    let narrowed = Rules { generation: 2, ..RULES };
    for s in [11, 30] {
        assert_eq!(renewed(&mut state, &narrowed, &both, &["a"], s), None, "{s}");
    }
    assert_eq!(state.raised.len(), 1);
    // What is over, is.
    renewed(&mut state, &narrowed, &["b"], &[], 40);
    assert_eq!(schedules(&renewed(&mut state, &narrowed, &["b"], &[], 50).unwrap()).1, ["a"]);
}

#[test]
fn of_the_time_in_which_it_was_disabled_an_alert_tells_nothing() {
    let at = |s: i64| s * SECOND_US;
    let mut state = State::default();
    renewed(&mut state, &RULES, &["a"], &["a"], 0);
    state.finished([], at(0), at(0));
    state.finished([ended(1, 1)], at(5), at(5));
    let old = renewed(&mut state, &RULES, &["a"], &["a"], 10).unwrap();
    state.failed(old.number, "no".to_owned(), None, at(11));
    state.finished([ended(2, 11)], at(12), at(12));
    let enabled = Rules { generation: 3, enabled_us: at(3_000), ..RULES };
    assert_eq!(renewed(&mut state, &enabled, &[], &[], 3_000), None, "it is over, and nobody knew of it");
    assert_eq!((state.runs_from_us(at(3_000)), state.pending.as_ref(), state.ended.len()), (None, None, 0));
    state.finished([ended(2, 11), ended(3, 2_000)], at(3_000), at(3_000));
    assert_eq!(renewed(&mut state, &enabled, &[], &[], 3_030), None);
    renewed(&mut state, &enabled, &["a"], &["a"], 3_040);
    assert_eq!(schedules(&renewed(&mut state, &enabled, &["a"], &["a"], 3_050).unwrap()).0, ["a"]);
}

fn ended(n: i64, finished_s: i64) -> Ended {
    Ended {
        run: format!("namespaces/default/runs/{n}"),
        schedule: "s".to_owned(),
        launch_us: 0,
        finished_us: finished_s * SECOND_US,
        events: 3,
        succeeded: 2,
        failed: 1,
        expired: 0,
    }
}

#[test]
fn ends_of_runs_are_told_once_although_they_are_read_again() {
    let mut state = State::default();
    let at = |s: i64| s * SECOND_US;
    assert_eq!(state.runs_from_us(at(100)), None);
    state.finished([], at(100), at(100));
    assert_eq!(state.runs_from_us(at(110)), Some(at(100)), "nothing from before");
    state.finished([ended(0, 99), ended(1, 105)], at(110), at(110));
    state.finished([ended(1, 105), ended(2, 104)], at(115), at(115));
    assert_eq!((state.ended.len(), state.runs_from_us(at(200))), (2, Some(at(100))));
    assert_eq!(step(&mut state, &[], 119), None);
    let message = step(&mut state, &[], 120).unwrap();
    assert_eq!((message.ended.len(), message.raised.len()), (2, 0));
    assert_eq!((state.ended.len(), state.ended_us), (0, None));
    let before = state.clone();
    state.finished([ended(2, 104)], at(121), at(121));
    assert_eq!(state, before, "nothing to be written");
    state.finished((0..100).map(|n| ended(n + 10, 122)), at(122), at(122));
    assert_eq!((state.ended.len(), state.ended_more as usize), (LISTED_MAX, 100 - LISTED_MAX));
    assert_eq!(state.runs_from_us(at(10_000)), Some(at(10_000 - 3_600)));
    state.forget_runs();
    assert_eq!(state.runs_from_us(at(10_000)), None);
}

#[test]
fn however_many_runs_end_each_counts_once() {
    let at = |s: i64| s * SECOND_US;
    let all = || (0..SEEN_MAX as i64 + 1_000).map(|n| ended(n, 100 + n % 3));
    let mut state = State::default();
    state.finished([], at(90), at(90));
    state.finished(all(), at(110), at(110));
    let counted = state.ended.len() + state.ended_more as usize;
    assert_eq!((counted, state.seen.len()), (SEEN_MAX + 1_000, SEEN_MAX));
    let before = state.clone();
    state.finished(all(), at(112), at(112));
    assert!(state == before, "each has been counted");
    state.finished(all().chain([ended(-1, 112)]), at(114), at(114));
    assert_eq!(state.ended.len() + state.ended_more as usize, counted + 1);
    assert!(state.runs_from_us(at(114)) >= Some(at(100)));
    let read_us = state.read_us;
    state.finished([ended(-2, 113)], at(100), at(115));
    assert_eq!(state.read_us, read_us, "what was read is not read anew");
}

fn alert() -> Alert {
    let http = HttpTarget::plain("http://a/".to_owned(), 10_000);
    Alert {
        uid: uuid::Uuid::from_u128(1),
        namespace: "default".to_owned(),
        id: "a".to_owned(),
        description: String::new(),
        troubles: Some(AlertTroubles::default()),
        runs: AlertRuns::None,
        schedules: vec![],
        policies: vec![],
        schedule_labels: BTreeMap::new(),
        target: AlertTarget::Http { http },
        group_wait_ms: 10_000,
        repeat_ms: 0,
        send_resolved: true,
        disabled: false,
        enabled_us: 0,
        labels: BTreeMap::new(),
        generation: 1,
        created_us: 0,
        updated_us: 0,
    }
}

#[test]
fn an_alert_is_about_what_it_names() {
    let none = Selection::default();
    let labelled = Selection { labelled: ["nightly"].into() };
    let mut found = trouble("nightly");
    found.subject.policy = "imports".to_owned();
    let alert = alert();
    assert!(alert.wants(&found, &none));
    let of = |change: fn(&mut Alert)| {
        let mut alert = alert.clone();
        change(&mut alert);
        alert
    };
    assert!(!of(|a| a.troubles = None).wants(&found, &none));
    assert!(!of(|a| a.namespace = "other".to_owned()).wants(&found, &none));
    let kinds = |a: &mut Alert| {
        a.troubles =
            Some(AlertTroubles { kinds: vec!["events_failed".to_owned()], ..AlertTroubles::default() })
    };
    assert!(of(kinds).wants(&found, &none));
    assert!(!of(kinds).wants(&Trouble::new(Kind::PolicyPaused, found.subject.clone()), &none));
    let critical =
        of(|a| a.troubles = Some(AlertTroubles { critical_only: true, ..AlertTroubles::default() }));
    assert!(!critical.wants(&found, &none));
    assert!(critical.wants(&Trouble { severity: Severity::Critical, ..found.clone() }, &none));
    assert!(of(|a| a.schedules = vec!["nightly".to_owned()]).wants(&found, &none));
    assert!(!of(|a| a.schedules = vec!["other".to_owned()]).wants(&found, &none));
    let either = of(|a| (a.schedules, a.policies) = (vec!["other".to_owned()], vec!["imports".to_owned()]));
    assert!(either.wants(&found, &none));
    let by_label = of(|a| a.schedule_labels = [("team".to_owned(), "x".to_owned())].into());
    assert!(!by_label.wants(&found, &none) && by_label.wants(&found, &labelled));
    let whole = Trouble::new(Kind::EmitterBehind, Subject::default());
    assert!(!alert.wants(&whole, &none));
    assert!(
        of(|a| a.troubles = Some(AlertTroubles { installation: true, ..AlertTroubles::default() }))
            .wants(&whole, &none)
    );
    let run = ("default", "nightly", "imports");
    assert!(!alert.wants_run(run, true, &none));
    assert!(of(|a| a.runs = AlertRuns::Finished).wants_run(run, false, &none));
    let failures = of(|a| a.runs = AlertRuns::FinishedWithFailures);
    assert!(failures.wants_run(run, true, &none) && !failures.wants_run(run, false, &none));
}
