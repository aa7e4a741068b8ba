//! What is accepted and will probably not do what was meant.
//!
//! In: a schedule as it shall be, what its policy allows, and how long its latest runs took. Out: warnings, each with the
//! field that it is about. Invariant: a warning refuses nothing. Not here: what only a look at the network or at the store
//! tells (addresses, namespaces, whether anything uses a policy).

use chrono::DateTime;

use super::Plan;
use super::expression::five_fields;
use super::units::{PolicyLimits, UnitFault};
use crate::expected_end::Flow;
use crate::model::{OverlapRule, SECOND_US, Schedule, Trigger};

/// For how long a token is taken to be held where nothing is known.
const ASSUMED_HOLD_US: f64 = SECOND_US as f64;
/// How many of the next fires are looked at for the shortest time between two.
const FIRES_SEEN: usize = 8;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A moment that has passed.
    TimeInPast,
    /// Hours without a time zone.
    NoTimeZone,
    /// Less time than the events need.
    FinishByShort,
    /// Runs that will go on beside each other.
    RunsOverlap,
    /// Events that take more tokens than there are.
    UnitsAboveLimit,
}

/// One warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub about: About,
    /// The field, by the names of the API, without the resource before it.
    pub field: String,
    /// What will happen, and what to do.
    pub message: String,
}

/// A finished run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// How many events it had.
    pub events: u32,
    /// From its launch to its end.
    pub took_us: i64,
}

/// What is known of a schedule when it is given.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s> {
    /// As it shall be.
    pub schedule: &'s Schedule,
    /// What its timing means.
    pub plan: &'s Plan,
    /// Whether somebody named its time zone, UTC among them.
    pub zone_given: bool,
    /// What its policy allows, where that is known.
    pub limits: Option<&'s PolicyLimits>,
    /// Its latest runs that ended by themselves.
    pub latest: &'s [PastRun],
    /// When it is looked at.
    pub now_us: i64,
}

/// What whoever gave the schedule should know.
pub fn warnings(seen: &Seen<'_>) -> Vec<Warning> {
    let mut warnings = past(seen);
    warnings.extend(no_zone(seen));
    warnings.extend(short(seen));
    warnings.extend(beside(seen));
    warnings.extend(too_many_units(seen));
    warnings
}

/// Refused where it is asked for; a limit may have been lowered since.
fn too_many_units(seen: &Seen<'_>) -> Vec<Warning> {
    let faults = seen.limits.map(|limits| limits.faults(seen.schedule)).unwrap_or_default();
    let told = faults.into_iter().map(|UnitFault { field, units, expected }| {
        let message =
            format!("{units} tokens are more than there are ({expected}): such events do not start");
        warning(About::UnitsAboveLimit, field, message)
    });
    told.collect()
}

fn warning(about: About, field: impl Into<String>, message: impl Into<String>) -> Warning {
    Warning { about, field: field.into(), message: message.into() }
}

fn past(seen: &Seen<'_>) -> Vec<Warning> {
    let timing = &seen.schedule.timing;
    if timing.triggers.is_empty() {
        // It fires by hand, whatever its bounds say.
        return Vec::new();
    }
    if let Some(end) = timing.end_us.filter(|end| *end <= seen.now_us) {
        let message = format!("{} has passed: nothing fires any more", moment(end));
        return vec![warning(About::TimeInPast, "end_time", message)];
    }
    let passed = timing.triggers.iter().enumerate().filter_map(|(index, trigger)| match trigger {
        Trigger::At { at_us } if *at_us <= seen.now_us => {
            let message = format!("{} has passed: this trigger never fires", moment(*at_us));
            Some(warning(About::TimeInPast, format!("triggers[{index}].at"), message))
        }
        _ => None,
    });
    let mut passed: Vec<Warning> = passed.collect();
    if passed.is_empty() && seen.plan.fires_after(seen.now_us).next().is_none() {
        let message = "the last time at which they fire has passed: nothing fires any more";
        passed.push(warning(About::TimeInPast, "triggers", message));
    }
    passed
}

