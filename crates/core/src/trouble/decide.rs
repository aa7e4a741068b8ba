//! From state to troubles.

use super::{
    AtRisk, Bucket, Commits, Drifting, Ended, Failing, Installation, Kind, Missed, Said, Severity, Sight,
    Subject, Sufferer, Trouble, Unlisted, Unserved,
};
use crate::expected_end::Expected;
use crate::model::{MINUTE_US, SECOND_US};

/// From how many failures on an event is in trouble.
const FAILURES_MIN: u32 = 3;
/// So is one that a target did not take, and that was first tried this long ago. One that fails and goes well right after
/// is none, nor is one that its consumer asks to get again.
const FAILING_MIN_US: i64 = 10 * SECOND_US;
/// How far the emitters may be behind, as they are after one of them has died.
const BEHIND_MIN_US: i64 = 5 * SECOND_US;
/// From here on they will not catch up by themselves.
const BEHIND_BADLY_US: i64 = 60 * SECOND_US;
/// A deadline this near leaves no time to wait for better.
const NEAR_US: i64 = 5 * MINUTE_US;
/// From how many slow commits on the database is slow: one may have waited for a lock.
const SLOW_MIN: u64 = 3;
/// What share of the commits has to be slow: one in this number.
const SLOW_SHARE: u64 = 20;
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
        found.extend(sufferer.at_risk.iter().map(|risk| at_risk(sufferer, risk, now_us)));
        found.extend(sufferer.ended.iter().flat_map(of_ended));
    }
    found.extend(sight.unserved.iter().map(of_unserved));
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

/// A schedule that missed triggers is in trouble: nobody makes up for them.
pub fn of_missed(missed: &Missed) -> Option<Trouble> {
    let Missed { namespace, schedule, policy, triggers, first_launch_us } = missed;
    (*triggers > 0).then(|| Trouble {
        since_us: Some(*first_launch_us),
        count: *triggers,
        ..Trouble::new(Kind::TriggersMissed, subject(namespace, policy, schedule))
    })
}

/// A schedule of which runs could not be made, as their items could not be fetched: nobody makes up for them.
pub fn of_not_listed(missed: &Missed) -> Option<Trouble> {
    of_missed(missed).map(|trouble| Trouble {
        kind: Kind::NotListed,
        severity: Severity::Critical,
        ..trouble
    })
}

/// A run whose items cannot be fetched as yet: it is critical once it has fallen due.
pub fn of_unlisted(unlisted: &Unlisted, now_us: i64) -> Trouble {
    let Unlisted { namespace, schedule, policy, address, launch_us, since_us, words } = unlisted;
    let subject = Subject { target: address.clone(), ..subject(namespace, policy, schedule) };
    let severity = if *launch_us <= now_us { Severity::Critical } else { Severity::Warning };
    Trouble {
        severity,
        since_us: Some(*since_us),
        oldest_launch_us: Some(*launch_us),
        count: 1,
        runs: 1,
        words: clipped(words),
        ..Trouble::new(Kind::ListFails, subject)
    }
}

/// The runs of a schedule take longer than they did: they are done, and somebody should know before they are late.
pub fn of_drifting(drifting: &Drifting) -> Trouble {
    let Drifting { namespace, schedule, policy, ended_us, drift } = drifting;
    Trouble {
        since_us: Some(*ended_us),
        words: drift.to_string(),
        ..Trouble::new(Kind::Slower, subject(namespace, policy, schedule))
    }
}

/// Nothing of a schedule starts that no worker is able to do, however much room there is.
fn of_unserved(unserved: &Unserved) -> Trouble {
    let Unserved { namespace, schedule, policy, target, waiting, oldest_launch_us, again, .. } = unserved;
    Trouble {
        severity: Severity::Critical,
        since_us: unserved.since_us,
        waiting: *waiting,
        oldest_launch_us: *oldest_launch_us,
        count: waiting + again,
        words: clipped(&unserved.words),
        ..Trouble::new(
            Kind::NoWorker,
            Subject { target: target.clone(), ..subject(namespace, policy, schedule) },
        )
    }
}

/// A database is slow when a twentieth of a process's commits, and three at least, took longer than a second.
pub fn of_commits(commits: &Commits) -> Option<Trouble> {
    let Commits { process, all, slow } = commits;
    (*slow >= SLOW_MIN && slow.saturating_mul(SLOW_SHARE) >= *all).then(|| Trouble {
        count: *slow,
        words: format!("{slow} of {all} commits of the last minute took longer than a second"),
        ..Trouble::new(Kind::StoreSlow, Subject { process: process.clone(), ..Subject::default() })
    })
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

/// Whether it fails for too long, or too often, to be none.
pub(crate) fn lasts(failing: &Failing, now_us: i64) -> bool {
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

/// It is worse where nothing goes on, and where the deadline is near.
fn at_risk(sufferer: &Sufferer, risk: &AtRisk, now_us: i64) -> Trouble {
    let is_near = risk.deadline_us - now_us < NEAR_US;
    let stands = matches!(risk.last_start, Expected::Never(_));
    let words = risk.last_start.why_not();
    Trouble {
        severity: if stands || is_near { Severity::Critical } else { Severity::Warning },
        waiting: sufferer.waiting,
        oldest_launch_us: sufferer.oldest_launch_us,
        count: risk.events,
        runs: risk.runs,
        words: words.unwrap_or_default(),
        ..Trouble::new(
            Kind::DeadlineAtRisk,
            subject(&sufferer.namespace, &sufferer.policy, &sufferer.schedule),
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
