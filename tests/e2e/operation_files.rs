//! Dashboard, alert rules, Kubernetes manifests and the systemd unit load, and name only what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tollgate_harness::{Cli, Commands, Database, FREE_PORT, Kind, Serve, Service, binary, wait_for};

use crate::metrics::{names, page};

const UNIT: &str = include_str!("../../docker/tollgate.service");

fn docker() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docker")
}

fn text(path: &str) -> String {
    let path = docker().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every value under this key, however deep.
fn under<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| under(one, key, found)),
        Value::Object(all) => {
            for (name, one) in all {
                if name == key {
                    found.push(one);
                }
                under(one, key, found);
            }
        }
        _ => {}
    }
}

fn all_under(value: &Value, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    under(value, key, &mut found);
    found.into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The metrics that an expression asks for, without the suffixes of histograms.
fn asked_for(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("tollgate_") || word.starts_with("process_"));
    let family = |word: &str| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| word.strip_suffix(suffix))
            .unwrap_or(word)
            .to_owned()
    };
    ours.map(family).collect()
}

/// Runs a program that must be there and be content.
///
/// # Panics
/// Where it is missing, and where it is not content.
fn content(command: &mut Command) -> String {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; ./tests/run provides it"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    format!("{out}{err}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_and_alerts_ask_for_metrics_that_exist() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let known = wait_for("an emitter that has looked", 10, async || {
        let names = names(&service).await;
        names.contains("tollgate_emitter_lag_seconds").then_some(names)
    })
    .await;
    // Those of `tollgate commands` are in the documents, where another test holds them to the code.
    let documented = std::fs::read_to_string(docker().join("../docs/metrics.md")).unwrap();
    let of_commands = documented.split('`').filter(|word| word.starts_with("tollgate_commands"));
    let known: BTreeSet<String> =
        known.into_iter().chain(of_commands.map(|word| word.split('{').next().unwrap().to_owned())).collect();
    let dashboard: Value = serde_json::from_str(&text("grafana/dashboards/tollgate.json")).unwrap();
    for (file, value, at_least) in
        [("dashboard", &dashboard, 25), ("alerts.yml", &yaml("prometheus/alerts.yml"), 22)]
    {
        let expressions = all_under(value, "expr");
        assert!(expressions.len() >= at_least, "{file} has {} expressions", expressions.len());
        for expression in expressions {
            let asked = asked_for(&expression);
            assert!(!asked.is_empty(), "{file}: {expression} asks for nothing of ours");
            let unknown: Vec<_> = asked.difference(&known).collect();
            assert!(unknown.is_empty(), "{file}: {expression} asks for {unknown:?}, which no process shows");
        }
    }
    let metrics = page(&service, "/metrics", "text/plain").await.body;
    promtool(&metrics);
    service.stop().await;
}

/// promtool reads the files and a scrape.
fn promtool(metrics: &str) {
    let promtool = || Command::new("promtool");
    for (command, file) in [("rules", "prometheus/alerts.yml"), ("config", "prometheus/prometheus.yml")] {
        content(promtool().args(["check", command]).arg(docker().join(file)));
    }
    // The rules fire when they should, and only then.
    content(promtool().args(["test", "rules"]).arg(docker().join("prometheus/alerts_test.yml")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("metrics");
    std::fs::write(&file, metrics).unwrap();
    content(promtool().args(["check", "metrics"]).stdin(std::fs::File::open(&file).unwrap()));
}

#[test]
fn every_panel_has_a_place_of_its_own() {
    let dashboard: Value = serde_json::from_str(&text("grafana/dashboards/tollgate.json")).unwrap();
    let mut taken = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                let other = taken.insert((x, y), panel["title"].clone());
                assert_eq!(other, None, "{} lies over it", panel["title"]);
            }
        }
    }
}

