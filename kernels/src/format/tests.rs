//! Formats against hand-made blocks, against `half`, and against the dequantisers of the `gguf` Python package 0.17 (grids: 0.19).

use super::*;
use proptest::prelude::*;

/// Lines of a name and the values of a block: see [`block_of_all_fields`].
const VALUES_ELSEWHERE: &str = include_str!("tests/values.txt");

/// A block whose every field is busy, but scales of 1 and minima in units of -2, so that its values are whole numbers.
fn block_of_all_fields(format: WeightFormat) -> Vec<u8> {
    let busy = |len: usize| -> Vec<u8> { (0..len).map(|i| ((i * 73 + 29) ^ ((i >> 3) * 5)) as u8).collect() };
    let (one, minus_two) = (f16(1.0).to_vec(), f16(-2.0).to_vec());
    let coding = format.coding().unwrap();
    let numbers = if coding.has_min() { [one, minus_two].concat() } else { one };
    match format {
        WeightFormat::MXFP4 => [vec![128], busy(16)].concat(),
        WeightFormat::NVFP4 => {
            let [one, minus_two] = [1.0, -2.0].map(|x| half::bf16::from_f32(x).to_le_bytes());
            [&one[..], &minus_two, &busy(16)].concat()
        }
        WeightFormat::IQ1_M => {
            let mut block = busy(56);
            for (i, part) in [0x0, 0x0, 0xc, 0x3].into_iter().enumerate() {
                block[49 + 2 * i] = block[49 + 2 * i] & 15 | part << 4;
            }
            block
        }
        WeightFormat::Q2_K | WeightFormat::Q3_K | WeightFormat::Q6_K => {
            [busy(format.block_bytes() - numbers.len()), numbers].concat()
        }
        _ => [numbers.clone(), busy(format.block_bytes() - numbers.len())].concat(),
    }
}

#[test]
fn blocks_mean_what_others_read() {
    for format in WeightFormat::ALL.into_iter().filter(|format| !format.is_dense()) {
        let line = VALUES_ELSEWHERE.lines().find(|line| line.split(' ').next() == Some(format.name()));
        let values = line.expect("a line for each format").split(' ').skip(1);
        let expected: Vec<f32> = values.map(|value| value.parse().unwrap()).collect();
        let mut found = vec![f32::NAN; format.block_len()];
        format.dequantise_row(&block_of_all_fields(format), &mut found);
        assert_eq!(found, expected, "{format}");
    }
}

/// A power of two for every exponent, the subnormal ones and the largest too.
#[test]
fn mxfp4_scales_are_powers_of_two() {
    for e in 0..=255 {
        let mut found = [f32::NAN; 32];
        WeightFormat::MXFP4.dequantise_row(&[&[e][..], &[0x22; 16]].concat(), &mut found);
        assert_eq!(found, [2.0 * 2f64.powi(i32::from(e) - 128) as f32; 32]);
    }
}

#[test]
fn blocks_of_nothing_stay_nothing() {
    for format in WeightFormat::ALL {
        let mut bytes = Vec::new();
        format.quantise_row(&[0.0; 256], &mut bytes);
        let mut found = [f32::NAN; 256];
        format.dequantise_row(&bytes, &mut found);
        assert_eq!(found, [0.0; 256], "{format}");
    }
}

#[test]
fn element_types_are_found_by_number() {
    for format in WeightFormat::ALL {
        let of_number = format.ggml_type().and_then(WeightFormat::of_ggml_type);
        assert_eq!(of_number, (format != WeightFormat::NVFP4).then_some(format));
    }
    assert_eq!(WeightFormat::of_ggml_type(9), None);
}

fn f16(x: f32) -> [u8; 2] {
    half::f16::from_f32(x).to_le_bytes()
}

