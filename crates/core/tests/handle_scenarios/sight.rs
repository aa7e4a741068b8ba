//! What a shard shows of what is not well: each way in which events fail, by schedule, as long as it lasts.

use tollgate_core::handle::Options;
use tollgate_core::handle::change::TokenState;
use tollgate_core::handle::control::Control;
use tollgate_core::handle::release::{Release, ReleaseOutcome};
use tollgate_core::model::*;
use tollgate_core::trouble::{Failing, Kind, Said, Sight, of_shard};

use crate::handle_world::*;
use crate::world::*;

fn sight(world: &World) -> Sight {
    let sight = world.shard.sight(world.now);
    assert!(!sight.incomplete, "{sight:?}");
    sight
}

fn kinds(world: &World) -> Vec<Kind> {
    of_shard(&sight(world), world.now.wall_us).into_iter().map(|trouble| trouble.kind).collect()
}

/// More attempts than a test makes.
fn patient(schedule: u128, policy: &Policy) -> RunSpec {
    let retry = RetryPolicy { attempts_max: 100, ..RetryPolicy::default() };
    RunSpec { retry, ..spec(schedule, Some(policy)) }
}

#[test]
fn a_target_that_refuses_is_seen_as_long_as_it_does_and_after_a_restart() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = patient(10, &p);
    let id = world.emit(run(&s, START_US, 300), &s);
    assert_eq!(sight(&world).sufferers, [], "nobody has answered yet");
    for _ in 0..40 {
        for send in world.take_sends() {
            world.answer(&send, refused());
        }
        world.sleep_us(SECOND_US / 2);
    }
    let seen = sight(&world);
    let [sufferer] = seen.sufferers.as_slice() else { panic!("{seen:?}") };
    assert_eq!((sufferer.schedule.as_str(), sufferer.policy.as_str()), ("s10", "p1"));
    assert_eq!((sufferer.target.as_str(), sufferer.at_consumer), ("http://127.0.0.1", 0));
    assert_eq!(sufferer.oldest_launch_us, Some(START_US));
    assert!(sufferer.waiting >= 298, "{sufferer:?}");
    let [failing] = sufferer.failing.as_slice() else { panic!("{sufferer:?}") };
    assert_eq!((failing.said, failing.since_us, failing.words.as_str()), (Said::Refused, START_US, "503"));
    assert_eq!(kinds(&world), [Kind::TargetRefuses]);
    let gauges = world.shard.status(world.now).gauges;
    let gauge = gauges.iter().find(|gauge| gauge.policy.is_some()).unwrap();
    assert_eq!(gauge.oldest_wait_us, world.now.wall_us - START_US, "the oldest wait counts from the launch");
    world.restart_after_s(1);
    assert_eq!(kinds(&world), [Kind::TargetRefuses], "who has the shard next sees it too");
    for _ in 0..2_000 {
        world.sleep_s(1);
        for send in world.take_sends() {
            world.answer(&send, Sent::Accepted);
            world.release(done(&send));
        }
    }
    assert_eq!(world.row(id).counts.succeeded, 300);
    assert_eq!(sight(&world).sufferers, []);
}

