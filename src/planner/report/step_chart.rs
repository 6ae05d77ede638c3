//! The stages of the chosen step over time, and the division of memory, as bars of text.
use std::fmt::{self, Write};

use crate::{
    plan::{Division, Plan, PlannedMemory},
    planner::TimeSpan,
};

use super::{
    layout::{write_facts, write_table},
    reading::reads,
    verdict::notable_stages,
};

/// Columns of a bar.
const BAR: usize = 60;

/// Columns in which something runs that takes `step_us` in all; a time too short for a column has one.
fn bar(spans: &[TimeSpan], step_us: f64) -> String {
    let column = |us: f64| ((us / step_us * BAR as f64).round() as usize).min(BAR);
    let mut columns = [' '; BAR];
    for TimeSpan { start_us, end_us } in spans {
        let start = column(*start_us).min(BAR - 1);
        let end = column(*end_us).max(start + 1);
        columns[start..end].fill('#');
    }
    columns.iter().collect::<String>().trim_end().to_owned()
}

/// A line for every stage of the chosen step that takes notable time, one behind the other, and for what is read meanwhile.
pub(super) fn write_step(out: &mut String, plan: &Plan) -> fmt::Result {
    let (stages, others, others_us) = notable_stages(plan.chosen());
    let step_us = plan.chosen().predicted.step_us;
    let (mut lines, mut end_us) = (Vec::new(), 0.0);
    let mut push = |name: String, us: f64| {
        let span = TimeSpan { start_us: end_us, end_us: end_us + us };
        end_us = span.end_us;
        lines.push((name, us, vec![span]));
    };
    stages.iter().for_each(|(stage, us)| push(stage.to_string(), *us));
    if others > 0 {
        push(format!("{others} others"), others_us);
    }
    let reads = reads(plan);
    if !reads.is_empty() {
        let us = reads.iter().map(|span| span.end_us - span.start_us).sum();
        lines.push(("meanwhile read".to_owned(), us, reads));
    }
    let of = |text: fn(&(String, f64, Vec<TimeSpan>)) -> String| lines.iter().map(text).collect::<Vec<_>>();
    let (names, times) = (of(|line| line.0.clone()), of(|line| format!("{:.0} us", line.1)));
    let widest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
    let (name_columns, time_columns) = (widest(&names), widest(&times));
    for ((name, time), (_, _, spans)) in names.iter().zip(&times).zip(&lines) {
        writeln!(out, "  {name:>name_columns$}  {time:>time_columns$}  {}", bar(spans, step_us))?;
    }
    Ok(())
}

/// How memory is divided, and how it would be with other substitutes; nothing where all weights are in memory.
pub(super) fn write_memory(out: &mut String, memory: Option<&PlannedMemory>) -> fmt::Result {
    let Some(memory) = memory else { return Ok(()) };
    let PlannedMemory { budget_bytes, streamed_bytes, context, divisions, .. } = memory;
    writeln!(out, "\nmemory (derived; every forward reads {} of weights more)", size(*streamed_bytes))?;
    let parts = parts(memory);
    let all = budget_bytes.unwrap_or(memory.used_bytes());
    writeln!(out, "  [{}]", shares(&parts, all))?;
    let context = format!("cache and session with a context of {context} tokens");
    let words = ["weights", "substitute", "buffer for weights that are read", &context, "free"];
    let rows: Vec<(char, u64, &str)> =
        parts.iter().zip(words).map(|((letter, bytes), words)| (*letter, *bytes, words)).collect();
    let sizes: Vec<String> = rows.iter().map(|(_, bytes, _)| size(*bytes)).collect();
    let columns = sizes.iter().map(String::len).max().unwrap_or(0);
    for ((letter, bytes, words), size) in rows.iter().zip(&sizes) {
        if *bytes > 0 {
            writeln!(out, "  {letter}  {size:>columns$}  {words}")?;
        }
    }
    if divisions.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nbest division of that memory for every substitute (time per token on other prompts, predicted)"
    )?;
    let titles = ["substitute", "weights in memory", "substitute takes", "us/token"].map(str::to_owned);
    let row = |division: &Division| {
        let Division { substitute_bits, resident_bytes, substitute_bytes, tpot_us } = division;
        let bits = substitute_bits.map_or("none".to_owned(), |bits| format!("{bits} bits"));
        [bits, size(*resident_bytes), size(*substitute_bytes), format!("{tpot_us:.0}")]
    };
    let rows: Vec<[String; 4]> = std::iter::once(titles).chain(divisions.iter().map(row)).collect();
    write_table(out, &rows)
}

