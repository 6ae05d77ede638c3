//! Whether the plan fits this machine, model and build, and whether kernels agree with the scalar reference.

use std::sync::Arc;

use crate::{
    backend::{Activations, KvFormat, Tier, rounds_activations},
    ir::WeightFormat,
    plan::FittedPlan,
    runtime::{ExecutableSet, Pinning, RuntimeError, Session, SessionOptions, SetOptions},
};

use super::{VerifyOptions, extent::Clock, halt::Halt, subject::Subject, walk::Tell};

/// The plan's fingerprints are those of this machine, model and build.
pub(super) fn plan_fits(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    _clock: Clock,
    _tell: Tell<'_>,
) -> Result<String, Halt> {
    let Some(source) = &options.engine.plan else {
        let why = options.engine.plan_absent_reason.as_deref().unwrap_or("no plan");
        return Err(Halt::NotChecked(format!("there is none: {why}")));
    };
    let here = subject.loaded.fingerprints()?;
    let plan = FittedPlan::forced(source.plan.clone(), &here);
    if !plan.ignored().is_empty() {
        let differences: Vec<String> = plan.ignored().iter().map(ToString::to_string).collect();
        return Err(Halt::Broken(format!(
            "{} was made for something else: {}; make one here with `yggc profile` and `yggc plan`",
            source.name,
            differences.join("; ")
        )));
    }
    Ok(format!("{} was made for this machine, model and build", source.name))
}

/// Rows of the forwards that are compared with the reference, one after the other.
const COMPARED_ROWS: [usize; 4] = [1, 2, 3, 4];

/// Logits of the model by its kernels and by the scalar reference, after some tokens, at widths 1 to 4.
pub(super) fn kernels_follow_the_reference(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let loaded = &subject.loaded;
    let Some(prompt) = options.prompts.first() else {
        return Err(Halt::NotChecked("no prompt was given".to_owned()));
    };
    let ids = prompt.token_ids(loaded)?;
    let model = loaded.model();
    let set_options = loaded.set_options(COMPARED_ROWS.to_vec(), model.config.context);
    let set_options = SetOptions { tier: Tier::Reference, threads: 1, ..set_options };
    let reference = Arc::new(ExecutableSet::build(&model.graph, model.weights.as_ref(), &set_options)?);
    let context = COMPARED_ROWS.iter().sum::<usize>().min(loaded.set().model_context());
    let open = |set: &Arc<ExecutableSet>, threads| {
        let options = SessionOptions { context, tree_nodes: 1, threads, pinning: Pinning::Floating };
        Session::open(Arc::clone(set), &options)
    };
    let (mut reference, mut session) = (open(&reference, 1)?, open(loaded.set(), loaded.threads())?);
    let formats = model.graph.weights().iter().map(|weight| weight.format);
    let mut rows = Compared { expected: Vec::new(), found: Vec::new() };
    for (number, piece) in COMPARED_ROWS.into_iter().enumerate() {
        let done = rows.found.len();
        let ids = &ids[done.min(ids.len())..ids.len().min(done + piece).min(context)];
        if ids.is_empty() || number > 0 && clock.is_up() {
            break;
        }
        score(&mut reference, ids, &mut rows.expected)?;
        score(&mut session, ids, &mut rows.found)?;
        tell(number + 1, COMPARED_ROWS.len());
    }
    let compared = rows.found.iter().map(Vec::len).sum();
    let (activations, cache) = (loaded.activations(), loaded.cache());
    let usual = usual_difference(loaded.tier(), activations, formats, cache, model.config.layers);
    let allowed = match (activations, cache) {
        (Activations::Native, KvFormat::F16 | KvFormat::F32) => Allowed::Worst(worst_of(compared, usual)),
        (Activations::Int8, _) | (_, KvFormat::Q8) => Allowed::Usual(HEADROOM * usual),
    };
    rows.compare(allowed, loaded.tier())
}

fn score(session: &mut Session, ids: &[u32], rows: &mut Vec<Vec<f32>>) -> Result<(), RuntimeError> {
    session.score(ids, |_, logits| rows.push(logits.to_vec()))
}

