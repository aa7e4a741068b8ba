//! From state to troubles.

use super::{Bucket, Ended, Failing, Installation, Kind, Said, Severity, Sight, Subject, Sufferer, Trouble};
use crate::model::SECOND_US;

/// From how many failures on an event is in trouble.
const FAILURES_MIN: u32 = 3;
/// So is one that a target did not take, and that was first tried this long ago. One that fails and goes well right after
/// is none, nor is one that its consumer asks to get again.
const FAILING_MIN_US: i64 = 10 * SECOND_US;
/// How far the emitters may be behind, as they are after one of them has died.
const BEHIND_MIN_US: i64 = 5 * SECOND_US;
/// From here on they will not catch up by themselves.
const BEHIND_BADLY_US: i64 = 60 * SECOND_US;
/// How many characters of what somebody said are told.
const WORDS_CHARS: usize = 500;

/// The troubles of one queue shard.
pub fn of_shard(sight: &Sight, now_us: i64) -> Vec<Trouble> {
    let mut found = Vec::new();
    if let Some(pause) = &sight.pause
        && sight.waiting > 0
    {
        found.push(Trouble {
            severity: Severity::Critical,
            since_us: Some(pause.since_us),
            waiting: sight.waiting,
            oldest_launch_us: sight.oldest_launch_us,
            count: 1,
            words: said_by(&pause.actor, &pause.reason),
            ..Trouble::new(Kind::DispatchPaused, Subject::default())
        });
    }
    for bucket in &sight.buckets {
        found.extend(paused(bucket));
        found.extend(silent(bucket));
    }
    for sufferer in &sight.sufferers {
        for failing in sufferer.failing.iter().filter(|failing| lasts(failing, now_us)) {
            found.push(of_failing(sufferer, failing));
        }
        found.extend(sufferer.ended.iter().flat_map(of_ended));
    }
    found
}

/// The troubles of events that ended badly: those that failed, and those that did not start in time.
pub fn of_ended(ended: &Ended) -> Vec<Trouble> {
    let Ended { namespace, schedule, policy, failed, expired, runs, since_us, words } = ended;
    let trouble = |kind, count, words: &str| Trouble {
        since_us: Some(*since_us),
        count,
        runs: *runs,
        words: clipped(words),
        ..Trouble::new(kind, subject(namespace, policy, schedule))
    };
    let failed = (*failed > 0).then(|| trouble(Kind::EventsFailed, *failed, words));
    let expired = (*expired > 0).then(|| trouble(Kind::EventsExpired, *expired, ""));
    failed.into_iter().chain(expired).collect()
}

/// The troubles of the whole installation.
pub fn of_installation(known: &Installation, now_us: i64) -> Vec<Trouble> {
    let mut found = Vec::new();
    if known.shards_without_owner > 0 {
        found.push(Trouble {
            severity: Severity::Critical,
            count: known.shards_without_owner,
            ..Trouble::new(Kind::ShardsWithoutOwner, Subject::default())
        });
    }
    if let Some(until_us) = known.emitted_until_us.filter(|until_us| now_us - until_us >= BEHIND_MIN_US) {
        let badly = now_us - until_us >= BEHIND_BADLY_US;
        found.push(Trouble {
            severity: if badly { Severity::Critical } else { Severity::Warning },
            since_us: Some(until_us),
            count: 1,
            ..Trouble::new(Kind::EmitterBehind, Subject::default())
        });
    }
    found
}

/// A policy that is paused is in trouble when something waits for it.
fn paused(bucket: &Bucket) -> Option<Trouble> {
    let pause = bucket.pause.as_ref().filter(|_| bucket.waiting > 0)?;
    Some(Trouble {
        since_us: Some(pause.since_us),
        waiting: bucket.waiting,
        oldest_launch_us: bucket.oldest_launch_us,
        count: 1,
        words: said_by(&pause.actor, &pause.reason),
        ..Trouble::new(Kind::PolicyPaused, subject(&bucket.namespace, &bucket.policy, ""))
    })
}

/// Silent consumers are worse when they hold all tokens, and others wait.
fn silent(bucket: &Bucket) -> Option<Trouble> {
    let silent = bucket.silent.as_ref().filter(|silent| silent.tokens > 0)?;
    let all = bucket.limit.is_some_and(|limit| silent.tokens >= limit);
    Some(Trouble {
        severity: if all && bucket.waiting > 0 { Severity::Critical } else { Severity::Warning },
        since_us: silent.since_us,
        waiting: bucket.waiting,
        oldest_launch_us: bucket.oldest_launch_us,
        count: silent.tokens.into(),
        words: silent.schedule.clone(),
        ..Trouble::new(Kind::TokensSilent, subject(&bucket.namespace, &bucket.policy, ""))
    })
}

fn lasts(failing: &Failing, now_us: i64) -> bool {
    let is_old = now_us - failing.since_us >= FAILING_MIN_US && failing.said != Said::GivenBack;
    failing.failures >= FAILURES_MIN || is_old
}

/// Where nothing of the schedule is at its consumers, nothing goes on.
fn of_failing(sufferer: &Sufferer, failing: &Failing) -> Trouble {
    let kind = match failing.said {
        Said::Refused => Kind::TargetRefuses,
        Said::Unclear => Kind::TargetSilent,
        Said::NotSent => Kind::NotSent,
        Said::GivenBack => Kind::ConsumerFails,
    };
    let stands = sufferer.at_consumer == 0 && kind != Kind::ConsumerFails;
    Trouble {
        severity: if stands { Severity::Critical } else { Severity::Warning },
        since_us: Some(failing.since_us),
        waiting: sufferer.waiting,
        oldest_launch_us: sufferer.oldest_launch_us,
        count: failing.events,
        words: clipped(&failing.words),
        ..Trouble::new(
            kind,
            Subject {
                target: sufferer.target.clone(),
                ..subject(&sufferer.namespace, &sufferer.policy, &sufferer.schedule)
            },
        )
    }
}

fn subject(namespace: &str, policy: &str, schedule: &str) -> Subject {
    Subject {
        namespace: namespace.to_owned(),
        policy: policy.to_owned(),
        schedule: schedule.to_owned(),
        ..Subject::default()
    }
}

fn said_by(actor: &str, reason: &str) -> String {
    let said = if reason.is_empty() { actor.to_owned() } else { format!("{actor}: {reason}") };
    clipped(&said)
}

fn clipped(words: &str) -> String {
    match words.char_indices().nth(WORDS_CHARS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}
