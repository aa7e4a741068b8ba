//! Several emitters, emitters that die, stores that fail, and writers that come in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::world::{
    Hooked, Moment, World, children, cron, due, every, move_to, put, put_with, schedule, utc,
};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tollgate_core::emit::Window;
use tollgate_core::handle::change::Changes;
use tollgate_core::handle::control::{Control, Message};
use tollgate_core::model::{CatchUp, MINUTE_US, Run, RunId, SECOND_US, Schedule, SkipReason};
use tollgate_core::plan::{News, Notice, ScheduleNews, message_id};
use tollgate_event_emitter::Options;
use tollgate_store::StoreError;
use tollgate_store::plan::{PlanWrite, Told};
use uuid::Uuid;

fn minutely(count: u128) -> Vec<Schedule> {
    (1..=count).map(|number| schedule(number, "UTC", vec![cron("0-59 * * * *")])).collect()
}

fn gone() -> StoreError {
    StoreError::Unreachable("test".to_owned())
}

/// Fails the `nth` call (from 1) of a method at this moment, and all calls after it: the process is dead.
fn dies(world: &World, method: &'static str, moment: Moment, nth: usize) -> Arc<Hooked> {
    let (seen, dead) = (AtomicUsize::new(0), AtomicBool::new(false));
    Hooked::new(&world.store, move |called, at| {
        if called == method && at == moment && seen.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            dead.store(true, Ordering::SeqCst);
        }
        let answer = if dead.load(Ordering::SeqCst) { Err(gone()) } else { Ok(()) };
        async move { answer }.boxed()
    })
}

#[tokio::test]
async fn whatever_an_emitter_has_left_another_finishes() {
    let places = [
        ("announce_window", Moment::After, 1),
        ("announce_window", Moment::After, 3),
        ("registry", Moment::After, 2),
        ("open_window", Moment::After, 2),
        ("claim_tasks", Moment::After, 1),
        ("scan", Moment::After, 2),
        ("emit", Moment::Before, 2),
        ("emit", Moment::After, 2),
        ("checkpoint", Moment::Before, 3),
        ("checkpoint", Moment::After, 3),
        ("complete_tasks", Moment::Before, 1),
        ("complete_tasks", Moment::After, 1),
    ];
    for (method, moment, nth) in places {
        let start_us = utc("2025-06-11T08:00:30Z");
        let world = World::new(start_us).await;
        let schedules = minutely(25);
        world.put(&schedules).await;
        // The first launch is a minute old when the second emitter gets it.
        let options = Options { page: 10, late_after_s: 600, ..Options::default() };
        let hooked = dies(&world, method, moment, nth);
        let first = world.hooked(&hooked, options.clone());
        assert!(first.round().await.is_err(), "{method} {moment:?}");
        drop(first);
        let second = world.emitter(options);
        second.round().await.unwrap();
        world.clock.advance_us(31 * SECOND_US);
        let report = second.round().await.unwrap();
        assert_eq!(report.windows_incomplete, 0, "{method} {moment:?}");
        let opened = report.opened_until_us.unwrap();
        let expected = due(&schedules, start_us - 30 * SECOND_US, opened);
        assert_eq!(world.launches().await, expected, "{method} {moment:?}");
    }
}

#[tokio::test]
async fn a_task_done_again_makes_no_second_run_where_its_schedule_has_moved() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    let schedules = minutely(5);
    world.put(&schedules).await;
    let hooked = dies(&world, "complete_tasks", Moment::Before, 1);
    // Old launches are not missed.
    let options = Options { late_after_s: 600, ..Options::default() };
    world.hooked(&hooked, options.clone()).round().await.unwrap_err();
    let before = world.runs().await;
    for schedule in &schedules {
        let moved = Schedule {
            generation: 2,
            updated_us: world.clock.wall_us(),
            former_homes: vec![before[0].shard],
            ..schedule.clone()
        };
        move_to(&*world.store, &moved, before[0].shard + 1).await;
    }
    world.clock.advance_us(61 * SECOND_US);
    let second = world.emitter(options);
    assert_eq!(second.round().await.unwrap().windows_incomplete, 0);
    // Panics if a launch has two runs.
    let after = world.runs().await;
    let moved = after.iter().filter(|run| run.generation == 2).count();
    assert!(moved > 0, "what no emitter had handed over goes to the new shard");
    assert_eq!(after.len(), before.len() + moved);
}

