//! Keys: none, wrong, of another namespace, without the scope, expired, revoked; over gRPC, gRPC streams and REST.

use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate_harness::resources::{PARENT, policy, policy_name};
use tollgate_harness::{Cli, Database, Kind, Service, wait_for};
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::v1::{
    ApplyResourcesRequest, CreatePolicyRequest, GetPolicyRequest, GetScheduleRequest,
    ListAuditEntriesRequest, ListPoliciesRequest, PauseDispatchRequest, PausePolicyRequest, Policy,
};
use tonic::{Code, Status};

use super::{curl, handler, id, key, key_command, master, rest, wire};

on_both_stores!(a_key_opens_its_namespace_and_its_scopes_only, keys_begin_and_end);

fn get(name: &str) -> GetPolicyRequest {
    GetPolicyRequest { name: name.to_owned() }
}

fn code<T: std::fmt::Debug>(answer: &Result<T, Status>) -> Code {
    answer.as_ref().map_or_else(Status::code, |_| Code::Ok)
}

async fn guarded(database: &Database) -> Service {
    Service::join(database, &["--auth", "keys"]).await
}

/// Waits until a key is known.
async fn known(service: &Service, key: &str) {
    wait_for("the key to count", 5, async || {
        let answer = master(service, Some(key)).get_policy(get("nonsense")).await;
        (code(&answer) != Code::Unauthenticated).then_some(())
    })
    .await;
}

async fn a_key_opens_its_namespace_and_its_scopes_only(kind: Kind) {
    let database = Database::new(kind).await;
    let admin = key(&database, "ops", "admin", None);
    let service = guarded(&database).await;
    // Made while the service has the store, an embedded one as well.
    let reader = key(&database, "viewer", "read", Some("default"));
    let writer = key(&database, "ci", "read,schedule:write", Some("default"));
    let other = key(&database, "other", "admin", Some("other"));
    for key in [&reader, &writer, &other] {
        known(&service, key).await;
    }
    let request = CreatePolicyRequest {
        parent: PARENT.to_owned(),
        policy_id: "p".to_owned(),
        policy: Some(policy(3)),
        ..CreatePolicyRequest::default()
    };
    let refused = master(&service, Some(&reader)).create_policy(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("lacks the scope schedule:write"), "{refused}");
    master(&service, Some(&writer)).create_policy(request).await.unwrap();
    master(&service, Some(&reader)).get_policy(get(&policy_name("p"))).await.unwrap();

    // Nobody, and keys that are none.
    let forged = format!("tgk_{}_{}", id(&admin), "0".repeat(64));
    let unknown = format!("tgk_0123456789abcdef_{}", "0".repeat(64));
    for header in [
        None,
        Some(format!("Bearer {forged}")),
        Some(format!("Bearer {unknown}")),
        Some(format!("Basic {admin}")),
        Some(admin.clone()),
    ] {
        let wire = wire(service.channel(), header.as_deref());
        let mut master =
            tollgate_proto::v1::schedule_master_service_client::ScheduleMasterServiceClient::new(wire);
        let answer = master.get_policy(get(&policy_name("p"))).await;
        assert_eq!(code(&answer), Code::Unauthenticated, "{header:?}");
        let text = answer.unwrap_err().to_string();
        assert!(!text.contains(&"0".repeat(64)), "the key is repeated: {text}");
    }
    let path = format!("/v1/{}", policy_name("p"));
    assert_eq!(rest(service.url(), "GET", &path, Some(&reader)).0, 200);
    for key in [None, Some(forged.as_str()), Some("x")] {
        let (status, body) = rest(service.url(), "GET", &path, key);
        assert_eq!((status, &body["code"]), (401, &Value::from(16)), "{body}");
    }
    assert_eq!(rest(service.url(), "POST", &format!("{path}:pause"), Some(&reader)).0, 403);
    assert_eq!(rest(service.url(), "POST", &format!("{path}:pause"), Some(&writer)).0, 200);

    // What is about all namespaces.
    let pause = PauseDispatchRequest::default();
    for (key, expected) in
        [(&reader, Code::PermissionDenied), (&other, Code::PermissionDenied), (&admin, Code::Ok)]
    {
        let answer = handler(&service, Some(key)).pause_dispatch(pause.clone()).await;
        assert_eq!(code(&answer), expected, "{answer:?}");
    }
    foreign(&service, &other).await;
    Box::pin(streams(&service, &other, &writer)).await;
    the_log_has_the_key_s_name(&service, &admin).await;
    service.stop().await;
}

