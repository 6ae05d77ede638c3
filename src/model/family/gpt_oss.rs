//! gpt-oss: Llama with biases, attention sinks, a window in every other layer, and experts with a clamped gate.

use super::{
    Family, Source, accepted,
    experts::{Experts, Stored},
    recipe::{Biases, Recipe},
};
use crate::model::{
    Container, ModelConfig, ModelError, RopeScaling,
    config::{Fields, only, required},
};
use ygg_kernels::{Nonlinearity, RopePairing};

/// gpt-oss.
pub(super) static GPT_OSS: Family = Family {
    name: "gpt-oss",
    models: "gpt-oss (20B, 120B)",
    beside_llama: "biases; a sink for every head takes a part of its weights; a window in every other layer; experts \
        with biases and a clamped gate in place of MLPs, chosen by softmax",
    tried: &[],
    classes: &[("gpt_oss", "GptOssForCausalLM")],
    pairing: |_| RopePairing::Halves,
    is_tied_by_default: false,
    accept,
    recipe,
};

/// What its GGUF files call what Llama's call otherwise.
const NAMES: &[(&str, &str)] = &[("ffn_norm", "post_attention_norm")];

fn accept(fields: &dyn Fields, config: &mut ModelConfig) -> Result<(), ModelError> {
    accepted::same_heads(fields, config)?;
    accepted::whole_heads_turn(fields, config)?;
    match fields.container() {
        Container::Gguf => {
            // Files do not say it: where published models blend frequencies is between pairs, too.
            if let RopeScaling::Yarn { is_truncated, .. } = &mut config.rope.scaling {
                *is_truncated = false;
            }
            Ok(())
        }
        Container::Folder => {
            accepted::activation(fields, &["hidden_act"], "silu")?;
            only("attention_bias", fields.flag("attention_bias")?, true, "biases")?;
            let numbers = [
                ("swiglu_alpha", Nonlinearity::CLAMPED_SLOPE),
                ("swiglu_limit", Nonlinearity::CLAMPED_BOUND),
            ];
            for (key, value) in numbers {
                only(key, fields.float(key)?, value, "as in published models")?;
            }
            // Without them a model would have the numbers that transformers has for its class.
            let base = fields.float("rope_parameters.rope_theta")?.or(fields.float("rope_theta")?);
            required(base, "rope_theta", "the base of the rotation")?;
            let kind = fields.text("rope_parameters.rope_type")?.or(fields.text("rope_scaling.rope_type")?);
            required(kind, "rope_scaling.rope_type", "the scaling rule").map(drop)
        }
    }
}

fn recipe(source: &Source<'_>) -> Result<Recipe, ModelError> {
    let stored = Stored::Turns { input: "mlp.experts.gate_up_proj", output: "mlp.experts.down_proj" };
    // Softmax over the scores of the experts that are used: weights divided by their sum.
    let experts = Experts { is_biased: true, ..Experts::required(source, stored, "mlp.router", None)? };
    let recipe = Recipe {
        biases: Biases::Attention,
        has_sinks: true,
        function: Nonlinearity::ClampedSilu,
        experts: Some(experts),
        names: NAMES,
        ..Recipe::llama(source.config)
    };
    recipe.windowed(source, |layer| layer % 2 == 0)
}
