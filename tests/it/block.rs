//! Block drafters in every layout that is published, for verifiers of several families, against what PyTorch computes
//! in float32 from the definitions of the papers.
//!
//! `tests/data/block` holds the drafters and the reference outputs; its README says what each has.

use std::{fs, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};
use yggc::{
    model::HiddenStateModel,
    runtime::{Choice, ExecutableSet, Session},
    sample::{Coupling, Sampling},
    speculate::{BlockDrafter, Budget, Candidate, Drafter, Stats, StepShape},
    tree::{NodeId, TokenTree},
};

use crate::{
    published_heads::{Best, CANDIDATES, CONTEXT, Heads, Row, Seen, Sets, close, given, same_order},
    tiny_model::{bits, is_cuda, session},
};

const HEADS: [&str; 6] = [
    "dflash-qwen3",
    "dflash-gemma3",
    "dspark-llama",
    "dspark-qwen2",
    "speculators-dflash-phi3",
    "speculators-dspark-gemma2",
];
const KIND: Heads = Heads("block");

#[derive(Debug, Deserialize)]
struct Expected {
    layers: Vec<usize>,
    token_ids: Vec<u32>,
    rows: Vec<Row>,
    block: Vec<Place>,
}

/// A place that the block drafts.
#[derive(Debug, Deserialize)]
struct Place {
    row: usize,
    hidden: Vec<f32>,
    marginal: Best,
    /// With a Markov head, what is most probable after some tokens: first the best one of the place before.
    after: Vec<After>,
}

#[derive(Debug, Deserialize)]
struct After {
    token: u32,
    #[serde(flatten)]
    best: Best,
}

fn expected(name: &str) -> Expected {
    KIND.expected(name)
}

fn sets(name: &str) -> Sets {
    KIND.sets(name)
}

/// A verifier that has read all of a text but its last token.
fn verifying(name: &str, set: &Arc<ExecutableSet>) -> Session {
    let tokens = expected(name).token_ids;
    let mut verifying = session(set, CONTEXT, 64, 1);
    verifying.keep_hidden().expect("made for that");
    // Some by a prefill, some by a forward: all are kept.
    verifying.prefill(&tokens[..17]).expect("it fits");
    verifying.score(&tokens[17..tokens.len() - 1], |_, _| ()).expect("it fits");
    verifying
}

/// A row of a block: its hidden row, and its candidates with what they are worth.
type BlockRow = (Vec<f32>, Vec<(u32, f32)>);

/// Reads the text before the last token in parts of at most `part` tokens, and gives the rows and candidates of the
/// block behind it.
fn drafted(name: &str, (set, draft): &Sets, part: usize, threads: usize) -> Vec<BlockRow> {
    let Expected { layers, token_ids: tokens, .. } = expected(name);
    let verifying = verifying(name, set);
    let block = draft.block_rows().expect("a block drafter");
    let mut drafting = session(draft, CONTEXT, block.size, threads);
    let (root, text) = tokens.split_last().expect("a text");
    for (number, part_of_text) in text.chunks(part).enumerate() {
        let at = |index: usize| given(&verifying, &layers, number * part + index);
        if draft.width_for(part_of_text.len()).is_some() {
            let mut forward = drafting.forward_text(part_of_text.len()).expect("a planned width");
            for (row, token) in part_of_text.iter().enumerate() {
                forward.push_behind(*token);
                forward.give(row, &at(row));
            }
            forward.run(None);
            drafting.commit_behind(part_of_text.len());
        } else {
            let give = |index: usize, row: &mut [f32]| row.copy_from_slice(&at(index));
            drafting.prefill_with(part_of_text, give).expect("it fits");
        }
    }
    let mut forward = drafting.forward(block.size).expect("a planned width");
    forward.push_block(*root, block);
    let choices = forward.choose(Choice { k: CANDIDATES, temperature: None }, None);
    let row = |row: usize| (choices.hidden(row).to_vec(), choices.row(row).iter().collect());
    (0..block.size).map(row).collect()
}

