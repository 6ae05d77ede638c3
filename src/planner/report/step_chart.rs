//! The stages of the chosen step over time, and the division of memory, as bars of text.
use std::fmt::{self, Write};

use crate::{
    plan::{Plan, PlannedMemory, SubPlan},
    planner::TimeSpan,
};

use super::{
    explain::tables,
    layout::{write_facts, write_titled},
    reading::reads,
    verdict::notable_stages,
    words::{MemoryPart, memory_parts, size},
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

/// A line for every stage of the step of a sub-plan that takes notable time, one after the other, and for what is read
/// meanwhile.
pub(super) fn write_step(out: &mut String, plan: &Plan, sub_plan: &SubPlan) -> fmt::Result {
    let (stages, others, others_us) = notable_stages(sub_plan);
    let step_us = sub_plan.first().predicted.step_us;
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
    let reads = reads(plan, sub_plan);
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
    writeln!(out, "\nmemory (derived; every forward reads {} of weights more)", size(memory.streamed_bytes))?;
    let parts = memory_parts(memory);
    writeln!(out, "  [{}]", shares(&parts, memory.budget_bytes.unwrap_or(memory.used_bytes())))?;
    let sizes: Vec<String> = parts.iter().map(|part| size(part.bytes)).collect();
    let columns = sizes.iter().map(String::len).max().unwrap_or(0);
    for (MemoryPart { letter, bytes, words }, size) in parts.iter().zip(&sizes) {
        if *bytes > 0 {
            writeln!(out, "  {letter}  {size:>columns$}  {words}")?;
        }
    }
    if memory.divisions.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nbest division of that memory for every substitute (predicted time per token on other prompts, mean of all temperatures)"
    )?;
    write_titled(out, tables::divisions(memory))
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

/// A bar in which every part has columns by its share of `all`, and one at least where it is anything.
fn shares(parts: &[MemoryPart], all: u64) -> String {
    let columns = |part: &MemoryPart| match part.bytes {
        0 => 0,
        bytes => ((bytes as f64 / all.max(1) as f64 * BAR as f64).round() as usize).max(1),
    };
    let mut columns: Vec<usize> = parts.iter().map(columns).collect();
    // What rounding adds or takes is the widest part's.
    let widest = (0..columns.len()).max_by_key(|place| columns[*place]).unwrap_or(0);
    let others: usize = columns.iter().sum::<usize>() - columns[widest];
    columns[widest] = BAR.saturating_sub(others);
    parts.iter().zip(columns).flat_map(|(part, columns)| std::iter::repeat_n(part.letter, columns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_seen_and_the_bar_is_full() {
        let part = |(letter, bytes)| MemoryPart { letter, bytes, words: String::new() };
        let all = [('W', 500), ('S', 300), ('B', 1), ('C', 0), ('.', 199)].map(part);
        let shown = shares(&all, 1000);
        assert_eq!(shown.len(), BAR);
        let count = |letter| shown.matches(letter).count();
        assert_eq!((count('W'), count('S'), count('B'), count('C'), count('.')), (29, 18, 1, 0, 12));
        assert_eq!(shares(&[part(('W', 7))], 7), "W".repeat(BAR));
    }

    #[test]
    fn what_is_short_has_a_column() {
        let span = |start_us, end_us| TimeSpan { start_us, end_us };
        assert_eq!(bar(&[span(0.0, 30.0)], 60.0), "#".repeat(30));
        assert_eq!(bar(&[span(59.99, 60.0)], 60.0), format!("{}#", " ".repeat(59)));
        assert_eq!(bar(&[span(0.0, 0.1), span(2.0, 4.0)], 60.0), "# ##");
    }
}
