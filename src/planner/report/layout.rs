//! How reports lay out text: lists, tables of right-aligned columns, and facts after a label that fit a screen.
use std::fmt::{self, Display, Write};

use super::explain::tables::Table;

/// Columns of a screen.
pub(super) const COLUMNS: usize = 100;
/// Columns of a label and the space after it.
pub(super) const LABEL: usize = 13;

/// Facts after a label, with `; ` between them, in lines of at most [`COLUMNS`] columns; a longer fact is cut.
pub(super) fn write_facts(out: &mut String, label: &str, facts: &[String]) -> fmt::Result {
    let mut line = String::new();
    let mut label = label;
    for fact in facts.iter().map(|fact| cut(fact, COLUMNS - LABEL)) {
        let columns = line.chars().count() + 2 + fact.chars().count();
        if line.is_empty() {
            line = fact;
        } else if LABEL + columns <= COLUMNS {
            line = format!("{line}; {fact}");
        } else {
            writeln!(out, "{label:<LABEL$}{line}")?;
            (label, line) = ("", fact);
        }
    }
    writeln!(out, "{label:<LABEL$}{line}")
}

/// The text in one line of at most `columns` characters, with dots where its end is missing.
pub(super) fn cut(text: &str, columns: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().count() <= columns {
        return text;
    }
    let kept: String = text.chars().take(columns - 3).collect();
    format!("{kept}...")
}

/// A title, and the items below it; nothing without items.
pub(super) fn write_list(
    out: &mut String,
    title: &str,
    items: impl IntoIterator<Item = impl Display>,
) -> fmt::Result {
    let mut items = items.into_iter().peekable();
    if items.peek().is_some() {
        writeln!(out, "\n{title}")?;
    }
    items.try_for_each(|item| writeln!(out, "  {item}"))
}

/// Right-aligned columns.
pub(super) fn write_table(out: &mut String, rows: &[impl AsRef<[String]>]) -> fmt::Result {
    let columns = rows.iter().map(|row| row.as_ref().len()).max().unwrap_or(0);
    let width_of =
        |column: usize| rows.iter().filter_map(|row| row.as_ref().get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
    for row in rows {
        let cells = row.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

/// A table with its titles.
pub(super) fn write_titled(out: &mut String, Table { titles, rows }: Table) -> fmt::Result {
    let titles = titles.into_iter().map(str::to_owned).collect();
    write_table(out, &[vec![titles], rows].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_fill_lines_of_a_screen() {
        let facts = |lengths: &[usize]| {
            let facts: Vec<String> = lengths.iter().map(|length| "f".repeat(*length)).collect();
            let mut out = String::new();
            write_facts(&mut out, "label", &facts).unwrap();
            let lines = out.lines().map(|line| (line[..LABEL].trim_end().to_owned(), line.len()));
            lines.collect::<Vec<_>>()
        };
        let named = |name: &str, columns| (name.to_owned(), columns);
        assert_eq!(facts(&[10]), [named("label", 23)]);
        assert_eq!(facts(&[40, 45]), [named("label", 100)]);
        assert_eq!(facts(&[40, 46, 10]), [named("label", 53), named("", 71)]);
        assert_eq!(facts(&[200, 1]), [named("label", 100), named("", 14)]);
    }

    #[test]
    fn what_is_cut_says_so_and_stays_in_its_line() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abc...");
        assert_eq!(cut("äöüßäöü", 6), "äöü...");
        assert_eq!(cut("a\nb", 6), "a b");
    }
}