#[tokio::test]
async fn a_first_scan_makes_no_run_that_a_former_home_has() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    let schedule = minutely(1).remove(0);
    world.put(std::slice::from_ref(&schedule)).await;
    world.emitter(Options::default()).round().await.unwrap();
    let before = world.runs().await;
    // A message made the next run before its window was scanned; the word of the move has not been read there.
    let last = before.iter().max_by_key(|run| run.launch_us).unwrap();
    let launch_us = last.launch_us + MINUTE_US;
    let made = Run { id: RunId::derive(schedule.uid, launch_us), launch_us, ..last.clone() };
    world.store.emit(&[made], &[]).await.unwrap();
    world.clock.advance_us(61 * SECOND_US);
    let moved = Schedule {
        generation: 2,
        updated_us: world.clock.wall_us(),
        former_homes: vec![last.shard],
        ..schedule
    };
    move_to(&*world.store, &moved, last.shard + 1).await;
    world.emitter(Options::default()).round().await.unwrap();
    // Panics if a launch has two runs.
    let after = world.runs().await;
    assert!(after.iter().all(|run| run.launch_us > launch_us || run.generation == 1), "{after:?}");
}

#[tokio::test]
async fn launches_soon_after_a_move_wait_until_the_former_home_has_heard() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    let schedule = minutely(1).remove(0);
    world.put(std::slice::from_ref(&schedule)).await;
    let moved =
        Schedule { generation: 2, updated_us: world.clock.wall_us(), former_homes: vec![3], ..schedule };
    move_to(&*world.store, &moved, 5).await;
    let notice = Notice {
        uid: moved.uid,
        generation: 2,
        namespace: moved.namespace.clone(),
        id: moved.id.clone(),
        changed_us: moved.updated_us,
        way: vec![3, 5],
        is_new: false,
        news: News::Schedule(ScheduleNews {
            policy_uid: None,
            until_us: moved.updated_us + 10 * MINUTE_US,
            events: moved.events,
            priority: moved.priority,
            pause: None,
            was_paused: false,
            timing: Some(moved.timing.clone()),
        }),
    };
    world.store.write_plan(vec![PlanWrite::Tell { notice: Box::new(notice) }]).await.unwrap();
    let emitter = world.emitter(Options::default());
    assert!(emitter.round().await.unwrap().windows_incomplete > 0);
    assert_eq!(world.runs().await, [], "shard 3 may make runs of its own");
    // The word of an earlier move is on its way through the present home, which was one before, too.
    let control = Control::CursorLeft { schedule_uid: moved.uid, cursor: String::new(), left_us: None };
    let on_its_way = Message { id: message_id(moved.uid, 1), control };
    world.store.post(5, std::slice::from_ref(&on_its_way)).await.unwrap();
    let (message, taken_back, skipped) = (None, None, Vec::new());
    let told = Told { shard: 3, uid: moved.uid, generation: 2, message, taken_back, skipped };
    world.store.tell(&[told]).await.unwrap();
    world.clock.advance_us(31 * SECOND_US);
    assert!(emitter.round().await.unwrap().windows_incomplete > 0);
    let seen = world.store.leases().await.unwrap().remove(5);
    let lease = world.store.take_shard(&seen, "one").await.unwrap().unwrap();
    let read = Changes { inbox_done: vec![on_its_way.id], ..Changes::default() };
    world.store.commit(&lease, &read).await.unwrap();
    world.clock.advance_us(31 * SECOND_US);
    assert_eq!(emitter.round().await.unwrap().windows_incomplete, 0);
    assert!(world.runs().await.iter().all(|run| run.shard == 5));
    assert!(world.runs().await.len() >= 5);
}

#[tokio::test]
async fn a_lease_keeps_others_away_until_it_runs_out() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    world.put(&minutely(5)).await;
    let hooked = dies(&world, "claim_tasks", Moment::After, 1);
    world.hooked(&hooked, Options::default()).round().await.unwrap_err();
    let second = world.emitter(Options::default());
    let report = second.round().await.unwrap();
    assert_eq!((report.runs, report.windows_incomplete), (0, 6));
    world.clock.advance_us(30 * SECOND_US);
    let report = second.round().await.unwrap();
    assert_eq!(report.windows_incomplete, 0);
    assert_eq!(report.runs, 5 * 6);
}

