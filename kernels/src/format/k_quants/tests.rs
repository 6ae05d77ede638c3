//! The K formats against values of another implementation: the dequantisers of the `gguf` Python package.

use super::{super::WeightFormat, *};
use crate::testing::{Noise, bits};

/// Bytes of a block whose every field is busy.
fn busy(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 73 + 29) ^ ((i >> 3) * 5)) as u8).collect()
}

fn f16(x: f32) -> [u8; 2] {
    half::f16::from_f32(x).to_le_bytes()
}

fn values(format: WeightFormat, block: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; K_BLOCK];
    format.dequantise_row(block, &mut out);
    out
}

#[test]
fn q4_k_means_what_others_read() {
    let block = [&f16(1.0)[..], &f16(-2.0), &busy(140)].concat();
    assert_eq!(values(WeightFormat::Q4_K, &block), Q4_K.map(f32::from));
}

#[test]
fn q6_k_means_what_others_read() {
    let block = [&busy(208)[..], &f16(-1.0)].concat();
    assert_eq!(values(WeightFormat::Q6_K, &block), Q6_K.map(f32::from));
}

/// Every code and scale of a block by hand: what a field is does not depend on its neighbours.
#[test]
fn fields_are_where_the_layout_says() {
    let mut q4 = [&f16(1.0)[..], &f16(0.0), &[0; 140]].concat();
    // Scale of sub-block 5: low bits in byte 9, high bits in byte 1. Element 161 is nibble 1 of bytes 64.., high half.
    (q4[4 + 9], q4[4 + 1], q4[16 + 65]) = (0x0d, 0x80, 0x70);
    for (i, value) in values(WeightFormat::Q4_K, &q4).into_iter().enumerate() {
        assert_eq!(value, if i == 161 { 7.0 * 45.0 } else { 0.0 }, "element {i}");
    }
    let mut q6 = [&[0; 208][..], &f16(0.5)].concat();
    // Element 200 is in the second half, quarter 2, place 8: scale 12.
    (q6[64 + 8], q6[128 + 32 + 8], q6[192 + 12]) = (0x90, 0x20, 0xfe);
    for (i, value) in values(WeightFormat::Q6_K, &q6).into_iter().enumerate() {
        let code = if i == 200 { 41.0 } else { 0.0 };
        let expected = if i / 16 == 12 { -(code - 32.0) } else { 0.0 };
        assert_eq!(value, expected, "element {i}");
    }
}

#[test]
fn blocks_of_nothing_stay_nothing() {
    for format in [WeightFormat::Q4_K, WeightFormat::Q6_K] {
        let mut bytes = Vec::new();
        format.quantise_row(&[0.0; K_BLOCK], &mut bytes);
        assert!(values(format, &bytes).iter().all(|x| *x == 0.0));
    }
}

/// What lies on the grid of a block is kept to the bit.
#[test]
fn values_of_a_block_encode_to_themselves() {
    let mut noise = Noise::new(12);
    let mut q4 = [&f16(1.0)[..], &f16(1.0), &[0; 12], &[0; 128]].concat();
    // One scale of 63 and one minimum of 63 fix the units; every sub-block spans its codes.
    q4[4..16].copy_from_slice(&[63, 0x4c, 0x8d, 0xce, 63, 0xde, 31, 0x47, 0x21, 0x43, 0x65, 0x87]);
    q4[16..].iter_mut().for_each(|byte| *byte = noise.bits() as u8);
    for pair in q4[16..].chunks_exact_mut(32) {
        (pair[3], pair[20]) = (0xf0, 0x0f);
    }
    let mut q6 = (0..192).map(|_| noise.bits() as u8).collect::<Vec<_>>();
    // The first element of each sub-block is code 0, the extreme.
    for i in (0..K_BLOCK).step_by(Q6_K_SUB) {
        let (half, quarter, at) = (i / 128, i / 32 % 4, i % 32);
        q6[64 * half + 32 * (quarter % 2) + at] &= if quarter < 2 { 0xf0 } else { 0x0f };
        q6[128 + 32 * half + at] &= !(3 << (2 * quarter));
    }
    q6.extend((0..16i16).map(|s| ((15 * s - 128) as i8).cast_unsigned()));
    q6.extend(f16(0.25));
    for (format, block) in [(WeightFormat::Q4_K, q4), (WeightFormat::Q6_K, q6)] {
        let (expected, mut again) = (values(format, &block), Vec::new());
        format.quantise_row(&expected, &mut again);
        assert_eq!(bits(&values(format, &again)), bits(&expected), "{format}");
    }
}

