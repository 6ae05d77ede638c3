//! Where things lie in the block of device memory that one request has.

use cudarc::driver::{CudaStream, result};
use ygg_kernels::{ConvLayer, KvFormat};

use crate::ir::{KvSpec, Program};

use super::{
    super::{BackendError, ReplayOptions},
    cache::keys_and_values,
    device::{DeviceBlock, check},
    layout::{Bump, InputWords, words_left},
    scratch::ScratchBytes,
    states::StateSizes,
};

/// Where things lie in the block of a replay.
pub(super) struct Places {
    pub(super) arena: usize,
    pub(super) inputs: usize,
    pub(super) cache: usize,
    /// What convolutions keep.
    pub(super) kept: usize,
    /// What recurrences keep of rows, their states, after how many rows each of these is, states that a walk saves, and
    /// the walk.
    pub(super) states: [usize; 5],
    pub(super) ropes: Vec<usize>,
    pub(super) fragments: [usize; 2],
    pub(super) parts: usize,
    pub(super) pieces: usize,
    pub(super) logits: usize,
    pub(super) partial: [usize; 3],
    pub(super) ranges: [usize; 5],
    /// Two words that kernels write when they must not be optimised away.
    pub(super) sink: usize,
    pub(super) bytes: usize,
    /// Of the host: words of the longest inputs and of the longest results.
    pub(super) input_words: usize,
    pub(super) result_words: usize,
}

impl Places {
    pub(super) fn of(programs: &[Program], kv_format: KvFormat, options: &ReplayOptions) -> Self {
        let first = &programs[0];
        let context = options.layout.context;
        let scratch = programs.iter().map(|p| ScratchBytes::of(p, context)).reduce(ScratchBytes::max);
        let scratch = scratch.expect("at least one program");
        let longest = |of: &dyn Fn(&Program) -> usize| programs.iter().map(of).max().unwrap_or(0);
        let input_words = longest(&|p| InputWords::of(p, options).words);
        let result_words = longest(&words_left);
        let (slots, KvSpec { layers, conv, .. }) = (options.layout.slots(), first.kv);
        let [cache_bytes, _] = keys_and_values(&first.kv, layers, slots, kv_format);
        let states = StateSizes::of(&first.kv, options);
        let walk_bytes = longest(&|p| states.walk_bytes(p.binding.width, options.tail_capacity));
        let mut bump = Bump::default();
        let mut places = Self {
            arena: bump.take(longest(&|p| p.arena_bytes)),
            inputs: bump.take(input_words * size_of::<u32>()),
            cache: bump.take(cache_bytes),
            kept: bump.take(conv.layers * ConvLayer::bytes(slots, conv.channels)),
            states: [
                states.kept_bytes(),
                states.matrices_bytes(),
                states.held_bytes(),
                states.saved_bytes(),
                walk_bytes,
            ]
            .map(|bytes| bump.take(bytes)),
            ropes: first
                .ropes
                .iter()
                .map(|r| bump.take(2 * context * r.inv_freq.len() * size_of::<f32>()))
                .collect(),
            fragments: [scratch.fragments; 2].map(|bytes| bump.take(bytes)),
            parts: bump.take(scratch.parts),
            pieces: bump.take(scratch.pieces),
            logits: bump.take(scratch.logits),
            partial: scratch.partial.map(|bytes| bump.take(bytes)),
            ranges: scratch.ranges.map(|bytes| bump.take(bytes)),
            sink: bump.take(2 * size_of::<u32>()),
            bytes: 0,
            input_words,
            result_words,
        };
        places.bytes = bump.bytes();
        places
    }
}

/// Bytes of device memory that a replay takes.
pub(super) fn replay_bytes(programs: &[Program], kv_format: KvFormat, options: &ReplayOptions) -> usize {
    Places::of(programs, kv_format, options).bytes
}

pub(super) fn upload_ropes(
    program: &Program,
    places: &Places,
    memory: &DeviceBlock,
    context: usize,
    stream: &CudaStream,
) -> Result<(), BackendError> {
    let tables = crate::backend::rope_tables(program, context);
    for ((table, spec), offset) in tables.iter().zip(&program.ropes).zip(&places.ropes) {
        let pairs = spec.inv_freq.len();
        let angles = || (0..context).flat_map(|p| (0..pairs).map(move |i| table.angle(p, i)));
        let both: Vec<f32> = angles().map(|(cos, _)| cos).chain(angles().map(|(_, sin)| sin)).collect();
        let to = memory.at(*offset, both.len() * size_of::<f32>());
        // SAFETY: inside the block; the host's floats live until the stream has been waited for.
        check("upload rotary tables", unsafe { result::memcpy_htod_async(to, &both, stream.cu_stream()) })?;
        check("upload rotary tables", stream.synchronize())?;
    }
    Ok(())
}
