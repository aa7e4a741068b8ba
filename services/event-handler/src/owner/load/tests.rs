//! What a read takes in, and in which order.
#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::model::{RunKind, RunState};

use super::*;

fn run(launch_us: i64) -> Run {
    let schedule_uid = Uuid::from_u128(7);
    Run {
        shard: 5,
        id: RunId::derive(schedule_uid, launch_us),
        schedule_uid,
        generation: 1,
        namespace: "n".to_owned(),
        schedule_id: "s".to_owned(),
        policy_uid: None,
        launch_us,
        events: 1,
        priority: 5,
        kind: RunKind::Backfill,
        state: RunState::Emitted,
        emitted_us: launch_us,
        ..Run::default()
    }
}

#[tokio::test]
async fn what_launches_now_is_read_beside_a_backlog_of_the_past() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("t.db").display());
    let store = tollgate_store::open(&url, 1).await.unwrap();
    let (now_us, backlog) = (1_000 * SECOND_US, 5_000);
    let mut runs: Vec<Run> = (1..=backlog).map(run).collect();
    runs.push(run(now_us - 1));
    store.emit(&runs, &[]).await.unwrap();
    let part =
        Part { runs_max: 32, messages_max: 9, recent_us: now_us - RECENT_US..now_us + 300 * SECOND_US };
    let news = read_news(&*store, 5, part.clone(), &[], (None, &[])).await.unwrap();
    let read: Vec<i64> = news.runs.iter().map(|run| run.launch_us).collect();
    assert_eq!(read, (1..=32).chain([now_us - 1]).collect::<Vec<_>>());
    assert!(news.full && news.releases_whole, "what is sent again waits for releases alone");
    // Nine messages fill the page: there may be releases among those that follow the first kind, and none after the other.
    let mut messages: Vec<Message> =
        (0..9).map(|number| Message::first(number, Control::PauseShard { pause: None })).collect();
    store.post(5, &messages).await.unwrap();
    let news = read_news(&*store, 5, part.clone(), &[], (None, &[])).await.unwrap();
    assert!(!news.releases_whole && news.messages.len() == 9);
    let except: Vec<Uuid> = messages.iter().map(|message| message.id).collect();
    messages.iter_mut().for_each(|message| message.id = Uuid::from_u128(message.id.as_u128() | 0xFF << 120));
    store.post(5, &messages).await.unwrap();
    let news = read_news(&*store, 5, part.clone(), &except, (None, &[])).await.unwrap();
    assert!(news.releases_whole && news.full && news.messages.len() == 9);
    let news = read_news(&*store, 5, Part { runs_max: 10_000, ..part }, &[], (None, &[])).await.unwrap();
    assert_eq!((news.runs.len(), news.releases_whole), (runs.len(), false));
}

/// A change of a schedule with so many launches.
fn change(namespace: &str, schedule: u128, generation: i64, launches: i64) -> Message {
    let schedule = ShardSchedule {
        uid: Uuid::from_u128(schedule),
        generation,
        changed_us: 0,
        until_us: 1_000_000,
        launches_us: (1..=launches).collect(),
        events: 1,
        priority: 5,
        pause: None,
        deleted: false,
        cursor: None,
        earlier: Vec::new(),
        home: None,
    };
    let control = Control::ScheduleChanged {
        schedule,
        namespace: namespace.to_owned(),
        schedule_id: "s".to_owned(),
        policy_uid: None,
        onward: Vec::new(),
    };
    Message { id: Uuid::new_v4(), control }
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
