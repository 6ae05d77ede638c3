//! The threads that read, and what they read.

use std::{
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::Ordering,
    thread,
};

use crate::ir::{PAGE, Staging};

use super::{BackendError, FAILED, Shared, Unit, UnitId};

/// Bytes of one read: many pages, so that a request's own time is small, and a part of a matrix, so that all readers
/// work on the one that is needed next.
const CHUNK: u64 = 1 << 20;

/// A part of a matrix that one read brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The matrix.
    pub(super) unit: UnitId,
    /// Bytes of the file: whole pages.
    file: Range<u64>,
    /// The bytes of them that are the matrix's: a file may end within its last page.
    needed: Range<u64>,
    /// Where the first page goes.
    at: usize,
}

/// All reads of one forward, in order.
pub(super) fn chunks(units: &[Unit], staging: &Staging) -> Vec<Chunk> {
    let page = PAGE as u64;
    let of = |((unit, Unit { start, bytes }), place): ((usize, &Unit), &crate::ir::StagingPlace)| {
        let needed = *start..start + *bytes as u64;
        let pages = start / page * page..needed.end.next_multiple_of(page);
        let place = place.at.start;
        (pages.start..pages.end).step_by(CHUNK as usize).map(move |first| {
            let file = first..(first + CHUNK).min(pages.end);
            let needed = file.start.max(needed.start)..file.end.min(needed.end);
            Chunk { unit: UnitId(unit), file, needed, at: place + (first - pages.start) as usize }
        })
    };
    units.iter().enumerate().zip(&staging.places).flat_map(of).collect()
}

/// Reads chunk after chunk of the endless sequence until it is stopped or something fails.
pub(super) fn read(shared: &Shared, reader: usize) {
    let work = AssertUnwindSafe(|| {
        while !shared.stop.load(Ordering::Acquire) && !shared.has_failed.load(Ordering::Acquire) {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            let count = shared.chunks.len() as u64;
            let (forward, chunk) = (number / count, &shared.chunks[(number % count) as usize]);
            let sequence = forward * shared.behind.len() as u64 + chunk.unit.0 as u64;
            let needs = (sequence + 1).saturating_sub(shared.behind[chunk.unit.0]);
            if !wait_for_releases(shared, reader, needs) {
                return Ok(());
            }
            fetch(shared, chunk)?;
            if shared.left[chunk.unit.0].fetch_sub(1, Ordering::AcqRel) == 1 {
                // The next reading of the matrix begins only once this one is released.
                shared.left[chunk.unit.0].store(shared.whole[chunk.unit.0], Ordering::Relaxed);
                let delivered = &shared.delivered[chunk.unit.0];
                // In vain if the workers have given it up.
                let _ = delivered.compare_exchange(forward, forward + 1, Ordering::AcqRel, Ordering::Acquire);
            }
        }
        Ok::<(), io::Error>(())
    });
    let failure = match catch_unwind(work) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "a thread that reads them has panicked".to_owned(),
    };
    // The first failure is told.
    let _ = shared.failure.set(BackendError::Stream { path: shared.file.path.clone(), reason: failure });
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

/// Reads a chunk into its place.
fn fetch(shared: &Shared, chunk: &Chunk) -> io::Result<()> {
    let Chunk { unit: _, file: pages, needed, at } = chunk;
    let bytes = (pages.end - pages.start) as usize;
    // SAFETY: chunks lie apart, and what this one overwrites is released: no worker reads it, and no other reader
    // writes there, as the matrices that were there were delivered before they were released.
    let place = unsafe { shared.memory.part(*at..at + bytes) };
    let offset = shared.file.start;
    let needed = (needed.end - pages.start) as usize;
    let mut done = 0;
    while done < needed {
        match shared.file.read_at(&mut place[done..], offset + pages.start + done as u64) {
            Ok(read) => {
                let end = done + read;
                // A direct read goes on at a page only.
                let goes_on_at = if shared.file.is_direct && end < needed { end - end % PAGE } else { end };
                if goes_on_at == done {
                    return Err(io::Error::other(format!(
                        "expected {} bytes or more, found {}: it was cut",
                        offset + pages.start + needed as u64,
                        offset + pages.start + end as u64
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
