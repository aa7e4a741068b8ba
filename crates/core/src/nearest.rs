//! Decides which of several names somebody meant.

/// The longest name that is compared letter by letter.
const CHARS_MAX: usize = 48;

/// A name without what people vary: case, `_`, `-` and blanks.
pub fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The candidate that is the same but for case and separators.
pub fn same<'c>(given: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let given = plain(given);
    candidates.into_iter().find(|candidate| plain(candidate) == given)
}

/// The candidate that is one or two slips of the hand away, the nearest first.
pub fn nearest<'c>(given: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let given: Vec<char> = plain(given).chars().collect();
    if !(3..=CHARS_MAX).contains(&given.len()) {
        return None;
    }
    let close = |candidate: &'c str| {
        let wanted: Vec<char> = plain(candidate).chars().collect();
        let slips = slips(&given, &wanted);
        let allowed = if given.len().min(wanted.len()) < 6 { 1 } else { 2 };
        (slips <= allowed).then_some((slips, candidate))
    };
    candidates.into_iter().filter_map(close).min().map(|(_, candidate)| candidate)
}

/// How many letters are added, left out, changed or exchanged with their neighbour.
fn slips(one: &[char], other: &[char]) -> usize {
    if one.len().abs_diff(other.len()) > 2 {
        return usize::MAX;
    }
    let width = other.len() + 1;
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1; width];
        for (j, b) in other.iter().enumerate() {
            let changed = rows[i][j] + usize::from(a != b);
            row[j + 1] = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                row[j + 1] = row[j + 1].min(rows[i - 1][j - 1] + 1);
            }
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = ["max_in_flight", "time_zone", "target", "events", "retry"];

    #[test]
    fn slips_are_seen_and_other_words_are_not() {
        for (given, wanted) in [
            ("maxInflight", "max_in_flight"),
            ("timezone", "time_zone"),
            ("traget", "target"),
            ("targets", "target"),
            ("event", "events"),
            ("rety", "retry"),
        ] {
            assert_eq!(nearest(given, NAMES), Some(wanted), "{given}");
        }
        for given in ["colour", "x", "", "zone", "schedule", "max"] {
            assert_eq!(nearest(given, NAMES), None, "{given}");
        }
        assert_eq!(same("Time-Zone", NAMES), Some("time_zone"));
        assert_eq!(same("timezon", NAMES), None);
    }

    #[test]
    fn a_long_name_costs_nothing() {
        assert_eq!(nearest(&"a".repeat(1_000_000), NAMES), None);
    }
}
