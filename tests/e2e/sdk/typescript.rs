//! The worker loop for TypeScript: the example of `sdk/typescript` in the package that npm makes of it, and its own tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The version that the package's lock file has.
const AWS: &str = "@aws-sdk/client-sqs@3.1175.0";

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/typescript")
}

fn npm(folder: &Path, arguments: &[&str]) -> String {
    let mut npm = Command::new("npm");
    npm.args(arguments).args(["--no-audit", "--no-fund", "--loglevel", "error"]).current_dir(folder);
    let output = npm.output().unwrap_or_else(|error| panic!("npm: {error}. Run the tests with ./tests/run"));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "npm {}: {out}{err}", arguments.join(" "));
    out
}

/// A folder into which npm has installed the package, as it packs it, and the client of SQS beside it.
fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let folder = super::folder("sdk-typescript");
        fs::write(folder.join("package.json"), r#"{"private": true, "type": "module"}"#).unwrap();
        npm(&package(), &["test"]);
        let packed = npm(&package(), &["pack", "--pack-destination", folder.to_str().unwrap()]);
        let name = packed.lines().last().unwrap().trim().to_owned();
        npm(&folder, &["install", &format!("./{name}"), AWS, "--prefer-offline"]);
        folder
    })
}

fn resize() -> Command {
    let mut program = Command::new("node");
    program.arg(installed().join("node_modules/@tollgate/worker/examples/resize.js"));
    program
}

#[test]
fn its_own_tests_pass_and_it_is_installed_with_its_types() {
    let installed = installed().join("node_modules/@tollgate/worker");
    assert!(installed.join("dist/index.d.ts").exists(), "the package has no types");
    assert!(!installed.join("node_modules").exists(), "it needs packages of its own");
}

works! { resize:
    it_works_by_http_and_stops_in_order works_and_stops Postgres Http;
    it_works_by_sqs_and_stops_in_order works_and_stops Sqlite Sqs;
    it_works_by_pull_and_stops_in_order works_and_stops Sqlite Pull;
    by_http_it_outlives_the_server outlives_the_server Sqlite Http;
    by_pull_it_outlives_the_server outlives_the_server Postgres Pull;
    its_heartbeats_keep_tokens keeps_its_tokens Sqlite Pull;
    by_pull_it_works_without_tokens works_without_tokens Sqlite Pull;
    by_sqs_it_outlives_the_server outlives_the_server Postgres Sqs;
    by_sqs_it_works_without_tokens works_without_tokens Sqlite Sqs;
}