#[test]
fn candidates_and_hidden_rows_are_the_references() {
    for name in HEADS {
        let Expected { layers, rows, block, .. } = expected(name);
        let sets = sets(name);
        assert_eq!(sets.1.graph().layers_read(), layers, "{name}");
        let verifying = verifying(name, &sets.0);
        for Row { place, row } in &rows {
            close(
                &given(&verifying, &layers, *place),
                row,
                &format!("{name}, the verifier's rows at {place}"),
            );
        }
        let found = drafted(name, &sets, CONTEXT, 1);
        assert_eq!(sets.1.block_rows().map(|rows| rows.depth()), Some(block.len()), "{name}");
        let mut clear = 0;
        for place in &block {
            let what = format!("{name}, row {}", place.row);
            let (hidden, candidates) = &found[place.row];
            close(hidden, &place.hidden, &what);
            let candidates: Vec<u32> = candidates.iter().map(|(token, _)| *token).collect();
            clear += same_order(&candidates, &place.marginal, &what);
        }
        let all = block.len() * (CANDIDATES - 1);
        let least = if is_cuda() { 1 } else { 7 * all / 10 };
        assert!(clear >= least, "{name}: {clear} of {all} candidates are clear");
    }
}

/// What a drafter proposes behind the text, and what it saw; the verifier has read the text.
fn proposed(
    name: &str,
    (set, draft): &Sets,
    shape: &StepShape,
    coupling: Option<Coupling>,
) -> (TokenTree, Seen) {
    let tokens = expected(name).token_ids;
    let mut verifying = verifying(name, set);
    let mut drafter = BlockDrafter::new(&verifying, draft, shape).expect("a block drafter");
    let mut tree = TokenTree::with_capacity(shape.tree_nodes());
    tree.reset(*tokens.last().expect("a text"));
    let (mut seen, mut stats) = (Seen::default(), Stats::default());
    let budget = Budget {
        session: &mut verifying,
        history: &tokens,
        depth: shape.depth,
        rows: shape.verify_width,
        coupling,
        stats: &mut stats,
        observer: Some(&mut seen),
    };
    drafter.propose(&mut tree, budget).expect("it drafts");
    tree.check().expect("a lawful tree");
    (tree, seen)
}

fn by_node(nodes: usize) -> StepShape {
    StepShape {
        depth: nodes,
        draft_width: 1,
        verify_width: nodes + 1,
        top_k: CANDIDATES,
        draft_temperature: 1.0,
    }
}

/// Conditional candidates, of which the Markov head moves some that are not among the best by themselves.
#[test]
fn candidates_of_nodes_are_those_after_their_tokens() {
    let mut compared = 0;
    for name in HEADS {
        let Expected { block, .. } = expected(name);
        let (tree, Seen(seen)) = proposed(name, &sets(name), &by_node(60), None);
        assert!(tree.nodes().all(|node| tree.depth(node) as usize <= block.len()), "{name}");
        for (node, candidates) in &seen {
            let found: Vec<u32> = candidates.iter().map(|candidate| candidate.token).collect();
            let Some(place) = block.get(tree.depth(*node) as usize) else {
                assert!(found.is_empty(), "{name}: something follows the last place");
                continue;
            };
            let known = place.after.iter().find(|after| after.token == tree.token(*node));
            let best = match known {
                Some(after) => &after.best,
                // Without a Markov head all nodes of a depth have the same.
                None if name.contains("dflash") || name == "dspark-qwen2" => &place.marginal,
                None => continue,
            };
            let what = format!("{name}, row {} after {}", place.row, tree.token(*node));
            compared += same_order(&found, best, &what);
            let sum: f32 = candidates.iter().map(|candidate| candidate.log_prob.exp()).sum();
            assert!(sum <= 1.0 + 1e-4, "{what}: probabilities of {sum}");
        }
    }
    assert!(
        compared > if is_cuda() { 12 } else { 400 },
        "{compared} candidates are too few to show anything"
    );
}

