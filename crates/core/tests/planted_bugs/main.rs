//! Bugs planted in a copy of the core, to see that the simulation finds them: the code that ships has no hooks.
//!
//! A planted bug is a right piece of text in a file below `crates/core/src`, and what stands there instead while the bug is on.
//! Ordinary tests hold that each right piece is still there, once. They also write a copy of the crate into the target folder, in
//! which each piece asks whether its bug is on: so the copy is compiled once for all of them. `./tests/run planted` has the
//! simulation of that copy find each bug.
//!
//! To add one: an entry in the file of its module beside this one ([`handle`] is one; a new file goes into [`all`]).
//!
//! - `right` must be in its file exactly once. White space counts for nothing. If the piece alone is there more often, write what
//!   surrounds it, too, and put the piece into `«` and `»`.
//! - The last character of the piece says how the bug is planted. `;` or `}`: these are statements; `wrong` are the statements
//!   instead (no `let` among either whose name is used afterwards: take the expression behind the `=`). `{`: the beginning
//!   of a block; `wrong` are statements that come first in it. Anything else: an expression; `wrong` is the expression
//!   instead.
//! - Several bugs may change the same piece. Pieces that overlap and are not the same are refused.
//! - Not within a `const fn`. Names that the file does not import are written with their path.

#![expect(clippy::unwrap_used, reason = "tests")]

mod copy;
mod edit;
mod emit;
mod handle;
mod own;
mod plan;
mod rooms;
mod units;

use edit::Planted;

/// The bugs of all modules.
fn all() -> Vec<Planted> {
    [plan::BUGS, emit::BUGS, handle::BUGS, units::BUGS, rooms::BUGS, own::BUGS].concat()
}

#[test]
fn each_bug_fits_the_source_and_the_copy_is_written() {
    copy::write(&all());
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = all().iter().map(|bug| bug.name).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "names of two bugs each: {twice:?}");
}
