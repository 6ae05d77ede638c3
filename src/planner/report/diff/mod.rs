//! In what two plans differ.
//!
//! [`diff`] compares everything a plan holds: a field that is not compared does not compile. Latencies are told apart
//! from noise: a cell counts as changed only where the middle halves of its samples do not meet. [`text()`] writes it
//! for people.
mod bands;
mod latencies;
mod sub_plans;
mod text;

use std::{
    collections::BTreeSet,
    fmt::{Debug, Display},
};

use serde::Serialize;
use ygg_profiler::{Difference, DrafterName, Fingerprints, UnixTime};

use crate::{
    plan::{
        Band, ChosenTuning, DepthRule, GrowthRule, Header, LeftOut, Plan, PlannedMemory, PlannedPredictor,
        PlannedWidths, PricedShape, Refusal, RowRule, Schedule, Shape,
    },
    planner::report::words::describe_refusal,
};

pub use bands::BandDiff;
pub use latencies::{LatencyChange, Quartiles};
pub use sub_plans::DrafterDiff;
pub use text::text;

/// In what plan A differs from plan B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanDiff {
    /// Facts of machine, model and build, of how the plans were made, and what they decide.
    pub facts: Vec<Change>,
    /// Drafters of which anything differs, in the order of A, then of B.
    pub drafters: Vec<DrafterDiff>,
    /// Temperatures that both plans were searched for and of which anything differs.
    pub bands: Vec<BandDiff>,
    /// Cells whose middle halves do not meet, and cells that only one plan has.
    pub latencies: Vec<LatencyChange>,
    /// Cells whose numbers differ by no more than their spreads.
    pub latencies_within_spread: usize,
    /// Linears that are tuned otherwise, or gain otherwise.
    pub tunings: Vec<Change>,
    /// Shapes that one plan priced and the other priced otherwise or not at all.
    pub prices: usize,
}

/// One fact that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What.
    pub what: String,
    /// In plan A.
    pub a: String,
    /// In plan B.
    pub b: String,
}

impl PlanDiff {
    /// Whether the plans do not differ.
    pub fn is_empty(&self) -> bool {
        let PlanDiff { facts, drafters, bands, latencies, latencies_within_spread, tunings, prices } = self;
        facts.is_empty()
            && drafters.is_empty()
            && bands.is_empty()
            && latencies.is_empty()
            && *latencies_within_spread == 0
            && tunings.is_empty()
            && *prices == 0
    }
}

impl Change {
    /// The change of one fact, if it changed: briefly where that shows it, else in full.
    fn of<T: PartialEq + Debug + ?Sized>(
        what: impl Display,
        a: &T,
        b: &T,
        brief: impl Fn(&T) -> String,
    ) -> Option<Change> {
        if a == b {
            return None;
        }
        let (mut said_a, mut said_b) = (brief(a), brief(b));
        if said_a == said_b {
            (said_a, said_b) = (format!("{a:?}"), format!("{b:?}"));
        }
        Some(Change { what: what.to_string(), a: said_a, b: said_b })
    }
}

/// Says in what `a` differs from `b`.
///
/// # Panics
/// If a plan is not valid.
pub fn diff(a: &Plan, b: &Plan) -> PlanDiff {
    let (latencies, latencies_within_spread) = latencies::changes(&a.table, &b.table);
    PlanDiff {
        facts: facts(a, b),
        drafters: sub_plans::changes(&a.bands[0].by_drafter, &b.bands[0].by_drafter),
        bands: bands::changes(&a.bands[1..], &b.bands[1..]),
        latencies,
        latencies_within_spread,
        tunings: tuning_changes(&a.tunings, &b.tunings),
        prices: prices(a).symmetric_difference(&prices(b)).count(),
    }
}

