//! What may break a rule, and why.

const ONE_STORY: &str = "a test that is one story: its steps need what those before have made";
const ONE_TABLE: &str = "a line or an arm for each of a list; parts of it would be no easier to read";

/// The rule; the file, or the folder of modules; the reason.
pub(crate) const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("function", "crates/auth/src/access.rs", ONE_TABLE),
    ("function", "tests/e2e/browser/pages.rs", ONE_TABLE),
    ("function", "tests/e2e/cluster/dead_owner.rs", ONE_STORY),
    ("function", "tests/e2e/security/moved.rs", ONE_STORY),
    ("function", "tests/e2e/security/names.rs", ONE_TABLE),
    ("function", "tests/faults/campaign/inject.rs", ONE_TABLE),
    ("function", "tests/faults/report.rs", ONE_TABLE),
    (
        "circle",
        "crates/core: handle",
        "the files are the parts of one machine, which have its state in common",
    ),
    ("circle", "crates/metrics", "a watch writes into the instruments that hand it out"),
    (
        "circle",
        "crates/store",
        "`columns` fills in the tables that `rows` lists, and makes each row by its macro",
    ),
    ("circle", "loadtest", "a report is printed by its run, of which it has the parts"),
    ("circle", "loadtest: run", "a round has a meter, which is told of rounds"),
    (
        "circle",
        "services/console: requests",
        "the console's state holds what its parts keep, which they find in it",
    ),
    ("circle", "services/event-handler", "answers by key ask the service that they are a part of"),
    ("circle", "tests/harness", "a service is handed to what releases its events"),
];
