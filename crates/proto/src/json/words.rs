//! Decides what those mean who write the words of other schedulers.

use tollgate_core::nearest::plain;

/// What to write for a word that other systems use.
pub(super) enum Meant {
    /// It is this field of the same message, or of one in it; `[]` stands behind lists.
    Field(&'static str),
    /// There is no field for it.
    Told(&'static str),
}

use Meant::{Field, Told};

/// The words that people bring for a field of a message, without case and separators.
const WORDS: &[(&str, &[&str], Meant)] = &[
    (
        "Schedule",
        &["schedule", "crontab", "cronexpression", "expression", "cronschedule"],
        Field("triggers[].cron"),
    ),
    ("Schedule", &["every", "frequency", "period"], Field("triggers[].interval.every")),
    ("Schedule", &["runat", "when", "once", "date"], Field("triggers[].at")),
    ("Schedule", &["tz", "zone", "location"], Field("time_zone")),
    ("Schedule", &["count", "n", "batchsize", "size", "completions"], Field("events")),
    ("Schedule", &["body", "data", "input", "args", "params", "parameters"], Field("payload")),
    ("Schedule", &["endpoint", "webhook", "uri", "callback", "callbackurl"], Field("target.http.url")),
    ("Schedule", &["queue", "sqsqueue"], Field("target.sqs.queue_url")),
    (
        "Schedule",
        &["throttle", "throttling", "policyname", "policyref", "policyid", "bucket"],
        Field("policy"),
    ),
    (
        "Schedule",
        &["retries", "attempts", "maxretries", "backofflimit", "retrylimit"],
        Field("retry.max_attempts"),
    ),
    ("Schedule", &["backoff", "retrydelay"], Field("retry.min_backoff")),
    ("Schedule", &["then", "next", "downstream", "onsuccess", "oncomplete"], Field("on_finish.schedule")),
    ("Schedule", &["concurrencypolicy", "overlappolicy"], Field("overlap")),
    ("Schedule", &["fixeddelay", "cooldown", "delaybetweenruns", "mininterval"], Field("delay_after_finish")),
    (
        "Schedule",
        &["startingdeadlineseconds", "expires", "expireafter", "deadlineseconds"],
        Field("finish_by"),
    ),
    ("Schedule", &["jitter", "splay", "randomizeddelaysec", "flexiblewindow"], Field("start_within")),
    ("Schedule", &["holidays", "blackout", "excludedates", "exceptdates", "skipdates"], Field("exclude")),
    (
        "Schedule",
        &["calendar", "calendars", "excludecalendar", "holidaycalendar"],
        Field("exclude_calendars"),
    ),
    ("Schedule", &["misfire", "misfirepolicy", "catchupwindow"], Field("catch_up")),
    ("Schedule", &["start", "startdate", "startat", "startsat", "notbefore"], Field("start_time")),
    ("Schedule", &["end", "enddate", "endat", "endsat", "until", "notafter"], Field("end_time")),
    (
        "Schedule",
        &["timeout"],
        Told(
            "how long a call may take is target: {http: {deadline: 30s}}; how long a \
                                     consumer may be silent is tokenTtl of the policy",
        ),
    ),
    (
        "Schedule",
        &[
            "concurrency",
            "maxconcurrency",
            "parallelism",
            "parallel",
            "limit",
            "maxparallel",
            "maxconcurrent",
        ],
        Told(
            "how much runs at once is maxInFlight of a policy (kind: Policy), which the schedule names in policy",
        ),
    ),
    (
        "Schedule",
        &["suspend", "suspended", "paused", "enabled", "disabled", "active"],
        Told("`tollgate pause schedule ID` and `tollgate resume schedule ID` say whether it fires"),
    ),
    (
        "Policy",
        &[
            "concurrency",
            "maxconcurrency",
            "parallelism",
            "limit",
            "max",
            "m",
            "maxconcurrent",
            "tokens",
            "maxtokens",
        ],
        Field("max_in_flight"),
    ),
    ("Policy", &["rate", "qps", "rps", "ratelimit", "persecond"], Field("rate_per_second")),
    ("Policy", &["ttl", "timeout", "visibilitytimeout", "leaseduration"], Field("token_ttl")),
    (
        "Policy",
        &["suspend", "suspended", "paused", "enabled", "disabled", "active"],
        Told("`tollgate pause policy ID` and `tollgate resume policy ID` say whether anything starts"),
    ),
    ("Calendar", &["exclude", "holidays", "days", "excludedates", "entries"], Field("dates")),
    ("Alert", &["enabled"], Told("write disabled: true to turn it off; it is on by default")),
    ("Alert", &["webhook", "endpoint", "uri"], Field("target.http.url")),
    ("Alert", &["schedule"], Field("schedules")),
    ("Alert", &["policy"], Field("policies")),
    ("Alert", &["severity"], Field("troubles.least_severity")),
    ("Alert", &["repeat", "renotify", "repeatevery"], Field("repeat_interval")),
    ("HttpTarget", &["timeout", "timeoutseconds"], Field("deadline")),
    ("HttpTarget", &["signingsecret", "webhooksecret", "signingkey"], Field("secret")),
    ("HttpTarget", &["method", "verb"], Told("an event is always sent by POST: leave it out")),
    ("HttpTarget", &["body", "data"], Told("what an event carries is payload of the schedule")),
    ("HttpTarget", &["endpoint", "uri", "address"], Field("url")),
    ("SqsTarget", &["url", "queue", "queuename", "arn", "queuearn"], Field("queue_url")),
    ("SqsTarget", &["endpoint"], Field("endpoint_url")),
    (
        "KafkaTarget",
        &["brokers", "servers", "bootstrap", "bootstrapserver", "hosts"],
        Field("bootstrap_servers"),
    ),
    ("KafkaTarget", &["partitionkey", "messagekey", "recordkey"], Field("key")),
    ("KafkaTarget", &["timeout", "deliverytimeout"], Field("deadline")),
    ("RetryPolicy", &["retries", "attempts", "max", "count", "maxretries", "limit"], Field("max_attempts")),
    ("RetryPolicy", &["backoff", "delay", "wait", "initialbackoff"], Field("min_backoff")),
    ("ScheduleItem", &["payload", "body", "value"], Field("data")),
    ("ScheduleItem", &["id", "name", "tenant"], Field("key")),
    ("Interval", &["seconds", "period", "interval", "duration"], Field("every")),
    ("Interval", &["offset", "phase", "start"], Field("anchor")),
    ("FieldTimes", &["minutes"], Field("minute")),
    ("FieldTimes", &["hours"], Field("hour")),
    ("FieldTimes", &["day", "days", "dayofmonths"], Field("day_of_month")),
    ("FieldTimes", &["weekday", "weekdays", "dow"], Field("day_of_week")),
    ("FieldTimes", &["months"], Field("month")),
    (
        "FieldTimes",
        &["second", "seconds"],
        Told(
            "a schedule fires on whole minutes; an interval may be shorter: \
                                                 interval: {every: 10s}",
        ),
    ),
    ("Trigger", &["schedule", "crontab", "expression"], Field("cron")),
    ("Trigger", &["time", "date", "once"], Field("at")),
];

/// What a word means in a message of this name.
pub(super) fn meant(message: &str, word: &str) -> Option<&'static Meant> {
    let word = plain(word);
    WORDS
        .iter()
        .find(|(name, words, _)| *name == message && words.contains(&word.as_str()))
        .map(|(_, _, meant)| meant)
}

/// The value of an enum that stands for what other systems call so.
pub(super) fn value(enumeration: &str, word: &str) -> Option<&'static str> {
    match (enumeration, plain(word).as_str()) {
        ("Overlap", "forbid" | "never" | "no" | "false" | "serial" | "drop") => Some("SKIP"),
        ("Overlap", "replace" | "terminateother" | "cancel") => Some("CANCEL_OTHER"),
        ("Overlap", "queue" | "buffer" | "wait") => Some("BUFFER_ONE"),
        ("Overlap", "yes" | "true" | "allowall" | "always") => Some("ALLOW"),
        ("CatchUpMode", "last" | "true" | "once") => Some("LATEST"),
        ("CatchUpMode", "false" | "skip" | "never" | "no") => Some("NONE"),
        ("CatchUpMode", "every" | "always") => Some("ALL"),
        ("ReleaseMode", "manual" | "async") => Some("EXPLICIT"),
        ("ReleaseMode", "response" | "auto" | "sync" | "automatic") => Some("ON_RESPONSE"),
        ("Reclaim", "ttl" | "true" | "yes") => Some("AFTER_TTL"),
        ("Reclaim", "no" | "false") => Some("NEVER"),
        _ => None,
    }
}

/// The field that a value alone stands for, where a message is asked for: `every` of an interval.
pub(super) fn sole(message: &str) -> Option<&'static str> {
    Some(match message {
        "Trigger" => "cron",
        "Interval" => "every",
        "Target" | "AlertTarget" => "http.url",
        "HttpTarget" | "SlackTarget" => "url",
        "SqsTarget" => "queue_url",
        "CatchUp" => "mode",
        "RetryPolicy" => "max_attempts",
        _ => return None,
    })
}
