//! How long functions, files and lines may be, and what a file begins with.

use crate::Breach;
use crate::source::Source;

/// Lines between the braces of a function.
const FUNCTION_MAX: usize = 70;
/// Lines of a file.
const FILE_MAX: usize = 500;
/// Characters of a line. Code has 110 at most (`.rustfmt.toml`), which `cargo fmt --check` holds; this is for what it
/// leaves alone: comments, queries, the API.
const LINE_MAX: usize = 130;

/// Functions that are longer than they may be. The code is as `cargo fmt` leaves it: a function ends with a brace below its `fn`.
pub(crate) fn long_functions(source: &Source) -> Vec<Breach> {
    let code = source.code();
    let lines: Vec<&str> = code.lines().map(str::trim_end).collect();
    let mut breaches = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((before, name)) = line.split_once("fn ") else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let begins = before.trim().split(' ').all(|word| {
            matches!(word, "" | "const" | "async" | "extern" | "unsafe" | "default")
                || word.starts_with("pub")
        });
        if !begins {
            continue;
        }
        // It ends a declaration, or is all of the function, or begins its body.
        let head =
            lines[at..].iter().position(|line| line.ends_with(['{', ';', '}'])).map_or(at, |more| at + more);
        if !lines[head].ends_with('{') {
            continue;
        }
        let count =
            lines[head + 1..].iter().position(|end| end.strip_prefix(indent) == Some("}")).unwrap_or(0);
        if count > FUNCTION_MAX {
            let name = name.split(['(', '<']).next().unwrap();
            let says = format!("{name} has {count} lines from line {}, {FUNCTION_MAX} at most", at + 1);
            breaches.push(Breach { at: source.path.clone(), says });
        }
    }
    breaches
}

/// Whether the file is longer than it may be.
pub(crate) fn long_file(source: &Source) -> Option<Breach> {
    let count = source.text.lines().count();
    (count > FILE_MAX)
        .then(|| Breach { at: source.path.clone(), says: format!("{count} lines, {FILE_MAX} at most") })
}

/// The lines that are wider than they may be. Texts and addresses are not broken.
pub(crate) fn wide_lines(source: &Source) -> Option<Breach> {
    let fits = |line: &str| line.chars().count() <= LINE_MAX || line.contains("://");
    let wide = |line: &str| !fits(line) && (line.trim_start().starts_with("//") || !line.contains('"'));
    let lines = (1..).zip(source.text.lines()).filter(|(_, line)| wide(line));
    let lines: Vec<String> = lines.map(|(number, _): (usize, _)| number.to_string()).collect();
    (!lines.is_empty()).then(|| Breach {
        at: source.path.clone(),
        says: format!("wider than {LINE_MAX} characters: line {}", lines.join(", ")),
    })
}

/// Whether the file does not say at its beginning what it is for.
pub(crate) fn no_head(source: &Source) -> Option<Breach> {
    let first = source.text.lines().find(|line| !line.is_empty() && !line.starts_with("#!"));
    let has = first.is_some_and(|line| line.starts_with("//!"));
    (!has).then(|| Breach { at: source.path.clone(), says: "begins without a head (`//!`)".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> Source {
        let body = "        a();\n        }\n".repeat(lines / 2);
        Source::sample(
            "a.rs",
            &format!("impl A {{\n    pub(super) async fn b(&self) {{\n{body}    }}\n\n    fn c();\n}}\n"),
        )
    }

    #[test]
    fn a_long_function_is_seen() {
        assert!(long_functions(&function(FUNCTION_MAX)).is_empty());
        let breaches = long_functions(&function(FUNCTION_MAX + 2));
        assert_eq!(breaches[0].says, "b has 72 lines from line 2, 70 at most");
    }

    #[test]
    fn a_long_file_is_seen() {
        assert!(long_file(&Source::sample("a.rs", &"\n".repeat(FILE_MAX))).is_none());
        assert!(long_file(&Source::sample("a.rs", &"\n".repeat(FILE_MAX + 1))).is_some());
    }

    #[test]
    fn a_wide_line_is_seen() {
        let line = |wide: usize| Source::sample("a.rs", &format!("//! A.\n// {}\n", "ä".repeat(wide - 3)));
        assert!(wide_lines(&line(LINE_MAX)).is_none());
        assert!(wide_lines(&Source::sample("a.rs", &format!("a(\"{}\")", " ".repeat(LINE_MAX)))).is_none());
        assert_eq!(wide_lines(&line(LINE_MAX + 1)).unwrap().says, "wider than 130 characters: line 2");
    }

    #[test]
    fn a_file_without_a_head_is_seen() {
        assert!(no_head(&Source::sample("a.rs", "#![expect(a)]\n\n//! A.\n")).is_none());
        assert!(no_head(&Source::sample("a.rs", "use a::b;\n\n//! A.\n")).is_some());
    }
}
