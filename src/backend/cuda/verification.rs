//! Verifications in one launch: the graph of a forward with the walk through its tree and the move of what is accepted behind it.

use std::sync::Arc;

use cudarc::driver::result;
use ygg_kernels::{
    candidates::candidate_columns,
    cuda::abi::{YGG_WARP, YggPath, YggRows, YggWalk},
};

use crate::ir::Program;

use super::{
    super::{Accepted, BackendError},
    device::{Device, DeviceBlock, Launch, PinnedBlock, check},
    layout::InputWords,
    replay::{CudaReplay, Graph},
};

/// A verification ready to run. The graph comes first: it ends before what it uses.
pub(super) struct Verification {
    pub(super) program: usize,
    pub(super) shows_hidden: bool,
    graph: Graph,
    path: PathWords,
    results: PinnedBlock,
    _memory: DeviceBlock,
}

/// Words of a path through a forward's rows: how many there are, then which, then what the verifier says behind each.
#[derive(Clone, Copy)]
struct PathWords {
    width: usize,
}

impl PathWords {
    fn rows(self) -> usize {
        1
    }

    fn tokens(self) -> usize {
        1 + self.width
    }

    fn words(self) -> usize {
        1 + 2 * self.width
    }

    /// As kernels are told of them.
    fn at(self, memory: &DeviceBlock) -> YggPath {
        let word = |word: usize| memory.at(word * size_of::<u32>(), 0) as *mut u32;
        YggPath { count: word(0), rows: word(self.rows()), tokens: word(self.tokens()) }
    }
}

impl Verification {
    pub(super) fn new(
        replay: &mut CudaReplay,
        program: usize,
        shows_hidden: bool,
    ) -> Result<Self, BackendError> {
        let executables = Arc::clone(replay.executables());
        let (device, number) = (executables.device(), program);
        let program = &executables.programs_slice()[number];
        let shown = &program.shown;
        assert_eq!(
            (shown.rows, shown.columns),
            (program.binding.width, candidate_columns(shown.columns / 2)),
            "the program shows candidates of all rows"
        );
        let path = PathWords { width: program.binding.width };
        let memory = DeviceBlock::new(device, path.words() * size_of::<u32>(), "a path")?;
        let mut results = PinnedBlock::new(device, path.words(), "a path")?;
        let inputs =
            Inputs { at: replay.inputs_at(number), words: InputWords::of(program, replay.options()) };
        let walk = walk_launch(device, program, replay.arena(), inputs, path.at(&memory))?;
        let row_slots = inputs.word(inputs.words.slots());
        let moves = replay.cache().path_moves(device, row_slots, path.at(&memory))?;
        let mut work = |replay: &mut CudaReplay| -> Result<(), BackendError> {
            replay.forward(number)?;
            if shows_hidden {
                replay.fetch_hidden(number)?;
            }
            let stream = replay.stream();
            walk.on(stream)?;
            moves.on(stream)?;
            // SAFETY: the whole block; the host's words live as long as the graph, and are read after the stream has been waited for.
            let copied = unsafe {
                result::memcpy_dtoh_async(results.words_mut(), memory.at(0, 0), stream.cu_stream())
            };
            check("fetch a path", copied)
        };
        replay.clear_inputs(program, inputs.words);
        if device.is_cold([&walk, &moves]) {
            work(replay)?;
            check("run a verification", replay.stream().synchronize())?;
        }
        let graph = replay.capture(&mut work)?;
        Ok(Self { program: number, shows_hidden, graph, path, results, _memory: memory })
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What the last launch accepted.
    pub(super) fn accepted(&self) -> Accepted<'_> {
        let words = self.results.words();
        let count = words[0] as usize;
        Accepted { rows: &words[self.path.rows()..][..count], tokens: &words[self.path.tokens()..][..count] }
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

fn number(n: usize) -> u32 {
    u32::try_from(n).expect("sizes of a forward are far below 2^32")
}

fn walk_launch(
    device: &Device,
    program: &Program,
    arena: u64,
    inputs: Inputs,
    path: YggPath,
) -> Result<Launch, BackendError> {
    let (shown, words) = (&program.shown, inputs.words);
    let params = YggWalk {
        candidates: YggRows {
            data: (arena + shown.offset_bytes as u64) as *mut f32,
            rows: number(shown.rows),
            columns: number(shown.columns),
            stride: number(shown.row_stride),
        },
        tokens: inputs.word(words.tokens()),
        slots: inputs.word(words.slots()),
        tail_len: inputs.word(words.tail_len()),
        tails: inputs.word(words.tails()),
        tail_capacity: number(words.tail_capacity()),
        path,
    };
    Launch::new(device, "ygg_walk", [1, 1, 1], YGG_WARP, 0, params)
}
