//! `bench --kernels`: the parts of a forward on every tier, and what the program says of them.

use ygg_kernels::{KvFormat, WeightFormat};
use yggc::{
    backend::available_tiers,
    engine::{Activations, LoadOptions, Loaded, Pinning},
    measure::{KernelOptions, kernel_report},
    model::Model,
    runtime::{ExecutableSet, Id, Moment, Session, SetOptions, StepId},
};

use crate::tiny_model::{bits, session};

fn model() -> Model {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("tiny.gguf");
    let spec = yggc::model::synthetic::SyntheticSpec {
        context: 64,
        format: WeightFormat::Q4_1,
        ..Default::default()
    };
    spec.write_gguf(&path).expect("the model is written");
    Model::open(&path).expect("a generated model opens")
}

/// Logits of both rows of a forward, observed or not, and what was seen of it.
fn two_rows(session: &mut Session, observed: bool) -> (Vec<u32>, Vec<Moment>) {
    session.restart(&[1, 2, 3]).expect("the prompt fits");
    let mut forward = session.forward(2).expect("a planned width");
    for row in 0..2_u32 {
        forward.push(4 + row, 0, row, |tail| {
            tail[0] = row;
            1
        });
    }
    let mut moments = Vec::new();
    let logits =
        if observed { forward.run_observed(&mut |moment| moments.push(moment)) } else { forward.run(None) };
    (bits(&[logits.row(0), logits.row(1)].concat()), moments)
}

#[test]
fn an_observed_forward_has_the_same_bits_and_every_step_is_seen_to_end() {
    let model = model();
    for tier in available_tiers() {
        let activations = Activations::Native;
        let options = SetOptions {
            tier,
            kv_format: KvFormat::F16,
            activations,
            widths: vec![2],
            model_context: 64,
            threads: 1,
            resident: None,
        };
        let set = ExecutableSet::build(&model.graph, model.weights.as_ref(), &options);
        let set = std::sync::Arc::new(set.expect("a generated model compiles and loads"));
        for threads in [1, 3] {
            let mut session = session(&set, 32, 2, threads);
            let (expected, _) = two_rows(&mut session, false);
            let steps = session.forward(2).expect("a planned width").steps().len();
            let (found, moments) = two_rows(&mut session, true);
            assert_eq!(found, expected, "{tier}, {threads} threads");
            let ends = (0..steps)
                .map(StepId::new)
                .flat_map(|step| [Moment::ShareDone(step), Moment::StepDone(step)]);
            let expected: Vec<Moment> = std::iter::once(Moment::Begun).chain(ends).collect();
            assert_eq!(moments, expected, "{tier}, {threads} threads");
        }
    }
}