#[test]
fn each_way_to_fail_is_told_from_the_others() {
    let p = policy(1, at_most(10));
    let mut world = World::with_policy(&p);
    let names = [10, 11, 12, 13];
    for schedule in names {
        let s = patient(schedule, &p);
        world.emit(run(&s, START_US, 1), &s);
    }
    let not_sent = Sent::NotSent { message: "no credentials".into(), retry_after_ms: None };
    for _ in 0..60 {
        for send in world.take_sends() {
            match send.spec.schedule_id.as_str() {
                "s10" => world.answer(&send, refused()),
                "s11" => world.answer(&send, unclear()),
                "s12" => world.answer(&send, not_sent.clone()),
                _ => {
                    world.answer(&send, Sent::Accepted);
                    world.release(Release { outcome: ReleaseOutcome::Retry, ..done(&send) });
                }
            }
        }
        world.sleep_us(SECOND_US / 2);
    }
    let seen = sight(&world);
    let answers: Vec<(&str, Said)> = seen
        .sufferers
        .iter()
        .flat_map(|sufferer| {
            sufferer.failing.iter().map(|failing| (sufferer.schedule.as_str(), failing.said))
        })
        .collect();
    for expected in
        [("s10", Said::Refused), ("s11", Said::Unclear), ("s12", Said::NotSent), ("s13", Said::GivenBack)]
    {
        assert!(answers.contains(&expected), "{answers:?}");
    }
    assert_eq!(answers.len(), 4, "{answers:?}");
    // An attempt that is under way again says what was said before.
    world.sleep_s(600);
    let again = sight(&world);
    assert_eq!(world.take_sends().len(), 4);
    let answers = |sight: &Sight| {
        let mut all: Vec<_> = sight.sufferers.iter().flat_map(|s| s.failing.iter().map(|f| f.said)).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(answers(&again), answers(&seen));
}

#[test]
fn a_consumer_that_is_refused_after_it_gave_back_counts_as_a_target_that_refuses() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = patient(10, &p);
    world.emit(run(&s, START_US, 1), &s);
    let send = world.accept_all().remove(0);
    world.release(Release { outcome: ReleaseOutcome::Retry, ..done(&send) });
    let answer = |world: &World| sight(world).sufferers[0].failing.iter().map(|f| f.said).collect::<Vec<_>>();
    assert_eq!(answer(&world), [Said::GivenBack]);
    world.sleep_s(5);
    let send = world.take_sends().remove(0);
    assert_eq!(answer(&world), [Said::GivenBack]);
    world.answer(&send, refused());
    assert_eq!(answer(&world), [Said::Refused]);
}

#[test]
fn a_check_again_is_no_failure() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 1), &s);
    let send = world.accept_all().remove(0);
    let check_us = Some(world.now.wall_us + 60 * SECOND_US);
    world.release(Release { next_check_us: check_us, ..done(&send) });
    assert_eq!(world.store.tokens[&(send.run, 0)].state, TokenState::Waiting);
    assert_eq!(sight(&world).sufferers, []);
    world.sleep_s(30);
    assert!(world.shard.status(world.now).gauges.iter().all(|gauge| gauge.oldest_wait_us == 0));
}

#[test]
fn silent_tokens_are_shown_with_the_one_that_was_heard_of_first() {
    let p = Policy { reclaim: Reclaim::Never, ..policy(1, at_most(2)) };
    let mut world = World::with_policy(&p);
    let (a, b) = (spec(10, Some(&p)), spec(11, Some(&p)));
    world.emit(run(&a, START_US, 1), &a);
    world.accept_all();
    let heard_us = world.now.wall_us;
    world.sleep_s(5);
    world.emit(run(&b, START_US + 5 * SECOND_US, 9), &b);
    world.accept_all();
    assert_eq!(sight(&world).buckets, []);
    world.sleep_s(600);
    let seen = sight(&world);
    let [bucket] = seen.buckets.as_slice() else { panic!("{seen:?}") };
    let silent = bucket.silent.as_ref().unwrap();
    assert_eq!((silent.tokens, silent.schedule.as_str(), bucket.waiting), (2, "s10", 8));
    assert_eq!(silent.since_us, Some(heard_us));
    assert_eq!(kinds(&world), [Kind::TokensSilent]);
}

#[test]
fn pauses_are_shown_with_what_waits_behind_them() {
    let mut p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    world.change_policy(&mut p, |p| p.pause = Some(pause()));
    assert_eq!(kinds(&world), []);
    let s = spec(10, Some(&p));
    world.emit(run(&s, START_US, 7), &s);
    assert_eq!(kinds(&world), [Kind::PolicyPaused]);
    let seen = sight(&world);
    assert_eq!((seen.buckets[0].waiting, seen.buckets[0].oldest_launch_us), (7, Some(START_US)));
    world.tell(Control::PauseShard { pause: Some(pause()) });
    assert_eq!(kinds(&world), [Kind::DispatchPaused, Kind::PolicyPaused]);
    assert_eq!((sight(&world).waiting, sight(&world).oldest_launch_us), (7, Some(START_US)));
}

