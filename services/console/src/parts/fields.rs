//! Which fields the forms of schedules and policies have, and their help.

use crate::parts::forms::{Group, Kind, Spec, line, of_kind};

const fn number(path: &'static str, label: &'static str, hint: &'static str) -> Spec {
    of_kind(Kind::Number, path, label, hint)
}

const RECLAIM: &[(&str, &str)] = &[
    ("", "after a silence (the default)"),
    ("RECLAIM_AFTER_TTL", "after a silence"),
    ("RECLAIM_NEVER", "never: only an operator frees it"),
];
const TTL_FROM: &[(&str, &str)] = &[
    ("", "as the target suggests (the default)"),
    ("TTL_FROM_DELIVERY", "from delivery"),
    ("TTL_FROM_FIRST_HEARTBEAT", "from the first heartbeat"),
];
const GAP: &[(&str, &str)] = &[
    ("", "it fires right after the gap (the default)"),
    ("GAP_RULE_NEXT_VALID", "it fires right after the gap"),
    ("GAP_RULE_SKIP", "it does not fire that day"),
];
const REPEAT: &[(&str, &str)] = &[
    ("", "it fires the first time only (the default)"),
    ("REPEAT_RULE_FIRST", "it fires the first time only"),
    ("REPEAT_RULE_BOTH", "it fires both times"),
];
const ON_GUARD: &[(&str, &str)] = &[
    ("", "its release is refused (the default)"),
    ("CHECK_GUARD_REFUSE", "its release is refused"),
    ("CHECK_GUARD_CLOSE", "it ends as FAILED"),
];
const RELEASE: &[(&str, &str)] = &[
    ("", "with a policy: when the consumer says so; else with the answer"),
    ("RELEASE_MODE_ON_RESPONSE", "with the answer"),
    ("RELEASE_MODE_EXPLICIT", "when the consumer says so"),
];
const HTTP2: &[(&str, &str)] = &[
    ("", "where a server with TLS chooses it (the default)"),
    ("HTTP2_PRIOR_KNOWLEDGE", "always, without TLS: its server is known to speak it"),
    ("HTTP2_NEVER", "never"),
];
const CONTENT_MODE: &[(&str, &str)] = &[
    ("", "a whole document as the value (the default)"),
    ("KAFKA_CONTENT_MODE_BINARY", "its data as the value, its attributes as headers"),
];
const OVERLAP: &[(&str, &str)] = &[
    ("", "both run (the default)"),
    ("OVERLAP_ALLOW", "both run"),
    ("OVERLAP_SKIP", "the new one is skipped"),
    ("OVERLAP_BUFFER_ONE", "the new one waits for the old one"),
    ("OVERLAP_CANCEL_OTHER", "what the old one has not started is cancelled"),
];
const WHEN_DONE: &[(&str, &str)] = &[
    ("", "it stays (the default)"),
    ("WHEN_DONE_KEEP", "it stays"),
    ("WHEN_DONE_DELETE", "it is deleted, when its last run has ended"),
];
const CATCH_UP: &[(&str, &str)] = &[
    ("", "the latest runs (the default)"),
    ("CATCH_UP_MODE_NONE", "none runs"),
    ("CATCH_UP_MODE_LATEST", "the latest runs"),
    ("CATCH_UP_MODE_ALL", "each runs, back to the horizon"),
];
const ON_FINISH: &[(&str, &str)] = &[
    ("", "if all succeeded (the default)"),
    ("FINISH_CONDITION_ALL_SUCCEEDED", "if all succeeded"),
    ("FINISH_CONDITION_ANY_FAILED", "if any failed"),
    ("FINISH_CONDITION_ALWAYS", "always"),
];
const FORMATS: &[(&str, &str)] = &[
    ("", "as the answer's Content-Type says (the default)"),
    ("ITEMS_FORMAT_NDJSON", "NDJSON: a JSON value a line"),
    ("ITEMS_FORMAT_JSON", "JSON: an array, or an object that has one"),
    ("ITEMS_FORMAT_CSV", "CSV, with a header row"),
];
const RETRY_LOST: &[(&str, &str)] = &[("", "yes (the default)"), ("true", "yes"), ("false", "no")];

const ADOPTS: &[(&str, &str)] = &[("", "no (the default)"), ("true", "yes")];

