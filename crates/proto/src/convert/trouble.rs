//! How troubles look to callers, and how the processes of an installation tell them to each other.

use tollgate_core::trouble::{Kind, Severity, Subject, Trouble};

use super::{check, names, timestamp};
use crate::field::FieldError;
use crate::v1;

/// Core and message, kind by kind.
const KINDS: [(Kind, v1::TroubleKind); 23] = [
    (Kind::StoreFails, v1::TroubleKind::StoreFails),
    (Kind::ShardsWithoutOwner, v1::TroubleKind::ShardsWithoutOwner),
    (Kind::HandlerSilent, v1::TroubleKind::HandlerSilent),
    (Kind::ShardsNotLoaded, v1::TroubleKind::ShardsNotLoaded),
    (Kind::ClockWrong, v1::TroubleKind::ClockWrong),
    (Kind::CorruptRows, v1::TroubleKind::CorruptRows),
    (Kind::EmitterBehind, v1::TroubleKind::EmitterBehind),
    (Kind::DispatchPaused, v1::TroubleKind::DispatchPaused),
    (Kind::TargetRefuses, v1::TroubleKind::TargetRefuses),
    (Kind::TargetSilent, v1::TroubleKind::TargetSilent),
    (Kind::NotSent, v1::TroubleKind::NotSent),
    (Kind::NoWorker, v1::TroubleKind::NoWorker),
    (Kind::TokensSilent, v1::TroubleKind::TokensSilent),
    (Kind::ConsumerFails, v1::TroubleKind::ConsumerFails),
    (Kind::ListFails, v1::TroubleKind::ListFails),
    (Kind::PolicyPaused, v1::TroubleKind::PolicyPaused),
    (Kind::DeadlineAtRisk, v1::TroubleKind::DeadlineAtRisk),
    (Kind::EventsExpired, v1::TroubleKind::EventsExpired),
    (Kind::EventsFailed, v1::TroubleKind::EventsFailed),
    (Kind::TriggersMissed, v1::TroubleKind::TriggersMissed),
    (Kind::NotListed, v1::TroubleKind::NotListed),
    (Kind::Slower, v1::TroubleKind::Slower),
    (Kind::StoreSlow, v1::TroubleKind::StoreSlow),
];

/// A trouble as callers see it.
pub fn to_message(trouble: &Trouble) -> v1::Trouble {
    let Subject { namespace, policy, schedule, target, process } = &trouble.subject;
    let named = |id: &str, name: fn(&str, &str) -> String| {
        if id.is_empty() { String::new() } else { name(namespace, id) }
    };
    v1::Trouble {
        kind: kind(trouble.kind).into(),
        severity: match trouble.severity {
            Severity::Critical => v1::TroubleSeverity::Critical,
            Severity::Warning => v1::TroubleSeverity::Warning,
        }
        .into(),
        summary: trouble.summary(),
        what_to_do: trouble.what_to_do(),
        policy: named(policy, names::of_policy),
        schedule: named(schedule, names::of_schedule),
        target: target.clone(),
        process: process.clone(),
        since_time: trouble.since_us.map(timestamp),
        waiting_count: trouble.waiting,
        oldest_launch_time: trouble.oldest_launch_us.map(timestamp),
        affected_count: trouble.count,
        runs_count: trouble.runs,
        message: trouble.words.clone(),
    }
}

/// What another process has told; none where it is of a kind that only a later version knows.
pub fn from_message(message: v1::Trouble) -> Option<Trouble> {
    let (kind, _) = *KINDS.iter().find(|(_, shown)| *shown == message.kind())?;
    let severity = match message.severity() {
        v1::TroubleSeverity::Critical => Severity::Critical,
        v1::TroubleSeverity::Warning => Severity::Warning,
        v1::TroubleSeverity::Unspecified => return None,
    };
    let policy = names::policy("policy", &message.policy).ok();
    let schedule = names::schedule("schedule", &message.schedule).ok();
    let namespace = policy.iter().chain(&schedule).map(|name| name.namespace.clone()).next();
    let id = |name: Option<names::Name>| name.map(|name| name.id).unwrap_or_default();
    let us = |time: Option<&_>| time.and_then(|time| check::time_us("time", time).ok());
    Some(Trouble {
        kind,
        severity,
        subject: Subject {
            namespace: namespace.unwrap_or_default(),
            policy: id(policy),
            schedule: id(schedule),
            target: message.target,
            process: message.process,
        },
        since_us: us(message.since_time.as_ref()),
        waiting: message.waiting_count,
        oldest_launch_us: us(message.oldest_launch_time.as_ref()),
        count: message.affected_count,
        runs: message.runs_count,
        words: message.message,
    })
}

