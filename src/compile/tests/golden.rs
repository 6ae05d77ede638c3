//! Golden dumps of every stage, under `src/compile/snapshots`. Accept changes with `INSTA_UPDATE=always`.

use ygg_kernels::{KvFormat, Tier};

use super::example::Shape;
use crate::{
    compile::{Stage, compile, compile_stages, compile_until, stage_names},
    ir::{Binding, DeviceSpec, Op, program_dot, program_text},
};

const BINDING: Binding = Binding { width: 8, outputs: 3 };

fn device() -> DeviceSpec {
    DeviceSpec::cpu(Tier::Reference, KvFormat::F32)
}

#[test]
fn stages() {
    let stages = compile_stages(&Shape::plain().graph(), BINDING, &device()).unwrap();
    let program = compile(&Shape::plain().graph(), BINDING, &device()).unwrap();
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for Stage { name, mut text, .. } in stages {
            // How kernels are called is not this room's to pin.
            for step in &program.steps {
                text = text.replace(&format!(" = {}(", step.kernel), &format!(" = {}(", step.op.name()));
            }
            insta::assert_snapshot!(name, text);
        }
    });
}

#[test]
fn a_program_that_shows_candidates() {
    let mut graph = Shape::plain().graph();
    graph.show_candidates(4).unwrap();
    let end = |stage, lines| {
        let text = compile_until(&graph, BINDING, &device(), stage).unwrap().text;
        let all: Vec<_> = text.lines().map(str::to_owned).collect();
        all[all.len() - lines..].to_vec()
    };
    let stored =
        ["%42: f32[3, 100] = linear(%40) embed norm=norm", "%43: f32[3, 9] = candidates(%42) most=4"];
    assert_eq!(end("fuse_residual", 4), [stored[0], stored[1], "hidden %40", "candidates %43"]);
    let fused = "%43: f32[3, 9] = candidates(%40) embed norm=norm most=4";
    assert_eq!(end("fuse_head", 3), [fused, "hidden %40", "candidates %43"]);
    let [step, hidden, shown] = &end("program", 3)[..] else { panic!("three lines") };
    assert!(
        step.contains("= candidates.q8_0.int8.reference(%40@") && step.ends_with("embed norm=norm most=4")
    );
    assert!(hidden.starts_with("hidden %40@") && hidden.ends_with("[3, 48]"));
    assert!(shown.starts_with("candidates %43@") && shown.ends_with("[3, 9 stride 16]"));
}

#[test]
fn six_steps_a_layer() {
    let program = compile(&Shape::plain().graph(), BINDING, &device()).unwrap();
    let names: Vec<_> = program.steps.iter().map(|step| step.op.name()).collect();
    let layer = ["linear", "append_kv", "attention", "linear", "gated_linear", "linear"];
    let expected = [&["embed"][..], &layer, &layer, &["select_rows", "linear"]].concat();
    assert_eq!(names, expected);
    let in_place = program.steps.iter().filter(|s| matches!(s.op, Op::Linear { residual: true, .. }));
    assert_eq!(in_place.count(), 4);
}

#[test]
fn the_same_graph_gives_the_same_dumps() {
    let shape = Shape::plain();
    let [first, second] = [(); 2].map(|()| compile_stages(&shape.graph(), BINDING, &device()).unwrap());
    assert_eq!(first, second);
}

#[test]
fn every_stage_can_be_asked_for_alone() {
    let graph = Shape::plain().graph();
    let all = compile_stages(&graph, BINDING, &device()).unwrap();
    assert_eq!(all.iter().map(|stage| stage.name).collect::<Vec<_>>(), stage_names().collect::<Vec<_>>());
    for stage in all {
        assert_eq!(compile_until(&graph, BINDING, &device(), stage.name), Ok(stage.clone()));
        assert!(stage.dot.starts_with("digraph"), "{}", stage.dot);
    }
}

#[test]
fn program_dumps_name_weights_and_join_what_flows() {
    let program = compile(&Shape::plain().graph(), BINDING, &device()).unwrap();
    assert!(program_text(&program).contains("0.q|0.k|0.v norm=0.norm"));
    let dot = program_dot(&program);
    let edges: Vec<_> = dot.lines().map(str::trim).filter(|line| line.contains("->")).collect();
    for edge in ["s0 -> s1;", "s1 -> s2;", "s1 -> s3;", "s2 -> s3;", "s3 -> s4;", "s0 -> s4;"] {
        assert!(edges.contains(&edge), "{edge} in {edges:?}");
    }
}
