//! What a worker does not accept in time, and never says anything of, is not kept for good.

use std::time::Duration;

use tollgate_clock::{Clock, instant_now};

use super::{desk, handed, room, worker};
use crate::workers::Desk;
use crate::workers::book::WorkerId;
use crate::workers::handing::Limit;
use crate::workers::sessions::ROOMLESS_MAX;

/// The one worker that there is has room for this event, and is given it.
fn given(desk: &Desk, id: WorkerId, name: &str, attempt: u32) {
    assert_eq!(room(desk), id);
    let (mut passed, _answer) = handed(attempt, Limit::Lent(instant_now() + Duration::from_secs(60), 0));
    passed.event.name = name.to_owned();
    assert_eq!(desk.write(id, *passed).unwrap().name, name);
}

/// It is given so many more, each with a name of its own, and accepts none of them in time.
fn overdue(desk: &Desk, id: WorkerId, names: &str, count: usize) {
    for number in 0..count {
        let name = format!("{names}-{number}");
        given(desk, id, &name, 1);
        desk.overdue(id, &name, 1);
    }
}

#[tokio::test]
async fn events_that_a_worker_never_names_again_are_bounded_and_those_with_room_stay() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 3).unwrap();
    given(&desk, id, "accepted", 1);
    desk.accept(id, "accepted", 1).unwrap();
    given(&desk, id, "earlier", 1);
    desk.accept(id, "earlier", 1).unwrap();
    given(&desk, id, "earlier", 2);
    desk.overdue(id, "earlier", 2);
    overdue(&desk, id, "a", ROOMLESS_MAX);
    assert_eq!(desk.counts(), (1, 1, 2 + ROOMLESS_MAX as u64));
    let (field, _) = desk.accept(id, "never-given", 1).unwrap_err();
    assert_eq!(field, "accept.name", "nothing has been forgotten");
    overdue(&desk, id, "b", 3 * ROOMLESS_MAX);
    assert_eq!(desk.counts(), (1, 1, 2 + ROOMLESS_MAX as u64), "those that take room are still there");
    // It is late with both, whether they are known or not: nothing comes of it.
    let last = format!("b-{}", 3 * ROOMLESS_MAX - 1);
    for name in ["a-0", last.as_str()] {
        desk.accept(id, name, 1).unwrap();
    }
    desk.done(id, "a-0", 1);
    assert_eq!(desk.counts(), (1, 1, 2 + ROOMLESS_MAX as u64), "its room was there again before");
    let (field, _) = desk.accept(id, "accepted", 2).unwrap_err();
    assert_eq!(field, "accept.attempt");
    desk.done(id, "accepted", 1);
    assert_eq!(desk.counts().1, 2);
    // The room of the earlier attempt is there again, and its event one of the others.
    for _ in 0..2 {
        desk.done(id, "earlier", 1);
        assert_eq!(desk.counts(), (1, 3, ROOMLESS_MAX as u64));
    }
    overdue(&desk, id, "c", 2 * ROOMLESS_MAX);
    assert_eq!(desk.counts(), (1, 3, ROOMLESS_MAX as u64));
}

#[tokio::test]
async fn an_event_whose_attempts_were_all_overdue_is_forgotten_whichever_was_so_last() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    given(&desk, id, "again", 1);
    given(&desk, id, "again", 2);
    for attempt in [2, 1] {
        desk.overdue(id, "again", attempt);
    }
    overdue(&desk, id, "a", ROOMLESS_MAX);
    assert_eq!(desk.counts(), (1, 2, ROOMLESS_MAX as u64));
    desk.accept(id, "again", 3).unwrap();
}

#[tokio::test]
async fn an_event_that_is_given_again_is_forgotten_by_its_latest_attempt_alone() {
    let (desk, _folder) = desk(&Clock::manual(0)).await;
    let (id, _events) = desk.join(worker("team", &[]), 2).unwrap();
    given(&desk, id, "again", 1);
    desk.overdue(id, "again", 1);
    given(&desk, id, "again", 2);
    overdue(&desk, id, "a", 2 * ROOMLESS_MAX);
    assert_eq!(desk.counts(), (1, 1, 1 + ROOMLESS_MAX as u64));
    let (field, _) = desk.accept(id, "again", 3).unwrap_err();
    assert_eq!(field, "accept.attempt", "it is known");
    desk.accept(id, "again", 2).unwrap();
    desk.done(id, "again", 2);
    assert_eq!(desk.counts(), (1, 2, ROOMLESS_MAX as u64));
}
