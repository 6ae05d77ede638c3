//! Verifications in one launch: the graph of a forward, with the race of the tokens if they are drawn, the walk through
//! its tree and the move of what is accepted.

use std::{any::Any, sync::Arc};

use cudarc::driver::{CudaEvent, result};
use ygg_kernels::{
    candidates::candidate_columns,
    cuda::abi::{YGG_MERGE_THREADS, YGG_WARP, YggPath, YggPrune, YggWalk},
};

use crate::ir::{Program, ProgramId, RowInputs};

use super::{
    super::{Accepted, BackendError, Executables, GrowingTree, Replay, VerificationId, Verifications},
    candidates::{Decider, PerDecider},
    capture::Graph,
    device::{Device, DeviceBlock, Launch, PinnedBlock, check},
    layout::{InputWords, kernel_rows, number},
    phase::{TreeOnDevice, node_rows},
    replay::CudaReplay,
};

/// A verification ready to run. The graphs come first: they end before what they use.
pub(super) struct Verification {
    program: ProgramId,
    shows_hidden: bool,
    /// By what the verifier's tokens are decided.
    graphs: PerDecider<Graph>,
    words: ResultWords,
    results: PinnedBlock,
    _memory: DeviceBlock,
    best: Option<BestOf>,
}

/// The best nodes of a tree that a device grows.
#[derive(Clone)]
struct BestOf {
    tree: Arc<TreeOnDevice>,
    width: usize,
}

impl BestOf {
    /// # Panics
    /// If the tree is on another device.
    fn new(GrowingTree(tree): &GrowingTree, width: usize) -> Self {
        let tree: Arc<dyn Any + Send + Sync> = Arc::clone(tree) as _;
        Self { tree: tree.downcast().expect("a tree on this device"), width }
    }
}

/// Words of what a verification leaves, for a forward of `width` rows: a path through its rows (how many there are,
/// then which, then what the verifier says after each), then which nodes the rows were of (how many, then which).
#[derive(Clone, Copy)]
struct ResultWords {
    width: usize,
    rows: usize,
    tokens: usize,
    count: usize,
    nodes: usize,
    words: usize,
}

impl ResultWords {
    fn of(width: usize) -> Self {
        let (rows, count) = (1, 1 + 2 * width);
        Self { width, rows, tokens: rows + width, count, nodes: count + 1, words: count + 1 + width }
    }

    /// The path as a parameter of kernels.
    fn path_at(self, memory: &DeviceBlock) -> YggPath {
        let word = |word: usize| word_of(memory, word);
        YggPath { count: word(0), rows: word(self.rows), tokens: word(self.tokens) }
    }
}

fn word_of(memory: &DeviceBlock, word: usize) -> *mut u32 {
    memory.at(word * size_of::<u32>(), 0) as *mut u32
}

