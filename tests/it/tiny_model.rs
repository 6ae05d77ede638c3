//! Tiny generated models that the tests run: every format, both containers, several shapes; each opened once.

use std::{
    fs, iter,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use ygg_kernels::{Activations, KvFormat, Tier, WeightFormat};
/// Reproducible choices: a failing case is named by its seed.
pub(crate) use ygg_profiler::Random as Dice;
use yggc::{
    backend::{Loading, available_tiers},
    model::{
        Model,
        synthetic::{SyntheticExperts, SyntheticSpec},
    },
    runtime::{ExecutableSet, Pinning, Session, SessionOptions, SetOptions},
};

/// Widths that every cached set plans, besides those of prefill.
pub(crate) const WIDTHS: [usize; 9] = [1, 2, 3, 4, 6, 8, 16, 32, 64];

/// Longest context of every tiny model.
pub(crate) const MODEL_CONTEXT: usize = 256;

/// What decides the bits of a forward besides model and cache: the tier, and what linears make of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) tier: Tier,
    pub(crate) activations: Activations,
}

impl Class {
    /// Native activations.
    pub(crate) const fn native(tier: Tier) -> Self {
        Self { tier, activations: Activations::Native }
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with {} activations", self.tier, self.activations)
    }
}

/// A model in memory; its files are gone once it is open.
pub(crate) struct TinyModel {
    pub(crate) name: String,
    pub(crate) model: Model,
    /// Format of all matrices.
    pub(crate) format: WeightFormat,
    /// Most bytes of weights in memory.
    resident: Option<usize>,
    sets: [[OnceLock<Arc<ExecutableSet>>; Activations::ALL.len()]; Tier::ALL.len()],
}

impl TinyModel {
    /// A model that something else than a specification made.
    pub(crate) fn of(name: String, model: Model, format: WeightFormat) -> Self {
        Self { name, model, format, resident: None, sets: Default::default() }
    }

    /// The same with at most so many bytes of weights in memory, which must have been opened with a place for the
    /// others.
    pub(crate) fn within(self, resident: usize) -> Self {
        Self { name: format!("{}.streamed", self.name), resident: Some(resident), ..self }
    }

    fn open(container: &str, spec: &SyntheticSpec) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path: PathBuf = folder.path().join(container);
        match container {
            "gguf" => spec.write_gguf(&path).expect("the model is written"),
            "folder" => spec.write_folder(&path).expect("the model is written"),
            other => unreachable!("a container {other}"),
        }
        let model = Model::open(&path).expect("a generated model opens");
        fs::remove_dir_all(folder.path()).expect("mapped files can be unlinked");
        let SyntheticSpec { layers, heads, kv_heads, head_dim, format, tied, .. } = spec;
        let head = if *tied { "tied" } else { "untied" };
        let experts = if spec.experts.is_some() { ".experts" } else { "" };
        let name = format!("{container}.{format}.{layers}x{heads}/{kv_heads}x{head_dim}.{head}{experts}");
        Self::of(name, model, *format)
    }

    /// Every class of forwards that is tested, slowest tier first; int8 only where it is another one.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let all = tested_tiers()
            .into_iter()
            .flat_map(|tier| Activations::ALL.map(|activations| Class { tier, activations }));
        let is_one = |class: &Class| match class {
            Class { tier: Tier::Reference, .. } if self.resident.is_some() => false,
            Class { tier: Tier::Cuda, activations } => *activations == Activations::Native,
            Class { activations, .. } => activations.over(self.format) == *activations,
        };
        all.filter(is_one).collect()
    }

    /// A class for tests of what lies above the kernels. Slow tiers have nothing of their own to get wrong there, and
    /// come seldom.
    pub(crate) fn any_class(&self, dice: &mut Dice) -> Class {
        let chances = |class: &Class| match class.tier {
            Tier::Reference => 1,
            Tier::Portable => 10,
            Tier::Neon | Tier::Avx2 | Tier::Avx512 | Tier::Avx512Bf16 | Tier::Amx | Tier::Cuda => 50,
        };
        let all = self.classes();
        let lots: Vec<Class> = all.iter().flat_map(|class| iter::repeat_n(*class, chances(class))).collect();
        *dice.pick(&lots)
    }

    /// Executables of [`WIDTHS`] over an f16 cache, built once.
    pub(crate) fn set(&self, class: Class) -> &Arc<ExecutableSet> {
        let place = Tier::ALL.iter().position(|tier| *tier == class.tier).expect("every tier is listed");
        let place = &self.sets[place][usize::from(class.activations == Activations::Int8)];
        place.get_or_init(|| self.build(class, KvFormat::F16, WIDTHS.to_vec()))
    }

    /// Executables of any widths over any cache.
    pub(crate) fn build(&self, class: Class, kv_format: KvFormat, widths: Vec<usize>) -> Arc<ExecutableSet> {
        let model_context = self.model.config.context;
        let Class { tier, activations } = class;
        let resident = self.resident;
        let options =
            SetOptions { tier, kv_format, activations, widths, model_context, threads: 1, resident };
        let set = ExecutableSet::load(&self.model.graph, &loading(&self.model), &options);
        Arc::new(set.expect("a generated model compiles and loads"))
    }
}

/// What the model's engine loads it with.
pub(crate) fn loading(model: &Model) -> Loading<'_> {
    Loading { weights: &*model.weights, kept: model.kept.as_ref(), watch: &*model.watch }
}

/// Names a device whose tier is compared with the reference, instead of those of this processor: `cuda`.
pub(crate) const DEVICE: &str = "YGG_TEST_DEVICE";

/// Whether the tests are of a GPU, emulated or not.
#[expect(clippy::disallowed_methods, reason = "which device the tests are of is not the library's to know")]
pub(crate) fn is_cuda() -> bool {
    std::env::var_os(DEVICE).is_some_and(|device| device == "cuda")
}

