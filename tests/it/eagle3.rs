//! EAGLE-3 heads in every layout that is published, for verifiers of several families, against what PyTorch computes in
//! float32 from the definitions of the paper.
//!
//! `tests/data/eagle3` holds the heads and the reference outputs; its README says what each head has.

use std::{fs, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};
use yggc::{
    model::HiddenStateModel,
    runtime::{Choice, Choices},
    speculate::{Budget, Drafter, ModelDrafter, Stats, StepShape},
    tree::TokenTree,
};

use crate::{
    published_heads::{Best, CANDIDATES, CONTEXT, Heads, Row, Seen, Sets, close, given, limits, same_order},
    tiny_model::{bits, is_cuda, session},
};

const HEADS: [&str; 7] = [
    "safeailab-gemma3",
    "specforge-llama",
    "specforge-mistral",
    "angelslim-qwen2",
    "speculators-qwen3",
    "speculators-phi3",
    "narrow-gemma2",
];
const KIND: Heads = Heads("eagle3");

#[derive(Debug, Deserialize)]
pub(crate) struct Expected {
    layers: Vec<usize>,
    token_ids: Vec<u32>,
    rows: Vec<Row>,
    nodes: Vec<Node>,
}

/// A node of the tree: the root, then two children of the best node of each depth, the better first.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    token: u32,
    parent: Option<usize>,
    hidden: Vec<f32>,
    #[serde(flatten)]
    best: Best,
}

fn expected(name: &str) -> Expected {
    KIND.expected(name)
}

fn sets(name: &str) -> Sets {
    KIND.sets(name)
}

fn candidates(choices: Choices<'_>, row: usize) -> Vec<u32> {
    choices.row(row).iter().map(|(token, _)| token).collect()
}

/// Offsets of a node's path in scratch, which begins after the root: the root's children are numbers 0 and 1.
fn path(nodes: &[Node], node: usize) -> Vec<u32> {
    let above = std::iter::successors(Some(node), |node| nodes[*node].parent).take_while(|node| *node > 0);
    let mut path: Vec<u32> = above.map(|node| node as u32 - 1).collect();
    path.reverse();
    path
}

#[test]
fn candidates_and_hidden_rows_are_the_references() {
    for name in HEADS {
        same_candidates(name, &expected(name), &sets(name));
    }
}

/// Candidates and own rows of every node are the reference's.
#[track_caller]
pub(crate) fn same_candidates(name: &str, expected: &Expected, (set, draft): &Sets) {
    let Expected { layers, token_ids: tokens, rows, nodes } = expected;
    assert_eq!(draft.graph().layers_read(), layers, "{name}");
    let mut verifying = session(set, CONTEXT, 4, 1);
    verifying.keep_hidden().expect("made for that");
    // Some by a prefill, some by a forward: all are kept.
    verifying.prefill(&tokens[..17]).expect("it fits");
    verifying.score(&tokens[17..], |_, _| ()).expect("it fits");
    for Row { place, row } in rows {
        close(&given(&verifying, layers, *place), row, &format!("{name}, the verifier's rows at {place}"));
    }

    let mut drafting = session(draft, CONTEXT, nodes.len(), 1);
    let text = |place: usize| given(&verifying, layers, place);
    let prefilled = 11;
    let give = |index: usize, row: &mut [f32]| row.copy_from_slice(&text(index));
    drafting.prefill_with(&tokens[1..=prefilled], give).expect("it fits");
    let rest = &tokens[prefilled + 1..];
    let mut forward = drafting.forward_text(rest.len()).expect("a planned width");
    for (row, token) in rest.iter().enumerate() {
        forward.push_behind(*token);
        forward.give(row, &text(prefilled + row));
    }
    let choice = Choice { k: CANDIDATES, temperature: None };
    let root = rest.len() - 1;
    let choices = forward.choose(choice, None);
    let mut clear = same_order(&candidates(choices, root), &nodes[0].best, &format!("{name}, the root"));
    let mut own = vec![choices.hidden(root).to_vec()];
    close(&own[0], &nodes[0].hidden, &format!("{name}, the root's own row"));
    drafting.commit_behind(rest.len());

    for (depth, pair) in nodes[1..].chunks(2).enumerate() {
        let mut forward = drafting.forward(pair.len()).expect("a planned width");
        for (row, node) in pair.iter().enumerate() {
            let path = path(nodes, own.len() + row);
            let offset = *path.last().expect("a node is on its path");
            forward.push(node.token, depth as u32, offset, |tail| {
                tail[..path.len()].copy_from_slice(&path);
                path.len()
            });
            forward.give(row, &own[node.parent.expect("not the root")]);
        }
        let choices = forward.choose(choice, None);
        for (row, node) in pair.iter().enumerate() {
            let what = format!("{name}, depth {}, node {row}", depth + 1);
            clear += same_order(&candidates(choices, row), &node.best, &what);
            close(choices.hidden(row), &node.hidden, &what);
            own.push(choices.hidden(row).to_vec());
        }
    }
    let all = nodes.len() * (CANDIDATES - 1);
    let least = if is_cuda() { 1 } else { 7 * all / 10 };
    assert!(clear >= least, "{name}: {clear} of {all} candidates are clear");
}