#[test]
fn every_tier_is_measured_in_parts_that_make_up_its_forwards() {
    let tiers = available_tiers().into_iter();
    for (tier, activations) in tiers.flat_map(|tier| Activations::ALL.map(|activations| (tier, activations)))
    {
        let load = LoadOptions {
            tier: Some(tier),
            activations,
            cache: yggc::engine::KvFormat::F16,
            threads: Some(2),
            widths: vec![3],
            resident: None,
        };
        let loaded = Loaded::new(model(), &load).expect("a generated model loads");
        let options = KernelOptions { contexts: vec![20, 1000], repetitions: 3, pinning: Pinning::Floating };
        let mut said = Vec::new();
        let report = kernel_report(&loaded, &options, &mut |progress| said.push(progress.done));
        let report = report.expect("a generated model is measured");
        assert_eq!(said, [0, 1, 2, 3, 4, 5], "{tier}");

        let roofline = &report.roofline;
        assert!(roofline.weight_bytes > 10_000 && roofline.bytes_per_s > 1e6, "{tier}: {roofline:?}");
        assert!(roofline.flops_per_s.iter().all(|(_, peak)| *peak > 1e6), "{tier}: {roofline:?}");
        // That of linears, and of attention where it is another.
        let one = activations == Activations::Native;
        assert_eq!(roofline.flops_per_s.len(), if one { 1 } else { 2 });

        let cells: Vec<_> = report.forwards.iter().map(|f| (f.context, f.width)).collect();
        // The longer context is cut to what the model allows.
        assert_eq!(cells, [(20, 1), (20, 3), (62, 1), (62, 3)], "{tier}");
        for forward in &report.forwards {
            // The embedding, six steps in each of two layers, the rows, the logits.
            assert_eq!(forward.steps(), 1 + 2 * 6 + 2, "{tier}");
            let names: Vec<&str> = forward.ops.iter().map(|op| op.name.as_str()).collect();
            assert_eq!(
                names,
                [
                    "embed",
                    "linear attn_q|attn_k|attn_v",
                    "append_kv",
                    "attention",
                    "linear attn_output",
                    "gated_linear ffn_gate|ffn_up",
                    "linear ffn_down",
                    "select_rows",
                    "candidates"
                ]
            );
            let heads: Vec<&str> = forward.heads.iter().map(|op| op.name.as_str()).collect();
            assert_eq!(heads, ["candidates, 8 of a row", "logits"], "{tier}");
            for op in forward.ops.iter().chain(&forward.heads) {
                let time = op.call;
                assert!(0.0 <= time.min_us && time.min_us <= time.median_us, "{tier}: {op:?}");
                assert!(op.floor_us(roofline) > 0.0, "{tier}: {op:?}");
                assert!(op.wait_us <= op.forward_us, "{tier}: {op:?}");
            }
            assert!(forward.observed.median_us > 0.0 && forward.forward.median_us > 0.0);
            let parts = forward.steps_us() + forward.remainder_us();
            assert!((parts - forward.forward.median_us).abs() < 1e-6 * parts.abs(), "{tier}");
        }
        let attention = |i: usize| report.forwards[i].ops[3].work;
        assert!(attention(2).bytes > attention(0).bytes && attention(2).flops > attention(0).flops);
    }
}

#[cfg(feature = "cli")]
mod command {
    //! The command as a whole.

    use serde_json::Value;
    use ygg_kernels::WeightFormat;
    use yggc::model::synthetic::SyntheticSpec;

    use crate::{
        program::{failure, success, yggc},
        tiny_commands::{json, keys, on_machine, on_tiny, plan, spec, write},
    };

    fn kernels() -> std::process::Command {
        let mut command = on_tiny("bench");
        command.args(["--kernels", "--repetitions", "2"]);
        command
    }

    fn number(value: &Value) -> f64 {
        value.as_f64().expect("a number")
    }

    fn list(value: &Value) -> &Vec<Value> {
        value.as_array().expect("a list")
    }