#[test]
fn what_ended_badly_of_a_run_that_goes_on_is_counted() {
    let p = policy(1, at_most(3));
    let mut world = World::with_policy(&p);
    let s = RunSpec { finish_by_s: Some(60), ..spec(10, Some(&p)) };
    world.emit(run(&s, START_US, 10), &s);
    let sends = world.accept_all();
    world.release(Release { outcome: ReleaseOutcome::Failed, ..done(&sends[0]) });
    assert_eq!(kinds(&world), [Kind::EventsFailed]);
    world.sleep_s(61);
    let seen = sight(&world);
    let ended = seen.sufferers[0].ended.as_ref().unwrap();
    assert_eq!((ended.failed, ended.expired, ended.runs, ended.since_us), (1, 6, 1, START_US));
    assert_eq!((ended.schedule.as_str(), ended.policy.as_str()), ("s10", "p1"));
    assert!(kinds(&world).contains(&Kind::EventsExpired));
}

#[test]
fn so_many_events_are_looked_at_and_no_more() {
    let mut world = World::with(Options { sends_max: 100_000, ..Options::default() }, Vec::new());
    let s = spec(10, None);
    for at in 0..700 {
        world.emit(run(&s, START_US + at, 40), &s);
    }
    world.sleep_us(SECOND_US);
    assert!(world.take_sends().len() > 20_000);
    assert!(world.shard.sight(world.now).incomplete);
    let failing: Vec<Failing> =
        world.shard.sight(world.now).sufferers.into_iter().flat_map(|s| s.failing).collect();
    assert_eq!(failing, []);
}

/// What the owner before knew of deliveries in doubt, and of silent consumers, the next one does not know at first. It says so,
/// for five minutes at most.
#[test]
fn a_new_owner_says_that_it_may_not_see_all_yet() {
    let p = Policy { token_ttl_ms: 3_600_000, ..policy(1, at_most(1)) };
    let not_sent = Sent::NotSent { message: "no credentials".into(), retry_after_ms: None };
    let world_of = |sent: &Sent| {
        let mut world = World::with_policy(&p);
        let s = patient(10, &p);
        world.sleep_s(1);
        world.emit(run(&s, START_US, 5), &s);
        for _ in 0..40 {
            for send in world.take_sends() {
                world.answer(&send, sent.clone());
            }
            world.sleep_us(SECOND_US / 2);
        }
        assert!(!sight(&world).settling);
        world
    };
    let mut world = world_of(&unclear());
    assert_eq!(kinds(&world), [Kind::TargetSilent]);
    world.restart_after_s(1);
    assert!(sight(&world).settling && kinds(&world).is_empty(), "{:?}", sight(&world));
    world.sleep_s(30);
    for send in world.take_sends() {
        world.answer(&send, unclear());
    }
    assert_eq!((kinds(&world), sight(&world).settling), (vec![Kind::TargetSilent], false));

    let mut world = world_of(&not_sent);
    assert_eq!(kinds(&world), [Kind::NotSent]);
    world.restart_after_s(1);
    assert!(sight(&world).settling && kinds(&world).is_empty(), "{:?}", sight(&world));
    // They come one after the other, as there is one token.
    for _ in 0..60 {
        world.sleep_s(2);
        for send in world.take_sends() {
            world.answer(&send, not_sent.clone());
        }
    }
    assert_eq!((kinds(&world), sight(&world).settling), (vec![Kind::NotSent], false));

    let mut world = world_of(&Sent::Accepted);
    world.restart_after_s(1);
    assert!(sight(&world).settling, "its consumer may have been silent for long");
    world.sleep_s(298);
    assert!(sight(&world).settling);
    world.sleep_s(3);
    assert!(!sight(&world).settling, "not for ever");
}
