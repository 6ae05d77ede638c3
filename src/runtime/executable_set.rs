//! The executables of one model: one per planned width and role, sharing weights.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    backend::{
        self, Activations, BackendError, Executables, KvFormat, Loading, ReplayOptions, SlotLayout, Tier,
        Workers,
    },
    compile::{self, CompileError},
    ir::{
        Binding, DeviceSpec, Graph, Id, IdVec, PackedSizes, Placed, Program, ProgramId, Substituted,
        WeightSource, WeightSplits,
    },
};

use super::{
    RuntimeError, SessionOptions,
    block::MarkovHead,
    hidden_rows::Keeping,
    role::{DraftVariant, PrefillId, Role, WidthId},
    variants::Changed,
};

/// Widths of prefill chunks, which show logits of their last row only.
pub(super) const PREFILL_WIDTHS: [usize; 2] = [16, 64];

/// Options of a set.
#[derive(Clone, Debug)]
pub struct SetOptions {
    /// Instruction-set tier.
    pub tier: Tier,
    /// Element type of the key/value cache.
    pub kv_format: KvFormat,
    /// The activations of linears.
    pub activations: Activations,
    /// Planned widths of drafting and verification; 1 is always added.
    pub widths: Vec<usize>,
    /// Longest context of the model in tokens.
    pub model_context: usize,
    /// Threads that will pack the weights.
    pub threads: usize,
    /// Most bytes of packed weights in the device's memory, the buffer for streamed ones among them; `None` keeps all
    /// there.
    pub resident: Option<usize>,
}

impl SetOptions {
    fn device(&self) -> DeviceSpec {
        DeviceSpec { activations: self.activations, ..DeviceSpec::cpu(self.tier, self.kv_format) }
    }
}

/// Sub-layers that a forward leaves out; made once, used by many forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipSet {
    skipped: Vec<bool>,
}

impl SkipSet {
    /// Skips the given groups: `2 * layer` is a layer's attention, `2 * layer + 1` its MLP.
    ///
    /// # Errors
    /// [`RuntimeError::SkipSet`] names the first group the model does not have.
    pub fn new(groups: u32, skipped: &[u32]) -> Result<Self, RuntimeError> {
        let mut set = Self::none(groups);
        for group in skipped {
            let flag = set.skipped.get_mut(*group as usize);
            *flag.ok_or(RuntimeError::SkipSet { found: *group, groups })? = true;
        }
        Ok(set)
    }

    /// Skips nothing.
    pub fn none(groups: u32) -> Self {
        Self { skipped: vec![false; groups as usize] }
    }

    /// Skips the groups that `is_skipped` names instead.
    pub fn assign(&mut self, is_skipped: impl Fn(u32) -> bool) {
        self.skipped.iter_mut().zip(0..).for_each(|(flag, group)| *flag = is_skipped(group));
    }

    /// One flag per group.
    pub fn as_mask(&self) -> &[bool] {
        &self.skipped
    }
}

/// Memory a session needs, in bytes, known before it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Packed weights in memory, those of variants and the buffer for streamed ones among them; shared by all sessions
    /// of the set.
    pub weight_bytes: usize,
    /// Packed weights that every forward of the model reads from a file, or a GPU from memory of the host; of experts
    /// that share places in memory, those that have none at a time.
    pub streamed_bytes: usize,
    /// Those of them that lie in pinned memory of the host, for a GPU to copy: all, or none on a processor, which reads
    /// a file.
    pub pinned_bytes: usize,
    /// Arena, cache, rotary tables and scratch of one session. Input rows (some kilobytes) are not counted.
    pub session_bytes: usize,
}

/// Executables of every planned width, sharing packed weights. Clones share everything.
#[derive(Clone, Debug)]
pub struct ExecutableSet {
    pub(super) executables: Arc<dyn Executables>,
    /// Planned widths, ascending; where forwards of text have graphs of their own, then the same for those.
    widths: IdVec<WidthId, usize>,
    /// How many planned widths there are.
    planned: usize,
    pub(super) logits: IdVec<WidthId, ProgramId>,
    pub(super) candidates: IdVec<WidthId, ProgramId>,
    prefill: IdVec<PrefillId, ProgramId>,
    /// Which rows between layers are kept, and the programs that prefill and keep those of all tokens, if there are
    /// any.
    pub(super) keeping: Option<Keeping>,
    /// The model's graph, with the matrices of variants after its weights.
    pub(super) graph: Graph,
    /// Variants, each with its programs.
    pub(super) variants: IdVec<DraftVariant, (Changed, IdVec<WidthId, ProgramId>)>,
    /// Matrices of substitutes, by their bits.
    pub(super) substitutes: BTreeMap<u32, Vec<Substituted>>,
    /// Executables of drafter models, by the digests of these.
    pub(super) drafts: Vec<(String, Arc<ExecutableSet>)>,
    /// Bytes of weights that are another set's.
    pub(super) lent_bytes: usize,
    /// Of a block drafter, what the token before adds to logits.
    pub(super) markov: Option<Arc<MarkovHead>>,
    /// Where the weights of the model are.
    placed: Option<Placed>,
    pub(super) device: DeviceSpec,
    pub(super) threads: usize,
    vocabulary: usize,
    model_context: usize,
}

