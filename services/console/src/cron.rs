//! Reads the fields of a cron expression for the sentence about them.
//!
//! In: the text of a field. Out: what it selects, and the shape in which it was written. Not here: what is allowed, which
//! the service has judged already: what cannot be read is not put into words.

/// What a field selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `*`.
    Any,
    /// `*/n`.
    Each(u32),
    /// One range without a step.
    Range(u32, u32),
    /// Anything else: the values in order.
    List(Vec<u32>),
}

/// A weekday, with which of the month it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weekday {
    /// 0 every, 1 to 5 that one of the month, 6 the last.
    pub(crate) which: u32,
    /// 0 Sunday to 6 Saturday.
    pub(crate) day: u32,
}

/// The names of the months, from January.
pub(crate) const MONTHS: [&str; 12] = [
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
pub(crate) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The shape of a field whose values are from `low` to `high`, with `names` for the first of them.
pub(crate) fn shape(text: &str, low: u32, high: u32, names: &[&str]) -> Option<Shape> {
    if text == "*" {
        return Some(Shape::Any);
    }
    if let Some(step) = text.strip_prefix("*/") {
        return step.parse().ok().filter(|step| *step > 0).map(Shape::Each);
    }
    if let Some((from, to)) = text.split_once('-')
        && let (Some(from), Some(to)) = (value(from, low, names), value(to, low, names))
        && from < to
    {
        return Some(Shape::Range(from, to));
    }
    let mut values = Vec::new();
    for member in text.split(',') {
        values.extend(members(member, low, high, names)?);
    }
    values.sort_unstable();
    values.dedup();
    Some(Shape::List(values))
}

/// The weekdays of a day-of-week field other than `*`, in order.
pub(crate) fn weekdays(text: &str) -> Option<Vec<Weekday>> {
    let mut found = Vec::new();
    for member in text.split(',') {
        let named = |day: &str| value(day, 0, &WEEKDAYS).map(|day| day % 7);
        if let Some((day, which)) = member.split_once('#') {
            let which = if which.eq_ignore_ascii_case("L") { 6 } else { which.parse().ok()? };
            found.push(Weekday { which, day: named(day)? });
        } else if let Some(day) = member.strip_suffix(['L', 'l']).and_then(|day| day.parse::<u32>().ok()) {
            found.push(Weekday { which: 6, day: day % 7 });
        } else {
            let days = members(member, 0, 7, &WEEKDAYS)?;
            found.extend(days.into_iter().map(|day| Weekday { which: 0, day: day % 7 }));
        }
    }
    // A week begins on Monday.
    found.sort_by_key(|weekday| (weekday.which, (weekday.day + 6) % 7));
    found.dedup();
    Some(found)
}

/// The values of one member of a list.
fn members(member: &str, low: u32, high: u32, names: &[&str]) -> Option<Vec<u32>> {
    let (range, step) = match member.split_once('/') {
        Some((range, step)) => (range, Some(step.parse::<usize>().ok().filter(|step| *step > 0)?)),
        None => (member, None),
    };
    let (from, to) = if range == "*" {
        (low, high)
    } else if let Some((from, to)) = range.split_once('-') {
        (value(from, low, names)?, value(to, low, names)?)
    } else {
        let from = value(range, low, names)?;
        (from, if step.is_some() { high } else { from })
    };
    Some((from..=to).step_by(step.unwrap_or(1)).collect())
}

/// A number, or a name by its first three letters.
fn value(text: &str, low: u32, names: &[&str]) -> Option<u32> {
    let named = || {
        let same = |name: &&str| name.get(..3).is_some_and(|short| short.eq_ignore_ascii_case(text));
        (low..).zip(names).find(|(_, name)| same(name)).map(|(value, _)| value)
    };
    text.parse().ok().or_else(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_shapes() {
        let hour = |text: &str| shape(text, 0, 23, &[]);
        assert_eq!(hour("*"), Some(Shape::Any));
        assert_eq!(hour("*/6"), Some(Shape::Each(6)));
        assert_eq!(hour("9-17"), Some(Shape::Range(9, 17)));
        assert_eq!(hour("17,9"), Some(Shape::List(vec![9, 17])));
        assert_eq!(hour("0-6/3,20/2"), Some(Shape::List(vec![0, 3, 6, 20, 22])));
        assert_eq!(shape("mar,JUL", 1, 12, &MONTHS), Some(Shape::List(vec![3, 7])));
        assert_eq!(hour("noon"), None);
    }

    #[test]
    fn weekdays_are_in_order() {
        let days = |text: &str| {
            let pairs = weekdays(text)?.into_iter().map(|weekday| (weekday.which, weekday.day));
            Some(pairs.collect::<Vec<_>>())
        };
        assert_eq!(days("SUN,mon"), Some(vec![(0, 1), (0, 0)]));
        assert_eq!(days("5-7"), Some(vec![(0, 5), (0, 6), (0, 0)]));
        assert_eq!(days("MON#1,5L,FRI#L"), Some(vec![(1, 1), (6, 5)]));
    }
}
