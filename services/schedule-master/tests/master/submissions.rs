//! Items that are submitted.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use prost_types::Timestamp;
use serde_json::json;
use tollgate_core::items::ReadPage;
use tollgate_core::model::{Run, RunKind};
use tollgate_proto::v1::submit_items_request::Part;
use tollgate_proto::v1::{self, SubmissionHeader, SubmissionState, SubmitItemsRequest};
use tollgate_schedule_master::Options;
use tollgate_secrets::{Keys, generate_line, is_sealed, item_field};
use tonic::{Code, Status};

use crate::world::{NOW_S, World, as_alice, fields, name};

fn header(request_id: &str) -> SubmissionHeader {
    SubmissionHeader { name: name("a"), request_id: request_id.to_owned(), ..SubmissionHeader::default() }
}

fn item(data: impl Into<String>) -> v1::Item {
    v1::Item { data: data.into(), ..v1::Item::default() }
}

/// Items that fill several pages.
fn many(count: usize) -> Vec<v1::Item> {
    let of = |n: usize| v1::Item {
        data: format!(r#"{{"n": {n}, "x": "{}"}}"#, "y".repeat(900)),
        key: format!("k{}", n % 3),
        units: 0,
    };
    (0..count).map(of).collect()
}

fn parts(header: SubmissionHeader, items: &[v1::Item]) -> Vec<SubmitItemsRequest> {
    let part = |part| SubmitItemsRequest { part: Some(part) };
    let mut parts = vec![part(Part::Header(header))];
    parts.extend(items.chunks(100).map(|items| part(Part::Items(v1::Items { items: items.to_vec() }))));
    parts
}

async fn send(world: &mut World, parts: Vec<SubmitItemsRequest>) -> Result<v1::Submission, Status> {
    let request = as_alice(tokio_stream::iter(parts));
    Ok(world.client.submit_items(request).await?.into_inner())
}

async fn submit(
    world: &mut World,
    header: SubmissionHeader,
    items: &[v1::Item],
) -> Result<v1::Submission, Status> {
    send(world, parts(header, items)).await
}

/// The beginning of a submission whose stream breaks: the service has what fills whole megabytes.
async fn broken(world: &mut World, header: SubmissionHeader, items: &[v1::Item]) -> v1::Submission {
    let id = header.request_id.clone();
    let mut parts = parts(header, items);
    parts.push(SubmitItemsRequest::default());
    let error = send(world, parts).await.unwrap_err();
    assert_eq!(fields(&error), ["part"], "{error}");
    standing(world, &id).await.unwrap()
}

async fn standing(world: &mut World, request_id: &str) -> Result<v1::Submission, Status> {
    let name = format!("{}/submissions/{request_id}", name("a"));
    Ok(world.client.get_submission(v1::GetSubmissionRequest { name }).await?.into_inner())
}

async fn runs(world: &World) -> Vec<Run> {
    world.store.list_runs("default", &Default::default(), None, 1_000).await.unwrap()
}

/// All items of a run, as they are stored.
async fn stored(world: &World, run: &Run) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while all.len() < run.events as usize {
        let index = u32::try_from(all.len()).unwrap();
        let page =
            ReadPage::of(world.store.item_page(run.shard, run.id, index).await.unwrap().unwrap()).unwrap();
        assert_eq!(page.range().start, index);
        let items = page.range().map(|index| page.item(index).unwrap());
        all.extend(items.map(|item| (item.key.to_owned(), item.data.to_owned())));
    }
    all
}