/// How far logits may be from the reference's, in units of the root of the mean square of all of those.
#[derive(Clone, Copy, Debug)]
enum Allowed {
    /// Any logit.
    Worst(f64),
    /// The root of the mean square of all differences.
    Usual(f64),
}

/// Allowed differences over expected ones: errors of layers may agree in sign, and rows are not alike.
const HEADROOM: f64 = 2.0;

/// Linears of a layer that read one another's results.
const LINEARS_OF_A_LAYER: usize = 4;

/// Expected difference of logits from the scalar reference, as the root of the mean square over that of all logits, if
/// neither has a fault.
///
/// A class promises this much of each linear and each attention, relative to its result:
/// - Codes of int8 activations and of a q8 cache are the nearest of steps of a 127th of the largest value of their
///   block, which is some three times the usual one. The smallest difference before a rounding becomes a whole step
///   after it where a value lies between two codes, and after some layers the codes of both are roundings independent
///   of each other: each is off by 3/127/sqrt(12), their difference by sqrt(2) times that, 2^-6.7.
/// - In the same way, 2^-11 for an f16 cache, and 2^-8.5 where the class rounds what the reference does not:
///   activations to bf16 (over bf16 weights) or halves, and on a GPU the values of codes, by 2^-9 each.
/// - Sums in another order: the roundings to 2^-24 of some thousand terms, 2^-18.
///
/// These are errors independent of each other, so that their squares add up over all layers.
fn usual_difference(
    tier: Tier,
    activations: Activations,
    mut formats: impl Iterator<Item = WeightFormat>,
    cache: KvFormat,
    layers: usize,
) -> f64 {
    let rounds_activations = formats.any(|format| rounds_activations(tier, format));
    let of_linear = match activations {
        Activations::Int8 => 2f64.powf(-6.7),
        Activations::Native if rounds_activations => 2f64.powf(-8.5),
        Activations::Native => 2f64.powi(-18),
    };
    let of_attention = match cache {
        KvFormat::Q8 => 2f64.powf(-6.7),
        KvFormat::F16 => 2f64.powi(-11),
        KvFormat::F32 => 2f64.powi(-18),
    };
    let linears = (LINEARS_OF_A_LAYER * layers + 1) as f64;
    (linears * of_linear * of_linear + layers as f64 * of_attention * of_attention).sqrt()
}

/// The allowed difference of each of `compared` logits, where `usual` is expected: the largest of n normal errors is
/// sqrt(2 ln n) times the usual one.
fn worst_of(compared: usize, usual: f64) -> f64 {
    HEADROOM * (2.0 * (compared.max(2) as f64).ln()).sqrt() * usual
}

/// Allowed difference of each of `compared` logits from the reference, in units of the root of the mean square of all,
/// with native activations over weights of these formats, of a model of so many layers.
pub fn logit_tolerance(
    tier: Tier,
    formats: impl Iterator<Item = WeightFormat>,
    cache: KvFormat,
    layers: usize,
    compared: usize,
) -> f32 {
    worst_of(compared, usual_difference(tier, Activations::Native, formats, cache, layers)) as f32
}

/// Logits `[V]` after the same tokens.
struct Compared {
    expected: Vec<Vec<f32>>,
    found: Vec<Vec<f32>>,
}

