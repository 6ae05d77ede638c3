//! The arena: reused, in place, and judged by a checker that notices when it is wrong.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ygg_kernels::{KvFormat, Tier};

use super::{example::Shape, interpreter::Forward};
use crate::{
    compile::{ArenaError, check_arena, compile},
    ir::{Binding, DeviceSpec, Op, Operand, Program, Region, Step},
};

fn compiled(shape: &Shape, width: usize, outputs: usize) -> Program {
    compile(&shape.graph(), Binding { width, outputs }, &DeviceSpec::cpu(Tier::Reference, KvFormat::F32))
        .unwrap()
}

fn whole(program: &Program) -> Vec<bool> {
    vec![false; program.groups as usize]
}

fn bytes(region: &Region) -> usize {
    region.row_stride * region.rows * 4
}

/// The most bytes that any step needs at once; no layout is smaller.
fn peak_bytes(program: &Program) -> usize {
    let mut lives: BTreeMap<usize, (usize, usize, usize)> = BTreeMap::new();
    let mut place = BTreeMap::new();
    for (i, step) in program.steps.iter().enumerate() {
        for region in step.operands.iter().filter_map(Operand::region) {
            lives.get_mut(&place[&region.value]).unwrap().1 = i;
        }
        let Some(result) = step.result.region() else { continue };
        let replaced =
            step.operands.iter().filter_map(Operand::region).find(|r| r.offset_bytes == result.offset_bytes);
        let life = replaced.map_or(i, |residual| place[&residual.value]);
        place.insert(result.value, life);
        lives.entry(life).or_insert((i, i, bytes(&result))).1 = i;
    }
    for kept in program.left() {
        lives.get_mut(&place[&kept.value]).unwrap().1 = usize::MAX;
    }
    let live_at =
        |i| lives.values().filter(move |(from, to, _)| (*from..=*to).contains(&i)).map(|life| life.2).sum();
    (0..program.steps.len()).map(live_at).max().unwrap()
}

#[test]
fn dead_values_give_their_bytes_back() {
    let shape = Shape { layers: 8, ..Shape::plain() };
    let program = compiled(&shape, 64, 1);
    let total: usize = program.steps.iter().filter_map(|s| s.result.region()).map(|r| bytes(&r)).sum();
    assert_eq!(program.arena_bytes, peak_bytes(&program));
    assert!(program.arena_bytes * 8 < total, "{} of {total}", program.arena_bytes);
    let deeper = compiled(&Shape { layers: 30, ..shape }, 64, 1);
    assert_eq!(deeper.arena_bytes, program.arena_bytes);
}

#[test]
fn the_residual_stream_stays_in_one_place() {
    for shape in [Shape::plain(), Shape { norms: false, ..Shape::plain() }] {
        let program = compiled(&shape, 7, 2);
        let stream = program.steps[0].result.region().unwrap();
        let sums =
            program.steps.iter().filter(|s| matches!(s.op, Op::Add | Op::Linear { residual: true, .. }));
        let places: Vec<_> = sums.map(|step| step.result.region().unwrap().offset_bytes).collect();
        assert_eq!(places, vec![stream.offset_bytes; 4]);
    }
}