/// The whole drafter, six deep: it reads the rows that it should of the session, and hands its own down.
#[test]
fn a_chain_is_drafted_as_the_reference_drafts_it() {
    let compared: usize = HEADS.iter().map(|name| same_chain(name, &expected(name), &sets(name))).sum();
    assert!(compared > 12, "{compared} nodes are too few to show anything");
}

/// A drafter of the head proposes the reference's chain; gives how many nodes were compared.
#[track_caller]
pub(crate) fn same_chain(name: &str, expected: &Expected, (set, draft): &Sets) -> usize {
    let Expected { token_ids: tokens, nodes, .. } = expected;
    let mut compared = 0;
    let mut verifying = session(set, CONTEXT, 16, 1);
    verifying.keep_hidden().expect("made for that");
    verifying.prefill(&tokens[..tokens.len() - 1]).expect("it fits");
    let shape = StepShape { depth: 6, draft_width: 1, verify_width: 7, top_k: 1, draft_temperature: 1.0 };
    let mut drafter = ModelDrafter::new(&verifying, draft, &shape).expect("a planned width");
    let mut tree = TokenTree::with_capacity(shape.tree_nodes());
    tree.reset(*tokens.last().expect("a text"));
    let (mut seen, mut stats) = (Seen::default(), Stats::default());
    let budget = Budget {
        session: &mut verifying,
        history: tokens,
        depth: shape.depth,
        rows: shape.verify_width,
        coupling: None,
        stats: &mut stats,
        observer: Some(&mut seen),
    };
    drafter.propose(&mut tree, budget).expect("it drafts");
    // The root, and the better child of each depth but the last.
    let chain: Vec<&Node> = std::iter::once(&nodes[0]).chain(nodes[1..].iter().step_by(2)).collect();
    assert_eq!(seen.0.len(), shape.depth, "{name}");
    for (depth, ((node, found), expected)) in seen.0.iter().zip(&chain).enumerate() {
        assert_eq!(tree.token(*node), expected.token, "{name}, depth {depth}");
        let (least, _) = limits();
        if expected.best.logits[0] - expected.best.logits[1] < least {
            assert!(is_cuda(), "{name}, depth {depth}: nothing to compare");
            break;
        }
        compared += 1;
        assert_eq!(found[0].token, expected.best.candidates[0], "{name}, depth {depth}");
    }
    compared
}

/// Rows of one forward and rows by themselves have the same bits, of the verifier's inner rows and of the head's own.
#[test]
fn the_bits_of_a_row_do_not_depend_on_the_others() {
    for name in if is_cuda() { &HEADS[..1] } else { &HEADS[..] } {
        same_bits(name, &expected(name), &sets(name));
    }
}

#[track_caller]
pub(crate) fn same_bits(name: &str, expected: &Expected, (set, draft): &Sets) {
    let Expected { layers, token_ids: tokens, .. } = expected;
    let kept = |wide: bool| {
        let mut session = session(set, CONTEXT, 4, 1);
        session.keep_hidden().expect("made for that");
        if wide {
            session.prefill(tokens).expect("it fits");
        } else {
            tokens.iter().for_each(|token| session.score(&[*token], |_, _| ()).expect("it fits"));
        }
        (0..tokens.len()).map(|place| given(&session, layers, place)).collect::<Vec<_>>()
    };
    let rows = kept(true);
    for (place, (wide, narrow)) in rows.iter().zip(kept(false)).enumerate() {
        assert_eq!(bits(wide), bits(&narrow), "{name}, the verifier's rows at {place}");
    }
    let text = &tokens[1..];
    let drafted = |chunk: usize| {
        let mut drafting = session(draft, CONTEXT, 4, 1);
        let mut found = Vec::new();
        for (number, part) in text.chunks(chunk).enumerate() {
            let mut forward = drafting.forward_text(part.len()).expect("a planned width");
            for (row, token) in part.iter().enumerate() {
                forward.push_behind(*token);
                forward.give(row, &rows[number * chunk + row]);
            }
            let logits = forward.run(None);
            found.extend((0..part.len()).map(|row| bits(logits.row(row))));
            found.extend((0..part.len()).map(|row| bits(drafting.hidden(row).expect("it ran"))));
            drafting.commit_behind(part.len());
        }
        found.sort_unstable();
        found
    };
    assert_eq!(drafted(1), drafted(8), "{name}, the head's rows");
}

