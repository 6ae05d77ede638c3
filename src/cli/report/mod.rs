//! The report of a plan: one HTML file that explains the planner's choice in text, tables and plots.
//!
//! [`html`] explains the plan and lays the sections out on a [`Page`](page::Page); figures are SVG made by
//! `chart`, `heat_map` and `gantt` from the plan's own numbers. [`write()`] puts it into a file.
//!
//! Invariants: the verdict comes first, and of the charts the chosen drafter's; the page is well-formed XML and needs
//! neither script nor network; whatever a colour shows, a number, a marker or a position shows too.

mod chart;
mod figures;
mod gantt;
mod heat_map;
mod page;
mod tables;

use std::{fs::File, io::Read, path::Path};

use yggc::{plan::Plan, planner::report::explain_at, storage::replace_file};

use crate::cli::{error::Failure, settings};

use self::page::Page;

/// First line of every report.
const START: &str = "<!DOCTYPE html>\n<!-- yggc plan explain -->\n";

/// Writes the report of `plan`, for requests of `temperature`, to `path`; replaces an older report, never another file.
///
/// # Errors
/// [`Failure::Input`] if the file cannot be written, or exists and is no report.
pub(super) fn write(plan: &Plan, temperature: f32, path: &Path) -> Result<(), Failure> {
    settings::output_file_of(path, "--html OUT")?;
    let refused = |why: String| {
        Failure::Input(format!(
            "cannot write `{}`: {why}; choose another place with --html OUT",
            path.display()
        ))
    };
    if path.exists() && !is_report(path) {
        return Err(refused("it is there and is no report of `yggc plan explain`".to_owned()));
    }
    let html = html(plan, temperature)?;
    replace_file(path, html.as_bytes()).map_err(|error| refused(error.to_string()))
}

fn is_report(path: &Path) -> bool {
    let mut start = vec![0; START.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == START.as_bytes()
}

/// The report as one self-contained page.
///
/// # Errors
/// [`Failure::Internal`] if a figure cannot be drawn.
fn html(plan: &Plan, temperature: f32) -> Result<String, Failure> {
    let explanation = explain_at(plan, temperature);
    let band = plan.band_for(temperature);
    let model = &plan.header.fingerprints.model.name;
    let mut page = Page::new(&format!("Why {} of {model}", explanation.chosen));
    tables::verdict(&mut page, &explanation);
    page.section("step", "The chosen step");
    gantt::step(&mut page, plan, band.chosen())?;
    tables::memory(&mut page, plan);
    page.section("surface", "Speed-up over depth, width and rows");
    figures::surface(&mut page, band)?;
    tables::drafters(&mut page, &explanation);
    page.section("acceptance", "Acceptance");
    figures::acceptance(&mut page, band)?;
    page.section("latency", "Time of a forward");
    figures::latencies(&mut page, &explanation)?;
    tables::temperatures(&mut page, &explanation);
    tables::parts(&mut page, &explanation);
    page.section("reliability", "Reliability of the acceptance probabilities");
    figures::reliability(&mut page, band)?;
    tables::chains(&mut page, &explanation);
    tables::objective(&mut page, &explanation);
    tables::alternatives(&mut page, band);
    tables::tunings(&mut page, plan);
    tables::remarks(&mut page, &explanation);
    tables::origin(&mut page, plan);
    tables::glossary(&mut page);
    Ok(format!("{START}{}", page.finish()))
}
