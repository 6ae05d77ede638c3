//! A difference of plans for people.
use std::fmt::{self, Write};

use crate::{plan::PricedShape, planner::report::layout::write_table};

use super::{BandDiff, Change, DrafterDiff, LatencyChange, PlanDiff, Quartiles, sub_plans::describe_shape};

/// The difference as text of several lines.
pub fn text(diff: &PlanDiff) -> String {
    let mut out = String::new();
    write_text(diff, &mut out).expect("a string accepts every write");
    out
}

fn write_text(diff: &PlanDiff, out: &mut String) -> fmt::Result {
    if diff.is_empty() {
        return writeln!(out, "no difference");
    }
    let PlanDiff { facts, drafters, bands, latencies, latencies_within_spread, tunings, prices } = diff;
    let mut sections = Vec::new();
    sections.push(changes("facts", facts)?);
    sections.extend(drafter_sections("", drafters)?);
    for BandDiff { temperature, facts, drafters } in bands {
        sections.push(changes(&format!("at temperature {temperature}"), facts)?);
        sections.extend(drafter_sections(&format!("at temperature {temperature}, "), drafters)?);
    }
    sections.push(changed_latencies(latencies)?);
    sections.push(changes("linears tuned for their shape", tunings)?);
    let mut counts = String::new();
    if *latencies_within_spread > 0 {
        writeln!(counts, "{latencies_within_spread} latencies differ by no more than their spreads")?;
    }
    if *prices > 0 {
        writeln!(counts, "{prices} prices of shapes are in one plan only")?;
    }
    sections.push(counts);
    sections.retain(|section| !section.is_empty());
    write!(out, "{}", sections.join("\n"))
}

/// The drafters that differ; `place` says where, and ends as the words before a title do.
fn drafter_sections(place: &str, drafters: &[DrafterDiff]) -> Result<Vec<String>, fmt::Error> {
    let mut sections = Vec::new();
    if !drafters.is_empty() {
        sections.push(predictions(place, drafters)?);
    }
    for DrafterDiff { name, changes: others, .. } in drafters {
        sections.push(changes(&format!("{place}{name}, apart from its shape"), others)?);
    }
    Ok(sections)
}

fn changes(title: &str, changes: &[Change]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    if changes.is_empty() {
        return Ok(out);
    }
    writeln!(out, "{title}")?;
    for Change { what, a, b } in changes {
        writeln!(out, "  {what}\n    A  {a}\n    B  {b}")?;
    }
    Ok(out)
}

fn predictions(place: &str, drafters: &[DrafterDiff]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(out, "{place}best shape of every drafter that differs (predicted)")?;
    let titles = ["drafter", "plan", "tokens/step", "step us", "us/token", "speed-up", "shape"];
    let mut rows = vec![titles.map(str::to_owned)];
    for DrafterDiff { name, a, b, changes: _ } in drafters {
        for (plan, shape) in [("A", a), ("B", b)] {
            let number = |cell: fn(&PricedShape) -> String| shape.as_ref().map_or("-".to_owned(), cell);
            rows.push([
                name.to_string(),
                plan.to_owned(),
                number(|shape| format!("{:.2}", shape.aal)),
                number(|shape| format!("{:.0}", shape.step_us)),
                number(|shape| format!("{:.0}", shape.tpot_us)),
                number(|shape| format!("{:.2}", shape.speedup)),
                shape.as_ref().map_or("not in this plan".to_owned(), describe_shape),
            ]);
        }
    }
    write_table(&mut out, &rows)?;
    Ok(out)
}

fn changed_latencies(latencies: &[LatencyChange]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    if latencies.is_empty() {
        return Ok(out);
    }
    writeln!(out, "latencies whose middle halves do not meet (measured, us: first quartile, median, third)")?;
    let mut rows = vec![["cell", "A", "B", "B / A"].map(str::to_owned)];
    for LatencyChange { cell, a, b } in latencies {
        let quartiles = |quartiles: &Option<Quartiles>| match quartiles {
            Some(Quartiles { low_us, median_us, high_us }) => {
                format!("{low_us:.1} {median_us:.1} {high_us:.1}")
            }
            None => "not measured".to_owned(),
        };
        let ratio = a.zip(*b).map_or("-".to_owned(), |(a, b)| format!("{:.3}", b.median_us / a.median_us));
        rows.push([cell.to_string(), quartiles(a), quartiles(b), ratio]);
    }
    write_table(&mut out, &rows)?;
    Ok(out)
}
