//! What a read takes in, and in which order.
#![expect(clippy::unwrap_used, reason = "tests")]

use tollgate_core::handle::control::Message;
use tollgate_core::model::{Run, RunId, RunKind, RunState};
use tollgate_core::own::{RECENT_US, ReadSize};

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
    let lease = store.lease(5).await.unwrap().unwrap();
    let part =
        ReadSize { runs_max: 32, messages_max: 9, recent_us: now_us - RECENT_US..now_us + 300 * SECOND_US };
    let ask =
        |except: &[Uuid]| Ask { part: part.clone(), except: except.to_vec(), again: None, specs: Vec::new() };
    let (news, _) = read_news((&*store, &lease, 0), &Gone::new(), ask(&[])).await.unwrap();
    let read: Vec<i64> = news.runs.iter().map(|run| run.launch_us).collect();
    assert_eq!(read, (1..=32).chain([now_us - 1]).collect::<Vec<_>>());
    assert!(news.full && news.releases_whole, "what is sent again waits for releases alone");
    // Nine messages fill the page: there may be releases among those that follow the first kind, and none after the other.
    let mut messages: Vec<Message> =
        (0..9).map(|number| Message::first(number, Control::PauseShard { pause: None })).collect();
    store.post(5, &messages).await.unwrap();
    let (news, _) = read_news((&*store, &lease, 0), &Gone::new(), ask(&[])).await.unwrap();
    assert!(!news.releases_whole && news.messages.len() == 9);
    let except: Vec<Uuid> = messages.iter().map(|message| message.id).collect();
    messages.iter_mut().for_each(|message| message.id = Uuid::from_u128(message.id.as_u128() | 0xFF << 120));
    store.post(5, &messages).await.unwrap();
    let (news, _) = read_news((&*store, &lease, 0), &Gone::new(), ask(&except)).await.unwrap();
    assert!(news.releases_whole && news.full && news.messages.len() == 9);
    let all = Ask { part: ReadSize { runs_max: 10_000, ..part.clone() }, ..ask(&[]) };
    let (news, _) = read_news((&*store, &lease, 0), &Gone::new(), all).await.unwrap();
    assert_eq!((news.runs.len(), news.releases_whole), (runs.len(), false));
}
