//! The sections of the report that consist of text and tables.

use ygg_profiler::Fingerprints;
use yggc::{
    plan::{DepthRule, LeftOut, Plan, PricedShape, Refusal, RowRule, Schedule, Shape},
    planner::report::{
        TUNING_TITLES, drafter_cell,
        explain::{
            BandReason, ChainAnalysis, Contrast, DrafterReason, Explanation, Margin, ObjectiveContrast,
            Outcome, PartGain, StepShares,
        },
        tuning_cells,
    },
};

use super::page::Page;

/// Most alternatives that are listed.
const ALTERNATIVES: usize = 40;

pub(super) fn summary(page: &mut Page, plan: &Plan, explanation: &Explanation) {
    page.section("summary", "What was chosen");
    let Explanation { chosen, fixed, context, considered, margin, .. } = explanation;
    let reasons = explanation.drafters.iter().filter(|drafter| is_chosen(drafter.outcome));
    reasons.for_each(|drafter| page.paragraph(format_args!("{chosen}, {}.", drafter.reason)));
    if !fixed.is_empty() {
        page.paragraph(format_args!("Fixed by the user: {fixed}."));
    }
    let Margin { needed, best, as_good } = margin;
    page.paragraph(format_args!(
        "{considered} shapes were priced at {context} committed tokens. A gain of less than {:.0} % over plain decoding may be \
         noise; the best shape is predicted {:.1} % faster, and {as_good} shapes are as good within the noise.",
        needed * 100.0,
        best * 100.0
    ));
    let Fingerprints { machine, model, build } = &plan.fingerprints;
    page.list([
        format!("Machine: {machine}"),
        format!("Model: {} ({})", model.name, model.digest),
        format!("Build: plan format {}, kernels {}", build.plan_format, build.kernels),
        format!("Made by {}, calibration {}", plan.created_by, plan.calibration),
    ]);
    page.paragraph(
        "Times of forwards and acceptance were measured; times of steps, tokens per step and speed-ups are predicted from \
         them.",
    );
}

pub(super) fn temperatures(page: &mut Page, explanation: &Explanation) {
    page.section("temperatures", "What requests of each temperature get");
    let bands = &explanation.bands;
    if bands.len() == 1 {
        return page
            .paragraph("Only greedy requests were recorded, so requests of every temperature go by them.");
    }
    page.paragraph(format_args!(
        "A request goes by the recorded temperature that is nearest to its own. The sections below are for temperature {}.",
        explanation.temperature
    ));
    let titles = [
        "recorded",
        "requests up to",
        "drafter",
        "Dd",
        "Wd",
        "Wv",
        "tokens/step",
        "step us",
        "us/token",
        "speed-up",
        "beside temperature 0",
    ];
    let row = |BandReason { temperature, up_to, chosen, reason }: &BandReason| {
        let mut row = vec![temperature.to_string(), up_to.map_or("any".to_owned(), |t| t.to_string())];
        row.extend(priced_cells(chosen));
        row.push(reason.clone());
        row
    };
    let rows: Vec<Vec<String>> = bands.iter().map(row).collect();
    let is_told = |place: usize| bands[place].temperature == explanation.temperature;
    page.table("Chosen for each temperature (predicted)", &titles, &rows, is_told);
}

pub(super) fn drafters(page: &mut Page, explanation: &Explanation) {
    page.section("drafters", "Why each drafter won or lost");
    let drafters = &explanation.drafters;
    page.list(drafters.iter().map(|drafter| format!("{}: {}", drafter.name, drafter.reason)));
    let titles = [
        "drafter",
        "Dd",
        "Wd",
        "Wv",
        "tokens/step",
        "us/token",
        "speed-up",
        "step us",
        "draft us",
        "verify us",
        "host us",
    ];
    let row = |drafter: &DrafterReason| {
        let DrafterReason { name, shape, growth, schedule, depth_rule, rule, predicted, shares, .. } =
            drafter;
        let StepShares { draft_us, verify_us, host_us } = *shares;
        let mut row = vec![drafter_cell(name, *growth, *schedule)];
        row.extend(shape_cells(shape, *depth_rule, *rule));
        row.extend([format!("{:.2}", predicted.aal), format!("{:.0}", predicted.tpot_us)]);
        row.push(format!("{:.2}", predicted.speedup));
        row.extend([predicted.step_us, draft_us, verify_us, host_us].map(|us| format!("{us:.1}")));
        row
    };
    let rows: Vec<Vec<String>> = drafters.iter().map(row).collect();
    page.table("Best shape of every drafter (predicted)", &titles, &rows, |i| is_chosen(drafters[i].outcome));
}

pub(super) fn parts(page: &mut Page, explanation: &Explanation) {
    page.section("parts", "What each part adds");
    page.paragraph("The best shape with a part and all parts before it, against the best without it.");
    let titles =
        ["drafter", "part", "Dd", "Wd", "Wv", "tokens/step", "step us", "us/token", "speed-up", "adds"];
    let row = |PartGain { part, best, gain }: &PartGain| {
        let mut row = priced_cells(best);
        row.insert(1, part.words().to_owned());
        row.push(format!("{:+.1} %", (gain - 1.0) * 100.0));
        row
    };
    let rows: Vec<Vec<String>> = explanation.parts.iter().map(row).collect();
    page.table("Parts of a step (predicted)", &titles, &rows, |_| false);
}

