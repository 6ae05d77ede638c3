//! Division of memory against a machine whose times are known at every division, and against trying all of them.
use std::num::NonZero;

use ygg_profiler::{CellSamples, Profile, Split, Stage, SubstituteBytes, Trace, WeightMemory};

use super::{
    search::{DRAFT_WIDTHS, VERIFY_WIDTHS, plan},
    synthetic::{MADE_AT, Oracle, fingerprints, in_full, name, profile, record, samples, shown, surely},
};
use crate::{
    plan::{DrafterKind, Plan, PlannedMemory, Shape, SubPlan, SubstituteSettings, decode, encode},
    planner::{
        Fix, MemoryBudget, SearchError, make_plan_within,
        price::splits::SplitPrices,
        report::{explain::Outcome, explain_at, reads},
        search::divisions::{BestDivision, best_divisions},
    },
};

/// Packed bytes of the matrices, two a group, and of what always stays.
const SIZES: [u64; 8] = [40, 60, 40, 60, 40, 60, 40, 60];
const FIXED: u64 = 100;
/// What a token of context takes, and what a session takes in addition.
const SLOT: u64 = 1;
const SESSION: u64 = 20;
const CONTEXT: u32 = 50;
/// Bits of substitutes, how often, of 100, the verifier follows their candidates, and their time per byte of the
/// model's matrices, of the model's own.
const SUBSTITUTES: [(u32, u64, f64); 3] = [(2, 45, 0.3), (3, 80, 0.4), (4, 95, 0.55)];
/// What fixes everything that the division is not chosen with.
const PLAIN: &str = "rows=all,predictor=off,schedule=plain";

/// A machine whose times are known.
#[derive(Clone, Copy, Debug)]
struct Truth {
    /// Bytes read in a microsecond.
    bandwidth: f64,
    /// Microseconds that a byte of the matrices takes in a forward of one row.
    byte_us: f64,
}

impl Truth {
    fn ends_us(&self, width: u32) -> f64 {
        2.0 + 0.1 * f64::from(width)
    }

    fn byte_us(&self, width: u32) -> f64 {
        self.byte_us * (1.0 + 0.05 * f64::from(width))
    }

    fn cells(&self, memory: &WeightMemory) -> Vec<CellSamples> {
        let split = memory.measured_split();
        let resident = (split.resident_bytes - FIXED) as f64;
        let (streamed, buffered) = (split.streamed_bytes as f64, split.staging_bytes as f64);
        let read_us = (streamed - buffered) / self.bandwidth;
        let mut cells = vec![samples("read", 1, read_us.max(1e-3))];
        for width in VERIFY_WIDTHS {
            let (ends_us, byte_us) = (self.ends_us(width), self.byte_us(width));
            let computed_us = ends_us + resident * byte_us;
            cells.push(samples("ends", width, ends_us));
            cells.push(samples("resident", width, ends_us + memory.whole_bytes as f64 * byte_us));
            cells.push(samples("verify", width, computed_us + (streamed * byte_us).max(read_us)));
            for (bits, _, share) in SUBSTITUTES.iter().filter(|_| DRAFT_WIDTHS.contains(&width)) {
                let us = computed_us + streamed * byte_us * share;
                cells.push(samples(&format!("draft:substitute{bits}"), width, us));
            }
        }
        cells.extend(DRAFT_WIDTHS.map(|width| samples("host:grow", width, 0.5)));
        cells
    }

    fn profile(&self, measured: usize) -> Profile {
        let memory = memory(measured);
        let mut profile = profile(self.cells(&memory), Vec::new(), Vec::new());
        profile.memory = Some(memory);
        for (bits, skill, _) in SUBSTITUTES {
            let drafter = name(&format!("substitute{bits}"));
            let kind: DrafterKind = SubstituteSettings { bits, head_tokens: None }.into();
            profile.drafters.push(kind.describe(drafter.clone()));
            profile.traces.push(Trace { drafter, ..record(&Oracle { seed: 7, skill }, 12, 4, 4, 5) });
        }
        profile
    }
}

fn split(in_memory: usize) -> Split {
    let (resident, streamed) = SIZES.split_at(in_memory);
    let streamed_bytes: u64 = streamed.iter().sum();
    let resident_bytes = FIXED + resident.iter().sum::<u64>();
    let staging_bytes = streamed_bytes.min(70);
    let of_bits = |bits: u32| SubstituteBytes { bits, bytes: streamed_bytes * u64::from(bits) / 8 };
    Split {
        budget_bytes: resident_bytes + staging_bytes,
        resident_bytes,
        streamed_bytes,
        staging_bytes,
        substitutes: if streamed.is_empty() { Vec::new() } else { [2, 3, 4].map(of_bits).to_vec() },
    }
}

