//! What callers do not get to see goes nowhere but where it was meant to: a target that is moved, answers to changes.

use serde_json::{Value, json};
use tollgate_harness::resources::{PARENT, policy};
use tollgate_harness::{Cli, Conduct, Consumer, Database, Kind, Releases, SECRET, Service, wait_for};
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::v1::{ApplyResourcesRequest, CreatePolicyRequest, GetPolicyRequest, Policy};
use tonic::Code;

use super::{curl, id, key, key_command, master};

const API_KEY: &str = "c0ffee-is-no-drink";
const TENANT: &str = "tenant-17";
const PASSWORD: &str = "hunter2";

fn sent(url: &str, verb: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
    let header = format!("authorization: Bearer {key}");
    let (status, body) = curl(&[
        "-X",
        verb,
        "-H",
        &header,
        "-H",
        "content-type: application/json",
        "-d",
        &body.to_string(),
        &format!("{url}{path}"),
    ]);
    (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
}

fn full(url: &str) -> Value {
    json!({
        "triggers": [{"cron": "0 0 1 1 *"}],
        "events": 1,
        "payload": {"password": PASSWORD},
        "target": {"http": {
            "url": url,
            "secret": SECRET,
            "headers": {"X-Api-Key": API_KEY, "X-Tenant": TENANT},
        }},
    })
}

fn moved(url: &str) -> Value {
    json!({"target": {"http": {"url": url}}})
}

/// Who may write, and not read, is told nothing that it has not given, and has nothing sent elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_moved_needs_its_secrets_again() {
    let database = Database::new(Kind::Sqlite).await;
    let admin = key(&database, "ops", "admin", None);
    let writer = key(&database, "ci", "schedule:write", Some("default"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let url = service.url().to_owned();
    let known = async |key: &str| {
        wait_for("the key", 10, async || {
            let name = "nonsense".to_owned();
            let answer = master(&service, Some(key)).get_policy(GetPolicyRequest { name }).await;
            (answer.unwrap_err().code() != Code::Unauthenticated).then_some(())
        })
        .await;
    };
    known(&admin).await;
    known(&writer).await;
    let thief = Consumer::start(service.link(), Releases::Unary, |_| Conduct::keep()).await;
    let schedules = "/v1/namespaces/default/schedules";
    let one = format!("{schedules}/one");
    let first = "http://hooks.localhost:9/a";
    let (status, made) = sent(&url, "POST", &format!("{schedules}?scheduleId=one"), &admin, &full(first));
    assert_eq!(status, 200, "{made}");

    let hidden = |answer: &Value| {
        let text = answer.to_string();
        assert!(![API_KEY, TENANT, PASSWORD, &SECRET[6..]].iter().any(|part| text.contains(part)), "{text}");
    };
    // The origin is another one: host, port or scheme.
    let elsewhere =
        [thief.url(), "http://hooks.localhost:10/a".to_owned(), "https://hooks.localhost:9/a".to_owned()];
    for key in [&admin, &writer] {
        for target in &elsewhere {
            for query in ["", "?validateOnly=true"] {
                let (status, answer) = sent(&url, "PATCH", &format!("{one}{query}"), key, &moved(target));
                assert_eq!(status, 400, "{answer}");
                hidden(&answer);
                let text = answer.to_string();
                assert!(
                    text.contains("schedule.target.http.") || text.contains("schedule.payload"),
                    "{text}"
                );
            }
        }
    }
    let fields = |answer: &Value| {
        let violations = answer["details"][0]["fieldViolations"].as_array().cloned().unwrap_or_default();
        let fields = violations.iter().map(|one| one["field"].as_str().unwrap().to_owned());
        fields.collect::<Vec<String>>()
    };
    let (_, answer) = sent(&url, "PATCH", &one, &admin, &moved(&elsewhere[0]));
    assert_eq!(fields(&answer), ["schedule.target.http.headers.X-Api-Key", "schedule.target.http.secret"]);
    // As a whole, with what answers show in the place of secrets.
    let mut shown = full(&elsewhere[0]);
    shown["target"]["http"]["secret"].take();
    shown["target"]["http"]["hasSecret"] = true.into();
    shown["target"]["http"]["headers"]["X-Api-Key"] = "***".into();
    shown["target"]["http"]["headers"]["X-Tenant"] = "***".into();
    for path in [format!("{one}?updateMask=*"), format!("{one}?updateMask=target")] {
        let (status, answer) = sent(&url, "PATCH", &path, &admin, &shown);
        assert_eq!(status, 400, "{answer}");
        assert_eq!(fields(&answer).len(), 3, "{answer}");
    }
    let yaml = format!(
        "kind: Schedule\nid: one\ntriggers: [{{cron: '0 0 1 1 *'}}]\ntarget:\n  http:\n    url: {}\n    \
         hasSecret: true\n    headers: {{X-Api-Key: '***'}}\n",
        elsewhere[0]
    );
    let applied = Cli::new(&url).run_with(&["apply", "-f", "-", "--api-key", &admin], &yaml);
    assert_eq!(applied.code, 1, "{applied:?}");
    assert!(applied.err.contains("X-Api-Key") && applied.err.contains("secret"), "{applied:?}");

    // Another path is no other place, and answers to changes show a writer nothing.
    for body in [moved("http://HOOKS.localhost:9/b"), json!({"priority": 3})] {
        let (status, answer) = sent(&url, "PATCH", &one, &writer, &body);
        assert_eq!(status, 200, "{answer}");
        hidden(&answer);
        let (status, answer) = sent(&url, "PATCH", &format!("{one}?validateOnly=true"), &writer, &body);
        assert_eq!(status, 200, "{answer}");
        hidden(&answer);
    }
    for action in ["pause", "resume"] {
        let (status, answer) = sent(&url, "POST", &format!("{one}:{action}"), &writer, &json!({}));
        assert_eq!(status, 200, "{answer}");
        hidden(&answer);
    }
    // What is shown instead keeps what is stored.
    let mut same = full("http://hooks.localhost:9/b");
    same["target"]["http"] = shown["target"]["http"].clone();
    same["target"]["http"]["url"] = "http://hooks.localhost:9/b".into();
    let (status, answer) = sent(&url, "PATCH", &format!("{one}?updateMask=target"), &writer, &same);
    assert_eq!(status, 200, "{answer}");
    let (_, seen) = sent(&url, "GET", &one, &admin, &json!({}));
    assert_eq!(seen["target"]["http"]["headers"]["X-Tenant"], TENANT, "{seen}");
    assert_eq!(seen["payload"]["password"], PASSWORD);

    // A writer that gives the secrets anew still has the payload, and other headers, not sent along.
    let mut anew = moved(&elsewhere[0]);
    anew["target"]["http"]["secret"] = SECRET.into();
    anew["target"]["http"]["headers"] = json!({"X-Api-Key": "mine"});
    let (status, answer) = sent(&url, "PATCH", &one, &writer, &anew);
    assert_eq!((status, fields(&answer)), (400, vec!["schedule.payload".to_owned()]), "{answer}");
    anew["payload"] = json!({"mine": 1});
    let (status, answer) = sent(&url, "PATCH", &one, &writer, &anew);
    let header = "schedule.target.http.headers.X-Tenant".to_owned();
    assert_eq!((status, fields(&answer)), (400, vec![header]), "{answer}");
    // All of it given anew: it is the writer's own then.
    let mut whole = full(&elsewhere[0]);
    whole["payload"] = json!({"mine": 1});
    whole["target"]["http"]["headers"] = json!({"X-Api-Key": "mine"});
    let (status, answer) = sent(&url, "PATCH", &format!("{one}?updateMask=target,payload"), &writer, &whole);
    assert_eq!(status, 200, "{answer}");
    let (status, _) = sent(&url, "POST", &format!("{one}:trigger"), &writer, &json!({}));
    assert_eq!(status, 200);
    wait_for("the event", 20, async || (thief.notes.arrivals_count() == 1).then_some(())).await;
    service.stop().await;
}

/// A stream that was opened with a good key writes nothing once the key has been revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_key_s_stream_writes_nothing() {
    let database = Database::new(Kind::Sqlite).await;
    let admin = key(&database, "ops", "admin", None);
    let writer = key(&database, "ci", "read,schedule:write", Some("default"));
    let service = Service::join(&database, &["--auth", "keys"]).await;
    let apply = |name: &str| ApplyResourcesRequest {
        namespace: "default".to_owned(),
        resource: Some(Resource::Policy(Policy { name: name.to_owned(), ..policy(1) })),
        ..ApplyResourcesRequest::default()
    };
    // One that goes on, and one that only ends.
    for goes_on in [true, false] {
        let writer = if goes_on {
            writer.clone()
        } else {
            key(&database, "ci2", "read,schedule:write", Some("default"))
        };
        let name = "nonsense".to_owned();
        wait_for("the key", 10, async || {
            let request = GetPolicyRequest { name: name.clone() };
            let answer = master(&service, Some(&writer)).get_policy(request).await;
            (answer.unwrap_err().code() != Code::Unauthenticated).then_some(())
        })
        .await;
        let (items, stream) = tokio::sync::mpsc::channel(4);
        items.send(apply("early")).await.unwrap();
        let mut client = master(&service, Some(&writer));
        let call = tokio::spawn(async move {
            client.apply_resources(tokio_stream::wrappers::ReceiverStream::new(stream)).await
        });
        assert_eq!(key_command(&database, &["revoke", id(&writer)]).code, 0);
        wait_for("the revocation", 10, async || {
            let request = GetPolicyRequest { name: name.clone() };
            let answer = master(&service, Some(&writer)).get_policy(request).await;
            (answer.unwrap_err().code() == Code::Unauthenticated).then_some(())
        })
        .await;
        if goes_on {
            // It may have been closed already.
            let _gone = items.send(apply("late")).await;
        }
        drop(items);
        let refused = call.await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        for made in ["early", "late"] {
            let name = format!("{PARENT}/policies/{made}");
            let answer = master(&service, Some(&admin)).get_policy(GetPolicyRequest { name }).await;
            assert_eq!(answer.unwrap_err().code(), Code::NotFound, "{made} was written");
        }
    }
    let request = CreatePolicyRequest {
        parent: PARENT.to_owned(),
        policy_id: "early".to_owned(),
        policy: Some(policy(1)),
        ..CreatePolicyRequest::default()
    };
    master(&service, Some(&admin)).create_policy(request).await.unwrap();
    service.stop().await;
}
