//! What the steps of a small program move and compute, against figures worked out by hand.

use ygg_kernels::{KvFormat, Tier, WeightFormat};

use super::example::Shape;
use crate::{
    compile::compile,
    ir::{Binding, DeviceSpec, RowInputs, Work, step_name},
};

#[test]
fn steps_have_the_work_of_their_shapes() {
    let shape = Shape {
        layers: 1,
        model: 64,
        kv_heads: 2,
        heads_per_kv: 4,
        head_dim: 8,
        feed_forward: 96,
        vocab: 100,
        formats: vec![WeightFormat::Q4_1],
        ..Shape::plain()
    };
    let binding = Binding { width: 3, outputs: 1 };
    let device = DeviceSpec::cpu(Tier::Portable, KvFormat::F16);
    let program = compile(&shape.graph(), binding, &device).unwrap();
    // Five committed tokens, one row, its child, and a row of padding.
    let mut inputs = RowInputs::new(3, 1, 4);
    inputs.push(7, 5, 5, 5, |tail| {
        tail[0] = 5;
        1
    });
    inputs.push(8, 6, 6, 5, |tail| {
        tail[..2].copy_from_slice(&[5, 6]);
        2
    });
    // A block of 32 columns is 20 bytes: a row of 64 takes 40, one of 96 takes 60. Activations: a row of 64 takes 256.
    let expected = [
        ("embed", 3 * 40 + 3 * 256, 0),
        ("linear q|k|v", 96 * 40 + 3 * 256 + 3 * 384, 2 * 3 * 64 * 96),
        // Two rows are stored: key and value of two heads of eight halves.
        ("append_kv", 2 * 3 * 64 + 2 * 64, 0),
        // Slots 0 to 6 are seen, by rows that see six and seven of them.
        ("attention", 2 * 3 * 256 + 7 * 64, 4 * (6 + 7) * 8 * 8),
        ("linear o", 64 * 40 + 3 * 3 * 256, 2 * 3 * 64 * 64),
        ("gated_linear gate|up", 2 * 96 * 40 + 3 * 256 + 3 * 384, 2 * 3 * 64 * 2 * 96),
        ("linear down", 64 * 60 + 3 * 384 + 2 * 3 * 256, 2 * 3 * 96 * 64),
        ("select_rows", 2 * 256, 0),
        ("logits", 100 * 40 + 256 + 400, 2 * 64 * 100),
    ];
    let found: Vec<(String, Work)> = program
        .steps
        .iter()
        .map(|step| (step_name(&program, step), Work::of(&program, step, &inputs)))
        .collect();
    let mut choosing = shape.graph();
    choosing.show_candidates(5).unwrap();
    let choosing = compile(&choosing, binding, &device).unwrap();
    let last = choosing.steps.last().unwrap();
    // The same weights and products; eleven words are stored in place of a hundred logits.
    let bytes = 100 * 40 + 256 + 4 * 11;
    let head = (step_name(&choosing, last), Work::of(&choosing, last, &inputs));
    assert_eq!(head, ("candidates".to_owned(), Work { bytes, flops: 2 * 64 * 100 }));

    let expected: Vec<(String, Work)> =
        expected.into_iter().map(|(name, bytes, flops)| (name.to_owned(), Work { bytes, flops })).collect();
    assert_eq!(found, expected);
}
