//! Lanes find every weight by the table of the layouts alone.

use super::*;
use crate::testing::Noise;

fn half_in(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

fn float_in(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// What a kernel finds for an output and an input of a row of tiles, by the table above alone.
fn value(layout: Layout, codes: &[u8], scales: &[u8], output: usize, input: usize) -> f32 {
    let (t, k, in_16) = (input / 64, input % 64 / 16, input % 16);
    let lane = output % 8 * 4 + in_16 % 8 / 2;
    let (r, i) = (output / 8 + in_16 / 8 * 2, in_16 % 2);
    let in_32 = input % 64 / 32;
    match layout {
        Layout::F32 => float_in(&codes[4 * input..]),
        Layout::Bf16 | Layout::F16 => {
            let at = t * 2048 + k * 512 + lane * 16 + r * 4 + i * 2;
            let bits = u16::from_le_bytes([codes[at], codes[at + 1]]);
            if layout == Layout::F16 {
                f16::from_bits(bits).to_f32()
            } else {
                half::bf16::from_bits(bits).to_f32()
            }
        }
        Layout::Centred | Layout::Nibbles | Layout::NibblesWide => {
            let at = t * 512 + lane * 16 + k * 4;
            let word = u32::from_le_bytes(codes[at..at + 4].try_into().unwrap());
            let code = (word >> (4 * (r + 4 * i)) & 15) as f32;
            let place = output % 8 * 4 + output / 8 * 2 + in_32;
            if layout == Layout::Centred {
                (code - 8.0) * half_in(&scales[t * 64 + place * 2..])
            } else if layout == Layout::Nibbles {
                let at = t * 128 + place * 4;
                code * half_in(&scales[at..]) + half_in(&scales[at + 2..])
            } else {
                let at = t * 256 + place * 8;
                code * float_in(&scales[at..]) + float_in(&scales[at + 4..])
            }
        }
        Layout::Floats | Layout::Steps => {
            let at = t * 512 + lane * 16 + k * 4;
            let word = u32::from_le_bytes(codes[at..at + 4].try_into().unwrap());
            let code = word >> (4 * (r + 4 * i)) & 15;
            let format = if layout == Layout::Floats { WeightFormat::MXFP4 } else { WeightFormat::IQ4_NL };
            let value = format.coding().unwrap().value(code as u8) as f32;
            if layout == Layout::Floats {
                let at = t * 128 + (output % 8 * 8 + output / 8 * 4 + k) * 2;
                value * half::bf16::from_le_bytes([scales[at], scales[at + 1]]).to_f32()
            } else {
                value * float_in(&scales[t * 128 + (output % 8 * 4 + output / 8 * 2 + in_32) * 4..])
            }
        }
        Layout::FivesWide => {
            let word = |at: usize| u32::from_le_bytes(codes[at..at + 4].try_into().unwrap());
            let low = word(t * 640 + lane * 16 + k * 4) >> (4 * (r + 4 * i)) & 15;
            let fifth = word(t * 640 + 512 + lane * 4) >> (4 * k + r + 16 * i) & 1;
            let at = t * 256 + (output % 8 * 4 + output / 8 * 2 + in_32) * 8;
            (low + 16 * fifth) as f32 * float_in(&scales[at..]) + float_in(&scales[at + 4..])
        }
        Layout::Twos => {
            let at = t * 256 + lane * 8 + k / 2 * 4;
            let word = u32::from_le_bytes(codes[at..at + 4].try_into().unwrap());
            let code = (word >> (2 * (4 * (k % 2) + r) + 16 * i) & 3) as f32;
            let of_output = &scales[t * 128 + output % 8 * 16..][..16];
            let (both, factors) = (of_output[output / 8 * 4 + k], &of_output[8 + output / 8 * 4..]);
            let [scale, min] = [both & 15, both >> 4].map(f32::from);
            code * (half_in(factors) * scale) - half_in(&factors[2..]) * min
        }
        Layout::Bytes | Layout::BytesWide => {
            let at = t * 1024 + in_32 * 512 + lane * 16 + k % 2 * 8 + r / 2 * 4 + r % 2 * 2 + i;
            let code = f32::from(codes[at].cast_signed());
            if layout == Layout::Bytes {
                code * half_in(&scales[t * 64 + (output % 8 * 4 + output / 8 * 2 + in_32) * 2..])
            } else {
                code * float_in(&scales[t * 256 + (output % 8 * 8 + output / 8 * 4 + k) * 4..])
            }
        }
    }
}

#[test]
fn elements_that_turn_together_share_a_tile() {
    let (heads, head_dim, rotated) = (2, 64, 32);
    let rows: Vec<u8> = (0..heads * head_dim).flat_map(|n| (n as f32).to_le_bytes()).collect();
    let matrix = Matrix::new(WeightFormat::F32, heads * head_dim, 1, &rows).unwrap();
    let stack = Stack::new(&[matrix]).halves_together(head_dim, rotated);
    let order: Vec<usize> = stack.rows.iter().map(|row| float_in(row) as usize).collect();
    for (n, element) in order.iter().enumerate() {
        let (in_head, partner) = (element % head_dim, order[n ^ 8] % head_dim);
        assert_eq!(n / head_dim, element / head_dim, "rows stay in their head");
        if in_head >= rotated {
            assert_eq!(n, *element, "what does not turn stays where it is");
        } else {
            assert_eq!(in_head.abs_diff(partner), rotated / 2, "row {n}");
        }
    }
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..heads * head_dim), "every row is there once");
}

