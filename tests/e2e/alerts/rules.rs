//! How messages of alerts leave, who may be told of the whole installation, how often is told what stays, and what a fail-over
//! makes of it.

use super::*;
use tollgate_proto::v1::{RetryPolicy, Schedule};

use crate::security::{key_command, rest_with};

/// Of the messages that were taken, how many say so of this kind.
fn count(receiver: &Receiver, list: &str, kind: &str) -> usize {
    let says = |heard: &Heard| {
        let items = heard.json()["data"][list].as_array().cloned().unwrap_or_default();
        items.iter().any(|item| item["kind"] == kind)
    };
    receiver.taken().iter().filter(|heard| says(heard)).count()
}

/// Whoever sets these for a process means its own traffic to the outside; an alert's receiver is named by its URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_from_the_environment_are_ignored() {
    let database = Database::new(Kind::Sqlite).await;
    let (proxy, receiver) = (Receiver::start(200).await, Receiver::start(200).await);
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    let variables: Vec<(&str, String)> = names.iter().map(|name| (*name, url.clone())).collect();
    let service = Service::join_on(&database, &[], &variables).await;
    create(&service, "on-call", alert(webhook(&receiver))).await.unwrap();
    let tested = test_alert(&service, "on-call").await;
    assert!(tested.code == 0 && tested.out.contains("has taken"), "{tested:?}");
    receiver.message(0).await;
    assert!(proxy.heard().is_empty(), "the proxy has got it");
    service.stop().await;
}

/// A receiver that answers with a redirect has not taken the message, and nobody else gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_not_allowed_or_sends_elsewhere_gets_nothing_more() {
    let database = Database::new(Kind::Sqlite).await;
    let flags = ["--allow-private-addresses", "127.0.0.1/32"];
    let service = Service::start_with(&database, &flags).await;
    let receiver = Receiver::start(307).await;
    create(&service, "moved", alert(webhook(&receiver))).await.unwrap();
    let moved = test_alert(&service, "moved").await;
    assert!(moved.code != 0 && moved.err.contains("redirects are not followed"), "{moved:?}");
    // Spellings of an address that is not in the network; an answer to any of them would be one of this machine.
    for (id, host) in [("literal", "127.0.0.2"), ("octal", "0177.0.0.2"), ("six", "[::1]")] {
        let url = format!("http://{host}:{}/hook", receiver.port);
        let target = To::Http(HttpTarget { url, secret: SECRET.to_owned(), ..HttpTarget::default() });
        // It may be refused at once, or at each message.
        if create(&service, id, alert(target)).await.is_ok() {
            let refused = test_alert(&service, id).await;
            assert!(refused.code != 0 && refused.err.contains("loopback"), "{id}: {refused:?}");
        }
    }
    assert_eq!(receiver.heard().len(), 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stays_is_told_again_after_its_interval() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let (consumer, receiver, once_only) =
        (well(&service).await, Receiver::start(200).await, Receiver::start(200).await);
    let often = Alert { repeat_interval: Some(ms(60_000)), ..alert(webhook(&receiver)) };
    create(&service, "often", often).await.unwrap();
    create(&service, "once", alert(webhook(&once_only))).await.unwrap();
    paused_work(&service, "p", &consumer).await;
    let first = receiver.message(0).await;
    let told = Instant::now();
    assert_eq!(first.json()["data"]["raised"][0]["repeated"], Value::Null);
    let second = wait_for("the repetition", 90, async || receiver.taken().into_iter().nth(1)).await;
    assert!((50..110).contains(&told.elapsed().as_secs()), "{:?}", told.elapsed());
    let raised = second.json()["data"]["raised"].clone();
    assert_eq!(
        (raised[0]["kind"].as_str(), &raised[0]["repeated"]),
        (Some("POLICY_PAUSED"), &Value::Bool(true))
    );
    assert_ne!(second.id(), first.id(), "a message of its own");
    resume(&service, "p").await;
    receiver.message(2).await;
    once_only.message(1).await;
    assert_eq!(count(&receiver, "raised", "POLICY_PAUSED"), 2);
    assert_eq!(count(&once_only, "raised", "POLICY_PAUSED"), 1, "0s is never");
    assert_eq!((count(&receiver, "resolved", "POLICY_PAUSED"), receiver.taken().len()), (1, 3));
    service.stop().await;
}

