//! The sections of the report that consist of text and tables.

use ygg_profiler::Fingerprints;
use yggc::{
    plan::{Band, LeftOut, Plan, Refusal, Schedule},
    planner::report::{
        TUNING_TITLES, drafter_cell,
        explain::{
            Explanation, Margin, ObjectiveContrast, Outcome,
            tables::{self, Table},
        },
        tuning_cells,
    },
};

use super::page::Page;

/// Most alternatives that are listed.
const ALTERNATIVES: usize = 40;

/// What the words of the page mean.
const GLOSSARY: [(&str, &str); 12] = [
    ("plain decoding", "one token per forward of the model, without a drafter; in tables, the drafter none"),
    ("drafter", "what proposes tokens: text that was seen before, a part of the model, or a small model"),
    (
        "verifier",
        "the model itself; it checks all proposals of a step in one forward, so that the output is that of plain \
         decoding",
    ),
    ("step", "one round: a tree of tokens is proposed, verified, and accepted as far as the verifier agrees"),
    ("speed-up", "time per token of plain decoding over that of the drafter"),
    ("Dd", "how many times a tree grows in a step: the depth of the draft"),
    ("Wd", "tokens that are added at each growth: the width of the draft; 1 is a chain"),
    (
        "Wv, rows",
        "tokens of the tree that are verified; <= where each step chooses how many, up to this number",
    ),
    ("tokens/step", "tokens that a step gives on average, the verifier's own at its end included"),
    ("committed tokens", "prompt and answer so far, which a forward attends to"),
    ("acceptance", "how often the verifier agrees with a proposal"),
    ("predicted, measured", "measured was read from a clock or counted; predicted was computed from that"),
];

/// How memory is divided; nothing where all weights are in memory.
pub(super) fn memory(page: &mut Page, plan: &Plan) {
    let Some(memory) = &plan.header.memory else { return };
    page.section("memory", "Memory");
    page.table("What is in memory (derived)", &tables::memory(memory), |_| false);
    if !memory.divisions.is_empty() {
        let caption = "Best division for every substitute (predicted time per token on other prompts, mean of all \
            temperatures)";
        let is_kept = |row: usize| {
            let division = &memory.divisions[row];
            (division.resident_bytes, division.substitute_bytes)
                == (memory.resident_bytes, memory.substitute_bytes)
        };
        page.table(caption, &tables::divisions(memory), is_kept);
    }
}

pub(super) fn verdict(page: &mut Page, explanation: &Explanation) {
    page.section("verdict", "Verdict");
    let Explanation { verdict, chosen, temperature, fixed, context, considered, margin, .. } = explanation;
    page.verdict(&format!("{}.", verdict.gain));
    if !verdict.advice.is_empty() {
        page.paragraph("For more:");
        page.list(verdict.advice.iter().map(|advice| advice.replace('`', "")));
    }
    let reasons = explanation.drafters.iter().filter(|drafter| is_chosen(drafter.outcome));
    reasons.for_each(|drafter| {
        page.paragraph(format_args!("For temperature {temperature}, {chosen} was {}.", drafter.reason));
    });
    if !fixed.is_empty() {
        page.paragraph(format_args!("Fixed by the user: {fixed}."));
    }
    let Margin { needed, best, as_good } = margin;
    page.paragraph(format_args!(
        "{considered} shapes were priced at {context} committed tokens. A gain of less than {:.0} % over plain \
         decoding may be noise; the best shape is predicted {:.1} % faster, and {as_good} shapes are as good within \
         the noise.",
        needed * 100.0,
        best * 100.0
    ));
}

pub(super) fn origin(page: &mut Page, plan: &Plan) {
    page.section("origin", "Made for and by");
    let Fingerprints { machine, model, build } = &plan.header.fingerprints;
    page.list([
        format!("Machine: {machine}"),
        format!("Model: {} ({})", model.name, model.digest),
        format!(
            "Build: plan format {}, kernels {}, drafter models {}",
            build.plan_format, build.kernels, build.draft_formats
        ),
        format!("Measured {}, planned {}", plan.header.measured_at, plan.header.made_at),
        format!("Made by {}, calibration {}", plan.header.created_by, plan.header.calibration),
    ]);
}

pub(super) fn glossary(page: &mut Page) {
    page.section("glossary", "Glossary");
    page.definitions(&GLOSSARY);
}

