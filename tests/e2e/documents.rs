//! What the documents in `docs/` say of the tests is so.

use std::path::Path;

use tollgate_tests::Cli;

/// The texts between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `docs/bounds.md` names a test for whatever is shared, and each of them is there.
#[test]
fn every_bound_has_its_test() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let text = std::fs::read_to_string(root.join("docs/bounds.md")).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() >= 10, "{rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [shared, _, bound, tests] = *cells else { panic!("four cells: {row}") };
        assert!(!bound.is_empty(), "{shared}: nothing bounds it");
        let mut count = 0;
        for (file, name) in quoted(tests).filter_map(|quoted| quoted.split_once("::")) {
            let source = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(source.contains(&format!("fn {name}(")), "{shared}: {file} has no {name}");
            count += 1;
        }
        assert!(count > 0, "{shared}: no test overfills it");
    }
}

/// Commands that the documents name are taken, and README, which other tests hold to the code, knows their metrics.
#[test]
fn commands_and_metrics_of_documents_are_there() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (cli, mut commands, mut metrics) = (Cli::new("http://127.0.0.1:9"), 0, 0);
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for quoted in text.lines().flat_map(quoted) {
            if quoted.starts_with("tollgate_") {
                assert!(readme.contains(quoted), "{}: there is no {quoted}", path.display());
                metrics += 1;
            } else if let Some(command) = quoted.strip_prefix("tollgate ") {
                let mut words = command.split(' ');
                let help = cli.ok(&[words.next().unwrap(), "--help"]);
                let kind = words.next().filter(|word| word.chars().all(char::is_lowercase));
                let known = kind.is_none_or(|kind| help.contains(&format!("- {kind}:")));
                assert!(known, "{}: `{quoted}` is no command", path.display());
                commands += 1;
            }
        }
    }
    assert!(commands >= 4 && metrics >= 4, "{commands}, {metrics}");
}
