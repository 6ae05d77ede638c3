//! A readable description of how the weights of a program lie in memory, and why.

use std::collections::BTreeMap;

use ygg_kernels::{RouteVector, cpu::PackedLinear};

use crate::ir::{Norm, Op, OpWeights, Program, Residence, WeightId};

/// How a weight lies where forwards read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedLayout {
    /// The layout: `4+1 bits, scale per 32`.
    pub layout: String,
    /// What reads it, which decides the layout together with the format; each use once, in order.
    pub uses: Vec<String>,
}

/// The layouts of all weights that a program reads, by name; the same on every tier of processors.
pub fn packed_layouts(program: &Program) -> BTreeMap<String, PackedLayout> {
    let mut layouts = BTreeMap::new();
    let spec = |weight: WeightId| &program.weights[weight.0 as usize];
    let names = |weights: &[WeightId]| {
        weights.iter().map(|weight| spec(*weight).name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let mut add = |weight: WeightId, layout: String, used: String| {
        let entry = layouts
            .entry(spec(weight).name.clone())
            .or_insert_with(|| PackedLayout { layout, uses: Vec::new() });
        if !entry.uses.contains(&used) {
            entry.uses.push(used);
        }
    };
    let packed = |weight: WeightId| PackedLinear::layout_name(spec(weight).format);
    let gain = |norm: Norm| (norm.weight, "f32 values".to_owned(), "gain of a norm".to_owned());
    for step in &program.steps {
        let norm = match step.op.weights() {
            OpWeights::Nothing => None,
            OpWeights::Rows(weight) => {
                let layout = match spec(weight).residence {
                    Residence::Mapped => format!("{}, in the model's file", spec(weight).format),
                    Residence::Resident | Residence::Streamed | Residence::Pooled { .. } => packed(weight),
                };
                add(weight, layout, "rows of tokens".to_owned());
                None
            }
            OpWeights::Gain(norm) => Some(norm),
            OpWeights::Vectors(weights) => {
                let uses = match step.op {
                    Op::Route { vector: Some(RouteVector::Factors(_)), .. } => {
                        ["factors of experts", "", "", "", ""]
                    }
                    Op::Route { .. } => ["bias of a router", "", "", "", ""],
                    Op::Attention { .. } => ["sinks of heads", "", "", "", ""],
                    _ => ["taps", "decays of heads", "biases of steps", "biases of taps", "skips of heads"],
                };
                for (weight, used) in weights.iter().zip(uses) {
                    add(*weight, "f32 values".to_owned(), used.to_owned());
                }
                None
            }
            OpWeights::Experts { experts, biases } => {
                for expert in experts {
                    add(*expert, packed(*expert), "product of an expert".to_owned());
                }
                for bias in biases {
                    add(*bias, "f32 values".to_owned(), "bias".to_owned());
                }
                None
            }
            OpWeights::Stack { weights, biases, norm } => {
                for weight in weights {
                    let used = match weights.len() {
                        1 => "product".to_owned(),
                        _ => format!("product, stacked: {}", names(weights)),
                    };
                    add(*weight, packed(*weight), used);
                }
                for bias in biases {
                    add(*bias, "f32 values".to_owned(), "bias".to_owned());
                }
                norm
            }
            OpWeights::Gated { gate, up, norm } => {
                for weight in [gate, up] {
                    let used = format!("product, tiles in turn: {}", names(&[gate, up]));
                    add(weight, packed(weight), used);
                }
                norm
            }
        };
        if let Some((weight, layout, used)) = norm.map(gain) {
            add(weight, layout, used);
        }
    }
    layouts
}
