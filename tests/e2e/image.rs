//! The image, as far as it goes without a container engine: hadolint and compose read the files, and the Dockerfile's steps
//! run as a script over a folder that stands for the image.
//!
//! What is not shown here: the base images, BuildKit's caches, the compiler's run itself (the tests' own build stands for
//! it; what it reads is compared with what the build's context holds).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tollgate_harness::process::Process;
use tollgate_harness::{Cli, binary, free_port, wait_for};

const DOCKERFILE: &str = include_str!("../../docker/Dockerfile");
const IGNORED: &str = include_str!("../../.dockerignore");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Runs a program that must be there and be content.
fn content(command: &mut Command) -> String {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; ./tests/run provides it"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {out}{err}");
    format!("{out}{err}")
}

#[test]
fn hadolint_has_nothing_to_say() {
    let said = content(Command::new("hadolint").arg("--no-color").arg(root().join("docker/Dockerfile")));
    assert_eq!(said, "");
}

#[test]
fn compose_reads_its_file() {
    let compose = |arguments: &[&str]| {
        let mut command = Command::new("docker-compose");
        content(command.arg("-f").arg(root().join("docker/compose.yaml")).args(arguments))
    };
    let services = compose(&["config", "--services"]);
    for service in ["master", "emitter", "handler", "postgres", "sqs", "prometheus", "grafana"] {
        assert!(services.lines().any(|line| line == service), "{service} is not in {services}");
    }
    assert!(
        !services.lines().any(|line| line == "commands"),
        "it is there for those who ask for it: {services}"
    );
    let services = compose(&["--profile", "commands", "config", "--services"]);
    assert!(services.lines().any(|line| line == "commands"), "{services}");
    assert_eq!(compose(&["--profile", "commands", "config", "--quiet"]), "");
    // Everything is interpolated, and nothing is doubtful.
    assert_eq!(compose(&["config", "--quiet"]), "");
}

/// An instruction and what follows it.
type Instruction = (String, String);

