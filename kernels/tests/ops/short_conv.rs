//! Short convolutions: tolerance against the reference; equality over tiers, units, slots, and over which rows are in
//! one forward.

use super::tiers;
use proptest::prelude::*;
use std::ops::Range;
use ygg_kernels::{
    ConvLayer, KvLayer, Rows, RowsMut, ShortConv, Tails,
    cpu::Kernels,
    reference,
    testing::{Noise, bits},
};

const SLOTS: usize = 48;

/// A sequence of rows, and what they keep.
struct Sequence {
    channels: usize,
    taps: Vec<f32>,
    /// `[W, 3 C]`.
    x: Vec<f32>,
    memory: Vec<f32>,
}

impl Sequence {
    fn new(len: usize, channels: usize, taps: usize, seed: u64) -> Self {
        let mut noise = Noise::new(seed);
        let (x, taps) = (noise.values(len * 3 * channels), noise.values(taps * channels));
        Self { channels, taps, x, memory: vec![0.0; SLOTS * channels] }
    }

    /// Forwards some rows, those before them committed, each in the slot that is named for it; one row of padding comes
    /// first.
    fn forward(
        &mut self,
        rows: Range<usize>,
        slots: &[u32],
        run: impl FnOnce(&ShortConv<'_>, RowsMut<'_>),
    ) -> Vec<f32> {
        let (channels, width) = (self.channels, 1 + rows.len());
        let first = rows.start.saturating_sub(1) * 3 * channels;
        let mut x = self.x[first..first + 3 * channels].to_vec();
        x.extend_from_slice(&self.x[rows.start * 3 * channels..rows.end * 3 * channels]);
        let row_slots: Vec<u32> = [KvLayer::NO_SLOT].into_iter().chain(slots.iter().copied()).collect();
        let prefix: Vec<u32> = (0..width).map(|w| if w == 0 { 0 } else { rows.start as u32 }).collect();
        let tail_len: Vec<u32> = (0..width as u32).collect();
        let tails: Vec<u32> = (0..width).flat_map(|_| slots.iter().copied().chain([u32::MAX])).collect();
        let memory = self.memory.as_mut_ptr();
        let args = ShortConv {
            x: Rows::new(&x, 3 * channels),
            taps: &self.taps,
            slots: &row_slots,
            tails: Tails {
                positions: &tail_len,
                prefix: &prefix,
                tail_len: &tail_len,
                tails: &tails,
                tail_capacity: width,
            },
            // SAFETY: the memory of all slots, borrowed mutably.
            memory: unsafe { ConvLayer::from_raw(memory, SLOTS, channels) },
        };
        let mut out = vec![f32::NAN; width * channels];
        run(&args, RowsMut::new(&mut out, channels));
        out.split_off(channels)
    }

    /// One row after the other, each in its place.
    fn one_by_one(&mut self, kernels: Kernels) -> Vec<f32> {
        let len = self.x.len() / (3 * self.channels);
        let step = |row: usize| {
            self.forward(row..row + 1, &[row as u32], |args, out| {
                kernels.short_conv(args, 0..args.units(), out);
            })
        };
        (0..len).flat_map(step).collect()
    }
}

proptest! {
    /// At most 9 products, of numbers up to 1, and as many roundings.
    #[test]
    fn convolutions_follow_the_reference_whatever_is_forwarded_together(
        (len, channels, taps) in (1usize..20, 1usize..70, 1usize..=ShortConv::MOST_TAPS),
        (committed, apart) in (0usize..20, 0usize..5),
        seed: u64,
    ) {
        let new = || Sequence::new(len, channels, taps, seed);
        let in_place: Vec<u32> = (0..len as u32).collect();
        let expected = new().one_by_one(Kernels::portable());
        let judged = new().forward(0..len, &in_place, reference::short_conv);
        for (i, (found, judged)) in expected.iter().zip(&judged).enumerate() {
            prop_assert!((found - judged).abs() <= 2e-6, "element {i}: {found}, not {judged}");
        }
        let mut noise = Noise::new(seed);
        let committed = committed.min(len);
        let mut scattered: Vec<u32> = (committed as u32..SLOTS as u32).collect();
        noise.shuffle(&mut scattered);
        for kernels in tiers() {
            let mut sequence = new();
            // What must not be read.
            sequence.memory = noise.values(SLOTS * channels);
            let mut found = Vec::new();
            let parts = [(0..committed, &in_place[..committed]), (committed..len, &scattered[..len - committed])];
            for (rows, slots) in parts {
                if rows.is_empty() {
                    continue;
                }
                found.extend(sequence.forward(rows, slots, |args, mut out| {
                    let split = apart.min(args.units());
                    kernels.short_conv(args, split..args.units(), out.reborrow());
                    kernels.short_conv(args, 0..split, out);
                }));
            }
            prop_assert_eq!(bits(&found), bits(&expected), "{}", kernels.tier());
        }
    }
}