/// Names the instruction set that the program takes, and so the one that is tested where one is enough.
#[expect(clippy::disallowed_methods, reason = "what the environment says to the program, tests must know")]
fn asked_tier() -> Option<Tier> {
    std::env::var("YGG_ISA").ok().map(|name| name.parse().expect("a tier"))
}

/// Tiers that are tested: those of this processor, or the one of the device that the environment names, and the
/// reference.
pub(crate) fn tested_tiers() -> Vec<Tier> {
    if is_cuda() { vec![Tier::Reference, Tier::Cuda] } else { available_tiers() }
}

/// The tier that is tested where one is enough: the best, or what the environment names.
pub(crate) fn best_tier() -> Tier {
    if is_cuda() { Tier::Cuda } else { asked_tier().unwrap_or_else(Tier::detect_best) }
}

/// Numbers of threads that are tried: on a device none of them computes.
pub(crate) fn thread_counts() -> &'static [usize] {
    if is_cuda() { &[1] } else { &[1, 2] }
}

/// Whether every model and every case is tried, as `.ci/full` demands, or a part of them.
#[expect(clippy::disallowed_methods, reason = "how much is tested is not the library's to know")]
pub(crate) fn everything() -> bool {
    std::env::var_os("YGG_TEST_EVERYTHING").is_some()
}

/// The part of `all` cases that is tried.
pub(crate) fn part(all: u64) -> u64 {
    if everything() { all } else { all.div_ceil(2) }
}

/// Whether a tier's arithmetic is emulated: fused products of the portable tier in f64, which takes some ten times as
/// long, or a whole device.
pub(crate) fn is_slow(tier: Tier) -> bool {
    matches!(tier, Tier::Portable | Tier::Cuda)
}

/// How often something is tried: less often where arithmetic is emulated, least on a device, which is a thousand times
/// as slow.
pub(crate) fn cases(class: Class, all: u64) -> u64 {
    match class.tier {
        Tier::Cuda => part(all.div_ceil(8)),
        Tier::Portable => part(part(all)),
        _ => part(all),
    }
}

/// Models of every weight layout; of those that a GPU has kernels for where the tests are of one.
pub(crate) fn models() -> &'static [TinyModel] {
    static MODELS: OnceLock<Vec<TinyModel>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let spec = |layers, width, (heads, kv_heads, head_dim), feed_forward, vocabulary, format, tied| {
            let [context, seed] = [MODEL_CONTEXT, 11 + layers];
            SyntheticSpec {
                layers,
                width,
                heads,
                kv_heads,
                head_dim,
                feed_forward,
                vocabulary,
                context,
                format,
                tied,
                seed: seed as u64,
                ..SyntheticSpec::default()
            }
        };
        let experts = Some(SyntheticExperts { count: 7, used: 3, are_copies: false });
        [
            ("gguf", spec(2, 64, (4, 2, 16), 96, 300, WeightFormat::F32, true)),
            ("folder", spec(3, 48, (2, 2, 64), 80, 301, WeightFormat::F16, true)),
            ("folder", spec(5, 40, (9, 3, 8), 72, 290, WeightFormat::BF16, false)),
            ("gguf", spec(4, 32, (4, 4, 8), 64, 320, WeightFormat::Q8_0, true)),
            ("gguf", spec(3, 96, (3, 1, 64), 160, 307, WeightFormat::Q4_0, false)),
            ("gguf", spec(4, 64, (6, 2, 16), 96, 300, WeightFormat::Q4_1, true)),
            ("gguf", spec(2, 256, (4, 1, 64), 256, 300, WeightFormat::Q4_K, true)),
            ("gguf", spec(1, 256, (8, 2, 32), 512, 290, WeightFormat::Q6_K, false)),
            ("gguf", spec(2, 96, (3, 1, 64), 160, 300, WeightFormat::Q5_0, true)),
            ("gguf", spec(2, 256, (4, 1, 64), 256, 300, WeightFormat::Q5_K, false)),
            ("gguf", spec(1, 256, (4, 2, 64), 256, 290, WeightFormat::IQ4_XS, true)),
            ("gguf", SyntheticSpec { experts, ..spec(2, 64, (4, 2, 16), 64, 299, WeightFormat::Q8_0, true) }),
        ]
        .iter()
        // Emulation is slow, and tests of single programs have every format.
        .filter(|(_, spec)| !is_cuda() || (spec.format != WeightFormat::Q5_K && spec.experts.is_none()))
        .map(|(container, spec)| TinyModel::open(container, spec))
        .collect()
    })
}

/// The models of tests that hold whatever the format, where some of them are enough: one with odd shapes, one with
/// nibbles, one with bit planes, and on a CPU one with bytes and one of a K format.
pub(crate) fn some_models() -> impl Iterator<Item = &'static TinyModel> {
    let is_chosen = |model: &&TinyModel| match model.format {
        WeightFormat::BF16 | WeightFormat::Q4_1 | WeightFormat::Q6_K => true,
        WeightFormat::Q8_0 | WeightFormat::Q5_K => !is_cuda(),
        _ => !is_cuda() && everything(),
    };
    models().iter().filter(is_chosen)
}

/// A session for trees of at most `tree_nodes` nodes.
pub(crate) fn session(
    set: &Arc<ExecutableSet>,
    context: usize,
    tree_nodes: usize,
    threads: usize,
) -> Session {
    let options = SessionOptions { context, tree_nodes, threads, pinning: Pinning::Floating };
    Session::open(Arc::clone(set), &options).expect("a small session opens")
}

/// Logits to the last bit: equality tells -0 from 0 and knows NaN.
pub(crate) fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}
