//! What becomes of launches that fell due while no emitter ran.

use crate::world::{World, cron, due, every, pause, schedule, utc};
use tollgate_core::model::{CatchUp, MINUTE_US, PastPause, Pause, SECOND_US, Schedule, SkipReason};
use tollgate_event_emitter::Options;

const HOUR_US: i64 = 60 * MINUTE_US;

fn with(number: u128, catch_up: CatchUp, expression: &str) -> Schedule {
    let mut schedule = schedule(number, "Europe/Berlin", vec![cron(expression)]);
    schedule.catch_up = catch_up;
    schedule
}

/// Works for ten minutes, is away for three hours, works for ten minutes.
async fn outage(world: &World, schedules: &[Schedule]) {
    world.put(schedules).await;
    let emitter = world.emitter(Options::default());
    world.steady(&emitter, MINUTE_US, world.clock.wall_us() + 10 * MINUTE_US).await;
    drop(emitter);
    world.clock.advance_us(3 * HOUR_US);
    let emitter = world.emitter(Options::default());
    let report = emitter.round().await.unwrap();
    // 08:15 to 11:10:30 in hours, then minutes to 11:16.
    assert_eq!(report.windows_opened, 4 + 6);
    assert_eq!(report.windows_incomplete, 0);
    assert!(report.lag_us <= -300 * SECOND_US);
    world.steady(&emitter, MINUTE_US, world.clock.wall_us() + 10 * MINUTE_US).await;
}

#[tokio::test]
async fn each_catch_up_rule_does_what_it_says() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let all = CatchUp::All { horizon_s: 3_600 };
    let schedules = [
        with(1, CatchUp::None, "*/10 * * * *"),
        with(2, CatchUp::Latest, "*/10 * * * *"),
        with(3, all, "*/10 * * * *"),
        with(4, CatchUp::Latest, "20 8 * * *"),
        // In Berlin it is two hours later: 08:30 and 10:30 UTC.
        with(5, CatchUp::Latest, "30 10,12 * * *"),
        with(6, CatchUp::None, "30 10 * * *"),
    ];
    outage(&world, &schedules).await;
    let back_us = start_us + 10 * MINUTE_US + 3 * HOUR_US;
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    let first = start_us - 30 * SECOND_US;
    // Emitted ahead before the outage.
    let before_us = utc("2025-06-11T08:16:00Z");
    for schedule in &schedules {
        let late_us = back_us - 60 * SECOND_US;
        let one = std::slice::from_ref(schedule);
        let missed: Vec<i64> =
            due(one, before_us, late_us).into_iter().map(|(_, launch_us)| launch_us).collect();
        let latest = due(one, first, back_us).last().map(|(_, launch_us)| *launch_us);
        let caught: Vec<i64> = match schedule.catch_up {
            CatchUp::None => Vec::new(),
            CatchUp::Latest => missed.iter().copied().filter(|us| Some(*us) == latest).collect(),
            CatchUp::All { .. } => missed.iter().copied().filter(|us| *us >= back_us - HOUR_US).collect(),
        };
        let skipped: Vec<i64> = missed.iter().copied().filter(|us| !caught.contains(us)).collect();
        assert_eq!(world.skipped_of(schedule, SkipReason::Missed).await, skipped, "{}", schedule.id);
        let ran: Vec<i64> = due(one, first, opened)
            .into_iter()
            .map(|(_, us)| us)
            .filter(|us| !skipped.contains(us))
            .collect();
        assert_eq!(world.launches_of(schedule).await, ran, "{}", schedule.id);
    }
    // The tables above hold: none, the 11:10 launch is in time; six of the last hour.
    assert_eq!(world.skipped_of(&schedules[0], SkipReason::Missed).await.len(), 17);
    assert_eq!(world.skipped_of(&schedules[1], SkipReason::Missed).await.len(), 17);
    assert_eq!(world.skipped_of(&schedules[2], SkipReason::Missed).await.len(), 12);
    assert_eq!(world.launches_of(&schedules[4]).await, [utc("2025-06-11T10:30:00Z")]);
    assert_eq!(world.launches_of(&schedules[5]).await, [0_i64; 0]);
}

