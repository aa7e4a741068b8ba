//! The copy of the crate in which all bugs are planted, as a workspace of its own below the target folder.
//!
//! It has the profiles and the locked dependencies of this workspace, so that what is compiled of them already is used again. A
//! file that has not changed is not written, so that the copy is compiled again only if it is another one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::edit::{Planted, plant};

/// Which bug is on, per thread: each thread of the simulation plays a world of its own.
const SWITCH: &str = r#"//! Generated: which planted bug is on, per thread.

use std::cell::Cell;

thread_local! {
    static ON: Cell<usize> = const { Cell::new(0) };
}

pub fn turn_on(name: Option<&str>) {
    ON.set(name.map_or(0, |name| 1 + NAMES.iter().position(|known| *known == name).expect("a planted bug")));
}

pub(crate) fn is_on(number: usize) -> bool {
    ON.get() == number
}

"#;
/// What the simulation has in the place of `core_bugs.rs`.
const LINK: &str = "//! Generated: the planted bugs of the core.\n\npub(crate) use tollgate_core::planted::{NAMES, turn_on};\n";

/// Writes the copy; panics with every bug that does not fit.
pub(crate) fn write(bugs: &[Planted]) {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = core.ancestors().nth(2).unwrap();
    let mut sources = read(&core.join("src"));
    if let Err(errors) = plant(&mut sources, bugs) {
        panic!("these planted bugs do not fit the source any more:\n{errors}");
    }
    let names: Vec<_> = bugs.iter().map(|bug| bug.name).collect();
    sources.insert("planted.rs".into(), format!("{SWITCH}pub const NAMES: &[&str] = &{names:?};\n"));
    let lib = sources.get_mut("lib.rs").unwrap();
    *lib = format!("#![allow(warnings)]\n{lib}\npub mod planted;\n");

    let mut files = BTreeMap::new();
    files.extend(sources.into_iter().map(|(name, text)| (format!("crates/core/src/{name}"), text)));
    let tests = read(&core.join("tests")).into_iter().filter(|(name, _)| !name.starts_with("planted_bugs/"));
    files.extend(tests.map(|(name, text)| (format!("crates/core/tests/{name}"), text)));
    let link = files.insert("crates/core/tests/handle_simulation/core_bugs.rs".into(), LINK.into());
    assert!(link.is_some(), "the simulation has no core_bugs.rs any more");
    files.insert(
        "crates/core/Cargo.toml".into(),
        package(&fs::read_to_string(core.join("Cargo.toml")).unwrap()),
    );
    files.insert("Cargo.toml".into(), manifest(&fs::read_to_string(root.join("Cargo.toml")).unwrap()));
    files.insert("Cargo.lock".into(), renamed(&fs::read_to_string(root.join("Cargo.lock")).unwrap()));
    put(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("planted"), &files);
}

/// The package has a name of its own, so that nobody takes what is compiled of it for the core: the target folder is the same.
fn renamed(text: &str) -> String {
    let renamed = text.replace("name = \"tollgate-core\"", "name = \"tollgate-core-planted\"");
    assert!(renamed != text, "the core has another name");
    renamed
}

/// The package's manifest; its library is called as before.
fn package(text: &str) -> String {
    format!("{}\n[lib]\nname = \"tollgate_core\"\n", renamed(text))
}

/// The workspace's manifest, with the core as its only member.
fn manifest(text: &str) -> String {
    let only_core = |line: &str| match line.split_once(" = [") {
        Some((key @ ("members" | "default-members"), _)) => format!("{key} = [\"crates/core\"]\n"),
        _ => format!("{line}\n"),
    };
    let text =
        text.replace("[profile.dev.package.tollgate-core]", "[profile.dev.package.tollgate-core-planted]");
    text.lines().map(only_core).collect()
}

/// All files below a folder, by their path from there.
fn read(folder: &Path) -> BTreeMap<String, String> {
    let name = |path: &Path| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
    below(folder).iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

/// Makes the folder hold these files and no others.
fn put(folder: &Path, files: &BTreeMap<String, String>) {
    fs::create_dir_all(folder).unwrap();
    for stale in below(folder).iter().filter(|path| {
        let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
        !files.contains_key(name)
    }) {
        fs::remove_file(stale).unwrap();
    }
    for (name, text) in files {
        let path = folder.join(name);
        if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}
