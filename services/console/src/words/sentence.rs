//! Decides how a schedule's timing is said in plain language: "every weekday at 03:00 in Berlin".
//!
//! In: a schedule. Out: one sentence without its full stop. Pure. What cannot be put into words is repeated as it was
//! written.

use tollgate_core::plan::{Dates, Shape, Weekday, Written};
use tollgate_proto::v1;
use tollgate_proto::v1::trigger::Trigger;

use crate::words::show::{clock, ms, us};
use crate::words::zone::spoken;

/// How many times of day are listed; more are described by their hours and minutes.
const TIMES_MAX: usize = 6;
/// The names of the months, from January.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The names of the weekdays, from Sunday.
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// When a schedule fires.
pub(crate) fn sentence(schedule: &v1::Schedule) -> String {
    let zone = spoken(&schedule.time_zone);
    let parts = schedule.triggers.iter().filter_map(|trigger| match trigger.trigger.as_ref()? {
        Trigger::Cron(text) => Some(cron(text, &zone).unwrap_or_else(|| format!("at {text} {zone}"))),
        Trigger::Fields(fields) => {
            let text = five(fields);
            Some(cron(&text, &zone).unwrap_or_else(|| format!("at {text} {zone}")))
        }
        Trigger::Interval(interval) => {
            let every = interval.every.as_ref().map(ms).unwrap_or_default() / 1_000;
            Some(format!("every {}", elapsed(every)))
        }
        Trigger::At(at) => Some(format!("once, on {} UTC", clock(us(at)).replacen(' ', " at ", 1))),
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "by hand only".to_owned() } else { parts.join("; and ") }
}

/// Whether the clocks of its zone matter to a schedule.
pub(crate) fn follows_clocks(schedule: &v1::Schedule) -> bool {
    let by_clock =
        |trigger: &v1::Trigger| matches!(trigger.trigger, Some(Trigger::Cron(_) | Trigger::Fields(_)));
    schedule.triggers.iter().any(by_clock)
}

/// Its triggers as they were written.
pub(crate) fn written(schedule: &v1::Schedule) -> Vec<String> {
    let texts = schedule.triggers.iter().filter_map(|trigger| match trigger.trigger.as_ref()? {
        Trigger::Cron(text) => Some(text.clone()),
        Trigger::Fields(fields) => Some(five(fields)),
        Trigger::Interval(_) | Trigger::At(_) => None,
    });
    texts.collect()
}

/// Named fields as an expression; without a minute they mean the full hour.
fn five(fields: &v1::FieldTimes) -> String {
    let part = |field: &Option<String>| field.clone().unwrap_or_else(|| "*".to_owned());
    let minute = fields.minute.clone().filter(|minute| minute != "*").unwrap_or_else(|| "0".to_owned());
    let (hour, date) = (part(&fields.hour), part(&fields.day_of_month));
    format!("{minute} {hour} {date} {} {}", part(&fields.month), part(&fields.day_of_week))
}

/// An expression in words; none where it cannot be read.
fn cron(text: &str, zone: &str) -> Option<String> {
    let written = Written::read(text)?;
    let time = times(&written.minute, &written.hour);
    let days = days(&written);
    let months = months(&written.month);
    Some(match (time, days) {
        (Time::At(at), days) => {
            let first = if months.is_some() || !days.by_date { days.each } else { days.on };
            let months = months.map(|months| format!(" {months}")).unwrap_or_default();
            format!("{first}{months} at {at} {zone}")
        }
        (Time::Often(often), days) => {
            let days = if days.all { None } else { Some(days.on) };
            let parts = [Some(often), days, months, Some(zone.to_owned())];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
    })
}

enum Time {
    /// At these times of day.
    At(String),
    /// Again and again.
    Often(String),
}

fn times(minute: &Shape, hour: &Shape) -> Time {
    let minutes = values(minute, 0, 59);
    let hours = values(hour, 0, 23);
    let within = match hour {
        Shape::Any => String::new(),
        Shape::Range(from, to) => format!(" from {from:02}:00 to {to:02}:59"),
        Shape::Each(_) | Shape::List(_) if hours.len() == 1 => {
            format!(" from {0:02}:00 to {0:02}:59", hours[0])
        }
        Shape::Each(step) => format!(" in {} hour", every_nth(*step)),
        Shape::List(_) => {
            format!(" in the hours {}", joined(hours.iter().map(|hour| format!("{hour:02}"))))
        }
    };
    match (minute, hour) {
        (Shape::Any | Shape::Each(1), _) => return Time::Often(format!("every minute{within}")),
        (Shape::Range(0, 59), _) => return Time::Often(format!("every minute{within}")),
        (Shape::Each(step), _) if 60 % step == 0 && *step < 60 => {
            return Time::Often(format!("every {step} minutes{within}"));
        }
        _ => {}
    }
    let past = joined(minutes.iter().map(|minute| format!("{minute:02}")));
    let at = if minutes == [0] { String::new() } else { format!(" at {past} minutes past") };
    if hours.len() == 24 {
        return Time::Often(if minutes == [0] { "every hour".to_owned() } else { format!("every hour{at}") });
    }
    if minutes.len() * hours.len() <= TIMES_MAX {
        let all = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| (*hour, *minute)));
        return Time::At(joined(all.map(|(hour, minute)| format!("{hour:02}:{minute:02}"))));
    }
    match (hour, minutes.as_slice()) {
        (Shape::Each(step), _) if 24 % step == 0 => Time::Often(format!("every {step} hours{at}")),
        (Shape::Range(from, to), [one]) => {
            Time::Often(format!("every hour from {from:02}:{one:02} to {to:02}:{one:02}"))
        }
        _ => Time::Often(format!("at {past} minutes past the hour{within}")),
    }
}

