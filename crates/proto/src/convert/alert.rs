//! Decides what an alert may be.

use tollgate_core::alert::State;
use tollgate_core::model::{Alert, AlertRuns, AlertTarget, AlertTroubles, SlackTarget};
use uuid::Uuid;

use super::check::Check;
use super::headers::HIDDEN;
use super::target::{URL, http, http_to_message, is_url, origin, sqs, sqs_to_message};
use super::trouble::{kind_of_word, word_of_kind};
use super::{Name, duration_of_ms, names, timestamp};
use crate::field::FieldError;
use crate::v1;
use crate::v1::alert_target::Target as Kind;

/// The most schedules, and the most policies, that an alert names.
const NAMED_MAX: usize = 100;
const GROUP_WAIT_MAX_MS: i64 = 3_600_000;
const REPEAT_MIN_MS: i64 = 60_000;
const REPEAT_MAX_MS: i64 = 30 * 24 * 3_600_000;
/// Of one attempt: nobody waits for an answer for longer.
const DEADLINE_MAX_MS: i64 = 60_000;
const DEADLINE_MS: i64 = 10_000;

/// The alert that `message` describes, under `name`. What only the service decides (uid, generation, times) is taken from
/// `stored`, and zero where there is none; so are secrets that the message says to keep.
///
/// # Errors
/// Every field that is wrong, as `alert.…`.
pub fn to_core(message: &v1::Alert, name: &Name, stored: Option<&Alert>) -> Result<Alert, Vec<FieldError>> {
    let mut check = Check::new("alert");
    check.text("description", &message.description);
    check.labels(&message.labels);
    let before = stored.and_then(|stored| stored.troubles.as_ref());
    let troubles = message.troubles.as_ref().map(|given| troubles(&mut check, given, before));
    let runs = match check.choice("runs", message.runs, "FINISHED or FINISHED_WITH_FAILURES") {
        v1::AlertRuns::Unspecified => AlertRuns::None,
        v1::AlertRuns::Finished => AlertRuns::Finished,
        v1::AlertRuns::FinishedWithFailures => AlertRuns::FinishedWithFailures,
    };
    if troubles.is_none() && runs == AlertRuns::None {
        check.refuse("troubles", "", "what to tell of: troubles (`{}` means all), runs or both");
    }
    if message.schedule_labels.len() > NAMED_MAX {
        check.refuse("schedule_labels", message.schedule_labels.len(), format!("at most {NAMED_MAX} labels"));
    }
    let schedules =
        named(&mut check, "schedules", &message.schedules, &name.namespace, names::schedule_within);
    let policies = named(&mut check, "policies", &message.policies, &name.namespace, names::policy_within);
    let target = target(&mut check, message.target.as_ref(), stored.map(|stored| &stored.target));
    let group_wait_ms =
        check.ms("group_wait", message.group_wait.as_ref(), Alert::GROUP_WAIT_MS, &(0..=GROUP_WAIT_MAX_MS));
    let repeat_ms = repeat(&mut check, message);
    let alert = target.map(|target| Alert {
        uid: stored.map_or(Uuid::nil(), |stored| stored.uid),
        namespace: name.namespace.clone(),
        id: name.id.clone(),
        description: message.description.clone(),
        troubles,
        runs,
        schedules,
        policies,
        schedule_labels: message.schedule_labels.clone(),
        target,
        group_wait_ms,
        repeat_ms,
        send_resolved: message.send_resolved.unwrap_or(true),
        disabled: message.disabled,
        enabled_us: stored.map_or(0, |stored| stored.enabled_us),
        labels: message.labels.clone(),
        generation: stored.map_or(0, |stored| stored.generation),
        created_us: stored.map_or(0, |stored| stored.created_us),
        updated_us: stored.map_or(0, |stored| stored.updated_us),
    });
    check.finish(alert)
}

