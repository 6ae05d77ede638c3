//! Draws: their frequencies are those of the model's distribution, filtered as the request asks.
//!
//! An exact test: Pearson's statistic of the draws is ranked among those of samples from the expected distribution
//! itself (Monte Carlo test, Hope 1968, <https://doi.org/10.1111/j.2517-6161.1968.tb00759.x>), so no approximation for
//! large counts is trusted. A sampler is refused if the draws rank last in two tests of other draws: a right one is,
//! once in a million times. Every run also tests a sampler that favours one token by a twentieth, which must be
//! refused.

use std::{cell::RefCell, cmp::Ordering};

use ygg_profiler::Random;

use crate::{
    runtime::Pinning,
    sample::{Sampler, Sampling},
};

use super::{
    VerifyOptions,
    extent::Clock,
    halt::Halt,
    subject::{Draw, Subject},
    walk::Tell,
};

/// Tokens that may be drawn.
const SUPPORT: usize = 8;
/// Draws of the first test; the second has four times as many.
const DRAWS: usize = 4000;
/// Samples that the draws are ranked among.
const SAMPLES: usize = 999;
/// Percentage of draws that the biased sampler replaces by the rarest token.
const BIAS_PERCENT: usize = 5;

/// Rows of the model over its best tokens, by temperature and every filter, over positions of one seed and over seeds.
pub(super) fn draws_follow_the_distribution(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let prompts = options.prompts.iter().take(options.extent.of(2, 8));
    let mut session = subject.session(subject.loaded.threads(), Pinning::Floating)?;
    let (mut tests, mut draws) = (0, 0);
    let total = prompts.len();
    for (number, prompt) in prompts.enumerate() {
        if number > 0 && clock.is_up() {
            break;
        }
        let ids = prompt.token_ids(&subject.loaded)?;
        let row = session.restart(&ids[..ids.len().min(subject.context())])?.to_vec();
        for case in cases(&row, number as u64)? {
            let what = format!("{} after prompt {number}", case.name);
            draws += case.expect_fair(subject.draw, &what)?;
            tests += 1;
            let rarest = case.rarest();
            let biased = RefCell::new(Random::new(7));
            let favour = |sampler: &mut Sampler, logits: &[f32], position: u64| {
                let drawn = sampler.draw(logits, position);
                if biased.borrow_mut().chance(BIAS_PERCENT) { rarest } else { drawn }
            };
            if case.expect_fair(&favour, &what).is_ok() {
                return Err(Halt::Broken(format!(
                    "{what}: expected the test to refuse a sampler that takes token {rarest} {BIAS_PERCENT} times in \
                     a hundred whatever is drawn, but it did not"
                )));
            }
        }
        tell(number + 1, total);
    }
    if tests == 0 {
        return Err(Halt::NotChecked("no prompt was given".to_owned()));
    }
    Ok(format!(
        "{draws} draws in {tests} tests of rows of the model, by temperature, top-k, top-p and min-p: frequencies as \
         the distribution says; a sampler biased by {BIAS_PERCENT} % was caught in every test"
    ))
}

/// A row, a request, and the distribution that follows from both.
struct Case {
    name: &'static str,
    logits: Vec<f32>,
    sampling: Sampling,
    /// Tokens that may be drawn, with their probabilities.
    expected: Vec<(u32, f64)>,
}