#[test]
fn what_compose_mounts_is_there() {
    let compose = yaml("compose.yaml");
    for name in ["prometheus", "grafana", "commands"] {
        let service = &compose["services"][name];
        let mounts: Vec<&str> =
            service["volumes"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
        for mount in mounts {
            let (from, _) = mount.split_once(':').unwrap();
            let exists = if from.starts_with('.') {
                docker().join(from).is_dir()
            } else {
                compose["volumes"].as_object().unwrap().contains_key(from)
            };
            assert!(exists, "{name} mounts {mount}");
        }
        for port in service["ports"].as_array().unwrap() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name} is open to the world: {port}");
        }
    }
    // Prometheus scrapes every service that runs the binary.
    let scrapes = yaml("prometheus/prometheus.yml")["scrape_configs"].clone();
    let targets = scrapes[0]["static_configs"][0]["targets"].as_array().unwrap();
    let services = compose["services"].as_object().unwrap().iter();
    let ours = services.filter(|(_, service)| service["environment"]["TOLLGATE_ROLES"].is_string());
    let ours: BTreeSet<String> = ours.map(|(name, _)| format!("{name}:7411")).collect();
    assert_eq!(targets.iter().map(|t| t.as_str().unwrap().to_owned()).collect::<BTreeSet<_>>(), ours);
    // And the one that is optional, where its name is known.
    let (found, commands) = (&scrapes[1]["dns_sd_configs"][0], &compose["services"]["commands"]);
    assert_eq!((&found["names"], &found["type"]), (&json!(["commands"]), &json!("A")));
    let listens = commands["environment"]["TOLLGATE_LISTEN_METRICS"].as_str().unwrap();
    assert_eq!(listens, format!("0.0.0.0:{}", found["port"]));
    // Grafana finds data source and dashboard.
    let source = yaml("grafana/provisioning/datasources/prometheus.yaml");
    assert_eq!(source["datasources"][0]["url"], "http://prometheus:9090");
    let provider = yaml("grafana/provisioning/dashboards/tollgate.yaml");
    let folder = provider["providers"][0]["options"]["path"].as_str().unwrap().to_owned();
    let mounted = all_under(&compose["services"]["grafana"], "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH");
    assert_eq!(mounted, [format!("{folder}/tollgate.json")]);
}

/// Variables that are set, from a manifest's maps and lists.
fn variables(words: &str) -> BTreeSet<String> {
    let code = words.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    words.filter(|word| word.starts_with("TOLLGATE_")).map(str::to_owned).collect()
}