fn memory(measured: usize) -> WeightMemory {
    WeightMemory {
        fixed_bytes: FIXED,
        splits: (0..=SIZES.len()).map(split).collect(),
        measured: u32::try_from(measured).unwrap(),
        whole_bytes: SIZES[..measured / 2 * 2].iter().sum(),
        slot_bytes: SLOT,
        session_bytes: SESSION,
        model_context: 128,
    }
}

const TRUTHS: [Truth; 3] = [
    Truth { bandwidth: 0.5, byte_us: 0.05 },
    Truth { bandwidth: 14.0, byte_us: 0.05 },
    Truth { bandwidth: 2.0, byte_us: 0.2 },
];

fn budget(bytes: u64) -> MemoryBudget {
    MemoryBudget { bytes, context: CONTEXT }
}

fn within(profile: &Profile, fix: &str, bytes: u64) -> Result<Plan, SearchError> {
    let fix = if fix.is_empty() { Fix::default() } else { Fix::parse(fix).unwrap() };
    make_plan_within(profile, &mut [], (&fix, budget(bytes)), MADE_AT, NonZero::<usize>::MIN, &mut |_, _| ())
}

#[test]
fn times_at_every_split_are_those_that_would_be_measured_there() {
    for truth in TRUTHS {
        for measured in [2, 3, 6] {
            let profile = truth.profile(measured);
            let prices = SplitPrices::new(&profile).unwrap();
            for place in 0..SIZES.len() {
                let derived = prices.profile_at(place, Some(3)).unwrap();
                let drafters: Vec<&str> = derived.drafters.iter().map(|d| d.name.as_str()).collect();
                assert_eq!((drafters, derived.traces.len()), (vec!["substitute3"], 1));
                let expected = truth.profile(place);
                for CellSamples { cell, samples_us } in &derived.measurements {
                    if cell.stage.to_string() == "resident" {
                        // Of all matrices in memory, those of half a group too.
                        continue;
                    }
                    let same = expected.measurements.iter().find(|other| other.cell == *cell).unwrap();
                    let (found, expected) = (samples_us[0], same.samples_us[0]);
                    assert!((found - expected).abs() <= 1e-9 * expected, "{cell}: {found} for {expected}");
                }
                assert_eq!(derived.measurements.len(), expected.measurements.len() - 2 * DRAFT_WIDTHS.len());
                derived.validate().unwrap();
                // And from there to anywhere else.
                let again = SplitPrices::new(&derived);
                assert_eq!(again.is_ok(), (1..7).contains(&place));
            }
        }
    }
}

/// For each number of bits, the least time per token over all splits that fit and all shapes, by plans of profiles that
/// were measured there.
fn tried(truth: &Truth, bits: u32, bytes: u64) -> Option<(f64, usize, Shape)> {
    let mut best: Option<(f64, usize, Shape)> = None;
    let session = SESSION + SLOT * u64::from(CONTEXT);
    for place in 0..SIZES.len() {
        let Split { resident_bytes, staging_bytes, .. } = split(place);
        let used = resident_bytes + staging_bytes + split(place).substitute_bytes(bits).unwrap() + session;
        if used > bytes {
            continue;
        }
        let planned = plan(&truth.profile(place), PLAIN).unwrap();
        let own =
            planned.bands[0].priced().filter(|priced| priced.name == name(&format!("substitute{bits}")));
        for priced in own {
            if best.is_none_or(|(tpot_us, ..)| priced.tpot_us < tpot_us * (1.0 - 1e-12)) {
                best = Some((priced.tpot_us, place, priced.shape));
            }
        }
    }
    best
}