/// The kind of a core's word; none where only another version knows it.
pub(super) fn kind_of_word(word: &str) -> Option<v1::TroubleKind> {
    KINDS.iter().find(|(kind, _)| kind.word() == word).map(|(_, shown)| *shown)
}

/// The core's word of a kind; none for UNSPECIFIED.
pub(super) fn word_of_kind(kind: v1::TroubleKind) -> Option<&'static str> {
    KINDS.iter().find(|(_, shown)| *shown == kind).map(|(kind, _)| kind.word())
}

fn kind(kind: Kind) -> v1::TroubleKind {
    KINDS.iter().find(|(of, _)| *of == kind).map_or(v1::TroubleKind::Unspecified, |(_, shown)| *shown)
}

/// The kind that `kind=…` in a filter names, with or without its prefix, in any case.
///
/// # Errors
/// Any other text, in `filter`.
pub fn kind_in_filter(text: &str) -> Result<Kind, FieldError> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("TROUBLE_KIND_").unwrap_or(&name);
    let word = |shown: v1::TroubleKind| shown.as_str_name().trim_start_matches("TROUBLE_KIND_");
    KINDS.iter().find(|(_, shown)| word(*shown) == name).map(|(kind, _)| *kind).ok_or_else(|| {
        let all: Vec<&str> = KINDS.iter().map(|(_, shown)| word(*shown)).collect();
        FieldError::new("filter", text, format!("kind=KIND, with one of {}", all.join(", ")))
    })
}

/// The severity that `severity=…` in a filter names, with or without its prefix, in any case.
///
/// # Errors
/// Any other text, in `filter`.
pub fn severity_in_filter(text: &str) -> Result<Severity, FieldError> {
    let name = text.to_ascii_uppercase();
    match name.strip_prefix("TROUBLE_SEVERITY_").unwrap_or(&name) {
        "CRITICAL" => Ok(Severity::Critical),
        "WARNING" => Ok(Severity::Warning),
        _ => Err(FieldError::new("filter", text, "severity=CRITICAL or WARNING")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn what_a_process_tells_is_what_another_hears() {
        for (at, (kind, shown)) in KINDS.into_iter().enumerate() {
            assert_eq!(kind, Kind::ALL[at]);
            let trouble = Trouble {
                severity: if at % 2 == 0 { Severity::Critical } else { Severity::Warning },
                since_us: Some(1_700_000_000_000_001),
                waiting: 3,
                oldest_launch_us: (at % 3 == 0).then_some(7),
                count: 4,
                runs: 5,
                words: "503".to_owned(),
                ..Trouble::new(
                    kind,
                    Subject {
                        namespace: "team".to_owned(),
                        policy: "p".to_owned(),
                        schedule: if at % 2 == 0 { String::new() } else { "s".to_owned() },
                        target: "http://t".to_owned(),
                        process: "x".to_owned(),
                    },
                )
            };
            let message = to_message(&trouble);
            assert_eq!((message.kind(), message.summary.as_str()), (shown, trouble.summary().as_str()));
            assert_eq!(from_message(message), Some(trouble));
            let name = shown.as_str_name();
            assert_eq!(kind_in_filter(name).unwrap(), kind);
            assert_eq!(kind_in_filter(&name["TROUBLE_KIND_".len()..].to_lowercase()).unwrap(), kind);
            assert_eq!(name["TROUBLE_KIND_".len()..].to_lowercase(), kind.word());
        }
        let whole = Trouble::new(Kind::EmitterBehind, Subject::default());
        assert_eq!(from_message(to_message(&whole)), Some(whole));
    }

    #[test]
    fn what_only_a_later_version_knows_is_passed_over() {
        let known = to_message(&Trouble::new(Kind::EmitterBehind, Subject::default()));
        assert_eq!(from_message(v1::Trouble { kind: 99, ..known.clone() }), None);
        assert_eq!(from_message(v1::Trouble { severity: 0, ..known }), None);
        assert_eq!(kind_in_filter("EVERYTHING").unwrap_err().field, "filter");
        assert!(kind_in_filter("UNSPECIFIED").is_err());
        assert_eq!(severity_in_filter("bad").unwrap_err().field, "filter");
        assert_eq!(severity_in_filter("TROUBLE_SEVERITY_WARNING").unwrap(), Severity::Warning);
    }
}