/// The same heads as llama.cpp's converter writes them.
#[test]
fn heads_in_gguf_files_are_those_of_folders() {
    for name in ["safeailab-gemma3", "specforge-llama"] {
        let Expected { layers, token_ids: tokens, .. } = expected(name);
        let path = KIND.data(name).join("model.gguf");
        let opened = HiddenStateModel::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let in_file = opened.expect("it says what it is");
        let model = KIND.verifier(name);
        let (set, of_folder) = sets(name);
        let (graph, both) =
            in_file.over(set.graph(), Arc::clone(&model.model.weights)).expect("its verifier");
        assert_eq!(graph.layers_read(), layers, "{name}");
        assert_eq!(graph.reduced_head(), of_folder.graph().reduced_head(), "{name}");
        let of_file = Arc::new(set.beside(&graph, both.as_ref(), CONTEXT).expect("it compiles"));
        let mut verifying = session(&set, CONTEXT, 4, 1);
        verifying.keep_hidden().expect("made for that");
        verifying.prefill(&tokens).expect("it fits");
        let logits = [of_file, of_folder].map(|draft| {
            let mut drafting = session(&draft, CONTEXT, 4, 1);
            let give =
                |index: usize, row: &mut [f32]| row.copy_from_slice(&given(&verifying, &layers, index));
            drafting.prefill_with(&tokens[1..], give).expect("it fits").to_vec()
        });
        close(&logits[0], &logits[1], name);
    }
    let model = KIND.data("../families/gemma3/model.gguf");
    assert!(HiddenStateModel::open(&model).expect("a model").is_none(), "a model is no head");
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit, &[&str]); 14] = [
        ("safeailab-gemma3", |c| c["num_hidden_layers"] = json!(2), &["number of layers", "1"]),
        ("safeailab-gemma3", |c| c["hidden_act"] = json!("gelu"), &["hidden_act", "silu"]),
        ("safeailab-gemma3", |c| c["mlp_bias"] = json!(true), &["mlp_bias"]),
        ("safeailab-gemma3", |c| c["norm_output"] = json!(true), &["norm_output", "speculators"]),
        ("safeailab-gemma3", |c| c["fc_norm"] = json!(true), &["fc_norm.0.weight", "missing"]),
        ("safeailab-gemma3", |c| c["draft_vocab_size"] = json!(61), &["d2t", "61"]),
        ("safeailab-gemma3", |c| c["vocab_size"] = json!(90), &["d2t", "below 90"]),
        ("safeailab-gemma3", |c| c["layer_types"] = json!(["sliding_attention"]), &["layer_types"]),
        ("safeailab-gemma3", |c| c["target_hidden_size"] = json!(64), &["verifier", "rows of 64"]),
        (
            "specforge-llama",
            |c| c["eagle_config"]["use_aux_hidden_state"] = json!(false),
            &["eagle_config.use_aux_hidden_state"],
        ),
        (
            "specforge-llama",
            |c| c["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = json!([0, 1, 7]),
            &["at least 8 layers", "2"],
        ),
        ("specforge-mistral", |c| c["fc_norm"] = json!(false), &["fc_norm.0.weight", "not supported"]),
        ("speculators-qwen3", |c| c["speculators_model_type"] = json!("medusa"), &["medusa", "eagle3"]),
        (
            "speculators-phi3",
            |c| c["eagle_aux_hidden_state_layer_ids"] = json!([0, 1, 2]),
            &["input_norm.weight", "[192]"],
        ),
    ];
    for (name, edit, words) in cases {
        let error = KIND.over(name, edit).expect_err("refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{name}: expected {words:?}, found: {error}");
    }
    // The default layers are those of verifiers that have three.
    let error = KIND
        .over("specforge-llama", |c| c["eagle_config"] = Value::Null)
        .expect_err("two layers")
        .to_string();
    assert!(error.contains("at least 3 layers"), "{error}");
}

#[test]
fn a_head_in_a_format_that_runs_code_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = KIND.data("safeailab-gemma3").join("config.json");
    fs::copy(config, folder.path().join("config.json")).expect("the configuration is there");
    fs::write(folder.path().join("pytorch_model.bin"), "PK").expect("the folder can be written");
    let error = HiddenStateModel::open(folder.path()).expect_err("no weights that are read").to_string();
    assert!(error.contains("pytorch_model.bin") && error.contains("save_file(torch.load("), "{error}");
}

#[test]
fn a_head_drafts_as_far_as_its_verifier_goes() {
    for name in HEADS {
        assert_eq!(KIND.head(name).config().context, 16, "the text that it was trained with");
        assert_eq!((KIND.head(name).context(128), KIND.head(name).context(8)), (128, 16));
    }
    assert_eq!(KIND.head("speculators-qwen3").verifier(), "qwen3");
    let digests: std::collections::BTreeSet<String> =
        HEADS.iter().map(|name| KIND.head(name).fingerprint().to_string()).collect();
    assert_eq!(digests.len(), HEADS.len(), "plans are bound to a head");
}