#[tokio::test]
async fn items_become_one_run() {
    let mut world = World::new().await;
    world.create("a", json!({"events": 3, "priority": 2})).await.unwrap();
    let items = [
        v1::Item {
            data: "{\n \"tenant\": \"acme\",\t\"n\": 1.10 }".to_owned(),
            key: "acme".to_owned(),
            units: 3,
        },
        item("7"),
    ];
    let launch_time = Some(Timestamp { seconds: NOW_S + 3_600, nanos: 0 });
    let asked = SubmissionHeader { launch_time, priority: Some(9), ..header("nightly:1") };
    let made = submit(&mut world, asked, &items).await.unwrap();
    assert_eq!((made.state(), made.received_count), (SubmissionState::Complete, 2));
    assert_eq!(made.name, format!("{}/submissions/nightly:1", name("a")));
    let run = made.run.unwrap();
    assert_eq!((run.events, run.priority, run.kind()), (2, 9, v1::RunKind::Submitted));
    assert_eq!(run.launch_time, launch_time);
    let [stored_run] = &runs(&world).await[..] else { panic!("one run") };
    assert_eq!((stored_run.events, stored_run.kind), (2, RunKind::Submitted));
    let line = r#"{"tenant":"acme","n":1.10}"#;
    let expected = [("acme", line), ("", "7")].map(|(key, data)| (key.to_owned(), data.to_owned()));
    assert_eq!(stored(&world, stored_run).await, expected);
    assert_eq!(*world.woken.lock().unwrap(), [stored_run.shard]);
    let audit = world.audit("").await;
    assert_eq!((audit[0].action.as_str(), audit[0].actor.as_str()), ("submit", "alice"));
    assert_eq!(standing(&mut world, "nightly:1").await.unwrap().run.unwrap().name, run.name);
    // Without a request id or a launch time each submission is one of its own.
    let first = submit(&mut world, header(""), &items).await.unwrap();
    let second = submit(&mut world, header(""), &items).await.unwrap();
    assert_ne!(first.run.unwrap().name, second.run.unwrap().name);
    assert_eq!(runs(&world).await.len(), 3);
}

#[tokio::test]
async fn the_same_submission_makes_one_run() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let items = many(500);
    let made = submit(&mut world, header("r"), &items).await.unwrap();
    assert_eq!(submit(&mut world, header("r"), &items).await.unwrap(), made);
    let resumed = SubmissionHeader { resume_from: 500, ..header("r") };
    assert_eq!(submit(&mut world, resumed, &[]).await.unwrap(), made);
    let mut changed = items.clone();
    changed[400].data = "8".to_owned();
    let payload = Some(prost_types::Value { kind: Some(prost_types::value::Kind::BoolValue(true)) });
    let launch_time = Some(Timestamp { seconds: NOW_S + 60, nanos: 0 });
    for (asked, items, difference) in [
        (header("r"), &items[..499], "it had 500 items, and has 499"),
        (header("r"), &many(501)[..], "items"),
        (header("r"), &changed[..], "are not the same"),
        (
            SubmissionHeader { priority: Some(3), ..header("r") },
            &items[..],
            "priority: it was none, and is 3",
        ),
        (SubmissionHeader { payload, ..header("r") }, &items[..], "payload: it was another one"),
        (
            SubmissionHeader { launch_time, ..header("r") },
            &items[..],
            "launch_time: it was none, and is 2026-",
        ),
    ] {
        let error = submit(&mut world, asked, items).await.unwrap_err();
        assert_eq!(error.code(), Code::AlreadyExists, "{error}");
        assert!(error.message().contains(difference), "{error}");
    }
    assert_eq!(runs(&world).await.len(), 1);
    // One launch time has one run.
    let at = SubmissionHeader { launch_time, ..header("s") };
    submit(&mut world, at.clone(), &items[..1]).await.unwrap();
    let other = SubmissionHeader { request_id: "t".to_owned(), ..at };
    let error = submit(&mut world, other, &items[..1]).await.unwrap_err();
    assert!(error.code() == Code::AlreadyExists && error.message().contains("launch_time"), "{error}");
}

#[tokio::test]
async fn what_is_held_makes_its_run_when_it_is_confirmed() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let items = many(500);
    let hold = SubmissionHeader { hold: true, ..header("r") };
    for _ in 0..2 {
        let held = submit(&mut world, hold.clone(), &items).await.unwrap();
        assert_eq!((held.state(), held.received_count, held.run), (SubmissionState::Open, 500, None));
        assert!(runs(&world).await.is_empty(), "nobody has confirmed it");
    }
    let few = SubmissionHeader { resume_from: 499, ..header("r") };
    assert_eq!(fields(&submit(&mut world, few, &[]).await.unwrap_err()), ["header.resume_from"]);
    let confirmed = SubmissionHeader { resume_from: 500, ..header("r") };
    let made = submit(&mut world, confirmed.clone(), &[]).await.unwrap();
    assert_eq!((made.state(), made.run.as_ref().unwrap().events), (SubmissionState::Complete, 500));
    for again in [confirmed, header("r"), hold] {
        let items = if again.resume_from > 0 { &[] } else { &items[..] };
        assert_eq!(submit(&mut world, again, items).await.unwrap(), made);
    }
    let [run] = &runs(&world).await[..] else { panic!("one run") };
    assert_eq!(stored(&world, run).await.len(), 500);
}

