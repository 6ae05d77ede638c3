//! Writing packed tiles, by as many threads as there are: a matrix is cut into pieces of whole tiles.

use super::{BLOCK, PackError, PackedLinear, TILE, codes, pair_at, tile_bytes};
#[cfg(target_arch = "x86_64")]
use crate::cpu::isa::Avx2;
use crate::{
    Matrix, WeightFormat,
    cpu::memory::{ALIGNMENT, LentBytes, Reserved, Staging, Storage},
    format::{Block, Kind, Visitor},
};
use std::{
    array,
    mem::MaybeUninit,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Matrices that will be packed together.
///
/// ```
/// use ygg_kernels::{Matrix, WeightFormat, cpu::{Packing, Reserved}};
///
/// let bytes = [0; 40 * 34];
/// let packing = Packing::stack(&[Matrix::new(WeightFormat::Q8_0, 40, 32, &bytes)?])?;
/// let memory = Reserved::together(&[packing.bytes()]).remove(0);
/// let mut target = packing.into_memory(memory);
/// std::thread::scope(|scope| {
///     for piece in target.pieces(1 << 10) {
///         scope.spawn(|| piece.write());
///     }
/// });
/// assert_eq!(target.finish().outputs(), 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Packing<'a> {
    /// Stacked by rows, or gate and up.
    parts: Vec<Matrix<'a>>,
    gated: bool,
}

impl<'a> Packing<'a> {
    /// As [`PackedLinear::stack`] packs.
    ///
    /// # Errors
    /// If there is no part, or the parts differ in format or columns.
    pub fn stack(parts: &[Matrix<'a>]) -> Result<Self, PackError> {
        let first = parts.first().ok_or(PackError::NoParts)?;
        parts.iter().try_for_each(|part| same_input(first, part))?;
        Ok(Self { parts: parts.to_vec(), gated: false })
    }

    /// As [`PackedLinear::gated`] packs.
    ///
    /// # Errors
    /// If the two differ in format or shape.
    pub fn gated(gate: &Matrix<'a>, up: &Matrix<'a>) -> Result<Self, PackError> {
        same_input(gate, up)?;
        if gate.rows() != up.rows() {
            return Err(PackError::GatedRows { gate: gate.rows(), up: up.rows() });
        }
        Ok(Self { parts: vec![*gate, *up], gated: true })
    }

    /// Bytes of the packed matrix.
    pub fn bytes(&self) -> usize {
        self.stored_tiles() * self.tile_bytes()
    }

    /// The matrix in its memory, to be written.
    ///
    /// # Panics
    /// If the memory has not [`bytes`](Self::bytes) bytes.
    pub fn into_memory(self, memory: Reserved) -> Target<'a> {
        assert_eq!(memory.len(), self.bytes(), "bytes of {self:?}");
        Target { packing: self, memory, written: AtomicUsize::new(0) }
    }

    /// The matrix as it was packed before: `bytes[at..]`, which an equal packing wrote.
    ///
    /// # Panics
    /// If there are too few bytes, or they are not aligned to [`ALIGNMENT`].
    pub fn from_kept(self, bytes: &LentBytes, at: usize) -> PackedLinear {
        let storage = Storage::Lent { bytes: Arc::clone(bytes), at: at..at + self.bytes() };
        assert_eq!(storage.as_slice().len(), self.bytes(), "bytes of {self:?}");
        self.with(storage)
    }

    /// The matrix in `staging[at..]`, into which the bytes that an equal packing wrote are read again and again.
    ///
    /// # Safety
    /// Nobody writes these bytes while the matrix is read.
    ///
    /// # Panics
    /// If there are too few bytes, or they are not aligned to [`ALIGNMENT`].
    pub unsafe fn staged(self, staging: &Arc<Staging>, at: usize) -> PackedLinear {
        assert!(at.is_multiple_of(ALIGNMENT), "staged bytes are aligned");
        let storage = Storage::Staged { staging: Arc::clone(staging), at: at..at + self.bytes() };
        assert_eq!(storage.as_slice().len(), self.bytes(), "bytes of {self:?}");
        self.with(storage)
    }

