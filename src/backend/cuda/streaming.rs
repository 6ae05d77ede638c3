//! Streamed weights: matrices in pinned memory of the host, copied into places of a staging buffer on the device ahead
//! of the kernels that read them.
//!
//! The copies of forwards are on a stream of their own, in the order of use. A capture makes branches of a graph of
//! them. Laws:
//! - The first kernel of a step that multiplies by a streamed matrix waits for its copy, and begins when all before it
//!   has ended. Kernels after it in the step may begin early, and read weights before they wait: the matrix is there by
//!   then.
//! - A copy waits for the end of the steps that read what it overwrites.
//! - Forwards of all sessions over one model share the buffer. They take turns: each waits, on the device, for the end
//!   of the one before it.
//!
//! Nothing here allocates once a graph is captured.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::{CudaEvent, CudaStream, result};

use crate::ir::Staging;

use super::{
    super::BackendError,
    device::{Device, DeviceBlock, Launch, PinnedBlock, check},
};

/// The number of a streamed matrix, in the order of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnitId(pub(super) usize);

/// A matrix as every forward copies it.
#[derive(Debug)]
struct Unit {
    host: PinnedBlock,
    /// Bytes of the buffer.
    place: Range<usize>,
}

/// The streamed matrices of a model and their places on the device.
#[derive(Debug)]
pub(super) struct Streamed {
    units: Vec<Unit>,
    buffer: DeviceBlock,
    /// Whether a forward is being put on a stream.
    is_busy: AtomicBool,
    /// Comes when the last forward has ended.
    ended: CudaEvent,
}

impl Streamed {
    /// Matrices of these bytes, at least one, in the order of use. `fill` writes each, and is told where it will be on
    /// the device.
    ///
    /// # Errors
    /// [`BackendError::PinnedMemory`] if the host refuses memory, [`BackendError::DeviceMemory`] if the device does.
    pub(super) fn new(
        device: &Arc<Device>,
        sizes: &[usize],
        mut fill: impl FnMut(UnitId, u64, &mut [u8]) -> Result<(), BackendError>,
    ) -> Result<Self, BackendError> {
        let Staging { bytes, places } = Staging::of(sizes);
        let buffer = DeviceBlock::new(device, bytes, "the buffer that weights are streamed through")?;
        let total = sizes.iter().sum();
        let (mut units, mut pinned) = (Vec::with_capacity(sizes.len()), 0);
        for (number, (bytes, place)) in sizes.iter().zip(places).enumerate() {
            let host = PinnedBlock::new(device, bytes.div_ceil(size_of::<u32>()), "streamed weights");
            let mut host = host.map_err(|error| match error {
                BackendError::Memory { .. } => BackendError::PinnedMemory { bytes: *bytes, pinned, total },
                other => other,
            })?;
            let place = place.at.start..place.at.start + bytes;
            fill(UnitId(number), buffer.at(place.start, place.len()), &mut host.bytes_mut()[..*bytes])?;
            units.push(Unit { host, place });
            pinned += bytes;
        }
        Ok(Self { units, buffer, is_busy: AtomicBool::new(false), ended: device.event()? })
    }

    /// Bytes on the device.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Puts the copy of a matrix on a stream.
    pub(super) fn copy(&self, unit: UnitId, stream: &CudaStream) -> Result<(), BackendError> {
        let Unit { host, place } = &self.units[unit.0];
        let words = &host.words()[..place.len() / size_of::<u32>()];
        // SAFETY: the matrix's place in the buffer; the host's words live as long as `self`, which whatever launches
        // the copy holds, and are never changed.
        let copied = unsafe {
            result::memcpy_htod_async(self.buffer.at(place.start, place.len()), words, stream.cu_stream())
        };
        check("copy streamed weights", copied)
    }
}

