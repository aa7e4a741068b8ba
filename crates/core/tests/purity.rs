//! The core stays pure: its dependencies are from a short list, none of which does IO.

#![expect(clippy::unwrap_used, reason = "tests")]

/// Crates that compute and do nothing else. `chrono` has a clock; `.clippy.toml` bans it.
const ALLOWED: [&str; 8] = ["base64", "chrono", "chrono-tz", "hmac", "serde", "sha2", "thiserror", "uuid"];

#[test]
fn dependencies_are_from_the_list() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let text = std::fs::read_to_string(manifest).unwrap();
    let mut section = "";
    let mut seen = 0;
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            assert!(!section.starts_with("dependencies."), "{section}: write dependencies on one line");
            assert!(!section.contains("target."), "{section}: the core is the same on every platform");
            assert_ne!(section, "build-dependencies");
        } else if section == "dependencies" {
            let name = line.split(['.', '=', ' ']).next().unwrap();
            assert!(ALLOWED.contains(&name), "{name} is not in the core's list: {ALLOWED:?}");
            seen += 1;
        }
    }
    assert!(seen > 0, "no dependencies found in {manifest}");
}
