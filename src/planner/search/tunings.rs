//! Which tuning each linear gets: the default, unless another was measured faster by more than noise.
use ygg_profiler::{
    TuningMeasurement, TuningSamples,
    statistics::{paired_ratios, quantile},
};

use crate::plan::ChosenTuning;

/// How much faster than the default a tuning must be in most rounds.
///
/// Equal kernels measured in turn differ by about this much on a quiet machine.
pub const TUNING_MARGIN: f64 = 0.01;

/// Rounds below which nothing is chosen.
pub const FEWEST_ROUNDS: usize = 7;

/// The tunings that differ from the default, in the order measured.
///
/// A tuning wins if it beat the default by [`TUNING_MARGIN`] in three of four rounds; of those that did, the one with
/// the largest median gain.
pub fn choose_tunings(measured: &[TuningMeasurement]) -> Vec<ChosenTuning> {
    measured.iter().filter_map(choose).collect()
}

fn choose(TuningMeasurement { shape, tunings }: &TuningMeasurement) -> Option<ChosenTuning> {
    let (default, others) = tunings.split_first()?;
    if default.samples_us.len() < FEWEST_ROUNDS {
        return None;
    }
    let chosen = |other: &TuningSamples| {
        let ratios = paired_ratios(&default.samples_us, &other.samples_us);
        let wins = quantile(&ratios, 0.25)? > 1.0 + TUNING_MARGIN;
        let gain = quantile(&ratios, 0.5)?;
        let (default_us, tuned_us) = (quantile(&default.samples_us, 0.5)?, quantile(&other.samples_us, 0.5)?);
        let (shape, tuning) = (shape.clone(), other.tuning.clone());
        wins.then_some(ChosenTuning { shape, tuning, default_us, tuned_us, gain })
    };
    others.iter().filter_map(chosen).max_by(|a, b| a.gain.total_cmp(&b.gain))
}

#[cfg(test)]
mod tests {
    use ygg_profiler::TunedShape;

    use super::*;

    fn measured(tunings: &[(&str, [f64; 8])]) -> TuningMeasurement {
        let shape = TunedShape { kernel: "linear.q4_1.avx512".into(), outputs: 96, columns: 64, rows: 2 };
        let samples = |(name, us): &(&str, [f64; 8])| TuningSamples {
            tuning: (*name).to_owned(),
            samples_us: us.to_vec(),
        };
        TuningMeasurement { shape, tunings: tunings.iter().map(samples).collect() }
    }

    #[test]
    fn the_fastest_by_more_than_noise_wins() {
        let default = [10.0, 11.0, 12.0, 40.0, 10.0, 10.0, 11.0, 12.0];
        let all = measured(&[
            ("default", default),
            ("faster", default.map(|us| us / 1.25)),
            ("fast", default.map(|us| us / 1.1)),
            ("slow", default.map(|us| us * 1.1)),
        ]);
        let chosen = choose_tunings(std::slice::from_ref(&all));
        assert_eq!(chosen.len(), 1);
        assert_eq!((chosen[0].tuning.as_str(), &chosen[0].shape), ("faster", &all.shape));
        assert!((chosen[0].gain - 1.25).abs() < 1e-9);
        assert!((chosen[0].default_us - 11.0).abs() < 1e-9 && (chosen[0].tuned_us - 8.8).abs() < 1e-9);
    }

    #[test]
    fn what_noise_can_explain_changes_nothing() {
        let default = [10.0; 8];
        // Faster in the middle, slower in three rounds of eight.
        let unsteady = [9.0, 9.0, 9.0, 9.0, 9.0, 11.0, 11.0, 11.0];
        for other in [default, default.map(|us| us / 1.005), unsteady] {
            let measured = measured(&[("default", default), ("other", other)]);
            assert_eq!(choose_tunings(&[measured]), []);
        }
    }

    #[test]
    fn few_rounds_or_no_other_tuning_choose_nothing() {
        let mut few = measured(&[("default", [10.0; 8]), ("other", [5.0; 8])]);
        assert_eq!(choose_tunings(std::slice::from_ref(&few)).len(), 1);
        few.tunings.iter_mut().for_each(|t| t.samples_us.truncate(FEWEST_ROUNDS - 1));
        assert_eq!(choose_tunings(&[few, measured(&[("default", [10.0; 8])])]), []);
    }
}
