//! Which messages a read takes in.

use super::*;
use crate::handle::change::ShardSchedule;

/// A change of a schedule with this number of launches.
fn change(namespace: &str, schedule: u128, generation: i64, launches: i64) -> Message {
    let row = ShardSchedule {
        uid: Uuid::from_u128(schedule),
        generation,
        changed_us: 0,
        until_us: 1_000_000,
        launches_us: (1..=launches).collect(),
        events: 1,
        priority: 5,
        ..ShardSchedule::default()
    };
    let control = Control::ScheduleChanged {
        schedule: row,
        namespace: namespace.to_owned(),
        schedule_id: "s".to_owned(),
        policy_uid: None,
        onward: Vec::new(),
    };
    Message { id: Uuid::from_u128(schedule << 8 | generation as u128), control }
}

#[test]
fn one_namespaces_changes_leave_room_for_the_first_of_another() {
    let many: Vec<Message> = (0..100).map(|number| change("many", number, 1, 300)).collect();
    let (one, second) = (change("one", 1_001, 1, 300), change("one", 1_002, 1, 300));
    // A pause makes no runs; but one generation comes after the other.
    let (pause, its_own) = (change("many", 2_001, 7, 0), change("many", 99, 2, 0));
    let page = [many.as_slice(), &[one.clone(), second, pause.clone(), its_own]].concat();
    let (taken, others_wait) = in_turn(page, 400);
    assert_eq!(taken, [many[0].clone(), one, pause]);
    assert!(others_wait);
    let (taken, others_wait) = in_turn(many[..2].to_vec(), 2 * (300 + MESSAGE_RUNS));
    assert_eq!((taken.len(), others_wait), (2, false));
}
