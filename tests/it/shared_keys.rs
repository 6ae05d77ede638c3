//! Models whose late layers attend to keys and values of earlier ones, and whose layers get embeddings of their own: what
//! is never left out, what is kept in blocks, what is not in memory, what is refused.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use ygg_kernels::KvFormat;
use yggc::{
    backend::packed_layouts,
    compile::compile,
    ir::{Binding, DeviceSpec, GroupId, Residence, WeightId, verify::lending},
    model::{LowBit, in_fewer_bits},
    runtime::{ExecutableSet, SkipSet},
};

use crate::{
    families, lossless,
    tiny_model::{Dice, MODEL_CONTEXT, TinyModel, best_tier, bits, is_cuda, session},
};

/// A model with shared keys and such embeddings, for texts as long as those of other tests.
pub(crate) fn sharing() -> &'static TinyModel {
    &models()[0]
}

fn models() -> &'static [TinyModel] {
    static MODELS: OnceLock<[TinyModel; 2]> = OnceLock::new();
    // The second has neither, but experts parallel to its MLPs.
    MODELS.get_or_init(|| ["gemma4", "gemma4_moe"].map(|family| families::of_context(family, MODEL_CONTEXT)))
}

/// The last four tokens of a text, in one forward that leaves `skipped` out.
fn last_rows(set: &Arc<ExecutableSet>, text: &[u32], skipped: &[u32]) -> Vec<Vec<u32>> {
    let (before, last) = text.split_at(text.len() - 4);
    let mut session = session(set, MODEL_CONTEXT, 4, 2);
    session.prefill(before).expect("it fits");
    session.poison_scratch(7);
    let skip = SkipSet::new(set.groups(), skipped).expect("groups of the model");
    let mut forward = session.forward(4).expect("it is planned");
    for (row, token) in (0u32..).zip(last) {
        forward.push(*token, row, row, |tail| {
            (0..=row).zip(tail.iter_mut()).for_each(|(slot, place)| *place = slot);
            row as usize + 1
        });
    }
    let logits = forward.run(Some(&skip));
    (0..4).map(|row| bits(logits.row(row))).collect()
}

#[test]
fn layers_whose_keys_others_read_are_never_left_out() {
    let model = sharing();
    let lending: Vec<u32> = lending(&model.model.graph).into_iter().map(|GroupId(group)| group).collect();
    // Layers 1 and 3 of 7 are the last ones of their kinds that have keys of their own.
    assert_eq!(lending, [2, 6]);
    for class in model.classes() {
        let set = model.set(class);
        let text = Dice::new(5).tokens(40, set.vocabulary());
        let whole = last_rows(set, &text, &[]);
        assert!(last_rows(set, &text, &lending) == whole, "{class}");
        let others: Vec<u32> = (0..set.groups()).filter(|group| !lending.contains(group)).collect();
        assert!(others.iter().all(|group| last_rows(set, &text, &[*group]) != whole), "{class}");
    }
}

#[test]
fn no_drafter_of_gemma4_changes_a_token() {
    lossless::no_drafter_changes_a_token_of(models());
}

/// The embeddings of layers are read where the model's file has them; copies in fewer bits leave them there.
#[test]
fn embeddings_of_layers_are_not_in_memory() {
    let model = &sharing().model;
    let is_mapped = |name: &str| name.contains("per_layer") && name.contains("embed");
    let mut mapped = model.graph.weights().iter().filter(|spec| spec.residence == Residence::Mapped);
    let table = mapped.next().expect("one");
    assert!(is_mapped(&table.name) && mapped.next().is_none());
    assert!(
        !model.graph.multiplied().iter().any(|id| model.graph.weight(*id).residence == Residence::Mapped)
    );
    if is_cuda() {
        return;
    }
    let device = DeviceSpec::cpu(best_tier(), KvFormat::F16);
    let program = compile(&model.graph, Binding { width: 4, outputs: 4 }, &device).expect("it compiles");
    let layouts = packed_layouts(&program);
    for (name, layout) in &layouts {
        assert_eq!(layout.layout.ends_with("in the model's file"), is_mapped(name), "{name}: {layout:?}");
    }
    assert!(layouts.keys().any(|name| is_mapped(name)));
    // What is read is the mapped file itself, for a drafter in fewer bits, too.
    let id =
        (0..).map(WeightId).find(|id| model.graph.weight(*id).residence == Residence::Mapped).expect("one");
    let narrow = in_fewer_bits(&model.graph, Arc::clone(&model.weights), 0, LowBit::Model, 1).1;
    for weights in [&model.weights, &narrow] {
        let (Cow::Borrowed(lent), shared) = (weights.bytes(id), weights.shared(id)) else {
            panic!("not mapped")
        };
        assert!(std::ptr::eq(lent, shared.as_ref()));
    }
}
