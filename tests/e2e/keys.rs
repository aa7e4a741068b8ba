//! Limits by key: what each tenant has in flight at the sink, also after a power cut; what is said of one key; who is told.

use std::collections::BTreeMap;

use tollgate_harness::resources::{http, once, policy, policy_name, soon};
use tollgate_harness::{Arrival, Cli, Conduct, Consumer, Database, Kind, Releases, Service, wait_for};
use tollgate_proto::v1::{
    ExplainEventRequest, GetPolicyQueueRequest, KeyLimits, Policy, PolicyKey, ReasonCode, RunState, Schedule,
};

/// For how long a consumer has an event before it begins to release it.
pub(crate) const WORK_MS: u64 = 1_000;

/// Fifty in all, two of each key.
pub(crate) fn by_key() -> Policy {
    let per_key = Some(KeyLimits { max_in_flight: Some(2), ..KeyLimits::default() });
    Policy { per_key, ..policy(50) }
}

async fn keys(service: &Service) -> BTreeMap<String, PolicyKey> {
    let request = GetPolicyQueueRequest { name: policy_name("p"), ..GetPolicyQueueRequest::default() };
    let queue = service.handler().get_policy_queue(request).await.unwrap().into_inner();
    assert_eq!(queue.keys_read_count as usize, queue.keys.len());
    queue.keys.into_iter().map(|key| (key.key.clone(), key)).collect()
}

/// The first arrival of each event. After a power cut an event may come again, while its token is held since its first.
pub(crate) fn firsts(arrivals: &[Arrival]) -> Vec<&Arrival> {
    let mut firsts: BTreeMap<&str, &Arrival> = BTreeMap::new();
    for arrival in arrivals {
        let first = firsts.entry(&arrival.event_id).or_insert(arrival);
        if arrival.arrived_us < first.arrived_us {
            *first = arrival;
        }
    }
    firsts.into_values().collect()
}

/// The most events of a key that consumers were at work on at once: each lasted for `WORK_MS` at least.
pub(crate) fn at_once(arrivals: &[Arrival], key: &str) -> usize {
    let firsts = firsts(arrivals).into_iter().filter(|arrival| arrival.key == key);
    let came: Vec<i64> = firsts.map(|arrival| arrival.arrived_us).collect();
    let within =
        |from: &i64| came.iter().filter(|us| (*from..from + 1_000 * WORK_MS as i64).contains(us)).count();
    came.iter().map(within).max().unwrap_or_default()
}

async fn each_key_has_its_own(kind: Kind) {
    let database = Database::new(kind).await;
    let mut service = Service::start(&database).await;
    let link = service.link();
    let consumer =
        Consumer::start(link.clone(), Releases::Unary, |_| Conduct::work(WORK_MS..WORK_MS + 20)).await;
    service.create_policy("p", by_key()).await.unwrap();
    // Three schedules of one tenant, one of another, two of nobody.
    for (id, key) in [("a1", "acme"), ("a2", "acme"), ("a3", "acme"), ("z", "zeta"), ("n1", ""), ("n2", "")] {
        let schedule = Schedule { key: key.to_owned(), ..once(soon(5_000), 10, "p", http(&consumer)) };
        let made = service.create_schedule(id, schedule).await.unwrap();
        assert_eq!(made.key, key);
    }
    wait_for("all keys at their limits", 30, async || {
        let keys = keys(&service).await;
        (keys.len() == 3 && keys.values().all(|key| key.held_count == 2)).then_some(())
    })
    .await;
    let waiting = keys(&service).await["acme"].clone();
    assert!(waiting.waiting_count > 6 && waiting.max_in_flight == Some(2), "{waiting:?}");
    service.kill9();
    service = Service::start(&database).await;
    link.follow(&service);
    for id in ["a1", "a2", "a3", "z", "n1", "n2"] {
        let run = service.finished(id, 60).await;
        assert_eq!((run.state(), run.counts.unwrap().succeeded), (RunState::Finished, 10), "{run:?}");
    }
    consumer.notes.assert_clean();
    let arrivals = consumer.notes.arrivals();
    for key in ["acme", "zeta", ""] {
        assert_eq!(at_once(&arrivals, key), 2, "{key:?}: {arrivals:?}");
    }
    service.stop().await;
}