/// Puts work on a stream; if it streams weights, after that of every other session that does.
pub(super) fn in_turn<T>(
    streamed: Option<&Streamed>,
    stream: &CudaStream,
    work: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, BackendError> {
    let Some(streamed) = streamed else { return work() };
    let _turn = Turn::of(&streamed.is_busy);
    check("wait for streamed weights", stream.wait(&streamed.ended))?;
    let done = work()?;
    check("note the end of a forward", streamed.ended.record(stream))?;
    Ok(done)
}

/// The turn to put work on a stream, given back when it is dropped.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn of(is_busy: &'a AtomicBool) -> Self {
        while is_busy.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Self(is_busy)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The kernels of a step, and the streamed matrix that they read, if there is one.
pub(super) struct StepKernels {
    pub(super) unit: Option<UnitId>,
    pub(super) launches: Vec<Launch>,
}

impl StepKernels {
    pub(super) fn new(unit: Option<UnitId>, launches: Vec<Launch>) -> Self {
        let first_alone = |(i, launch): (usize, Launch)| if i == 0 { launch.alone() } else { launch };
        let launches = match unit {
            Some(_) => launches.into_iter().enumerate().map(first_alone).collect(),
            None => launches,
        };
        Self { unit, launches }
    }

    pub(super) fn on(&self, stream: &CudaStream) -> Result<(), BackendError> {
        self.launches.iter().try_for_each(|launch| launch.on(stream))
    }
}

/// The stream of copies of one session, and what it and the session's own stream wait for.
pub(super) struct Copies {
    pub(super) streamed: Arc<Streamed>,
    stream: Arc<CudaStream>,
    /// Of every matrix: comes when it has been copied.
    copied: Vec<CudaEvent>,
    /// Comes when the steps that were put on the session's stream so far have read their matrices.
    read: CudaEvent,
}

impl Copies {
    pub(super) fn new(device: &Device, streamed: &Arc<Streamed>) -> Result<Self, BackendError> {
        let copied = streamed.units.iter().map(|_| device.event()).collect::<Result<_, _>>()?;
        let (stream, read) = (device.stream()?, device.event()?);
        Ok(Self { streamed: Arc::clone(streamed), stream, copied, read })
    }
}

/// Puts the steps of forwards on `stream`, one after the other, and the copies of what they read on the stream of
/// copies, each as early as its place allows.
pub(super) fn put<'k>(
    copies: Option<&Copies>,
    mut steps: impl Iterator<Item = &'k StepKernels> + Clone,
    stream: &CudaStream,
) -> Result<(), BackendError> {
    let Some(copies) = copies else { return steps.try_for_each(|step| step.on(stream)) };
    let mut ahead = Ahead::new(copies, stream, steps.clone().filter_map(|step| step.unit).collect());
    ahead.begin()?;
    for step in steps {
        match step.unit {
            None => step.on(stream)?,
            Some(unit) => {
                check("wait for streamed weights", stream.wait(&copies.copied[unit.0]))?;
                step.on(stream)?;
                ahead.note_read()?;
            }
        }
    }
    Ok(())
}

/// How far the copies of forwards are.
struct Ahead<'a> {
    copies: &'a Copies,
    /// Of the steps.
    stream: &'a CudaStream,
    /// The matrices of all forwards, in the order of use.
    sequence: Vec<UnitId>,
    /// Of each, how many must have been read before it is copied.
    needs: Vec<usize>,
    /// How many have been put on the stream of copies.
    copied: usize,
    /// How many have been read, of what the steps' stream has been given.
    read: usize,
    /// How many of them the stream of copies waits for.
    awaited: usize,
}

impl<'a> Ahead<'a> {
    fn new(copies: &'a Copies, stream: &'a CudaStream, sequence: Vec<UnitId>) -> Self {
        let place = |i: usize| &copies.streamed.units[sequence[i].0].place;
        let needs = |i: usize| {
            let overwrites =
                |before: &usize| place(*before).start < place(i).end && place(i).start < place(*before).end;
            (0..i).rev().find(overwrites).map_or(0, |before| before + 1)
        };
        let needs = (0..sequence.len()).map(needs).collect();
        Self { copies, stream, sequence, needs, copied: 0, read: 0, awaited: 0 }
    }

    /// Lets copies begin after what is on the steps' stream.
    fn begin(&mut self) -> Result<(), BackendError> {
        if self.sequence.is_empty() {
            return Ok(());
        }
        self.wait_for_steps()?;
        self.go_on()
    }

    /// The next matrix has been read by all that was put on the steps' stream.
    fn note_read(&mut self) -> Result<(), BackendError> {
        self.read += 1;
        self.go_on()
    }

    fn wait_for_steps(&mut self) -> Result<(), BackendError> {
        let Copies { stream, read, .. } = self.copies;
        check("note a step", read.record(self.stream))?;
        self.awaited = self.read;
        check("wait for a step", stream.wait(read))
    }

    /// Puts copies on their stream until one must wait for a step to come.
    fn go_on(&mut self) -> Result<(), BackendError> {
        let copies = self.copies;
        while let Some(unit) = self.sequence.get(self.copied).copied()
            && self.needs[self.copied] <= self.read
        {
            if self.needs[self.copied] > self.awaited {
                self.wait_for_steps()?;
            }
            copies.streamed.copy(unit, &copies.stream)?;
            check("note a copy", copies.copied[unit.0].record(&copies.stream))?;
            self.copied += 1;
        }
        Ok(())
    }
}