#[test]
fn q4_0_low_nibbles_are_the_first_half() {
    let mut block = f16(0.5).to_vec();
    block.extend((0..16u8).map(|i| i | (15 - i) << 4));
    let mut out = [0.0; 32];
    WeightFormat::Q4_0.dequantise_row(&block, &mut out);
    for i in 0..16 {
        assert_eq!(out[i], (i as f32 - 8.0) * 0.5);
        assert_eq!(out[i + 16], (7.0 - i as f32) * 0.5);
    }
}

#[test]
fn q4_1_adds_the_minimum() {
    let mut block = [f16(0.25), f16(-3.0)].concat();
    block.extend((0..16u8).map(|i| i | 2 << 4));
    let mut out = [0.0; 32];
    WeightFormat::Q4_1.dequantise_row(&block, &mut out);
    for i in 0..16 {
        assert_eq!(out[i], i as f32 * 0.25 - 3.0);
        assert_eq!(out[i + 16], -2.5);
    }
}

#[test]
fn q8_0_codes_are_signed() {
    let mut block = f16(2.0).to_vec();
    block.extend((0..32i16).map(|i| ((i * 8 - 128) as i8).cast_unsigned()));
    let mut out = [0.0; 32];
    WeightFormat::Q8_0.dequantise_row(&block, &mut out);
    for (i, value) in out.iter().enumerate() {
        assert_eq!(*value, (i as f32 * 8.0 - 128.0) * 2.0);
    }
}

#[test]
fn every_half_converts_exactly() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (f16_to_f32(bits), half::f16::from_bits(bits).to_f32());
        assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#06x}");
    }
}

#[test]
fn sizes_and_refusals() {
    assert_eq!(WeightFormat::Q4_1.row_bytes(576), Some(360));
    assert_eq!(WeightFormat::Q4_1.row_bytes(33), None);
    assert_eq!(WeightFormat::F32.row_bytes(usize::MAX), None);
    let bytes = [0; 40];
    assert!(Matrix::new(WeightFormat::Q4_1, 2, 32, &bytes).is_ok());
    assert_eq!(
        Matrix::new(WeightFormat::Q4_1, 3, 32, &bytes).unwrap_err(),
        MatrixError::Length { format: WeightFormat::Q4_1, rows: 3, columns: 32, expected: 60, found: 40 }
    );
    assert!(matches!(Matrix::new(WeightFormat::F32, 0, 1, &[]), Err(MatrixError::Empty { .. })));
    assert!(matches!(
        Matrix::new(WeightFormat::F32, usize::MAX, 8, &bytes),
        Err(MatrixError::TooLarge { .. })
    ));
    assert_eq!(WeightFormat::Q4_K.row_bytes(512), Some(288));
    assert_eq!(WeightFormat::Q6_K.row_bytes(512), Some(420));
    let huge = Matrix::new(WeightFormat::Q6_K, usize::MAX, 256, &bytes);
    assert!(matches!(huge, Err(MatrixError::TooLarge { .. })));
    for format in WeightFormat::ALL.into_iter().filter(|format| format.block_len() == 256) {
        for columns in [1, 32, 255, 257, 576] {
            assert_eq!(format.row_bytes(columns), None);
            assert_eq!(
                Matrix::new(format, 1, columns, &[0; 40]).unwrap_err(),
                MatrixError::PartialBlock { format, columns }
            );
        }
    }
}

/// What the nearest entries of grids lose of random values, against the square of these: less than the grid before.
#[test]
fn grids_lose_less_the_more_entries_they_have() {
    let mut noise = crate::testing::Noise::new(5);
    let values = noise.values(64 * 256);
    let lost = |format: WeightFormat| {
        let (mut bytes, mut back) = (Vec::new(), vec![0.0; values.len()]);
        format.quantise_row(&values, &mut bytes);
        format.dequantise_row(&bytes, &mut back);
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
        square(&mut values.iter().zip(&back).map(|(a, b)| a - b)) / square(&mut values.iter().copied())
    };
    use WeightFormat::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
    let found = [IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S].map(lost);
    assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
    assert!(found[0] < 0.4 && found[6] < 0.03, "{found:?}");
}

