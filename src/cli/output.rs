//! Output: results go to stdout, remarks to stderr.

use std::{
    fmt::Display,
    io::{self, Write},
};

use serde::Serialize;

use crate::cli::error::Failure;

/// Writes a result as it is.
pub(crate) fn text(text: impl Display) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes a result as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value).map_err(|error| Failure::Internal(error.to_string()))?;
    text(format_args!("{line}\n"))
}

/// Writes a remark to stderr, ignoring a closed stderr.
pub(crate) fn remark(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A table; all columns but the first are right-aligned.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut out = String::new();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A number of bytes in a readable unit.
pub(crate) fn bytes(count: u64) -> String {
    let count = count as f64;
    if count < 1024.0 * 1024.0 {
        format!("{:.1} KiB", count / 1024.0)
    } else {
        format!("{:.1} MiB", count / (1024.0 * 1024.0))
    }
}
