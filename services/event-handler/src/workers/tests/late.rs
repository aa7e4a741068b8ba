//! What is late, taken back or waited for by nobody is not written to a worker, and its room is free again once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tollgate_clock::{Clock, ClockState, instant_now};
use tollgate_proto::v1;
use tollgate_proto::v1::give_event_response::Outcome as Told;
use tollgate_target::Leave;

use super::{desk, event, handed, room, worker};
use crate::workers::Desk;
use crate::workers::book::WorkerId;
use crate::workers::elsewhere::Lent;
use crate::workers::handing::{Handed, Limit, Outcome};
use crate::workers::poll::Poll;
use crate::workers::stream::{Passing, written};
use crate::workers::taken::Poller;

const MINUTE: Duration = Duration::from_secs(60);

fn in_a_minute() -> Limit {
    Limit::Lent(instant_now() + MINUTE, 0)
}

/// Whether the transport writes an event of a stream now.
fn is_written(desk: &Desk, id: WorkerId, handed: Box<Handed>) -> bool {
    written(Passing::Event(desk.clone(), id, handed)).into_inner().is_some()
}

/// Begins to give an event to the one worker that there is: the wait for what becomes of it, and what its stream is handed.
async fn given(
    desk: &Desk,
    events: &mut UnboundedReceiver<Box<Handed>>,
    limit: Limit,
) -> (JoinHandle<Outcome>, Box<Handed>) {
    let (desk, id) = (desk.clone(), room(desk));
    let giving = tokio::spawn(async move { desk.give_here(id, event(1), limit).await });
    (giving, events.recv().await.unwrap())
}

/// Room of workers here that another process has taken.
async fn lent(desk: &Desk, want: u32) -> Vec<u64> {
    let asked = v1::TakeRoomRequest {
        process: "other".to_owned(),
        namespace: "team".to_owned(),
        queue: "render".to_owned(),
        requires: Vec::new(),
        want,
        wait_ms: 0,
        pool: 1_u128.to_be_bytes().to_vec(),
    };
    desk.lend(asked).await.unwrap().rooms
}

/// Waits until there is room.
async fn becomes_free(desk: &Desk) {
    let is_free = async {
        while desk.counts().1 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(MINUTE, is_free).await.unwrap();
}

fn is_not_sent(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::NotSent(_))
}

/// The task of a stream may run before the timer of whoever waits, where the process stood still.
#[tokio::test]
async fn a_stream_writes_no_event_after_its_deadline() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 1).unwrap();
    for limit in [Limit::Lent(instant_now(), 0), Limit::Own(Leave::always(), Duration::ZERO)] {
        let (late, answer) = handed(1, limit);
        assert!(!is_written(&desk, id, late));
        assert!(is_not_sent(&answer.await.unwrap()));
        assert_eq!(desk.counts().2, 0, "the worker does not have it");
    }
    let (early, _answer) = handed(1, in_a_minute());
    assert!(is_written(&desk, id, early));
    assert_eq!(desk.counts().2, 1);
}

#[tokio::test]
async fn a_stream_writes_no_event_that_was_taken_back_or_whose_shard_may_be_lost() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, mut events) = desk.join(worker("team", &[]), 2).unwrap();
    let _used = room(&desk);
    let leave = Leave::always();
    let (giving, passed) = given(&desk, &mut events, Limit::Own(leave.clone(), MINUTE)).await;
    assert_eq!(desk.counts().1, 0);
    leave.revoke();
    assert!(!is_written(&desk, id, passed));
    assert!(is_not_sent(&giving.await.unwrap()));
    assert_eq!(desk.counts().1, 1, "its room is free, and no other");
    let is_trusted = Arc::new(AtomicBool::new(true));
    let seen = is_trusted.clone();
    let leave = Leave::now(move || seen.load(Ordering::Relaxed));
    let (giving, passed) = given(&desk, &mut events, Limit::Own(leave, MINUTE)).await;
    is_trusted.store(false, Ordering::Relaxed);
    assert!(!is_written(&desk, id, passed));
    assert!(is_not_sent(&giving.await.unwrap()));
    assert_eq!(desk.counts().1, 1);
}

