//! Matrices of floats of 8 bits (E4M3: one sign, four bits of exponent, three of mantissa) with a scale for every block, as
//! BF16: the product of an element and its scale, to the nearest, as Hugging Face transformers dequantises them.

use ygg_kernels::WeightFormat;

/// Some matrices of one shape, one after the other, and their scales.
pub(super) struct Matrices<'a> {
    codes: &'a [u8],
    /// Of a matrix.
    rows: usize,
    columns: usize,
    /// Of a block.
    block: [usize; 2],
    /// By matrix, by row of blocks, by block.
    scales: Vec<f32>,
    /// By code.
    values: [f32; 256],
}

impl<'a> Matrices<'a> {
    /// A tensor of `shape`, with a scale for every block of so many rows and columns, in a dense format.
    ///
    /// # Panics
    /// If scales are fewer or more than there are blocks: joining checks it.
    pub(super) fn new(
        shape: &[usize],
        codes: &'a [u8],
        (format, block): (WeightFormat, [usize; 2]),
        stored: &[u8],
    ) -> Self {
        let [ref outer @ .., rows, columns] = *shape else { panic!("a matrix has two dimensions") };
        let mut scales = vec![0.0; stored.len() / format.block_bytes()];
        format.dequantise_row(stored, &mut scales);
        let blocks = rows.div_ceil(block[0]) * columns.div_ceil(block[1]);
        assert_eq!(scales.len(), outer.iter().product::<usize>() * blocks, "scales of {shape:?}");
        let values = std::array::from_fn(|code| float8(code as u8));
        Self { codes, rows, columns, block, scales, values }
    }

    /// Appends `count` elements in BF16, from element `first` of the tensor on and then every `step`th.
    pub(super) fn push_row(&self, first: usize, step: usize, count: usize, to: &mut Vec<u8>) {
        let [high, wide] = self.block;
        for element in (first..).step_by(step).take(count) {
            let (row, column) = (element / self.columns, element % self.columns);
            let (matrix, row) = (row / self.rows, row % self.rows);
            let blocks = self.columns.div_ceil(wide);
            let of_row = matrix * self.rows.div_ceil(high) + row / high;
            let value =
                self.values[usize::from(self.codes[element])] * self.scales[of_row * blocks + column / wide];
            to.extend(half::bf16::from_f32(value).to_le_bytes());
        }
    }
}

/// The format that such floats are read as: it holds what dequantising rounds their products to.
pub(super) const AS: WeightFormat = WeightFormat::BF16;

/// The value of a float of 8 bits.
pub(super) fn float8(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if code >> 7 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_of_the_format() {
        let some = [0x00, 0x01, 0x07, 0x08, 0x38, 0x3c, 0x7e, 0xfe, 0xb8];
        let expected = [0.0, 0.001953125, 0.013671875, 0.015625, 1.0, 1.5, 448.0, -448.0, -1.0];
        assert_eq!(some.map(float8), expected);
        assert!(float8(0x7f).is_nan() && float8(0xff).is_nan());
        let all: Vec<f32> = (0..0x7f).map(float8).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_element_has_the_scale_of_its_block() {
        // Two matrices of 3 by 5 in blocks of 2 by 4: of every matrix four, of which three are cut.
        let scales: Vec<u8> = (0..8u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        let codes = [0x38; 30];
        let matrices = Matrices::new(&[2, 3, 5], &codes, (WeightFormat::F32, [2, 4]), &scales);
        let row = |first, step, count| row(&matrices, first, step, count);
        assert_eq!(row(0, 1, 5), [0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(row(10, 1, 5), [2.0, 2.0, 2.0, 2.0, 3.0]);
        assert_eq!(row(15, 1, 5), [4.0, 4.0, 4.0, 4.0, 5.0]);
        assert_eq!(row(19, 5, 3), [5.0, 5.0, 7.0], "a column of the second");
    }

    fn row(matrices: &Matrices<'_>, first: usize, step: usize, count: usize) -> Vec<f32> {
        let mut found = Vec::new();
        matrices.push_row(first, step, count, &mut found);
        let two = found.as_chunks::<2>().0.iter();
        two.map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect()
    }
}
