//! Draft phases in one launch: graphs of a drafter's forwards with a growth after each, whose kernel writes the rows of
//! the next forward.

use std::{fmt, sync::Arc};

use cudarc::driver::{CudaEvent, result};
use ygg_kernels::{
    candidates::candidate_columns,
    cuda::abi::{YGG_MERGE_THREADS, YGG_ROW_THREADS, YggGrow, YggHandDown, YggNodeRows, YggTree},
};

use crate::ir::{IdVec, Program, ProgramId, StepId};

use super::{
    super::{
        BackendError, DraftPhases, Executables, GrowingTree, Grown, PhaseId, PhaseRoot, PhaseShape, Replay,
        ReplayOptions, phase::OnDevice,
    },
    candidates::{Decider, PerDecider, value_launch},
    capture::Graph,
    device::{DeviceBlock, Launch, PinnedBlock, check},
    layout::{Bump, InputWords, kernel_rows, number},
    replay::CudaReplay,
    streaming::StepKernels,
    weights::ALIGNMENT,
};

/// Words in front of a tree's nodes: how many they are, how many came last, and how many before these.
const COUNTS: usize = 3;
/// Arrays of a tree that the host reads: tokens, parents, ranks, scores.
const ARRAYS: usize = 4;
/// Words about the root that growths read: its token, the tokens committed before it, its row.
const ROOT: usize = 3;

/// Where a phase's memory is. The host sends what is from a root's inputs to the tails of the growth's: inputs of roots
/// end where the words about the root begin.
struct Places {
    root: usize,
    growth_inputs: usize,
    tree: TreeWords,
    kept_hidden: usize,
    bytes: usize,
}

impl Places {
    fn of(shape: &PhaseShape, roots: &[InputWords], growth: InputWords, given_columns: usize) -> Self {
        let words = |n: usize| n * size_of::<u32>();
        let mut bump = Bump::default();
        let _roots = bump.take(roots.iter().map(|root| words(root.words)).max().unwrap_or(0));
        let nodes = shape.nodes();
        Self {
            root: bump.take(words(ROOT)),
            growth_inputs: bump.take(words(growth.words)),
            tree: TreeWords {
                nodes,
                tree: bump.take(words(tree_words(nodes))),
                depths: bump.take(words(nodes)),
                offered: bump.take(words(nodes * shape.kept)),
                offers: bump.take(words(nodes * shape.kept)),
            },
            kept_hidden: bump.take(words(nodes * given_columns)),
            bytes: bump.bytes(),
        }
    }

    /// Where inputs of a root's forward begin.
    fn root_inputs(&self, words: InputWords) -> usize {
        self.root - (words.words * size_of::<u32>()).next_multiple_of(ALIGNMENT)
    }
}

fn tree_words(nodes: usize) -> usize {
    COUNTS + ARRAYS * nodes
}

/// The word at an offset in bytes.
fn word(offset: usize) -> usize {
    offset / size_of::<u32>()
}

/// The phases whose first forward is one program's.
struct Root {
    program: ProgramId,
    words: InputWords,
    /// One for every depth from 1.
    graphs: Vec<PerDecider<Graph>>,
}

/// A draft phase ready to run. Graphs come first: they end before what they use.
pub(super) struct Phase {
    roots: Vec<Root>,
    shape: PhaseShape,
    growth_words: InputWords,
    places: Places,
    sent: PinnedBlock,
    results: PinnedBlock,
    memory: Arc<DeviceBlock>,
    tree: Arc<TreeOnDevice>,
}

/// Where a phase grows its trees.
pub(super) struct TreeOnDevice {
    words: TreeWords,
    memory: Arc<DeviceBlock>,
    /// Comes when the last growth has ended.
    pub(super) grown: CudaEvent,
}

impl OnDevice for TreeOnDevice {}

impl fmt::Debug for TreeOnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreeOnDevice({} nodes)", self.words.nodes)
    }
}

impl TreeOnDevice {
    /// Nodes of the largest tree.
    pub(super) fn nodes(&self) -> usize {
        self.words.nodes
    }

    /// The tree as a parameter of kernels.
    pub(super) fn kernel_tree(&self) -> YggTree {
        self.words.at(&self.memory)
    }
}

/// Offsets of a tree's arrays.
#[derive(Clone, Copy)]
struct TreeWords {
    nodes: usize,
    tree: usize,
    depths: usize,
    offered: usize,
    offers: usize,
}