    #[test]
    fn one_object_has_the_roofline_and_every_forward() {
        let bench = json(kernels().arg("--json"));
        assert_eq!(
            keys(&bench),
            [
                "date",
                "forwards",
                "kernels",
                "machine",
                "model",
                "repetitions",
                "roofline",
                "threads",
                "version"
            ]
        );
        assert_eq!((&bench["repetitions"], &bench["machine"]["isa"]), (&2.into(), &"portable".into()));
        let roofline = &bench["roofline"];
        assert_eq!(
            keys(roofline),
            ["empty_step", "gb_per_s", "gflop_per_s", "median_gb_per_s", "weight_bytes"]
        );
        let bytes_per_us = number(&roofline["gb_per_s"]) * 1e3;
        assert!(number(&roofline["median_gb_per_s"]) * 1e3 <= bytes_per_us);
        let peaks = list(&roofline["gflop_per_s"]);
        assert_eq!((peaks.len(), &peaks[0]["arithmetic"]), (1, &"f32".into()));
        let flops_per_us = number(&peaks[0]["gflop_per_s"]) * 1e3;

        let forwards = list(&bench["forwards"]);
        let widths: Vec<u64> =
            forwards[..12].iter().map(|f| f["width"].as_u64().expect("a number")).collect();
        assert_eq!(widths, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert_eq!(forwards.len(), 24);
        for forward in forwards {
            assert_eq!(
                keys(forward),
                [
                    "barriers_us",
                    "context",
                    "floor_us",
                    "forward",
                    "heads",
                    "observed",
                    "ops",
                    "remainder_us",
                    "share",
                    "steps",
                    "steps_us",
                    "width"
                ]
            );
            let total = number(&forward["forward"]["median_us"]);
            let ops = list(&forward["ops"]);
            let sum = |field: &str| ops.iter().map(|op| number(&op[field])).sum::<f64>();
            let steps_us = number(&forward["steps_us"]);
            assert!((sum("forward_us") - steps_us).abs() < 1e-6 * steps_us);
            assert!((steps_us + number(&forward["remainder_us"]) - total).abs() < 1e-6 * total);
            assert_eq!(Some(sum("calls")), forward["steps"].as_f64());
            for op in ops.iter().chain(list(&forward["heads"])) {
                assert_eq!(
                    keys(op),
                    [
                        "bytes",
                        "call",
                        "calls",
                        "floor_us",
                        "flops",
                        "forward_us",
                        "gb_per_s",
                        "gflop_per_s",
                        "kernel",
                        "name",
                        "share",
                        "wait_us"
                    ]
                );
                assert_eq!(keys(&op["call"]), ["median_us", "min_us", "spread"]);
                let floor = (number(&op["bytes"]) / bytes_per_us).max(number(&op["flops"]) / flops_per_us);
                assert!((number(&op["floor_us"]) - floor).abs() <= 1e-6 * floor, "{op}");
            }
        }
    }

    #[test]
    fn the_tables_are_for_people() {
        let said = success(&kernels().output().expect("yggc starts"));
        for part in [
            "op ",
            "linear attn_output",
            "candidates, 8 of a row",
            "logits",
            "T(W) us",
            "decode at context 200",
            "roofline, measured",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn int8_kernels_are_named_and_bounded_as_such() {
        let spec = SyntheticSpec { format: WeightFormat::Q4_1, ..spec() };
        let mut command = on_machine("bench", &write("coded.gguf", &spec));
        command.args(["--kernels", "--repetitions", "2", "--activations", "int8"]);
        let said = success(&command.output().expect("yggc starts"));
        for part in ["linear.q4_1.int8.portable", "GFLOP/s in int8"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("linear.q4_1.portable"), "{said}");
    }

    #[test]
    fn a_plans_tunings_are_compared_with_the_default() {
        let bench = json(kernels().arg("--plan").arg(plan()).arg("--json"));
        let from =
            ["date", "forwards", "kernels", "machine", "model", "plan", "repetitions", "threads", "version"];
        assert_eq!(keys(&bench), from);
        let forwards = list(&bench["forwards"]);
        assert_eq!(forwards.len(), 12);
        for forward in forwards {
            assert_eq!(keys(forward), ["context", "default", "gain", "ops", "tuned", "width"]);
            let names: Vec<&str> =
                list(&forward["ops"]).iter().map(|op| op["name"].as_str().expect("a name")).collect();
            assert!(names.contains(&"candidates") && names.contains(&"linear ffn_down"), "{names:?}");
        }
        let said = success(&kernels().arg("--plan").arg(plan()).output().expect("yggc starts"));
        for part in ["the plan chooses the default for every linear", "width 64", "gain"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let twice = kernels().arg("--plan").arg(plan()).arg("--plan").arg(plan()).output();
        let said = failure(&twice.expect("yggc starts"), 2);
        assert!(said.contains("expected one --plan, found 2"), "{said}");
    }

    #[test]
    fn kernels_are_measured_without_prompts_or_arms() {
        for flag in [["--prompts", "f"], ["--arms", "ar"], ["-n", "4"], ["--context", "64"]] {
            let said = failure(&kernels().args(flag).output().expect("yggc starts"), 2);
            assert!(said.contains("--kernels"), "{flag:?}: {said}");
        }
        let said = failure(&yggc().arg("bench").output().expect("yggc starts"), 2);
        assert!(said.contains("--prompts"), "{said}");
    }
}
