//! Emulated tiles against what the manual says, and the processor's against them.

#[cfg(target_os = "linux")]
use super::{detection, peak, trapped};
use super::{
    emulated::Emulated,
    hardware::Hardware,
    tiles::{ROW_BYTES, ROWS, Shape, Tiles},
};
use crate::{
    cpu::{Amx, Avx512},
    testing::{Noise, bits},
};
use half::bf16;

/// `c += a * b` with the first `rows` rows, in registers 1, 4 and 7.
///
/// # Safety
/// Such tiles may be used.
unsafe fn product<T: Tiles>(rows: u8, c: &mut [f32; 256], a: &[u16; 512], b: &[u16; 512]) {
    // SAFETY: promised by the caller; every operand is as large as a full tile.
    unsafe {
        let mut tiles = T::configured([1, rows, 1, 1, rows, 1, 1, ROWS as u8].map(Shape::of_rows));
        tiles.load::<1>(c.as_ptr().cast(), ROW_BYTES);
        tiles.load::<4>(a.as_ptr().cast(), ROW_BYTES);
        tiles.load::<7>(b.as_ptr().cast(), ROW_BYTES);
        tiles.multiply::<1, 4, 7>();
        tiles.store::<1>(c.as_mut_ptr().cast());
    }
}

/// Result of one row and column, for `c + sum of a[k] * b[k]`.
fn one(c: f32, pairs: &[(f32, f32)]) -> f32 {
    let (mut results, mut a, mut b) = ([0.0; 256], [0; 512], [0; 512]);
    let (m, n) = (3, 5);
    results[16 * m + n] = c;
    for (k, pair) in pairs.iter().enumerate() {
        a[32 * m + k] = bf16::from_f32(pair.0).to_bits();
        b[k / 2 * 32 + 2 * n + k % 2] = bf16::from_f32(pair.1).to_bits();
    }
    // SAFETY: tiles in memory need nothing.
    unsafe { product::<Emulated>(16, &mut results, &a, &b) };
    for (i, result) in results.iter().enumerate() {
        assert!(i == 16 * m + n || *result == 0.0, "result {i} is {result}");
    }
    results[16 * m + n]
}

#[test]
fn even_and_odd_columns_are_summed_apart_then_added() {
    const BIG: f32 = 16_777_216.0; // 2^24: one more is lost, two more are not.
    assert_eq!(one(0.5, &[(2.0, 3.0), (4.0, 5.0), (-1.0, 1.0)]), 25.5);
    // Each 1 meets the large sum of its own chain only.
    assert_eq!(one(0.0, &[(BIG, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]), BIG + 2.0);
    assert_eq!(one(0.0, &[(BIG, 1.0), (0.0, 1.0), (1.0, 1.0), (0.0, 1.0), (1.0, 1.0)]), BIG);
    // The chains start from zero, not from the result so far.
    assert_eq!(one(BIG, &[(1.0, 1.0), (1.0, 1.0)]), BIG + 2.0);
    // The product is not rounded before it is added.
    let x = 1.0 + 2f32.powi(-7);
    assert_eq!(one(0.0, &[(1.0, -BIG), (0.0, 0.0), (x, x)]), x.mul_add(x, -BIG));
}

#[test]
fn denormals_are_zeros() {
    let (tiny, small) = (f32::MIN_POSITIVE, 2f32.powi(-130));
    assert_eq!(one(0.0, &[(tiny, 0.5)]), 0.0);
    assert_eq!(one(0.0, &[(small, 16.0)]), 0.0);
    assert_eq!(one(0.0, &[(16.0, small)]), 0.0);
    assert_eq!(one(small, &[(1.0, 1.0)]), 1.0);
    assert_eq!(one(small, &[]), 0.0);
    assert_eq!(one(0.0, &[(tiny, 1.0)]), tiny);
}

#[test]
fn rows_past_the_configured_ones_are_neither_read_nor_written() {
    let (mut c, a, b) = ([7.0; 256], [0x3f80; 512], [0x3f80; 512]);
    // SAFETY: tiles in memory need nothing.
    unsafe { product::<Emulated>(3, &mut c, &a, &b) };
    assert!(c[..48].iter().all(|c| *c == 39.0) && c[48..].iter().all(|c| *c == 7.0));
}

/// Nothing to compare where the processor has no tiles.
#[test]
fn the_processor_computes_what_emulation_does() {
    let Some(_proof) = Amx::detect() else { return };
    let mut noise = Noise::new(11);
    for case in 0..200 {
        let rows = 1 + (case % ROWS) as u8;
        // Every third case has denormals among its numbers.
        let scale = if case % 3 == 0 { 2f32.powi(-62) } else { 1.0 };
        let mut number = || noise.value() * 2f32.powi(noise.below(20) as i32 - 10) * scale;
        let c: [f32; 256] = std::array::from_fn(|_| number() * scale);
        let mut pairs = || std::array::from_fn(|_| bf16::from_f32(number()).to_bits());
        let (a, b) = (pairs(), pairs());
        let (mut found, mut expected) = (c, c);
        // SAFETY: the proof says that the processor's tiles can be used.
        unsafe {
            product::<Hardware>(rows, &mut found, &a, &b);
            product::<Emulated>(rows, &mut expected, &a, &b);
        }
        assert_eq!(bits(&found), bits(&expected), "case {case} of {rows} rows");
    }
}

/// What finds the tier, and what measures its peak: as compiled for the processor's tiles.
#[cfg(target_os = "linux")]
#[test]
fn compiled_products_are_those_of_emulation() {
    if Avx512::detect().is_none() {
        return;
    }
    trapped::run(|| {
        // SAFETY: tile instructions are there, or trapped.
        assert!(unsafe { detection::computes_right() });
        // SAFETY: as above.
        assert_eq!(unsafe { peak::products(2) }, (65_536, 64.0));
    });
}