impl TreeWords {
    fn at(self, memory: &DeviceBlock) -> YggTree {
        let at = |offset: usize, word: usize| memory.at(offset + word * size_of::<u32>(), 0) as *mut u32;
        let array = |i: usize| at(self.tree, COUNTS + i * self.nodes);
        YggTree {
            counts: at(self.tree, 0),
            tokens: array(0),
            parents: array(1),
            ranks: array(2),
            scores: array(3).cast(),
            depths: at(self.depths, 0),
            offered: at(self.offered, 0).cast(),
            offers: at(self.offers, 0),
        }
    }
}

/// Inputs of a forward as kernels write them for nodes of a tree; `rows` is 0 where no forward follows.
pub(super) fn node_rows(inputs: u64, words: InputWords, rows: usize) -> YggNodeRows {
    let input = |word: usize| (inputs + (word * size_of::<u32>()) as u64) as *mut u32;
    YggNodeRows {
        rows: number(rows),
        tail_capacity: number(words.tail_capacity),
        tokens: input(words.tokens),
        positions: input(words.positions),
        slots: input(words.slots),
        prefix: input(words.prefix),
        tail_len: input(words.tail_len),
        tails: input(words.tails),
    }
}

impl Phase {
    pub(super) fn new(replay: &mut CudaReplay, shape: PhaseShape) -> Result<Self, BackendError> {
        let executables = Arc::clone(&replay.executables);
        let programs = executables.programs();
        let (device, growth) = (&executables.device, &programs[shape.growth_program]);
        check_shape(&shape, programs, &replay.ground.options);
        let words_of = |program: &Program| InputWords::of(program, &replay.ground.options);
        let growth_words = words_of(growth);
        let root_words: Vec<_> = shape.root_programs.iter().map(|root| words_of(&programs[*root])).collect();
        let places = Places::of(&shape, &root_words, growth_words, growth.given_columns());
        let sent_words = word(places.growth_inputs) + growth_words.words;
        let memory = Arc::new(DeviceBlock::new(device, places.bytes, "a draft phase")?);
        let (all, stream) = (memory.at(0, places.bytes), &replay.stream);
        // SAFETY: the whole block, which nothing uses yet.
        let cleared = unsafe { result::memset_d8_async(all, 0, places.bytes, stream.cu_stream()) };
        check("clear memory", cleared)?;
        // A tree has no nodes before it has grown, whichever stream asks.
        check("clear memory", stream.synchronize())?;
        let tree = TreeOnDevice { words: places.tree, memory: Arc::clone(&memory), grown: device.event()? };
        let mut phase = Self {
            roots: Vec::with_capacity(shape.root_programs.len()),
            growth_words,
            sent: PinnedBlock::new(device, sent_words, "the root of a draft phase")?,
            results: PinnedBlock::new(device, tree_words(shape.nodes()), "a tree")?,
            memory,
            tree: Arc::new(tree),
            places,
            shape,
        };
        let nothing_skipped = vec![false; growth.groups as usize];
        let to = &mut phase.sent.words_mut()[word(phase.places.growth_inputs)..];
        growth_words.write(&growth_words.padding(), &nothing_skipped, to);
        let growths = PerDecider::new(|by| PartOf::growth(replay, &phase, growth, by))?;
        for (place, words) in root_words.into_iter().enumerate() {
            let program = phase.shape.root_programs[place];
            let roots = PerDecider::new(|by| PartOf::root(replay, &phase, (program, words), by))?;
            phase.roots.push(Root { program, words, graphs: Vec::with_capacity(phase.shape.depth) });
            let rows = words.first_root();
            phase.fill(place, PhaseRoot { program, rows: &rows }, &nothing_skipped);
            for depth in 1..=phase.shape.depth {
                let graphs = PerDecider::new(|by| {
                    let (root, growth) = (roots.of(by), growths.of(by));
                    let steps = || {
                        let others = (2..=depth).flat_map(|after| growth.steps(after == depth));
                        root.steps(depth == 1).chain(others)
                    };
                    let streams = steps().any(|step| step.unit.is_some());
                    let mut work = |replay: &mut CudaReplay| phase.work(words, steps(), replay);
                    if device.is_cold(steps().flat_map(|step| &step.launches)) {
                        replay.try_once(streams, "run a draft phase", &mut work)?;
                    }
                    replay.capture(streams, &mut work)
                })?;
                phase.roots[place].graphs.push(graphs);
            }
        }
        Ok(phase)
    }

    fn at(&self, offset: usize) -> u64 {
        self.memory.at(0, 0) + offset as u64
    }