fn facts(a: &Plan, b: &Plan) -> Vec<Change> {
    let Plan { header, table: _, planned: PlannedWidths { verify, draft }, tunings: _, predictors, bands } =
        a;
    let Header {
        created_by,
        // Two plans that decide the same do not differ by when they were made.
        made_at: _,
        measured_at,
        fingerprints,
        calibration,
        fixed,
        memory,
    } = header;
    let text = |text: &String| if text.is_empty() { "nothing".to_owned() } else { text.clone() };
    let widths = |widths: &Vec<u32>| list(widths.iter().map(u32::to_string));
    let temperatures = |bands: &[Band]| bands.iter().map(|band| band.temperature).collect::<Vec<f32>>();
    let describe = |predictors: &Vec<PlannedPredictor>| {
        list(predictors.iter().map(|PlannedPredictor { name, report, network, .. }| {
            let used = if network.is_some() { "used" } else { "not used" };
            format!("{name}, log loss {:.3}, {used}", report.log_loss)
        }))
    };
    let changes = [
        Change::of("made by", created_by, &b.header.created_by, text),
        Change::of("measured", measured_at, &b.header.measured_at, UnixTime::to_string),
        Change::of("calibration", calibration, &b.header.calibration, text),
        Change::of("fixed", fixed, &b.header.fixed, text),
        Change::of("context", &a.context(), &b.context(), u32::to_string),
        Change::of("memory", memory, &b.header.memory, divided),
        Change::of("temperatures", &temperatures(bands), &temperatures(&b.bands), |t| {
            list(t.iter().map(f32::to_string))
        }),
        Change::of("verify widths", verify, &b.planned.verify, widths),
        Change::of("draft widths", draft, &b.planned.draft, widths),
        Change::of("depth predictors", predictors, &b.predictors, describe),
    ];
    fingerprint_changes(fingerprints, &b.header.fingerprints)
        .into_iter()
        .chain(changes.into_iter().flatten())
        .chain(bands::facts(&bands[0], &b.bands[0]))
        .collect()
}

/// What is in memory, briefly.
fn divided(memory: &Option<PlannedMemory>) -> String {
    memory.as_ref().map_or("all weights in memory".to_owned(), |memory| {
        let PlannedMemory { resident_bytes, streamed_bytes, substitute_bytes, .. } = memory;
        format!(
            "{resident_bytes} bytes of weights, {streamed_bytes} streamed, {substitute_bytes} of a substitute"
        )
    })
}

fn refusals(refused: &[Refusal]) -> String {
    list(refused.iter().map(describe_refusal))
}

fn lacking(out: &[LeftOut]) -> String {
    list(out.iter().map(|LeftOut { name, lacks }| format!("{name} has no {lacks}")))
}

fn fingerprint_changes(a: &Fingerprints, b: &Fingerprints) -> Vec<Change> {
    let differences = a.differences(b);
    let compared = differences.into_iter().map(|Difference { name, expected, found }| Change {
        what: name,
        a: expected,
        b: found,
    });
    let named = Change::of("model's name", &a.model.name, &b.model.name, String::clone);
    compared.chain(named).collect()
}

fn tuning_changes(a: &[ChosenTuning], b: &[ChosenTuning]) -> Vec<Change> {
    let find =
        |tunings: &[ChosenTuning], of: &ChosenTuning| tunings.iter().find(|t| t.shape == of.shape).cloned();
    let brief = |tuning: &Option<ChosenTuning>| match tuning {
        Some(ChosenTuning { shape: _, tuning, default_us: _, tuned_us, gain }) => {
            format!("{tuning}: {tuned_us:.2} us, gain {gain:.3}")
        }
        None => "default".to_owned(),
    };
    let only_b = b.iter().filter(|tuning| find(a, tuning).is_none());
    let all = a.iter().chain(only_b);
    all.filter_map(|tuning| Change::of(&tuning.shape, &find(a, tuning), &find(b, tuning), brief)).collect()
}

/// A shape, whether its steps choose rows and depth, and the bits of its temperature, tokens per step and time of a
/// step.
type Price = (DrafterName, Shape, GrowthRule, Schedule, [bool; 2], [u64; 3]);

/// What a plan priced at each temperature.
fn prices(plan: &Plan) -> BTreeSet<Price> {
    let price = |temperature: f32, priced: PricedShape| {
        let chooses = priced.rule == RowRule::BestRate;
        let PricedShape { name, shape, growth, schedule, depth_rule, aal, step_us, .. } = priced;
        let chooses = [chooses, depth_rule == DepthRule::Predicted];
        let bits = [f64::from(temperature), aal, step_us].map(f64::to_bits);
        (name, shape, growth, schedule, chooses, bits)
    };
    let mut all = BTreeSet::new();
    for band in &plan.bands {
        all.extend(band.priced().map(|priced| price(band.temperature, priced)));
    }
    all
}

/// Items in a row.
fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}