#[test]
fn the_best_division_is_that_of_trying_all() {
    let (mut fewest, mut most, mut nowhere) = (0, 0, 0);
    for truth in TRUTHS {
        let profile = truth.profile(4);
        let prices = SplitPrices::new(&profile).unwrap();
        let fix = Fix::parse(PLAIN).unwrap();
        for bytes in [300, 380, 420, 460, 500, 540] {
            let found = best_divisions(&prices, budget(bytes), &fix).unwrap();
            for (bits, ..) in SUBSTITUTES {
                let own = found.iter().find(|division| division.bits == Some(bits));
                let Some((tpot_us, place, shape)) = tried(&truth, bits, bytes) else {
                    assert_eq!(own, None);
                    nowhere += 1;
                    continue;
                };
                let own = own.unwrap();
                assert!((own.tpot_us - tpot_us).abs() < 1e-9 * tpot_us, "{own:?} for {tpot_us} at {place}");
                assert_eq!((own.split, own.shape), (place, shape), "{truth:?} within {bytes}");
                let has_room = place + 1 < SIZES.len() && {
                    let next = split(place + 1);
                    let parts =
                        next.resident_bytes + next.staging_bytes + next.substitute_bytes(bits).unwrap();
                    parts + SESSION + SLOT * u64::from(CONTEXT) <= bytes
                };
                *(if has_room { &mut fewest } else { &mut most }) += 1;
            }
            let BestDivision { split: place, shape, .. } = found[found.len() - 1];
            assert_eq!(shape, Shape::PLAIN);
            assert!(split(place).budget_bytes + SESSION + SLOT * u64::from(CONTEXT) <= bytes);
        }
    }
    // As much in memory as fits is not always best.
    assert!(fewest > 0 && most > 0 && nowhere > 0, "{fewest}, {most} and {nowhere}");
}

#[test]
fn the_plan_is_for_the_best_division_and_bound_to_it() {
    let profile = surely(TRUTHS[0].profile(4));
    let mut chosen = Vec::new();
    for bytes in [300, 380, 420, 460, 500, 540] {
        let plan = within(&profile, "", bytes).unwrap();
        let memory = plan.header.memory.clone().unwrap();
        assert!(memory.used_bytes() <= bytes);
        assert_eq!((memory.budget_bytes, memory.context), (Some(bytes), CONTEXT));
        let fitting = memory.divisions.iter().map(|division| division.tpot_us).fold(f64::INFINITY, f64::min);
        let own = plan.bands[0].chosen().first().predicted.ar_tpot_us
            / plan.bands[0].chosen().first().unseen.speedup;
        assert_eq!(own, fitting);
        let place = (0..=SIZES.len()).find(|place| split(*place).resident_bytes == memory.resident_bytes);
        let split = split(place.unwrap());
        assert_eq!(plan.resident(), Some(split.budget_bytes as usize));
        let bits = plan.bands[0].chosen().drafter.facts().substitute_bits;
        assert_eq!(memory.substitute_bytes, bits.map_or(0, |bits| split.substitute_bytes(bits).unwrap()));
        assert_eq!(decode(&encode(&plan).unwrap()).unwrap(), plan);
        // As if it had been measured there.
        let mut there = surely(TRUTHS[0].profile(place.unwrap()));
        there.fingerprints.machine.resident_bytes = Some(split.budget_bytes);
        let measured = super::search::plan(
            &there,
            &bits.map_or("drafter=none".to_owned(), |bits| format!("drafter=substitute{bits}")),
        );
        let predicted = |plan: &Plan| plan.bands[0].chosen().first().predicted.tpot_us;
        assert!((predicted(&measured.unwrap()) / predicted(&plan) - 1.0).abs() < 1e-9);
        chosen.push(bits);
    }
    chosen.dedup();
    assert!(chosen.len() >= 3, "budgets give one substitute: {chosen:?}");
}