#[tokio::test]
async fn a_broken_stream_is_gone_on_with() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let items = many(3_000);
    let open = broken(&mut world, header("r"), &items[..2_500]).await;
    assert_eq!((open.state(), open.run), (SubmissionState::Open, None));
    assert!((1_000..2_500).contains(&open.received_count), "{}", open.received_count);
    assert!(runs(&world).await.is_empty(), "nothing is due before the last item is durable");
    let wrong = SubmissionHeader { resume_from: open.received_count - 1, ..header("r") };
    assert_eq!(fields(&submit(&mut world, wrong, &items).await.unwrap_err()), ["header.resume_from"]);
    let unknown = SubmissionHeader { resume_from: 7, ..header("s") };
    assert_eq!(submit(&mut world, unknown, &items).await.unwrap_err().code(), Code::FailedPrecondition);
    // From its beginning, with other items, it is another submission; with the same ones it goes on, too.
    let mut changed = items.clone();
    changed[3].data = "8".to_owned();
    let error = submit(&mut world, header("r"), &changed).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists, "{error}");
    let further = broken(&mut world, header("r"), &items[..2_900]).await;
    assert!(further.received_count > open.received_count);
    let rest = SubmissionHeader { resume_from: further.received_count, ..header("r") };
    let made = submit(&mut world, rest, &items[further.received_count as usize..]).await.unwrap();
    assert_eq!((made.state(), made.received_count), (SubmissionState::Complete, 3_000));
    let [run] = &runs(&world).await[..] else { panic!("one run") };
    let kept = stored(&world, run).await;
    assert_eq!(kept.len(), 3_000);
    assert!(kept.iter().zip(&items).all(|((key, data), item)| *key == item.key && *data == item.data));
    assert_eq!(submit(&mut world, header("r"), &items).await.unwrap(), made, "whole, it is the same");
}

#[tokio::test]
async fn what_is_wrong_is_named_and_makes_nothing() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let good = item("1");
    let key = |key: &str| v1::Item { data: "1".to_owned(), key: key.to_owned(), units: 0 };
    let large = format!("\"{}\"", "x".repeat(256 * 1024));
    for (items, field, told) in [
        (vec![], "items", "1 to 10,000,000 items"),
        (vec![good.clone(), item("{\"a\":")], "items[1].data", "JSON text"),
        (vec![item("1 2")], "items[0].data", "JSON text"),
        (vec![item("")], "items[0].data", "JSON text"),
        (vec![item(large)], "items[0].data", "262144 bytes"),
        (vec![key(&"k".repeat(129))], "items[0].key", "128 bytes"),
        (vec![key("a\tb")], "items[0].key", "control characters"),
        (vec![key("enc:v1:x")], "items[0].key", "enc:v1:"),
    ] {
        let error = submit(&mut world, header("r"), &items).await.unwrap_err();
        assert_eq!(
            (error.code(), fields(&error)),
            (Code::InvalidArgument, vec![field.to_owned()]),
            "{error}"
        );
        assert!(error.message().contains(told), "{error}");
    }
    let far = Some(Timestamp { seconds: NOW_S + 400 * 86_400, nanos: 0 });
    let past = Some(Timestamp { seconds: NOW_S - 2 * 86_400, nanos: 0 });
    for (asked, field) in [
        (header("a b"), "header.request_id"),
        (header(&"x".repeat(129)), "header.request_id"),
        (SubmissionHeader { launch_time: far, ..header("") }, "header.launch_time"),
        (SubmissionHeader { launch_time: past, ..header("") }, "header.launch_time"),
        (SubmissionHeader { priority: Some(10), ..header("") }, "header.priority"),
        (SubmissionHeader { name: "a".to_owned(), ..header("") }, "header.name"),
    ] {
        let error = submit(&mut world, asked, std::slice::from_ref(&good)).await.unwrap_err();
        assert_eq!(
            (error.code(), fields(&error)),
            (Code::InvalidArgument, vec![field.to_owned()]),
            "{error}"
        );
    }
    let items = SubmitItemsRequest { part: Some(Part::Items(v1::Items { items: vec![good.clone()] })) };
    assert_eq!(fields(&send(&mut world, vec![items]).await.unwrap_err()), ["header"]);
    assert_eq!(fields(&send(&mut world, vec![]).await.unwrap_err()), ["header"]);
    let two = [parts(header("r"), &[]), parts(header("r"), &[])].concat();
    assert_eq!(fields(&send(&mut world, two).await.unwrap_err()), ["header"]);
    let absent = SubmissionHeader { name: name("b"), ..header("") };
    assert_eq!(
        submit(&mut world, absent, std::slice::from_ref(&good)).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(standing(&mut world, "nobody").await.unwrap_err().code(), Code::NotFound);
    assert_eq!(fields(&standing(&mut world, "").await.unwrap_err()), ["name"]);
    world.pause("a", "bad data").await;
    let paused = submit(&mut world, header(""), &[good]).await.unwrap_err();
    assert_eq!(paused.code(), Code::FailedPrecondition);
    assert!(runs(&world).await.is_empty());
}

