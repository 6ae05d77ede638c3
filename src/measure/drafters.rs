//! Which drafters a profile measures: those that can be made of the model, the files and the memory that are there.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use ygg_profiler::DrafterName;

use crate::{
    engine::{DraftModel, Error, Hint, Loaded, drafter_file},
    plan::{DrafterFile, DrafterKind, ProfiledModel},
    speculate::CorpusStore,
};

use super::options::{ProfileOptions, Substitutes};

/// The corpus store at `path`, as profiles name it.
fn store_file(loaded: &Loaded, path: &Path) -> Result<DrafterFile, Error> {
    let store = CorpusStore::open(path)?;
    store.expect_model(loaded.model().fingerprint().as_bytes())?;
    drafter_file("store", path, store.digest())
}

/// The drafter models, each once, named `model`, or `model_hidden` where it reads hidden rows, and `model_mtp` if it is a layer
/// in the verifier's own files, which comes after those that were given; further ones of a name get the suffix `_2`, `_3`
/// and so on. With them the block drafters, which are named `block`.
fn draft_models(verifier: &Loaded, paths: &[PathBuf]) -> Result<[Vec<(String, DrafterFile)>; 2], Error> {
    let mut both = [Vec::new(), Vec::new()];
    let given = paths.iter().map(|path| DraftModel::open(path));
    for model in given.chain(DraftModel::further(verifier.model()).map(Ok)) {
        let model = model?;
        let file = model.file()?;
        let is_block = model.is_block();
        let all: &mut Vec<(String, DrafterFile)> = &mut both[usize::from(is_block)];
        if all.iter().any(|(_, other)| other.digest == file.digest) {
            continue;
        }
        let base = match model.reads_hidden_rows() {
            _ if is_block => "block",
            _ if model.is_further() => "model_mtp",
            true => "model_hidden",
            false => "model",
        };
        let names = std::iter::once(base.to_owned()).chain((2..).map(|n| format!("{base}_{n}")));
        let name = names.into_iter().find(|name| all.iter().all(|(other, _)| other != name));
        all.push((name.expect("endless names"), file));
    }
    Ok(both)
}

/// Bits and shares of the substitutes that fit in memory.
fn substitutes(loaded: &Loaded, options: &ProfileOptions) -> Result<Vec<(u32, f64)>, Error> {
    let mut all = loaded.set().substitute_shares();
    if loaded.set().graph().streams() && options.substitutes == Substitutes::Closest {
        // More bits are accepted more often, and drafting is short compared with a reading.
        let closest = all.iter().rev().find(|(_, share)| *share < 1.0).copied();
        all.retain(|bits| Some(*bits) == closest);
    }
    if let Substitutes::Of(bits) = options.substitutes {
        all.retain(|(of, _)| Some(*of) == bits);
        return Ok(all);
    }
    let Some(limit) = options.memory_limit else { return Ok(all) };
    let sizes = |bits| loaded.set().graph().substitute_sizes(bits);
    let taken: Vec<Taken> = all.iter().map(|(bits, _)| Taken::of(*bits, &sizes(*bits))).collect();
    let least = taken.iter().map(|taken| taken.bytes + taken.made_bytes).min().unwrap_or(0);
    if least > limit && options.drafters.iter().any(|asked| asked == "substitute") {
        return Err(Error::device(format!(
            "drafter `substitute` does not fit in memory: expected {} MiB free, found {}; end other programs, or leave it out",
            least >> 20,
            limit >> 20
        )));
    }
    let fitting = fitting(&taken, limit);
    all.retain(|(bits, _)| fitting.contains(bits));
    Ok(all)
}

/// What a substitute takes in memory.
#[derive(Clone, Copy, Debug)]
struct Taken {
    bits: u32,
    /// Of all its matrices.
    bytes: usize,
    /// In addition to that while it is made: of the matrices that are packed as one, which are three at most.
    made_bytes: usize,
}

impl Taken {
    /// Of matrices of these bytes.
    fn of(bits: u32, sizes: &[usize]) -> Self {
        let largest = sizes.iter().max().copied().unwrap_or(0);
        Self { bits, bytes: sizes.iter().sum(), made_bytes: 3 * largest }
    }
}

/// The bits of the substitutes, given by ascending bits, that fit together within `limit`: more bits first.
fn fitting(all: &[Taken], limit: usize) -> Vec<u32> {
    let mut taken = 0;
    let fits = |substitute: &&Taken| {
        let fits = taken + substitute.bytes + substitute.made_bytes <= limit;
        taken += if fits { substitute.bytes } else { 0 };
        fits
    };
    all.iter().rev().filter(fits).map(|substitute| substitute.bits).collect()
}

