//! Decides how wide the columns of a table are: as wide as their widest cell, two blanks apart, the last one ragged.
//!
//! Cells are one line each; characters that would break the table are shown as blanks. A character counts as one
//! column wide.

use std::fmt;

/// The most characters of a cell.
const CELL_CHARS_MAX: usize = 100;

/// Rows under a head.
pub(crate) struct Table<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table without rows.
    pub(crate) fn new(head: [&'static str; N]) -> Self {
        Self { head, rows: Vec::new() }
    }

    /// Adds a row; an empty cell is shown as `-`.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| clean(&cell)));
    }

    /// Whether it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

fn clean(cell: &str) -> String {
    if cell.is_empty() {
        return "-".to_owned();
    }
    let mut clean: String = cell
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .take(CELL_CHARS_MAX)
        .collect();
    if cell.chars().nth(CELL_CHARS_MAX).is_some() {
        clean.pop();
        clean.push('…');
    }
    clean
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = self.head.map(|name| name.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut line = |cells: [&str; N]| {
            let mut text = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                text.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(f, "{}", text.trim_end())
        };
        line(self.head)?;
        self.rows.iter().try_for_each(|row| line(row.each_ref().map(String::as_str)))
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
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let mut table = Table::new(["NAME", "N", "NOTE"]);
        table.row(["nightly".to_owned(), "1000000".to_owned(), String::new()]);
        table.row(["é".to_owned(), "2".to_owned(), "two\nlines".to_owned()]);
        let expected = "NAME     N        NOTE\nnightly  1000000  -\né        2        two lines\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn long_cells_are_cut() {
        let mut table = Table::new(["A"]);
        table.row(["x".repeat(101)]);
        table.row(["y".repeat(100)]);
        let text = table.to_string();
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
