//! What the documents in `docs/` say of the tests is so.

use std::path::Path;

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