#[tokio::test]
async fn a_poll_is_not_answered_with_what_is_late_or_was_taken_back() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (leaving, leave) = (CancellationToken::new(), Leave::always());
    let by = Poller { name: "w".to_owned(), labels: worker("team", &[]).labels };
    let mut poll = Poll::begin(&desk, &leaving, worker("team", &[]), 3).unwrap();
    let limits = [Limit::Own(leave.clone(), MINUTE), Limit::Lent(instant_now(), 0), in_a_minute()];
    let mut answers = Vec::new();
    for limit in limits {
        let (passed, answer) = handed(1, limit);
        desk.state().sessions.values().next().unwrap().to.send(passed).unwrap();
        answers.push(answer);
    }
    poll.wait(instant_now() + MINUTE).await;
    leave.revoke();
    assert_eq!(poll.end(&by), [event(1)]);
    let mut outcomes = Vec::new();
    for answer in answers {
        outcomes.push(answer.await.unwrap());
    }
    assert!(is_not_sent(&outcomes[0]) && is_not_sent(&outcomes[1]), "{outcomes:?}");
    assert_eq!(outcomes[2], Outcome::Accepted(Some(by)));
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_written_and_its_room_is_free_once() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, mut events) = desk.join(worker("team", &[]), 3).unwrap();
    let _used = [room(&desk), room(&desk)];
    let (giving, passed) = given(&desk, &mut events, in_a_minute()).await;
    assert_eq!(desk.counts().1, 0);
    giving.abort();
    assert!(giving.await.unwrap_err().is_cancelled());
    assert_eq!(desk.counts().1, 1);
    assert!(!is_written(&desk, id, passed));
    assert_eq!(desk.counts().1, 1);
    // Whoever was to write it has withdrawn it, and nobody has heard so.
    let leave = Leave::always();
    let (giving, passed) = given(&desk, &mut events, Limit::Own(leave.clone(), MINUTE)).await;
    leave.revoke();
    assert!(!is_written(&desk, id, passed));
    giving.abort();
    assert!(giving.await.unwrap_err().is_cancelled());
    assert_eq!(desk.counts(), (1, 1, 0));
}

#[tokio::test]
async fn what_was_written_and_nobody_waits_for_has_its_room_until_its_time_is_over() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, mut events) = desk.join(worker("team", &[]), 2).unwrap();
    let _used = room(&desk);
    let limit = Limit::Lent(instant_now() + Duration::from_secs(1), 0);
    let (giving, passed) = given(&desk, &mut events, limit).await;
    assert!(is_written(&desk, id, passed));
    giving.abort();
    assert!(giving.await.unwrap_err().is_cancelled());
    assert_eq!(desk.counts(), (1, 0, 1));
    becomes_free(&desk).await;
    desk.done(id, "00-x", 1);
    assert_eq!(desk.counts(), (1, 1, 0), "not a second time");
}

/// Its owner may have heard that it is unclear before its time here was over, and give the next attempt to the same worker.
#[tokio::test]
async fn what_was_written_and_given_once_more_has_its_room_until_its_time_is_over() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, mut events) = desk.join(worker("team", &[]), 2).unwrap();
    for is_broken_off in [false, true] {
        let limit = Limit::Lent(instant_now() + Duration::from_secs(1), 0);
        let (giving, passed) = given(&desk, &mut events, limit).await;
        assert!(is_written(&desk, id, passed));
        if is_broken_off {
            giving.abort();
        }
        assert_eq!(room(&desk), id);
        let (next, _answer) = handed(2, in_a_minute());
        assert!(is_written(&desk, id, next));
        match giving.await {
            Ok(outcome) => assert!(matches!(outcome, Outcome::Unclear(_)), "{outcome:?}"),
            Err(error) => assert!(error.is_cancelled()),
        }
        assert_eq!(desk.counts(), (1, 0, 1));
        becomes_free(&desk).await;
        assert_eq!(desk.counts(), (1, 1, 1));
        desk.done(id, "00-x", 2);
        assert_eq!(desk.counts(), (1, 2, 0));
    }
}

