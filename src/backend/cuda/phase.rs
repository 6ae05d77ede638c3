//! Draft phases in one launch: graphs of a drafter's forwards with a growth behind each, whose kernel writes the rows of the next forward.

use std::{iter, sync::Arc};

use cudarc::driver::result;
use ygg_kernels::{
    candidates::candidate_columns,
    cuda::abi::{YGG_MERGE_THREADS, YggGrow, YggRows, YggTree},
};

use crate::ir::{Program, RowInputs};

use super::{
    super::{BackendError, Grown, PhaseRoot, PhaseShape, ReplayOptions, SlotLayout},
    device::{Device, DeviceBlock, Launch, PinnedBlock, check},
    layout::{Bump, InputWords},
    replay::{CudaReplay, Graph},
};

/// Words in front of a tree's nodes: how many they are, and how many came last.
const COUNTS: usize = 2;
/// Arrays of a tree that the host reads: tokens, parents, ranks, scores.
const ARRAYS: usize = 4;

/// Where a phase's memory is.
struct Places {
    root_inputs: usize,
    growth_inputs: usize,
    root: usize,
    /// Words that the host sends: all of the above.
    sent_words: usize,
    tree: usize,
    depths: usize,
    offered: usize,
    offers: usize,
    bytes: usize,
}

impl Places {
    fn of(shape: &PhaseShape, root_words: usize, growth_words: usize) -> Self {
        let words = |n: usize| n * size_of::<u32>();
        let mut bump = Bump::default();
        let root_inputs = bump.take(words(root_words));
        let growth_inputs = bump.take(words(growth_words));
        let root = bump.take(words(2));
        let sent_words = bump.bytes() / size_of::<u32>();
        let nodes = shape.nodes();
        let tree = bump.take(words(tree_words(nodes)));
        let depths = bump.take(words(nodes));
        let [offered, offers] = [(); 2].map(|()| bump.take(words(nodes * shape.kept)));
        Self {
            root_inputs,
            growth_inputs,
            root,
            sent_words,
            tree,
            depths,
            offered,
            offers,
            bytes: bump.bytes(),
        }
    }
}

fn tree_words(nodes: usize) -> usize {
    COUNTS + ARRAYS * nodes
}

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("trees are small")
}

/// A draft phase ready to run. Graphs come first: they end before what they use.
pub(super) struct Phase {
    /// One for every depth from 1.
    graphs: Vec<Graph>,
    shape: PhaseShape,
    root_rows: RowInputs,
    growth_rows: RowInputs,
    root_words: InputWords,
    growth_words: InputWords,
    places: Places,
    sent: PinnedBlock,
    results: PinnedBlock,
    _memory: DeviceBlock,
}

impl Phase {
    pub(super) fn new(replay: &mut CudaReplay, shape: PhaseShape) -> Result<Self, BackendError> {
        let executables = Arc::clone(replay.executables());
        let programs = executables.programs_slice();
        let (root, growth) = (&programs[shape.root_program], &programs[shape.growth_program]);
        let most = root.shown.columns / 2;
        assert!(
            shape.depth >= 1 && (1..=growth.binding.width).contains(&shape.width) && root.binding.width == 1,
            "{shape:?} of programs of {} rows and {}",
            root.binding.width,
            growth.binding.width
        );
        assert!((1..=most).contains(&shape.kept), "{} candidates of {most}", shape.kept);
        for program in [root, growth] {
            assert_eq!(program.shown.columns, candidate_columns(most), "the programs show candidates");
        }
        assert!(
            shape.depth <= replay.options().tail_capacity,
            "rows have room for {} ancestors",
            shape.depth
        );
        let [root_words, growth_words] = [root, growth].map(|p| InputWords::of(p, replay.options()));
        let places = Places::of(&shape, root_words.words(), growth_words.words());
        let device = Arc::clone(executables.device());
        let memory = DeviceBlock::new(&device, places.bytes, "a draft phase")?;
        let rows = |p: &Program, words: InputWords| {
            RowInputs::new(p.binding.width, p.binding.outputs, words.tail_capacity())
        };
        let mut phase = Self {
            graphs: Vec::with_capacity(shape.depth),
            shape,
            root_rows: rows(root, root_words),
            growth_rows: rows(growth, growth_words),
            root_words,
            growth_words,
            sent: PinnedBlock::new(&device, places.sent_words, "the root of a draft phase")?,
            results: PinnedBlock::new(&device, tree_words(shape.nodes()), "a tree")?,
            places,
            _memory: memory,
        };
        let at = |offset: usize| phase._memory.at(0, 0) + offset as u64;
        let (sent_at, tree_at) = (at(phase.places.root_inputs), at(phase.places.tree));
        let forwards = [
            replay.launches(root, at(phase.places.root_inputs))?,
            replay.launches(growth, at(phase.places.growth_inputs))?,
        ];
        let grow = |program: &Program, is_first: bool, goes_on: bool| {
            let params = phase.growth(program, growth, replay.arena(), is_first, goes_on);
            growth_launch(&device, params)
        };
        // The growth behind the root's forward and behind another's; each as the last of a phase, and as one that goes on.
        let first = [grow(root, true, false)?, grow(root, true, true)?];
        let next = [grow(growth, false, false)?, grow(growth, false, true)?];
        let nothing = vec![false; root.groups as usize];
        phase.fill(PhaseRoot { token: 0, committed: 0, choice: crate::ir::Choice::ARGMAX }, &nothing);
        for depth in 1..=shape.depth {
            let behind = |growth: usize| usize::from(growth + 1 < depth);
            let launches = || {
                let root = forwards[0].iter().flatten().chain([&first[behind(0)]]);
                let others = (1..depth)
                    .flat_map(|growth| forwards[1].iter().flatten().chain(iter::once(&next[behind(growth)])));
                root.chain(others)
            };
            let (sent, results) = (&phase.sent, &mut phase.results);
            let mut work = |replay: &mut CudaReplay| -> Result<(), BackendError> {
                let stream = replay.stream();
                // SAFETY: inside the phase's memory; the host's words live as long as the graph, and are changed between launches only.
                let copied = unsafe { result::memcpy_htod_async(sent_at, sent.words(), stream.cu_stream()) };
                check("send the root", copied)?;
                launches().try_for_each(|launch| launch.on(stream))?;
                // SAFETY: as above; they are read after the stream has been waited for.
                let copied =
                    unsafe { result::memcpy_dtoh_async(results.words_mut(), tree_at, stream.cu_stream()) };
                check("fetch a tree", copied)
            };
            if device.is_cold(launches()) {
                work(replay)?;
                check("run a draft phase", replay.stream().synchronize())?;
            }
            let graph = replay.capture(&mut work)?;
            phase.graphs.push(graph);
        }
        Ok(phase)
    }

