//! The list of workers for people: what processes know of one worker is one line.

use std::collections::BTreeMap;

use tollgate_proto::v1;

use super::taken::NAMED_MAX;

/// One line for each worker: of one that polls, what processes know of its polls and events, if it says who it is. By queue and
/// name.
pub(super) fn together(workers: Vec<v1::Worker>) -> Vec<v1::Worker> {
    let mut of_polls: BTreeMap<_, v1::Worker> = BTreeMap::new();
    let mut all = Vec::new();
    for worker in workers {
        // Polls without a name may be anybody's.
        if !worker.polls || (worker.worker.is_empty() && !worker.id.is_empty()) {
            all.push(worker);
            continue;
        }
        let who = (worker.queue.clone(), worker.worker.clone(), worker.labels.clone());
        match of_polls.get_mut(&who) {
            Some(known) => add(known, worker),
            None => drop(of_polls.insert(who, worker)),
        }
    }
    all.extend(of_polls.into_values());
    all.sort_by(|a, b| (&a.queue, &a.worker, &a.id).cmp(&(&b.queue, &b.worker, &b.id)));
    all
}

fn add(worker: &mut v1::Worker, other: v1::Worker) {
    let time = |time: &Option<prost_types::Timestamp>| time.map(|time| (time.seconds, time.nanos));
    if worker.id.is_empty() {
        worker.id = other.id;
    }
    worker.capacity = worker.capacity.saturating_add(other.capacity);
    worker.room = worker.room.saturating_add(other.room);
    worker.events_count = worker.events_count.saturating_add(other.events_count);
    worker.events.extend(other.events);
    worker.events.truncate(NAMED_MAX);
    worker.given_count = worker.given_count.saturating_add(other.given_count);
    if time(&other.connect_time) < time(&worker.connect_time) {
        worker.connect_time = other.connect_time;
    }
    if time(&other.last_sign_time) > time(&worker.last_sign_time) {
        worker.last_sign_time = other.last_sign_time;
    }
}

#[cfg(test)]
mod tests {
    use tollgate_proto::convert;

    use super::*;

    #[test]
    fn what_processes_know_of_one_that_polls_is_one_line_and_polls_without_a_name_are_not() {
        let worker = |id: &str, name: &str, room: u32, events: &[&str], sign_us: i64| v1::Worker {
            queue: "q".to_owned(),
            id: id.to_owned(),
            worker: name.to_owned(),
            polls: true,
            capacity: room + u32::try_from(events.len()).unwrap_or_default(),
            room,
            events_count: u32::try_from(events.len()).unwrap_or_default(),
            events: events.iter().map(|&event| event.to_owned()).collect(),
            last_sign_time: Some(convert::timestamp(sign_us)),
            ..v1::Worker::default()
        };
        let stream = v1::Worker { polls: false, ..worker("3", "b", 1, &[], 1) };
        let list = together(vec![
            worker("", "b", 0, &["e", "f"], 70),
            worker("8", "", 1, &[], 1),
            stream,
            worker("5", "b", 2, &[], 60),
            worker("", "", 0, &["g"], 1),
            worker("9", "", 1, &[], 1),
            worker("", "", 0, &["h"], 1),
        ]);
        let of = |worker: &v1::Worker| (worker.id.clone(), worker.worker.clone(), worker.events.join(" "));
        let text = |id: &str, name: &str, events: &str| (id.to_owned(), name.to_owned(), events.to_owned());
        let expected = [
            text("", "", "g h"),
            text("8", "", ""),
            text("9", "", ""),
            text("3", "b", ""),
            text("5", "b", "e f"),
        ];
        assert_eq!(list.iter().map(of).collect::<Vec<_>>(), expected);
        let polls = &list[4];
        assert_eq!((polls.capacity, polls.room, polls.events_count), (4, 2, 2));
        assert_eq!(polls.last_sign_time, Some(convert::timestamp(70)));
    }
}