impl Verification {
    fn new(
        replay: &mut CudaReplay,
        program: ProgramId,
        shows_hidden: bool,
        best: Option<BestOf>,
    ) -> Result<Self, BackendError> {
        let executables = Arc::clone(&replay.executables);
        let (device, number) = (&executables.device, program);
        let program = &executables.programs()[number];
        let shown = &program.shown;
        assert_eq!(
            (shown.rows, shown.columns),
            (program.binding.width, candidate_columns(shown.columns / 2)),
            "the program shows candidates of all rows"
        );
        let words = ResultWords::of(program.binding.width);
        // After the results, what pruning notes of each node.
        let noted = best.as_ref().map_or(0, |best| best.tree.nodes());
        let memory = DeviceBlock::new(device, (words.words + noted) * size_of::<u32>(), "a path")?;
        let mut results = PinnedBlock::new(device, words.words, "a path")?;
        let inputs =
            Inputs { at: replay.inputs_at(number), words: InputWords::of(program, &replay.ground.options) };
        let path = words.path_at(&memory);
        let prune =
            best.as_ref().map(|best| prune_launch(device, best, words, &memory, inputs)).transpose()?;
        let walk = walk_launch(device, program, replay.ground.arena, inputs, path)?;
        let row_slots = inputs.word(inputs.words.slots);
        let moves = replay.ground.cache.path_moves(device, row_slots, path)?;
        let race = replay.race(number)?;
        let race_of = |decider| match decider {
            Decider::Logits => &[][..],
            Decider::Noise => &race,
        };
        let mut work = |replay: &mut CudaReplay, decider| -> Result<(), BackendError> {
            match &prune {
                None => replay.forward(number, Decider::Logits)?,
                Some(prune) => replay.forward_of_rows_by(number, prune)?,
            }
            race_of(decider).iter().try_for_each(|race| race.on(&replay.stream))?;
            walk.on(&replay.stream)?;
            moves.iter().try_for_each(|moves| moves.on(&replay.stream))?;
            // Copies come last: a kernel that may begin early cannot come right after one.
            if shows_hidden {
                replay.fetch_hidden(number)?;
            }
            let stream = &replay.stream;
            // SAFETY: inside the block; the host's words live as long as the graph, and are read after the stream has
            // been waited for.
            let copied = unsafe {
                result::memcpy_dtoh_async(results.words_mut(), memory.at(0, 0), stream.cu_stream())
            };
            check("fetch a path", copied)
        };
        replay.write_rows(inputs.words, &inputs.words.first_root());
        let streams = replay.streams(number);
        let graphs = PerDecider::new(|decider| {
            let mut work = |replay: &mut CudaReplay| work(replay, decider);
            if device.is_cold(prune.iter().chain(race_of(decider)).chain([&walk]).chain(&moves)) {
                replay.try_once(streams, "run a verification", &mut work)?;
            }
            replay.capture(streams, &mut work)
        })?;
        Ok(Self { program: number, shows_hidden, graphs, words, results, _memory: memory, best })
    }

    /// Whether it is the verification by a program that shows as much, of the best nodes of a tree if there is one.
    fn is_of(&self, program: ProgramId, shows_hidden: bool, best: Option<&BestOf>) -> bool {
        let is_same = match (&self.best, best) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(&own.tree, &other.tree) && own.width == other.width,
            (Some(_), None) | (None, Some(_)) => false,
        };
        is_same && (self.program, self.shows_hidden) == (program, shows_hidden)
    }

    /// Comes when the tree that it verifies has grown.
    ///
    /// # Panics
    /// If it is not of a tree that a device grows.
    fn grown(&self) -> &CudaEvent {
        &self.best.as_ref().expect("a verification of a grown tree").tree.grown
    }

    fn graph(&self, decider: Decider) -> &Graph {
        self.graphs.of(decider)
    }

    /// What the last launch accepted.
    fn accepted(&self) -> Accepted<'_> {
        let words = self.results.words();
        let count = words[0] as usize;
        Accepted { rows: &words[self.words.rows..][..count], tokens: &words[self.words.tokens..][..count] }
    }

    /// The nodes that the last launch verified, by rows.
    fn kept(&self) -> &[u32] {
        let words = self.results.words();
        &words[self.words.nodes..][..words[self.words.count] as usize]
    }
}

/// Where the inputs of a forward are.
#[derive(Clone, Copy)]
struct Inputs {
    at: u64,
    words: InputWords,
}

impl Inputs {
    fn word(&self, word: usize) -> *const u32 {
        (self.at + (word * size_of::<u32>()) as u64) as *const u32
    }
}