#[tokio::test]
async fn a_run_that_was_made_in_time_is_not_recorded_as_missed_later() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let mut strict = minutely(1).remove(0);
    strict.catch_up = CatchUp::None;
    world.put(std::slice::from_ref(&strict)).await;
    let hooked = dies(&world, "complete_tasks", Moment::Before, 4);
    world.hooked(&hooked, Options::default()).round().await.unwrap_err();
    let emitted = world.launches_of(&strict).await;
    assert_eq!(emitted.len(), 4);
    world.clock.advance_us(30 * MINUTE_US);
    world.emitter(Options::default()).round().await.unwrap();
    let ran = world.launches_of(&strict).await;
    let missed = world.skipped_of(&strict, SkipReason::Missed).await;
    assert!(missed.iter().all(|us| !ran.contains(us)), "{missed:?}");
    assert_eq!(missed.first(), Some(&(start_us + 210 * SECOND_US)));
    let opened = world.store.frontier().await.unwrap().opened_until_us.unwrap();
    let all = due(std::slice::from_ref(&strict), start_us - 30 * SECOND_US, opened).len();
    assert_eq!(ran.len() + missed.len(), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emitters_share_windows() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let zones = ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Asia/Tokyo", "Africa/Cairo"];
    let schedules: Vec<Schedule> = (0_u128..)
        .zip(zones)
        .flat_map(|(at, zone)| {
            (0..20).map(move |number| schedule(100 * at + number + 1, zone, vec![cron("0-59 * * * *")]))
        })
        .collect();
    world.put(&schedules).await;
    let emitters: Vec<_> =
        (0..3).map(|at| world.emitter(Options { page: 7 + at, claim: 2, ..Options::default() })).collect();
    for _ in 0..15 {
        let rounds = emitters.iter().map(|emitter| {
            let emitter = Arc::clone(emitter);
            tokio::spawn(async move { emitter.round().await.unwrap() })
        });
        futures::future::join_all(rounds)
            .await
            .into_iter()
            .for_each(|round| assert_eq!(round.unwrap().corrupt, 0));
        world.clock.advance_us(MINUTE_US);
    }
    emitters[0].round().await.unwrap();
    let frontier = world.store.frontier().await.unwrap();
    assert_eq!(frontier.opened_until_us, frontier.completed_until_us);
    let expected = due(&schedules, start_us - 30 * SECOND_US, frontier.opened_until_us.unwrap());
    assert_eq!(world.launches().await, expected);
    let runs: u64 = emitters.iter().map(|emitter| emitter.stats().runs()).sum();
    assert_eq!(runs, expected.len() as u64);
    let windows = world.store.windows(1_000).await.unwrap();
    assert_eq!(windows.iter().map(|row| u64::from(row.runs)).sum::<u64>(), runs);
    let mut spans: Vec<Window> = windows.iter().map(|row| row.window).collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].end_us == pair[1].start_us), "{spans:?}");
}

/// A writer's side of the promise: what lies before `opened_until`, read after its commit, it corrects itself.
async fn write(store: Arc<dyn tollgate_store::Store>, schedule: Schedule) -> Option<i64> {
    put(&*store, std::slice::from_ref(&schedule)).await;
    store.frontier().await.unwrap().opened_until_us
}

#[tokio::test]
async fn a_schedule_made_while_a_window_is_opened_is_seen_by_one_side() {
    let places =
        ["announce_window", "zones", "registry", "open_window", "claim_tasks", "scan", "complete_tasks"];
    for (method, moment) in
        places.iter().flat_map(|method| [(*method, Moment::Before), (*method, Moment::After)])
    {
        let start_us = utc("2025-06-11T08:00:30Z");
        let world = World::new(start_us).await;
        world.put(&minutely(1)).await;
        world.emitter(Options::default()).round().await.unwrap();
        world.clock.advance_us(MINUTE_US);
        // A zone and launch expressions that no other schedule has.
        let new = schedule(7, "Asia/Tokyo", vec![cron("*/1 * * * *"), every(13)]);
        let store = Arc::clone(&world.store);
        let corrected = Arc::new(std::sync::Mutex::new(None));
        let (once, schedule, answer) = (AtomicBool::new(false), new.clone(), Arc::clone(&corrected));
        let hooked = Hooked::new(&world.store, move |called, at| {
            if called != method || at != moment || once.swap(true, Ordering::SeqCst) {
                return async { Ok(()) }.boxed();
            }
            let (store, schedule, answer) = (Arc::clone(&store), schedule.clone(), Arc::clone(&answer));
            async move {
                *answer.lock().unwrap() = write(store, schedule).await;
                Ok(())
            }
            .boxed()
        });
        let report = world.hooked(&hooked, Options::default()).round().await.unwrap();
        let corrected = corrected.lock().unwrap().unwrap();
        let opened = report.opened_until_us.unwrap();
        let one = std::slice::from_ref(&new);
        let emitted = world.launches_of(&new).await;
        for (_, launch_us) in due(one, start_us - 30 * SECOND_US, opened) {
            let seen = launch_us < corrected || emitted.contains(&launch_us);
            assert!(seen, "{method} {moment:?}: {launch_us} is seen by nobody");
        }
    }
}