struct Days {
    /// Before a time of day: "every Monday", "every day".
    each: String,
    /// After something else: "on Mondays".
    on: String,
    /// It is every day.
    all: bool,
    /// Dates alone decide, so that "on" says it better than "every".
    by_date: bool,
}

/// Which days.
fn days(written: &Written) -> Days {
    match (written.dates.as_ref().map(dates), written.weekdays.as_ref()) {
        (None, None) => {
            Days { each: "every day".to_owned(), on: "every day".to_owned(), all: true, by_date: false }
        }
        (Some(dates), None) => {
            let on = format!("on {dates} of the month");
            Days { each: format!("on {dates}"), on, all: false, by_date: true }
        }
        (None, Some(week)) => {
            let (each, on) = week_in_words(week);
            Days { each, on, all: false, by_date: false }
        }
        (Some(dates), Some(week)) => {
            let (_, on_week) = week_in_words(week);
            let joint = if written.either_day { "and" } else { "where that is also" };
            let on_week = if written.either_day { on_week } else { on_week.replacen("on ", "one of ", 1) };
            let on = format!("on {dates} of the month {joint} {on_week}");
            Days { each: on.clone(), on, all: false, by_date: true }
        }
    }
}

/// "the 1st and 15th", "the last day".
fn dates(dates: &Dates) -> String {
    let mut words = match &dates.numbered {
        None => Vec::new(),
        Some(Shape::Any) => vec!["day".to_owned()],
        Some(Shape::Each(step)) => vec![format!("{} day", every_nth(*step))],
        Some(Shape::Range(from, to)) => vec![format!("{} to {}", ordinal(*from), ordinal(*to))],
        Some(Shape::List(dates)) => dates.iter().copied().map(ordinal).collect(),
    };
    if dates.last {
        words.push("last day".to_owned());
    }
    let text = joined(words);
    if text.starts_with("every") { text } else { format!("the {text}") }
}

/// As "every weekday" and "on weekdays".
fn week_in_words(week: &[Weekday]) -> (String, String) {
    let plain: Vec<u32> =
        week.iter().filter(|weekday| weekday.which == 0).map(|weekday| weekday.day).collect();
    if week.len() == plain.len() {
        let named = |suffix: &str| {
            joined(plain.iter().map(|day| format!("{}{suffix}", WEEKDAYS.get(*day as usize).unwrap_or(&"?"))))
        };
        return match plain.as_slice() {
            [1, 2, 3, 4, 5] => ("every weekday".to_owned(), "on weekdays".to_owned()),
            [6, 0] => ("every Saturday and Sunday".to_owned(), "on weekends".to_owned()),
            [1, 2, 3, 4, 5, 6, 0] => ("every day".to_owned(), "on every day".to_owned()),
            _ => (format!("every {}", named("")), format!("on {}", named("s"))),
        };
    }
    let words = week.iter().map(|weekday| {
        let which = match weekday.which {
            0 => "every",
            1 => "the first",
            2 => "the second",
            3 => "the third",
            4 => "the fourth",
            5 => "the fifth",
            _ => "the last",
        };
        format!("{which} {}", WEEKDAYS.get(weekday.day as usize).unwrap_or(&"?"))
    });
    let on = format!("on {} of the month", joined(words));
    (on.clone(), on)
}

fn months(shape: &Shape) -> Option<String> {
    let name = |month: u32| MONTHS.get(month as usize - 1).copied().unwrap_or("?").to_owned();
    match shape {
        Shape::Any => None,
        Shape::Range(from, to) => Some(format!("from {} to {}", name(*from), name(*to))),
        other => Some(format!("in {}", joined(values(other, 1, 12).into_iter().map(name)))),
    }
}

fn values(shape: &Shape, low: u32, high: u32) -> Vec<u32> {
    match shape {
        Shape::Any => (low..=high).collect(),
        Shape::Each(step) => (low..=high).step_by((*step).max(1) as usize).collect(),
        Shape::Range(from, to) => (*from..=*to).collect(),
        Shape::List(values) => values.clone(),
    }
}

/// "every second", "every 5th".
fn every_nth(step: u32) -> String {
    if step == 2 { "every second".to_owned() } else { format!("every {}", ordinal(step)) }
}

