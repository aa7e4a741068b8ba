//! An emitter that never stops: every fire of every schedule makes one run, and nothing else is read.

use crate::world::{World, cron, due, every, pause, schedule, utc};
use tollgate_core::model::{
    DAY_US, MINUTE_US, PastPause, Pause, RunId, RunKind, RunState, SECOND_US, Schedule, SkipReason, Trigger,
};
use tollgate_event_emitter::Options;

/// Schedules of all classes in a zone with a clock change.
fn mixed(zone: &str, first: u128) -> Vec<Schedule> {
    let expressions = [
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "15 2,3 * * SUN",
        "*/20 1-3 * * *",
        "0 3 30 3 *",
        "5 * L * *",
        "10 1 * 10 SUN#L",
        "@daily",
        "59 23 * * *",
        "0 12 1 1 *",
    ];
    (first..).zip(expressions).map(|(number, text)| schedule(number, zone, vec![cron(text)])).collect()
}

#[tokio::test]
async fn every_fire_makes_one_run_through_clock_changes() {
    for start in ["2025-03-29T23:40:17Z", "2025-10-25T23:40:17Z"] {
        let start_us = utc(start);
        let world = World::new(start_us).await;
        let mut schedules = mixed("Europe/Berlin", 1);
        schedules.extend(mixed("Asia/Kathmandu", 101));
        schedules.push(schedule(201, "UTC", vec![cron("*/2 * * * *"), every(90), cron("0 1 * * *")]));
        let mut excluding = schedule(202, "Europe/Berlin", vec![cron("*/10 * * * *"), every(700)]);
        excluding.timing.exclude = vec!["2025-03-30".parse().unwrap(), "2025-10-26".parse().unwrap()];
        schedules.push(excluding);
        world.put(&schedules).await;
        let emitter = world.emitter(Options::default());
        world.steady(&emitter, 20 * SECOND_US, start_us + 150 * MINUTE_US).await;
        let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
        assert!(opened >= world.clock.wall_us() + 300 * SECOND_US);
        let first = start_us - start_us.rem_euclid(MINUTE_US);
        assert_eq!(world.launches().await, due(&schedules, first, opened), "{start}");
    }
}

#[tokio::test]
async fn a_day_of_forty_zones_is_the_plan() {
    let start_us = utc("2025-11-02T00:00:00Z");
    let world = World::new(start_us).await;
    let schedules: Vec<Schedule> = (0_u128..)
        .zip(chrono_tz::TZ_VARIANTS.iter().step_by(chrono_tz::TZ_VARIANTS.len() / 40))
        .flat_map(|(at, zone)| {
            let minute = at * 7 % 60;
            [
                schedule(10 * at + 1, zone.name(), vec![cron(&format!("{minute} * * * *"))]),
                schedule(10 * at + 2, zone.name(), vec![cron("30 1 * * *"), cron("*/30 0-4 * * SUN")]),
                schedule(10 * at + 3, zone.name(), vec![cron(&format!("{minute} 3 2 11 *"))]),
            ]
        })
        .collect();
    world.put(&schedules).await;
    let emitter = world.emitter(Options { window_s: 1_200, ..Options::default() });
    world.steady(&emitter, 1_200 * SECOND_US, start_us + DAY_US).await;
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    let expected = due(&schedules, start_us, opened);
    assert!(expected.len() > 40 * 25);
    assert_eq!(world.launches().await, expected);
}

