//! Releases of events whose owner has died, before another one has taken its shards over.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_harness::resources::{every, http, once, policy, soon};
use tollgate_harness::{Conduct, Consumer, Database, Kind, Releases, now_us};
use tollgate_proto::convert::timestamp;
use tollgate_proto::v1::{ReleaseOutcome, ReleaseStatus, ReleaseTokenRequest, ReleaseTokensRequest};
use tonic::Code;

use super::{arrived, cluster, id, longest_pause_ms, owner_of, report, status};
use crate::database::is_ready;

/// The event's shard has no owner: of two releases of one attempt the first counts, and whoever sends the second is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_releases_that_wait_for_an_owner_the_first_counts() {
    let database = Database::new(Kind::Postgres).await;
    let mut services = cluster(&database, 2, &["--lease-ttl", "15s"]).await;
    let consumer = Consumer::start(services[0].link(), Releases::Unary, |_| Conduct::keep()).await;
    services[0].create_policy("p", policy(2)).await.unwrap();
    services[0].create_schedule("s", once(soon(1_000), 2, "p", http(&consumer))).await.unwrap();
    arrived(&consumer.notes, 2).await;
    let owner = owner_of(&services, "p").await;
    services.remove(owner).kill9();
    let event_of = |index: u32| {
        let arrival = consumer.notes.arrivals().into_iter().find(|arrival| arrival.index == index);
        arrival.unwrap().event_id
    };
    let (name, other) = (event_of(0), event_of(1));
    let ask = async |name: &str, attempt: u32, outcome: ReleaseOutcome, check_us: Option<i64>| {
        let (name, attempt, outcome) = (name.to_owned(), Some(attempt), outcome.into());
        let next_check_time = check_us.map(timestamp);
        let request = ReleaseTokenRequest { name, attempt, outcome, next_check_time, ..Default::default() };
        services[0].handler().release_token(request).await.map(tonic::Response::into_inner)
    };
    let release = async |attempt, outcome| ask(&name, attempt, outcome, None).await.unwrap();
    let first = release(1, ReleaseOutcome::Retry).await;
    assert_eq!(first.status(), ReleaseStatus::Released, "{first:?}");
    let second = release(1, ReleaseOutcome::Succeeded).await;
    assert_eq!(second.status(), ReleaseStatus::AlreadyReleased, "{second:?}");
    assert!(first.message.contains("recorded") && second.message.contains("recorded"), "the owner was asked");
    // What the guards would refuse is refused before it is recorded, and what passes meanwhile is kept.
    let done = ReleaseOutcome::Succeeded;
    let refused = ask(&other, 1, done, Some(now_us() + 3_600_000_000 * 24 * 30)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("horizon"), "{refused:?}");
    let soon_over = ask(&other, 1, done, Some(now_us() + 3_000_000)).await.unwrap();
    assert_eq!(soon_over.status(), ReleaseStatus::Released, "{soon_over:?}");
    // Both come again, as their first releases asked for.
    arrived(&consumer.notes, 4).await;
    assert_eq!(release(2, done).await.status(), ReleaseStatus::Released);
    assert_eq!(ask(&other, 2, done, None).await.unwrap().status(), ReleaseStatus::Released);
    let run = services[0].finished("s", 30).await;
    assert_eq!(run.counts.unwrap().succeeded, 2);
    services.remove(0).stop().await;
}

/// Thousands of tokens lose their owner, and all are released at once through the process that is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_releases_of_a_dead_owner_stop_nothing_of_the_next_one() {
    const EVENTS: u32 = 4_000;
    let database = Database::new(Kind::Postgres).await;
    let mut services = cluster(&database, 2, &["--lease-ttl", "6s"]).await;
    let keeper = Consumer::start(services[0].link(), Releases::Unary, |_| Conduct::keep()).await;
    services[0].create_policy("p", policy(EVENTS)).await.unwrap();
    let dies = owner_of(&services, "p").await;
    services.swap(0, dies);
    let own = Consumer::start(services[1].link(), Releases::Unary, |_| Conduct::work(0..5)).await;
    let mut numbers = 0..;
    let theirs = loop {
        let name = format!("q{}", numbers.next().unwrap());
        services[1].create_policy(&name, policy(5)).await.unwrap();
        if owner_of(&services, &name).await == 1 {
            break name;
        }
    };
    services[1].create_schedule("own", every(1, soon(500), 2, &theirs, http(&own))).await.unwrap();
    services[1].create_schedule("s", once(soon(1_000), EVENTS, "p", http(&keeper))).await.unwrap();
    arrived(&keeper.notes, EVENTS as usize).await;
    arrived(&own.notes, 2).await;
    // All that has come is recorded, and a later attempt would have another number.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let events: Vec<String> = keeper.notes.attempts().into_keys().collect();
    let stays = services.remove(1);
    let me = id(&stays).await;
    let mine = async || {
        let shards = status(&stays).await.shards.into_iter();
        shards.filter(|s| s.owner == me).map(|s| (s.shard, s.epoch)).collect::<BTreeSet<_>>()
    };
    let before = mine().await;
    let killed_us = now_us();
    services.remove(0).kill9();

    let mut client = stays.handler();
    let releasing = tokio::spawn(async move {
        let release = |name: &String| ReleaseTokenRequest { name: name.clone(), ..Default::default() };
        let messages: Vec<_> = events
            .chunks(500)
            .map(|part| ReleaseTokensRequest { releases: part.iter().map(release).collect() })
            .collect();
        let mut refused = 0;
        loop {
            match client.release_tokens(tokio_stream::iter(messages.clone())).await {
                Ok(answer) => return (answer.into_inner(), refused),
                Err(error) => assert_eq!(error.code(), Code::Unavailable, "{error:?}"),
            }
            refused += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    while !releasing.is_finished() || mine().await.len() < 64 {
        assert!(is_ready(stays.url()).await, "{}", stays.log());
        assert!(now_us() < killed_us + 90_000_000, "no answer, or shards without an owner");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let took_ms = (now_us() - killed_us) / 1_000;
    let (answer, refused) = releasing.await.unwrap();
    let pause_ms = longest_pause_ms(&own.notes, killed_us, now_us());
    report(&format!(
        "{EVENTS} releases of a dead owner: done and taken over after {took_ms} ms, refused {refused} times, the other's \
         longest pause {pause_ms} ms, {answer:?}"
    ));
    assert_eq!(answer.released_count + answer.already_released_count, u64::from(EVENTS), "{answer:?}");
    let run = stays.finished("s", 60).await;
    assert_eq!(run.counts.unwrap().succeeded, EVENTS, "{run:?}");
    // A lapse of trust, or another owner in between, would have made another epoch.
    let after = mine().await;
    assert!(before.is_subset(&after), "{:?}", before.difference(&after));
    assert!(!stays.log().contains("no sign of life"), "{}", stays.log());
    assert!(pause_ms <= 6_000, "nothing of its own came for {pause_ms} ms");
    own.notes.assert_clean();
    keeper.notes.assert_once();
    stays.stop().await;
}
