//! The worker loop for Python: `sdk/python/examples/resize.py` over the package that its own tool builds, and its own tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn python() -> String {
    std::env::var("TOLLGATE_TEST_PYTHON")
        .expect("TOLLGATE_TEST_PYTHON is not set. Run the tests with ./tests/run")
}

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/python")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let words = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{command:?}: {words}");
    output
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (name, path) = (entry.file_name(), entry.path());
        match path.is_dir() {
            true if name == "__pycache__" => {}
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// The folder into which pip has installed the package that it has built.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = super::folder("sdk-python");
        // The build leaves its marks beside what it builds.
        let [source, wheels, site] = ["source", "wheels", "site"].map(|part| folder.join(part));
        copy(&package(), &source);
        let pip = || {
            let mut pip = Command::new(python());
            pip.args(["-m", "pip", "--disable-pip-version-check", "--quiet"]);
            pip
        };
        run(pip()
            .args(["wheel", "--no-build-isolation", "--no-deps", "--wheel-dir"])
            .args([&wheels, &source]));
        let wheel = wheels.join("tollgate_worker-0.1.0-py3-none-any.whl");
        run(pip().args(["install", "--no-deps", "--no-index", "--target"]).args([&site, &wheel]));
        assert!(site.join("tollgate_worker/py.typed").exists(), "the package has no types");
        site
    })
}

/// A program over the package.
pub(super) fn program(program: &Path) -> Command {
    let mut python = Command::new(python());
    python.arg(program).env("PYTHONPATH", installed());
    python
}

fn resize() -> Command {
    program(&package().join("examples/resize.py"))
}

#[test]
fn its_own_tests_pass_and_mypy_finds_nothing() {
    let tests = ["-m", "unittest", "discover", "--start-directory", "tests"];
    run(Command::new(python()).args(tests).current_dir(package()).env("PYTHONPATH", "src"));
    let cache = tempfile::tempdir().unwrap();
    run(Command::new(python()).args(["-m", "mypy", "--cache-dir"]).arg(cache.path()).current_dir(package()));
}

works! { resize:
    it_works_by_http_and_stops_in_order works_and_stops Sqlite Http;
    it_works_by_sqs_and_stops_in_order works_and_stops Sqlite Sqs;
    it_works_by_pull_and_stops_in_order works_and_stops Postgres Pull;
    by_http_it_outlives_the_server outlives_the_server Postgres Http;
    by_pull_it_outlives_the_server outlives_the_server Sqlite Pull;
    its_heartbeats_keep_tokens keeps_its_tokens Sqlite Pull;
    by_pull_it_works_without_tokens works_without_tokens Sqlite Pull;
    by_sqs_it_outlives_the_server outlives_the_server Sqlite Sqs;
    by_sqs_it_works_without_tokens works_without_tokens Postgres Sqs;
}