#[tokio::test]
async fn what_is_read_is_what_fires() {
    let start_us = utc("2025-06-11T08:00:00Z");
    let world = World::new(start_us).await;
    let zones = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"];
    let schedules: Vec<Schedule> = (0_u128..2_000)
        .map(|number| {
            let text = format!(
                "{} {} * * {}",
                number % 60,
                number / 60 % 24,
                ["*", "WED", "SUN"][number as usize % 3]
            );
            schedule(number + 1, zones[number as usize % 4], vec![cron(&text)])
        })
        .collect();
    world.put(&schedules).await;
    let emitter = world.emitter(Options::default());
    world.steady(&emitter, MINUTE_US, start_us + 60 * MINUTE_US).await;
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    let expected = due(&schedules, start_us, opened);
    let stats = emitter.stats();
    assert!(expected.len() > 30, "{}", expected.len());
    assert_eq!(stats.runs(), expected.len() as u64);
    assert_eq!(stats.children(), expected.len() as u64);
    assert!(stats.lag_us() < 0);
}

#[tokio::test]
async fn intervals_and_single_shots() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let at = |seconds: i64| Trigger::At { at_us: start_us + seconds * SECOND_US };
    let schedules = [
        schedule(1, "UTC", vec![every(7)]),
        schedule(2, "UTC", vec![every(90)]),
        schedule(3, "UTC", vec![every(1)]),
        schedule(4, "UTC", vec![every(86_400)]),
        schedule(5, "UTC", vec![at(61), at(600), at(600), at(4_000)]),
        schedule(6, "UTC", vec![at(100_000)]),
    ];
    world.put(&schedules).await;
    let emitter = world.emitter(Options::default());
    world.steady(&emitter, 33 * SECOND_US, start_us + 70 * MINUTE_US).await;
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    let expected = due(&schedules, utc("2025-06-11T08:00:00Z"), opened);
    assert!(expected.len() > 4_000);
    assert_eq!(world.launches().await, expected);
    assert_eq!(world.launches_of(&schedules[4]).await.len(), 3);
}

#[tokio::test]
async fn pages_may_be_smaller_than_a_task() {
    let start_us = utc("2025-06-11T08:00:00Z");
    let world = World::new(start_us).await;
    let schedules: Vec<Schedule> =
        (1..=53).map(|number| schedule(number, "UTC", vec![cron("2,3 * * * *"), every(60)])).collect();
    world.put(&schedules).await;
    for page in [1, 7, 53] {
        let emitter = world.emitter(Options { page, claim: 1, ..Options::default() });
        world.steady(&emitter, MINUTE_US, world.clock.wall_us() + 10 * MINUTE_US).await;
    }
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    assert_eq!(world.launches().await, due(&schedules, start_us, opened));
}

#[tokio::test]
async fn a_run_is_its_schedules_trigger() {
    let start_us = utc("2025-06-11T08:00:00Z");
    let world = World::new(start_us).await;
    let schedule = schedule(6, "UTC", vec![cron("3 8 * * *")]);
    world.put(std::slice::from_ref(&schedule)).await;
    let report = world.emitter(Options::default()).round().await.unwrap();
    assert_eq!(
        (report.windows_opened, report.runs, report.children, report.windows_incomplete),
        (5, 1, 1, 0)
    );
    let run = world.runs().await.remove(0);
    let launch_us = start_us + 3 * MINUTE_US;
    assert_eq!(run.id, RunId::derive(schedule.uid, launch_us));
    assert_eq!((run.shard, run.launch_us, run.events, run.priority), (2, launch_us, 3, 7));
    assert_eq!((run.kind, run.state, run.emitted_us), (RunKind::Scheduled, RunState::Emitted, start_us));
    assert!(world.wakes.lock().unwrap().is_empty(), "its owner finds it in time");
}

#[tokio::test]
async fn owners_are_woken_for_what_launches_soon() {
    let world = World::new(utc("2025-06-11T08:02:40Z")).await;
    world
        .put(&[schedule(6, "UTC", vec![cron("3 8 * * *")]), schedule(7, "UTC", vec![cron("4 8 * * *")])])
        .await;
    let report = world.emitter(Options::default()).round().await.unwrap();
    assert_eq!(report.runs, 2);
    let soon = world.runs().await.into_iter().min_by_key(|run| run.launch_us).unwrap();
    assert_eq!(*world.wakes.lock().unwrap(), [soon.shard]);
}

