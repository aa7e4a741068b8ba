//! Lets flags of the connection and the output stand before the command, as in `tollgate -n team get schedules`.
//!
//! They are moved behind it, where the command reads them: one that does not know them says so.

use std::ffi::OsString;

use clap::{Args as _, Command};

use crate::client::ClientArgs;

/// The words of a command line, with the flags before the command behind it.
pub(crate) fn reorder(mut words: Vec<OsString>) -> Vec<OsString> {
    let front = ClientArgs::augment_args(Command::new("tollgate"))
        .allow_external_subcommands(true)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true);
    let Ok(matches) = front.try_get_matches_from(&words) else { return words };
    let Some((_, rest)) = matches.subcommand() else { return words };
    let behind = rest.get_many::<OsString>("").map_or(0, Iterator::count);
    let Some(at) = words.len().checked_sub(behind + 1).filter(|at| *at > 1) else { return words };
    let flags: Vec<OsString> = words.drain(1..at).collect();
    words.splice(2..2, flags);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = reorder(words).into_iter().map(|word| word.to_string_lossy().into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_before_the_command_go_behind_it() {
        assert_eq!(
            moved("tollgate -n team --server=http://a:1 get schedules -o json"),
            "tollgate get -n team --server=http://a:1 schedules -o json"
        );
        assert_eq!(moved("tollgate -o name trigger a"), "tollgate trigger -o name a");
        for same in
            ["tollgate get -n team schedules", "tollgate --help", "tollgate -n", "tollgate --colour get", "x"]
        {
            assert_eq!(moved(same), same);
        }
    }
}