    /// Puts one phase on the stream: what the host sends, the kernels, and the tree's way back.
    fn work<'k>(
        &mut self,
        root_words: InputWords,
        steps: impl Iterator<Item = &'k StepKernels> + Clone,
        replay: &CudaReplay,
    ) -> Result<(), BackendError> {
        let stream = &replay.stream;
        let from = self.places.root_inputs(root_words);
        let sent = &self.sent.words()[word(from)..word(self.places.growth_inputs) + self.growth_words.tails];
        // SAFETY: inside the phase's memory; the host's words live as long as the graph, and are changed between
        // launches only.
        let copied = unsafe { result::memcpy_htod_async(self.at(from), sent, stream.cu_stream()) };
        check("send the root", copied)?;
        replay.put(steps)?;
        let tree_at = self.at(self.places.tree.tree);
        // SAFETY: as above; they are read after the stream has been waited for.
        let copied =
            unsafe { result::memcpy_dtoh_async(self.results.words_mut(), tree_at, stream.cu_stream()) };
        check("fetch a tree", copied)
    }

    /// Writes what the host sends.
    fn fill(&mut self, place: usize, root: PhaseRoot<'_>, skipped: &[bool]) {
        let (rows, k) = (root.rows, root.rows.choice().k);
        // Of those that are best under noise, a growth takes what it keeps.
        let is_kept = k <= self.shape.kept || rows.noise().is_some();
        assert!(is_kept, "{k} candidates of {}", self.shape.kept);
        let last = rows.used().checked_sub(1).expect("a tree has a root");
        let (token, committed) = (rows.tokens()[last], rows.slots()[last]);
        let words = self.sent.words_mut();
        let root_words = self.roots[place].words;
        root_words.write(rows, skipped, &mut words[word(self.places.root_inputs(root_words))..]);
        words[word(self.places.root)..][..ROOT].copy_from_slice(&[token, committed, number(last)]);
        let growth_words = &mut words[word(self.places.growth_inputs)..];
        self.growth_words.write_choice(rows, skipped, growth_words);
    }

    /// The graph of phases of this depth from this root.
    ///
    /// # Panics
    /// If the tree may leave the context: its kernels would not notice.
    pub(super) fn graph(
        &mut self,
        depth: usize,
        root: PhaseRoot<'_>,
        skipped: &[bool],
        options: &ReplayOptions,
    ) -> &Graph {
        let place = self.roots.iter().position(|known| known.program == root.program);
        let place = place.expect("the phase was prepared for the root's program");
        let before_root = || root.rows.slots()[root.rows.used() - 1] as usize;
        let (committed, nodes) = (before_root(), depth * self.shape.width + 1);
        assert!(
            (1..=self.shape.depth).contains(&depth)
                && committed + depth <= options.layout.context
                && committed + nodes <= options.layout.slots(),
            "{depth} growths of {} after {committed} of {} tokens",
            self.shape.depth,
            options.layout.context
        );
        self.fill(place, root, skipped);
        self.roots[place].graphs[depth - 1].of(Decider::of(root.rows))
    }

    /// Where it grows its trees.
    pub(super) fn tree(&self) -> &Arc<TreeOnDevice> {
        &self.tree
    }

    /// What the last launch grew.
    pub(super) fn grown(&self) -> Grown<'_> {
        let nodes = self.shape.nodes();
        let words = self.results.words();
        let (count, last) = (words[0] as usize, words[1] as usize);
        let array = |i: usize| COUNTS + i * nodes..COUNTS + i * nodes + count;
        Grown {
            tokens: &words[array(0)],
            parents: &words[array(1)],
            ranks: &words[array(2)],
            scores: &self.results.floats()[array(3)],
            forwarded: count - last,
        }
    }
}

/// A forward of a phase, with the growth after it.
struct PartOf {
    forward: IdVec<StepId, StepKernels>,
    between: Between,
}

impl PartOf {
    /// From the root of a program.
    fn root(
        replay: &CudaReplay,
        phase: &Phase,
        (program, words): (ProgramId, InputWords),
        by: Decider,
    ) -> Result<Self, BackendError> {
        let program = &replay.executables.programs()[program];
        let inputs = phase.at(phase.places.root_inputs(words));
        let forward = replay.kernels(program, by, inputs)?;
        Ok(Self { forward, between: Between::new(replay, phase, program, by, true)? })
    }

    /// From the nodes of the growth before.
    fn growth(
        replay: &CudaReplay,
        phase: &Phase,
        program: &Program,
        by: Decider,
    ) -> Result<Self, BackendError> {
        let forward = replay.kernels(program, by, phase.at(phase.places.growth_inputs))?;
        Ok(Self { forward, between: Between::new(replay, phase, program, by, false)? })
    }

    fn steps(&self, is_last: bool) -> impl Iterator<Item = &StepKernels> + Clone {
        self.forward.iter().chain([self.between.after(is_last)])
    }
}

/// Kernels after a forward: the growth, in its last and its continuing form, and what prepares the next forward's other
/// inputs.
struct Between {
    last: StepKernels,
    goes_on: StepKernels,
}