/// The drafters to measure: of those that can be made of the model and the files, the ones that were asked for.
pub(super) fn drafters_of(
    loaded: &Loaded,
    options: &ProfileOptions,
) -> Result<Vec<(DrafterName, DrafterKind)>, Error> {
    let asked = &options.drafters;
    let is_asked = |name: &str| asked.iter().any(|asked| asked == name);
    let [draft_models, block_drafters] = draft_models(loaded, &options.draft_models)?;
    let store = options.store.as_deref().map(|path| store_file(loaded, path)).transpose()?;
    let of_store = ["retrieval", "prior"].into_iter().find(|name| is_asked(name));
    if let (None, Some(name)) = (&store, of_store) {
        return Err(Error::input(format!(
            "drafter `{name}` needs a corpus store: expected one, found none; make it with `yggc corpus build`",
        ))
        .with_hint(Hint::Store));
    }
    if draft_models.is_empty() && is_asked("model") {
        return Err(Error::input(
            "drafter `model` needs a drafter model: expected one, found none; give a small model of the same vocabulary, or a \
             hidden-state drafter for this model",
        )
        .with_hint(Hint::DraftModel));
    }
    if block_drafters.is_empty() && is_asked("block") {
        return Err(Error::input(
            "drafter `block` needs a block drafter: expected one, found none; give the folder of one that was trained \
             for this model",
        )
        .with_hint(Hint::DraftModel));
    }
    let streams = loaded.set().graph().streams();
    let model = ProfiledModel {
        groups: loaded.set().groups(),
        streams,
        substitute_shares: &substitutes(loaded, options)?,
        store: store.as_ref(),
        draft_models: &draft_models,
        block_drafters: &block_drafters,
    };
    let all = DrafterKind::profiled(&model);
    let kinds: BTreeSet<&str> = all.iter().map(|(_, kind)| kind.name()).collect();
    if let Some(name) = asked.iter().find(|name| *name != "none" && !kinds.contains(name.as_str())) {
        let kinds: Vec<&str> = kinds.into_iter().collect();
        let why = match name.as_str() {
            "substitute" => ", whose matrices have few bits already (it pays for BF16 or Q8_0, say)",
            "layer_skip" | "swift" if streams => ", whose weights are streamed whatever is left out",
            "layer_skip" | "swift" => ", which has too few layers to leave some out",
            _ => "",
        };
        return Err(Error::input(format!(
            "drafter `{name}` cannot be made for this model{why}: expected one of {}",
            kinds.join(", ")
        )));
    }
    let is_wanted = |kind: &DrafterKind| asked.is_empty() || is_asked(kind.name());
    // A mixture with a model is made of what is recorded of that model's drafter.
    let has_part = |kind: &DrafterKind| kind.mixed_model().is_none_or(|model| is_wanted(&model.kind()));
    let wanted = all.into_iter().filter(|(_, kind)| is_wanted(kind) && has_part(kind));
    Ok(wanted.map(|(name, kind)| (DrafterName::new(name).expect("lower case"), kind)).collect())
}

/// The drafters whose proposals are recorded by running their model: a twin's are its fixed drafter's, and what a
/// trimmed head proposes is told by the whole one's candidates.
pub(super) fn recorded_models(drafters: &[(DrafterName, DrafterKind)]) -> Vec<&(DrafterName, DrafterKind)> {
    let is_recorded = |kind: &DrafterKind| {
        kind.grows_alone() && kind.facts().head_tokens.is_none() && twin(kind, drafters).is_none()
    };
    drafters.iter().filter(|(_, kind)| is_recorded(kind)).collect()
}

/// The name of the fixed drafter that a self-tuning one starts as: the forwards and steps of both are measured and
/// recorded once.
pub(super) fn twin<'d>(
    kind: &DrafterKind,
    drafters: &'d [(DrafterName, DrafterKind)],
) -> Option<&'d DrafterName> {
    let fixed = kind.starts_as()?;
    drafters.iter().find(|(_, other)| *other == fixed).map(|(name, _)| name)
}

/// Layer skip that leaves out one sub-layer, for tests.
#[cfg(test)]
pub(super) fn that_skips(name: &str, skipped: u32) -> (DrafterName, DrafterKind) {
    let settings = crate::plan::LayerSkipSettings { skipped: vec![skipped], head_tokens: None };
    (DrafterName::new(name).expect("a name"), settings.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutes_that_do_not_fit_in_memory_are_left_out() {
        let all = [(2, 30, 3), (3, 40, 4), (4, 50, 5)];
        let all = all.map(|(bits, bytes, made_bytes)| Taken { bits, bytes, made_bytes });
        let bits: [(usize, &[u32]); 7] = [
            (1000, &[4, 3, 2]),
            (123, &[4, 3, 2]),
            (122, &[4, 3]),
            (93, &[4, 2]),
            (55, &[4]),
            (54, &[3]),
            (32, &[]),
        ];
        for (limit, expected) in bits {
            assert_eq!(fitting(&all, limit), expected, "{limit}");
        }
    }
}
