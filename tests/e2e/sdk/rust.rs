//! The worker loop for Rust: `sdk/rust/examples/resize.rs`.

use std::path::Path;
use std::process::Command;

/// Beside the folder of this test's own program.
fn resize() -> Command {
    let own = std::env::current_exe().unwrap();
    let example = own.parent().and_then(Path::parent).unwrap().join("examples/resize");
    assert!(example.exists(), "{} is missing: cargo build --workspace --examples", example.display());
    Command::new(example)
}

/// As a file for a registry it needs nothing of this workspace, and its manifest can be read by itself.
#[test]
fn it_is_packaged_by_itself() {
    let to = super::folder("sdk-rust");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = |folder: &Path, arguments: &[&str]| {
        let cargo = Command::new(env!("CARGO")).args(arguments).current_dir(folder).output().unwrap();
        assert!(cargo.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&cargo.stderr));
        cargo.stdout
    };
    let target = to.to_str().unwrap();
    let package =
        ["package", "-p", "tollgate-worker", "--no-verify", "--allow-dirty", "--locked", "--offline"];
    cargo(&root, &[&package[..], &["--target-dir", target]].concat());
    let name = concat!("tollgate-worker-", env!("CARGO_PKG_VERSION"));
    let file = to.join("package").join(format!("{name}.crate"));
    // Beside the workspace, not in it: nothing around it may complete it.
    let apart = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(apart.path()).status().unwrap();
    assert!(unpacked.success(), "{}", file.display());
    let apart = apart.path().join(name);
    let known = cargo(&apart, &["metadata", "--format-version", "1", "--no-deps", "--offline"]);
    let known: serde_json::Value = serde_json::from_slice(&known).unwrap();
    let package = &known["packages"][0];
    assert_eq!(
        (&package["name"], &package["features"]["sqs"][0]),
        (&"tollgate-worker".into(), &"dep:aws-sdk-sqs".into())
    );
    let own = package["dependencies"].as_array().unwrap().iter();
    let paths: Vec<_> = own.filter(|needed| !needed["path"].is_null()).collect();
    assert!(paths.is_empty(), "{paths:?}");
    assert!(apart.join("README.md").exists() && apart.join("src/lib.rs").exists());
}

works! { resize:
    it_works_by_http_and_stops_in_order works_and_stops Sqlite Http;
    it_works_by_sqs_and_stops_in_order works_and_stops Postgres Sqs;
    it_works_by_pull_and_stops_in_order works_and_stops Postgres Pull;
    by_http_it_outlives_the_server outlives_the_server Postgres Http;
    by_pull_it_outlives_the_server outlives_the_server Sqlite Pull;
    its_heartbeats_keep_tokens keeps_its_tokens Sqlite Pull;
    by_pull_it_works_without_tokens works_without_tokens Sqlite Pull;
    by_sqs_it_works_without_tokens works_without_tokens Sqlite Sqs;
    by_sqs_it_outlives_the_server outlives_the_server Sqlite Sqs;
}
