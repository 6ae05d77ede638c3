//! The order of tokens: higher logit first, then lower id. Its first element, and its first k.
//!
//! NaN is below everything and never chosen. Loops over the vocabulary work on blocks without a branch inside, which
//! the compiler turns into vector code.

use super::Candidate;

const LANES: usize = 16;
const BLOCK: usize = 64;

/// The largest logit; negative infinity if there is none but NaN.
#[inline]
pub(super) fn max(logits: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let mut chunks = logits.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    lanes.iter().chain(chunks.remainder()).copied().fold(f32::NEG_INFINITY, larger)
}

/// The token of the largest logit, the lowest id on ties. NaN never wins; token 0 if all logits are NaN.
///
/// # Panics
/// If `logits` is empty.
pub fn argmax(logits: &[f32]) -> u32 {
    assert!(!logits.is_empty(), "a vocabulary has at least one token");
    let max = max(logits);
    let any = |block: &[f32]| block.iter().fold(false, |found, &x| found | (x == max));
    let Some(block) = logits.chunks(BLOCK).position(any) else { return 0 };
    let start = block * BLOCK;
    let within = logits[start..].iter().position(|&x| x == max).expect("the block holds the maximum");
    (start + within) as u32
}

/// Whether `a` comes before `b`. Logits are not NaN here.
#[inline]
pub(super) fn before(a: &Candidate, b: &Candidate) -> bool {
    a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.token < b.token)
}

/// The order as an integer, larger = earlier, for sorting and for one-comparison cut-offs. `logit` is not NaN.
#[inline]
pub(super) fn key(token: u32, logit: f32) -> u64 {
    // `+ 0.0` turns -0.0 into 0.0: they are equal, so the id decides.
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ascending) << 32 | u64::from(!token)
}

/// Replaces `out` by the first `k` tokens of the order (fewer if fewer are not NaN), in no particular sequence. Their
/// `log_prob` is the logit: a log-probability up to the normalisation that the caller does.
pub(super) fn select_top(logits: &[f32], k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    if k == 0 {
        return;
    }
    let mut next = 0;
    while out.len() < k {
        let Some(&logit) = logits.get(next) else { return };
        if !logit.is_nan() {
            out.push(Candidate { token: next as u32, log_prob: logit });
        }
        next += 1;
    }
    for i in (0..k / 2).rev() {
        sift_down(out, i);
    }
    // Ids ascend, so a logit equal to the worst kept one loses and `>` is the whole order.
    for (block, start) in logits[next..].chunks(BLOCK).zip((next..).step_by(BLOCK)) {
        let worst = out[0].log_prob;
        if !block.iter().fold(false, |found, &x| found | (x > worst)) {
            continue;
        }
        for (i, &logit) in block.iter().enumerate() {
            if logit > out[0].log_prob {
                out[0] = Candidate { token: (start + i) as u32, log_prob: logit };
                sift_down(out, 0);
            }
        }
    }
}

/// Appends the first `k` tokens of the order to `out`, fewer if fewer are not NaN, the first first. Their `log_prob` is
/// the logit.
///
/// Allocates nothing once `scratch` has room for `k` and `out` for `k` more.
pub fn top(logits: &[f32], k: usize, scratch: &mut Vec<Candidate>, out: &mut Vec<Candidate>) {
    select_top(logits, k, scratch);
    let earlier = |a: &Candidate, b: &Candidate| key(b.token, b.log_prob).cmp(&key(a.token, a.log_prob));
    scratch.sort_unstable_by(earlier);
    out.extend_from_slice(scratch);
}

/// Restores the heap below `i`; the last of the order is at the top.
fn sift_down(heap: &mut [Candidate], mut i: usize) {
    loop {
        let mut child = 2 * i + 1;
        if child >= heap.len() {
            return;
        }
        if child + 1 < heap.len() && before(&heap[child], &heap[child + 1]) {
            child += 1;
        }
        if before(&heap[child], &heap[i]) {
            return;
        }
        heap.swap(i, child);
        i = child;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_logit() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => (-20..20_i8).prop_map(|x| f32::from(x) / 4.0),
            4 => -30.0..30.0_f32,
            1 => prop::sample::select(vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX]),
        ]
    }

    fn sorted(logits: &[f32]) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..logits.len() as u32).filter(|&i| !logits[i as usize].is_nan()).collect();
        ids.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).unwrap());
        ids
    }

    proptest! {
        #[test]
        fn order_agrees_with_a_stable_sort(logits in prop::collection::vec(any_logit(), 1..300), k in 0..320_usize) {
            let expected = sorted(&logits);
            prop_assert_eq!(argmax(&logits), expected.first().copied().unwrap_or(0));

            let mut top = Vec::new();
            select_top(&logits, k, &mut top);
            top.sort_by(|a, b| if before(a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater });
            let ids: Vec<u32> = top.iter().map(|c| c.token).collect();
            prop_assert_eq!(&ids[..], &expected[..k.min(expected.len())]);

            let mut appended = vec![Candidate { token: 7, log_prob: 0.5 }];
            super::top(&logits, k, &mut Vec::new(), &mut appended);
            prop_assert_eq!(&appended[1..], &top[..]);

            let mut keys: Vec<u64> = expected.iter().map(|&i| key(i, logits[i as usize])).collect();
            prop_assert!(keys.is_sorted_by(|a, b| a > b));
            keys.dedup();
            prop_assert_eq!(keys.len(), expected.len());
        }
    }

    #[test]
    fn ties_go_to_the_lowest_id_wherever_the_lanes_fall() {
        for n in [1, 15, 16, 17, 63, 64, 65, 200] {
            for first in 0..n {
                let mut logits = vec![-1.0; n];
                logits[first..].fill(2.0);
                assert_eq!(argmax(&logits), first as u32);
            }
        }
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
        assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY, f32::NEG_INFINITY]), 1);
        assert_eq!(argmax(&[f32::NAN; 40]), 0);
    }
}
