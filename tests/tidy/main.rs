//! Holds the sources to the form of the tree: short functions and files, lines that fit, a head on each file, no circle
//! of modules, and rows that are spelt once.
//!
//! Each rule takes sources and gives breaches; a sample that breaks it shows that it can. [`exceptions`] lists what may
//! break one, with the reason; an exception that nothing needs any more is a failure, too.

#![expect(clippy::unwrap_used, reason = "tests")]

mod exceptions;
mod modules;
mod rows;
mod size;
mod source;

use exceptions::EXCEPTIONS;

/// One place that breaks a rule.
#[derive(Debug)]
struct Breach {
    /// A file's path from the root, or a folder of modules.
    at: String,
    says: String,
}

/// Fails with every breach of the rule that has no exception, and every exception of it that nothing needs.
fn hold(rule: &str, breaches: &[Breach]) {
    let wrong = judge(rule, breaches, EXCEPTIONS);
    assert!(wrong.is_empty(), "{rule}:\n{}", wrong.join("\n"));
}

fn judge(rule: &str, breaches: &[Breach], exceptions: &[(&str, &str, &str)]) -> Vec<String> {
    let places: Vec<&str> = exceptions.iter().filter(|(of, ..)| *of == rule).map(|(_, at, _)| *at).collect();
    let refused = breaches.iter().filter(|breach| !places.contains(&breach.at.as_str()));
    let idle = places.iter().filter(|at| !breaches.iter().any(|breach| breach.at == **at));
    refused
        .map(|breach| format!("{}: {}", breach.at, breach.says))
        .chain(idle.map(|at| format!("{at}: keeps the rule now; take it out of the exceptions")))
        .collect()
}

#[test]
fn functions_are_short() {
    hold("function", &source::of_rust().iter().flat_map(size::long_functions).collect::<Vec<_>>());
}

#[test]
fn files_are_short() {
    hold("file", &source::of_rust().iter().filter_map(size::long_file).collect::<Vec<_>>());
}

#[test]
fn lines_fit() {
    hold("line", &source::of_text().iter().filter_map(size::wide_lines).collect::<Vec<_>>());
}

#[test]
fn files_have_heads() {
    hold("head", &source::of_rust().iter().filter_map(size::no_head).collect::<Vec<_>>());
}

#[test]
fn modules_make_no_circles() {
    hold("circle", &modules::circles(&source::of_rust()));
}

#[test]
fn the_core_is_layered() {
    hold("layer", &modules::against_layers(&source::of_rust(), "crates/core", &modules::CORE));
}

#[test]
fn rows_are_spelt_once() {
    hold("row", &rows::spelt_again(&source::of_rust(), &source::of_queries()));
}

#[test]
fn exceptions_are_of_known_rules_and_have_reasons() {
    for (rule, at, reason) in EXCEPTIONS {
        assert!(["function", "file", "line", "head", "circle", "layer", "row"].contains(rule), "{rule}");
        assert!(reason.len() > 20, "{rule}, {at}: {reason}");
    }
}

#[test]
fn a_breach_without_exception_and_an_exception_without_breach_are_told() {
    let breach = |at: &str| Breach { at: at.into(), says: "too long".into() };
    let exceptions =
        [("file", "a.rs", "a reason"), ("file", "b.rs", "a reason"), ("line", "c.rs", "a reason")];
    let told = judge("file", &[breach("a.rs"), breach("c.rs")], &exceptions);
    assert_eq!(told, ["c.rs: too long", "b.rs: keeps the rule now; take it out of the exceptions"]);
}