#[test]
fn formats_that_share_kernels_have_one_coding() {
    for [format, twin] in WeightFormat::TWINS {
        assert_eq!(format.coding(), twin.coding(), "{format}, {twin}");
    }
}

/// The largest scale of a block is -128 units; one as large of the other sign is stored as 127.
#[test]
fn q6_k_scales_reach_one_unit_less_above_zero() {
    let mut values = [0.0f32; 256];
    (values[0], values[16], values[17]) = (4.0, -4.0, 3.875);
    let (mut bytes, mut back) = (Vec::new(), vec![0.0; 256]);
    WeightFormat::Q6_K.quantise_row(&values, &mut bytes);
    WeightFormat::Q6_K.dequantise_row(&bytes, &mut back);
    assert_eq!(back[0], 4.0);
    assert_eq!(back[16], -4.0 * 127.0 / 128.0);
    assert_eq!(back[17], 3.875 * 127.0 / 128.0);
}

proptest! {
    /// Half a step of the block's grid, plus the rounding of the f16 scale (2^-11 of the largest code's value).
    #[test]
    fn encoding_loses_half_a_step(values in prop::collection::vec(-4.0f32..4.0, 256), f in 0..WeightFormat::ALL.len()) {
        let format = WeightFormat::ALL[f];
        let (mut bytes, mut back) = (Vec::new(), vec![0.0; 256]);
        format.quantise_row(&values, &mut bytes);
        format.dequantise_row(&bytes, &mut back);
        let step = match format {
            WeightFormat::F32 => 0.0,
            WeightFormat::F16 => 4.0 / 1024.0,
            WeightFormat::BF16 => 4.0 / 128.0,
            WeightFormat::Q8_0 => 8.0 / 127.0,
            // The code range reaches one step less on the side opposite to the extreme.
            WeightFormat::Q4_0 => 2.0 * 4.0 / 8.0,
            WeightFormat::Q5_0 => 2.0 * 4.0 / 16.0,
            WeightFormat::Q4_1 => 8.0 / 15.0,
            WeightFormat::Q5_1 => 8.0 / 31.0,
            // The range may miss half a unit of the scale at the last step, and half a unit of the minimum.
            WeightFormat::Q2_K => (1.0 + 3.0 / 15.0) * 8.0 / 3.0 + 4.0 / 15.0,
            WeightFormat::Q4_K => (1.0 + 15.0 / 63.0) * 8.0 / 15.0 + 4.0 / 63.0,
            WeightFormat::Q5_K => (1.0 + 31.0 / 63.0) * 8.0 / 31.0 + 4.0 / 63.0,
            // As Q4_0, and a unit of the scale at the extreme: the largest scale of the other sign is stored as one
            // unit less.
            WeightFormat::Q3_K => (2.0 + 4.0 / 16.0) * 4.0 / 4.0,
            WeightFormat::Q6_K => (2.0 + 0.5) * 4.0 / 32.0,
            // The widest step is 24 of 127; the side opposite to the extreme ends at 113, and the unit as for Q3_K.
            WeightFormat::IQ4_NL => 2.0 * 14.0 * 4.0 / 127.0,
            WeightFormat::IQ4_XS => 2.0 * (14.0 + 127.0 / 31.0) * 4.0 / 127.0,
            // Values of up to 8 times the power are cut to 6.
            WeightFormat::MXFP4 => 2.0 * 1.0,
            // The widest step is a third of the largest value.
            WeightFormat::NVFP4 => 4.0 / 3.0,
            // Grids have few of all combinations: see below.
            WeightFormat::IQ1_S
            | WeightFormat::IQ1_M
            | WeightFormat::IQ2_XXS
            | WeightFormat::IQ2_XS
            | WeightFormat::IQ2_S
            | WeightFormat::IQ3_XXS
            | WeightFormat::IQ3_S => 2.0 * 4.0,
        };
        for (a, b) in values.iter().zip(&back) {
            prop_assert!((a - b).abs() <= step / 2.0 + 8.0 / 1024.0, "{format}: {a} became {b}");
        }
    }
}