/// The fields of a policy.
pub(crate) const POLICY: &[Group] = &[
    Group {
        title: "What it limits",
        is_folded: false,
        fields: &[
            number(
                "max_in_flight",
                "In flight at most",
                "Events at once, over all schedules that use it: 8. At least one of the two limits, or a parent.",
            ),
            of_kind(
                Kind::Decimal,
                "rate_per_second",
                "Started per second at most",
                "On average: 5 or 0.5. Empty: no such limit.",
            ),
            number(
                "burst",
                "Burst",
                "How many may start at once after a quiet time; needs the rate. Empty: one second's worth.",
            ),
            of_kind(
                Kind::Text,
                "description",
                "Description",
                "For people: what is protected, and who knows.",
            ),
        ],
    },
    Group {
        title: "Its place in a tree",
        is_folded: true,
        fields: &[
            line(
                "parent",
                "Stands below",
                "The id of a policy: events take a token of that one, too. Empty in a new policy: the one that adopts, if there is any.",
            ),
            number(
                "floor",
                "Floor",
                "How many of the parent's tokens its events get first. What they do not want is lent. Empty: none.",
            ),
            number(
                "weight",
                "Weight",
                "How many turns in a row it has where the policies of one parent take turns. Empty: 1.",
            ),
            of_kind(
                Kind::Choice(ADOPTS),
                "adopts",
                "Adopts new policies",
                "New policies of this namespace that name no parent stand below it. One policy at most.",
            ),
        ],
    },
    Group {
        title: "What it limits by key",
        is_folded: true,
        fields: &[
            number(
                "per_key.max_in_flight",
                "In flight of one key at most",
                "A schedule names its key, such as a tenant. Empty: no such limit.",
            ),
            of_kind(
                Kind::Decimal,
                "per_key.rate_per_second",
                "Started of one key per second at most",
                "On average: 5 or 0.5. Empty: no such limit.",
            ),
            number(
                "per_key.burst",
                "Burst of one key",
                "Needs the rate of one key. Empty: one second's worth.",
            ),
            of_kind(
                Kind::Json,
                "keys",
                "Single keys",
                "{\"acme\": {\"max_in_flight\": 5, \"weight\": 2}, \"zeta\": {\"paused\": true, \"reason\": \"they asked\"}}",
            ),
        ],
    },
    Group {
        title: "When a consumer falls silent",
        is_folded: true,
        fields: &[
            of_kind(
                Kind::Choice(RECLAIM),
                "reclaim",
                "Its token comes back",
                "Never means that no more consumers work than the limit says, whatever happens.",
            ),
            line("token_ttl", "Silence that is allowed", "15m by default; then the token is suspect."),
            line("suspect_period", "Suspect for", "1m by default; then the token comes back."),
            of_kind(
                Kind::Choice(TTL_FROM),
                "ttl_from",
                "Silence counts",
                "SQS consumers begin with a heartbeat.",
            ),
            line("unstarted_ttl", "Before the first heartbeat", "12h by default."),
        ],
    },
    Group {
        title: "Labels",
        is_folded: true,
        fields: &[of_kind(Kind::Pairs, "labels", "Labels", "name=value, one on each line: team=storage.")],
    },
];