pub(super) fn temperatures(page: &mut Page, explanation: &Explanation) {
    page.section("temperatures", "What requests of each temperature get");
    let bands = &explanation.bands;
    if bands.len() == 1 {
        return page
            .paragraph("Only greedy requests were recorded, so requests of every temperature go by them.");
    }
    page.paragraph(format_args!(
        "A request goes by the recorded temperature that is nearest to its own. The other sections are for \
         temperature {}.",
        explanation.temperature
    ));
    let is_told = |place: usize| bands[place].temperature == explanation.temperature;
    page.table("Chosen for each temperature (predicted)", &tables::temperatures(bands), is_told);
    page.list(bands.iter().skip(1).map(|band| format!("At {}: {}", band.temperature, band.reason)));
}

pub(super) fn drafters(page: &mut Page, explanation: &Explanation) {
    page.section("drafters", "Why each drafter won or lost");
    let drafters = &explanation.drafters;
    page.list(drafters.iter().map(|drafter| format!("{}: {}", drafter.best.name, drafter.reason)));
    let table = tables::drafters(drafters);
    page.table("Best shape of every drafter (predicted)", &table, |i| is_chosen(drafters[i].outcome));
}

pub(super) fn parts(page: &mut Page, explanation: &Explanation) {
    page.section("parts", "What each part adds");
    page.paragraph(
        "The best shape with a part and all parts before it, against the best without it; a part that is not listed \
         changes nothing.",
    );
    page.table("Parts of a step (predicted)", &tables::parts(&explanation.parts), |_| false);
}

pub(super) fn objective(page: &mut Page, explanation: &Explanation) {
    page.section("objective", "Tokens per time against tokens per step");
    let ObjectiveContrast { overall, by_drafter } = &explanation.objective;
    page.paragraph(format_args!("Over all drafters, {}.", overall.words()));
    page.table("Best shapes by either objective (predicted)", &tables::objectives(by_drafter), |_| false);
}

pub(super) fn chains(page: &mut Page, explanation: &Explanation) {
    page.section("chains", "Chains by analysis");
    page.paragraph(
        "Leviathan et al. (arXiv 2211.17192) find the best number of drafted tokens from alpha, the chance that a \
         drafted token is accepted, and c, the time of a draft forward over that of a verify forward, where verifying \
         costs the same whatever its rows. Next to it is the best chain that was priced with the measured times.",
    );
    page.table("Analysis and search (alpha and c measured)", &tables::chains(&explanation.chains), |_| false);
}

pub(super) fn alternatives(page: &mut Page, band: &Band) {
    page.section("alternatives", "Alternatives");
    let (table, chosen) = tables::alternatives(band, ALTERNATIVES);
    let caption = format!("Best {} of {} shapes (predicted)", table.rows.len(), band.alternatives.len());
    page.table(&caption, &table, |row| Some(row) == chosen);
}

pub(super) fn tunings(page: &mut Page, plan: &Plan) {
    page.section("tunings", "Linears tuned for their shape");
    if plan.tunings.is_empty() {
        return page.paragraph("All linears go the default way.");
    }
    let rows = plan.tunings.iter().map(|tuned| tuning_cells(tuned).to_vec()).collect();
    let table = Table { titles: TUNING_TITLES.to_vec(), rows };
    page.table("Tunings that beat the default (measured; gain derived)", &table, |_| false);
}

pub(super) fn remarks(page: &mut Page, explanation: &Explanation) {
    page.section("remarks", "Left out, refused, odd");
    let Explanation { refused, left_out, findings, .. } = explanation;
    if refused.is_empty() && left_out.is_empty() && findings.is_empty() {
        return page.paragraph("Nothing.");
    }
    page.list(
        left_out
            .iter()
            .map(|LeftOut { name, lacks }| format!("{name} was left out: the profile has no {lacks}")),
    );
    page.list(refused.iter().map(|Refusal { name, growth, depth, draft_width, missing }| {
        let missing = missing * 100.0;
        let name = drafter_cell(name, *growth, Schedule::Plain);
        format!("{name}, Dd {depth}, Wd {draft_width} was refused: {missing:.1} % of its nodes were never expanded")
    }));
    page.list(findings);
}

fn is_chosen(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Won | Outcome::AskedFor | Outcome::NothingBetter => true,
        Outcome::SlowerThanPlain
        | Outcome::Doubtful
        | Outcome::Slower
        | Outcome::Excluded
        | Outcome::OtherSubstitute => false,
    }
}