fn troubles(check: &mut Check, message: &v1::AlertTroubles, stored: Option<&AlertTroubles>) -> AlertTroubles {
    let mut kinds: Vec<String> = Vec::new();
    for (at, number) in message.kinds.iter().enumerate() {
        let known = v1::TroubleKind::try_from(*number).ok().and_then(word_of_kind);
        match known {
            Some(word) if kinds.iter().any(|one| one == word) => {}
            Some(word) => kinds.push(word.to_owned()),
            None => check.refuse(&format!("troubles.kinds[{at}]"), number, "a kind such as TARGET_REFUSES"),
        }
    }
    // Kinds that only a later version knows are not shown. Where what is shown comes back as it was, they stay.
    if let Some(stored) = stored
        && stored.kinds.iter().filter(|word| kind_of_word(word).is_some()).eq(&kinds)
    {
        kinds.clone_from(&stored.kinds);
    }
    let severity: v1::TroubleSeverity =
        check.choice("troubles.least_severity", message.least_severity, "CRITICAL or WARNING");
    AlertTroubles {
        kinds,
        critical_only: severity == v1::TroubleSeverity::Critical,
        installation: message.installation,
    }
}

/// Reads an id, or a full name, of a namespace.
type Within = fn(&str, &str, &str) -> Result<Name, FieldError>;

fn named(check: &mut Check, field: &str, given: &[String], namespace: &str, within: Within) -> Vec<String> {
    if given.len() > NAMED_MAX {
        check.refuse(field, given.len(), format!("at most {NAMED_MAX}"));
        return Vec::new();
    }
    let mut ids = Vec::new();
    for (at, text) in given.iter().enumerate() {
        let path = check.path(&format!("{field}[{at}]"));
        if let Some(name) = check.keep(within(&path, namespace, text))
            && !ids.contains(&name.id)
        {
            ids.push(name.id);
        }
    }
    ids
}

fn repeat(check: &mut Check, message: &v1::Alert) -> i64 {
    let given = message.repeat_interval.as_ref();
    if given.is_some_and(|span| (span.seconds, span.nanos) == (0, 0)) {
        return 0;
    }
    check.ms("repeat_interval", given, Alert::REPEAT_MS, &(REPEAT_MIN_MS..=REPEAT_MAX_MS))
}

fn target(
    check: &mut Check,
    message: Option<&v1::AlertTarget>,
    stored: Option<&AlertTarget>,
) -> Option<AlertTarget> {
    let deadlines = 1..=DEADLINE_MAX_MS;
    match message.and_then(|message| message.target.as_ref()) {
        None => {
            check.refuse("target", "", "http, slack or sqs");
            None
        }
        Some(Kind::Http(given)) => {
            let stored = match stored {
                Some(AlertTarget::Http { http }) => Some(http),
                _ => None,
            };
            let mut http = http(check, &v1::HttpTarget { deadline: None, ..given.clone() }, stored);
            if http.batch.take().is_some() {
                check.refuse(
                    "target.http.batch",
                    "",
                    "nothing: each message of an alert has its own request",
                );
            }
            if !http.http2.is_auto() {
                check.refuse("target.http.http2", "", "nothing: messages of alerts go by HTTP/1.1");
            }
            http.deadline_ms =
                check.ms("target.http.deadline", given.deadline.as_ref(), DEADLINE_MS, &deadlines);
            Some(AlertTarget::Http { http })
        }
        Some(Kind::Slack(given)) => {
            let stored = match stored {
                Some(AlertTarget::Slack { slack }) => Some(slack),
                _ => None,
            };
            let url = slack_url(check, &given.url, stored);
            let deadline_ms =
                check.ms("target.slack.deadline", given.deadline.as_ref(), DEADLINE_MS, &deadlines);
            Some(AlertTarget::Slack { slack: SlackTarget { url, deadline_ms } })
        }
        Some(Kind::Sqs(given)) => {
            let mut sqs = sqs(check, &v1::SqsTarget { deadline: None, ..given.clone() });
            sqs.deadline_ms =
                check.ms("target.sqs.deadline", given.deadline.as_ref(), DEADLINE_MS, &deadlines);
            Some(AlertTarget::Sqs { sqs })
        }
    }
}