/// The fields of a schedule.
pub(crate) const SCHEDULE: &[Group] = &[
    Group {
        title: "When",
        is_folded: false,
        fields: &[
            of_kind(
                Kind::Rules,
                "cron",
                "Fires at",
                "Cron expressions, one on each line: minute, hour, day of month, month, day of week. 30 2 * * MON-FRI. \
                 Without any of these three, it fires by hand alone.",
            ),
            of_kind(
                Kind::Rules,
                "intervals",
                "Fires every",
                "Intervals, one on each line: 15m, or 6h from 2026-01-01T03:00:00Z",
            ),
            of_kind(
                Kind::Rules,
                "moments",
                "Fires once at",
                "Moments, one on each line: 2026-12-24T18:00:00Z",
            ),
            line("time_zone", "Time zone", "A name such as Europe/Berlin; UTC where empty."),
        ],
    },
    Group {
        title: "What, and how many at once",
        is_folded: false,
        fields: &[
            number("events", "Events per trigger", "1 to 10,000,000; 1 where empty."),
            line("policy", "Policy", "The id of a policy; nothing limits it where empty."),
            number(
                "units",
                "Tokens of an event",
                "How many an event takes of its policy, of those above and of its key: 1 to 1,000; 1 where empty.",
            ),
            line("key", "Key", "As what its events count where the policy counts by key, such as a tenant."),
            line("key_label", "Key by label", "Instead: the name of a label below, whose value is the key."),
            number("priority", "Priority", "0 (last) to 9 (first); 5 where empty."),
            line("finish_by", "Must start within", "Such as 2h or 900s; events that start later expire."),
            line("spread", "Spread over", "Such as 10m: events are spaced evenly over it."),
            line("start_within", "Starts within", "Such as 10m: at a moment of its own, the same each time."),
            number(
                "start_within_percent",
                "Starts within, in %",
                "Instead: a share of its interval, 1 to 100.",
            ),
            of_kind(Kind::Text, "description", "Description", "Free text."),
        ],
    },
    Group {
        title: "Where its events go",
        is_folded: false,
        fields: &[
            line(
                "target.http.url",
                "HTTP: URL",
                "http://consumer.example:8080/events; one of the four: this, an SQS queue, a Kafka topic, or workers.",
            ),
            of_kind(
                Kind::Secret,
                "target.http.secret",
                "HTTP: secret",
                "whsec_ and base64, to sign with. Never shown; empty keeps what is stored.",
            ),
            line(
                "target.sqs.queue_url",
                "SQS: queue URL",
                "The queue as AWS names it; one that ends in .fifo keeps its order.",
            ),
            of_kind(
                Kind::List,
                "target.kafka.bootstrap_servers",
                "Kafka: brokers",
                "Some of them, one on each line: kafka-1.example:9092",
            ),
            line("target.kafka.topic", "Kafka: topic", "orders"),
            line(
                "target.pull.queue",
                "Workers: queue",
                "Workers that connect take its events themselves: render.",
            ),
            of_kind(
                Kind::List,
                "target.pull.requires",
                "Workers: labels",
                "What a worker must have to be given its events, one on each line: gpu",
            ),
            of_kind(
                Kind::Choice(RELEASE),
                "target.release",
                "Its token comes back",
                "Explicit: the consumer calls ReleaseToken.",
            ),
        ],
    },
    Group {
        title: "More about the target",
        is_folded: true,
        fields: &[
            of_kind(
                Kind::Pairs,
                "target.http.headers",
                "HTTP: headers",
                "name=value, one on each line; *** keeps what is stored.",
            ),
            line("target.http.deadline", "HTTP: answer within", "30s by default."),
            of_kind(
                Kind::Choice(HTTP2),
                "target.http.http2",
                "HTTP/2",
                "Many events on few connections. A server with TLS is asked as it begins.",
            ),
            number(
                "target.http.batch.max_events",
                "HTTP: events of a request",
                "One, where empty; 2 to 1,000.",
            ),
            number(
                "target.http.batch.max_bytes",
                "HTTP: bytes of a request",
                "Of several events; 1,048,576 by default.",
            ),
            line("target.http.batch.max_wait", "HTTP: wait for further events", "0s by default; 1s at most."),
            line("target.sqs.region", "SQS: region", "From the URL where empty."),
            line("target.sqs.endpoint_url", "SQS: endpoint", "For emulators."),
            line("target.sqs.message_group_id", "SQS: message group", "Of a FIFO queue."),
            line("target.sqs.deadline", "SQS: answer within", "10s by default."),
            line(
                "target.kafka.key",
                "Kafka: key of records",
                "{key} where empty: the event's own, such as a tenant.",
            ),
            of_kind(
                Kind::Pairs,
                "target.kafka.headers",
                "Kafka: headers",
                "name=value, one on each line; *** keeps what is stored.",
            ),
            of_kind(
                Kind::Choice(CONTENT_MODE),
                "target.kafka.content_mode",
                "Kafka: an event is",
                "By the CloudEvents binding for Kafka.",
            ),
            line("target.kafka.deadline", "Kafka: acknowledge within", "30s by default; 5s at least."),
            line(
                "target.pull.deadline",
                "Workers: accept within",
                "10s by default; then it is given to another one.",
            ),
        ],
    },
    Group {
        title: "Payload, items and labels",
        is_folded: true,
        fields: &[
            of_kind(
                Kind::Json,
                "payload",
                "Payload",
                "Any JSON, which each event carries as its data: {\"bucket\": \"a\"}",
            ),
            of_kind(
                Kind::Json,
                "items",
                "Items",
                "What each event carries of its own, 1,000 at most; events per trigger stays empty then. \
                 [{\"data\": {\"tenant\": 7}, \"key\": \"acme\", \"units\": 3}]",
            ),
            of_kind(Kind::Pairs, "labels", "Labels", "name=value, one on each line: team=storage."),
        ],
    },
    Group {
        title: "Items from a list",
        is_folded: true,
        fields: &[
            line(
                "items_from.http.url",
                "URL of the list",
                "Fetched ahead of each run, which has an event for each item. Events per trigger stays empty then.",
            ),
            of_kind(
                Kind::Pairs,
                "items_from.http.headers",
                "Headers",
                "name=value, one on each line; *** keeps what is stored.",
            ),
            of_kind(Kind::Choice(FORMATS), "items_from.http.format", "Format", "How its items are written."),
            line("items_from.http.key_field", "Key of an item", "The member or column that is its key."),
            line(
                "items_from.http.units_field",
                "Tokens of an item",
                "The member or column that says how many its event takes; as above where an item lacks it.",
            ),
            line(
                "items_from.http.items_field",
                "Member with the items",
                "Where the answer is an object, such as items.",
            ),
            line("items_from.http.next_field", "Member with the next page", "Of that object, such as next."),
            line(
                "items_from.http.next_parameter",
                "Parameter for the next page",
                "Where it is a cursor and no URL.",
            ),
            line("items_from.http.deadline", "A page within", "30s by default."),
            line("items_from.fetch_ahead", "Fetch ahead of a run", "5m by default."),
            line("items_from.give_up_after", "Give up after its launch time", "15m by default."),
        ],
    },
    Group {
        title: "When something goes wrong",
        is_folded: true,
        fields: &[
            number("retry.max_attempts", "Attempts", "1 to 1,000; 20 by default."),
            line("retry.min_backoff", "Wait before the second", "1s by default."),
            line("retry.max_backoff", "Wait at most", "It doubles up to this: 5m by default."),
            of_kind(
                Kind::Choice(RETRY_LOST),
                "retry.retry_lost",
                "Try again what a silent consumer had",
                "Else it is closed as LOST.",
            ),
            of_kind(
                Kind::Choice(CATCH_UP),
                "catch_up.mode",
                "Triggers missed in an outage",
                "What becomes of them.",
            ),
            line("catch_up.horizon", "Back to", "Needed where each runs: 6h."),
            of_kind(
                Kind::Choice(OVERLAP),
                "overlap",
                "While an earlier run is unfinished",
                "What a new run does.",
            ),
            line(
                "delay_after_finish",
                "Rest after each run",
                "Such as 5m; what falls due meanwhile is skipped, or waits, as said above.",
            ),
            line(
                "on_finish.schedule",
                "What follows",
                "The id of a schedule: a run of it is launched when a run of this one has ended.",
            ),
            of_kind(Kind::Choice(ON_FINISH), "on_finish.when", "It follows", "After what end."),
            number("on_finish.events", "With so many events", "Where it is not to say it itself."),
        ],
    },
    Group {
        title: "Clock changes, beginning and end, checks",
        is_folded: true,
        fields: &[
            of_kind(Kind::Choice(GAP), "gap", "At a time that a clock change skips", ""),
            of_kind(Kind::Choice(REPEAT), "repeat", "At a time that a clock change repeats", ""),
            line("start_time", "Not before", "2026-12-01T00:00:00Z"),
            line("end_time", "Not from then on", "2027-01-01T00:00:00Z"),
            of_kind(Kind::Choice(WHEN_DONE), "when_done", "Once it never fires again", ""),
            line("delete_after", "Delete it after", "Only where it is deleted; 1h by default."),
            of_kind(
                Kind::List,
                "exclude",
                "Not on these dates",
                "One on each line: 2026-12-25, or 2026-12-24..2027-01-01",
            ),
            of_kind(
                Kind::List,
                "exclude_calendars",
                "Nor on the dates of these calendars",
                "The id of a calendar on each line, such as holidays",
            ),
            number(
                "check_again.max_checks",
                "An event may ask to come again",
                "So many times; 100 by default.",
            ),
            line("check_again.horizon", "At most so far ahead", "7d (168h) by default."),
            line("check_again.slot", "Rounded up to", "1s by default."),
            of_kind(Kind::Choice(ON_GUARD), "check_again.on_guard", "If it asks for more", ""),
        ],
    },
];

/// The fields of a calendar.
pub(crate) const CALENDAR: &[Group] = &[Group {
    title: "Dates",
    is_folded: false,
    fields: &[
        of_kind(Kind::List, "dates", "Dates", "One on each line: 2026-12-25, or 2026-12-24..2027-01-01"),
        of_kind(Kind::Text, "description", "Description", "For people: whose days these are."),
        of_kind(Kind::Pairs, "labels", "Labels", "name=value, one on each line: team=storage."),
    ],
}];