#[tokio::test]
async fn a_failing_store_is_tried_again() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    world.put(&minutely(2)).await;
    let broken = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&broken);
    let hooked = Hooked::new(&world.store, move |called, at| {
        let fails = called == "scan" && at == Moment::Before && down.load(Ordering::SeqCst);
        async move { if fails { Err(gone()) } else { Ok(()) } }.boxed()
    });
    let emitter = world.hooked(&hooked, Options { late_after_s: 600, ..Options::default() });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&emitter).run(stop.clone()));
    until(|| emitter.stats().failures() == 1).await;
    broken.store(false, Ordering::SeqCst);
    // It gives back the tasks that it had claimed: nobody waits for their lease.
    until(|| emitter.stats().runs() == 2 * 6).await;
    // The next window is opened when it is its time.
    world.clock.advance_us(MINUTE_US);
    until(|| emitter.stats().runs() == 2 * 7).await;
    stop.cancel();
    running.await.unwrap();
}

/// Whoever works on a page keeps its task, however long the page takes: else two emitters could take it from each other for ever.
#[tokio::test]
async fn a_long_page_is_not_taken_away() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    let schedules: Vec<Schedule> = (1..=15).map(|number| schedule(number, "UTC", vec![every(1)])).collect();
    world.put(&schedules).await;
    let (store, clock) = (Arc::clone(&world.store), world.clock.clone());
    let emits = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&emits);
    let hooked = Hooked::new(&world.store, move |called, at| {
        let is_emit = called == "emit" && at == Moment::After;
        let (store, clock) = (Arc::clone(&store), clock.clone());
        if is_emit {
            seen.fetch_add(1, Ordering::SeqCst);
            clock.advance_us(6 * SECOND_US);
        }
        async move {
            if is_emit {
                let now_us = clock.wall_us();
                let claimed = store.claim_tasks(Uuid::new_v4(), now_us + SECOND_US, now_us, 9).await?;
                assert_eq!(claimed, [], "somebody works on it");
            }
            Ok(())
        }
        .boxed()
    });
    let options = Options { ahead_s: 0, late_after_s: 600, ..Options::default() };
    let report = world.hooked(&hooked, options).round().await.unwrap();
    assert!(emits.load(Ordering::SeqCst) >= 3, "longer than a lease lasts");
    assert_eq!(report.windows_incomplete, 0);
}

/// What fails a second time keeps its lease: it does not stand before the others for ever.
#[tokio::test]
async fn a_task_that_fails_again_lets_others_pass() {
    let world = World::new(utc("2025-06-11T08:00:30Z")).await;
    // Tasks are claimed one at a time, in the order of their zones.
    let zones = ["Africa/Abidjan", "UTC"];
    let schedules: Vec<Schedule> =
        (1..).zip(zones).map(|(number, zone)| schedule(number, zone, vec![cron("0-59 * * * *")])).collect();
    world.put(&schedules).await;
    let scans = AtomicUsize::new(0);
    let hooked = Hooked::new(&world.store, move |called, at| {
        let is_scan = called == "scan" && at == Moment::Before;
        let fails = is_scan && scans.fetch_add(1, Ordering::SeqCst) < 2;
        async move { if fails { Err(gone()) } else { Ok(()) } }.boxed()
    });
    let options = Options { claim: 1, ahead_s: 0, late_after_s: 600, ..Options::default() };
    let emitter = world.hooked(&hooked, options);
    for _ in 0..2 {
        emitter.round().await.unwrap_err();
    }
    let report = emitter.round().await.unwrap();
    assert_eq!(report.windows_incomplete, 1);
    assert_eq!(world.launches_of(&schedules[0]).await, [0_i64; 0]);
    assert_eq!(world.launches_of(&schedules[1]).await.len(), 1);
    world.clock.advance_us(31 * SECOND_US);
    assert_eq!(emitter.round().await.unwrap().windows_incomplete, 0);
    assert_eq!(world.launches_of(&schedules[0]).await.len(), 2);
}

async fn until(reached: impl Fn() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
}