    fn with(&self, storage: Storage) -> PackedLinear {
        let (format, columns) = (self.format(), self.parts[0].columns());
        PackedLinear { format, gated: self.gated, rows: self.outputs(), columns, storage }
    }

    pub(super) fn on_one_thread(self) -> PackedLinear {
        let memory = Reserved::together(&[self.bytes()]).pop().expect("a place per length");
        let mut target = self.into_memory(memory);
        target.pieces(usize::MAX).for_each(Piece::write);
        target.finish()
    }

    fn format(&self) -> WeightFormat {
        self.parts[0].format()
    }

    /// Outputs, of the gate for a pair.
    fn outputs(&self) -> usize {
        if self.gated { self.parts[0].rows() } else { self.parts.iter().map(Matrix::rows).sum() }
    }

    fn stored_tiles(&self) -> usize {
        self.outputs().div_ceil(TILE) * if self.gated { 2 } else { 1 }
    }

    fn tile_bytes(&self) -> usize {
        tile_bytes(self.format(), self.parts[0].columns())
    }

    /// Rows of the file that are the outputs of a stored tile; the last tile may have fewer.
    fn sources(&self, tile: usize) -> [Option<&'a [u8]>; TILE] {
        let (tile, parts) =
            if self.gated { (tile / 2, &self.parts[tile % 2..][..1]) } else { (tile, &*self.parts) };
        array::from_fn(|n| {
            let mut row = tile * TILE + n;
            for part in parts {
                if row < part.rows() {
                    return Some(part.row(row));
                }
                row -= part.rows();
            }
            None
        })
    }
}

/// A matrix in its memory while it is packed.
#[derive(Debug)]
pub struct Target<'a> {
    packing: Packing<'a>,
    memory: Reserved,
    /// Stored tiles that the pieces have written.
    written: AtomicUsize,
}

impl<'a> Target<'a> {
    /// The whole matrix in pieces of about as many bytes, for any threads; each is to be written.
    pub fn pieces(&mut self, bytes: usize) -> impl ExactSizeIterator<Item = Piece<'_, 'a>> {
        let Self { packing, memory, written } = self;
        *written.get_mut() = 0;
        let tiles = (bytes / packing.tile_bytes()).max(1);
        let chunks = memory.as_uninit().chunks_mut(tiles.saturating_mul(packing.tile_bytes()));
        let (packing, written) = (&*packing, &*written);
        chunks.enumerate().map(move |(i, to)| Piece { packing, first: i * tiles, to, written })
    }

    /// The packed matrix.
    ///
    /// # Panics
    /// If a piece was not written.
    pub fn finish(mut self) -> PackedLinear {
        let written = *self.written.get_mut();
        assert_eq!(written, self.packing.stored_tiles(), "stored tiles of {:?}", self.packing);
        // SAFETY: pieces do not overlap and count the tiles that they have written once; all were counted.
        let bytes = unsafe { self.memory.written() };
        self.packing.with(Storage::Own(bytes))
    }
}

/// Some tiles of a matrix, to be written by one thread.
#[derive(Debug)]
pub struct Piece<'t, 'a> {
    packing: &'t Packing<'a>,
    /// The first of its tiles.
    first: usize,
    to: &'t mut [MaybeUninit<u8>],
    written: &'t AtomicUsize,
}

impl Piece<'_, '_> {
    /// Packs its tiles.
    pub fn write(self) {
        let tiles = self.to.chunks_exact_mut(self.packing.tile_bytes());
        let count = tiles.len();
        for (tile, to) in (self.first..).zip(tiles) {
            write_tile(self.packing.format(), &self.packing.sources(tile), zeroed(to));
        }
        // Whoever finishes has joined this thread, or is it.
        self.written.fetch_add(count, Ordering::Relaxed);
    }
}