/// Hours, days and months begin at another moment in each zone; minutes of every hour hardly do.
fn no_zone(seen: &Seen<'_>) -> Option<Warning> {
    let is_fixed = |trigger: &Trigger| match trigger {
        Trigger::Cron { expression } => {
            five_fields(expression).is_some_and(|[_, rest @ ..]| rest.iter().any(|field| *field != "*"))
        }
        Trigger::Fields { month, day_of_month, day_of_week, hour, .. } => {
            [month, day_of_month, day_of_week, hour]
                .into_iter()
                .any(|field| field.as_deref().is_some_and(|text| text != "*"))
        }
        Trigger::Interval { .. } | Trigger::At { .. } => false,
    };
    let at = seen.schedule.timing.triggers.iter().position(is_fixed).filter(|_| !seen.zone_given)?;
    let message = format!(
        "no time zone is given, so the hours of triggers[{at}] are read in UTC; write time_zone: UTC, or a zone such as \
         Europe/Berlin"
    );
    Some(warning(About::NoTimeZone, "time_zone", message))
}

fn short(seen: &Seen<'_>) -> Option<Warning> {
    let schedule = seen.schedule;
    let finish_by_us = schedule.finish_by_s?.saturating_mul(SECOND_US);
    let told = |message: String| Some(warning(About::FinishByShort, "finish_by", message));
    let (events, by) = (u64::from(schedule.events), span(finish_by_us));
    let within_us = |seconds: Option<i64>| seconds.unwrap_or(0).saturating_mul(SECOND_US);
    let (start_us, spread_us) = (within_us(schedule.start_within_s), within_us(schedule.spread_s));
    if start_us.saturating_add(spread_us) > finish_by_us {
        let given = match (start_us, spread_us) {
            (0, _) => format!("spread is {}", span(spread_us)),
            (_, 0) => format!("start_within is {}", span(start_us)),
            _ => format!("start_within is {}, spread {}", span(start_us), span(spread_us)),
        };
        let whose = if schedule.start_delay_us().saturating_add(spread_us) > finish_by_us {
            "some always do"
        } else {
            "of another schedule with these settings some do"
        };
        return told(format!("{given}, and events that have not started after {by} expire: {whose}"));
    }
    // How many events a list has is not known before it is fetched.
    let limits = &seen.limits.filter(|_| schedule.payload.from.is_none())?.own;
    let rate = Flow { rate_per_s: limits.rate_per_s, ..Flow::default() };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates"
    )]
    let second = limits.rate_per_s.map_or(1, |rate| rate.max(1.0) as u64);
    let at_once = limits.burst.map_or(second, u64::from);
    let needs = rate.start_after_us(events.saturating_sub(at_once))?;
    if let Some(rate) = limits.rate_per_s.filter(|_| needs > finish_by_us) {
        return told(format!(
            "{events} events need {} at {rate} per second, and those that have not started after {by} expire",
            span(needs)
        ));
    }
    let tokens = limits.max_in_flight?;
    if let Some(run) = seen.latest.iter().max_by_key(|run| run.took_us) {
        let needs = run.took_us as f64 / f64::from(run.events.max(1)) * events as f64;
        return (needs > finish_by_us as f64 && events > u64::from(tokens)).then(|| {
            let message = format!(
                "a run of {} events took {} of late; those that have not started after {by} expire",
                run.events,
                span(run.took_us)
            );
            warning(About::FinishByShort, "finish_by", message)
        });
    }
    let flow = Flow { tokens: Some(tokens), mean_us: Some(ASSUMED_HOLD_US), ..Flow::default() };
    let needs = flow.start_after_us(events.saturating_sub(1))?;
    if needs <= finish_by_us {
        return None;
    }
    let waiting = events.saturating_sub(u64::from(tokens)).max(1);
    #[expect(clippy::cast_possible_truncation, reason = "a cast of a float saturates")]
    let each_us = (finish_by_us as f64 * f64::from(tokens) / waiting as f64) as i64;
    told(format!(
        "{events} events, {tokens} at once, start within {by} only if each is done after {} on average; the others expire",
        span(each_us)
    ))
}