#[tokio::test]
async fn whoever_is_slow_finishes_what_nobody_has_taken() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let schedules = minutely(20);
    world.put(&schedules).await;
    // Each of the first pages takes longer than a lease lasts.
    let (clock, slow_left) = (world.clock.clone(), AtomicUsize::new(7));
    let hooked = Hooked::new(&world.store, move |called, at| {
        let is_scan = called == "scan" && at == Moment::After;
        if is_scan
            && slow_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            clock.advance_us(31 * SECOND_US);
        }
        async { Ok(()) }.boxed()
    });
    let options = Options { page: 10, late_after_s: 86_400, ..Options::default() };
    let slow = world.hooked(&hooked, options).round().await.unwrap();
    assert_eq!(slow.windows_incomplete, 0);
    let expected = due(&schedules, start_us - 30 * SECOND_US, slow.opened_until_us.unwrap());
    assert_eq!(world.launches().await, expected);
    // What was read once is not read again.
    assert_eq!(slow.children, expected.len() as u64);
}

#[tokio::test]
async fn a_corrupt_child_stops_nobody_else() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let schedules = minutely(9);
    world.put(&schedules[..4]).await;
    let mut corrupt = children(&schedules[4]);
    corrupt[3].rule = "whatever".to_owned();
    put_with(&*world.store, &schedules[4], corrupt).await;
    world.put(&schedules[5..]).await;
    let emitter = world.emitter(Options { page: 3, ..Options::default() });
    let report = emitter.round().await.unwrap();
    assert_eq!((report.corrupt, report.windows_incomplete), (1, 0));
    let mut expected = due(&schedules, start_us - 30 * SECOND_US, report.opened_until_us.unwrap());
    assert!(expected.remove(&(schedules[4].uid, utc("2025-06-11T08:03:00Z"))));
    assert_eq!(world.launches().await, expected);
}

#[tokio::test]
async fn a_stop_ends_a_round_at_its_page() {
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    let schedules = minutely(30);
    world.put(&schedules).await;
    let stop = CancellationToken::new();
    let stopper = stop.clone();
    let scans = AtomicUsize::new(0);
    let hooked = Hooked::new(&world.store, move |called, at| {
        if called == "scan" && at == Moment::After && scans.fetch_add(1, Ordering::Relaxed) == 1 {
            stopper.cancel();
        }
        async { Ok(()) }.boxed()
    });
    let options = Options { page: 10, ..Options::default() };
    world.hooked(&hooked, options.clone()).run(stop).await;
    assert_eq!(world.launches().await.len(), 20);
    // What is left of its task is anybody's.
    let report = world.emitter(options).round().await.unwrap();
    let expected = due(&schedules, start_us - 30 * SECOND_US, report.opened_until_us.unwrap());
    assert_eq!(world.launches().await, expected);
}

/// A launch expression with very many children does not stand before one with a few: each has its pages in turn.
#[tokio::test]
async fn tasks_take_turns_page_by_page() {
    const MANY: u128 = 400;
    let start_us = utc("2025-06-11T08:00:30Z");
    let world = World::new(start_us).await;
    // Tasks are claimed in the order of their zones.
    let many: Vec<Schedule> =
        (1..=MANY).map(|number| schedule(number, "Africa/Abidjan", vec![cron("0-59 * * * *")])).collect();
    let few: Vec<Schedule> =
        (1_001..=1_012).map(|number| schedule(number, "UTC", vec![cron("0-59 * * * *")])).collect();
    world.put(&many).await;
    world.put(&few).await;
    let clock = world.clock.clone();
    let hooked = Hooked::new(&world.store, move |called, at| {
        // What is read later is judged later.
        if called == "scan" && at == Moment::Before {
            clock.advance_us(1_000);
        }
        async { Ok(()) }.boxed()
    });
    world.hooked(&hooked, Options { page: 8, ..Options::default() }).round().await.unwrap();
    let launch_us = utc("2025-06-11T08:03:00Z");
    let runs: Vec<Run> = world.runs().await.into_iter().filter(|run| run.launch_us == launch_us).collect();
    let is_few = |run: &&Run| few.iter().any(|schedule| schedule.uid == run.schedule_uid);
    let last_us = runs.iter().filter(is_few).map(|run| run.emitted_us).max().unwrap();
    let later = runs.iter().filter(|run| run.emitted_us > last_us).count();
    assert_eq!(runs.len(), many.len() + few.len());
    assert!(later >= many.len() - 24, "{later} of the others come after the last of the few");
}
