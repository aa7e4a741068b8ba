//! Which module uses which, in each crate; whether that goes round in circles, and whether it keeps to layers.
//!
//! Modules are compared with those beside them: in each folder of modules, one uses another if any file below it names anything
//! below the other. What a file passes on (`pub use`), or imports for those below it, is counted where it comes from. A folder's
//! own file and what is in the folder are one: children may use what it makes. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::Breach;
use crate::source::Source;

/// A module by its way from the crate's root.
type Path = Vec<String>;
/// Of one folder: who uses whom, and the file that shows it.
type Uses = BTreeMap<(String, String), String>;

/// The core's modules; each may use those before it alone.
pub(crate) const CORE: [&str; 11] = [
    "nearest",
    "model",
    "items",
    "expected_end",
    "failure",
    "trouble",
    "alert",
    "handle",
    "plan",
    "emit",
    "own",
];

/// Circles of modules, one breach for each folder that has any.
pub(crate) fn circles(sources: &[Source]) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (name, modules) in crates(sources) {
        for (folder, uses) in graphs(&modules) {
            let goes_on = |from: &str, to: &str| reach(&uses, from).contains(to);
            let round = uses.iter().filter(|((from, to), _)| goes_on(to, from));
            let round: Vec<_> = round.map(|((from, to), file)| format!("{from} -> {to} ({file})")).collect();
            if !round.is_empty() {
                breaches.push(Breach { at: place(&name, &folder), says: round.join(", ") });
            }
        }
    }
    breaches
}

/// Uses that go up in the order of layers, and top modules that have no place in it.
pub(crate) fn against_layers(sources: &[Source], of: &str, layers: &[&str]) -> Vec<Breach> {
    let crates = crates(sources);
    let modules = &crates[of];
    let mut breaches = Vec::new();
    for top in modules.keys().filter_map(|path| path.first()).collect::<BTreeSet<_>>() {
        if !layers.contains(&top.as_str()) {
            breaches
                .push(Breach { at: format!("{of}: {top}"), says: "has no place among the layers".into() });
        }
    }
    let height = |module: &str| layers.iter().position(|layer| *layer == module);
    for ((from, to), file) in graphs(modules).remove(&Path::new()).unwrap_or_default() {
        if height(&from) < height(&to) {
            breaches.push(Breach { at: format!("{of}: {from}"), says: format!("uses {to} in {file}") });
        }
    }
    breaches
}

fn place(name: &str, folder: &Path) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{name}: {}", folder.join("::")) }
}

fn reach<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let next = |at: &str| {
        uses.keys().filter(move |(from, _)| from == at).map(|(_, to)| to.as_str()).collect::<Vec<_>>()
    };
    let mut open = next(from);
    while let Some(at) = open.pop() {
        if reached.insert(at) {
            open.extend(next(at));
        }
    }
    reached
}

/// What a file names.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Paths of this crate, from its root.
    names: Vec<Path>,
    /// What it imports or passes on, by its name here.
    imports: BTreeMap<String, Path>,
}

/// The modules of each crate, by the crate's folder.
fn crates(sources: &[Source]) -> BTreeMap<String, BTreeMap<Path, Module>> {
    let mut files: BTreeMap<String, BTreeMap<Path, &Source>> = BTreeMap::new();
    for source in sources {
        if let Some((folder, file)) = source.path.split_once("/src/") {
            files.entry(folder.to_owned()).or_default().insert(module_path(file), source);
        }
    }
    let read = |(folder, files): (String, BTreeMap<Path, &Source>)| {
        let known: BTreeSet<Path> = files.keys().cloned().collect();
        let mut tests = BTreeSet::new();
        let mut modules = BTreeMap::new();
        for (path, source) in files {
            let mut reader =
                Reader { known: &known, path: path.clone(), module: Module::default(), tests: &mut tests };
            reader.read(&source.code());
            let module = Module { file: source.path.clone(), ..reader.module };
            modules.insert(path, module);
        }
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        (folder, modules)
    };
    files.into_iter().map(read).collect()
}

