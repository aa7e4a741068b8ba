//! What is told as a trouble, in which order, and that it does not depend on who owns which queue shard.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_core::expected_end::{Expected, Flow, Never};
use tollgate_core::model::{Pause, RunId, SECOND_US};
use tollgate_core::trouble::drift::Drift;
use tollgate_core::trouble::{
    AtRisk, Bucket, Commits, Drifting, Ended, Failing, Installation, Kind, Missed, Said, Severity, Sight,
    Silent, Subject, Sufferer, Trouble, Unserved, of_commits, of_drifting, of_ended, of_installation,
    of_missed, of_shard, worst_first,
};

const NOW_US: i64 = 1_000_000 * SECOND_US;

fn failing(said: Said, failures: u32, age_s: i64) -> Failing {
    Failing {
        said,
        events: 7,
        since_us: NOW_US - age_s * SECOND_US,
        failures,
        words: "connection refused".to_owned(),
        event: (RunId::default(), 0),
    }
}

fn sufferer(failing: Vec<Failing>) -> Sufferer {
    Sufferer {
        namespace: "default".to_owned(),
        schedule: "nightly".to_owned(),
        policy: "backups".to_owned(),
        target: "http://127.0.0.1:18093".to_owned(),
        waiting: 300,
        oldest_launch_us: Some(NOW_US - 720 * SECOND_US),
        failing,
        ..Sufferer::default()
    }
}

fn told(sight: Sight) -> Vec<(Kind, Severity)> {
    of_shard(&sight, NOW_US).into_iter().map(|trouble| (trouble.kind, trouble.severity)).collect()
}

fn of_sufferer(sufferer: Sufferer) -> Vec<(Kind, Severity)> {
    told(Sight { sufferers: vec![sufferer], ..Sight::default() })
}

fn of_bucket(bucket: Bucket) -> Vec<(Kind, Severity)> {
    told(Sight { buckets: vec![bucket], ..Sight::default() })
}

#[test]
fn a_target_that_refuses_everything_is_told_in_its_own_words() {
    let refused = sufferer(vec![failing(Said::Refused, 5, 720)]);
    let found = of_shard(&Sight { sufferers: vec![refused], ..Sight::default() }, NOW_US);
    let [trouble] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((trouble.kind, trouble.severity), (Kind::TargetRefuses, Severity::Critical));
    assert_eq!(trouble.since_us, Some(NOW_US - 720 * SECOND_US));
    assert_eq!(
        trouble.summary(),
        "http://127.0.0.1:18093 refuses the events of nightly (300 events wait): connection refused"
    );
    assert!(trouble.what_to_do().contains("`tollgate pause schedule nightly`"), "{}", trouble.what_to_do());
}

#[test]
fn one_failure_is_no_trouble_before_it_lasts() {
    for (failures, age_s, is_told, is_told_of_consumers) in
        [(1, 9, false, false), (2, 0, false, false), (3, 0, true, true), (1, 10, true, false)]
    {
        let is_told_as = |said| !of_sufferer(sufferer(vec![failing(said, failures, age_s)])).is_empty();
        assert_eq!(is_told_as(Said::Refused), is_told, "{failures} failures in {age_s} s");
        assert_eq!(is_told_as(Said::GivenBack), is_told_of_consumers, "{failures} failures in {age_s} s");
    }
}

#[test]
fn each_way_to_fail_is_a_trouble_of_its_own() {
    let ways = [Said::Refused, Said::Unclear, Said::NotSent, Said::GivenBack];
    let all = sufferer(ways.map(|said| failing(said, 3, 60)).to_vec());
    use Severity::{Critical, Warning};
    let expected = [
        (Kind::TargetRefuses, Critical),
        (Kind::TargetSilent, Critical),
        (Kind::NotSent, Critical),
        (Kind::ConsumerFails, Warning),
    ];
    assert_eq!(of_sufferer(all.clone()), expected);
    let some_arrive = of_sufferer(Sufferer { at_consumer: 1, ..all });
    assert!(some_arrive.iter().all(|(_, severity)| *severity == Warning), "{some_arrive:?}");
}