/// Makes the program of one width from a graph.
pub(super) type Compile = fn(&Graph, Binding, &DeviceSpec) -> Result<Program, CompileError>;

/// A program of one row, by which weights are divided, and how large they become.
fn one_row(
    compile: Compile,
    graph: &Graph,
    device: &DeviceSpec,
) -> Result<(Program, PackedSizes), RuntimeError> {
    let sizes = backend::packed_sizes(device.tier).ok_or(RuntimeError::NotStreamed { tier: device.tier })?;
    Ok((compile(graph, Binding { width: 1, outputs: 1 }, device)?, sizes))
}

/// A graph as forwards of nodes have it, and as those of text do where that is another.
pub(super) fn of_nodes_and_text(graph: &Graph) -> Result<Vec<Graph>, RuntimeError> {
    let of_text = graph.of_text().map_err(|error| CompileError::Unlawful { stage: "of_text", error })?;
    Ok([graph.clone()].into_iter().chain(of_text).collect())
}

impl ExecutableSet {
    /// Most candidates of a row that a forward can be asked for.
    pub const MOST_CANDIDATES: usize = 64;

    /// [Loads](Self::load) weights of which no packed copies are kept.
    ///
    /// # Errors
    /// As `load`.
    pub fn build(
        graph: &Graph,
        weights: &dyn WeightSource,
        options: &SetOptions,
    ) -> Result<Self, RuntimeError> {
        Self::load(graph, &Loading::of(weights), options)
    }

    /// Compiles and loads one executable per width and role: of each width one that shows logits and one that shows
    /// candidates.
    ///
    /// # Errors
    /// [`RuntimeError`] when the device refuses.
    pub fn load(graph: &Graph, loading: &Loading<'_>, options: &SetOptions) -> Result<Self, RuntimeError> {
        Self::build_for(compile::compile, graph, options, |programs, device| {
            backend::load(programs, device, loading, options.threads)
        })
    }