#[test]
fn a_plan_without_a_budget_says_how_memory_was_divided() {
    let plan = plan(&TRUTHS[0].profile(4), "drafter=substitute4").unwrap();
    let Split { resident_bytes, streamed_bytes, staging_bytes, .. } = split(4);
    let expected = PlannedMemory {
        budget_bytes: None,
        resident_bytes,
        streamed_bytes,
        staging_bytes,
        substitute_bytes: streamed_bytes / 2,
        session_bytes: SESSION + 128 * SLOT,
        context: 128,
        divisions: Vec::new(),
    };
    assert_eq!(plan.header.memory, Some(expected));
    assert_eq!(plan.header.fingerprints, fingerprints());
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let good = TRUTHS[0].profile(4);
    let least = split(0).budget_bytes + SESSION + SLOT * u64::from(CONTEXT);
    let said = |profile: &Profile, bytes| within(profile, "", bytes).unwrap_err().to_string();
    assert!(said(&good, least - 1).contains(&format!("expected at least {least}")));
    assert!(within(&good, "", least).is_ok());
    let whole = split(SIZES.len()).budget_bytes + SESSION + SLOT * u64::from(CONTEXT);
    assert!(within(&good, "", whole - 1).is_ok());
    let fits = said(&good, whole);
    assert!(fits.contains("all weights in memory") && fits.contains(&whole.to_string()), "{fits}");
    let without = Profile { memory: None, ..good.clone() };
    assert!(said(&without, 400).contains("weights that every forward streams from a file, found none"));
    let mut without = good.clone();
    without.measurements.retain(|cell| cell.cell.stage.to_string() != "read");
    assert!(said(&without, 400).contains("parts of a forward"));
    assert!(said(&TRUTHS[0].profile(0), 400).contains("a layer in memory"));
    assert!(said(&TRUTHS[0].profile(7), 400).contains("more streamed weights than"));
    // A fix that no division satisfies is refused as it is without a budget.
    assert!(matches!(within(&good, "drafter=lookup", 400), Err(SearchError::FixImpossible { .. })));
    let fixed = within(&good, "drafter=substitute", 500).unwrap();
    assert!(fixed.bands[0].chosen().drafter.facts().substitute_bits.is_some());
}

/// The profile as it is where the machine's speed drifts by more than the layers in memory take, and forwards without
/// layers are measured again by themselves, when it is slow.
fn drifting(mut profile: Profile) -> Profile {
    const ROUNDS_US: [f64; 5] = [0.0, 3.7, -1.3, 0.0, 5.1];
    for CellSamples { cell, samples_us } in &mut profile.measurements {
        let later: &[f64] = match cell.stage {
            Stage::Ends => &[40.0; 15],
            Stage::Resident => &[],
            _ => continue,
        };
        let us = samples_us[0];
        *samples_us = ROUNDS_US.iter().chain(later).map(|drift_us| us + drift_us).collect();
    }
    profile
}

#[test]
fn layers_are_timed_within_rounds() {
    let truth = Truth { bandwidth: 0.5, byte_us: 0.02 };
    let (steady, drifting) = (truth.profile(4), drifting(truth.profile(4)));
    let median_us = |stage| drifting.table().unwrap().latency_us(&stage, 1, 0).unwrap();
    assert!(median_us(Stage::Ends) > median_us(Stage::Resident), "the drift is larger than the difference");
    let [steady, drifting] = [&steady, &drifting].map(|profile| SplitPrices::new(profile).unwrap());
    for place in 0..SIZES.len() {
        let tables =
            [&steady, &drifting].map(|prices| prices.profile_at(place, Some(3)).unwrap().table().unwrap());
        for (cell, summary) in tables[0].iter().filter(|(cell, _)| cell.stage != Stage::Ends) {
            let found = tables[1].get(cell).unwrap().median_us;
            assert!(
                (found - summary.median_us).abs() < 1e-9 * summary.median_us,
                "{cell}: {found} for {summary:?}"
            );
        }
    }
    let refused = |profile: &Profile| SplitPrices::new(profile).unwrap_err().to_string();
    let flat = refused(&Truth { byte_us: 0.0, ..truth }.profile(4));
    assert!(flat.contains("200 bytes") && flat.contains("more memory for weights"), "{flat}");
    let mut wide = truth.profile(4);
    wide.measurements.retain(|cell| cell.cell.stage != Stage::Ends || cell.cell.width > 1);
    assert!(refused(&wide).contains("give the profile more time"));
}

/// Temperatures of requests.
const TEMPERATURES: [f32; 2] = [0.0, 0.8];

/// A profile whose substitutes of 2, 3 and 4 bits are followed this often, of 100, at each temperature.
fn by_temperature(truth: &Truth, skills: [[u64; 3]; 2]) -> Profile {
    let mut profile = truth.profile(4);
    profile.traces.clear();
    for (temperature, skills) in TEMPERATURES.into_iter().zip(skills) {
        for ((bits, ..), skill) in SUBSTITUTES.iter().zip(skills) {
            let trace = record(&Oracle { seed: 7, skill }, 12, 4, 4, 5);
            let drafter = name(&format!("substitute{bits}"));
            profile.traces.push(Trace { drafter, temperature, ..trace });
        }
    }
    surely(profile)
}