#[test]
fn manifests_and_unit_set_only_what_exists() {
    let settings = Cli::new("http://127.0.0.1:1").json(&["config"]);
    let rows = settings.as_array().unwrap().iter();
    let mut known: BTreeSet<String> = rows.map(|row| row["variable"].as_str().unwrap().to_owned()).collect();
    // No settings, as `tollgate config` shows what settings are; those of clients.
    let others = ["TOLLGATE_SECRET_KEYS", "TOLLGATE_SERVER", "TOLLGATE_API_KEY", "TOLLGATE_LISTEN_METRICS"];
    known.extend(others.map(str::to_owned));
    let files =
        ["kubernetes/config.yaml", "kubernetes/deployment.yaml", "kubernetes/commands/deployment.yaml"];
    for file in files.into_iter().chain(["tollgate.service"]) {
        let set = variables(&text(file));
        assert!(!set.is_empty(), "{file} sets nothing: the search is wrong");
        let unknown: Vec<_> = set.difference(&known).collect();
        assert!(unknown.is_empty(), "{file} sets {unknown:?}, which nothing reads");
    }
    let config = yaml("kubernetes/config.yaml");
    let data = config["data"].as_object().unwrap().iter();
    let environment: BTreeMap<&str, &str> =
        data.map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
    let output = Command::new(binary()).args(["config", "-o", "json"]).envs(&environment).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Flags and commands in comments, unit and manifests are ones that the binary takes.
#[test]
fn commands_in_the_files_are_commands_of_the_binary() {
    let kustomizations = ["kubernetes/kustomization.yaml", "kubernetes/commands/kustomization.yaml"];
    let files = ["compose.yaml", "Dockerfile", "tollgate.service"].into_iter().chain(kustomizations);
    let mut seen = BTreeSet::new();
    for file in files {
        for line in text(file).lines() {
            let words: Vec<&str> = line
                .split(|c: char| c.is_whitespace() || "[]\",'".contains(c))
                .filter(|word| !word.is_empty())
                .collect();
            for (at, word) in words.iter().enumerate() {
                // `tollgate` as a program: what follows is a word of lower-case letters.
                let Some(command) = words.get(at + 1).filter(|_| word.rsplit('/').next() == Some("tollgate"))
                else {
                    continue;
                };
                if !["serve", "ping", "status", "get", "key", "secrets", "apply"].contains(command) {
                    continue;
                }
                let second = words.get(at + 2).filter(|_| ["key", "secrets"].contains(command));
                let path: Vec<&str> = [Some(command), second].into_iter().flatten().copied().collect();
                let help = Command::new(binary()).args(&path).arg("--help").output().unwrap();
                assert!(help.status.success(), "{file}: tollgate {}: no such command", path.join(" "));
                let help = String::from_utf8_lossy(&help.stdout).into_owned();
                let flags = words.iter().skip(at + 2).take_while(|word| !["&&", ">", "--"].contains(word));
                for flag in flags.filter(|word| word.starts_with("--")) {
                    assert!(help.contains(flag), "{file}: tollgate {} has no {flag}", path.join(" "));
                }
                seen.insert((*command).to_owned());
            }
        }
    }
    for command in ["serve", "ping", "key", "secrets"] {
        assert!(seen.contains(command), "no `tollgate {command}` was found: the search is wrong");
    }
}

/// What no pod is without: little that it may do, time to stop, and bounds of what it takes.
fn is_confined(pod: &Value) {
    let container = &pod["spec"]["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(
        (&security["readOnlyRootFilesystem"], &security["allowPrivilegeEscalation"]),
        (&true.into(), &false.into())
    );
    assert_eq!(security["capabilities"]["drop"][0], "ALL");
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
    assert!(pod["spec"]["securityContext"]["runAsUser"].as_u64().unwrap() > 0);
    assert!(
        pod["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap() >= 20,
        "less than a stop may take"
    );
    assert!(
        container["resources"]["requests"]["cpu"].is_string()
            && container["resources"]["limits"]["memory"].is_string()
    );
}

/// Secrets come from secrets that the head tells how to make.
fn secrets_are_told(container: &Value, file: &str) {
    let head = text(file);
    let environment = container["env"].as_array().unwrap();
    for secret in environment.iter().filter_map(|one| one["valueFrom"]["secretKeyRef"]["name"].as_str()) {
        assert!(head.contains(&format!("secret generic {secret} ")), "nobody is told of {secret}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_hold_together() {
    let database = Database::new(Kind::Sqlite).await;
    let service = Service::start(&database).await;
    let deployment = yaml("kubernetes/deployment.yaml");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(get["port"], container["ports"][0]["name"], "{probe}");
        let path = get["path"].as_str().unwrap();
        wait_for(path, 10, async || (page(&service, path, "*/*").await.status == 200).then_some(())).await;
    }
    // A database that is away must not have the process ended.
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    let metrics = pod["metadata"]["annotations"]["prometheus.io/path"].as_str().unwrap();
    assert_eq!(page(&service, metrics, "*/*").await.status, 200);
    service.stop().await;

    is_confined(pod);
    secrets_are_told(container, "kubernetes/kustomization.yaml");
    // All select the same pods.
    let labels = &pod["metadata"]["labels"];
    let (balancer, disruption) = (yaml("kubernetes/service.yaml"), yaml("kubernetes/disruption.yaml"));
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(&balancer["spec"]["selector"], labels);
    assert_eq!(&disruption["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(balancer["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    assert!(
        disruption["spec"]["maxUnavailable"].as_u64().unwrap()
            < deployment["spec"]["replicas"].as_u64().unwrap()
    );
    // Everything in the folder is applied.
    let listed: BTreeSet<String> = yaml("kubernetes/kustomization.yaml")["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r.as_str().unwrap().to_owned())
        .collect();
    let entries = std::fs::read_dir(docker().join("kubernetes")).unwrap().map(Result::unwrap);
    // What is optional is in folders.
    let files = entries.filter(|entry| entry.path().is_file());
    let mut files: BTreeSet<String> = files.map(|file| file.file_name().into_string().unwrap()).collect();
    assert!(files.remove("kustomization.yaml"));
    assert_eq!(listed, files);
    let made = content(Command::new("kubectl").arg("kustomize").arg(docker().join("kubernetes")));
    assert!(made.contains("kind: Deployment"), "{made}");
}

/// `tollgate commands`, which is optional in both: its file is good, what starts it is taken by the binary, and its probes are
/// pages that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_of_commands_starts_as_the_files_start_it() {
    let deployment = yaml("kubernetes/commands/deployment.yaml");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let compose = yaml("compose.yaml");
    let service = &compose["services"]["commands"];
    let words = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    for (arguments, file) in [
        (words(&container["args"]), "kubernetes/commands/commands.yaml"),
        (words(&service["command"]), "commands/commands.yaml"),
    ] {
        let [command, flag, mounted]: [String; 3] = arguments.try_into().unwrap();
        assert_eq!(mounted, "/etc/tollgate/commands.yaml");
        content(Command::new(binary()).args([command, flag]).arg(docker().join(file)).arg("--check"));
    }
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/tollgate");
    assert_eq!(container["volumeMounts"][0]["name"], pod["spec"]["volumes"][0]["name"]);
    assert_eq!(words(&service["volumes"]), ["./commands:/etc/tollgate:ro"]);
    assert_eq!(words(&service["profiles"]), ["commands"], "who does not ask for it does not get it");

    // Probes and scrapes ask for pages that it has, at the port at which it listens.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("commands.yaml");
    std::fs::write(&file, text("commands/commands.yaml").replace("http://sqs:5000", "http://127.0.0.1:9"))
        .unwrap();
    let commands = Commands::start(&file, "http://127.0.0.1:9", &["--listen-metrics", "127.0.0.1:0"]);
    let metrics = commands.metrics().await;
    let base = metrics.strip_suffix("/metrics").unwrap();
    let annotations = &pod["metadata"]["annotations"];
    let probes =
        ["startupProbe", "livenessProbe", "readinessProbe"].map(|probe| &container[probe]["httpGet"]);
    for probe in probes {
        assert_eq!(probe["port"], container["ports"][0]["name"]);
    }
    let paths = probes.map(|probe| &probe["path"]);
    for path in paths.into_iter().chain([&annotations["prometheus.io/path"]]) {
        content(Command::new("curl").args(["-sf", &format!("{base}{}", path.as_str().unwrap())]));
    }
    commands.stop().await;
    assert_eq!(paths[1], "/livez", "a service that is away must not have the process ended");
    let environment = container["env"].as_array().unwrap();
    let listens = environment.iter().find(|one| one["name"] == "TOLLGATE_LISTEN_METRICS").unwrap();
    let port = &container["ports"][0]["containerPort"];
    assert_eq!(listens["value"], format!("0.0.0.0:{port}"));
    assert_eq!(annotations["prometheus.io/port"], port.to_string());
}

#[test]
fn manifests_of_commands_hold_together() {
    let deployment = yaml("kubernetes/commands/deployment.yaml");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    is_confined(pod);
    secrets_are_told(container, "kubernetes/commands/kustomization.yaml");
    let labels = &pod["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    let balancer = yaml("kubernetes/service.yaml");
    assert_ne!(&balancer["spec"]["selector"], labels, "no caller of the service gets there");
    // It asks the service of the other manifests.
    let environment = container["env"].as_array().unwrap();
    let server = environment.iter().find(|one| one["name"] == "TOLLGATE_SERVER").unwrap();
    let (name, port) =
        (balancer["metadata"]["name"].as_str().unwrap(), &balancer["spec"]["ports"][0]["port"]);
    assert_eq!(server["value"], format!("http://{name}:{port}"));
    let made = content(Command::new("kubectl").arg("kustomize").arg(docker().join("kubernetes/commands")));
    assert!(made.contains("kind: Deployment") && made.contains("kind: ConfigMap"), "{made}");
    let map = made.lines().find_map(|line| line.trim().strip_prefix("name: tollgate-commands-")).unwrap();
    let mounted = format!("        name: tollgate-commands-{map}");
    assert!(made.contains(&mounted), "the map's name with its hash is not what is mounted: {made}");
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let start = UNIT.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let (program, arguments) = start.split_once(' ').unwrap();
    assert_eq!(arguments, "serve");
    // The program is where it was built, not where it would be installed.
    let unit = UNIT.replace(program, &binary().canonicalize().unwrap().display().to_string());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tollgate.service");
    std::fs::write(&file, unit).unwrap();
    let said = content(Command::new("systemd-analyze").arg("verify").arg(&file));
    assert!(!said.contains("tollgate.service"), "{said}");
    // At most 2.0 of 10.
    content(
        Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20"]).arg(&file),
    );
}

#[tokio::test]
async fn log_lines_are_json_objects_if_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("tollgate.db").display());
    let log = tempfile::NamedTempFile::new().unwrap();
    let serve = Serve::new(Command::new(binary()), &store, FREE_PORT);
    let serve = serve.flags(["--log-format", "json", "--log", "debug"]);
    let _running = serve.start(log.reopen().unwrap()).unwrap();
    let said = || std::fs::read_to_string(log.path()).unwrap();
    wait_for("that it listens", 30, async || said().contains("listening on http").then_some(())).await;
    let (mut lines, text) = (0, said());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for key in ["timestamp", "level", "target"] {
            assert!(line[key].is_string(), "no {key} in {line}");
        }
        lines += 1;
        let message = line["message"].as_str().unwrap_or_default();
        if message.starts_with("listening on http://127.0.0.1:") {
            assert_eq!((&line["level"], &line["target"]), (&"INFO".into(), &"tollgate::serve".into()));
            // It was told to say more than that.
            assert!(lines > 1);
            return;
        }
    }
    panic!("it ended after {lines} lines");
}