/// The tree is the best one of its size by what the nodes' candidates are worth: of all paths no other is worth more
/// than one that is in it.
#[test]
fn trees_are_the_best_of_their_size() {
    for name in HEADS {
        let sets = sets(name);
        let (whole, Seen(seen)) = proposed(name, &sets, &by_node(40), None);
        let value = |node: NodeId| -> f32 {
            let Some(parent) = whole.parent(node) else { return 0.0 };
            let (_, candidates) = seen.iter().find(|(seen, _)| *seen == parent).expect("expanded");
            candidates.iter().find(|c| c.token == whole.token(node)).expect("a candidate").log_prob
        };
        let worth = |node: NodeId| -> f32 {
            let above = std::iter::successors(Some(node), |node| whole.parent(*node));
            above.map(value).sum()
        };
        let inside: Vec<f32> = whole.nodes().skip(1).map(worth).collect();
        assert!(inside.windows(2).all(|pair| pair[0] >= pair[1] - 1e-4), "{name}: {inside:?}");
        let least = inside.last().copied().expect("it drafts");
        for (node, candidates) in &seen {
            for candidate in candidates {
                let all = worth(*node) + candidate.log_prob;
                let is_in = whole.child(*node, candidate.token).is_some();
                assert!(is_in || all <= least + 1e-4, "{name}: {candidate:?} after {node:?} is left out");
            }
        }
        // A smaller tree is the beginning of a larger.
        let (small, _) = proposed(name, &sets, &by_node(9), None);
        let nodes = |tree: &TokenTree| -> Vec<(u32, u32, u32)> {
            tree.nodes().take(10).map(|n| (tree.token(n), tree.depth(n), tree.value(n).to_bits())).collect()
        };
        assert_eq!(nodes(&small), nodes(&whole), "{name}");
    }
}

/// Under noise the candidates of a node are the likely winners of the draw at the place after it.
#[test]
fn noise_ranks_the_candidates_of_every_place() {
    let mut moved = 0;
    // Emulation is slow.
    let seeds = if is_cuda() { 3 } else { 20 };
    for name in HEADS {
        let sets = sets(name);
        let text = expected(name).token_ids.len();
        let (_, Seen(plain)) = proposed(name, &sets, &by_node(1), None);
        let all = StepShape { top_k: 64, ..by_node(1) };
        let (_, Seen(known)) = proposed(name, &sets, &all, None);
        for seed in 0..seeds {
            let sampling = Sampling { temperature: 1.0, seed, ..Sampling::GREEDY };
            let coupling = Coupling::of(sampling).expect("drawn");
            let (_, Seen(seen)) = proposed(name, &sets, &by_node(1), Some(coupling));
            let mut expected = known[0].1.clone();
            coupling.order(text, &mut expected);
            // Noise may lift tokens that are not among those known.
            let is_known = |candidate: &&Candidate| known[0].1.iter().any(|c| c.token == candidate.token);
            let found = seen[0].1.iter().find(is_known).expect("a probable one is among the likeliest");
            if expected[0].log_prob - expected[1].log_prob > 1e-3 {
                assert_eq!(found.token, expected[0].token, "{name}, seed {seed}: {seen:?} {expected:?}");
            }
            moved += usize::from(seen[0].1[0].token != plain[0].1[0].token);
        }
    }
    let all = seeds as usize * HEADS.len();
    assert!(moved > all / 12, "noise changed {moved} of {all} first candidates");
}

