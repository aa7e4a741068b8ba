//! Plants bugs in texts: finds the right piece of each, and puts a question in its place.

use std::collections::BTreeMap;
use std::ops::Range;

/// A bug that can be turned on in the copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planted {
    pub(crate) name: &'static str,
    /// What is wrong while it is on: for people.
    #[expect(dead_code, reason = "read by people, where the bug is written")]
    pub(crate) breaks: &'static str,
    /// Most bugs have one; all of them are on together.
    pub(crate) edits: &'static [Edit],
}

/// One piece of a bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    /// Below `crates/core/src`.
    pub(crate) file: &'static str,
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static str,
}

/// Short for one piece.
pub(crate) const fn edit(file: &'static str, right: &'static str, wrong: &'static str) -> Edit {
    Edit { file, right, wrong }
}

/// The question whether a bug is on, by its number.
fn question(number: usize) -> String {
    format!("crate::planted::is_on({number})")
}

/// Plants all bugs in the texts of their files. The first has the number 1. `Err`: every edit that does not fit, and why.
pub(crate) fn plant(files: &mut BTreeMap<String, String>, bugs: &[Planted]) -> Result<(), String> {
    let mut errors = Vec::new();
    let mut pieces: BTreeMap<&str, Vec<Piece>> = BTreeMap::new();
    for (number, bug) in (1..).zip(bugs) {
        for Edit { file, right, wrong } in bug.edits {
            let found = files.get(*file).ok_or_else(|| "there is no such file".to_owned());
            match found.and_then(|text| locate(text, right)) {
                Ok(range) => {
                    let wrong = Wrong { number, name: bug.name, text: wrong };
                    let pieces = pieces.entry(file).or_default();
                    match pieces.iter_mut().find(|piece| piece.range == range) {
                        Some(piece) => piece.wrongs.push(wrong),
                        None => pieces.push(Piece { range, wrongs: vec![wrong] }),
                    }
                }
                Err(why) => errors.push(format!("{}: crates/core/src/{file}: {why}", bug.name)),
            }
        }
    }
    for (file, mut pieces) in pieces {
        pieces.sort_by_key(|piece| piece.range.start);
        for pair in pieces.windows(2).filter(|pair| pair[1].range.start < pair[0].range.end) {
            let (one, other) = (pair[0].wrongs[0].name, pair[1].wrongs[0].name);
            errors.push(format!("{one} and {other}: crates/core/src/{file}: their pieces overlap"));
        }
        if let Some(text) = files.get_mut(file).filter(|_| errors.is_empty()) {
            for piece in pieces.iter().rev() {
                let planted = piece.planted(&text[piece.range.clone()]);
                text.replace_range(piece.range.clone(), &planted);
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

/// A piece of a text, and what may stand there instead.
struct Piece {
    range: Range<usize>,
    wrongs: Vec<Wrong>,
}

struct Wrong {
    number: usize,
    name: &'static str,
    text: &'static str,
}

impl Piece {
    fn planted(&self, right: &str) -> String {
        let asked = |wrong: &Wrong| format!("if {} {{ {} }}", question(wrong.number), wrong.text);
        let asked: Vec<_> = self.wrongs.iter().map(asked).collect();
        match right.chars().last() {
            Some('{') => format!("{right} {}", asked.join(" ")),
            Some(';' | '}') => format!("{} else {{ {right} }}", asked.join(" else ")),
            _ => format!("({} else {{ {right} }})", asked.join(" else ")),
        }
    }
}

/// Where the piece is; white space counts for nothing.
fn locate(text: &str, wanted: &str) -> Result<Range<usize>, String> {
    let dense: Vec<(usize, char)> = text.char_indices().filter(|(_, c)| !c.is_whitespace()).collect();
    let (mut pattern, mut marks) = (Vec::new(), Vec::new());
    for c in wanted.chars().filter(|c| !c.is_whitespace()) {
        if matches!(c, '«' | '»') { marks.push(pattern.len()) } else { pattern.push(c) }
    }
    let (from, to) = match marks[..] {
        [] => (0, pattern.len()),
        [from, to] => (from, to),
        _ => return Err("one « and one » are wanted, or none".to_owned()),
    };
    if from >= to {
        return Err("there is nothing to replace".to_owned());
    }
    let found: Vec<usize> = dense
        .windows(pattern.len())
        .enumerate()
        .filter(|(_, window)| window.iter().map(|(_, c)| c).eq(&pattern))
        .map(|(at, _)| at)
        .collect();
    match found[..] {
        [at] => {
            let (last, c) = dense[at + to - 1];
            Ok(dense[at + from].0..last + c.len_utf8())
        }
        _ => Err(format!("found {} times instead of once: {wanted}", found.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "fn f(a: u8) -> u8 {\n    g(\n        a,\n    );\n    let b = g(a) + g(a);\n    b\n}\n";

    fn bug<const N: usize>(name: &'static str, edits: [Edit; N]) -> Planted {
        Planted { name, breaks: "A test.", edits: Box::leak(Box::new(edits)) }
    }

    fn planted(bugs: &[Planted]) -> Result<String, String> {
        let mut files = BTreeMap::from([("f.rs".to_owned(), TEXT.to_owned())]);
        plant(&mut files, bugs).map(|()| files.remove("f.rs").unwrap())
    }

    #[test]
    fn statements_blocks_and_expressions() {
        let text = planted(&[
            bug("One", [edit("f.rs", "fn f(a: u8) -> u8 {", "return 0;"), edit("f.rs", "g( a, );", "")]),
            bug("Two", [edit("f.rs", "g(a) + «g(a)»;", "1")]),
            bug("Three", [edit("f.rs", "+ «g(a)»;", "2")]),
        ]);
        let wanted = "fn f(a: u8) -> u8 { if crate::planted::is_on(1) { return 0; }\n    \
            if crate::planted::is_on(1) {  } else { g(\n        a,\n    ); }\n    let b = g(a) + \
            (if crate::planted::is_on(2) { 1 } else if crate::planted::is_on(3) { 2 } else { g(a) });\n    b\n}\n";
        assert_eq!(text.as_deref(), Ok(wanted));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name_and_file() {
        let refused = planted(&[
            bug("Gone", [edit("f.rs", "h(a)", "")]),
            bug("Twice", [edit("f.rs", "g(a)", "0")]),
            bug("Elsewhere", [edit("g.rs", "g(a)", "0")]),
            bug("Unmarked", [edit("f.rs", "let b = «g(a)", "0")]),
            bug("Nothing", [edit("f.rs", "let b =«»", "0")]),
        ]);
        let refused = refused.unwrap_err();
        for wanted in [
            "Gone: crates/core/src/f.rs: found 0 times",
            "Twice: crates/core/src/f.rs: found 2 times",
            "Elsewhere: crates/core/src/g.rs: there is no such file",
            "Unmarked: crates/core/src/f.rs: one «",
            "Nothing: crates/core/src/f.rs: there is nothing",
        ] {
            assert!(refused.contains(wanted), "{wanted}: {refused}");
        }
    }

    #[test]
    fn pieces_that_overlap_are_refused() {
        let refused = planted(&[
            bug("One", [edit("f.rs", "let b = «g(a) + g(a)»;", "0")]),
            bug("Two", [edit("f.rs", "+ «g(a)»;", "1")]),
        ]);
        assert_eq!(refused.unwrap_err(), "One and Two: crates/core/src/f.rs: their pieces overlap");
    }
}