#[test]
fn a_deadline_is_at_risk_when_the_last_start_is_expected_after_it() {
    let risk = |last_start, left_s| AtRisk {
        deadline_us: NOW_US + left_s * SECOND_US,
        events: 12,
        runs: 2,
        last_start,
    };
    let told = |at_risk| {
        of_shard(
            &Sight {
                sufferers: vec![Sufferer { at_risk: Some(at_risk), ..sufferer(Vec::new()) }],
                ..Sight::default()
            },
            NOW_US,
        )
    };
    let later = Expected::At(NOW_US + 7_200 * SECOND_US);
    let never = Expected::Never(Never::PolicyPaused("backups".to_owned()));
    for (last_start, left_s, severity, words) in [
        (later.clone(), 3_600, Severity::Warning, ""),
        (later, 299, Severity::Critical, ""),
        (never, 3_600, Severity::Critical, "never, while the policy backups is paused"),
    ] {
        let found = told(risk(last_start, left_s));
        let [trouble] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((trouble.kind, trouble.severity), (Kind::DeadlineAtRisk, severity));
        assert_eq!((trouble.count, trouble.runs, trouble.words.as_str()), (12, 2, words));
        let summary = trouble.summary();
        assert!(summary.starts_with("12 events in 2 runs of nightly will not start in time"), "{summary}");
    }
}

proptest! {
    /// Nobody starts before those that go before it; more tokens, or a higher rate, make nothing later.
    #[test]
    fn what_goes_before_comes_before_and_more_is_not_slower(
        before in 0_u64..100_000,
        (tokens, held, more) in (1_u32..1_000, 0_u32..1_000, 0_u32..100),
        rate in proptest::option::of(0.01_f64..1_000.0),
        mean_us in 0.0_f64..1e10,
    ) {
        let flow = Flow { tokens: Some(tokens), held: held.min(tokens), rate_per_s: rate, mean_us: Some(mean_us) };
        let at = flow.start_after_us(before).unwrap();
        prop_assert!(at >= 0 && flow.start_after_us(before + 1).unwrap() >= at);
        let wider = Flow { tokens: Some(tokens + more), rate_per_s: rate.map(|rate| rate * 1.5), ..flow };
        prop_assert!(wider.start_after_us(before).unwrap() <= at);
        let unknown = Flow { mean_us: None, ..flow };
        let free = u64::from(tokens - held.min(tokens));
        prop_assert_eq!(unknown.start_after_us(before).is_some(), before < free);
    }
}

#[test]
fn a_pause_is_a_trouble_when_work_waits_behind_it() {
    let pause = Some(Pause { reason: "disk full".to_owned(), actor: "eva".to_owned(), since_us: NOW_US - 5 });
    let bucket = |waiting| Bucket {
        namespace: "team".to_owned(),
        policy: "p".to_owned(),
        pause: pause.clone(),
        waiting,
        ..Bucket::default()
    };
    assert_eq!(of_bucket(bucket(0)), []);
    assert_eq!(of_bucket(bucket(1)), [(Kind::PolicyPaused, Severity::Warning)]);
    let shard = |waiting| Sight { pause: pause.clone(), waiting, ..Sight::default() };
    assert_eq!(told(shard(0)), []);
    assert_eq!(told(shard(9)), [(Kind::DispatchPaused, Severity::Critical)]);
    let found = of_shard(&Sight { buckets: vec![bucket(1)], ..Sight::default() }, NOW_US);
    assert_eq!(found[0].summary(), "the policy p is paused (1 event waits): eva: disk full");
    assert_eq!(found[0].what_to_do(), "`tollgate resume policy p -n team` ends it, when its reason is gone.");
}

#[test]
fn silent_holders_of_all_tokens_are_worse_when_others_wait() {
    let bucket = |tokens, waiting| Bucket {
        policy: "p".to_owned(),
        limit: Some(3),
        waiting,
        silent: Some(Silent { tokens, ..Silent::default() }),
        ..Bucket::default()
    };
    for (tokens, waiting, expected) in [
        (0, 5, None),
        (2, 5, Some(Severity::Warning)),
        (3, 0, Some(Severity::Warning)),
        (3, 5, Some(Severity::Critical)),
    ] {
        let found = of_bucket(bucket(tokens, waiting));
        assert_eq!(found.first().map(|(_, severity)| *severity), expected, "{tokens} of 3, {waiting} wait");
        assert!(found.iter().all(|(kind, _)| *kind == Kind::TokensSilent), "{found:?}");
    }
}

#[test]
fn failed_and_expired_events_are_two_troubles() {
    let ended = Ended { schedule: "s".to_owned(), failed: 120, expired: 58, runs: 2, ..Ended::default() };
    let found = of_ended(&ended);
    let texts: Vec<String> = found.iter().map(Trouble::summary).collect();
    assert_eq!(
        texts,
        ["120 events in 2 runs of s failed for good", "58 events in 2 runs of s did not start in time"]
    );
    assert_eq!(of_ended(&Ended::default()), []);
    let within = Sufferer { ended: Some(ended), ..sufferer(Vec::new()) };
    assert_eq!(of_sufferer(within).len(), 2);
}

