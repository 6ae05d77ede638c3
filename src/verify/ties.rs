//! Ties: of tokens with equal logits the lowest id comes first, on the host and in kernels.
//!
//! Logits of real models hardly ever tie, so a small model is made on the same device in which every logit occurs
//! twice.

use std::{borrow::Cow, cmp::Ordering};

use ygg_profiler::Random;

use crate::{
    engine::{Error, Loaded, argmax},
    ir::{Choice, Graph, GraphError, Input, KvSpec, Op, WeightFormat, WeightId, WeightSource, WeightSpec},
    runtime::{ExecutableSet, Pinning, Session, SessionOptions},
    sample::{Candidate, Sampler, Sampling, top},
};

use super::{
    VerifyOptions,
    extent::Clock,
    halt::Halt,
    subject::{Subject, bits},
    walk::Tell,
};

/// Tokens of the model; those that are equal modulo [`DISTINCT`] tie.
const VOCABULARY: usize = 384;
const DISTINCT: usize = 96;
/// Columns of its matrices.
const COLUMNS: usize = 64;
/// Tokens whose order is compared: two groups that tie, and a part of the third.
const COMPARED: usize = 10;

/// At every planned width: what kernels choose, and what host code chooses of the same logits, against a sorted list.
pub(super) fn the_lowest_token_wins(
    subject: &Subject<'_>,
    options: &VerifyOptions,
    clock: Clock,
    tell: Tell<'_>,
) -> Result<String, Halt> {
    let set = &subject.tied;
    let context = set.model_context();
    let widest = *set.widths().last().expect("width 1 is always planned");
    let threads = subject.loaded.threads();
    let session = SessionOptions { context, tree_nodes: widest, threads, pinning: Pinning::Floating };
    let mut session = Session::open(set.clone(), &session)?;
    let mut sampler = Sampler::new(Sampling::GREEDY, VOCABULARY)?;
    let rounds = options.extent.of(4, 32);
    let mut rows = 0;
    for round in 0..rounds {
        if round > 0 && clock.is_up() {
            break;
        }
        for width in set.widths() {
            let tokens = Random::new(round as u64).tokens(*width, VOCABULARY);
            let mut forward = session.forward(*width)?;
            tokens.iter().for_each(|token| forward.push_behind(*token));
            let logits = forward.run(None);
            let logits: Vec<Vec<f32>> = (0..*width).map(|row| logits.row(row).to_vec()).collect();
            let mut forward = session.forward(*width)?;
            tokens.iter().for_each(|token| forward.push_behind(*token));
            let choices = forward.choose(Choice { k: COMPARED, temperature: None }, None);
            for (row, logits) in logits.iter().enumerate() {
                let expected = in_order(logits);
                if bits(logits)[expected[0] as usize] != bits(logits)[expected[1] as usize] {
                    return Err(Halt::Broken(format!(
                        "row {row} of {width}: expected equal logits of tokens with equal weights, found {:e} and {:e}",
                        logits[expected[0] as usize], logits[expected[1] as usize]
                    )));
                }
                let by_kernels = choices.row(row).iter().map(|(token, _)| token).collect();
                let mut by_host: Vec<Candidate> = Vec::new();
                top(logits, COMPARED, &mut Vec::new(), &mut by_host);
                let by_host = by_host.iter().map(|candidate| candidate.token).collect();
                let drawn = (subject.draw)(&mut sampler, logits, 0);
                for (who, found) in [
                    ("kernels choose", by_kernels),
                    ("drafters take", by_host),
                    ("greedy sampling draws", vec![drawn]),
                    ("argmax finds", vec![argmax(logits)]),
                ] {
                    expect(&expected, &found, who, &format!("row {row} of {width}"))?;
                }
                rows += 1;
            }
        }
        tell(round + 1, rounds);
    }
    Ok(format!(
        "{rows} rows in which {} tokens tie for every place: kernels, drafters and greedy sampling take the lowest id \
         first",
        VOCABULARY / DISTINCT
    ))
}

fn expect(expected: &[u32], found: &[u32], who: &str, what: &str) -> Result<(), Halt> {
    let expected = &expected[..found.len().max(1)];
    if expected == found {
        return Ok(());
    }
    Err(Halt::Broken(format!(
        "{what}: expected tokens {expected:?}, of equal logits the lowest id first, but {who} {found:?}"
    )))
}

/// The first tokens by definition: higher logit, then lower id.
fn in_order(logits: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32).collect();
    let higher = |a: &u32, b: &u32| {
        logits[*b as usize].partial_cmp(&logits[*a as usize]).unwrap_or(Ordering::Equal).then(a.cmp(b))
    };
    tokens.sort_by(higher);
    tokens.truncate(COMPARED);
    tokens
}

/// The embedding matrix and the head.
struct Matrices([Vec<u8>; 2]);

impl WeightSource for Matrices {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0[weight.0 as usize])
    }
}

/// A model without layers on the device of `loaded` and with its widths, whose logits tie.
pub(super) fn tied_model(loaded: &Loaded) -> Result<ExecutableSet, Error> {
    let mut seed = Random::new(1);
    let mut matrix = |distinct: usize| -> Vec<u8> {
        let rows: Vec<u8> =
            (0..distinct * COLUMNS).flat_map(|_| (seed.uniform() as f32 - 0.5).to_le_bytes()).collect();
        rows.iter().copied().cycle().take(VOCABULARY * COLUMNS * size_of::<f32>()).collect()
    };
    let weights = Matrices([matrix(VOCABULARY), matrix(DISTINCT)]);
    let graph = graph().map_err(|error| Error::internal(error.to_string()))?;
    let widths = loaded.set().widths().to_vec();
    let longest = 2 * *widths.last().expect("width 1 is always planned");
    let options = loaded.set_options(widths, longest);
    Ok(ExecutableSet::build(&graph, &weights, &options)?)
}

fn graph() -> Result<Graph, GraphError> {
    let matrix = |name: &str| WeightSpec::new(name, VOCABULARY, COLUMNS, WeightFormat::F32);
    let kv = KvSpec { layers: 1, kv_heads: 1, head_dim: COLUMNS, ..KvSpec::default() };
    let mut graph = Graph::new("tied", vec![matrix("embedding"), matrix("head")], kv);
    let tokens = graph.add(Op::Input(Input::Tokens), &[], None)?;
    let output_rows = graph.add(Op::Input(Input::OutputRows), &[], None)?;
    let x = graph.add(Op::Embed { weight: WeightId(0) }, &[tokens], None)?;
    let x = graph.add(Op::SelectRows, &[x, output_rows], None)?;
    let logits = graph.add(
        Op::Linear { weights: vec![WeightId(1)], biases: vec![], norm: None, residual: false },
        &[x],
        None,
    )?;
    graph.set_logits(logits);
    Ok(graph)
}