pub(super) fn objective(page: &mut Page, explanation: &Explanation) {
    page.section("objective", "Tokens per time against tokens per step");
    let ObjectiveContrast { overall, by_drafter } = &explanation.objective;
    page.paragraph(format_args!("Over all drafters, {}.", overall.words()));
    let titles = ["drafter", "most per", "Dd", "Wd", "Wv", "tokens/step", "step us", "us/token", "speed-up"];
    let rows = |Contrast { by_speed, by_aal, cost: _ }: &Contrast| {
        [(by_speed, "time"), (by_aal, "step")].map(|(shape, objective)| {
            let mut row = priced_cells(shape);
            row.insert(1, objective.to_owned());
            row
        })
    };
    let rows: Vec<Vec<String>> = by_drafter.iter().flat_map(rows).collect();
    page.table("Best shapes by either objective (predicted)", &titles, &rows, |_| false);
}

pub(super) fn chains(page: &mut Page, explanation: &Explanation) {
    page.section("chains", "Chains by analysis");
    page.paragraph(
        "Leviathan et al. (arXiv 2211.17192) find the best number of drafted tokens from alpha, the chance that a drafted \
         token is accepted, and c, the time of a draft forward over that of a verify forward, where verifying costs the same \
         whatever its rows. Beside it the best chain that was priced with the measured times.",
    );
    let titles = ["drafter", "alpha", "alpha of", "c", "tokens", "gain", "priced Dd", "speed-up"];
    let row = |chain: &ChainAnalysis| {
        let ChainAnalysis { name, alpha, alpha_from, cost, gamma, gain, best_chain } = chain;
        let priced = |cell: fn(&PricedShape) -> String| best_chain.as_ref().map_or("-".to_owned(), cell);
        vec![
            name.to_string(),
            format!("{alpha:.2}"),
            alpha_from.words().to_owned(),
            format!("{cost:.4}"),
            gamma.to_string(),
            format!("{gain:.2}"),
            priced(|shape| shape.shape.depth.to_string()),
            priced(|shape| format!("{:.2}", shape.speedup)),
        ]
    };
    let rows: Vec<Vec<String>> = explanation.chains.iter().map(row).collect();
    page.table("Analysis and search (alpha and c measured)", &titles, &rows, |_| false);
}

pub(super) fn alternatives(page: &mut Page, plan: &Plan) {
    page.section("alternatives", "Alternatives");
    let titles = ["drafter", "Dd", "Wd", "Wv", "tokens/step", "step us", "us/token", "speed-up"];
    let chosen = plan.chosen().priced();
    let best: Vec<PricedShape> = plan.priced().take(ALTERNATIVES).collect();
    let rows: Vec<Vec<String>> = best.iter().map(priced_cells).collect();
    let caption = format!("Best {} of {} shapes (predicted)", rows.len(), plan.alternatives.len());
    page.table(&caption, &titles, &rows, |place| best[place] == chosen);
}

pub(super) fn tunings(page: &mut Page, plan: &Plan) {
    page.section("tunings", "Linears tuned for their shape");
    if plan.tunings.is_empty() {
        return page.paragraph("All linears go the default way.");
    }
    let rows: Vec<Vec<String>> = plan.tunings.iter().map(|tuned| tuning_cells(tuned).to_vec()).collect();
    page.table("Tunings that beat the default (measured; gain derived)", &TUNING_TITLES, &rows, |_| false);
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
        Outcome::SlowerThanPlain | Outcome::WithinNoise | Outcome::Slower | Outcome::Excluded => false,
    }
}

fn shape_cells(shape: &Shape, depth_rule: DepthRule, rule: RowRule) -> [String; 3] {
    let Shape { depth, draft_width, verify_width } = *shape;
    let rows = match rule {
        RowRule::Widest => verify_width.to_string(),
        RowRule::BestRate => format!("\u{2264}{verify_width}"),
    };
    let depth = match depth_rule {
        DepthRule::Fixed => depth.to_string(),
        DepthRule::Predicted => format!("\u{2264}{depth}"),
    };
    [depth, draft_width.to_string(), rows]
}

/// Drafter, Dd, Wd, Wv, tokens per step, time per step and token, and speed-up.
fn priced_cells(priced: &PricedShape) -> Vec<String> {
    let PricedShape { name, shape, growth, schedule, depth_rule, rule, aal, step_us, tpot_us, speedup } =
        priced;
    let mut row = vec![drafter_cell(name, *growth, *schedule)];
    row.extend(shape_cells(shape, *depth_rule, *rule));
    row.extend([
        format!("{aal:.2}"),
        format!("{step_us:.0}"),
        format!("{tpot_us:.0}"),
        format!("{speedup:.2}"),
    ]);
    row
}
