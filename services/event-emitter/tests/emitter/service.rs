//! What the emitter says about itself.

use futures::FutureExt as _;
use tollgate_core::model::{MINUTE_US, SECOND_US};
use tollgate_event_emitter::Options;
use tollgate_proto::v1::event_emitter_service_server::EventEmitterService as _;
use tollgate_proto::v1::{GetEmitterStatusRequest, ListWindowsRequest, Window, WindowState};
use tollgate_store::StoreError;
use tonic::{Code, Request};

use crate::world::{Hooked, Moment, World, cron, every, schedule, utc};

const NOW: &str = "2025-06-11T08:00:30Z";

async fn world() -> World {
    let world = World::new(utc(NOW)).await;
    let cron = |number, zone| schedule(number, zone, vec![cron("0-59 * * * *")]);
    world.put(&[cron(1, "Asia/Tokyo"), cron(2, "Europe/Paris"), schedule(3, "UTC", vec![every(60)])]).await;
    world
}

#[tokio::test]
async fn the_status_of_an_emitter_that_is_ahead() {
    let world = world().await;
    let emitter = world.emitter(Options::default());
    emitter.round().await.unwrap();
    let answer = emitter.service().get_emitter_status(Request::new(GetEmitterStatusRequest {})).await;
    let status = answer.unwrap().into_inner();
    let until = utc("2025-06-11T08:06:00Z") / SECOND_US;
    assert_eq!(status.frontier_time.unwrap().seconds, until);
    assert_eq!(status.opened_until_time.unwrap().seconds, until);
    assert_eq!(status.lag.unwrap(), prost_types::Duration::default());
    assert_eq!(status.time_zones, ["Asia/Tokyo", "Europe/Paris"]);
    assert_eq!((status.window_length.unwrap().seconds, status.emit_ahead.unwrap().seconds), (60, 300));
    assert_eq!((status.open_windows_count, status.open_windows.len()), (0, 0));
}

#[tokio::test]
async fn the_status_names_open_windows_with_their_tasks() {
    let world = world().await;
    let hooked = Hooked::new(&world.store, |called, at| {
        let fails = called == "scan" && at == Moment::Before;
        async move { if fails { Err(StoreError::Unreachable("test".to_owned())) } else { Ok(()) } }.boxed()
    });
    let emitter = world.hooked(&hooked, Options::default());
    emitter.round().await.unwrap_err();
    world.clock.advance_us(2 * MINUTE_US);
    let answer = emitter.service().get_emitter_status(Request::new(GetEmitterStatusRequest {})).await;
    let status = answer.unwrap().into_inner();
    assert_eq!(status.frontier_time, None);
    assert_eq!(status.lag.unwrap().seconds, 150);
    assert_eq!((status.open_windows_count, status.open_windows.len()), (6, 6));
    let first = &status.open_windows[0];
    assert_eq!((first.state(), first.tasks_count, first.tasks_done_count), (WindowState::Open, 3, 0));
}

#[tokio::test]
async fn windows_are_listed_in_pages_latest_first() {
    let world = world().await;
    let emitter = world.emitter(Options::default());
    world.steady(&emitter, MINUTE_US, utc(NOW) + 20 * MINUTE_US).await;
    let service = emitter.service();
    let mut all: Vec<Window> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListWindowsRequest { page_size: 4, page_token };
        let page = service.list_windows(Request::new(request)).await.unwrap().into_inner();
        assert!(page.windows.len() <= 4);
        all.extend(page.windows);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(all.len(), 26);
    assert!(all.windows(2).all(|pair| pair[1].end_time == pair[0].start_time));
    for window in &all {
        assert_eq!(
            (window.state(), window.tasks_count, window.tasks_done_count),
            (WindowState::Complete, 3, 3)
        );
        assert_eq!(window.runs_count, 3);
    }
    let refused = service
        .list_windows(Request::new(ListWindowsRequest { page_size: -1, page_token: String::new() }))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
}