#[tokio::test]
async fn what_comes_late_for_lent_room_is_not_sent_and_its_room_is_free() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, mut events) = desk.join(worker("team", &[]), 2).unwrap();
    let rooms = lent(&desk, 2).await;
    assert_eq!(desk.counts().1, 0);
    tokio::time::sleep(Duration::from_millis(30)).await;
    let (event, deadline_ms) = (Some(event(1)), 60_000);
    let late = v1::GiveEventRequest { room: rooms[0], event, deadline_ms, since_lent_ms: Some(20) };
    // The second time there is no such room.
    for _ in 0..2 {
        assert_eq!(desk.take_in(late.clone()).await.outcome(), Told::NotSent);
        assert!(events.try_recv().is_err(), "nothing is on its way to the worker");
        assert_eq!(desk.counts().1, 1);
    }
    // A process of an earlier version says only how long the worker has.
    let earlier = v1::GiveEventRequest { room: rooms[1], since_lent_ms: None, ..late };
    let lender = desk.clone();
    let giving = tokio::spawn(async move { lender.take_in(earlier).await });
    assert!(is_written(&desk, id, events.recv().await.unwrap()));
    desk.accept(id, "00-x", 1).unwrap();
    assert_eq!(giving.await.unwrap().outcome(), Told::Accepted);
    assert_eq!(desk.counts(), (1, 1, 1));
}

/// Its clock stood still with it: by that, there is time left.
#[tokio::test]
async fn what_room_was_lent_for_before_the_machine_stood_still_is_not_sent() {
    let clock = Clock::manual(0);
    let (desk, _folder) = desk(&clock).await;
    let (id, mut events) = desk.join(worker("team", &[]), 2).unwrap();
    let request = |room| v1::GiveEventRequest {
        room,
        event: Some(event(1)),
        deadline_ms: 60_000,
        since_lent_ms: Some(60_000),
    };
    let give = |room| {
        let (lender, request) = (desk.clone(), request(room));
        tokio::spawn(async move { lender.take_in(request).await })
    };
    let rooms = lent(&desk, 2).await;
    let giving = give(rooms[0]);
    let passed = events.recv().await.unwrap();
    clock.hold(0, 0, ClockState::Apart);
    assert!(!is_written(&desk, id, passed));
    assert_eq!(giving.await.unwrap().outcome(), Told::NotSent);
    assert_eq!(give(rooms[1]).await.unwrap().outcome(), Told::NotSent, "it came afterwards");
    assert!(events.try_recv().is_err(), "nothing is on its way to the worker");
    assert_eq!(desk.counts(), (1, 2, 0));
    // What is lent from now on is as good as ever.
    let giving = give(lent(&desk, 1).await[0]);
    assert!(is_written(&desk, id, events.recv().await.unwrap()));
    desk.accept(id, "00-x", 1).unwrap();
    assert_eq!(giving.await.unwrap().outcome(), Told::Accepted);
}

#[test]
fn another_process_is_told_how_long_an_event_may_take_from_when_its_room_came() {
    let came = instant_now();
    let lent = Lent { process: "other".to_owned(), room: 7, came };
    let (second, until) = (Duration::from_secs(1), came + Duration::from_secs(4));
    let request = lent.request(event(1), (until, second), came + Duration::from_millis(3_600));
    assert_eq!((request.room, request.deadline_ms, request.since_lent_ms), (7, 400, Some(4_000)));
}
