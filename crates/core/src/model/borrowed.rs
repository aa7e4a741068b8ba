//! Which dates of a timing are its own, and which are those of its calendars.

use super::{Calendar, CalendarUse, DateRange, Timing};

/// Which dates are whose. A timing keeps the dates of its calendars among its own, behind them and in the order of the calendars:
/// so whoever asks only when it fires need not know of calendars.
impl Timing {
    /// The most dates and ranges of dates that a schedule excludes by itself and by its calendars.
    pub const DATES_MAX: usize = 2_000;
    /// The most calendars that a schedule goes by.
    pub const CALENDARS_MAX: usize = 16;

    /// The dates that it excludes by itself.
    pub fn own_exclude(&self) -> &[DateRange] {
        let borrowed: usize = self.calendars.iter().map(|one| one.count as usize).sum();
        &self.exclude[..self.exclude.len().saturating_sub(borrowed)]
    }

    /// Each calendar with its dates.
    pub fn calendar_dates(&self) -> impl Iterator<Item = (&CalendarUse, &[DateRange])> {
        let mut rest = &self.exclude[self.own_exclude().len()..];
        self.calendars.iter().map(move |one| {
            let (dates, behind) = rest.split_at(rest.len().min(one.count as usize));
            rest = behind;
            (one, dates)
        })
    }

    /// Takes the dates of its calendars from what `find` knows under their ids; one that is not known keeps what it has.
    pub fn take_dates<'c>(&mut self, find: impl Fn(&str) -> Option<&'c Calendar>) {
        let mut exclude = self.own_exclude().to_vec();
        let mut calendars = Vec::with_capacity(self.calendars.len());
        for (kept, dates) in self.calendar_dates() {
            let found = find(&kept.id);
            let dates = found.map_or(dates, |calendar| &calendar.dates);
            calendars.push(CalendarUse {
                uid: found.map_or(kept.uid, |calendar| calendar.uid),
                dates_generation: found.map_or(kept.dates_generation, |calendar| calendar.dates_generation),
                count: u32::try_from(dates.len()).unwrap_or(u32::MAX),
                id: kept.id.clone(),
            });
            exclude.extend_from_slice(dates);
        }
        (self.exclude, self.calendars) = (exclude, calendars);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn dates(texts: &[&str]) -> Vec<DateRange> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn calendar(id: &str, texts: &[&str]) -> Calendar {
        Calendar { id: id.into(), dates: dates(texts), dates_generation: 3, ..Calendar::default() }
    }

    #[test]
    fn dates_of_calendars_stand_behind_its_own() {
        let of = |id: &str| CalendarUse { id: id.into(), ..CalendarUse::default() };
        let mut timing = Timing {
            exclude: dates(&["2026-01-01"]),
            calendars: vec![of("a"), of("none"), of("b")],
            ..Timing::default()
        };
        let (a, b) = (calendar("a", &["2026-02-01", "2026-02-03"]), calendar("b", &["2026-03-01"]));
        let find = |id: &str| [&a, &b].into_iter().find(|one| one.id == id);
        timing.take_dates(find);
        assert_eq!(timing.own_exclude(), dates(&["2026-01-01"]));
        let all = ["2026-01-01", "2026-02-01", "2026-02-03", "2026-03-01"];
        assert_eq!(timing.exclude, dates(&all), "what a version before knows excludes all of them");
        let counts: Vec<u32> = timing.calendars.iter().map(|one| one.count).collect();
        assert_eq!(counts, [2, 0, 1]);
        let shorter = calendar("a", &["2026-04-01"]);
        timing.take_dates(|id| Some(&shorter).filter(|_| id == "a"));
        assert_eq!(
            timing.exclude,
            dates(&["2026-01-01", "2026-04-01", "2026-03-01"]),
            "the others keep theirs"
        );
        assert_eq!(timing.own_exclude(), dates(&["2026-01-01"]));
    }

    #[test]
    fn a_timing_without_calendars_is_stored_as_before() {
        let timing = Timing { exclude: dates(&["2026-01-01"]), ..Timing::default() };
        let stored = serde_json::to_string(&timing).unwrap();
        assert!(!stored.contains("calendars"), "{stored}");
        assert_eq!(serde_json::from_str::<Timing>(&stored).unwrap(), timing);
    }
}