impl Compared {
    fn compare(&self, allowed: Allowed, tier: Tier) -> Result<String, Halt> {
        let pairs =
            || self.expected.iter().zip(&self.found).flat_map(|(expected, found)| expected.iter().zip(found));
        if let Some((expected, found)) = pairs().find(|(_, found)| !found.is_finite()) {
            return Err(Halt::Broken(format!(
                "expected the logit {expected:e} of the scalar reference, found {found:e}"
            )));
        }
        let mean_square = |squares: &mut dyn Iterator<Item = f64>| {
            let (mut sum, mut count) = (0.0, 0usize);
            for square in squares {
                sum += square;
                count += 1;
            }
            (sum / count.max(1) as f64).sqrt()
        };
        let spread = mean_square(&mut pairs().map(|(expected, _)| f64::from(*expected).powi(2)));
        let difference = |(expected, found): (&f32, &f32)| f64::from(expected - found);
        let (off, allowed, which) = match allowed {
            Allowed::Worst(allowed) => {
                (pairs().map(|p| difference(p).abs()).fold(0.0, f64::max), allowed, "at most")
            }
            Allowed::Usual(allowed) => {
                (mean_square(&mut pairs().map(|p| difference(p).powi(2))), allowed, "on the whole")
            }
        };
        let (rows, off) = (self.found.len(), off / spread);
        let said = format!(
            "{rows} rows of the model by {tier} kernels: logits are {which} {off:.1e} of their spread from the scalar \
             reference's, {allowed:.1e} is allowed"
        );
        if off <= allowed { Ok(said) } else { Err(Halt::Broken(said)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ygg_profiler::Random;

    const ROWS: usize = 4;
    const VOCABULARY: usize = 20_000;

    /// Logits of a usual size of 1, and others that are off by normal errors of a usual size of `off`.
    fn compared(off: f64) -> Compared {
        let mut seed = Random::new(3);
        let mut normal =
            || (-2.0 * (1.0 - seed.uniform()).ln()).sqrt() * (std::f64::consts::TAU * seed.uniform()).cos();
        let mut row = |spread: f64| (0..VOCABULARY).map(|_| (spread * normal()) as f32).collect::<Vec<_>>();
        let expected: Vec<Vec<f32>> = (0..ROWS).map(|_| row(1.0)).collect();
        let found = |expected: &Vec<f32>| expected.iter().zip(row(off)).map(|(x, off)| x + off).collect();
        let found = expected.iter().map(found).collect();
        Compared { expected, found }
    }

    fn usual(activations: Activations, cache: KvFormat, layers: usize) -> f64 {
        let formats = [WeightFormat::Q4_1, WeightFormat::F32];
        usual_difference(Tier::Avx512, activations, formats.into_iter(), cache, layers)
    }

    /// What a class promises takes about half of what is allowed; three times that is a fault, and so is one wrong
    /// logit of 80 000.
    #[test]
    fn errors_as_promised_pass_with_room_and_larger_ones_do_not() {
        for (cache, layers) in [(KvFormat::F16, 30), (KvFormat::F32, 30), (KvFormat::F16, 2)] {
            let usual = usual(Activations::Native, cache, layers);
            let allowed = worst_of(ROWS * VOCABULARY, usual);
            let holds =
                |rows: &Compared, allowed| rows.compare(Allowed::Worst(allowed), Tier::Avx512).is_ok();
            let mut rows = compared(usual);
            assert!(holds(&rows, 0.6 * allowed) && !holds(&rows, 0.4 * allowed), "{cache:?}, {layers}");
            assert!(!holds(&compared(3.0 * usual), allowed), "{cache:?}, {layers}");
            rows.found[ROWS - 1][VOCABULARY - 1] += 1.5 * allowed as f32;
            assert!(!holds(&rows, allowed), "{cache:?}, {layers}");
        }
        let usual = usual(Activations::Int8, KvFormat::F16, 30);
        let holds = |off: f64| compared(off).compare(Allowed::Usual(HEADROOM * usual), Tier::Avx512).is_ok();
        assert!(holds(usual) && !holds(3.0 * usual));
    }

    #[test]
    fn deeper_models_and_coarser_classes_may_be_farther_off() {
        let by_layers = [2, 30, 80].map(|layers| usual(Activations::Int8, KvFormat::F16, layers));
        assert!(by_layers.is_sorted() && by_layers[2] < 0.25, "{by_layers:?}");
        let by_class = [
            (Activations::Native, KvFormat::F32),
            (Activations::Native, KvFormat::F16),
            (Activations::Native, KvFormat::Q8),
            (Activations::Int8, KvFormat::F16),
            (Activations::Int8, KvFormat::Q8),
        ];
        assert!(by_class.map(|(activations, cache)| usual(activations, cache, 30)).is_sorted());
    }
}