#[test]
fn rows_start_on_cache_lines_unless_they_are_views() {
    let program = compiled(&Shape { model: 19, feed_forward: 33, ..Shape::plain() }, 5, 5);
    for region in program.steps.iter().filter_map(|step| step.result.region()) {
        assert!(region.offset_bytes.is_multiple_of(64) && region.row_stride.is_multiple_of(16), "{region:?}");
        assert!(region.row_stride < region.columns + 16, "{region:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_mask_of_any_model_is_lawful(
        shape in Shape::any(),
        width in 1usize..40,
        fewer in 0usize..40,
        masks in prop::collection::vec(prop::collection::vec(any::<bool>(), 8), 4),
    ) {
        let program = compiled(&shape, width, width - fewer % width);
        for mask in masks {
            prop_assert_eq!(check_arena(&program, &mask[..program.groups as usize]), Ok(()));
        }
    }

    /// Whatever is done to a program, if the checker passes it then it computes the same.
    #[test]
    fn what_the_checker_passes_computes_the_same(
        shape in Shape::any(),
        seed in any::<u64>(),
        mask in prop::collection::vec(any::<bool>(), 8),
        place in any::<prop::sample::Index>(),
        kind in 0usize..3,
        words in prop_oneof![1usize..80, Just(16), Just(32)],
    ) {
        let program = compiled(&shape, 4, 2);
        let mask = &mask[..program.groups as usize];
        let mut mutated = program.clone();
        let step = place.index(program.steps.len() - 1);
        match kind {
            0 => mutated.steps.swap(step, step + 1),
            1 => shift(&mut mutated.steps[step].result, words * 4),
            _ => mutated.arena_bytes = program.arena_bytes.saturating_sub(words * 4),
        }
        let forward = Forward::random(4, 2, shape.vocab, seed);
        if check_arena(&mutated, mask).is_ok() {
            prop_assert_eq!(forward.run_program(&mutated, mask), forward.run_program(&program, mask));
        }
    }
}

fn shift(operand: &mut Operand, bytes: usize) {
    if let Operand::Arena(region) = operand {
        region.offset_bytes += bytes;
    }
}

fn reads(step: &Step, value: &Region) -> bool {
    step.operands.iter().filter_map(Operand::region).any(|region| region.value == value.value)
}

#[test]
fn a_shifted_result_is_caught() {
    let program = compiled(&Shape::plain(), 6, 6);
    for step in (0..program.steps.len()).filter(|i| program.steps[*i].result.region().is_some()) {
        for bytes in [1, 4, 64, 4096, 1 << 40, usize::MAX / 2] {
            let mut mutated = program.clone();
            shift(&mut mutated.steps[step].result, bytes);
            assert!(check_arena(&mutated, &whole(&program)).is_err(), "step {step} by {bytes}");
        }
    }
}

#[test]
fn a_shifted_operand_is_caught() {
    let program = compiled(&Shape::plain(), 6, 6);
    let results: BTreeMap<_, _> =
        program.steps.iter().filter_map(|s| s.result.region()).map(|r| (r.value, r)).collect();
    for (step, operand) in
        program.steps.iter().enumerate().flat_map(|(i, s)| (0..s.operands.len()).map(move |o| (i, o)))
    {
        let Some(region) = program.steps[step].operands[operand].region() else { continue };
        // A view shifted within its value names other columns, which only the interpreter can tell.
        if results[&region.value].columns != region.columns {
            continue;
        }
        let mut mutated = program.clone();
        shift(&mut mutated.steps[step].operands[operand], 64);
        assert!(check_arena(&mutated, &whole(&program)).is_err(), "step {step}, operand {operand}");
    }
}

#[test]
fn a_smaller_arena_is_caught() {
    let mut program = compiled(&Shape::plain(), 6, 6);
    program.arena_bytes -= 64;
    assert!(matches!(check_arena(&program, &whole(&program)), Err(ArenaError::Region { .. })));
}

#[test]
fn a_step_before_what_it_reads_is_caught() {
    let program = compiled(&Shape::plain(), 6, 6);
    let mut swapped = 0;
    for i in 0..program.steps.len() - 1 {
        let [first, second] = [&program.steps[i], &program.steps[i + 1]];
        let flows =
            first.result.region().map_or(second.operands.contains(&Operand::Effect), |r| reads(second, &r));
        if flows {
            let mut mutated = program.clone();
            mutated.steps.swap(i, i + 1);
            assert!(check_arena(&mutated, &whole(&program)).is_err(), "steps {i} and {}", i + 1);
            swapped += 1;
        }
    }
    assert!(swapped > 10, "{swapped}");
}

#[test]
fn a_sum_beside_its_residual_is_caught() {
    let mut program = compiled(&Shape::plain(), 6, 6);
    let step = program.steps.iter().position(|s| matches!(s.op, Op::Linear { residual: true, .. })).unwrap();
    let free = program.arena_bytes;
    program.arena_bytes *= 2;
    let Operand::Arena(result) = &mut program.steps[step].result else { panic!("sums have bytes") };
    result.offset_bytes = free;
    assert!(matches!(check_arena(&program, &whole(&program)), Err(ArenaError::Moved { .. })));
}

#[test]
fn a_result_over_an_operand_is_caught() {
    let mut program = compiled(&Shape::plain(), 6, 6);
    let step = program.steps.iter().position(|s| matches!(s.op, Op::GatedLinear { .. })).unwrap();
    let x = program.steps[step].operands[0].region().unwrap();
    let Operand::Arena(result) = &mut program.steps[step].result else { panic!("products have bytes") };
    result.offset_bytes = x.offset_bytes + 64;
    program.arena_bytes *= 2;
    assert!(matches!(check_arena(&program, &whole(&program)), Err(ArenaError::Overlap { .. })));
}

#[test]
fn lost_logits_are_caught() {
    let mut program = compiled(&Shape::plain(), 6, 6);
    program.shown.value = program.steps[0].result.region().unwrap().value;
    assert!(matches!(check_arena(&program, &whole(&program)), Err(ArenaError::Lost { .. })));
}

#[test]
fn lost_hidden_rows_are_caught() {
    let program = compiled(&Shape::plain(), 6, 6);
    let hidden = program.hidden.unwrap();
    let mut elsewhere = program.clone();
    elsewhere.hidden = Some(Region { offset_bytes: program.shown.offset_bytes, ..hidden });
    assert!(matches!(check_arena(&elsewhere, &whole(&program)), Err(ArenaError::Lost { .. })));
    // The product that shows the logits may not take over the rows it is made of.
    let mut overwritten = program.clone();
    let Operand::Arena(result) = &mut overwritten.steps.last_mut().unwrap().result else { panic!("logits") };
    result.offset_bytes = hidden.offset_bytes;
    assert!(check_arena(&overwritten, &whole(&program)).is_err());
}

#[test]
fn attention_before_its_append_is_caught() {
    let mut program = compiled(&Shape::plain(), 6, 6);
    program.steps.swap(2, 3);
    let layer = ArenaError::Cache { step: 2, layer: 0 };
    assert_eq!(check_arena(&program, &whole(&program)), Err(layer));
}

#[test]
fn a_mask_of_another_program_is_refused() {
    let program = compiled(&Shape::plain(), 6, 6);
    assert_eq!(check_arena(&program, &[true]), Err(ArenaError::Mask { expected: 4, found: 1 }));
}
