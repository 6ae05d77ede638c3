//! The threads that read, and what they read.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, Thread},
};

use ygg_kernels::cpu;

use crate::{
    ir::{PAGE, Staging},
    packed::PackedFile,
};

use super::{BackendError, FAILED, READERS, Shared, Unit, UnitId};

/// Bytes of one read: many pages, so that a request's own time is small, and a part of a matrix, so that all readers
/// work on the one that is needed next.
pub(super) const CHUNK: usize = 1 << 20;

/// A part of a matrix that one read brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// A file that is read into memory again and again, and how that goes.
#[derive(Debug)]
pub(super) struct Reading {
    file: Arc<PackedFile>,
    memory: Arc<cpu::Staging>,
    failure: OnceLock<BackendError>,
    has_failed: AtomicBool,
    stop: AtomicBool,
}

impl Reading {
    pub(super) fn new(file: Arc<PackedFile>, memory: Arc<cpu::Staging>) -> Self {
        let (has_failed, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { file, memory, failure: OnceLock::new(), has_failed, stop }
    }

    /// Where parts go.
    #[cfg(test)]
    pub(super) fn memory(&self) -> &cpu::Staging {
        &self.memory
    }

    /// Whether it is neither stopped nor has failed.
    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst) && !self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// What went wrong, if something did.
    pub(super) fn failure(&self) -> Option<&BackendError> {
        self.failure.get()
    }

    /// Does the work of a reader, and notes what goes wrong.
    fn watch(&self, work: impl FnOnce() -> io::Result<()>) {
        let reason = match catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a thread that reads them has panicked".to_owned(),
        };
        // The first failure is told.
        let _ = self.failure.set(BackendError::Stream { path: self.file.path.clone(), reason });
        self.has_failed.store(true, Ordering::SeqCst);
    }
}

/// The threads that read a file, until this is dropped.
#[derive(Debug)]
pub(super) struct Readers {
    reading: Arc<Reading>,
    /// To be woken, by their numbers.
    pub(super) threads: Vec<Thread>,
    handles: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Begins the work of all readers, which are given their numbers.
    ///
    /// # Errors
    /// [`BackendError::Threads`] if the system refuses them.
    pub(super) fn begin(
        reading: &Arc<Reading>,
        name: &str,
        work: impl Fn(usize) -> io::Result<()> + Send + Sync + 'static,
    ) -> Result<Self, BackendError> {
        let (reading, work) = (Arc::clone(reading), Arc::new(work));
        let mut readers = Self { reading, threads: Vec::new(), handles: Vec::new() };
        for reader in 0..READERS {
            let (reading, work) = (Arc::clone(&readers.reading), Arc::clone(&work));
            let handle = thread::Builder::new()
                .name(format!("yggc-{name}-{reader}"))
                .spawn(move || reading.watch(|| work(reader)))
                .map_err(|source| BackendError::Threads { threads: READERS, source })?;
            readers.threads.push(handle.thread().clone());
            readers.handles.push(handle);
        }
        Ok(readers)
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reading.stop.store(true, Ordering::SeqCst);
        self.threads.iter().for_each(Thread::unpark);
        for handle in self.handles.drain(..) {
            // A reader catches what goes wrong, so joining cannot fail.
            let _ = handle.join();
        }
    }
}

/// Reads chunk after chunk of the endless sequence until it is stopped or something fails.
pub(super) fn read(shared: &Shared, reader: usize) -> io::Result<()> {
    while shared.reading.goes_on() {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let count = shared.chunks.len() as u64;
        let (forward, chunk) = (number / count, &shared.chunks[(number % count) as usize]);
        let sequence = forward * shared.behind.len() as u64 + chunk.unit.0 as u64;
        let needs = (sequence + 1).saturating_sub(shared.behind[chunk.unit.0]);
        if !wait_for_releases(shared, reader, needs) {
            return Ok(());
        }
        // SAFETY: chunks lie apart, and what this one overwrites is released: no worker reads it, and no other reader
        // writes there, as the matrices that were there were delivered before they were released.
        unsafe { shared.reading.fetch(&chunk.part) }?;
        if shared.left[chunk.unit.0].fetch_sub(1, Ordering::AcqRel) == 1 {
            // The next reading of the matrix begins only once this one is released.
            shared.left[chunk.unit.0].store(shared.whole[chunk.unit.0], Ordering::Relaxed);
            let delivered = &shared.delivered[chunk.unit.0];
            // In vain if the workers have given it up.
            let _ = delivered.compare_exchange(forward, forward + 1, Ordering::AcqRel, Ordering::Acquire);
        }
    }
    Ok(())
}

/// Waits until so many matrices of the sequence are released; says whether reading goes on then.
fn wait_for_releases(shared: &Shared, reader: usize, needs: u64) -> bool {
    let waiting = &shared.waiting[reader].needs;
    let goes_on = || shared.reading.goes_on();
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

impl Reading {
    /// Reads a part into its place.
    ///
    /// # Safety
    /// Nobody else uses the pages of its place meanwhile.
    pub(super) unsafe fn fetch(&self, part: &Part) -> io::Result<()> {
        let (Part { start, bytes, at }, Self { file, memory, .. }) = (*part, self);
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
