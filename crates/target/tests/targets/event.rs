//! What a consumer gets: request, CloudEvent, signature.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate_core::model::{Counts, Delivery, Payload, Predecessor, RunId, RunState, Sent};

use crate::samples::{delivery, http, permanent, targets, with};
use crate::server::{Request, Server, answer};

async fn received(delivery: impl FnOnce(String) -> Delivery, targets: tollgate_target::Targets) -> Request {
    let server = Server::always(answer(200, "", "")).await;
    assert_eq!(targets.send(delivery(server.url())).await, Sent::Accepted);
    server.requests().remove(0)
}

fn changed(mut delivery: Delivery, change: impl FnOnce(&mut tollgate_core::model::RunSpec)) -> Delivery {
    change(Arc::make_mut(&mut delivery.spec));
    delivery
}

#[tokio::test]
async fn an_event_without_extras_has_exactly_these_members() {
    let request =
        received(|url| changed(delivery(http(url)), |spec| spec.payload = Payload::default()), targets())
            .await;
    let sample = delivery(http("http://x/"));
    let (id, run) = (sample.event_id.to_string(), sample.event_id.run());
    let event: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(
        event,
        json!({
            "specversion": "1.0",
            "id": id,
            "source": "/namespaces/acme/schedules/nightly",
            "type": "dev.tollgate.event.v1",
            "subject": format!("namespaces/acme/events/{id}"),
            "time": "2026-05-28T20:26:40.250000Z",
            "datacontenttype": "application/json",
            "attempt": 2,
            "schedule": "namespaces/acme/schedules/nightly",
            "run": format!("namespaces/acme/runs/{run}"),
            "index": 3,
            "count": 7,
            "release": "on_response",
        })
    );
    assert!(
        event.as_object().unwrap().keys().all(|name| name.bytes().all(|b| b.is_ascii_lowercase())),
        "{event}"
    );
}

#[tokio::test]
async fn an_event_with_everything_says_so() {
    // Numbers and blanks that no parser would give back as they were.
    let payload = "{ \"big\": 1e400, \"zero\": 1.000,\n\"twice\":1,\"twice\":2 }";
    let targets = with(|options| {
        options.source = "https://tollgate.example/".into();
        options.release_url = Some("https://tollgate.example/api".into());
    });
    let request = received(
        |url| {
            let mut delivery = changed(delivery(http(url)), |spec| {
                spec.policy_id = Some("erp".into());
                spec.payload.json = payload.into();
            });
            delivery.cursor = Some("page \"7\"\n\u{1}ü".into());
            delivery.explicit_release = true;
            delivery.checks = 3;
            delivery
        },
        targets,
    )
    .await;
    let body = String::from_utf8(request.body).unwrap();
    let data = format!(",\"data\":{payload}}}");
    assert!(body.ends_with(&data), "{body}");
    let event: Value = serde_json::from_str(&body.replace(&data, "}")).unwrap();
    assert_eq!(event["source"], "https://tollgate.example/namespaces/acme/schedules/nightly");
    assert_eq!(event["policy"], "namespaces/acme/policies/erp");
    assert_eq!(event["cursor"], "page \"7\"\n\u{1}ü");
    assert_eq!(event["checks"], 3);
    assert_eq!(event["release"], "explicit");
    assert_eq!(event["releaseurl"], "https://tollgate.example/api");
}

