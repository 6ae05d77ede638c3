//! How the bytes of a weight are taken from the files of its model: lent where they lie as graphs want them, else
//! gathered.

use std::{borrow::Cow, iter, ops::Range};

use super::{Scaled, Scales, TensorInfo, TensorTable, float8, nvfp4};
use crate::{
    ir::{Elements, WeightSpec},
    storage::MappedFile,
};
use ygg_kernels::WeightFormat;

/// The bytes of a tensor where it lies, without scales that lie elsewhere.
pub(super) fn lend<'a>(files: &'a [MappedFile], info: &TensorInfo) -> &'a [u8] {
    &files[info.file].bytes()[info.bytes.clone()]
}

fn lend_scales<'a>(files: &'a [MappedFile], scales: &Scales) -> &'a [u8] {
    &files[scales.file].bytes()[scales.bytes.clone()]
}

/// The number that all scales of a matrix in NVFP4 are scaled by, where there is one.
fn lend_whole<'a>(files: &'a [MappedFile], scales: &Scales) -> Option<&'a [u8]> {
    let Scaled::Nvfp4 { file, start, .. } = scales.of else { return None };
    Some(&files[file].bytes()[start..start + size_of::<f32>()])
}

/// All bytes of a tensor: one piece, and others where scales lie elsewhere.
pub(super) fn pieces<'a>(
    files: &'a [MappedFile],
    info: &TensorInfo,
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let scales = info.scales.as_ref();
    let of_blocks = scales.map(|scales| lend_scales(files, scales));
    let whole = scales.and_then(|scales| lend_whole(files, scales));
    iter::once(lend(files, info)).chain(of_blocks).chain(whole)
}

/// The name of vectors of ones, which no file has: gains of norms without one. A tensor of this name is not read.
pub(super) const ONES: &str = "(ones)";

/// Where the elements of a weight are in the files.
#[derive(Clone, Debug)]
pub(super) struct LentWeight {
    /// None of a vector of ones.
    info: Option<TensorInfo>,
    rows: usize,
    columns: usize,
    elements: Elements,
    /// Which row of the tensor each row is, if not in the order of the elements.
    order: Option<Vec<u32>>,
}

impl LentWeight {
    /// Where a weight of a checked graph is.
    pub(super) fn of(spec: &WeightSpec, tensors: &TensorTable, order: Option<Vec<u32>>) -> Self {
        let WeightSpec { name, rows, columns, elements, .. } = spec;
        let (rows, columns, elements) = (*rows, *columns, *elements);
        let info = (name != ONES).then(|| tensors[name].clone());
        Self { info, rows, columns, elements, order }
    }

    /// The file that its bytes lie in, and where, if they lie row after row.
    pub(super) fn place(&self) -> Option<(usize, Range<usize>)> {
        let Self { info, rows, columns, elements, order } = self;
        let Elements { first, row_step, column_step } = *elements;
        let info = info.as_ref().filter(|info| info.scales.is_none())?;
        let is_in_order = order.is_none() && row_step == *columns && column_step == 1;
        let bytes_of = |elements| info.format.row_bytes(elements);
        let start = is_in_order.then(|| bytes_of(first)).flatten()? + info.bytes.start;
        Some((info.file, start..start + rows * bytes_of(*columns)?))
    }

