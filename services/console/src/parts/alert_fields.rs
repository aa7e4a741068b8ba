//! Which fields the form of an alert has, and their help.

use crate::parts::forms::{Group, Kind, line, of_kind};

const KINDS: &[(&str, &str)] = &[
    ("TROUBLE_KIND_TARGET_REFUSES", "a target refuses, or cannot be reached"),
    ("TROUBLE_KIND_TARGET_SILENT", "a target does not answer"),
    ("TROUBLE_KIND_NOT_SENT", "events do not leave"),
    ("TROUBLE_KIND_NO_WORKER", "no worker is able to do what waits"),
    ("TROUBLE_KIND_TOKENS_SILENT", "consumers that hold tokens are silent"),
    ("TROUBLE_KIND_CONSUMER_FAILS", "consumers give events back, or die with them"),
    ("TROUBLE_KIND_DEADLINE_AT_RISK", "a deadline is at risk"),
    ("TROUBLE_KIND_EVENTS_EXPIRED", "events have expired"),
    ("TROUBLE_KIND_EVENTS_FAILED", "events have failed, died or been lost"),
    ("TROUBLE_KIND_TRIGGERS_MISSED", "triggers were missed"),
    ("TROUBLE_KIND_LIST_FAILS", "a list of items cannot be fetched"),
    ("TROUBLE_KIND_NOT_LISTED", "a run was given up, as its list could not be fetched"),
    ("TROUBLE_KIND_SLOWER", "runs take longer than they did"),
    ("TROUBLE_KIND_POLICY_PAUSED", "a policy is paused and events wait"),
    ("TROUBLE_KIND_DISPATCH_PAUSED", "all dispatch is paused and events wait"),
    ("TROUBLE_KIND_EMITTER_BEHIND", "the emitters are behind"),
    ("TROUBLE_KIND_SHARDS_WITHOUT_OWNER", "queue shards have no owner"),
    ("TROUBLE_KIND_SHARDS_NOT_LOADED", "queue shards cannot be loaded"),
    ("TROUBLE_KIND_HANDLER_SILENT", "a process does not answer"),
    ("TROUBLE_KIND_CLOCK_WRONG", "a clock is wrong"),
    ("TROUBLE_KIND_CORRUPT_ROWS", "rows cannot be read"),
    ("TROUBLE_KIND_STORE_FAILS", "the database does not answer"),
    ("TROUBLE_KIND_STORE_SLOW", "the database is slow"),
];
const LEAST: &[(&str, &str)] = &[
    ("", "critical ones and warnings (the default)"),
    ("TROUBLE_SEVERITY_WARNING", "critical ones and warnings"),
    ("TROUBLE_SEVERITY_CRITICAL", "critical ones only"),
];
const RUNS: &[(&str, &str)] = &[
    ("", "none (the default)"),
    ("ALERT_RUNS_FINISHED", "each that finishes"),
    ("ALERT_RUNS_FINISHED_WITH_FAILURES", "each that finishes with failures"),
];
const NO_YES: &[(&str, &str)] = &[("", "no (the default)"), ("true", "yes"), ("false", "no")];
const YES_NO: &[(&str, &str)] = &[("", "yes (the default)"), ("true", "yes"), ("false", "no")];