/// What is in memory, in lines of a screen.
pub(super) fn write_memory_facts(out: &mut String, memory: Option<&PlannedMemory>) -> fmt::Result {
    let Some(memory) = memory else { return Ok(()) };
    let PlannedMemory { budget_bytes, resident_bytes, streamed_bytes, substitute_bytes, context, .. } =
        memory;
    let used = match budget_bytes {
        Some(budget) => format!("{} of {}", size(memory.used_bytes()), size(*budget)),
        None => size(memory.used_bytes()),
    };
    let mut facts = vec![
        format!("{used} with a context of {context} tokens"),
        format!("{} of weights, {} read by every forward", size(*resident_bytes), size(*streamed_bytes)),
    ];
    if *substitute_bytes > 0 {
        facts.push(format!("substitute {}", size(*substitute_bytes)));
    }
    write_facts(out, "memory", &facts)
}

/// The parts of memory, what is free last, each with its letter.
fn parts(memory: &PlannedMemory) -> [(char, u64); 5] {
    let PlannedMemory { resident_bytes, staging_bytes, substitute_bytes, session_bytes, .. } = *memory;
    let free = memory.budget_bytes.map_or(0, |budget| budget.saturating_sub(memory.used_bytes()));
    [('W', resident_bytes), ('S', substitute_bytes), ('B', staging_bytes), ('C', session_bytes), ('.', free)]
}

/// A bar in which every part has columns by its share of `all`, and one at least where it is anything.
fn shares(parts: &[(char, u64)], all: u64) -> String {
    let mut columns: Vec<usize> = parts
        .iter()
        .map(|(_, bytes)| match bytes {
            0 => 0,
            bytes => ((*bytes as f64 / all.max(1) as f64 * BAR as f64).round() as usize).max(1),
        })
        .collect();
    // What rounding adds or takes is the widest part's.
    let widest = (0..columns.len()).max_by_key(|place| columns[*place]).unwrap_or(0);
    let others: usize = columns.iter().sum::<usize>() - columns[widest];
    columns[widest] = BAR.saturating_sub(others);
    parts
        .iter()
        .zip(columns)
        .flat_map(|((letter, _), columns)| std::iter::repeat_n(*letter, columns))
        .collect()
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    let of = |unit: u64| bytes as f64 / unit as f64;
    match bytes {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.1} KiB", of(1 << 10)),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", of(1 << 20)),
        _ => format!("{:.2} GiB", of(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_seen_and_the_bar_is_full() {
        let all = [('W', 500), ('S', 300), ('B', 1), ('C', 0), ('.', 199)];
        let shown = shares(&all, 1000);
        assert_eq!(shown.len(), BAR);
        let count = |letter| shown.matches(letter).count();
        assert_eq!((count('W'), count('S'), count('B'), count('C'), count('.')), (29, 18, 1, 0, 12));
        assert_eq!(shares(&[('W', 7)], 7), "W".repeat(BAR));
    }

    #[test]
    fn what_is_short_has_a_column() {
        let span = |start_us, end_us| TimeSpan { start_us, end_us };
        assert_eq!(bar(&[span(0.0, 30.0)], 60.0), "#".repeat(30));
        assert_eq!(bar(&[span(59.99, 60.0)], 60.0), format!("{}#", " ".repeat(59)));
        assert_eq!(bar(&[span(0.0, 0.1), span(2.0, 4.0)], 60.0), "# ##");
    }

    #[test]
    fn sizes_are_read_at_once() {
        let sizes = [0, 1023, 1024, 5 << 20, 3 << 29].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "5.0 MiB", "1.50 GiB"]);
    }
}