#[tokio::test]
async fn a_paused_schedule_leaves_a_record() {
    let start_us = utc("2025-06-11T08:00:00Z");
    let world = World::new(start_us).await;
    let mut paused = schedule(1, "UTC", vec![every(60)]);
    paused.pause = Some(pause());
    let active = schedule(2, "UTC", vec![every(60)]);
    world.put(&[paused.clone(), active.clone()]).await;
    let emitter = world.emitter(Options::default());
    world.steady(&emitter, MINUTE_US, start_us + 10 * MINUTE_US).await;
    assert_eq!(world.launches_of(&paused).await, [0_i64; 0]);
    assert_eq!(world.skipped_of(&paused, SkipReason::Paused).await.len(), 15);
    assert_eq!(world.launches_of(&active).await.len(), 15);
    assert_eq!(emitter.stats().skipped(SkipReason::Paused), 15);
}

/// What fell due in a pause stays out, however late it is scanned: an emitter died, and the pause was lifted meanwhile.
#[tokio::test]
async fn a_pause_that_was_lifted_before_its_window_is_scanned_leaves_a_record() {
    let start_us = utc("2025-06-11T08:00:00Z");
    let world = World::new(start_us).await;
    let every = Trigger::Interval { every_s: 10, anchor_us: Some(start_us) };
    let mut resumed = schedule(1, "UTC", vec![every]);
    let (since_us, until_us) = (start_us + 20 * SECOND_US, start_us + 50 * SECOND_US);
    resumed.past_pauses = vec![PastPause { since_us, until_us }];
    world.put(std::slice::from_ref(&resumed)).await;
    let emitter = world.emitter(Options { ahead_s: 0, ..Options::default() });
    world.clock.advance_us(55 * SECOND_US);
    emitter.round().await.unwrap();
    let paused = world.skipped_of(&resumed, SkipReason::Paused).await;
    let launches = world.launches_of(&resumed).await;
    // What falls due as the pause begins goes out; what does as it ends does not.
    let second = |us: &i64| (us - start_us) / SECOND_US;
    assert_eq!(paused.iter().map(second).collect::<Vec<_>>(), [30, 40, 50]);
    assert_eq!(launches.iter().map(second).collect::<Vec<_>>(), [0, 10, 20]);
}

#[tokio::test]
async fn what_fell_due_before_a_pause_runs_however_late_it_is_scanned() {
    let start_us = utc("2025-06-11T08:00:00Z");
    let world = World::new(start_us).await;
    let every = Trigger::Interval { every_s: 10, anchor_us: Some(start_us) };
    let mut paused = schedule(1, "UTC", vec![every]);
    paused.pause = Some(Pause { since_us: start_us + 25 * SECOND_US, ..pause() });
    world.put(std::slice::from_ref(&paused)).await;
    world.clock.advance_us(55 * SECOND_US);
    world.emitter(Options { ahead_s: 0, ..Options::default() }).round().await.unwrap();
    assert_eq!(world.launches_of(&paused).await.len(), 3);
    assert_eq!(world.skipped_of(&paused, SkipReason::Paused).await.len(), 3);
}

#[tokio::test]
async fn nothing_fires_for_the_time_before_a_schedule_was_made() {
    let start_us = utc("2025-06-11T08:00:40Z");
    let world = World::new(start_us).await;
    let mut young = schedule(1, "UTC", vec![every(1)]);
    young.created_us = start_us - 10 * SECOND_US;
    world.put(std::slice::from_ref(&young)).await;
    world.emitter(Options::default()).round().await.unwrap();
    let launches = world.launches_of(&young).await;
    assert_eq!(launches.first(), Some(&(young.created_us + SECOND_US)));
    assert_eq!(world.skipped_of(&young, SkipReason::Missed).await, [0_i64; 0]);
}