fn beside(seen: &Seen<'_>) -> Option<Warning> {
    if seen.schedule.overlap != OverlapRule::Allow {
        return None;
    }
    let took_us = seen.latest.iter().map(|run| run.took_us).max()?;
    let fires: Vec<i64> = seen.plan.fires_after(seen.now_us).take(FIRES_SEEN).collect();
    let gap_us = fires.windows(2).map(|pair| pair[1] - pair[0]).min()?;
    (took_us > gap_us).then(|| {
        let message = format!(
            "it fires every {}, and a run took {} of late: runs go on beside each other; SKIP or BUFFER_ONE keeps them apart",
            span(gap_us),
            span(took_us)
        );
        warning(About::RunsOverlap, "overlap", message)
    })
}

/// A span for people: its two largest units.
fn span(us: i64) -> String {
    let ms = us.max(0) / 1_000;
    if ms < 1_000 {
        return format!("{}ms", ms.max(1));
    }
    let seconds = ms / 1_000;
    let units =
        [("d", seconds / 86_400), ("h", seconds / 3_600 % 24), ("m", seconds / 60 % 60), ("s", seconds % 60)];
    let shown = units.iter().skip_while(|(_, count)| *count == 0).take(2).filter(|(_, count)| *count > 0);
    shown.map(|(unit, count)| format!("{count}{unit}")).collect()
}