/// The fields of an alert.
pub(crate) const ALERT: &[Group] = &[
    Group {
        title: "What it tells of",
        is_folded: false,
        fields: &[
            of_kind(Kind::Switch, "troubles", "Troubles", "Whether it tells that something is wrong."),
            of_kind(
                Kind::Choice(LEAST),
                "troubles.least_severity",
                "Which of them",
                "Critical: work stands still, or will not be done.",
            ),
            of_kind(Kind::Choice(RUNS), "runs", "Runs", "Whether it tells that runs have finished."),
            of_kind(
                Kind::Text,
                "description",
                "Description",
                "For people: who is told, and what they do then.",
            ),
            of_kind(
                Kind::Many(KINDS),
                "troubles.kinds",
                "Only these troubles",
                "Where none is ticked, all are told.",
            ),
        ],
    },
    Group {
        title: "Of which schedules and policies",
        is_folded: true,
        fields: &[
            of_kind(Kind::List, "schedules", "Schedules", "Their ids, one on each line: nightly."),
            of_kind(Kind::List, "policies", "Policies", "Their ids, one on each line: backups."),
            of_kind(
                Kind::Pairs,
                "schedule_labels",
                "Schedules with all these labels",
                "name=value, one on each line: team=storage. Where all three are empty: everything in the namespace.",
            ),
            of_kind(
                Kind::Choice(NO_YES),
                "troubles.installation",
                "Also those of the whole installation",
                "Such as: the database is slow. Needs a key that reaches all namespaces.",
            ),
        ],
    },
    Group {
        title: "Whom it tells: one of the three",
        is_folded: false,
        fields: &[
            line(
                "target.http.url",
                "Webhook: URL",
                "http://hooks.example:8080/tollgate; it gets a CloudEvent by POST.",
            ),
            of_kind(
                Kind::Secret,
                "target.http.secret",
                "Webhook: secret",
                "whsec_ and base64, to sign with. Never shown; empty keeps what is stored.",
            ),
            line(
                "target.slack.url",
                "Slack: URL of an incoming webhook",
                "As Slack gives it, such as hooks.slack.com/services/…; a secret: shown as ***, which keeps what is stored.",
            ),
            line(
                "target.sqs.queue_url",
                "SQS: queue URL",
                "The queue as AWS names it: its URL, which begins with its region.",
            ),
        ],
    },
    Group {
        title: "How often",
        is_folded: false,
        fields: &[
            line(
                "group_wait",
                "Waits for others",
                "30s by default: what comes and goes meanwhile is not told.",
            ),
            line("repeat_interval", "Told again after", "4h by default, as long as it stays; 0s: never."),
            of_kind(Kind::Choice(YES_NO), "send_resolved", "Tells that it is over", "Once, when it is."),
            of_kind(
                Kind::Choice(NO_YES),
                "disabled",
                "Disabled",
                "Nobody is told meanwhile, nor afterwards of that time.",
            ),
        ],
    },
    Group {
        title: "More about whom it tells",
        is_folded: true,
        fields: &[
            of_kind(
                Kind::Pairs,
                "target.http.headers",
                "Webhook: headers",
                "name=value, one on each line: x-team=storage; *** keeps what is stored.",
            ),
            line("target.http.deadline", "Webhook: answer within", "10s by default."),
            line("target.slack.deadline", "Slack: answer within", "10s by default."),
            line("target.sqs.region", "SQS: region", "From the URL where empty: eu-central-1."),
            line("target.sqs.endpoint_url", "SQS: endpoint", "For emulators: http://127.0.0.1:5000."),
            line("target.sqs.message_group_id", "SQS: message group", "Of a FIFO queue: alerts."),
            line("target.sqs.deadline", "SQS: answer within", "10s by default."),
        ],
    },
    Group {
        title: "Labels",
        is_folded: true,
        fields: &[of_kind(Kind::Pairs, "labels", "Labels", "name=value, one on each line: team=storage.")],
    },
];

/// A kind of trouble in words.
pub(crate) fn kind(name: &str) -> &str {
    KINDS.iter().find(|(known, _)| *known == name).map_or(name, |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use tollgate_proto::v1::TroubleKind;

    use super::*;

    #[test]
    fn each_kind_of_trouble_can_be_chosen() {
        let known: Vec<TroubleKind> = (1..).map_while(|n| TroubleKind::try_from(n).ok()).collect();
        for kind in &known {
            assert_ne!(super::kind(kind.as_str_name()), kind.as_str_name());
        }
        assert_eq!(known.len(), KINDS.len());
    }
}
