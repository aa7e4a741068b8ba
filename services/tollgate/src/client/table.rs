//! Decides how wide the columns of a table are: as wide as their widest cell, two blanks apart, the last one ragged.
//!
//! Cells are one line each; characters that would break the table are shown as blanks. A character counts as one
//! column wide. Which columns are shown depends on how much the reader asked for.

use std::fmt;

use super::style::Tone;

/// The most characters of a cell.
const CELL_CHARS_MAX: usize = 100;

/// How much is shown, and seen from when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The moment from which relative times are seen.
    pub(crate) now_us: i64,
    /// More columns.
    pub(crate) wide: bool,
    /// Resources of several namespaces.
    pub(crate) everywhere: bool,
}

impl From<i64> for View {
    fn from(now_us: i64) -> Self {
        Self { now_us, ..Self::default() }
    }
}

/// When a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Always,
    Wide,
    Everywhere,
}

/// A column's name, and when it is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(&'static str, Shown);

impl From<&'static str> for Column {
    fn from(name: &'static str) -> Self {
        Self(name, Shown::Always)
    }
}

/// A column that is shown where more is asked for.
pub(crate) const fn wide(name: &'static str) -> Column {
    Column(name, Shown::Wide)
}

/// A column that is always shown.
pub(crate) const fn always(name: &'static str) -> Column {
    Column(name, Shown::Always)
}

/// A column that is shown where there is something in it, or where more is asked for.
pub(crate) const fn filled(name: &'static str, is_filled: bool) -> Column {
    if is_filled { always(name) } else { wide(name) }
}

/// The column of namespaces, shown where there are several.
pub(crate) const NAMESPACE: Column = Column("NAMESPACE", Shown::Everywhere);

/// A text in its tone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text in a tone.
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// A state, in its own tone.
    pub(crate) fn state(word: impl Into<String>) -> Self {
        let text = word.into();
        Self { tone: Tone::of(&text), text }
    }

    /// A number, in a tone where it is above zero.
    pub(crate) fn count(count: impl Into<u64>, tone: Tone) -> Self {
        let count = count.into();
        Self { text: count.to_string(), tone: tone.if_any(count) }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Rows under a head.
pub(crate) struct Table {
    head: Vec<&'static str>,
    /// Of each column that was named: whether it is shown.
    shown: Vec<bool>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows, all of whose columns are shown.
    pub(crate) fn new<const N: usize>(head: [&'static str; N]) -> Self {
        Self::of(View::default(), head.map(always))
    }

    /// A table without rows, with the columns that a view shows.
    pub(crate) fn of<const N: usize>(view: View, head: [Column; N]) -> Self {
        let shown: Vec<bool> = head
            .iter()
            .map(|Column(_, shown)| match shown {
                Shown::Always => true,
                Shown::Wide => view.wide,
                Shown::Everywhere => view.everywhere,
            })
            .collect();
        let head = head.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(column, _)| column.0).collect();
        Self { head, shown, rows: Vec::new() }
    }

    /// Adds a row, with a cell for each column whether it is shown or not; an empty cell is shown as `-`.
    pub(crate) fn row<C: Into<Cell>, const N: usize>(&mut self, cells: [C; N]) {
        let shown = cells.into_iter().zip(&self.shown).filter(|(_, shown)| **shown);
        self.rows.push(shown.map(|(cell, _)| clean(cell.into())).collect());
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn clean(Cell { text, tone }: Cell) -> Cell {
    if text.is_empty() {
        return Cell { text: "-".to_owned(), tone: Tone::Quiet };
    }
    let mut clean: String = text
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(CELL_CHARS_MAX)
        .collect();
    if text.chars().nth(CELL_CHARS_MAX).is_some() {
        clean.pop();
        clean.push('…');
    }
    Cell { text: clean, tone }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = self.head.iter().map(|name| name.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut line = |cells: &mut dyn Iterator<Item = (&str, Tone)>| {
            let mut blanks = 0;
            for ((text, tone), width) in cells.zip(&widths) {
                write!(f, "{:blanks$}{}", "", tone.paint(text.trim_end()))?;
                blanks = width + 2 - text.trim_end().chars().count();
            }
            writeln!(f)
        };
        line(&mut self.head.iter().map(|name| (*name, Tone::Head)))?;
        self.rows.iter().try_for_each(|row| line(&mut row.iter().map(|cell| (cell.text.as_str(), cell.tone))))
    }
}

/// Names and values, one pair a line, the values aligned. Pairs with an empty value are left out.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let shown = || pairs.iter().filter(|(_, value)| !value.is_empty());
    let width = shown().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 1;
    shown().map(|(name, value)| format!("{:<width$} {value}\n", format!("{name}:"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::style::plain;
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let mut table = Table::new(["NAME", "N", "NOTE"]);
        table.row(["nightly".to_owned(), "1000000".to_owned(), String::new()]);
        table.row(["é".to_owned(), "2".to_owned(), "two\nlines".to_owned()]);
        let expected = "NAME     N        NOTE\nnightly  1000000  -\né        2        two lines\n";
        assert_eq!(plain(&table.to_string()), expected);
    }

    #[test]
    fn colours_do_not_move_columns() {
        let mut table = Table::new(["STATE", "N"]);
        table.row([Cell::state("DEAD"), Cell::count(3_u32, Tone::Warning)]);
        table.row([Cell::state("RUNNING"), Cell::count(0_u32, Tone::Warning)]);
        let text = table.to_string();
        assert_eq!(plain(&text), "STATE    N\nDEAD     3\nRUNNING  0\n");
        assert!(
            text.contains(&Tone::Bad.paint("DEAD")) && text.contains(&Tone::Warning.paint("3")),
            "{text:?}"
        );
    }

    #[test]
    fn columns_are_shown_where_they_are_asked_for() {
        let text = |view: View| {
            let mut table = Table::of(view, [NAMESPACE, always("NAME"), wide("SHARD")]);
            table.row(["team", "nightly", "7"]);
            plain(&table.to_string())
        };
        assert_eq!(text(View::default()), "NAME\nnightly\n");
        let everything = View { wide: true, everywhere: true, ..View::default() };
        assert_eq!(text(everything), "NAMESPACE  NAME     SHARD\nteam       nightly  7\n");
    }

    #[test]
    fn long_cells_are_cut() {
        let mut table = Table::new(["A"]);
        table.row(["x".repeat(101)]);
        table.row(["y".repeat(100)]);
        let text = plain(&table.to_string());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{}…", "x".repeat(99)));
        assert_eq!(lines[2], "y".repeat(100));
    }

    #[test]
    fn pairs_are_aligned_and_empty_ones_left_out() {
        let text = pairs(&[("name", "a".to_owned()), ("in flight", "3".to_owned()), ("x", String::new())]);
        assert_eq!(text, "name:      a\nin flight: 3\n");
    }
}