#[tokio::test]
async fn items_are_sealed_where_secrets_are() {
    let (one, two) = (generate_line("one").unwrap(), generate_line("two").unwrap());
    let keys = Arc::new(Keys::parse(&one).unwrap());
    let mut world = World::with(Options { keys: keys.clone(), ..Options::default() }).await;
    world.create("a", json!({})).await.unwrap();
    let payload =
        Some(prost_types::Value { kind: Some(prost_types::value::Kind::StringValue("hidden".into())) });
    let asked = SubmissionHeader { payload, ..header("r") };
    submit(&mut world, asked.clone(), &many(300)).await.unwrap();
    let run = runs(&world).await.remove(0);
    let of_run = world.store.item_run(run.shard, run.id).await.unwrap().unwrap();
    let page = world.store.item_page(run.shard, run.id, 299).await.unwrap().unwrap();
    assert!(page.first_index > 0 && is_sealed(&page.body) && is_sealed(&of_run.payload));
    let field = item_field(run.id.0, Some(page.first_index));
    let clear = keys.open(run.schedule_uid, &field, &page.body).unwrap();
    assert!(clear.starts_with('k') && clear.ends_with("\"}\n"));
    let elsewhere = item_field(run.id.0, Some(0));
    assert!(keys.open(run.schedule_uid, &elsewhere, &page.body).is_err(), "a page does not move");
    assert_eq!(submit(&mut world, asked, &many(300)).await.unwrap().received_count, 300, "compared in clear");
    let new = Keys::parse(&format!("{two},{one}")).unwrap();
    let done = tollgate_schedule_master::reseal(&*world.store, &new).await.unwrap();
    assert!(done.failed.is_empty() && done.resealed >= 4, "{done:?}");
    let alone = Keys::parse(&two).unwrap();
    let page = world.store.item_page(run.shard, run.id, 299).await.unwrap().unwrap();
    assert_eq!(alone.open(run.schedule_uid, &field, &page.body).unwrap(), clear);
}

#[tokio::test]
async fn one_namespace_leaves_streams_to_another() {
    let mut world = World::new().await;
    world.create("a", json!({})).await.unwrap();
    let mut silent = Vec::new();
    for n in 0..4 {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        sender.send(parts(header(&format!("s{n}")), &[]).remove(0)).await.unwrap();
        let mut client = world.client.clone();
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        silent.push((sender, tokio::spawn(async move { client.submit_items(stream).await })));
    }
    // In whatever order they come.
    for n in 0..4 {
        while standing(&mut world, &format!("s{n}")).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
    let (one, soon) = (many(1), std::time::Duration::from_millis(300));
    let fifth = tokio::time::timeout(soon, submit(&mut world, header("fifth"), &one));
    assert!(fifth.await.is_err(), "it waits for its turn");
    drop(silent.pop());
    submit(&mut world, header("fifth"), &one).await.unwrap();
}
