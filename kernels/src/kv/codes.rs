//! Keys and values as signed bytes: [`KvFormat::Q8`](crate::KvFormat::Q8). Equal in every tier.

/// Adding it to a number of at most 22 bits leaves the nearest integer in the low bits, the even one of two.
const TO_INTEGER: f32 = 12_582_912.0;

/// A head of smaller numbers becomes zeros.
const SMALLEST: f32 = 1e-30;

/// Writes the codes of a head, and returns what they are multiplied with.
///
/// # Panics
/// If there is no room.
#[inline(always)]
pub(crate) fn encode(head: &[f32], codes: &mut [i8]) -> f32 {
    let codes = &mut codes[..head.len()];
    let mut largest = 0.0_f32;
    for x in head {
        // False for NaN.
        largest = if x.abs() > largest { x.abs() } else { largest };
    }
    let largest = if largest > f32::MAX { f32::MAX } else { largest };
    if largest < SMALLEST {
        codes.fill(0);
        return 0.0;
    }
    let inverse = 127.0 / largest;
    for (code, x) in codes.iter_mut().zip(head) {
        let x = if x.is_nan() { 0.0 } else { *x };
        let x = if x > largest { largest } else { x };
        let x = if x < -largest { -largest } else { x };
        *code = (x * inverse + TO_INTEGER).to_bits() as i8;
    }
    largest / 127.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Noise;

    #[test]
    fn codes_are_the_nearest_and_numbers_beyond_are_held() {
        let mut noise = Noise::new(7);
        for size in [1e-20, 1e-3, 1.0, 1e4, 1e38] {
            let head: Vec<f32> = noise.values(64).iter().map(|x| x * size).collect();
            let mut codes = [0; 64];
            let scale = encode(&head, &mut codes);
            for (x, code) in head.iter().zip(codes) {
                assert!((x - f32::from(code) * scale).abs() <= 0.5001 * scale, "{x} as {code} of {scale}");
            }
            assert!(codes.iter().any(|code| code.abs() == 127));
        }
        let mut codes = [5; 4];
        assert_eq!((encode(&[0.0, -0.0, 1e-31, f32::NAN], &mut codes), codes), (0.0, [0; 4]));
        let scale = encode(&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0], &mut codes);
        assert_eq!((scale, codes), (f32::MAX / 127.0, [127, -127, 0, 0]));
    }
}