/// The stages of the Dockerfile: comments gone, lines joined.
fn stages() -> Vec<Vec<Instruction>> {
    let lines: Vec<&str> = DOCKERFILE.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let mut stages: Vec<Vec<Instruction>> = Vec::new();
    for line in joined.lines().filter(|line| !line.trim().is_empty()) {
        let (word, rest) = line.trim().split_once(' ').unwrap();
        let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
        if word == "FROM" {
            stages.push(Vec::new());
        }
        stages.last_mut().unwrap().push((word.to_owned(), rest));
    }
    stages
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Carries out the stage that builds: its RUN, in a shell, with this build's binary where cargo would put one.
fn build(stage: &[Instruction], folder: &Path) {
    let (sources, tools) = (folder.join("src"), folder.join("tools"));
    std::fs::create_dir_all(&sources).unwrap();
    std::fs::create_dir_all(&tools).unwrap();
    // It takes the one command that the Dockerfile may give, and answers with the tests' own build.
    let cargo = format!(
        "#!/bin/sh\n[ \"$*\" = 'build --release --locked -p tollgate' ] || {{ echo \"cargo $*\" >&2; exit 9; }}\n\
         mkdir -p target/release && cp '{}' target/release/tollgate\n",
        binary().display()
    );
    executable(&tools.join("cargo"), &cargo);
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut runs = 0;
    for (word, rest) in stage {
        match (word.as_str(), rest.as_str()) {
            ("FROM", image) => assert!(image.starts_with("rust:") && image.ends_with(" AS build"), "{image}"),
            ("WORKDIR", "/src") | ("COPY", ". .") | ("ARG", "FEATURES=") => {}
            ("RUN", command) => {
                let words = command.split(' ').skip_while(|word| word.starts_with("--mount="));
                let command = words.collect::<Vec<_>>().join(" ");
                let command = command.replace(" /out/", &format!(" {}/", folder.join("out").display()));
                let outside = |word: &&str| word.starts_with('/') && !Path::new(word).starts_with(folder);
                let outside: Vec<&str> = command.split(' ').filter(outside).collect();
                assert!(outside.is_empty(), "{command} would write to {outside:?}");
                content(Command::new("sh").args(["-euc", &command]).current_dir(&sources).env("PATH", &path));
                runs += 1;
            }
            other => panic!("the test does not know {other:?}"),
        }
    }
    assert_eq!(runs, 1);
}

/// What the last stage sets.
#[derive(Default)]
struct Image {
    environment: BTreeMap<String, String>,
    check: Vec<String>,
    command: Vec<String>,
}

/// Carries out the stage that goes out: copies, and notes what would be run.
fn image(stage: &[Instruction], folder: &Path) -> Image {
    let mut image = Image::default();
    let at = |below: &str, path: &str| folder.join(below).join(path.trim_start_matches('/'));
    for (word, rest) in stage {
        match word.as_str() {
            "FROM" => assert!(rest.ends_with(":nonroot"), "{rest} runs as root"),
            "COPY" => {
                let words: Vec<&str> = rest.split(' ').filter(|word| !word.starts_with("--")).collect();
                assert!(rest.contains("--from=build"), "{rest}");
                let (from, to) = (folder.join(words[0].trim_start_matches('/')), at("image", words[1]));
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                content(Command::new("cp").arg("-r").arg(from).arg(to));
            }
            "ENV" => image.environment.extend(
                rest.split(' ')
                    .map(|pair| pair.split_once('=').unwrap())
                    .map(|(k, v)| (k.to_owned(), v.to_owned())),
            ),
            "HEALTHCHECK" => image.check = serde_json::from_str(rest.split_once("CMD ").unwrap().1).unwrap(),
            "ENTRYPOINT" | "CMD" => image.command.extend(serde_json::from_str::<Vec<String>>(rest).unwrap()),
            "VOLUME" | "WORKDIR" => assert!(at("image", rest).is_dir(), "{rest} is not in the image"),
            "EXPOSE" => assert_eq!(rest, "7411"),
            other => panic!("the test does not know {other}"),
        }
    }
    image
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steps_of_the_dockerfile_make_something_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let stages = stages();
    assert_eq!(stages.len(), 2);
    build(&stages[0], folder.path());
    let image = image(&stages[1], folder.path());
    let inside = |path: &str| folder.path().join("image").join(path.trim_start_matches('/'));
    let port = free_port().unwrap();
    let server = format!("http://127.0.0.1:{port}");
    let mut process = Command::new(inside(&image.command[0]));
    process.args(&image.command[1..]).current_dir(inside("/var/lib/tollgate")).env_clear();
    for (name, value) in &image.environment {
        let store = format!("sqlite:{}/", inside("/var/lib/tollgate").display());
        process.env(name, value.replace("sqlite:/var/lib/tollgate/", &store));
    }
    assert!(image.environment["TOLLGATE_LISTEN"].ends_with(":7411"));
    // Another test may have the port, and nobody else is to reach it.
    process.env("TOLLGATE_LISTEN", format!("127.0.0.1:{port}"));
    let _running = Process::start(process.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let cli = Cli::new(&server);
    let check: Vec<&str> = image.check.iter().skip(1).map(String::as_str).collect();
    assert_eq!(image.check[0], image.command[0]);
    wait_for("a healthy container", 30, async || (cli.run(&check).code == 0).then_some(())).await;
    assert!(inside("/var/lib/tollgate/tollgate.db").exists(), "the volume holds the state");
}

/// Whether the build's context holds a path: the last line that fits decides.
fn in_context(path: &Path) -> bool {
    let text = path.to_str().unwrap();
    let fits = |pattern: &str| match pattern.strip_prefix("**/") {
        Some(name) => text.split('/').any(|part| match name.split_once('*') {
            Some((start, end)) => part.starts_with(start) && part.ends_with(end),
            None => part == name,
        }),
        None => match pattern.split_once("/**/") {
            Some((start, name)) => path.starts_with(start) && text.split('/').any(|part| part == name),
            None => pattern == "*" || path.starts_with(pattern),
        },
    };
    let rules = IGNORED.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rules.fold(true, |holds, rule| match rule.strip_prefix('!') {
        Some(pattern) if fits(pattern) => true,
        None if fits(rule) => false,
        _ => holds,
    })
}

#[test]
fn the_context_holds_what_the_build_reads() {
    // Beside the binary, cargo notes every file that went into it.
    let notes = binary().with_extension("d");
    let notes =
        std::fs::read_to_string(&notes).unwrap_or_else(|error| panic!("{}: {error}", notes.display()));
    let (_, read) = notes.split_once(": ").unwrap();
    let root = root();
    let ours = read.split_whitespace().filter_map(|file| Path::new(file).strip_prefix(&root).ok());
    let ours: Vec<&Path> = ours.filter(|file| !file.starts_with("target")).collect();
    assert!(ours.len() > 100, "{notes}");
    let missing: Vec<&&Path> = ours.iter().filter(|file| !in_context(file)).collect();
    assert!(missing.is_empty(), "the image cannot be built without {missing:?}");
    for kept_out in ["target/debug/tollgate", "target/x", ".git/config", "README.md", "tests/a.db"] {
        assert!(!in_context(Path::new(kept_out)), "{kept_out} is in the context");
    }
    for manifest in
        ["Cargo.toml", "Cargo.lock", "tests/Cargo.toml", "loadtest/Cargo.toml", "sdk/rust/Cargo.toml"]
    {
        assert!(in_context(Path::new(manifest)), "{manifest}");
    }
}