/// Cases of a row `[V]`: over the whole vocabulary by top-k, and over its best tokens alone.
fn cases(row: &[f32], seed: u64) -> Result<Vec<Case>, Halt> {
    let order = in_order(row);
    let best = &order[..SUPPORT.min(order.len())];
    let few: Vec<f32> = best.iter().map(|token| row[*token as usize]).collect();
    if best.len() < 2 || few.iter().any(|logit| !logit.is_finite()) {
        return Err(Halt::Broken(format!("expected finite logits of two tokens at least, found {few:?}")));
    }
    // The rarest of the best tokens is a twentieth as probable as the best, so that all are drawn often.
    let spread = (few[0] - few[few.len() - 1]).max(0.1);
    let plain = Sampling { temperature: spread / 3.0, seed, ..Sampling::GREEDY };
    let case = |name, logits: &[f32], sampling| Case {
        name,
        expected: standardised(logits, &sampling),
        logits: logits.to_vec(),
        sampling,
    };
    let all = standardised(&few, &plain);
    let (top_p, min_p) = (half_nucleus(&all), half_floor(&all));
    Ok(vec![
        case("top-k", row, Sampling { top_k: SUPPORT as u32, ..plain }),
        case("temperature", &few, plain),
        case("top-p", &few, Sampling { top_p, ..plain }),
        case("min-p", &few, Sampling { min_p, ..plain }),
    ])
}

/// A nucleus that ends in the middle of the token with which it has more than half of the tokens, far from any
/// rounding.
fn half_nucleus(all: &[(u32, f64)]) -> f32 {
    let half = all.len() / 2;
    let before: f64 = all[..half].iter().map(|(_, probability)| probability).sum();
    (before + all[half].1 / 2.0) as f32
}

/// A floor that leaves half of the tokens or fewer out, between two that are clearly apart; 0 if there are none.
fn half_floor(all: &[(u32, f64)]) -> f32 {
    let apart = all.windows(2).skip(all.len() / 2 - 1).find(|pair| pair[1].1 < 0.99 * pair[0].1);
    apart.map_or(0.0, |pair| ((pair[0].1 + pair[1].1) / 2.0 / all[0].1) as f32)
}

/// Token ids by definition of their order: higher logit, then lower id; NaN last.
fn in_order(row: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..row.len() as u32).filter(|token| !row[*token as usize].is_nan()).collect();
    let higher =
        |a: &u32, b: &u32| row[*b as usize].partial_cmp(&row[*a as usize]).unwrap_or(Ordering::Equal);
    tokens.sort_by(|a, b| higher(a, b).then(a.cmp(b)));
    tokens
}

/// The distribution of a row as the filters are defined, without any care for speed.
fn standardised(row: &[f32], sampling: &Sampling) -> Vec<(u32, f64)> {
    let Sampling { temperature, top_k, top_p, min_p, seed: _ } = *sampling;
    let order = in_order(row);
    let best = f64::from(row[order[0] as usize]);
    let weight = |token: u32| ((f64::from(row[token as usize]) - best) / f64::from(temperature)).exp();
    let mut kept: Vec<(u32, f64)> = order.iter().map(|token| (*token, weight(*token))).collect();
    if top_k > 0 {
        kept.truncate(top_k as usize);
    }
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    let nucleus = kept.iter().position(|(_, weight)| {
        sum += weight;
        sum >= f64::from(top_p) * total
    });
    if top_p < 1.0 {
        kept.truncate(nucleus.map_or(kept.len(), |last| last + 1));
    }
    kept.retain(|(_, weight)| *weight >= f64::from(min_p));
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    kept.into_iter().map(|(token, weight)| (token, weight / total)).collect()
}

impl Case {
    /// The token with the least probability of those that may be drawn.
    fn rarest(&self) -> u32 {
        self.expected.last().expect("the best token always may be drawn").0
    }

    /// Tests tokens, then pairs of tokens at neighbouring places, which are independent; gives how many draws were
    /// made.
    fn expect_fair(&self, draw: Draw<'_>, what: &str) -> Result<usize, Halt> {
        let of_tokens: Vec<f64> = self.expected.iter().map(|(_, probability)| *probability).collect();
        let tokens =
            expect_frequencies(&of_tokens, what, |draws, round| self.counts(draw, draws, round, what))?;
        let of_pairs: Vec<f64> =
            of_tokens.iter().flat_map(|first| of_tokens.iter().map(move |second| first * second)).collect();
        let what = format!("{what}, pairs of places");
        let pairs =
            expect_frequencies(&of_pairs, &what, |draws, round| self.pair_counts(draw, draws, round, &what))?;
        Ok(tokens + 2 * pairs)
    }