#[tokio::test]
async fn an_event_of_a_run_that_follows_says_how_the_run_before_ended() {
    let run = RunId::derive(uuid::Uuid::from_u128(1), 5);
    let well = Counts { succeeded: 4, ..Counts::default() };
    let badly = Counts { dead: 1, failed: 2, ..well };
    for (state, counts, outcome) in [
        (RunState::Finished, well, "SUCCEEDED"),
        (RunState::Finished, badly, "FAILED"),
        (RunState::Cancelled, well, "CANCELLED"),
        (RunState::Cancelled, badly, "FAILED"),
        (RunState::Skipped, Counts::default(), "FAILED"),
    ] {
        let before = Predecessor {
            shard: 10,
            run,
            schedule_id: "load".to_owned(),
            place: 1,
            state,
            counts,
            root: None,
            items: None,
        };
        let follows = |url| Delivery { predecessor: Some(Box::new(before)), ..delivery(http(url)) };
        let request = received(follows, targets()).await;
        let event: Value = serde_json::from_slice(&request.body).unwrap();
        let said = event.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("predecessor"));
        assert_eq!(
            Value::Object(said.map(|(name, value)| (name.clone(), value.clone())).collect()),
            json!({
                "predecessor": format!("namespaces/acme/runs/0a-{run}"),
                "predecessorschedule": "namespaces/acme/schedules/load",
                "predecessoroutcome": outcome,
                "predecessorsucceeded": counts.succeeded,
                "predecessorfailed": counts.badly(),
            })
        );
    }
}

#[tokio::test]
async fn the_request_is_signed_as_standard_webhooks_say() {
    let key = [42_u8; 32];
    let request = received(
        |url| {
            let mut target = http(url);
            target.secret = Some(format!("whsec_{}", STANDARD.encode(key)));
            target.headers.insert("X-Tenant".into(), "acme".into());
            delivery(target)
        },
        targets(),
    )
    .await;
    let header = |name: &str| request.headers.get(name).map(String::as_str).unwrap_or_default();
    assert_eq!(request.line, "POST /hook?a=b HTTP/1.1");
    assert_eq!(header("content-type"), "application/cloudevents+json; charset=utf-8");
    assert_eq!(header("x-tenant"), "acme");
    assert!(header("user-agent").starts_with("tollgate/"), "{}", header("user-agent"));
    assert!(header("host").starts_with("127.0.0.1:"), "{}", header("host"));
    assert_eq!(header("webhook-id"), delivery(http("http://x/")).event_id.as_str());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(header("webhook-timestamp").parse().unwrap()) <= 5);
    let signed =
        [header("webhook-id").as_bytes(), header("webhook-timestamp").as_bytes(), &request.body].join(&b'.');
    assert_eq!(header("webhook-signature"), format!("v1,{}", STANDARD.encode(hmac_sha256(&key, &signed))));
}

#[tokio::test]
async fn without_a_secret_nothing_is_signed() {
    let request = received(|url| delivery(http(url)), targets()).await;
    assert!(request.headers.contains_key("webhook-id"));
    assert!(!request.headers.contains_key("webhook-signature"));
}

#[tokio::test]
async fn what_should_never_have_been_stored_is_refused_for_good() {
    let server = Server::always(answer(200, "", "")).await;
    let mut reserved = http(server.url());
    reserved.headers.insert("Webhook-Id".into(), "mine".into());
    assert!(permanent(targets().send(delivery(reserved)).await).contains("`Webhook-Id` is reserved"));
    let mut secret = http(server.url());
    secret.secret = Some("whsec_c2hvcnQ=".into());
    let message = permanent(targets().send(delivery(secret)).await);
    assert!(message.contains("5 bytes") && !message.contains("c2hvcnQ"), "{message}");
    for url in ["ftp://127.0.0.1/", "/hook", "http://user:word@127.0.0.1/"] {
        let message = permanent(targets().send(delivery(http(url))).await);
        assert!(message.starts_with("url: ") && !message.contains("word"), "{message}");
    }
    assert_eq!(server.connections(), 0);
}

/// RFC 2104, written out so that the crate's own code is not what checks it.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let (inner, outer) = (block.map(|b| b ^ 0x36), block.map(|b| b ^ 0x5c));
    let inside = Sha256::new().chain_update(inner).chain_update(message).finalize();
    Sha256::new().chain_update(outer).chain_update(inside).finalize().to_vec()
}
