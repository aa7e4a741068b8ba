//! Which local minutes match five cron fields, without any zone.
//!
//! In: the fields as bit sets. Out: the next matching local minute at or after a given one.
//! Invariants: all arithmetic is on integers of the proleptic Gregorian calendar; a search visits days only
//! through one bit mask a month, so that rare dates cost no more than the months between them.
//! Not here: text (`field`), offsets from UTC (`zone`), gaps and repeats (`fires`).

/// Minutes of a day.
pub(crate) const DAY_MINUTES: i64 = 24 * 60;

/// Days since 1970-01-01 of a date. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month (1-12) and day of the month of a day counted from 1970-01-01. Source: as above.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    // The casts lose nothing: 1-12 and 1-31.
    let (month, day) = (month as u32, day as u32);
    (year, month, day)
}

/// How many days a month (1-12) has.
pub(crate) fn month_days(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Day of the week of a day counted from 1970-01-01; 0 is Sunday.
pub(crate) fn weekday(days: i64) -> u32 {
    (days + 4).rem_euclid(7) as u32
}

/// A set of dates within a month: bits 1-31, and bit 0 for the last day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dates(pub(crate) u32);

impl Dates {
    /// Every date.
    pub(crate) const ALL: Self = Self(0xffff_fffe);

    /// The dates of a month with this many days, as bits 1-31.
    fn of_month(self, days: u32) -> u32 {
        let exist = 0xffff_ffff_u32 >> (31 - days) & !1;
        (self.0 & exist) | ((self.0 & 1) << days)
    }
}

/// A set of weekdays: every such day, the k-th of the month, the last of the month. Bit 0 is Sunday.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weekdays {
    /// Each such day.
    pub(crate) every: u8,
    /// `nth[k - 1]`: the k-th such day of a month.
    pub(crate) nth: [u8; 5],
    /// The last such day of a month.
    pub(crate) last: u8,
}

impl Weekdays {
    /// Every day of the week.
    pub(crate) const ALL: Self = Self { every: 0x7f, nth: [0; 5], last: 0 };

    /// The days of a month, as bits 1-31, whose first day is `first` and which has `days` days.
    fn of_month(self, first: u32, days: u32) -> u32 {
        let exist = 0xffff_ffff_u32 >> (31 - days) & !1;
        if self.every == 0x7f {
            return exist;
        }
        let mut mask = 0_u32;
        for day in 0..7_u32 {
            let bit = 1_u8 << day;
            let earliest = 1 + (day + 7 - first) % 7;
            if self.every & bit != 0 {
                mask |= 0x1020_4081_u32 << earliest;
            }
            for (weeks, set) in (0_u32..).zip(self.nth) {
                let date = earliest + 7 * weeks;
                if set & bit != 0 && date <= 31 {
                    mask |= 1 << date;
                }
            }
            if self.last & bit != 0 {
                mask |= 1 << (earliest + (days - earliest) / 7 * 7);
            }
        }
        mask & exist
    }
}

/// Five fields as sets, and how the two day fields combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    /// Bits 0-59.
    pub(crate) minutes: u64,
    /// Bits 0-23.
    pub(crate) hours: u32,
    /// Bits 1-12.
    pub(crate) months: u16,
    /// Day-of-month.
    pub(crate) dates: Dates,
    /// Day-of-week.
    pub(crate) weekdays: Weekdays,
    /// One of the two day fields is enough; otherwise both must hold.
    pub(crate) either_day: bool,
}

impl Calendar {
    /// The first matching minute (counted in local time from 1970-01-01T00:00) in `from..limit`.
    pub(crate) fn next(&self, from: i64, limit: i64) -> Option<i64> {
        if from >= limit {
            return None;
        }
        let day = from.div_euclid(DAY_MINUTES);
        let (mut year, mut month, date) = civil_from_days(day);
        let mut month_start = day - i64::from(date) + 1;
        let mut open = !0_u32 << date;
        loop {
            let mut mask = self.month_mask(year, month, month_start) & open;
            while mask != 0 {
                let start = (month_start + i64::from(mask.trailing_zeros()) - 1) * DAY_MINUTES;
                if let Some(minute) = self.next_in_day((from - start).max(0)) {
                    return Some(start + minute).filter(|found| *found < limit);
                }
                mask &= mask - 1;
            }
            month_start += i64::from(month_days(year, month));
            if month_start * DAY_MINUTES >= limit {
                return None;
            }
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            open = !0;
        }
    }

    /// Whether any date exists that matches. Exact: only 14 kinds of year exist (the weekday of 1 January, leap
    /// or not), and 1996 to 2023 hold each of them.
    pub(crate) fn ever(&self) -> bool {
        (1996..2024).any(|year| {
            (1..=12).any(|month| self.month_mask(year, month, days_from_civil(year, month, 1)) != 0)
        })
    }

    /// The matching days of a month as bits 1-31.
    fn month_mask(&self, year: i64, month: u32, month_start: i64) -> u32 {
        if self.months >> month & 1 == 0 {
            return 0;
        }
        let days = month_days(year, month);
        let dates = self.dates.of_month(days);
        let weekdays = self.weekdays.of_month(weekday(month_start), days);
        if self.either_day { dates | weekdays } else { dates & weekdays }
    }

    /// The first matching minute of a day at or after this one.
    fn next_in_day(&self, minute_of_day: i64) -> Option<i64> {
        if minute_of_day >= DAY_MINUTES {
            return None;
        }
        let (hour, minute) = (minute_of_day / 60, minute_of_day % 60);
        if self.hours >> hour & 1 == 1 {
            let left = self.minutes >> minute << minute;
            if left != 0 {
                return Some(hour * 60 + i64::from(left.trailing_zeros()));
            }
        }
        let hours = u64::from(self.hours) >> (hour + 1) << (hour + 1);
        (hours != 0)
            .then(|| i64::from(hours.trailing_zeros()) * 60 + i64::from(self.minutes.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        for days in -800_000..3_000_000 {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
            assert!((1..=month_days(year, month)).contains(&day), "{year}-{month}-{day}");
        }
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(weekday(0), 4);
    }

    #[test]
    fn the_fourteen_kinds_of_year_lie_between_1996_and_2023() {
        let kinds: std::collections::BTreeSet<_> =
            (1996..2024).map(|year| (weekday(days_from_civil(year, 1, 1)), month_days(year, 2))).collect();
        assert_eq!(kinds.len(), 14);
    }
}