/// The kernel that makes the best nodes of a tree the rows of a forward, begun after a copy.
fn prune_launch(
    device: &Device,
    best: &BestOf,
    words: ResultWords,
    memory: &DeviceBlock,
    inputs: Inputs,
) -> Result<Launch, BackendError> {
    assert!((1..=words.width).contains(&best.width), "{} rows of {}", best.width, words.width);
    let params = YggPrune {
        tree: best.tree.kernel_tree(),
        width: number(best.width),
        is_kept: word_of(memory, words.words),
        count: word_of(memory, words.count),
        nodes: word_of(memory, words.nodes),
        next: node_rows(inputs.at, inputs.words, words.width),
    };
    Ok(Launch::new(device, "ygg_prune", [1, 1, 1], YGG_MERGE_THREADS, 0, params)?.alone())
}

fn walk_launch(
    device: &Device,
    program: &Program,
    arena: u64,
    inputs: Inputs,
    path: YggPath,
) -> Result<Launch, BackendError> {
    let words = inputs.words;
    let params = YggWalk {
        candidates: kernel_rows(arena, &program.shown),
        tokens: inputs.word(words.tokens),
        slots: inputs.word(words.slots),
        tail_len: inputs.word(words.tail_len),
        tails: inputs.word(words.tails),
        tail_capacity: number(words.tail_capacity),
        path,
    };
    Launch::new(device, "ygg_walk", [1, 1, 1], YGG_WARP, 0, params)
}

/// What a verification accepts on a device that has failed: the root.
const NOTHING_ACCEPTED: Accepted<'static> = Accepted { rows: &[0], tokens: &[0] };

impl CudaReplay {
    /// The verification by a program, of the best nodes of a grown tree if one is named.
    fn verification(
        &self,
        program: ProgramId,
        shows_hidden: bool,
        best: Option<&BestOf>,
    ) -> Option<VerificationId> {
        let mut known = self.verifications.pairs();
        known.find_map(|(id, known)| known.is_of(program, shows_hidden, best).then_some(id))
    }
}

impl Verifications for CudaReplay {
    fn prepare(&mut self, program: ProgramId, shows_hidden: bool) -> Result<(), BackendError> {
        if self.verification(program, shows_hidden, None).is_none() {
            let verification = Verification::new(self, program, shows_hidden, None)?;
            self.verifications.push(verification);
        }
        Ok(())
    }

    fn prepare_grown(
        &mut self,
        program: ProgramId,
        width: usize,
        shows_hidden: bool,
        tree: &GrowingTree,
    ) -> Result<VerificationId, BackendError> {
        let best = BestOf::new(tree, width);
        if let Some(known) = self.verification(program, shows_hidden, Some(&best)) {
            return Ok(known);
        }
        let verification = Verification::new(self, program, shows_hidden, Some(best))?;
        Ok(self.verifications.push(verification))
    }

    fn verify_grown(&mut self, verification: VerificationId, inputs: &RowInputs) {
        self.write_verified(self.verifications[verification].program, inputs);
        self.attempt(|replay| {
            let verification = &replay.verifications[verification];
            check("wait for a tree", replay.stream.wait(verification.grown()))?;
            verification.graph(Decider::of(inputs)).launch("launch a verification")?;
            check("run a verification", replay.stream.synchronize())
        });
    }

    fn grown_accepted(&self, verification: VerificationId) -> (&[u32], Accepted<'_>) {
        if self.failure().is_some() {
            return (&[0], NOTHING_ACCEPTED);
        }
        let verification = &self.verifications[verification];
        (verification.kept(), verification.accepted())
    }

    fn verify(&mut self, program: ProgramId, shows_hidden: bool, inputs: &RowInputs) -> Accepted<'_> {
        assert!(inputs.used() > 0, "a tree has a root");
        self.write_verified(program, inputs);
        let place = self.verification(program, shows_hidden, None).expect("the program was prepared");
        self.attempt(|replay| {
            let verification = &replay.verifications[place];
            verification.graph(Decider::of(inputs)).launch("launch a verification")?;
            check("run a verification", replay.stream.synchronize())
        });
        if self.failure().is_some() { NOTHING_ACCEPTED } else { self.verifications[place].accepted() }
    }
}
