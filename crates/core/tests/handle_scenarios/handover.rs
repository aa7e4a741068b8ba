//! A shard changes hands on purpose while deliveries are under way; pauses that overtake each other.

use tollgate_core::handle::change::Outcome;
use tollgate_core::handle::control::{Control, Message, UnderWay};
use tollgate_core::handle::release::Answer;
use tollgate_core::handle::{EventState, Shard};
use tollgate_core::model::*;
use tollgate_core::own::Report;

use crate::handle_world::*;
use crate::world::*;

/// A target that may take its time.
fn slow(mode: ReleaseMode, policy: &Policy) -> RunSpec {
    let mut spec = spec(10, Some(policy));
    let Target::Http { http, release } = &mut spec.target else { panic!("HTTP by default") };
    http.deadline_ms = 30_000;
    *release = mode;
    spec
}

#[test]
fn what_is_under_way_is_not_sent_again_and_its_answer_arrives() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::OnResponse, &p);
    let id = world.emit(run(&s, START_US, 5), &s);
    let sends = world.take_sends();
    assert_eq!(sends.len(), 2);
    let note = world.hand_over(60_000);
    assert_eq!(
        note.iter().map(|u| (u.index, u.attempt, u.doubtful)).collect::<Vec<_>>(),
        [(0, 1, false), (1, 1, false)]
    );
    assert!(note.iter().all(|u| u.grace_ms == 31_000));
    assert_eq!(world.held(&p), 2, "they hold their tokens");
    world.sleep_s(5);
    assert!(world.take_sends().is_empty(), "nothing twice, and no third token");
    world.report(&sends[0], Sent::Accepted);
    assert_eq!(world.ended(id, 0).unwrap().outcome, Outcome::Succeeded);
    assert_eq!(world.take_sends().iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(2, 1)]);
    // A refusal of the only delivery proves that the consumer is not at work: the token goes to another.
    world.report(&sends[1], refused());
    assert_eq!(world.shard.event_state(id, 1), Some(EventState::Retrying));
    assert_eq!(world.take_sends().iter().map(|s| (s.index, s.attempt)).collect::<Vec<_>>(), [(3, 1)]);
    assert_eq!(world.held(&p), 2);
}

#[test]
fn without_a_report_it_is_sent_again_when_its_time_is_over() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    let id = world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    let note = world.hand_over(3_000);
    assert_eq!(note[0].grace_ms, 4_000);
    world.sleep_us(4 * SECOND_US - 1);
    assert!(world.take_sends().is_empty());
    world.sleep_us(1);
    let second = world.take_sends().remove(0);
    assert_eq!((second.run, second.index, second.attempt), (id, 0, 2));
    // The report comes too late; and nobody knows of the first delivery, so a refusal of the second proves nothing.
    world.report(&first, refused());
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Acquired));
    world.answer(&second, refused());
    assert_eq!((world.shard.event_state(id, 0), world.held(&p)), (Some(EventState::Acquired), 1));
}

#[test]
fn a_consumer_may_release_it_meanwhile() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    let id = world.emit(run(&s, START_US, 2), &s);
    let first = world.take_sends().remove(0);
    world.hand_over(3_000);
    assert_eq!(world.succeed(&first), Answer::Released);
    assert_eq!(world.take_sends().iter().map(|s| s.index).collect::<Vec<_>>(), [1]);
    world.report(&first, Sent::Accepted);
    assert_eq!(world.ended(id, 0).unwrap().attempt, 1);
    assert_eq!(world.held(&p), 1);
}

#[test]
fn a_second_hand_over_passes_the_note_on() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    let id = world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    world.hand_over(9_000);
    world.sleep_s(4);
    let note = world.hand_over(60_000);
    assert_eq!(
        note.iter().map(|u| (u.attempt, u.grace_ms)).collect::<Vec<_>>(),
        [(1, 6_000)],
        "what is left of it"
    );
    world.report(&first, Sent::Accepted);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
    world.sleep_s(30);
    assert!(world.take_sends().is_empty());
}

/// The former owner tells that it has not made a delivery, as its report does.
fn report_unsent(world: &mut World, one: &UnderWay) {
    let mut report = Report::new([one.clone()], 0);
    let not_sent = Sent::NotSent { message: "withheld".into(), retry_after_ms: None };
    let control = report.answered(one.run, one.index, one.attempt, Some(not_sent)).unwrap();
    assert_eq!(report.rest(), None);
    world.tell(control);
}