/// Kernels take 7 bits of a code.
#[test]
fn codes_with_wide_scales_have_seven_bits() {
    for format in WeightFormat::ALL.into_iter().filter(|format| Layout::of(*format) == Layout::BytesWide) {
        let coding = format.coding().expect("a format of codes");
        let values = (0..1_u16 << coding.bits).map(|code| coding.value(code as u8));
        assert!(values.clone().all(|value| (-64..64).contains(&value)), "{format}");
        assert!(!coding.has_min(), "{format}");
    }
}

#[test]
fn a_lane_finds_every_weight_of_every_format() {
    let mut noise = Noise::new(5);
    for format in WeightFormat::ALL {
        // Neither is a whole number of tiles, where blocks allow it.
        let (outputs, columns) = (21, if format.block_len() == 256 { 256 } else { 96 });
        let rows: Vec<Vec<f32>> = (0..outputs).map(|_| noise.values(columns)).collect();
        let mut bytes = Vec::new();
        rows.iter().for_each(|row| format.quantise_row(row, &mut bytes));
        let row_bytes = format.row_bytes(columns).unwrap();
        let (first, second) = bytes.split_at(8 * row_bytes);
        let parts = [
            Matrix::new(format, 8, columns, first).unwrap(),
            Matrix::new(format, outputs - 8, columns, second).unwrap(),
        ];
        let stack = Stack::new(&parts);
        let (code_bytes, scale_bytes) = stack.tile_row_bytes();
        let per_row = if stack.layout() == Layout::F32 { 1 } else { TILE_N };
        for tile_row in 0..stack.tile_rows() {
            let (mut codes, mut scales) = (vec![0xCB; code_bytes], vec![0xCB; scale_bytes]);
            stack.pack(tile_row, &mut codes, &mut scales);
            for output in 0..per_row {
                let n = tile_row * per_row + output;
                let mut expected = vec![0.0; columns];
                if n < outputs {
                    format.dequantise_row(&bytes[n * row_bytes..][..row_bytes], &mut expected);
                }
                let padded = if per_row == 1 { columns } else { stack.tiles_k() * TILE_K };
                expected.resize(padded, 0.0);
                for (input, expected) in expected.iter().enumerate() {
                    let found = value(stack.layout(), &codes, &scales, output, input);
                    let room = 1e-6 * expected.abs() + 1e-6;
                    assert!(
                        (found - expected).abs() <= room,
                        "{format} [{n}, {input}]: {found}, not {expected}"
                    );
                }
            }
        }
    }
}
