//! Matrices of floats of 8 bits (E4M3: one sign, four bits of exponent, three of mantissa), with a scale for every block,
//! as BF16: the product of an element and its scale, to the nearest. So Hugging Face transformers dequantises them.

use ygg_kernels::WeightFormat;

use super::tensor_table::Scaled;

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
    /// Matrices of a tensor whose scales are `of` blocks.
    ///
    /// # Panics
    /// If scales are not of floats of 8 bits, or are fewer or more than there are blocks: joining checks it.
    pub(super) fn new(shape: &[usize], codes: &'a [u8], of: Scaled, scales: &[u8]) -> Self {
        let Scaled::Float8 { format, rows: high, columns: wide } = of else {
            panic!("floats of 8 bits are scaled by numbers")
        };
        let [.., rows, columns] = *shape else { panic!("a matrix has two dimensions") };
        let count =
            shape[..shape.len() - 2].iter().product::<usize>() * rows.div_ceil(high) * columns.div_ceil(wide);
        let mut values = vec![0.0; count];
        format.dequantise_row(scales, &mut values);
        let by_code = std::array::from_fn(|code| value(code as u8));
        Self { codes, rows, columns, block: [high, wide], scales: values, values: by_code }
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
fn value(code: u8) -> f32 {
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
        assert_eq!(some.map(value), expected);
        assert!(value(0x7f).is_nan() && value(0xff).is_nan());
        let all: Vec<f32> = (0..0x7f).map(value).collect();
        assert!(all.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_element_has_the_scale_of_its_block() {
        // Two matrices of 3 by 5 in blocks of 2 by 4: of every matrix four, of which three are cut.
        let scales: Vec<u8> = (0..8u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        let of = Scaled::Float8 { format: WeightFormat::F32, rows: 2, columns: 4 };
        let codes = [0x38; 30];
        let matrices = Matrices::new(&[2, 3, 5], &codes, of, &scales);
        let row = |first, step, count| {
            let mut found = Vec::new();
            matrices.push_row(first, step, count, &mut found);
            let two = found.as_chunks::<2>().0.iter();
            two.map(|bytes| half::bf16::from_le_bytes(*bytes).to_f32()).collect::<Vec<_>>()
        };
        assert_eq!(row(0, 1, 5), [0.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(row(10, 1, 5), [2.0, 2.0, 2.0, 2.0, 3.0]);
        assert_eq!(row(15, 1, 5), [4.0, 4.0, 4.0, 4.0, 5.0]);
        assert_eq!(row(19, 5, 3), [5.0, 5.0, 7.0], "a column of the second");
    }
}