/// Every path of REST with a namespace: the key of another one gets one answer, whether there is something or not.
async fn foreign(service: &Service, other: &str) {
    for existing in ["p", "q"] {
        let answer = master(service, Some(other)).get_policy(get(&policy_name(existing))).await.unwrap_err();
        assert_eq!(answer.code(), Code::PermissionDenied);
        assert!(answer.message().ends_with("reaches the namespace other only"), "{answer}");
        let request = PausePolicyRequest { name: policy_name(existing), ..PausePolicyRequest::default() };
        let paused = master(service, Some(other)).pause_policy(request).await.unwrap_err();
        assert_eq!((paused.code(), paused.message()), (answer.code(), answer.message()));
    }
    let (_, document) = curl(&[&format!("{}/openapi.json", service.url())]);
    let document: Value = serde_json::from_str(&document).unwrap();
    let mut seen = 0;
    for (template, verbs) in document["paths"].as_object().unwrap() {
        if !template.contains("namespaces/") {
            continue;
        }
        for verb in verbs.as_object().unwrap().keys().filter(|verb| *verb != "parameters") {
            // Consumers have a token, not a namespace; a forged one is told so.
            if template.ends_with(":release") || template.ends_with(":extend") {
                continue;
            }
            let path = filled(template);
            let (status, body) = rest(service.url(), &verb.to_uppercase(), &path, Some(other));
            let message = body["message"].as_str().unwrap_or_default();
            assert_eq!(status, 403, "{verb} {path}: {body}");
            assert!(message.ends_with("reaches the namespace other only"), "{verb} {path}: {body}");
            seen += 1;
        }
    }
    assert!(seen >= 25, "only {seen} paths have a namespace");
}

/// A path whose namespace is `default`, and whose other parts are something.
fn filled(template: &str) -> String {
    let mut path = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap();
        path.push_str(before);
        path.push_str(if before.ends_with("namespaces/") { "default" } else { part(name) });
        rest = after;
    }
    path + rest
}

fn part(name: &str) -> &'static str {
    if name.contains("run") { "1f-00000000000000000000000000000000" } else { "p" }
}

/// A stream with one foreign message writes nothing at all.
async fn streams(service: &Service, other: &str, writer: &str) {
    let apply = |namespace: &str, name: &str| ApplyResourcesRequest {
        namespace: namespace.to_owned(),
        resource: Some(Resource::Policy(Policy { name: name.to_owned(), ..policy(1) })),
        ..ApplyResourcesRequest::default()
    };
    for foreign in [apply("default", "b"), apply("", &policy_name("b")), apply("other", &policy_name("b"))] {
        let stream = tokio_stream::iter([apply("other", "a"), foreign]);
        let answer = Box::pin(master(service, Some(other)).apply_resources(stream)).await;
        assert_eq!(code(&answer), Code::PermissionDenied, "{answer:?}");
    }
    let list =
        ListPoliciesRequest { parent: "namespaces/other".to_owned(), ..ListPoliciesRequest::default() };
    let policies = master(service, Some(other)).list_policies(list).await.unwrap().into_inner().policies;
    assert!(policies.is_empty(), "{policies:?}");
    let stream = tokio_stream::iter([apply("default", "b")]);
    master(service, Some(writer)).apply_resources(stream).await.unwrap();
    let stream = tokio_stream::iter([apply("default", "b")]);
    assert_eq!(code(&master(service, None).apply_resources(stream).await), Code::Unauthenticated);
}