#[test]
fn the_installation_is_in_trouble_without_owners_and_with_late_emitters() {
    let behind = |behind_s: i64| {
        let emitted_until_us = Some(NOW_US - behind_s * SECOND_US);
        let known = Installation { emitted_until_us, ..Installation::default() };
        of_installation(&known, NOW_US).first().map(|trouble| (trouble.kind, trouble.severity))
    };
    assert_eq!((behind(-240), behind(4)), (None, None));
    assert_eq!(behind(5), Some((Kind::EmitterBehind, Severity::Warning)));
    assert_eq!(behind(60), Some((Kind::EmitterBehind, Severity::Critical)));
    assert_eq!(of_installation(&Installation::default(), NOW_US), []);
    let known = Installation { shards_without_owner: 1, ..Installation::default() };
    let found = of_installation(&known, NOW_US);
    assert_eq!(found[0].summary(), "1 queue shard has no owner");
}

#[test]
fn missed_triggers_are_a_trouble_of_their_schedule() {
    let missed =
        Missed { schedule: "nightly".to_owned(), triggers: 1, first_launch_us: 7, ..Missed::default() };
    let trouble = of_missed(&missed).unwrap();
    assert_eq!((trouble.kind, trouble.since_us), (Kind::TriggersMissed, Some(7)));
    assert_eq!(trouble.summary(), "nightly missed 1 trigger in an outage");
    assert_eq!(of_missed(&Missed { triggers: 0, ..missed }), None);
}

#[test]
fn runs_that_take_longer_are_a_warning_with_both_spans() {
    let minutes = |minutes: i64| minutes * 60 * SECOND_US;
    let mut drifting = Drifting {
        namespace: "team".to_owned(),
        schedule: "nightly".to_owned(),
        policy: "backups".to_owned(),
        ended_us: NOW_US - 7,
        drift: Drift::Sudden { last_us: minutes(190), median_us: minutes(58), runs: 30 },
    };
    let trouble = of_drifting(&drifting);
    assert_eq!((trouble.kind, trouble.severity), (Kind::Slower, Severity::Warning));
    assert_eq!((trouble.since_us, trouble.subject.policy.as_str()), (Some(NOW_US - 7), "backups"));
    assert_eq!(
        trouble.summary(),
        "runs of nightly take longer: the last one took 3h 10m, the median of 30 before it is 58m"
    );
    assert!(trouble.what_to_do().contains("`tollgate history nightly -n team`"), "{trouble:?}");
    drifting.drift = Drift::Gradual { from_us: minutes(40), to_us: minutes(62), runs: 30 };
    assert_eq!(
        of_drifting(&drifting).summary(),
        "runs of nightly take longer: little by little: 40m is the median of the first 10 of 30, 1h 2m that of the last 10"
    );
}

#[test]
fn a_database_is_slow_when_a_share_of_the_commits_is() {
    let told = |slow, all| of_commits(&Commits { process: "x".to_owned(), all, slow });
    for (slow, all, is_told) in [(0, 0, false), (2, 2, false), (3, 3, true), (3, 60, true), (3, 61, false)] {
        assert_eq!(told(slow, all).is_some(), is_told, "{slow} of {all}");
    }
    assert_eq!(
        told(3, 60).unwrap().summary(),
        "the database is slow to commit for the process x: 3 of 60 commits of the last minute took longer than a second"
    );
}

#[test]
fn what_no_worker_is_able_to_do_is_told_with_its_queue_and_its_labels() {
    let unserved = Unserved {
        namespace: "team".to_owned(),
        schedule: "frames".to_owned(),
        policy: "renders".to_owned(),
        target: "pull:render [eu, gpu]".to_owned(),
        pool: 7,
        waiting: 12,
        oldest_launch_us: Some(NOW_US - 60 * SECOND_US),
        again: 2,
        since_us: Some(NOW_US - 11 * SECOND_US),
        words: "no worker of the queue render is connected".to_owned(),
    };
    let found = of_shard(&Sight { unserved: vec![unserved.clone()], ..Sight::default() }, NOW_US);
    let [trouble] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((trouble.kind, trouble.severity), (Kind::NoWorker, Severity::Critical));
    assert_eq!((trouble.waiting, trouble.count, trouble.since_us), (12, 14, Some(NOW_US - 11 * SECOND_US)));
    assert_eq!(
        trouble.summary(),
        "nobody is able to do the events of frames (12 events wait): no worker of the queue render is connected"
    );
    let to_do = trouble.what_to_do();
    assert!(
        to_do.starts_with("Start a worker of the queue render that has the labels eu and gpu; "),
        "{to_do}"
    );
    assert!(
        to_do.contains("`tollgate workers -n team`") && to_do.contains("target.pull of frames"),
        "{to_do}"
    );
    let plain = Unserved { target: "pull:mail".to_owned(), ..unserved };
    let found = of_shard(&Sight { unserved: vec![plain], ..Sight::default() }, NOW_US);
    assert!(found[0].what_to_do().starts_with("Start a worker of the queue mail; "), "{found:?}");
}