fn ordinal(n: u32) -> String {
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

/// With commas, and "and" before the last.
fn joined(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    match items.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Whole seconds in their units: "5 minutes", "1 hour 30 minutes".
fn elapsed(seconds: i64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let mut rest = seconds;
    let mut words = Vec::new();
    for (unit, name) in units {
        let n = rest / unit;
        rest %= unit;
        if n == 1 && rest == 0 && words.is_empty() {
            return name.to_owned();
        }
        if n > 0 {
            words.push(format!("{n} {name}{}", if n == 1 { "" } else { "s" }));
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use prost_types::{Duration, Timestamp};

    use super::*;

    fn said(text: &str) -> String {
        let schedule = v1::Schedule {
            triggers: vec![v1::Trigger { trigger: Some(Trigger::Cron(text.to_owned())) }],
            time_zone: "Europe/Berlin".to_owned(),
            ..v1::Schedule::default()
        };
        sentence(&schedule)
    }

    #[test]
    fn cron_is_said_in_plain_language() {
        for (text, words) in [
            ("0 3 * * MON-FRI", "every weekday at 03:00 in Berlin"),
            ("0 3 * * 1-5", "every weekday at 03:00 in Berlin"),
            ("30 2 * * *", "every day at 02:30 in Berlin"),
            ("@daily", "every day at 00:00 in Berlin"),
            ("@hourly", "every hour in Berlin"),
            ("@weekly", "every Sunday at 00:00 in Berlin"),
            ("@yearly", "on the 1st in January at 00:00 in Berlin"),
            ("* * * * *", "every minute in Berlin"),
            ("*/15 * * * *", "every 15 minutes in Berlin"),
            ("*/15 9-17 * * MON-FRI", "every 15 minutes from 09:00 to 17:59 on weekdays in Berlin"),
            ("5 * * * *", "every hour at 05 minutes past in Berlin"),
            ("0 */6 * * *", "every day at 00:00, 06:00, 12:00 and 18:00 in Berlin"),
            ("0 */2 * * *", "every 2 hours in Berlin"),
            ("0 9-17 * * *", "every hour from 09:00 to 17:00 in Berlin"),
            ("0 9,15 * * SAT,SUN", "every Saturday and Sunday at 09:00 and 15:00 in Berlin"),
            ("0 0 1,15 * *", "on the 1st and 15th of the month at 00:00 in Berlin"),
            ("0 0 L * *", "on the last day of the month at 00:00 in Berlin"),
            ("0 0 3 8 *", "on the 3rd in August at 00:00 in Berlin"),
            ("0 6 * * MON#1", "on the first Monday of the month at 06:00 in Berlin"),
            ("0 6 * * 5L", "on the last Friday of the month at 06:00 in Berlin"),
            ("0 0 1,15 * SUN", "on the 1st and 15th of the month and on Sundays at 00:00 in Berlin"),
            (
                "0 0 */2 * MON",
                "on every second day of the month where that is also one of Mondays at 00:00 in Berlin",
            ),
            ("0 4 * 6-8 MON,THU", "every Monday and Thursday from June to August at 04:00 in Berlin"),
            (
                "7,22,37,52 1-5 * * *",
                "at 07, 22, 37 and 52 minutes past the hour from 01:00 to 05:59 in Berlin",
            ),
            ("* 3 * * *", "every minute from 03:00 to 03:59 in Berlin"),
            ("what is this", "at what is this in Berlin"),
        ] {
            assert_eq!(said(text), words, "{text}");
        }
    }

    #[test]
    fn intervals_moments_and_unions_are_said() {
        let every = |seconds: i64| {
            let every = Some(Duration { seconds, nanos: 0 });
            v1::Trigger { trigger: Some(Trigger::Interval(v1::Interval { every, anchor: None })) }
        };
        let at = v1::Trigger { trigger: Some(Trigger::At(Timestamp { seconds: 0, nanos: 0 })) };
        let schedule = |triggers: Vec<v1::Trigger>| v1::Schedule { triggers, ..v1::Schedule::default() };
        assert_eq!(sentence(&schedule(vec![every(300)])), "every 5 minutes");
        assert_eq!(sentence(&schedule(vec![every(60)])), "every minute");
        assert_eq!(sentence(&schedule(vec![every(5_400)])), "every 1 hour 30 minutes");
        assert_eq!(sentence(&schedule(vec![at])), "once, on 1970-01-01 at 00:00:00 UTC");
        let fields = v1::FieldTimes { hour: Some("3,6,9".to_owned()), ..v1::FieldTimes::default() };
        let fields = v1::Trigger { trigger: Some(Trigger::Fields(fields)) };
        assert_eq!(
            sentence(&schedule(vec![fields, every(60)])),
            "every day at 03:00, 06:00 and 09:00 UTC; and every minute"
        );
        assert_eq!(sentence(&schedule(Vec::new())), "by hand only");
    }
}