/// Callers call themselves root; the log says whose key it was.
async fn the_log_has_the_key_s_name(service: &Service, admin: &str) {
    let request = ListAuditEntriesRequest { parent: PARENT.to_owned(), ..ListAuditEntriesRequest::default() };
    let entries = master(service, Some(admin)).list_audit_entries(request).await.unwrap().into_inner();
    let by: Vec<(&str, &str)> = entries
        .audit_entries
        .iter()
        .filter(|entry| entry.resource.contains("/policies/"))
        .map(|entry| (entry.action.as_str(), entry.actor.as_str()))
        .collect();
    assert_eq!(by, [("create", "ci/root"), ("pause", "ci/root"), ("create", "ci/root")]);
    let keys: Vec<&str> = entries
        .audit_entries
        .iter()
        .filter(|entry| entry.resource.starts_with("keys/"))
        .map(|entry| entry.resource.as_str())
        .collect();
    assert_eq!(keys, ["keys/ci", "keys/viewer"], "keys that were made stand there, too");
}

async fn keys_begin_and_end(kind: Kind) {
    let database = Database::new(kind).await;
    let first = key(&database, "ci", "read", Some("default"));
    let service = guarded(&database).await;
    let cli = |key: &str| Cli::new(service.url()).run(&["get", "policies", "--api-key", key]);
    assert_eq!(cli(&first).code, 0, "{:?}", cli(&first));
    let none = Cli::new(service.url()).run(&["get", "policies"]);
    assert_eq!(none.code, 1);
    assert!(none.err.contains("TOLLGATE_API_KEY"), "{none:?}");
    assert_eq!(Cli::new(service.url()).run(&["ping"]).code, 0, "whoever restarts it has no key");

    // Rotation: a second key, then the first one ends.
    let second = key(&database, "ci", "read", Some("default"));
    let third = key_command(&database, &["create", "ci", "--scopes", "read", "--namespace", "default"]);
    assert_eq!(third.code, 1);
    assert!(third.err.contains("2 live keys") && third.err.contains(id(&first)), "{third:?}");
    let elsewhere = key_command(&database, &["create", "ci", "--scopes", "read", "--all-namespaces"]);
    assert_eq!(elsewhere.code, 1, "{elsewhere:?}");
    known(&service, &second).await;
    assert_eq!((cli(&first).code, cli(&second).code), (0, 0));
    assert_eq!(key_command(&database, &["revoke", id(&first)]).code, 0);
    wait_for("the revocation", 5, async || (cli(&first).code == 1).then_some(())).await;
    assert_eq!(cli(&second).code, 0);
    assert_eq!(key_command(&database, &["revoke", "0123456789abcdef"]).code, 1);

    // A key that ends by itself.
    let made = Instant::now();
    let short = key_command(
        &database,
        &["create", "brief", "--scopes", "read", "--namespace", "default", "--expires-in", "20s"],
    );
    let short = short.out.trim().to_owned();
    known(&service, &short).await;
    let request = GetScheduleRequest { name: format!("{PARENT}/schedules/none") };
    let answer = master(&service, Some(&short)).get_schedule(request.clone()).await;
    assert_eq!(code(&answer), Code::NotFound, "{answer:?}");
    wait_for("its end", 30, async || {
        let answer = master(&service, Some(&short)).get_schedule(request.clone()).await;
        (code(&answer) == Code::Unauthenticated).then_some(())
    })
    .await;
    assert!(made.elapsed() >= Duration::from_secs(20), "before its time");

    let listed = key_command(&database, &["list", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let states: Vec<(&str, &str)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (key["name"].as_str().unwrap(), key["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [("brief", "EXPIRED"), ("ci", "REVOKED"), ("ci", "LIVE")]);
    let text = listed.to_string() + &service.log();
    for key in [&first, &second, &short] {
        let (_, secret) = key.rsplit_once('_').unwrap();
        assert!(!text.contains(secret), "a secret is shown again");
    }
    service.stop().await;
}
