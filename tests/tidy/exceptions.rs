//! What may break a rule, and why.

const ONE_STORY: &str = "a test that is one story: its steps need what those before have made";
const ONE_TABLE: &str = "a line or an arm for each of a list; parts of it would be no easier to read";
const OLD_LINES: &str = "comments from before the rule; to be wrapped by whoever changes them";

/// The rule; the file, or the folder of modules; the reason.
pub(crate) const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("function", "crates/auth/src/access.rs", ONE_TABLE),
    ("function", "tests/e2e/browser/pages.rs", ONE_TABLE),
    ("function", "tests/e2e/cluster/dead_owner.rs", ONE_STORY),
    ("function", "tests/e2e/security/moved.rs", ONE_STORY),
    ("function", "tests/e2e/security/names.rs", ONE_TABLE),
    ("function", "tests/faults/campaign/inject.rs", ONE_TABLE),
    ("function", "tests/faults/report.rs", ONE_TABLE),
    ("line", "crates/store/src/lib.rs", OLD_LINES),
    ("line", "crates/store/src/line.rs", OLD_LINES),
    ("line", "crates/store/src/postgres/backlog.rs", OLD_LINES),
    ("line", "crates/store/src/postgres/commit.rs", OLD_LINES),
    ("line", "crates/store/src/postgres/door.rs", OLD_LINES),
    ("line", "crates/store/src/postgres/mod.rs", OLD_LINES),
    ("line", "crates/store/src/postgres/partitions.rs", OLD_LINES),
    ("line", "crates/store/src/postgres/queries/runs_change.sql", OLD_LINES),
    ("line", "crates/store/src/sqlite/line.rs", OLD_LINES),
    ("line", "crates/store/tests/citus_rules.rs", OLD_LINES),
    ("line", "crates/store/tests/conformance/main.rs", OLD_LINES),
    ("line", "crates/store/tests/conformance/neighbours.rs", OLD_LINES),
    ("line", "services/event-emitter/src/batch.rs", OLD_LINES),
    ("line", "services/event-handler/src/owner/perform.rs", OLD_LINES),
    ("line", "services/schedule-master/src/outbox.rs", OLD_LINES),
    ("circle", "crates/auth", "the refusal of a call without a key stands in the door still"),
    (
        "circle",
        "crates/core: handle",
        "the files are the parts of one machine, which have its state in common",
    ),
    ("circle", "crates/metrics", "a watch writes into the instruments that hand it out"),
    (
        "circle",
        "crates/store: postgres",
        "the line of commits and the transaction that writes them know each other",
    ),
    (
        "circle",
        "crates/store: rows",
        "an event's row may stand in its batch, and a batch has its events' rows",
    ),
    ("circle", "loadtest", "a report is printed by its run, of which it has the parts"),
    ("circle", "loadtest: run", "a round has a meter, which is told of rounds"),
    ("circle", "services/console", "pages and their parts stand in one folder still"),
    ("circle", "services/event-emitter", "a scan and its batches know each other"),
    ("circle", "services/event-handler", "answers by key ask the service that they are a part of"),
    ("circle", "services/tollgate", "the error of a command line stands among the commands still"),
    (
        "circle",
        "services/tollgate: client::apply",
        "the options of the YAML reader stand with the resources still",
    ),
    ("circle", "tests", "a service is handed to what releases its events"),
];