    /// Its bytes, row after row: lent if they lie so.
    pub(super) fn bytes<'a>(&self, files: &'a [MappedFile]) -> Cow<'a, [u8]> {
        let Self { info, rows, columns, elements, order } = self;
        let Some(info) = info else { return Cow::Owned(1f32.to_le_bytes().repeat(*columns)) };
        if let Some((file, bytes)) = self.place() {
            return Cow::Borrowed(&files[file].bytes()[bytes]);
        }
        let Elements { first, row_step, column_step } = *elements;
        let bytes_of =
            |elements: usize| info.format.row_bytes(elements).expect("whole blocks, as graphs are checked");
        let whole = lend(files, info);
        let row = |r: usize| first + order.as_ref().map_or(r, |order| order[r] as usize) * row_step;
        if let Some(scales) = &info.scales {
            let lent = lend_scales(files, scales);
            let mut gathered = Vec::with_capacity(rows * bytes_of(*columns));
            let rows = (0..*rows).map(row);
            match scales.of {
                Scaled::Mxfp4 => rows.for_each(|first| gathered.extend(joined(whole, lent, first, *columns))),
                Scaled::Float8 { format, rows: high, columns: wide } => {
                    let matrices = float8::Matrices::new(&info.shape, whole, (format, [high, wide]), lent);
                    rows.for_each(|first| matrices.push_row(first, column_step, *columns, &mut gathered));
                }
                Scaled::Nvfp4 { is_divisor, .. } => {
                    let by = lend_whole(files, scales).and_then(|bytes| bytes.first_chunk());
                    let by = f32::from_le_bytes(*by.expect("it was found when the parts were joined"));
                    let parts = nvfp4::Apart { codes: whole, scales: lent, whole: by, is_divisor };
                    rows.for_each(|first| nvfp4::push_blocks(&parts, first..first + columns, &mut gathered));
                }
                Scaled::Nvfp4InBlocks => {
                    let parts = nvfp4::InBlocks::new(whole, lent);
                    rows.for_each(|first| nvfp4::push_blocks(&parts, first..first + columns, &mut gathered));
                }
            }
            return Cow::Owned(gathered);
        }
        let mut gathered = Vec::with_capacity(rows * bytes_of(*columns));
        if column_step == 1 {
            for r in 0..*rows {
                let start = bytes_of(row(r));
                gathered.extend_from_slice(&whole[start..start + bytes_of(*columns)]);
            }
            return Cow::Owned(gathered);
        }
        gathered.resize(rows * bytes_of(*columns), 0);
        let size = bytes_of(1);
        // A square of rows and columns at a time: in one of the two directions elements lie far apart.
        for (top, left) in
            (0..*rows).step_by(SQUARE).flat_map(|r| (0..*columns).step_by(SQUARE).map(move |c| (r, c)))
        {
            for r in top..(*rows).min(top + SQUARE) {
                for c in left..(*columns).min(left + SQUARE) {
                    let from = (row(r) + c * column_step) * size;
                    gathered[(r * columns + c) * size..][..size].copy_from_slice(&whole[from..from + size]);
                }
            }
        }
        Cow::Owned(gathered)
    }
}

/// Side of the squares in which elements are gathered: two of them fit the first cache.
const SQUARE: usize = 32;

/// Codes of a block of MXFP4 where scales lie elsewhere, bytes: the even elements in their low nibbles, the odd ones in
/// their high ones.
pub(super) const CODES: usize = MXFP4_BLOCK / 2;
const MXFP4_BLOCK: usize = WeightFormat::MXFP4.block_len();

/// A row of MXFP4 from element `first` on, in blocks of a scale and of codes whose low nibbles are the first half.
fn joined(codes: &[u8], scales: &[u8], first: usize, columns: usize) -> impl Iterator<Item = u8> {
    let blocks = first / MXFP4_BLOCK..(first + columns) / MXFP4_BLOCK;
    blocks.flat_map(move |block| {
        let codes = &codes[block * CODES..][..CODES];
        let nibble = move |element: usize| (codes[element / 2] >> (4 * (element % 2))) & 15;
        let both = (0..CODES).map(move |j| nibble(j) | (nibble(j + CODES) << 4));
        iter::once(scales[block]).chain(both)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_two_files_become_one() {
        // Elements 0 to 31 of a block: their numbers modulo 16.
        let code = |element: u8| element % 16;
        let codes: Vec<u8> = (0..CODES as u8).map(|i| code(2 * i) | (code(2 * i + 1) << 4)).collect();
        let codes = [vec![0x77; CODES], codes].concat();
        let row: Vec<u8> = joined(&codes, &[1, 130], 32, 32).collect();
        assert_eq!(row[0], 130);
        for j in 0..CODES {
            assert_eq!(usize::from(row[1 + j]), j | (j << 4));
        }
    }
}