#[test]
fn what_is_said_is_cut() {
    let words = "ü".repeat(1_000);
    let refused = sufferer(vec![Failing { words, ..failing(Said::Refused, 3, 0) }]);
    let found = of_shard(&Sight { sufferers: vec![refused], ..Sight::default() }, NOW_US);
    assert_eq!(found[0].words.chars().count(), 501);
    assert!(found[0].words.ends_with('…'));
}

#[test]
fn every_kind_has_a_word_a_sentence_and_something_to_do() {
    let words: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
    assert_eq!(words.len(), Kind::ALL.len());
    assert!(Kind::ALL.is_sorted());
    let subject = Subject {
        namespace: "team".to_owned(),
        policy: "p".to_owned(),
        schedule: "s".to_owned(),
        target: "http://t".to_owned(),
        process: "x".to_owned(),
    };
    let mut sentences = BTreeSet::new();
    for kind in Kind::ALL {
        let trouble = Trouble { count: 2, waiting: 3, ..Trouble::new(kind, subject.clone()) };
        let (summary, to_do) = (trouble.summary(), trouble.what_to_do());
        assert!(summary.ends_with("(3 events wait)"), "{summary}");
        assert!(to_do.ends_with('.') && to_do.len() > 40, "{to_do}");
        assert!(sentences.insert(summary) && sentences.insert(to_do), "{kind:?} says what another says");
    }
}

/// Any trouble; few names, so that some are the same.
fn any_trouble() -> impl Strategy<Value = Trouble> {
    let name = prop_oneof![Just(""), Just("a"), Just("b")];
    let words = prop_oneof![Just(""), Just("x"), Just("y")];
    let numbers =
        (0..5_u64, 0..5_u64, 0..3_u64, proptest::option::of(0..5_i64), proptest::option::of(0..5_i64));
    (0..Kind::ALL.len(), any::<bool>(), name, words, numbers).prop_map(|(kind, bad, name, words, numbers)| {
        let (waiting, count, runs, since_us, oldest_launch_us) = numbers;
        let subject = Subject { schedule: name.to_owned(), ..Subject::default() };
        Trouble {
            severity: if bad { Severity::Critical } else { Severity::Warning },
            waiting,
            count,
            runs,
            since_us,
            oldest_launch_us,
            words: words.to_owned(),
            ..Trouble::new(Kind::ALL[kind], subject)
        }
    })
}

proptest! {
    /// Each process joins what its own shards show, and whoever is asked joins what the processes say.
    #[test]
    fn the_list_does_not_depend_on_who_owns_which_shard(
        found in proptest::collection::vec((any_trouble(), 0..4_usize), 0..40),
    ) {
        let at_once = worst_first(found.iter().map(|(trouble, _)| trouble.clone()));
        let mut parts: [Vec<Trouble>; 4] = Default::default();
        for (trouble, process) in found.iter().rev() {
            parts[*process].push(trouble.clone());
        }
        let in_parts = worst_first(parts.into_iter().flat_map(worst_first));
        prop_assert_eq!(&at_once, &in_parts);
        prop_assert_eq!(&worst_first(at_once.clone()), &at_once);
        let sum = |all: &[Trouble]| all.iter().map(|t| t.waiting + 1_000 * t.count).sum::<u64>();
        let all: Vec<Trouble> = found.into_iter().map(|(trouble, _)| trouble).collect();
        prop_assert_eq!(sum(&all), sum(&at_once));
        let identities: BTreeSet<_> = at_once.iter().map(|t| (t.kind, t.subject.clone())).collect();
        prop_assert_eq!(identities.len(), at_once.len());
    }

    #[test]
    fn the_worst_come_first(found in proptest::collection::vec(any_trouble(), 0..40)) {
        let all = worst_first(found.clone());
        for pair in all.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            prop_assert!((a.severity, a.kind) <= (b.severity, b.kind));
            let alike = (a.severity, a.kind) == (b.severity, b.kind);
            prop_assert!(!alike || a.waiting >= b.waiting);
        }
        let worst = found.iter().map(|trouble| trouble.severity).min();
        prop_assert_eq!(all.first().map(|trouble| trouble.severity), worst);
    }
}
