//! The threads that read, and what they read.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering,
    thread,
};

use ygg_kernels::cpu;

use crate::{
    ir::{PAGE, Staging},
    packed::PackedFile,
};

use super::{BackendError, FAILED, Shared, Unit, UnitId};

/// Bytes of one read: many pages, so that a request's own time is small, and a part of a matrix, so that all readers
/// work on the one that is needed next.
pub(super) const CHUNK: usize = 1 << 20;

/// A part of a matrix that one read brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its first byte, from the begin of the file's weights: a page's.
    pub(super) start: u64,
    /// Its bytes. The rest of its last page is read where the file has it.
    pub(super) bytes: usize,
    /// Where it goes: the begin of a page.
    pub(super) at: usize,
}

/// A part of a matrix of the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The matrix.
    pub(super) unit: UnitId,
    part: Part,
}

/// All reads of one forward, in order.
pub(super) fn chunks(units: &[Unit], staging: &Staging) -> Vec<Chunk> {
    let of = |((unit, matrix), place): ((usize, &Unit), &crate::ir::StagingPlace)| {
        let (Unit { start, bytes }, place) = (matrix.clone(), place.clone());
        (0..bytes).step_by(CHUNK).map(move |first| {
            let bytes = (bytes - first).min(CHUNK);
            let part = Part { start: start + first as u64, bytes, at: place.at.start + first };
            Chunk { unit: UnitId(unit), part }
        })
    };
    units.iter().enumerate().zip(&staging.places).flat_map(of).collect()
}

/// Does the work of a reader; says what went wrong, if something did.
pub(super) fn guarded(work: impl FnOnce() -> io::Result<()>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("a thread that reads them has panicked".to_owned()),
    }
}

/// Reads chunk after chunk of the endless sequence until it is stopped or something fails.
pub(super) fn read(shared: &Shared, reader: usize) {
    let work = || {
        while !shared.stop.load(Ordering::Acquire) && !shared.has_failed.load(Ordering::Acquire) {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            let count = shared.chunks.len() as u64;
            let (forward, chunk) = (number / count, &shared.chunks[(number % count) as usize]);
            let sequence = forward * shared.behind.len() as u64 + chunk.unit.0 as u64;
            let needs = (sequence + 1).saturating_sub(shared.behind[chunk.unit.0]);
            if !wait_for_releases(shared, reader, needs) {
                return Ok(());
            }
            // SAFETY: chunks lie apart, and what this one overwrites is released: no worker reads it, and no other
            // reader writes there, as the matrices that were there were delivered before they were released.
            unsafe { chunk.part.fetch(&shared.file, &shared.memory) }?;
            if shared.left[chunk.unit.0].fetch_sub(1, Ordering::AcqRel) == 1 {
                // The next reading of the matrix begins only once this one is released.
                shared.left[chunk.unit.0].store(shared.whole[chunk.unit.0], Ordering::Relaxed);
                let delivered = &shared.delivered[chunk.unit.0];
                // In vain if the workers have given it up.
                let _ = delivered.compare_exchange(forward, forward + 1, Ordering::AcqRel, Ordering::Acquire);
            }
        }
        Ok(())
    };
    let Some(reason) = guarded(work) else { return };
    // The first failure is told.
    let _ = shared.failure.set(BackendError::Stream { path: shared.file.path.clone(), reason });
    shared.has_failed.store(true, Ordering::Release);
}

/// Waits until so many matrices of the sequence are released; says whether reading goes on then.
fn wait_for_releases(shared: &Shared, reader: usize, needs: u64) -> bool {
    let waiting = &shared.waiting[reader].needs;
    let goes_on = || !shared.stop.load(Ordering::SeqCst) && !shared.has_failed.load(Ordering::Acquire);
    while shared.released.load(Ordering::SeqCst) < needs && goes_on() {
        waiting.store(needs, Ordering::SeqCst);
        // Whoever releases reads what this reader needs after the release, so one of both sees the other.
        if shared.released.load(Ordering::SeqCst) < needs && goes_on() {
            thread::park();
        }
        waiting.store(FAILED, Ordering::SeqCst);
    }
    goes_on()
}

impl Part {
    /// Reads it into its place.
    ///
    /// # Safety
    /// Nobody else uses the pages of its place meanwhile.
    pub(super) unsafe fn fetch(&self, file: &PackedFile, memory: &cpu::Staging) -> io::Result<()> {
        let Self { start, bytes, at } = *self;
        // SAFETY: the caller's promise.
        let place = unsafe { memory.part(at..at + bytes.next_multiple_of(PAGE)) };
        let offset = file.start + start;
        let mut done = 0;
        while done < bytes {
            match file.read_at(&mut place[done..], offset + done as u64) {
                Ok(read) => {
                    let end = done + read;
                    // A direct read goes on at a page only.
                    let goes_on_at = if file.is_direct && end < bytes { end - end % PAGE } else { end };
                    if goes_on_at == done {
                        return Err(io::Error::other(format!(
                            "expected {} bytes or more, found {}: it was cut",
                            offset + bytes as u64,
                            offset + end as u64
                        )));
                    }
                    done = goes_on_at;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
