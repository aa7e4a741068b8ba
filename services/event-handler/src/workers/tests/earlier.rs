//! A worker that is given an event once more, and is done with an earlier attempt of it.

use std::time::Duration;

use tokio::sync::oneshot;
use tollgate_clock::{Clock, instant_now};

use super::{desk, handed, room, worker};
use crate::workers::Desk;
use crate::workers::book::WorkerId;
use crate::workers::handing::{Limit, Outcome};

const NAME: &str = "00-x";

/// The one worker that there is has room for it, and is given it.
fn given(desk: &Desk, id: WorkerId, attempt: u32) -> oneshot::Receiver<Outcome> {
    assert_eq!(room(desk), id);
    let until = instant_now() + Duration::from_secs(60);
    let (passed, answer) = handed(attempt, Limit::Lent(until, 0));
    assert_eq!(desk.write(id, *passed).unwrap().attempt, attempt);
    answer
}

#[tokio::test]
async fn a_release_of_an_earlier_attempt_leaves_the_later_one_to_be_accepted() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    let first = given(&desk, id, 1);
    desk.accept(id, NAME, 1).unwrap();
    assert_eq!(first.await.unwrap(), Outcome::Accepted(None));
    let mut second = given(&desk, id, 2);
    assert_eq!(desk.counts(), (1, 0, 1));
    // To say it twice gives no more room.
    for _ in 0..2 {
        desk.done(id, NAME, 1);
        assert_eq!(desk.counts(), (1, 1, 1));
        assert!(second.try_recv().is_err(), "it has not been accepted");
    }
    desk.accept(id, NAME, 2).unwrap();
    assert_eq!(second.await.unwrap(), Outcome::Accepted(None));
    desk.done(id, NAME, 2);
    assert_eq!(desk.counts(), (1, 2, 0));
}

#[tokio::test]
async fn a_release_of_an_earlier_attempt_gives_its_room_back_though_the_later_one_was_overdue() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    let _first = given(&desk, id, 1);
    desk.accept(id, NAME, 1).unwrap();
    let _second = given(&desk, id, 2);
    desk.overdue(id, NAME, 2);
    assert_eq!(desk.counts(), (1, 1, 1));
    desk.done(id, NAME, 1);
    assert_eq!(desk.counts(), (1, 2, 1));
    desk.done(id, NAME, 2);
    assert_eq!(desk.counts(), (1, 2, 0));
}

#[tokio::test]
async fn an_overdue_attempt_gives_its_room_back_though_a_later_one_was_given() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    for order in [[1, 2], [2, 1]] {
        let _first = given(&desk, id, 1);
        let _second = given(&desk, id, 2);
        assert_eq!(desk.counts(), (1, 0, 1));
        // Once only, and not a second time when the worker is done with it.
        for (free, attempt) in (1..).zip(order) {
            for _ in 0..2 {
                desk.overdue(id, NAME, attempt);
                assert_eq!(desk.counts(), (1, free, 1));
            }
        }
        for attempt in [1, 2] {
            desk.accept(id, NAME, attempt).unwrap();
            desk.done(id, NAME, attempt);
            assert_eq!(desk.counts().1, 2);
        }
        assert_eq!(desk.counts(), (1, 2, 0));
    }
}

#[tokio::test]
async fn an_attempt_that_is_accepted_after_a_later_one_was_given_keeps_its_room() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    let _first = given(&desk, id, 1);
    let mut second = given(&desk, id, 2);
    desk.accept(id, NAME, 1).unwrap();
    desk.overdue(id, NAME, 1);
    assert_eq!(desk.counts(), (1, 0, 1));
    assert!(second.try_recv().is_err(), "it has not been accepted");
    desk.done(id, NAME, 1);
    assert_eq!(desk.counts(), (1, 1, 1));
    desk.overdue(id, NAME, 2);
    assert_eq!(desk.counts(), (1, 2, 1));
}

#[tokio::test]
async fn a_release_without_an_attempt_or_of_the_latest_is_one_of_all_that_the_stream_was_given() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    for attempt in [0, 2] {
        let _first = given(&desk, id, 1);
        desk.accept(id, NAME, 1).unwrap();
        let second = given(&desk, id, 2);
        desk.done(id, NAME, attempt);
        assert_eq!(second.await.unwrap(), Outcome::Accepted(None));
        assert_eq!(desk.counts(), (1, 2, 0));
    }
}
