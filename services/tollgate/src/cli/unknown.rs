//! Decides what somebody reads who types a command of another program.

use std::io::Write as _;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What to type for the commands of other programs.
const WORDS: &[(&[&str], &str)] = &[
    (
        &["create", "make", "add", "new", "replace"],
        "`tollgate apply -f FILE` makes what a file describes, and `tollgate init` writes a file",
    ),
    (&["edit", "set", "patch", "update"], "change the file, and `tollgate apply -f FILE` makes it so"),
    (&["ls", "show", "schedules"], "`tollgate get schedules` lists them"),
    (&["worker", "agents", "consumers"], "`tollgate workers` lists the workers that take events"),
    (&["policies"], "`tollgate get policies` lists them"),
    (&["runs", "jobs"], "`tollgate get runs` lists them"),
    (&["rm", "remove", "destroy"], "`tollgate delete schedule ID` deletes one"),
    (&["run", "exec", "fire", "kick"], "`tollgate trigger ID` starts a run now"),
    (&["start", "server", "up", "daemon", "service"], "`tollgate serve` runs the service"),
    (
        &["stop", "suspend", "disable"],
        "`tollgate pause schedule ID` holds one, and `tollgate pause all` everything",
    ),
    (&["unpause", "enable", "unsuspend"], "`tollgate resume schedule ID` goes on"),
    (
        &["logs", "log", "tail", "events"],
        "`tollgate history ID` shows the runs, and `tollgate get events RUN` what became of their events",
    ),
    (&["top", "stats", "metrics", "queue", "queues"], "`tollgate status` shows what waits and what is held"),
    (&["health", "healthcheck", "ready"], "`tollgate ping` asks whether a process is ready"),
    (&["explain", "debug"], "`tollgate why EVENT` says why an event is where it is"),
    (
        &["keys", "login", "token", "tokens"],
        "`tollgate key list` lists API keys, and --api-key or TOLLGATE_API_KEY shows one",
    ),
    (&["version"], "`tollgate --version` prints it"),
    (&["validate", "check", "lint"], "`tollgate apply -f FILE --dry-run` checks a file, and changes nothing"),
];

/// What to type for the flags of other programs.
const FLAGS: &[(&[&str], &str)] = &[
    (
        &["--port", "-p", "--host", "--bind", "--address", "--addr"],
        "--listen HOST:PORT says where `tollgate serve` listens",
    ),
    (
        &["--db", "--database", "--dsn", "--data-dir"],
        "--store sqlite:PATH or --store postgres://… names the database",
    ),
    (&["--url", "--endpoint"], "--server URL names the service"),
    (&["--ns"], "-n NAME names the namespace"),
    (&["--json"], "-o json"),
    (&["--file", "--filename"], "-f FILE"),
    (&["--token", "--password"], "--api-key KEY, or better the variable TOLLGATE_API_KEY, shows a key"),
    (&["--config-file"], "--config FILE names the settings"),
];

/// What to type; none for a word that nobody uses.
fn hint(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    WORDS.iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, hint)| *hint)
}

/// Prints why a command line cannot be read, and ends the process.
pub(crate) fn refuse(mut error: clap::Error) -> ! {
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.kind() == ErrorKind::InvalidSubcommand => {
            Some(word.clone())
        }
        _ => None,
    };
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) if error.kind() == ErrorKind::UnknownArgument => Some(flag.clone()),
        _ => None,
    };
    let of_flag =
        |flag: String| FLAGS.iter().find(|(flags, _)| flags.contains(&flag.as_str())).map(|(_, hint)| *hint);
    let hint = word.and_then(|word| hint(&word)).or_else(|| flag.and_then(of_flag));
    if hint.is_some() {
        // What is spelled alike is not what is meant.
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
    }
    // Where nobody can read it, the exit status says it.
    let _unread = error.print();
    if let Some(hint) = hint {
        let _unread = writeln!(std::io::stderr(), "hint: {hint}");
    }
    std::process::exit(error.exit_code());
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn words_of_other_programs_are_none_of_ours() {
        let command = crate::cli::Cli::command();
        let ours: Vec<&str> = command
            .get_subcommands()
            .flat_map(|one| std::iter::once(one.get_name()).chain(one.get_all_aliases()))
            .collect();
        for (words, _) in WORDS {
            for word in *words {
                assert!(!ours.contains(word), "{word} is a command");
            }
        }
        assert!(hint("LS").is_some_and(|hint| hint.contains("tollgate get schedules")));
        assert_eq!(hint("frobnicate"), None);
    }
}