    /// How often each token is drawn: half of the draws by positions of one seed, half by seeds at one position.
    fn counts(&self, draw: Draw<'_>, draws: usize, round: u64, what: &str) -> Result<Vec<u64>, Halt> {
        let first = round << 32;
        let mut sampler = Sampler::new(self.sampling, self.logits.len())?;
        let mut counts = vec![0; self.expected.len()];
        for number in 0..draws as u64 {
            let position = if number % 2 == 0 {
                sampler.set_sampling(self.sampling)?;
                first + number
            } else {
                sampler.set_sampling(Sampling { seed: first + number, ..self.sampling })?;
                round
            };
            counts[self.place(draw(&mut sampler, &self.logits, position), what)?] += 1;
        }
        Ok(counts)
    }

    /// How often each pair of tokens is drawn at a place and the one after it, by one seed.
    fn pair_counts(&self, draw: Draw<'_>, pairs: usize, round: u64, what: &str) -> Result<Vec<u64>, Halt> {
        let mut sampler = Sampler::new(self.sampling, self.logits.len())?;
        let mut counts = vec![0; self.expected.len().pow(2)];
        for number in 0..pairs as u64 {
            let position = (round << 32) + 2 * number;
            let mut place = |position| self.place(draw(&mut sampler, &self.logits, position), what);
            let (first, second) = (place(position)?, place(position + 1)?);
            counts[first * self.expected.len() + second] += 1;
        }
        Ok(counts)
    }

    /// The place of a token that was drawn.
    fn place(&self, drawn: u32, what: &str) -> Result<usize, Halt> {
        self.expected.iter().position(|(token, _)| *token == drawn).ok_or_else(|| {
            Halt::Broken(format!(
                "{what}: expected one of {:.4?}, but token {drawn} was drawn",
                self.expected
            ))
        })
    }
}

/// Counts outcomes of these probabilities, twice if need be; gives how many were counted.
fn expect_frequencies(
    probabilities: &[f64],
    what: &str,
    counts: impl Fn(usize, u64) -> Result<Vec<u64>, Halt>,
) -> Result<usize, Halt> {
    let mut made = 0;
    for (round, draws) in [DRAWS, 4 * DRAWS].into_iter().enumerate() {
        let counts = counts(draws, round as u64)?;
        made += draws;
        if rank(probabilities, &counts, draws, round as u64) > 0 {
            return Ok(made);
        }
        if round == 1 {
            let found: Vec<f64> = counts.iter().map(|count| *count as f64 / draws as f64).collect();
            return Err(Halt::Broken(format!(
                "{what}: expected tokens with probabilities {probabilities:.4?}, found frequencies {found:.4?} of \
                 {draws} draws, farther off than any of {SAMPLES} samples"
            )));
        }
    }
    unreachable!("the second round decides")
}

/// Samples of the expected distribution that are at least as far off as the counts.
fn rank(probabilities: &[f64], counts: &[u64], draws: usize, round: u64) -> usize {
    let found = distance(probabilities, counts, draws);
    let up_to: Vec<f64> = probabilities
        .iter()
        .scan(0.0, |sum, probability| {
            *sum += probability;
            Some(*sum)
        })
        .collect();
    let mut seed = Random::new(round);
    let is_farther = |_: &usize| {
        let mut sample = vec![0; counts.len()];
        for _ in 0..draws {
            let u = seed.uniform();
            let place = up_to.partition_point(|sum| *sum <= u);
            sample[place.min(counts.len() - 1)] += 1;
        }
        distance(probabilities, &sample, draws) >= found
    };
    (0..SAMPLES).filter(is_farther).count()
}

/// Pearson's statistic.
fn distance(probabilities: &[f64], counts: &[u64], draws: usize) -> f64 {
    let term = |(count, probability): (&u64, &f64)| {
        let expected = probability * draws as f64;
        (*count as f64 - expected).powi(2) / expected
    };
    counts.iter().zip(probabilities).map(term).sum()
}