/// Bits of the substitutes that are chosen at each temperature, and the time per token to expect of all choices.
fn chosen(plan: &Plan) -> (Vec<Option<u32>>, f64) {
    let chosen = TEMPERATURES.map(|temperature| plan.band_for(temperature).chosen());
    let expected_us = |plan: &SubPlan| plan.first().predicted.ar_tpot_us / plan.first().unseen.speedup;
    let bits = chosen.iter().map(|sub_plan| sub_plan.drafter.facts().substitute_bits);
    (bits.collect(), chosen.into_iter().map(expected_us).sum())
}

#[test]
fn all_temperatures_share_the_substitute_that_is_best_for_them_together() {
    let (mut apart, mut of_the_other) = (0, 0);
    let skills = [([45, 60, 95], [95, 80, 20]), ([45, 80, 95], [45, 80, 95]), ([60, 95, 95], [95, 20, 90])];
    for ((greedy, warm), fix) in skills.into_iter().zip(["", PLAIN, PLAIN]) {
        let profile = by_temperature(&TRUTHS[2], [greedy, warm]);
        let shared = plan(&profile, fix).unwrap();
        let (bits, expected_us) = chosen(&shared);
        let mut distinct: Vec<u32> = bits.iter().copied().flatten().collect();
        distinct.dedup();
        assert!(distinct.len() == 1, "{bits:?}");
        let alone = |bits: u32| {
            let mut alone = profile.clone();
            let keeps = name(&format!("substitute{bits}"));
            alone.drafters.retain(|drafter| drafter.name == keeps);
            alone.traces.retain(|trace| trace.drafter == keeps);
            alone.measurements.retain(|cell| cell.cell.stage.drafter().is_none_or(|name| *name == keeps));
            chosen(&plan(&alone, fix).unwrap()).1
        };
        let best = [2, 3, 4].map(alone).into_iter().fold(f64::INFINITY, f64::min);
        assert!((expected_us / best - 1.0).abs() < 1e-9, "{expected_us} with {bits:?} for {best}");
        // With memory for all of them.
        let (free, _) = chosen(&plan(&Profile { memory: None, ..profile.clone() }, fix).unwrap());
        apart += usize::from(free[0] != free[1]);
        for (place, temperature) in
            TEMPERATURES.into_iter().enumerate().filter(|(place, _)| free[*place] != bits[*place])
        {
            of_the_other += 1;
            let explained = explain_at(&shared, temperature);
            let is_told =
                explained.drafters.iter().any(|drafter| drafter.outcome == Outcome::OtherSubstitute);
            assert_eq!(is_told, fix.is_empty(), "at {temperature}, place {place}: {:?}", explained.drafters);
        }
        // Within a budget as well, where the best division is that with the least time in the mean of both.
        let within = within(&profile, fix, 500).unwrap();
        let divisions = within.header.memory.clone().unwrap().divisions;
        let least = divisions.iter().map(|division| division.tpot_us).fold(f64::INFINITY, f64::min);
        assert!((chosen(&within).1 / 2.0 / least - 1.0).abs() < 1e-9, "{divisions:?}");
    }
    assert!(apart > 1 && of_the_other > 0, "{apart} and {of_the_other}: temperatures agree by themselves");
}

#[test]
fn memory_and_reading_are_explained() {
    let profile = surely(TRUTHS[0].profile(4));
    let plan = within(&profile, "", 500).unwrap();
    let said = in_full(&plan);
    let start = said.find("stages of the chosen step").unwrap();
    let end = said.find("\nbest of ").unwrap();
    insta::assert_snapshot!(format!("{}\n\n{}", &said[start..end], shown(&plan)));

    let reads = |plan: &Plan| reads(plan, plan.bands[0].chosen());
    let spans = reads(&plan);
    let read_us = plan.table.latency_us(&Stage::Read, 1, plan.context()).unwrap();
    let (first, last) = (spans[0], spans[spans.len() - 1]);
    assert!(first.start_us == 0.0 && first.end_us <= last.start_us && spans.len() == 2);
    assert!((last.end_us - last.start_us - read_us).abs() < 1e-9);
    assert!(last.end_us <= plan.bands[0].chosen().first().predicted.step_us + 1e-9);
    // One that decodes plainly reads too, and one with all weights in memory never.
    let plain = within(&profile, "drafter=none", 500).unwrap();
    assert!(
        !reads(&plain).is_empty()
            && reads(&plain)
                .iter()
                .all(|span| span.end_us <= plain.bands[0].chosen().first().predicted.step_us + 1e-9)
    );
    assert!(reads(&super::search::plan(&super::search::good_profile(), "").unwrap()).is_empty());
}
