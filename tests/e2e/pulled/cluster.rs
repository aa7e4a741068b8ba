//! Workers and owners in different processes, of which any may die.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_harness::resources::{policy, policy_name};
use tollgate_harness::{Database, Kind, Service, lasting_shares, wait_for};
use tollgate_proto::v1::{GetPolicyQueueRequest, Policy, WorkEvent};

use super::talk::patient;
use super::worker::{Deed, Notes, Worker, hello, place};
use super::{given, pull, succeeded, trigger};

/// As long as it is by itself: a machine that stands for a few seconds takes no shard from anybody.
const LEASE: [&str; 2] = ["--lease-ttl", "6s"];

async fn processes(database: &Database, count: usize) -> Vec<Service> {
    let mut services = Vec::new();
    for _ in 0..count {
        services.push(Service::join(database, &LEASE).await);
    }
    let mut ids = BTreeSet::new();
    for service in &services {
        ids.insert(service.status().await.unwrap().handler);
    }
    lasting_shares(&ids, async || services[0].status().await.unwrap()).await;
    services
}

/// All workers are connected to one process; policies and runs without one live in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_one_process_do_what_all_own() {
    let database = Database::new(Kind::Postgres).await;
    let services = processes(&database, 3).await;
    let (notes, place) = (Notes::default(), place(&services[0]));
    for id in ["a", "b", "c", "d", "e", "f"] {
        services[1].create_policy(id, policy(4)).await.unwrap();
        trigger(&services[2], id, patient(30, id, &["gpu"])).await;
    }
    for id in ["x", "y", "z"] {
        trigger(&services[2], id, patient(30, "", &[])).await;
    }
    let _worker = Worker::start(&place, hello("w", &["gpu"], 6), &notes, |_| Deed::Work(5));
    for id in ["a", "b", "c", "d", "e", "f", "x", "y", "z"] {
        assert_eq!(succeeded(&services[1], id, 60).await, 30, "{id}");
    }
    assert!(notes.held_max() <= 6, "{} at once, of 6", notes.held_max());
    let attempts = notes.attempts();
    assert_eq!(attempts.len(), 270);
    let again = attempts.values().filter(|attempts| attempts.len() > 1).count();
    // A call between two processes that took too long may have been answered.
    assert!(again <= 15, "{again} were given twice, while nothing broke");
    for service in services {
        service.stop().await;
    }
}

/// First the process dies to which the workers are connected, then the owner of the policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_process_dies_every_event_is_done() {
    let database = Database::new(Kind::Postgres).await;
    let mut services = processes(&database, 3).await;
    let short = prost_types::Duration { seconds: 2, nanos: 0 };
    let limits = Policy { token_ttl: Some(short), suspect_period: Some(short), ..policy(6) };
    services[0].create_policy("p", limits).await.unwrap();
    let queue = GetPolicyQueueRequest { name: policy_name("p"), ..GetPolicyQueueRequest::default() };
    services[0].handler().get_policy_queue(queue).await.unwrap();
    let notes = Notes::default();
    let places = [place(&services[0]), place(&services[1])];
    let deed = |_: &WorkEvent| Deed::Work(20);
    let workers: Vec<_> = (0..4)
        .map(|number| Worker::start(&places[number % 2], hello(&format!("w{number}"), &[], 3), &notes, deed))
        .collect();
    trigger(&services[2], "s", pull(400, "p", &[])).await;
    given(&notes, 60).await;
    services.remove(0).kill9();
    *places[0].lock().unwrap() = services[1].channel();
    given(&notes, 150).await;
    services.remove(0).kill9();
    *places[1].lock().unwrap() = services[0].channel();
    assert_eq!(succeeded(&services[0], "s", 90).await, 400);
    assert!(notes.held_max() <= 6, "{} at once, of 6", notes.held_max());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let attempts = notes.attempts();
    assert_eq!(attempts.len(), 400);
    for (name, attempts) in &attempts {
        assert!(attempts.is_sorted_by(|before, after| before < after), "{name}: {attempts:?}");
    }
    drop(workers);
    services.remove(0).stop().await;
}

/// A deployment: each process is replaced by a new one while events are done. Its workers are told, and go elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_are_replaced_one_by_one_and_no_event_is_given_twice() {
    let database = Database::new(Kind::Postgres).await;
    let mut services = processes(&database, 3).await;
    services[0].create_policy("p", policy(8)).await.unwrap();
    let notes = Notes::default();
    let places: Vec<_> = services.iter().map(place).collect();
    let workers: Vec<_> = (0..6)
        .map(|number| {
            let deed = |_: &WorkEvent| Deed::Work(30);
            Worker::start(&places[number % 3], hello(&format!("w{number}"), &[], 2), &notes, deed)
        })
        .collect();
    trigger(&services[0], "s", patient(1_500, "p", &[])).await;
    wait_for("something for each worker", 30, async || {
        let workers: BTreeSet<String> = notes.given().into_iter().map(|given| given.worker).collect();
        (workers.len() == 6).then_some(())
    })
    .await;
    for (number, place) in places.iter().enumerate() {
        given(&notes, 150 * (number + 1)).await;
        let new = Service::join(&database, &LEASE).await;
        let mut old = services.remove(0);
        *place.lock().unwrap() = new.channel();
        old.end(Duration::from_secs(30)).await.unwrap();
        services.push(new);
        // Two workers were connected to each.
        let told = async || (notes.go_aways() == 2 * (number + 1)).then_some(());
        wait_for("word to both workers", 10, told).await;
    }
    assert_eq!(succeeded(&services[0], "s", 90).await, 1_500);
    assert!(notes.held_max() <= 8, "{} at once, of 8", notes.held_max());
    let attempts = notes.attempts();
    assert_eq!(attempts.len(), 1_500);
    let again: Vec<_> = attempts.iter().filter(|(_, attempts)| attempts.len() > 1).collect();
    // Those on their way to a process that ends would be as many as its workers have, each time.
    assert!(again.len() <= 3, "given twice, while all was in order: {again:?}");
    drop(workers);
    for service in services {
        service.stop().await;
    }
}