    /// Executables of another graph over the weights of this set, with the same widths and a cache of their own. The
    /// graph's weights begin with those of this set's [`graph`](Self::graph); `weights` is asked for the others only.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn beside(
        &self,
        graph: &Graph,
        weights: &dyn WeightSource,
        model_context: usize,
    ) -> Result<Self, RuntimeError> {
        self.beside_of_widths(graph, weights, model_context, self.widths().to_vec())
    }

    /// The same with other widths.
    pub(super) fn beside_of_widths(
        &self,
        graph: &Graph,
        weights: &dyn WeightSource,
        model_context: usize,
        widths: Vec<usize>,
    ) -> Result<Self, RuntimeError> {
        let DeviceSpec { tier, kv_format, activations, arena_alignment: _ } = self.device;
        let threads = self.threads;
        let resident = None;
        let options = SetOptions { tier, kv_format, activations, widths, model_context, threads, resident };
        let load = |programs, _: &DeviceSpec| self.executables.beside(programs, weights, threads);
        let other = Self::build_for(compile::compile, graph, &options, load)?;
        Ok(Self { lent_bytes: self.executables.weight_bytes(), ..other })
    }

    /// Compiles every program by `compile`, and loads all by `load`.
    pub(super) fn build_for(
        compile: Compile,
        graph: &Graph,
        options: &SetOptions,
        load: impl FnOnce(Vec<Program>, &DeviceSpec) -> Result<Arc<dyn Executables>, BackendError>,
    ) -> Result<Self, RuntimeError> {
        let mut widths = options.widths.clone();
        widths.push(1);
        widths.sort_unstable();
        widths.dedup();
        assert!(widths[0] >= 1, "a forward has at least one row");
        let device = options.device();
        let mut graph = graph.clone();
        let placed = match options.resident {
            Some(budget) => Some(Self::place(&mut graph, compile, &device, budget)?),
            None => None,
        };
        let mut choosing = graph.clone();
        choosing
            .show_candidates(Self::MOST_CANDIDATES)
            .map_err(|error| CompileError::Unlawful { stage: "show_candidates", error })?;
        let showing = of_nodes_and_text(&graph)?;
        let choosing = of_nodes_and_text(&choosing)?;
        let all_rows = |graph| widths.iter().map(move |w| (graph, Binding { width: *w, outputs: *w }));
        let of_text = showing.last().expect("there is one for nodes");
        let prefill = PREFILL_WIDTHS.iter().map(|w| (of_text, Binding { width: *w, outputs: 1 }));
        let compile = |(graph, binding)| compile(graph, binding, &device);
        let all = showing.iter().flat_map(all_rows).chain(prefill).chain(choosing.iter().flat_map(all_rows));
        let executables = load(all.map(compile).collect::<Result<Vec<_>, _>>()?, &device)?;
        let shown = executables.programs()[ProgramId::FIRST].shown.columns;
        let vocabulary = graph.reduced_head().map_or(shown, |head| head.vocabulary);
        let mut ids = executables.programs().ids();
        let (planned, roles) = (widths.len(), showing.len());
        Ok(Self {
            logits: ids.by_ref().take(planned * roles).collect(),
            prefill: ids.by_ref().take(PREFILL_WIDTHS.len()).collect(),
            candidates: ids.collect(),
            keeping: None,
            executables,
            widths: widths.iter().cycle().take(planned * roles).copied().collect(),
            planned,
            graph,
            placed,
            variants: IdVec::default(),
            substitutes: BTreeMap::new(),
            drafts: Vec::new(),
            lent_bytes: 0,
            markov: None,
            device,
            threads: options.threads,
            vocabulary,
            model_context: options.model_context,
        })
    }

    /// Decides where the weights of a graph are.
    fn place(
        graph: &mut Graph,
        compile: Compile,
        device: &DeviceSpec,
        budget: usize,
    ) -> Result<Placed, RuntimeError> {
        let (one_row, sizes) = one_row(compile, graph, device)?;
        Ok(graph.place(&one_row, sizes, budget)?)
    }

    /// All ways in which budgets can divide the weights of a graph that is not loaded yet.
    ///
    /// # Errors
    /// [`RuntimeError`] if the graph does not compile, or the tier streams no weights.
    pub fn splits_of(graph: &Graph, options: &SetOptions) -> Result<WeightSplits, RuntimeError> {
        let (one_row, sizes) = one_row(compile::compile, graph, &options.device())?;
        Ok(one_row.weight_splits(sizes))
    }

    /// All ways in which budgets can divide the weights of the model, where a budget was given for those in memory.
    ///
    /// # Errors
    /// [`RuntimeError`] if the model's graph does not compile.
    pub fn weight_splits(&self) -> Result<Option<WeightSplits>, RuntimeError> {
        if self.placed.is_none() {
            return Ok(None);
        }
        let (one_row, sizes) = one_row(compile::compile, &self.graph, &self.device)?;
        Ok(Some(one_row.weight_splits(sizes)))
    }

    /// Where the weights of the model are, if a budget was given for those in memory.
    pub fn placed(&self) -> Option<Placed> {
        self.placed
    }

    /// Planned widths, ascending, 1 first.
    pub fn widths(&self) -> &[usize] {
        let all: &[usize] = &self.widths;
        &all[..self.planned]
    }

    /// The smallest planned width that holds `rows`.
    pub fn width_for(&self, rows: usize) -> Option<usize> {
        self.widths().iter().copied().find(|w| *w >= rows)
    }

    /// Most rows of one forward of a prefill.
    pub fn prefill_width(&self) -> usize {
        PREFILL_WIDTHS[PREFILL_WIDTHS.len() - 1]
    }

    /// Number of skippable sub-layers.
    pub fn groups(&self) -> u32 {
        self.graph.groups()
    }

    /// Number of token ids.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Elements of a hidden row, `D`; 0 if the graph declares none.
    pub fn model_width(&self) -> usize {
        self.executables.programs()[ProgramId::FIRST].hidden.map_or(0, |hidden| hidden.columns)
    }

    /// Longest context of the model in tokens.
    pub fn model_context(&self) -> usize {
        self.model_context
    }

    /// The model's graph, with the matrices of variants after its weights.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Elements of the rows that a forward of nodes is given in addition to its tokens; 0 where it is given none.
    pub fn given_columns(&self) -> usize {
        self.executables.programs()[ProgramId::FIRST].given_columns()
    }

    /// As [`given_columns`](Self::given_columns), of a forward or prefill of text: a row of every one of the
    /// [layers that are read](Graph::layers_read), one after the other.
    pub fn text_columns(&self) -> usize {
        self.executables.programs()[self.prefill[PrefillId::new(0)]].given_columns()
    }

    /// Whether a GPU begins a kernel of a forward while the one before it still runs; none on a CPU.
    pub fn kernels_overlap(&self) -> Option<bool> {
        self.executables.kernels_overlap()
    }

    /// Memory that a session with these options needs; the weights are those of drafter models too.
    pub fn memory(&self, options: &SessionOptions) -> Memory {
        let of_drafts = self.drafts.iter().map(|(_, set)| set.memory(options).weight_bytes);
        let streamed_bytes = self.placed.map_or(0, |placed| placed.streamed);
        Memory {
            streamed_bytes,
            pinned_bytes: if backend::has_own_memory(self.device.tier) { streamed_bytes } else { 0 },
            weight_bytes: self.executables.weight_bytes() - self.lent_bytes
                + self.markov.as_ref().map_or(0, |markov| markov.bytes())
                + of_drafts.sum::<usize>(),
            session_bytes: self.executables.replay_bytes(&self.replay_options(options, None)),
        }
    }

    pub(super) fn replay_options(&self, options: &SessionOptions, workers: Option<Workers>) -> ReplayOptions {
        ReplayOptions {
            layout: SlotLayout {
                context: options.context,
                scratch: self.largest_width().max(options.tree_nodes).max(self.prefill_width()),
            },
            threads: options.threads,
            pinning: options.pinning,
            workers,
            tail_capacity: options.tree_nodes.max(1),
        }
    }

    pub(super) fn executables(&self) -> &Arc<dyn Executables> {
        &self.executables
    }

    fn largest_width(&self) -> usize {
        *self.widths.last().expect("width 1 is always planned")
    }

    /// The smallest planned width that holds `rows`.
    ///
    /// # Errors
    /// [`RuntimeError::Width`] if none does.
    pub(super) fn planned(&self, rows: usize) -> Result<WidthId, RuntimeError> {
        let found = self.widths.pairs().find_map(|(id, width)| (*width >= rows).then_some(id));
        found.ok_or(RuntimeError::Width { rows, largest: self.largest_width() })
    }

    /// As [`planned`](Self::planned), of forwards of text.
    ///
    /// # Errors
    /// As `planned`.
    pub(super) fn planned_text(&self, rows: usize) -> Result<WidthId, RuntimeError> {
        let width = self.planned(rows)?;
        Ok(WidthId::new(width.index() + self.widths.len() - self.planned))
    }

    /// The planned widths up to one, of forwards of the same kind.
    pub(super) fn widths_up_to(&self, widest: WidthId) -> impl Iterator<Item = WidthId> + use<> {
        let first = WidthId::new(widest.index() / self.planned * self.planned);
        self.widths.ids().filter(move |width| (first..=widest).contains(width))
    }

    /// The smallest prefill width that holds `remaining` tokens, else the widest.
    pub(super) fn prefill_for(&self, remaining: usize) -> PrefillId {
        let widest = PREFILL_WIDTHS.len() - 1;
        PrefillId::new(PREFILL_WIDTHS.iter().position(|w| *w >= remaining).unwrap_or(widest))
    }

    /// The program for a role.
    ///
    /// # Panics
    /// If a variant is of another set, or hidden rows of prefills are not kept.
    pub(super) fn program(&self, role: Role) -> ProgramId {
        match role {
            Role::Logits(width) => self.logits[width],
            Role::Candidates(width, None) => self.candidates[width],
            Role::Candidates(width, Some(variant)) => {
                self.variants.get(variant.index()).expect("a variant of this set").1[width]
            }
            Role::Prefill(width) => self.prefill[width],
            Role::KeepingPrefill(width) => {
                self.keeping.as_ref().expect("made before a session keeps rows").prefill[width]
            }
        }
    }

    /// The programs that show logits: of every planned width, and of every prefill width.
    pub(super) fn logits_programs(&self) -> (&IdVec<WidthId, ProgramId>, &IdVec<PrefillId, ProgramId>) {
        (&self.logits, &self.prefill)
    }
}