#[test]
fn what_a_former_owner_has_not_sent_is_not_in_doubt() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    let id = world.emit(run(&s, START_US, 1), &s);
    world.take_sends();
    let note = world.hand_over(60_000);
    report_unsent(&mut world, &note[0]);
    for attempt in 2..=4 {
        let send = world.take_sends().remove(0);
        assert_eq!((send.index, send.attempt, world.held(&p)), (0, attempt, 1));
        world.answer(&send, refused());
        assert_eq!(world.held(&p), 0, "attempt {attempt} was refused, and no other has left");
        world.sleep_s(20);
    }
    let ended = world.ended(id, 0).unwrap();
    assert_eq!((ended.outcome, ended.attempt), (Outcome::Dead, 4), "three attempts, all refused");
}

#[test]
fn what_was_in_doubt_before_stays_so_though_a_former_owner_has_not_sent_it_again() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    world.answer(&first, unclear());
    world.sleep_s(10);
    assert_eq!(world.take_sends().remove(0).attempt, 2);
    let note = world.hand_over(60_000);
    report_unsent(&mut world, &note[0]);
    let third = world.take_sends().remove(0);
    assert_eq!(third.attempt, 3);
    world.answer(&third, refused());
    assert_eq!(world.held(&p), 1, "the first may be at work");
}

#[test]
fn what_no_owner_has_sent_ends_with_its_run_and_with_its_window() {
    let p = policy(1, at_most(1));
    let s = RunSpec { finish_by_s: Some(20), ..slow(ReleaseMode::Explicit, &p) };
    for is_cancelled in [true, false] {
        let mut world = World::with_policy(&p);
        let id = world.emit(run(&s, START_US, 1), &s);
        world.take_sends();
        let note = world.hand_over(60_000);
        if is_cancelled {
            world.tell(Control::CancelRun { run: id, reason: String::new() });
        } else {
            world.sleep_s(25);
        }
        assert_eq!((world.ended(id, 0), world.held(&p)), (None, 1));
        report_unsent(&mut world, &note[0]);
        let outcome = if is_cancelled { Outcome::Cancelled } else { Outcome::Expired };
        assert_eq!(world.ended(id, 0).map(|row| row.outcome), Some(outcome));
        assert_eq!(world.held(&p), 0);
    }
}

#[test]
fn what_did_not_leave_before_its_lease_lapsed_is_not_in_doubt() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    let id = world.emit(run(&s, START_US, 1), &s);
    let first = world.take_sends().remove(0);
    let under_way = world.shard.under_way(i64::MAX, world.now);
    world.shard = Shard::new(0, world.options.clone(), world.store.state(), 9, world.now);
    world.shard.wait_for(under_way, world.now);
    world.shard.unsent(id, 0, first.attempt, world.now);
    world.settle();
    let second = world.take_sends().remove(0);
    assert_eq!(second.attempt, 2);
    world.answer(&second, refused());
    assert_eq!(world.held(&p), 0);
}

#[test]
fn a_note_of_former_times_changes_nothing() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let s = slow(ReleaseMode::Explicit, &p);
    let id = world.emit(run(&s, START_US, 1), &s);
    world.take_sends();
    let note = world.shard.under_way(60_000, world.now);
    // Nobody has read it: the next owner sends again, and then the note turns up.
    world.restart_after_s(1);
    let second = world.take_sends().remove(0);
    assert_eq!(second.attempt, 2);
    world.tell(Control::UnderWay { deliveries: note });
    world.answer(&second, Sent::Accepted);
    assert_eq!(world.shard.event_state(id, 0), Some(EventState::Held));
}

#[test]
fn pauses_are_carried_out_in_the_order_of_their_ids() {
    let p = policy(1, at_most(1));
    let mut world = World::with_policy(&p);
    let tell = |world: &mut World, id: u128, pause: Option<Pause>| {
        let message = Message { id: uuid::Uuid::from_u128(id), control: Control::PauseShard { pause } };
        world.store.inbox.insert(message.id, message.clone());
        world.shard.begin_read();
        world.shard.control(message, Default::default(), world.now);
        world.settle();
    };
    let paused = Pause { reason: "flood".into(), actor: "me".into(), since_us: 1 };
    tell(&mut world, 1_002, None);
    tell(&mut world, 1_001, Some(paused.clone()));
    assert_eq!(world.shard.status(world.now).pause, None, "the resume came after the pause");
    assert!(world.store.inbox.is_empty(), "and the late message has gone");
    // The order survives a restart, although nothing is paused.
    world.restart_after_s(1);
    tell(&mut world, 1_000, Some(paused.clone()));
    assert_eq!(world.shard.status(world.now).pause, None);
    tell(&mut world, 1_003, Some(paused.clone()));
    assert_eq!(world.shard.status(world.now).pause, Some(paused));
}