fn module_path(file: &str) -> Path {
    let mut path: Path = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if path.last().is_some_and(|last| last == "mod") || path == ["lib"] || path == ["main"] {
        path.pop();
    }
    path
}

/// Reads what one file names.
struct Reader<'a> {
    known: &'a BTreeSet<Path>,
    path: Path,
    module: Module,
    /// Modules that are compiled for tests alone.
    tests: &'a mut BTreeSet<Path>,
}

impl Reader<'_> {
    fn read(&mut self, code: &str) {
        let tokens = tokens(code);
        let (mut at, mut here, mut depth) = (0, self.path.clone(), Vec::new());
        while at < tokens.len() {
            match &tokens[at..] {
                ["mod", name, "{", ..] => {
                    if is_test(&tokens[..at]) {
                        at = end_of_block(&tokens, at + 2);
                        continue;
                    }
                    here.push((*name).to_owned());
                    depth.push("mod");
                    at += 3;
                }
                ["mod", name, ";", ..] => {
                    if is_test(&tokens[..at]) {
                        self.tests.insert([here.clone(), vec![(*name).to_owned()]].concat());
                    }
                    at += 3;
                }
                ["{", ..] => {
                    depth.push("");
                    at += 1;
                }
                ["}", ..] => {
                    if depth.pop() == Some("mod") {
                        here.pop();
                    }
                    at += 1;
                }
                ["use", ..] => {
                    let passes_on = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                    at = self.tree(&tokens, at + 1, &here, None, passes_on);
                }
                [_, "::", ..] if at == 0 || tokens[at - 1] != "::" => {
                    at = self.tree(&tokens, at, &here, None, false).max(at + 1)
                }
                _ => at += 1,
            }
        }
    }

    /// A path, or a tree of paths; `from` is what its beginning means.
    fn tree(
        &mut self,
        tokens: &[&str],
        mut at: usize,
        here: &Path,
        from: Option<Path>,
        passes_on: bool,
    ) -> usize {
        let is_use = passes_on || tokens[..at].iter().rev().take_while(|t| **t != ";").any(|t| *t == "use");
        let mut path = from;
        let mut last = String::new();
        loop {
            match tokens.get(at) {
                Some(&"{") if is_use => {
                    at += 1;
                    while tokens.get(at).is_some_and(|token| *token != "}") {
                        at = self.tree(tokens, at, here, path.clone(), passes_on);
                        at += usize::from(tokens.get(at) == Some(&","));
                    }
                    return at + 1;
                }
                Some(token) if is_word(token) || *token == "*" => {
                    path = self.step(path, token, here);
                    if path.is_none() {
                        return at + 1;
                    }
                    last = (*token).to_owned();
                    at += 1;
                }
                _ => break,
            }
            if tokens.get(at) != Some(&"::") {
                break;
            }
            at += 1;
        }
        if let Some(path) = path {
            if is_use && tokens.get(at) == Some(&"as") {
                last = tokens[at + 1].to_owned();
                at += 2;
            }
            if is_use && *here == self.path {
                self.module.imports.insert(last, path.clone());
            }
            if !passes_on {
                self.module.names.push(path);
            }
        }
        at
    }

    /// One name further; `None`: nothing of this crate.
    fn step(&self, path: Option<Path>, name: &str, here: &Path) -> Option<Path> {
        match (path, name) {
            (None, "crate") => Some(Path::new()),
            (None, "self") => Some(here.clone()),
            (None, "super") => Some(here[..here.len().checked_sub(1)?].to_vec()),
            (None, child) => {
                let path = [here.clone(), vec![child.to_owned()]].concat();
                self.known.contains(&path).then_some(path)
            }
            (Some(path), "super") => Some(path[..path.len().checked_sub(1)?].to_vec()),
            (Some(path), "self") => Some(path),
            (Some(path), name) => Some([path, vec![name.to_owned()]].concat()),
        }
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Whether what comes next is compiled for tests alone.
fn is_test(before: &[&str]) -> bool {
    before
        .rsplit(|token| matches!(*token, ";" | "}" | "{"))
        .next()
        .is_some_and(|attributes| attributes.windows(4).any(|window| window == ["cfg", "(", "test", ")"]))
}

fn end_of_block(tokens: &[&str], from: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        depth += i32::from(*token == "{") - i32::from(*token == "}");
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Words, `::`, and single marks.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(rest) {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, more) = rest.split_at(length);
        tokens.push(token);
        rest = more.trim_start();
    }
    tokens
}