/// How many events of a run are found by their key.
fn found(cli: &Cli, run: &str, key: &str) -> usize {
    let id = run.rsplit('/').next().unwrap();
    let listed = cli.json(&["get", "events", id, "--filter", &format!("key={key}")]);
    listed["events"].as_array().map_or(0, Vec::len)
}

async fn one_key_is_steered(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let cli = Cli::new(service.url());
    let consumer = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    service.create_policy("p", by_key()).await.unwrap();
    for (id, key) in [("a", "acme"), ("z", "zeta")] {
        let schedule = Schedule { key: key.to_owned(), ..once(soon(3_000), 30, "p", http(&consumer)) };
        service.create_schedule(id, schedule).await.unwrap();
    }
    let held = async |acme: u32, zeta: u32| {
        wait_for("tokens of keys", 30, async || {
            let keys = keys(&service).await;
            let held = |key: &str| keys.get(key).map_or(0, |key| key.held_count);
            (held("acme") == acme && held("zeta") == zeta).then_some(keys)
        })
        .await
    };
    held(2, 2).await;
    // Why an event waits.
    let run = service.first_run("a").await;
    let event = service.events(&run.name).await.remove(20);
    assert_eq!(event.key, "acme");
    assert_eq!([found(&cli, &run.name, "acme"), found(&cli, &run.name, "zeta")], [30, 0]);
    let request = ExplainEventRequest { name: event.name.clone() };
    let why = service.handler().explain_event(request.clone()).await.unwrap().into_inner();
    assert_eq!(why.reasons[0].code(), ReasonCode::KeyLimitReached, "{why:?}");
    assert!(why.summary.contains("the events of the key \"acme\" hold all tokens"), "{why:?}");
    assert!(
        why.holders.len() == 2 && why.holders.iter().all(|holder| holder.schedule.ends_with("/a")),
        "{why:?}"
    );
    // More for one.
    cli.ok(&["limit", "p", "acme", "--max-in-flight", "7", "--weight", "3"]);
    let said = held(7, 2).await;
    assert_eq!((said["acme"].max_in_flight, said["acme"].weight), (Some(7), 3));
    // Nothing more of another, with a reason, and as it was.
    cli.ok(&["limit", "p", "zeta", "--max-in-flight", "9", "--pause", "--reason", "they asked"]);
    let described = cli.ok(&["describe", "policy", "p"]);
    assert!(described.contains("PAUSED: they asked") && described.contains("acme"), "{described}");
    let run = service.first_run("z").await;
    let event = service.events(&run.name).await.remove(20);
    let why = cli.ok(&["why", &event.event_id]);
    assert!(why.contains("the events of the key \"zeta\" are paused (they asked)"), "{why}");
    assert!(run.no_expected_finish_reason.contains("the key \"zeta\" of p is paused"), "{run:?}");
    cli.ok(&["limit", "p", "zeta", "--resume"]);
    held(7, 9).await;
    cli.ok(&["limit", "p", "acme", "--clear"]);
    assert_eq!(keys(&service).await["acme"].max_in_flight, Some(2), "what is held stays");
    // What is wrong is said of its field, and changes nothing.
    let wrong = cli.run(&["limit", "p", "acme", "--max-in-flight", "0"]);
    assert!(wrong.code == 1 && wrong.err.contains("keys[\"acme\"]"), "{wrong:?}");
    let nothing = cli.run(&["limit", "p", "acme"]);
    assert!(nothing.code == 2 && nothing.err.contains("--max-in-flight"), "{nothing:?}");
    let applied = cli.apply("kind: Policy\nid: q\nmaxInFlight: 5\nperKey: {maxInFlight: 0, burst: 2}\n");
    assert!(
        applied.err.contains("perKey.maxInFlight") && applied.err.contains("perKey.burst"),
        "{applied:?}"
    );
    let applied = cli
        .apply("kind: Policy\nid: q\nmaxInFlight: 5\nperKey: {maxInFlight: 1}\nkeys: {a.b: {weight: 2}}\n");
    assert_eq!(applied.code, 0, "{applied:?}");
    let shown = cli.json(&["get", "policy", "q"]);
    assert_eq!(
        (&shown["perKey"]["maxInFlight"], &shown["keys"]["a.b"]["weight"]),
        (&1.into(), &2.into()),
        "{shown}"
    );
    service.stop().await;
}

on_both_stores!(each_key_has_its_own, one_key_is_steered);