    fn growth(
        &self,
        program: &Program,
        growth: &Program,
        arena: u64,
        is_first: bool,
        goes_on: bool,
    ) -> YggGrow {
        let at = |offset: usize| self._memory.at(0, 0) + offset as u64;
        let word = |offset: usize, word: usize| (at(offset) + (word * size_of::<u32>()) as u64) as *mut u32;
        let nodes = self.shape.nodes();
        let array = |i: usize| word(self.places.tree, COUNTS + i * nodes);
        let input = |i: usize| word(self.places.growth_inputs, i);
        let words = &self.growth_words;
        let shown = &program.shown;
        YggGrow {
            tree: YggTree {
                counts: word(self.places.tree, 0),
                tokens: array(0),
                parents: array(1),
                ranks: array(2),
                scores: array(3).cast(),
                depths: word(self.places.depths, 0),
                offered: word(self.places.offered, 0).cast(),
                offers: word(self.places.offers, 0),
            },
            candidates: YggRows {
                data: (arena + shown.offset_bytes as u64) as *mut f32,
                rows: number(shown.rows),
                columns: number(shown.columns),
                stride: number(shown.row_stride),
            },
            most: number(shown.columns / 2),
            kept: number(self.shape.kept),
            width: number(self.shape.width),
            is_first: u32::from(is_first),
            root: word(self.places.root, 0),
            rows: if goes_on { number(growth.binding.width) } else { 0 },
            tail_capacity: number(words.tail_capacity()),
            tokens: input(words.tokens()),
            positions: input(words.positions()),
            slots: input(words.slots()),
            prefix: input(words.prefix()),
            tail_len: input(words.tail_len()),
            tails: input(words.tails()),
        }
    }

    /// Writes what the host sends.
    fn fill(&mut self, root: PhaseRoot, skipped: &[bool]) {
        let PhaseRoot { token, committed, choice } = root;
        assert!(choice.k <= self.shape.kept, "{} candidates of {}", choice.k, self.shape.kept);
        self.root_rows.clear();
        self.root_rows.push(token, committed, committed, committed, |tail| {
            tail[0] = committed;
            1
        });
        self.root_rows.set_choice(choice);
        self.growth_rows.set_choice(choice);
        let place = |bytes: usize| bytes / size_of::<u32>();
        let words = self.sent.words_mut();
        self.root_words.write(&self.root_rows, skipped, &mut words[place(self.places.root_inputs)..]);
        self.growth_words.write(&self.growth_rows, skipped, &mut words[place(self.places.growth_inputs)..]);
        words[place(self.places.root)..][..2].copy_from_slice(&[token, committed]);
    }

    /// The graph of phases of this depth from this root.
    ///
    /// # Panics
    /// If the tree may leave the context: its kernels would not notice.
    pub(super) fn graph(
        &mut self,
        depth: usize,
        root: PhaseRoot,
        skipped: &[bool],
        options: &ReplayOptions,
    ) -> &Graph {
        let SlotLayout { context, .. } = options.layout;
        let (committed, nodes) = (root.committed as usize, depth * self.shape.width + 1);
        assert!(
            (1..=self.shape.depth).contains(&depth)
                && committed + depth <= context
                && committed + nodes <= options.layout.slots(),
            "{depth} growths of {} behind {committed} of {context} tokens",
            self.shape.depth
        );
        self.fill(root, skipped);
        &self.graphs[depth - 1]
    }

    /// What the last launch grew.
    pub(super) fn grown(&self) -> Grown<'_> {
        let nodes = self.shape.nodes();
        let count = self.results.words()[0] as usize;
        let array = |i: usize| COUNTS + i * nodes..COUNTS + i * nodes + count;
        let words = self.results.words();
        Grown {
            tokens: &words[array(0)],
            parents: &words[array(1)],
            ranks: &words[array(2)],
            scores: &self.results.floats()[array(3)],
        }
    }
}

fn growth_launch(device: &Device, params: YggGrow) -> Result<Launch, BackendError> {
    Launch::new(device, "ygg_grow", [1, 1, 1], YGG_MERGE_THREADS, 0, params)
}