/// Neither the parts in which a text was read nor threads change a bit of a block.
#[test]
fn the_bits_of_a_block_do_not_depend_on_how_the_text_was_read() {
    for name in if is_cuda() { &HEADS[..1] } else { &HEADS[..] } {
        let sets = sets(name);
        let found = |part, threads| -> Vec<Vec<u32>> {
            let of = |(hidden, candidates): BlockRow| {
                let candidates = candidates.into_iter().flat_map(|(token, worth)| [token, worth.to_bits()]);
                bits(&hidden).into_iter().chain(candidates).collect()
            };
            drafted(name, &sets, part, threads).into_iter().map(of).collect()
        };
        let whole = found(CONTEXT, 1);
        for (part, threads) in [(1, 1), (3, 1), (2, 2), (CONTEXT, 2)] {
            assert_eq!(found(part, threads), whole, "{name}, parts of {part} on {threads} threads");
        }
    }
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, &[&str]); 22] = [
        ("dflash-qwen3", |c| c["hidden_act"] = json!("gelu"), &["hidden_act", "silu"]),
        ("dflash-qwen3", |c| c["attention_bias"] = json!(true), &["attention_bias"]),
        ("dflash-qwen3", |c| c["layer_types"] = json!(["sliding_attention"]), &["layer_types", "whole text"]),
        ("dflash-qwen3", |c| c["is_causal"] = json!(true), &["is_causal"]),
        ("dflash-qwen3", |c| c["model_type"] = json!("llama"), &["model_type", "qwen3"]),
        ("dflash-qwen3", |c| c["block_size"] = json!(1), &["block_size", "2 to 64"]),
        ("dflash-qwen3", |c| c["block_size"] = Value::Null, &["block_size"]),
        ("dflash-qwen3", |c| c["num_hidden_layers"] = json!(1), &["layers.1.", "not supported"]),
        ("dflash-qwen3", |c| c["num_hidden_layers"] = json!(3), &["layers.2.", "missing"]),
        ("dflash-qwen3", |c| c["vocab_size"] = json!(100), &["mask_token_id", "below 100"]),
        ("dflash-qwen3", |c| c["dflash_config"]["mask_token_id"] = Value::Null, &["mask_token_id"]),
        (
            "dflash-qwen3",
            |c| c["dflash_config"]["target_layer_ids"] = json!([0, 9]),
            &["the verifier", "at least 10 layers"],
        ),
        (
            "dflash-qwen3",
            |c| c["dflash_config"]["target_layer_ids"] = json!([-2]),
            &["target_layer_ids", "-1"],
        ),
        ("dflash-qwen3", |c| c["dflash_config"]["target_layer_ids"] = json!([]), &["1 to 16 layers"]),
        ("dflash-qwen3", |c| c["architectures"] = json!(["DFlash2DraftModel"]), &["DFlash2DraftModel"]),
        ("dspark-llama", |c| c["architectures"] = json!(["Gemma4DSparkModel"]), &["Gemma4DSparkModel"]),
        ("dflash-gemma3", |c| c["dflash_config"]["output_multiplier"] = json!(0), &["output_multiplier"]),
        ("dspark-llama", |c| c["markov_head_type"] = json!("gated"), &["markov_head_type", "vanilla"]),
        ("dspark-llama", |c| c["markov_rank"] = json!(4), &["markov_w1", "[257, 4]"]),
        ("dspark-llama", |c| c["markov_rank"] = json!(0), &["markov_w1", "not supported"]),
        ("speculators-dflash-phi3", |c| c["draft_vocab_size"] = json!(61), &["d2t", "61"]),
        ("speculators-dspark-gemma2", |c| c["target_hidden_size"] = json!(48), &["verifier", "rows of 48"]),
    ];
    for (name, edit, words) in cases {
        let error = KIND.over(name, edit).expect_err("refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{name}: expected {words:?}, found: {error}");
    }
}

/// Files of which something is missing, or other bytes stand where they should not.
#[test]
fn damaged_files_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let from = KIND.data("dspark-llama");
    let weights = fs::read(from.join("model.safetensors")).expect("the drafter is there");
    let config = fs::read(from.join("config.json")).expect("the configuration is there");
    let open = |config: &[u8], weights: &[u8]| {
        fs::write(folder.path().join("config.json"), config).expect("the folder can be written");
        fs::write(folder.path().join("model.safetensors"), weights).expect("the folder can be written");
        HiddenStateModel::open(folder.path())
    };
    for len in [0, 7, 100, weights.len() / 2, weights.len() - 1] {
        let error = open(&config, &weights[..len]).expect_err("cut").to_string();
        assert!(error.contains("model.safetensors"), "{len} bytes: {error}");
    }
    let error = open(&config[..config.len() / 2], &weights).expect_err("cut").to_string();
    assert!(error.contains("config.json"), "{error}");
    open(&config, &weights).expect("whole files").expect("a drafter");
}

#[test]
fn a_block_drafter_drafts_as_far_as_its_verifier_goes() {
    for name in HEADS {
        assert!(KIND.head(name).is_block());
        assert_eq!(KIND.head(name).config().context, 16, "the text that it was trained with");
        assert_eq!((KIND.head(name).context(128), KIND.head(name).context(8)), (128, 16));
    }
    assert_eq!(KIND.head("speculators-dflash-phi3").verifier(), "phi3");
    let digests: std::collections::BTreeSet<String> =
        HEADS.iter().map(|name| KIND.head(name).fingerprint().to_string()).collect();
    assert_eq!(digests.len(), HEADS.len(), "plans are bound to a drafter");
}
