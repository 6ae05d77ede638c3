//! Whether the plan fits this machine, model and build, and whether kernels agree with the scalar reference.

use std::sync::Arc;

use crate::{
    backend::{Activations, KvFormat, Tier},
    ir::WeightFormat,
    plan::FittedPlan,
    runtime::{ExecutableSet, Pinning, RuntimeError, Session, SessionOptions, SetOptions},
};

use super::{VerifyOptions, extent::Stopwatch, halt::Halt, subject::Subject, walk::Tell};

/// The plan's fingerprints are those of this machine, model and build.
pub(super) fn plan_fits(
    subject: &Subject<'_>,
    options: &VerifyOptions,
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

/// Rows of the forwards that are compared with the reference, one behind the other.
const COMPARED_ROWS: [usize; 4] = [1, 2, 3, 4];

/// Logits of the model by its kernels and by the scalar reference, behind some tokens, at widths 1 to 4.
pub(super) fn kernels_follow_the_reference(
    subject: &Subject<'_>,
    options: &VerifyOptions,
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
    let watch = Stopwatch::start();
    for (number, piece) in COMPARED_ROWS.into_iter().enumerate() {
        let done = rows.found.len();
        let ids = &ids[done.min(ids.len())..ids.len().min(done + piece).min(context)];
        if ids.is_empty() || number > 0 && watch.elapsed() > options.extent.patience() {
            break;
        }
        score(&mut reference, ids, &mut rows.expected)?;
        score(&mut session, ids, &mut rows.found)?;
        tell(number + 1, COMPARED_ROWS.len());
    }
    let allowed = match (loaded.activations(), loaded.cache()) {
        (Activations::Native, cache @ (KvFormat::F16 | KvFormat::F32)) => {
            Allowed::Worst(logit_tolerance(loaded.tier(), formats, cache))
        }
        (Activations::Int8, _) | (_, KvFormat::Q8) => Allowed::Usual(INT8_TOLERANCE),
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
    Worst(f32),
    /// The root of the mean square of all differences.
    Usual(f32),
}

/// With int8 activations, linears of equal inputs have equal bits, but the operations between them differ. Where a difference changes a code
/// (a 127th of a block's largest activation), a logit can move far. The same holds for a q8 cache.
const INT8_TOLERANCE: f32 = 0.05;

/// Largest difference of a logit from the reference, in units of the root of the mean square of all logits, of native activations over
/// weights of these formats.
///
/// Tiers add in another order than the scalar f64 judge: some 300 roundings of 2^-24 per sum, in a dozen sums one
/// behind the other. Where the numeric class rounds activations to bf16 (AVX-512 BF16 and AMX over bf16 weights, CUDA),
/// every one of those linears is off by some 2^-9 of its result, and the largest of ten thousand errors is four times
/// the usual one. Where the cache is f16, a difference before the rounding may become one of 2^-11 after it; where it is q8, one of a 127th of
/// the largest element, so that it is judged on the whole instead.
pub fn logit_tolerance(
    tier: Tier,
    mut formats: impl Iterator<Item = WeightFormat>,
    kv_format: KvFormat,
) -> f32 {
    let rounds_activations = match tier {
        Tier::Avx512Bf16 | Tier::Amx => formats.any(|format| format == WeightFormat::BF16),
        // To halves where weights are halves.
        Tier::Cuda => formats.any(|format| format != WeightFormat::F32),
        Tier::Reference | Tier::Portable | Tier::Avx2 | Tier::Avx512 => false,
    };
    match (rounds_activations, kv_format) {
        (_, KvFormat::Q8) => 0.4,
        (true, KvFormat::F16 | KvFormat::F32) => 0.08,
        (false, KvFormat::F16) => 5e-3,
        (false, KvFormat::F32) => 5e-5,
    }
}

/// Logits `[V]` behind the same tokens.
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
            "{rows} rows of the model by {tier} kernels: logits are {which} {off:.1e} of their spread from the scalar reference's, \
             {allowed:.0e} is allowed"
        );
        if off <= f64::from(allowed) { Ok(said) } else { Err(Halt::Broken(said)) }
    }
}