/// A key of one namespace makes no alert of the whole installation, and changes none into one; its own is told of nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_installation_is_for_those_who_reach_it() {
    let database = Database::new(Kind::Sqlite).await;
    let key = |name: &str, place: &[&str]| {
        let made = key_command(&database, &[&["create", name, "--scopes", "admin"], place].concat());
        assert_eq!(made.code, 0, "{made:?}");
        made.out.trim().to_owned()
    };
    let (all, team) = (key("all", &["--all-namespaces"]), key("team", &["--namespace", "default"]));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let (theirs, everybody) = (Receiver::start(200).await, Receiver::start(200).await);
    let body = |receiver: &Receiver, installation: bool| {
        serde_json::json!({
            "troubles": {"installation": installation}, "groupWait": "0s", "repeatInterval": "0s",
            "target": {"http": {"url": receiver.url(), "secret": SECRET}},
        })
    };
    let call = |verb: &str, path: &str, key: &str, body: &Value| {
        rest_with(service.url(), verb, &format!("/v1/namespaces/default/alerts{path}"), key, body)
    };
    let (status, refused) = call("POST", "?alertId=wide", &team, &body(&theirs, true));
    assert_eq!(status, 403, "{refused}");
    assert!(refused.to_string().contains("alert.troubles.installation"), "{refused}");
    let (status, made) = call("POST", "?alertId=own", &team, &body(&theirs, false));
    assert_eq!(status, 200, "{made}");
    let (status, refused) = call("PATCH", "/own?updateMask=troubles", &team, &body(&theirs, true));
    assert_eq!(status, 403, "{refused}");
    let (status, made) = call("POST", "?alertId=wide", &all, &body(&everybody, true));
    assert_eq!(status, 200, "{made}");
    // Whoever may not make it may not point it elsewhere.
    let (status, refused) = call("PATCH", "/wide?updateMask=target", &team, &body(&theirs, true));
    assert_eq!(status, 403, "{refused}");
    wait_for("a first look", 20, async || (database.count("alert_states").await == 2).then_some(())).await;
    wait_for("queue shards without an owner, told", 40, async || {
        // Their owner takes them again as soon as it looks.
        database.sql("UPDATE queue_shards SET owner = '' WHERE shard_id IN (7, 9)").await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        (count(&everybody, "raised", "SHARDS_WITHOUT_OWNER") > 0).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(theirs.heard().is_empty(), "a namespace is told of the installation");
    service.stop().await;
}

/// The next owner has not heard of the target for as long as its first deliveries take; that is no end of the trouble.
async fn a_fail_over_ends_no_trouble_and_raises_none_anew(kind: Kind) {
    let database = Database::new(kind).await;
    let service = Service::start(&database).await;
    let (hangs, receiver) = (
        Consumer::start(service.link(), Releases::Unary, |_| Conduct::Hang).await,
        Receiver::start(200).await,
    );
    let kinds = vec![TroubleKind::TargetSilent.into()];
    let troubles = Some(AlertTroubles { kinds, ..AlertTroubles::default() });
    create(&service, "on-call", Alert { troubles, ..alert(webhook(&receiver)) }).await.unwrap();
    service.create_policy("p", policy(2)).await.unwrap();
    let Some(Place::Http(target)) = http(&hangs).target else { unreachable!() };
    let target = HttpTarget { deadline: Some(ms(8_000)), ..target };
    let target = Target { target: Some(Place::Http(target)), ..Target::default() };
    let retry = RetryPolicy {
        max_attempts: Some(1_000),
        min_backoff: Some(ms(200)),
        max_backoff: Some(ms(1_000)),
        ..RetryPolicy::default()
    };
    let schedule = Schedule { retry: Some(retry), ..once(soon(500), 6, "p", target) };
    service.create_schedule("s", schedule).await.unwrap();
    let first = receiver.message(0).await;
    assert_eq!(first.json()["data"]["raised"][0]["kind"], "TARGET_SILENT");
    service.kill9();
    let service = Service::start(&database).await;
    let before = hangs.notes.arrivals_count();
    wait_for("two deliveries of the next process", 60, async || {
        (hangs.notes.arrivals_count() >= before + 4).then_some(())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    // The power cut may have come before it was noted that the message had arrived: then it comes again, as the same one.
    let told: Vec<_> = receiver.taken().iter().map(Heard::json).collect();
    assert!(told.iter().all(|message| message["id"] == first.json()["id"]), "{told:?}");
    service.stop().await;
}

on_both_stores!(a_fail_over_ends_no_trouble_and_raises_none_anew);