/// On an excluded date nothing falls due, so nothing is missed.
#[tokio::test]
async fn an_excluded_date_is_not_missed() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    let mut excluded = with(1, CatchUp::All { horizon_s: 86_400 }, "*/10 * * * *");
    excluded.timing.exclude = vec!["2025-06-11".parse().unwrap()];
    let beside = with(2, CatchUp::None, "*/10 * * * *");
    outage(&world, &[excluded.clone(), beside.clone()]).await;
    assert_eq!(world.launches_of(&excluded).await, [0_i64; 0]);
    assert_eq!(world.skipped_of(&excluded, SkipReason::Missed).await, [0_i64; 0]);
    assert!(!world.skipped_of(&beside, SkipReason::Missed).await.is_empty());
}

/// What fell due in a pause does not run, and so is not the latest.
#[tokio::test]
async fn the_latest_is_the_last_one_outside_pauses() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    // From 08:40 on in pauses, but for 09:10.
    let at = |minute: &str| utc(&format!("2025-06-11T{minute}:00Z"));
    let mut lifted = with(1, CatchUp::Latest, "*/10 * * * *");
    lifted.past_pauses = vec![
        PastPause { since_us: at("08:35"), until_us: at("09:05") },
        PastPause { since_us: at("09:15"), until_us: at("11:12") },
    ];
    let mut paused = with(2, CatchUp::Latest, "*/10 * * * *");
    paused.pause = Some(Pause { since_us: at("08:35"), ..pause() });
    outage(&world, &[lifted.clone(), paused.clone()]).await;
    let between = |launches: Vec<i64>| -> Vec<i64> {
        launches.into_iter().filter(|us| (at("08:17")..at("11:09")).contains(us)).collect()
    };
    assert_eq!(between(world.launches_of(&lifted).await), [at("09:10")]);
    assert_eq!(between(world.skipped_of(&lifted, SkipReason::Missed).await), [at("08:20"), at("08:30")]);
    assert_eq!(between(world.launches_of(&paused).await), [at("08:30")]);
}

#[tokio::test]
async fn the_latest_is_that_of_all_triggers() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let mut both = schedule(1, "UTC", vec![cron("30 9 * * *"), cron("40 9 * * *"), cron("0 23 * * *")]);
    both.catch_up = CatchUp::Latest;
    let mut fast = schedule(2, "UTC", vec![every(7)]);
    fast.catch_up = CatchUp::Latest;
    outage(&world, &[both.clone(), fast.clone()]).await;
    assert_eq!(world.launches_of(&both).await, [utc("2025-06-11T09:40:00Z")]);
    assert_eq!(world.skipped_of(&both, SkipReason::Missed).await, [utc("2025-06-11T09:30:00Z")]);
    // One of its launches is never late, so that none is caught up; every other one is on record.
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    let due = due(std::slice::from_ref(&fast), start_us - 30 * SECOND_US, opened).len();
    let missed = world.skipped_of(&fast, SkipReason::Missed).await.len();
    assert_eq!(world.launches_of(&fast).await.len() + missed, due);
    let back_us = start_us + 10 * MINUTE_US + 3 * HOUR_US;
    let expected = (back_us - 60 * SECOND_US - utc("2025-06-11T08:16:00Z")) / (7 * SECOND_US);
    assert!((missed as i64 - expected).abs() <= 1, "{missed} {expected}");
}

#[tokio::test]
async fn a_month_is_caught_up_without_opening_all_of_it_at_once() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let daily = with(1, CatchUp::All { horizon_s: 40 * 86_400 }, "0 6 * * *");
    world.put(std::slice::from_ref(&daily)).await;
    let emitter = world.emitter(Options::default());
    emitter.round().await.unwrap();
    world.clock.advance_us(30 * 24 * HOUR_US);
    let report = emitter.round().await.unwrap();
    assert_eq!(report.windows_incomplete, 0);
    assert_eq!(report.windows_opened, 30 * 24 + 6);
    assert_eq!(world.launches_of(&daily).await.len(), 30);
}