impl Between {
    /// After a forward of `program`.
    fn new(
        replay: &CudaReplay,
        phase: &Phase,
        program: &Program,
        by: Decider,
        is_first: bool,
    ) -> Result<Self, BackendError> {
        let Phase { shape, growth_words: words, places, .. } = phase;
        let (device, arena) = (&replay.executables.device, replay.ground.arena);
        let growth = &replay.executables.programs()[shape.growth_program];
        let tree = places.tree.at(&phase.memory);
        let inputs = phase.at(places.growth_inputs);
        let root = phase.at(places.root) as *const u32;
        let candidates = kernel_rows(arena, &program.shown);
        let values = || {
            let noise = (inputs + (words.noise * size_of::<u32>()) as u64) as *const u32;
            value_launch(device, candidates, noise, shape.kept, shape.vocabulary)
        };
        let grow = |rows: usize| {
            let params = YggGrow {
                tree,
                candidates,
                most: number(program.shown.columns / 2),
                kept: number(shape.kept),
                vocabulary: number(shape.vocabulary),
                width: number(shape.width),
                is_first: u32::from(is_first),
                root,
                next: node_rows(inputs, *words, rows),
            };
            let grow = Launch::new(device, "ygg_grow", [1, 1, 1], YGG_MERGE_THREADS, 0, params)?;
            match by {
                Decider::Logits => Ok(vec![grow]),
                Decider::Noise => Ok(vec![values()?, grow]),
            }
        };
        let rows = growth.binding.width;
        let mut goes_on = grow(rows)?;
        if growth.given_columns() > 0 {
            let hidden = program.hidden.as_ref().expect("what reads hidden rows leaves its own");
            let params = YggHandDown {
                tree,
                hidden: kernel_rows(arena, hidden),
                is_first: u32::from(is_first),
                root,
                kept: phase.at(places.kept_hidden) as *mut f32,
                given: (inputs + (words.given * size_of::<u32>()) as u64) as *mut f32,
            };
            goes_on.push(Launch::new(device, "ygg_hand_down", [rows, 1, 1], YGG_ROW_THREADS, 0, params)?);
        }
        Ok(Self { last: StepKernels::new(None, grow(0)?), goes_on: StepKernels::new(None, goes_on) })
    }

    fn after(&self, is_last: bool) -> &StepKernels {
        if is_last { &self.last } else { &self.goes_on }
    }
}

/// # Panics
/// If the programs are others than the shape says.
fn check_shape(shape: &PhaseShape, programs: &IdVec<ProgramId, Program>, options: &ReplayOptions) {
    let growth = &programs[shape.growth_program];
    let most = growth.shown.columns / 2;
    assert!(
        shape.depth >= 1 && (1..=growth.binding.width).contains(&shape.width),
        "{shape:?} of growths of {} rows",
        growth.binding.width
    );
    assert!((1..=most).contains(&shape.kept), "{} candidates of {most}", shape.kept);
    for program in shape.root_programs.iter().chain([&shape.growth_program]).map(|p| &programs[*p]) {
        assert_eq!(program.shown.columns, candidate_columns(most), "the programs show candidates");
        assert_eq!(program.shown.rows, program.binding.width, "of all rows");
    }
    assert!(shape.depth <= options.tail_capacity, "rows have room for {} ancestors", shape.depth);
}

/// What a phase grows on a device that has failed: the root.
const NOTHING_GROWN: Grown<'static> =
    Grown { tokens: &[0], parents: &[0], ranks: &[0], scores: &[0.0], forwarded: 1 };

impl DraftPhases for CudaReplay {
    fn prepare(&mut self, shape: PhaseShape) -> Result<PhaseId, BackendError> {
        let phase = Phase::new(self, shape)?;
        Ok(self.phases.push(phase))
    }

    fn begin_growth(&mut self, phase: PhaseId, depth: usize, root: PhaseRoot<'_>, skipped: &[bool]) {
        self.finish();
        self.attempt(|replay| {
            let graph = replay.phases[phase].graph(depth, root, skipped, &replay.ground.options);
            graph.launch("launch a draft phase")?;
            check("note a draft phase", replay.phases[phase].tree().grown.record(&replay.stream))
        });
    }

    fn grown(&mut self, phase: PhaseId) -> Grown<'_> {
        self.attempt(|replay| check("run a draft phase", replay.stream.synchronize()));
        if self.failure().is_some() { NOTHING_GROWN } else { self.phases[phase].grown() }
    }

    fn growing(&self, phase: PhaseId) -> GrowingTree {
        GrowingTree(Arc::clone(self.phases[phase].tree()) as _)
    }
}