/// The URL, or what is stored where it is given as it is shown.
fn slack_url(check: &mut Check, given: &str, stored: Option<&SlackTarget>) -> String {
    if given.ends_with(HIDDEN) {
        match stored.filter(|stored| hidden_url(&stored.url) == given) {
            Some(stored) => return stored.url.clone(),
            None => {
                check.refuse("target.slack.url", given, "the whole URL: none is stored that this could keep")
            }
        }
        return given.to_owned();
    }
    // A wrong one is not repeated: it may be nearly right.
    if !is_url(given) {
        check.refuse("target.slack.url", "", URL);
    }
    given.to_owned()
}

/// A webhook's URL without what authorises its caller.
fn hidden_url(url: &str) -> String {
    match origin(url) {
        Some((scheme, host, port)) => {
            let usual = matches!((scheme.as_str(), port), ("https", 443) | ("http", 80));
            let port = if usual { String::new() } else { format!(":{port}") };
            format!("{scheme}://{host}{port}/{HIDDEN}")
        }
        None => HIDDEN.to_owned(),
    }
}

/// An alert as callers see it, without its secrets.
pub fn to_message(alert: &Alert, state: Option<&State>) -> v1::Alert {
    let Alert { namespace, .. } = alert;
    v1::Alert {
        name: names::of_alert(namespace, &alert.id),
        uid: alert.uid.to_string(),
        description: alert.description.clone(),
        troubles: alert.troubles.as_ref().map(|troubles| v1::AlertTroubles {
            kinds: troubles.kinds.iter().filter_map(|word| kind_of_word(word)).map(Into::into).collect(),
            least_severity: match troubles.critical_only {
                true => v1::TroubleSeverity::Critical,
                false => v1::TroubleSeverity::Warning,
            }
            .into(),
            installation: troubles.installation,
        }),
        runs: match alert.runs {
            AlertRuns::None => v1::AlertRuns::Unspecified,
            AlertRuns::Finished => v1::AlertRuns::Finished,
            AlertRuns::FinishedWithFailures => v1::AlertRuns::FinishedWithFailures,
        }
        .into(),
        schedules: alert.schedules.iter().map(|id| names::of_schedule(namespace, id)).collect(),
        policies: alert.policies.iter().map(|id| names::of_policy(namespace, id)).collect(),
        schedule_labels: alert.schedule_labels.clone(),
        target: Some(v1::AlertTarget { target: Some(target_to_message(&alert.target)) }),
        group_wait: Some(duration_of_ms(alert.group_wait_ms)),
        repeat_interval: Some(duration_of_ms(alert.repeat_ms)),
        send_resolved: Some(alert.send_resolved),
        disabled: alert.disabled,
        labels: alert.labels.clone(),
        etag: alert.generation.to_string(),
        create_time: Some(timestamp(alert.created_us)),
        update_time: Some(timestamp(alert.updated_us)),
        status: state.map(status),
        warnings: Vec::new(),
    }
}

fn target_to_message(target: &AlertTarget) -> Kind {
    match target {
        AlertTarget::Http { http } => Kind::Http(http_to_message(http)),
        AlertTarget::Slack { slack } => Kind::Slack(v1::SlackTarget {
            url: hidden_url(&slack.url),
            deadline: Some(duration_of_ms(slack.deadline_ms)),
        }),
        AlertTarget::Sqs { sqs } => Kind::Sqs(sqs_to_message(sqs)),
    }
}

fn status(state: &State) -> v1::AlertStatus {
    let pending = state.pending.as_ref();
    v1::AlertStatus {
        raised_count: u32::try_from(state.raised.len()).unwrap_or(u32::MAX),
        sent_count: state.sent,
        dropped_count: state.dropped,
        last_send_time: state.sent_us.map(timestamp),
        last_error: state.error.clone(),
        last_error_time: state.error_us.map(timestamp),
        attempts: pending.map_or(0, |pending| pending.attempts),
        next_attempt_time: pending.map(|pending| timestamp(pending.next_us)),
    }
}