const Q4_K: [i16; 256] = [
    350, 205, 408, 31, 205, 350, 147, 60, 321, 2, 263, 176, 292, 31, 234, 437, 176, 379, 118, 321, 263, 60,
    321, 350, 147, 408, 205, 234, 350, 205, 408, 263, 324, 514, 58, 248, 400, 590, 134, 324, 514, 58, 248,
    400, 590, 134, 324, 514, 58, 248, 400, 590, 96, 362, 514, 20, 286, 438, 552, 96, 362, 514, 20, 286, 38,
    555, 132, 649, 179, 414, 85, 320, 743, 226, 649, 132, 320, 649, 226, 179, 508, 85, 414, 367, 273, 696,
    367, 38, 461, 132, 555, 226, 414, 179, 508, 649, 672, 840, 168, 560, 784, 56, 280, 672, 840, 168, 560,
    784, 224, 448, 504, 784, 112, 616, 840, 224, 448, 504, 728, 112, 616, 840, 224, 448, 504, 728, 112, 616,
    44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44, 44,
    44, 44, 44, 44, 44, 44, 462, 165, 273, 300, 435, 84, 192, 489, 138, 246, 327, 435, 84, 192, 489, 138,
    246, 327, 435, 84, 192, 489, 165, 246, 327, 435, 84, 192, 300, 192, 111, 462, 398, 228, 466, 296, 500,
    126, 432, 602, 364, 534, 296, 466, 602, 296, 534, 500, 194, 432, 126, 636, 568, 330, 636, 398, 160, 466,
    228, 534, 126, 500, 194, 296, 538, 379, 167, 432, 220, 61, 697, 538, 379, 167, 432, 220, 61, 697, 538,
    379, 167, 432, 220, 61, 644, 591, 379, 114, 485, 273, 8, 644, 591, 379, 114, 485,
];
const Q6_K: [i16; 256] = [
    -273, 546, 2821, -2184, -1365, 910, 1729, -1820, -2912, 2457, 182, -1001, -1820, 2093, 1274, -1365,
    -2162, 1880, 1034, -188, -2538, 3008, 658, -564, -940, 1410, 2256, -2914, -564, 282, 2632, -2538, -575,
    322, -621, -276, 621, -322, 575, -552, 460, -161, 414, 161, -368, 115, -414, 437, -832, 1536, -960,
    -1664, 960, -1792, 832, -896, 384, -1216, 256, 1216, -384, 1088, -512, 448, 3751, -2662, -3146, -1815,
    1452, 968, 2299, 3751, -2662, -3146, -1815, 1452, 968, 2299, 3751, -2662, -1300, -750, -150, 400, 950,
    1550, -1100, -1300, -750, -150, 400, 950, 1550, -1100, -1300, -750, 378, 189, -63, -672, 147, -105, -378,
    378, 189, -63, -672, 147, -105, -378, 378, 189, -276, -2944, 1840, -460, -1656, 1656, 828, -276, -2668,
    2116, -736, -1748, 1564, 920, -184, -2668, 968, -1232, -2024, 2816, 616, -176, -2376, 2464, 2112, -1672,
    -880, 264, 2464, -2728, -528, 616, -589, 532, 57, -190, -361, 456, 285, -266, -38, 133, 608, -437, -266,
    209, 380, -361, 54, -1188, 162, 1080, -162, 1188, -54, 0, 1080, -54, 1188, 54, -1296, 162, -1188, 1134,
    2625, 0, 2875, 250, -2875, 500, -2625, 2750, 250, -2625, 500, 2625, -250, 2875, 0, 125, 468, -416, -624,
    -884, 1144, 936, 676, 468, -416, -624, -884, 1144, 936, 676, 468, -416, 221, 272, 340, -289, -238, -170,
    153, 221, 0, 68, -17, -510, -442, 425, 493, 0, 1800, -90, -2610, 1980, 810, -270, -2880, 1800, -720,
    -2520, 1530, 1260, -540, -2250, 1710, -720, 2492, -1513, -1157, 534, 2225, -1691, 712, 2492, -1513,
    -1157, 534, 2225, -1691, 712, 2492, -1513,
];
