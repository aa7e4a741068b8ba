//! Links, anchors and paths of the documents lead somewhere.

use std::collections::BTreeSet;
use std::path::Path;

use super::{all, quoted, root};

/// Folders of which documents name files by their whole path.
const FOLDERS: [&str; 9] =
    ["crates", "services", "tests", "docs", "docker", "examples", "loadtest", "migrations", "proto"];

/// The lines of a text that are no code, each with the texts between backticks taken out.
fn prose(text: &str) -> Vec<String> {
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence && !line.starts_with("    ")
    });
    lines.map(|line| line.split('`').step_by(2).collect::<Vec<_>>().join("`")).collect()
}

/// What the links of a text lead to.
fn targets(text: &str) -> Vec<String> {
    let prose = prose(text);
    let links = prose.iter().flat_map(|line| line.split("](").skip(1));
    links.map(|rest| rest.split(')').next().unwrap_or_default().to_owned()).collect()
}

/// The anchors that GitHub gives a text's headings: lower case, blanks as hyphens, no punctuation; the second of the same
/// name ends with `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if in_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        // Of a link its text counts.
        let mut title = title.trim().to_owned();
        while let Some((before, rest)) = title.split_once("](") {
            let after = rest.split_once(')').map_or("", |(_, after)| after);
            title = format!("{}{after}", before.replacen('[', "", 1));
        }
        let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase();
        let again = (1..).map(|count| format!("{slug}-{count}"));
        let free = std::iter::once(slug.clone()).chain(again).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

#[test]
fn anchors_are_as_github_makes_them() {
    let text = "# A fail-over: what, of `x`?\n```\n# no heading\n```\n## Paths\n### [Two](x.md) words\n## Paths\n#none\n";
    let expected = ["a-fail-over-what-of-x", "paths", "paths-1", "two-words"];
    assert_eq!(anchors(text), expected.map(str::to_owned).into());
    assert_eq!(
        targets("a [b](c.md#d) `[e](f)` ![g](h.png)\n```\n[i](j)\n```\n    [k](l)\n"),
        ["c.md#d", "h.png"]
    );
}

#[test]
fn links_lead_to_files_and_headings() {
    let documents = all();
    let mut count = 0;
    for (path, text) in &documents {
        for target in targets(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) =
                target.split_once('#').map_or((&*target, None), |(file, at)| (file, Some(at)));
            let folder = root().join(path).parent().unwrap().to_owned();
            let found = if file.is_empty() { root().join(path) } else { folder.join(file) };
            assert!(found.exists(), "{path}: {target} leads nowhere");
            if let Some(anchor) = anchor {
                let text = std::fs::read_to_string(&found).unwrap();
                assert!(anchors(&text).contains(anchor), "{path}: {target}: no such heading");
            }
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

/// Files and folders that documents name in backticks, from the root of the checkout, are there.
#[test]
fn paths_that_are_named_are_there() {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let mut count = 0;
    for (path, text) in all() {
        for name in text.lines().flat_map(quoted) {
            let name = name.split("::").next().unwrap_or(name);
            let Some((folder, _)) = name.split_once('/') else { continue };
            if !FOLDERS.contains(&folder) || !name.chars().all(is_plain) {
                continue;
            }
            assert!(root().join(Path::new(name)).exists(), "{path}: there is no {name}");
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}
