//! What the host moves, keeps and forgets of slots and states between forwards.

use std::ops::Range;

use cudarc::driver::CudaStream;
use ygg_kernels::cuda::abi::{YGG_MOST_WIDTH, YggMoves};

use super::{
    super::{BackendError, Replay, SlotMoves},
    cache::MovedSlots,
    replay::CudaReplay,
    states::States,
};

impl CudaReplay {
    fn move_slots(&mut self, slots: Range<u32>, host: MovedSlots<'_>) {
        self.finish();
        self.attempt(|replay| {
            replay.executables.device.bind()?;
            replay.ground.cache.move_slots(slots, host, &replay.stream)
        });
    }

    /// What the states say once nothing runs; `without` where rows have none.
    fn of_states<T: Default>(
        &mut self,
        without: T,
        ask: impl FnOnce(&States, &CudaStream) -> Result<T, BackendError>,
    ) -> T {
        if self.ground.states.sizes.layers == 0 {
            return without;
        }
        self.finish();
        self.attempt(|replay| {
            replay.executables.device.bind()?;
            ask(&replay.ground.states, &replay.stream)
        })
    }
}

impl SlotMoves for CudaReplay {
    fn copy_slots(&mut self, from: &[u32], first: u32) {
        self.attempt(|replay| {
            replay.executables.device.bind()?;
            let chunks = from.chunks(YGG_MOST_WIDTH as usize);
            for (chunk, first) in chunks.zip((first..).step_by(YGG_MOST_WIDTH as usize)) {
                for moves in &mut replay.moves {
                    // SAFETY: made with this structure.
                    let params = unsafe { moves.params_mut::<YggMoves>() };
                    params.first = first;
                    params.count = u32::try_from(chunk.len()).expect("few moves");
                    params.from[..chunk.len()].copy_from_slice(chunk);
                    moves.on(&replay.stream)?;
                }
            }
            Ok(())
        });
    }

    fn moved_bytes(&self, slots: usize) -> usize {
        self.ground.cache.moved_bytes(slots)
    }

    fn read_slots(&mut self, slots: Range<u32>, bytes: &mut [u8]) {
        self.move_slots(slots, MovedSlots::Fetched(bytes));
    }

    fn write_slots(&mut self, slots: Range<u32>, bytes: &[u8]) {
        self.move_slots(slots, MovedSlots::Sent(bytes));
    }

    fn resume_point(&mut self, len: usize) -> usize {
        self.of_states(len, |states, stream| states.resume_point(len, stream))
    }

    fn forget(&mut self, len: usize) {
        self.of_states((), |states, stream| states.forget(len, stream));
    }

    fn assume(&mut self, len: usize) {
        self.of_states((), |states, stream| states.assume(len, stream));
    }

    fn state_bytes(&self) -> usize {
        self.ground.states.moved_bytes()
    }

    fn state_end(&mut self) -> Option<usize> {
        self.of_states(None, |states, stream| states.state_end(stream))
    }

    fn read_state(&mut self, end: usize, bytes: &mut [u8]) {
        self.of_states((), |states, stream| states.read(end, bytes, stream));
    }

    fn write_state(&mut self, end: usize, bytes: &[u8]) {
        self.of_states((), |states, stream| states.write(end, bytes, stream));
    }
}