fn zeroed(bytes: &mut [MaybeUninit<u8>]) -> &mut [u8] {
    bytes.fill(MaybeUninit::new(0));
    // SAFETY: all of them were just written.
    unsafe { bytes.assume_init_mut() }
}

/// Writes rows of the file as the outputs of a tile of zeros.
fn write_tile(format: WeightFormat, sources: &[Option<&[u8]>; TILE], to: &mut [u8]) {
    match format {
        WeightFormat::F32 => dense::<4>(sources, to, |n, k| k * TILE + n),
        WeightFormat::F16 => dense::<2>(sources, to, |n, k| k * TILE + n),
        WeightFormat::BF16 => dense::<2>(sources, to, pair_at),
        format => format.visit(CodedTile { sources, to }),
    }
}

/// Writes values of `BYTES` bytes; `place` says which of a block is the value of output `n` and input `k`.
#[inline(always)]
fn dense<const BYTES: usize>(
    sources: &[Option<&[u8]>; TILE],
    to: &mut [u8],
    place: impl Fn(usize, usize) -> usize,
) {
    let blocks = to.as_chunks_mut::<BYTES>().0.as_chunks_mut::<{ BLOCK * TILE }>().0;
    for (b, block) in blocks.iter_mut().enumerate() {
        for (n, source) in sources.iter().enumerate() {
            let Some(source) = source else { continue };
            let values = &source.as_chunks::<BYTES>().0[b * BLOCK..];
            match values.first_chunk::<BLOCK>() {
                Some(values) => (0..BLOCK).for_each(|k| block[place(n, k)] = values[k]),
                None => values.iter().enumerate().for_each(|(k, value)| block[place(n, k)] = *value),
            }
        }
    }
}

/// Bytes of the largest block of a file: Q6_K's, of 256 codes of 6 bits, 16 scales and a unit.
const MOST_BYTES: usize = 210;

/// A tile of codes.
struct CodedTile<'a> {
    sources: &'a [Option<&'a [u8]>; TILE],
    to: &'a mut [u8],
}

impl Visitor for CodedTile<'_> {
    type Output = ();

    fn visit<K: Kind>(self) {
        #[cfg(target_arch = "x86_64")]
        if Avx2::detect().is_some() {
            // SAFETY: the processor has it.
            return unsafe { self.write_avx2::<K>() };
        }
        self.write::<K>();
    }
}

impl CodedTile<'_> {
    /// As [`write`](Self::write), compiled for vectors of 32 bytes.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn write_avx2<K: Kind>(self) {
        self.write::<K>();
    }

    #[inline(always)]
    fn write<K: Kind>(self) {
        const { assert!(K::BLOCK_BYTES <= MOST_BYTES) };
        let mut outputs = [const { Block::EMPTY }; TILE];
        let blocks = self.to.chunks_exact_mut(const { codes::CodeLayout::of(K::CODING).bytes });
        for (b, block) in blocks.enumerate() {
            for (output, source) in outputs.iter_mut().zip(self.sources) {
                if let Some(source) = source {
                    // Of a copy it is plain that writing codes does not change it, so loops over bytes become vectors.
                    let mut bytes = [0; MOST_BYTES];
                    bytes[..K::BLOCK_BYTES].copy_from_slice(&source[b * K::BLOCK_BYTES..][..K::BLOCK_BYTES]);
                    (K::DECODE)(&bytes[..K::BLOCK_BYTES], output);
                }
            }
            codes::write(K::CODING, &outputs, block);
        }
    }
}

fn same_input(first: &Matrix<'_>, other: &Matrix<'_>) -> Result<(), PackError> {
    if first.format() != other.format() {
        return Err(PackError::MixedFormats { first: first.format(), other: other.format() });
    }
    if first.columns() != other.columns() {
        return Err(PackError::MixedColumns { first: first.columns(), other: other.columns() });
    }
    Ok(())
}
