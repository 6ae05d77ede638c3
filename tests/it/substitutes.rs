//! A substitute computes what a model computes whose file has its matrices in fewer bits; it is made once, and counted.

use std::{borrow::Cow, sync::Arc};

use ygg_kernels::{KvFormat, WeightFormat};
use yggc::{
    ir::{Graph, WeightId, WeightSource},
    model::{Model, synthetic::SyntheticSpec},
    runtime::{Choice, ExecutableSet, RuntimeError, Session, SessionOptions, SetOptions, VariantChange},
    runtime::{DraftVariant, Pinning},
};

use crate::bad_input::refused;
use crate::tiny_commands as tiny;
use crate::tiny_model::{Class, Dice, MODEL_CONTEXT, TinyModel, best_tier, models, some_models};

const CHOICE: Choice = Choice { k: 8, temperature: Some(1.0) };

/// The model's weights, matrices of products quantised row by row.
struct Narrow<'a> {
    model: &'a Model,
    matrices: Vec<(WeightId, Vec<u8>)>,
}

impl WeightSource for Narrow<'_> {
    fn bytes(&self, weight: WeightId) -> Cow<'_, [u8]> {
        let narrow = self.matrices.iter().find(|(of, _)| *of == weight);
        narrow.map_or_else(|| self.model.weights.bytes(weight), |(_, bytes)| Cow::Borrowed(bytes))
    }
}

/// The graph and the weights of the model with 4 bits an element wherever that is less.
fn narrow(model: &Model) -> (Graph, Narrow<'_>) {
    let (mut graph, mut matrices) = (model.graph.clone(), Vec::new());
    for id in graph.multiplied() {
        let spec = graph.weight(id).clone();
        let (stored, in_four) =
            (spec.format.row_bytes(spec.columns), WeightFormat::Q4_0.row_bytes(spec.columns));
        if in_four.is_none() || in_four >= stored {
            continue;
        }
        let (mut values, mut bytes) = (vec![0.0; spec.rows * spec.columns], Vec::new());
        spec.format.dequantise_row(&model.weights.bytes(id), &mut values);
        WeightFormat::Q4_0.quantise_row(&values, &mut bytes);
        graph.store_in(id, WeightFormat::Q4_0);
        matrices.push((id, bytes));
    }
    (graph, Narrow { model, matrices })
}

fn set_of(graph: &Graph, weights: &dyn WeightSource, class: Class) -> ExecutableSet {
    let options = SetOptions {
        tier: class.tier,
        kv_format: KvFormat::F16,
        activations: class.activations,
        widths: vec![6],
        model_context: MODEL_CONTEXT,
        threads: 2,
        resident: None,
    };
    ExecutableSet::build(graph, weights, &options).expect("a generated model compiles and loads")
}

/// Bits of the candidates of a chain that nothing precedes.
fn candidates(set: &Arc<ExecutableSet>, variant: Option<DraftVariant>, chain: &[u32]) -> Vec<(u32, u32)> {
    let options = SessionOptions { context: 64, tree_nodes: 8, threads: 1, pinning: Pinning::Floating };
    let mut session = Session::open(Arc::clone(set), &options).expect("a small session opens");
    let mut forward = session.forward(chain.len()).expect("a planned width");
    for (row, token) in (0..).zip(chain) {
        forward.push(*token, row, row, |tail| {
            tail.iter_mut().zip(0..=row).for_each(|(slot, above)| *slot = above);
            row as usize + 1
        });
    }
    let choices = forward.choose_of(variant, CHOICE, None);
    let rows = (0..chain.len()).flat_map(|row| choices.row(row).iter().collect::<Vec<_>>());
    rows.map(|(token, value)| (token, value.to_bits())).collect()
}

/// Models whose embedding is a matrix of its own: rows of it are read as they are stored.
fn untied() -> impl Iterator<Item = &'static TinyModel> {
    some_models().filter(|model| !model.model.config.tied_head)
}

#[test]
fn it_computes_what_the_model_in_fewer_bits_does() {
    let mut changed = 0;
    for model in untied() {
        for class in model.classes() {
            let (graph, weights) = narrow(&model.model);
            let expected = Arc::new(set_of(&graph, &weights, class));
            let whole = set_of(&model.model.graph, model.model.weights.as_ref(), class);
            let change = VariantChange { head_tokens: None, substitute_bits: Some(4) };
            let varied = whole.with_variants(model.model.weights.as_ref(), &[change]).expect("four bits");
            let variant = varied.variant(change).expect("it was made");
            let varied = Arc::new(varied);
            let chain = Dice::new(3).tokens(6, varied.vocabulary());
            let found = candidates(&varied, variant, &chain);
            assert_eq!(found, candidates(&expected, None, &chain), "{} on {class}", model.name);
            changed += usize::from(found != candidates(&varied, None, &chain));
        }
    }
    assert!(changed > 0, "no model was changed");
}

#[test]
fn one_substitute_serves_every_head_and_is_counted() {
    let model =
        models().iter().find(|model| model.model.graph.substitute_share(4) < 0.6).expect("one of 8 bits");
    let class = Class::native(best_tier());
    let weights = model.model.weights.as_ref();
    let whole = set_of(&model.model.graph, weights, class);
    let options = SessionOptions { context: 64, tree_nodes: 8, threads: 1, pinning: Pinning::Floating };
    let bytes = |set: &ExecutableSet| set.memory(&options).weight_bytes;
    let change = |head_tokens| VariantChange { head_tokens, substitute_bits: Some(4) };
    let once = whole.with_variants(weights, &[change(None)]).expect("four bits");
    assert!(bytes(&once) > bytes(&whole));
    let tokens = [1, 7, 9];
    let twice = once.with_variants(weights, &[change(Some(&tokens[..])), change(None)]).expect("four bits");
    let trimmed = bytes(&twice) - bytes(&once);
    assert!(
        trimmed > 0 && trimmed < (bytes(&once) - bytes(&whole)) / 2,
        "{trimmed} bytes more for three rows"
    );
    assert_eq!(twice.variant(change(None)).expect("kept"), once.variant(change(None)).expect("made"));
    assert!(matches!(
        once.variant(change(Some(&tokens[..]))),
        Err(RuntimeError::MissingVariant { tokens: Some(3), bits: Some(4) })
    ));
    let five = VariantChange { head_tokens: None, substitute_bits: Some(5) };
    let refused = whole.with_variants(weights, &[five]).expect_err("no such substitute").to_string();
    assert!(refused.contains("5 bits") && refused.contains("2, 3 or 4"), "{refused}");
}

#[test]
fn a_model_of_few_bits_says_why_it_has_none() {
    let model = tiny::write("few_bits.gguf", &SyntheticSpec { format: WeightFormat::Q4_1, ..tiny::spec() });
    let mut command = tiny::on_machine("profile", &model);
    command.args(["--drafter", "substitute", "--budget", "9", "-o", "no.profile"]);
    refused(&mut command, 3, &["`substitute`", "few bits already", "layer_skip"]);
}
