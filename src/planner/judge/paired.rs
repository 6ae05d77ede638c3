//! What few prompts say of all that were recorded, with the help of drafters that were replayed along more of them.
//!
//! Prompts that are hard for one drafter are hard for others, too. So where a drafter rests on some of the prompts and
//! another one on more, how fast the other one is on the former and on all of them says how far the former are off: the
//! regression estimator of double sampling (Cochran, *Sampling Techniques*, 1977, 12.6).
use crate::planner::price::prompt_speed::{
    PromptSpeed, influences, of_prompts, standard_error, us_per_token,
};

/// The time per token of a drafter on all prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::planner) struct OfAll {
    /// Relative to that on its own prompts.
    pub(in crate::planner) factor: f64,
    /// How far it may be off that on prompts that nobody recorded, relative to it: the half of an interval that holds
    /// it nine times in ten.
    pub(in crate::planner) error: f64,
}

impl OfAll {
    /// The surest of what `own` says by itself and with each of `others`, drafters along the same prompts and further
    /// ones.
    pub(in crate::planner) fn surest<'o>(
        own: &[PromptSpeed],
        others: impl Iterator<Item = &'o [PromptSpeed]>,
    ) -> Self {
        let alone = Self { factor: 1.0, error: of_prompts(own.len(), standard_error(influences(own))) };
        let with_help = others.filter_map(|other| Self::with(own, other));
        with_help.fold(alone, |surest, found| if found.error < surest.error { found } else { surest })
    }

    /// What `own` says with `other`; `None` if that has no further prompts or lacks one of them, or nothing can be said
    /// of how they go together.
    fn with(own: &[PromptSpeed], other: &[PromptSpeed]) -> Option<Self> {
        let n = own.len();
        let beside = |prompt: &PromptSpeed| other.iter().find(|known| known.place == prompt.place).copied();
        let same = own.iter().map(beside).collect::<Option<Vec<_>>>()?;
        if n < 3 || other.len() <= n {
            return None;
        }
        let pairs: Vec<(f64, f64)> = influences(own).zip(influences(&same)).collect();
        let sum =
            |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(own, other)| of(*own, *other)).sum::<f64>();
        let squares = sum(&|_, other| other * other);
        let slope = sum(&|own, other| own * other) / squares;
        // What the other one does not explain.
        let rest = sum(&|own, other| (own - slope * other).powi(2)) / (n - 2) as f64;
        let further = us_per_token(other) / us_per_token(&same) - 1.0;
        let factor = 1.0 + slope * further;
        if !(factor.is_finite() && factor > 0.0) {
            return None;
        }
        let of_rest = (n as f64 * rest + further.powi(2) * rest / squares).sqrt();
        let of_other = of_prompts(other.len(), standard_error(influences(other)));
        Some(Self { factor, error: of_prompts(n - 1, of_rest).hypot(slope * of_other) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` prompts of different lengths, whose tokens take as long as `us` says.
    fn prompts(count: usize, mut us: impl FnMut(usize) -> f64) -> Vec<PromptSpeed> {
        let tokens = |place: usize| 40.0 + (place % 5) as f64 * 14.0;
        (0..count).map(|place| PromptSpeed::of(place, tokens(place), tokens(place) * us(place))).collect()
    }

    #[test]
    fn few_prompts_are_told_from_all_by_a_drafter_that_has_them_all() {
        let (runs, many, few) = (300, 80, 12);
        let (mut of_few, mut of_all, mut inside) = (0.0, 0.0, 0);
        let mut dice = 1_u64;
        let mut unit = || {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 40) as f64 / (1 << 24) as f64
        };
        let mut normal = || (0..12).map(|_| unit()).sum::<f64>() - 6.0;
        for _ in 0..runs {
            let hard: Vec<f64> = (0..many).map(|_| (0.25 * normal()).exp()).collect();
            let truth = (0.25_f64.powi(2) / 2.0).exp();
            let other = prompts(many, |place| 50.0 * hard[place]);
            let own = prompts(few, |place| 80.0 * hard[place] * (0.06 * normal()).exp());
            let OfAll { factor, error } = OfAll::surest(&own, [&other[..]].into_iter());
            let off = |factor: f64| us_per_token(&own) * factor / (80.0 * truth) - 1.0;
            of_few += off(1.0).powi(2);
            of_all += off(factor).powi(2);
            inside += u32::from(off(factor).abs() <= error);
        }
        assert!(of_all < 0.35 * of_few, "{of_all} and {of_few}");
        assert!(f64::from(inside) > 0.87 * f64::from(runs), "{inside} of {runs} inside");
    }

    #[test]
    fn what_goes_its_own_way_says_nothing() {
        let own = prompts(12, |place| 80.0 + 10.0 * (place % 3) as f64);
        let alone = OfAll::surest(&own, std::iter::empty());
        assert_eq!(alone.factor, 1.0);
        let apart = prompts(40, |place| if place % 2 == 0 { 30.0 } else { 70.0 });
        assert_eq!(OfAll::surest(&own, [&apart[..]].into_iter()), alone);
        let of_others: Vec<PromptSpeed> = prompts(40, |place| 80.0 + 10.0 * (place % 3) as f64).split_off(5);
        assert_eq!(OfAll::surest(&own, [&of_others[..]].into_iter()), alone, "it lacks the first");
        assert_eq!(OfAll::surest(&own, [&own[..]].into_iter()), alone, "it has no more");
        let even = prompts(40, |_| 80.0);
        assert_eq!(OfAll::surest(&own, [&even[..]].into_iter()), alone, "nothing is hard for it");
        for few in 0..3 {
            let alone = OfAll::surest(&own[..few], std::iter::empty());
            assert_eq!(OfAll::surest(&own[..few], [&apart[..]].into_iter()), alone);
        }
    }
}
