//! The container files say only what the binary understands.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};
use tollgate_harness::{Cli, Database, Kind, Service, binary};

const DOCKERFILE: &str = include_str!("../../docker/Dockerfile");
const COMPOSE: &str = include_str!("../../docker/compose.yaml");
/// Variables of the client commands, and the one that names the file of settings.
const OTHER_VARIABLES: [&str; 7] = [
    "TOLLGATE_CONFIG",
    "TOLLGATE_SECRET_KEYS",
    "TOLLGATE_SERVER",
    "TOLLGATE_NAMESPACE",
    "TOLLGATE_ACTOR",
    "TOLLGATE_API_KEY",
    "TOLLGATE_LISTEN_METRICS",
];

#[test]
fn every_variable_is_a_setting() {
    let settings = Cli::new("http://127.0.0.1:1").json(&["config"]);
    let mut known: BTreeSet<String> =
        settings.as_array().unwrap().iter().map(|row| row["variable"].as_str().unwrap().to_owned()).collect();
    known.extend(OTHER_VARIABLES.map(str::to_owned));
    for (file, text) in [("Dockerfile", DOCKERFILE), ("compose.yaml", COMPOSE)] {
        let named = variables(text);
        assert!(named.len() > 1, "docker/{file} names no variable: the search is wrong");
        let unknown: Vec<&String> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "docker/{file} names {unknown:?}, which nothing reads");
    }
}

#[test]
fn every_service_is_configured_with_what_it_may_be_told() {
    let mut roles = BTreeSet::new();
    for (name, service) in tollgate_services() {
        let environment = environment(&service["environment"]);
        let output =
            Command::new(binary()).args(["config", "-o", "json"]).envs(&environment).output().unwrap();
        assert!(
            output.status.success(),
            "the environment of {name} is refused: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let settings: Value = serde_json::from_slice(&output.stdout).unwrap();
        for row in settings.as_array().unwrap() {
            if row["setting"] == "roles" {
                let played = row["value"].as_str().unwrap();
                assert!(roles.insert(played.to_owned()), "{name} plays {played} a second time");
            }
        }
        let advertised = &environment["TOLLGATE_ADVERTISE"];
        assert_eq!(*advertised, format!("http://{name}:7411"), "{name} advertises another service's name");
    }
    assert_eq!(roles, ["emitter", "handler", "master"].map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_checks_are_commands_that_a_healthy_process_answers() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let mut checks: Vec<Vec<String>> =
        tollgate_services().iter().map(|(_, service)| texts(&service["healthcheck"]["test"])).collect();
    let (_, of_image) = DOCKERFILE.split_once("HEALTHCHECK").unwrap();
    let (_, of_image) = of_image.split_once("CMD ").unwrap();
    checks.push(serde_json::from_str(of_image.lines().next().unwrap()).unwrap());
    assert_eq!(checks.len(), 4);
    for check in checks {
        let at = check.iter().position(|word| word.ends_with("tollgate")).unwrap();
        let words: Vec<&str> = check.iter().skip(at + 1).map(String::as_str).collect();
        Cli::new(service.url()).ok(&words);
        let gone = Cli::new("http://127.0.0.1:1").run(&words);
        assert_eq!(gone.code, 1, "{words:?} calls a process healthy that is not there: {gone:?}");
    }
    service.stop().await;
}

/// The words that begin with `TOLLGATE_`, without those of comments.
fn variables(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| word.starts_with("TOLLGATE_"))
        .map(str::to_owned)
        .collect()
}

/// The services that run the binary as a server, `<<` resolved.
fn tollgate_services() -> Vec<(String, Value)> {
    let compose: Value = serde_saphyr::from_str(COMPOSE).unwrap();
    let services = compose["services"].as_object().unwrap();
    services
        .iter()
        .map(|(name, service)| (name.clone(), merged(service)))
        .filter(|(_, service)| service["image"] == json!("tollgate") && service["profiles"].is_null())
        .collect()
}

/// A mapping with what `<<` brings in; its own keys win.
fn merged(value: &Value) -> Value {
    let Some(own) = value.as_object() else { return value.clone() };
    let mut all = own.get("<<").map(merged).and_then(|base| base.as_object().cloned()).unwrap_or_default();
    all.extend(own.iter().filter(|(key, _)| *key != "<<").map(|(key, value)| (key.clone(), merged(value))));
    Value::Object(all)
}

fn environment(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().unwrap();
    pairs.iter().map(|(key, value)| (key.clone(), interpolated(value.as_str().unwrap()))).collect()
}

/// `${NAME:-default}` becomes its default.
fn interpolated(text: &str) -> String {
    let Some((before, rest)) = text.split_once("${") else { return text.to_owned() };
    let (inside, after) = rest.split_once('}').unwrap();
    let (_, default) = inside.split_once(":-").unwrap();
    format!("{before}{default}{}", interpolated(after))
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}