/// Of each folder of modules: who uses whom.
fn graphs(modules: &BTreeMap<Path, Module>) -> BTreeMap<Path, Uses> {
    let mut graphs: BTreeMap<Path, Uses> = BTreeMap::new();
    for (from, module) in modules {
        for name in &module.names {
            let to = origin(modules, name, 0);
            let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(one), Some(other)) = (from.get(same), to.get(same)) {
                let uses = graphs.entry(from[..same].to_vec()).or_default();
                uses.entry((one.clone(), other.clone())).or_insert_with(|| module.file.clone());
            }
        }
    }
    graphs
}

/// The module that has what this path names, through what others pass on.
fn origin(modules: &BTreeMap<Path, Module>, name: &Path, depth: usize) -> Path {
    let length = (0..=name.len()).rev().find(|length| modules.contains_key(&name[..*length])).unwrap_or(0);
    let module = &name[..length];
    let next = name.get(length).and_then(|item| modules.get(module)?.imports.get(item));
    match next {
        Some(next) if depth < 8 => origin(modules, &[next, &name[length + 1..]].concat(), depth + 1),
        _ => module.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(files: &[(&str, &str)]) -> Vec<(String, String)> {
        let sources: Vec<_> =
            files.iter().map(|(file, text)| Source::sample(&format!("a/src/{file}"), text)).collect();
        circles(&sources).into_iter().map(|breach| (breach.at, breach.says)).collect()
    }

    #[test]
    fn a_circle_of_neighbours_is_seen() {
        let one_way = ("b.rs", "use crate::c::{D, E as F};\nfn g() {}");
        assert_eq!(seen(&[("lib.rs", "mod b;\nmod c;"), one_way, ("c.rs", "fn d() {}")]), []);
        let round = seen(&[
            ("lib.rs", "mod b;\nmod c;"),
            one_way,
            ("c/h.rs", "fn d() { super::super::b::g(); }"),
            ("c.rs", ""),
        ]);
        assert_eq!(round, [("a".into(), "b -> c (a/src/b.rs), c -> b (a/src/c/h.rs)".into())]);
    }

    #[test]
    fn what_a_parent_passes_on_is_its_child_s() {
        let parent = ("b.rs", "mod c;\nmod d;\npub use d::D as E;\nstruct B;");
        assert_eq!(seen(&[parent, ("b/c.rs", "use super::{B, E};"), ("b/d.rs", "")]), []);
        let round = seen(&[parent, ("b/c.rs", "use super::{B, E};"), ("b/d.rs", "use crate::b::c;")]);
        assert_eq!(round, [("a: b".into(), "c -> d (a/src/b/c.rs), d -> c (a/src/b/d.rs)".into())]);
    }

    #[test]
    fn tests_do_not_count() {
        let (test, other) =
            ("fn b() {}\n#[cfg(test)]\nmod tests {\n    use crate::c::D;\n}", ("c.rs", "use crate::b::b;"));
        assert_eq!(seen(&[("b.rs", test), other]), []);
        assert_eq!(seen(&[("b.rs", "#[cfg(test)]\nmod d;"), ("b/d.rs", "use crate::c::D;"), other]), []);
        assert_eq!(seen(&[("b.rs", &test.replace("#[cfg(test)]", "")), other]).len(), 1);
    }

    #[test]
    fn what_goes_up_in_the_layers_is_seen() {
        let sources = [("low.rs", "use crate::high::A;"), ("high.rs", ""), ("new.rs", "")]
            .map(|(file, text)| Source::sample(&format!("a/src/{file}"), text));
        let breaches = against_layers(&sources, "a", &["low", "high"]);
        let told: Vec<_> = breaches.iter().map(|b| format!("{}: {}", b.at, b.says)).collect();
        assert_eq!(told, ["a: new: has no place among the layers", "a: low: uses high in a/src/low.rs"]);
    }
}