fn moment(us: i64) -> String {
    DateTime::from_timestamp_micros(us)
        .map_or_else(|| format!("{us} us"), |utc| utc.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::handle::testing::policy;
    use crate::model::{
        CatchUp, CheckAgain, HttpTarget, Limits, Payload, Policy, ReleaseMode, RetryPolicy, Target, Timing,
    };

    /// 2026-01-01T00:00:00Z.
    const NOW_US: i64 = 1_767_225_600 * SECOND_US;

    pub(crate) fn schedule(trigger: Trigger) -> Schedule {
        Schedule {
            uid: uuid::Uuid::nil(),
            namespace: "default".to_owned(),
            id: "nightly".to_owned(),
            description: String::new(),
            timing: Timing { triggers: vec![trigger], time_zone: "UTC".to_owned(), ..Timing::default() },
            events: 1_000,
            target: Target::Http {
                http: HttpTarget::plain("http://a/".to_owned(), 1),
                release: ReleaseMode::Explicit,
            },
            payload: Payload::default(),
            policy: None,
            policy_uid: None,
            shard: None,
            key: None,
            key_label: None,
            units: 1,
            priority: 5,
            retry: RetryPolicy::default(),
            catch_up: CatchUp::default(),
            overlap: OverlapRule::Allow,
            delay_after_finish_s: None,
            finish_by_s: None,
            spread_s: None,
            start_within_s: None,
            start_within_percent: None,
            check_again: CheckAgain::default(),
            on_finish: None,
            when_done: Default::default(),
            pause: None,
            past_pauses: Vec::new(),
            labels: Default::default(),
            former_homes: Vec::new(),
            generation: 1,
            created_us: 0,
            updated_us: 0,
        }
    }

    fn cron(expression: &str) -> Trigger {
        Trigger::Cron { expression: expression.to_owned() }
    }

    fn seen(
        schedule: &Schedule,
        zone_given: bool,
        limits: Option<&Limits>,
        latest: &[PastRun],
    ) -> Vec<String> {
        let plan = Plan::compile(&schedule.timing, b"").unwrap();
        let limits = limits.map(|own| PolicyLimits::of(&Policy { limits: own.clone(), ..policy(1) }, []));
        let limits = limits.as_ref();
        let seen = Seen { schedule, plan: &plan, zone_given, limits, latest, now_us: NOW_US };
        warnings(&seen).into_iter().map(|warning| format!("{}: {}", warning.field, warning.message)).collect()
    }

    #[test]
    fn a_time_that_has_passed() {
        let old = schedule(Trigger::At { at_us: NOW_US - SECOND_US });
        let told = ["triggers[0].at: 2025-12-31T23:59:59Z has passed: this trigger never fires"];
        assert_eq!(seen(&old, true, None, &[]), told);
        let new = schedule(Trigger::At { at_us: NOW_US + SECOND_US });
        assert_eq!(seen(&new, true, None, &[]), [""; 0]);
        let mut ended = schedule(cron("@hourly"));
        ended.timing.end_us = Some(NOW_US);
        let told = ["end_time: 2026-01-01T00:00:00Z has passed: nothing fires any more"];
        assert_eq!(seen(&ended, true, None, &[]), told);
        let mut over = schedule(cron("0 0 1 6 *"));
        over.timing.end_us = Some(NOW_US + SECOND_US);
        assert!(seen(&over, true, None, &[])[0].starts_with("triggers: the last time"));
        let mut manual = ended;
        manual.timing.triggers.clear();
        assert_eq!(seen(&manual, false, None, &[]), [""; 0], "it fires by hand");
    }

    #[test]
    fn hours_without_a_zone() {
        for (expression, warned) in [
            ("0 3 * * *", true),
            ("@daily", true),
            ("0 * * * MON", true),
            ("*/5 * * * *", false),
            ("@hourly", false),
        ] {
            let schedule = schedule(cron(expression));
            let told = seen(&schedule, false, None, &[]);
            assert_eq!(told.len(), usize::from(warned), "{expression}: {told:?}");
            assert_eq!(seen(&schedule, true, None, &[]), [""; 0]);
        }
        assert_eq!(
            seen(&schedule(Trigger::Interval { every_s: 60, anchor_us: None }), false, None, &[]),
            [""; 0]
        );
    }

    #[test]
    fn less_time_than_the_limit_needs() {
        let mut given = schedule(cron("@daily"));
        given.finish_by_s = Some(60);
        let rate = Limits { max_in_flight: None, rate_per_s: Some(10.0), burst: None };
        let told = seen(&given, true, Some(&rate), &[]);
        assert_eq!(
            told,
            [
                "finish_by: 1000 events need 1m39s at 10 per second, and those that have not started after 1m expire"
            ]
        );
        let quick = Limits { rate_per_s: Some(100.0), ..rate };
        assert_eq!(seen(&given, true, Some(&quick), &[]), [""; 0]);
        let tokens = Limits { max_in_flight: Some(5), rate_per_s: None, burst: None };
        let told = seen(&given, true, Some(&tokens), &[]);
        let expected =
            "finish_by: 1000 events, 5 at once, start within 1m only if each is done after 301ms on average";
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
        // What is measured counts more than what is assumed.
        let slow = PastRun { events: 500, took_us: 45 * SECOND_US };
        let told = seen(&given, true, Some(&tokens), &[slow]);
        assert!(told[0].starts_with("finish_by: a run of 500 events took 45s of late"), "{told:?}");
        assert_eq!(seen(&given, true, Some(&tokens), &[PastRun { took_us: SECOND_US, ..slow }]), [""; 0]);
        given.spread_s = Some(120);
        assert!(seen(&given, true, None, &[])[0].starts_with("finish_by: spread is 2m"));
        given.start_within_s = Some(7_200);
        let told = seen(&given, true, None, &[]);
        assert!(told[0].starts_with("finish_by: start_within is 2h, spread 2m, and events"), "{told:?}");
        assert!(told[0].ends_with("expire: some always do"), "{told:?}");
        given.spread_s = None;
        given.start_within_s = None;
        given.finish_by_s = None;
        assert_eq!(seen(&given, true, Some(&rate), &[]), [""; 0]);
    }

    #[test]
    fn runs_that_go_on_beside_each_other() {
        let mut given = schedule(cron("*/5 * * * *"));
        let long = PastRun { events: 3, took_us: 720 * SECOND_US };
        let told = seen(&given, true, None, &[PastRun { events: 3, took_us: 1 }, long]);
        assert!(told[0].starts_with("overlap: it fires every 5m, and a run took 12m of late"), "{told:?}");
        given.overlap = OverlapRule::Skip;
        assert_eq!(seen(&given, true, None, &[long]), [""; 0]);
    }

    #[test]
    fn spans_are_short() {
        for (us, text) in [
            (0, "1ms"),
            (1_500, "1ms"),
            (61 * SECOND_US, "1m1s"),
            (3_600 * SECOND_US, "1h"),
            (90_000 * SECOND_US, "1d1h"),
        ] {
            assert_eq!(span(us), text);
        }
    }
}
