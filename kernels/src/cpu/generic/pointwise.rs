//! Sums and scalings of rows: one rounding per element, so equal in every tier.

/// `out = a + b`.
pub(in crate::cpu) fn add(a: &[f32], b: &[f32], out: &mut [f32]) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// `out += a`.
pub(in crate::cpu) fn add_into(a: &[f32], out: &mut [f32]) {
    for (out, a) in out.iter_mut().zip(a) {
        *out += a;
    }
}

/// `x *= factor`.
pub(in crate::cpu) fn scale(factor: f32, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x *= factor);
}
