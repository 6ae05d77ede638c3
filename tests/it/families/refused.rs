//! What files of a family may not say: refused by name, by the first key or tensor that does.

use std::fs;

use serde_json::{Value, json};
use yggc::model::{
    Model, ModelError, TensorInfo,
    gguf::{self, DATA_ALIGNMENT, GgufFile, TensorRecord, encode_header, parse},
};

use super::{data, open_folder};

pub(super) type Edit = Box<dyn FnOnce(&mut Value)>;

/// A family, what is changed in its configuration, and what an error says of it.
type Refused = (&'static str, Edit, &'static [&'static str]);

pub(super) fn set(key: &'static str, value: Value) -> Edit {
    Box::new(move |config| config[key] = value)
}

/// What a graph does not compute is named, the first of it, with what would run.
#[test]
fn what_a_family_does_not_compute_is_refused_by_name() {
    let as_llama = |config: &mut Value| {
        config["model_type"] = json!("llama");
        config["architectures"] = json!(["LlamaForCausalLM"]);
        config["rope_scaling"] = Value::Null;
    };
    let cases: Vec<Refused> = vec![
        ("llama", set("model_type", json!("mamba")), &["`model_type`", "`mamba`", "`qwen2`, `qwen3`"]),
        ("qwen2", Box::new(as_llama), &["self_attn.k_proj.bias`", "a bias", "llama models"]),
        ("qwen3", Box::new(as_llama), &["self_attn.k_norm.weight`", "a norm", "llama models"]),
        ("gemma2", Box::new(as_llama), &["`hidden_act`", "gelu", "`silu`"]),
        ("qwen2", set("attention_bias", json!(true)), &["`attention_bias`", "`true`"]),
        (
            "mistral",
            set("layer_types", json!(["chunked_attention", "full_attention", "full_attention"])),
            &["`layer_types`", "chunked"],
        ),
        ("mistral", set("layer_types", json!(["full_attention"])), &["`layer_types`", "one for each of 3"]),
        ("mistral", set("sliding_window", json!(0)), &["`sliding_window`", "above 0"]),
        ("smollm3", set("no_rope_layers", json!([1])), &["`no_rope_layers`", "one for each of 4"]),
        ("granite", set("logits_scaling", json!(0.0)), &["`logits_scaling`", "not 0"]),
        ("gemma2", set("attn_logit_softcapping", json!(-1.0)), &["`attn_logit_softcapping`", "above 0"]),
        ("gemma3", set("sliding_window_pattern", json!(0)), &["`sliding_window_pattern`", "above 0"]),
        ("gemma3", set("rope_local_base_freq", json!(0.5)), &["`rope_local_base_freq`", "above 1"]),
        ("phi3", set("partial_rotary_factor", json!(0.5)), &["`rope_scaling`", "4 divisors"]),
        (
            "qwen35",
            set("attn_output_gate", json!(false)),
            &["`attn_output_gate`", "`false`", "gates of attention"],
        ),
        ("qwen35", set("attention_bias", json!(true)), &["`attention_bias`", "`true`"]),
        ("qwen35", set("linear_num_value_heads", json!(5)), &["gated delta rule", "as many heads of values"]),
        (
            "qwen35",
            set("linear_key_head_dim", json!(1024)),
            &["gated delta rule", "1 to 512 elements", "1024"],
        ),
        ("qwen35", set("linear_key_head_dim", Value::Null), &["`linear_key_head_dim`", "elements of a key"]),
        (
            "qwen35",
            set("linear_conv_kernel_dim", json!(3)),
            &["conv1d.weight`", "[128, 1, 3]", "[128, 1, 4]"],
        ),
        ("qwen35", set("layer_types", json!(["full_attention"])), &["`layer_types`", "one for each of 4"]),
        (
            "qwen35",
            set("layer_types", json!(["conv", "full_attention", "conv", "conv"])),
            &["`layer_types`", "`conv`", "`linear_attention`"],
        ),
        ("lfm2", set("conv_bias", json!(true)), &["`conv_bias`", "`true`"]),
        ("lfm2", set("conv_L_cache", json!(4)), &["conv.conv.weight`", "[64, 1, 4]", "[64, 1, 3]"]),
        ("lfm2", set("conv_L_cache", Value::Null), &["`conv_L_cache`", "taps"]),
        (
            "lfm2",
            set("layer_types", json!(["conv", "full_attention"])),
            &["`layer_types`", "one for each of 3"],
        ),
        ("lfm2", set("layer_types", json!(["conv", "moe", "conv"])), &["`layer_types`", "`moe`"]),
        ("lfm2", set("block_multiple_of", json!(0)), &["`block_multiple_of`", "1 to 65536"]),
        ("lfm2", set("block_ffn_dim_multiplier", json!(-1.0)), &["`block_ffn_dim_multiplier`", "above 0"]),
        ("lfm2", set("rope_parameters", Value::Null), &["`rope_theta`"]),
        ("lfm2", set("theta", json!(5000.0)), &["`theta`", "5000", "as `rope_theta`"]),
        (
            "qwen2moe",
            set("shared_expert_intermediate_size", json!(0)),
            &["`shared_expert_intermediate_size`"],
        ),
        ("qwen2moe", set("qkv_bias", json!(false)), &["`qkv_bias`", "`false`"]),
        ("ernie4_5_moe", set("use_bias", json!(true)), &["`use_bias`", "`true`"]),
        ("granitemoeshared", set("shared_intermediate_size", json!(24)), &["[48, 48]", "[80, 48]"]),
        ("gpt_oss", set("swiglu_limit", json!(5.0)), &["`swiglu_limit`", "`5`", "`7`"]),
        ("gpt_oss", set("swiglu_alpha", json!(1.0)), &["`swiglu_alpha`", "`1`", "`1.702`"]),
        ("gpt_oss", set("attention_bias", json!(false)), &["`attention_bias`", "`false`"]),
        ("gpt_oss", set("rope_theta", Value::Null), &["`rope_theta`", "base of the rotation"]),
        ("gpt_oss", set("rope_scaling", Value::Null), &["`rope_scaling.rope_type`", "scaling rule"]),
        ("gpt_oss", set("quantization_config", json!({"quant_method": "awq"})), &["`awq`", "`mxfp4`"]),
        (
            "llama",
            set(
                "quantization_config",
                json!({"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"R1": {}}}}),
            ),
            &["`quantization_config.transform_config`", "turned activations"],
        ),
        (
            "gpt_oss",
            set("intermediate_size", json!(64)),
            &["experts.gate_up_proj`", "[5, 128, 64]", "[5, 64, 64]"],
        ),
    ];
    refuses(cases);
}

#[test]
fn what_granite_hybrids_do_not_compute_is_refused_by_name() {
    fn of(key: &'static str, value: Value, parts: &'static [&'static str]) -> Refused {
        ("granitehybrid", set(key, value), parts)
    }
    let cases: Vec<Refused> = vec![
        of("mamba_proj_bias", json!(true), &["`mamba_proj_bias`", "`true`", "no biases"]),
        of("mamba_conv_bias", json!(false), &["`mamba_conv_bias`", "`false`", "biases of convolutions"]),
        of("attention_bias", json!(true), &["`attention_bias`", "`true`"]),
        of("normalization_function", json!("layernorm"), &["`normalization_function`", "`rmsnorm`"]),
        of("position_embedding_type", json!("alibi"), &["`position_embedding_type`", "`alibi`", "`nope`"]),
        of("layer_types", Value::Null, &["`layer_types`", "what each layer has"]),
        of("layer_types", json!(["mamba"]), &["`layer_types`", "one for each of 4"]),
        of("layer_types", json!(["mamba", "conv", "mamba", "mamba"]), &["`conv`", "`linear_attention`"]),
        of("layer_types", json!(vec!["attention"; 4]), &["layers.0.self_attn.q_proj.weight`"]),
        of("mamba_n_heads", Value::Null, &["`mamba_n_heads`", "how many heads"]),
        of("mamba_n_heads", json!(7), &["`mamba_expand`", "multiples of the 7 heads", "96"]),
        of("mamba_n_heads", json!(0), &["`mamba_expand`", "multiples of the 0 heads"]),
        of("mamba_d_head", json!(16), &["`mamba_d_head`", "elements of a head, 12", "16"]),
        of("mamba_expand", json!(usize::MAX), &["`mamba_expand`"]),
        of("mamba_n_groups", json!(3), &["the selective scan", "several times as many", "key_heads: 3"]),
        of("mamba_d_state", json!(1024), &["the selective scan", "1 to 512 elements", "1024"]),
        of("mamba_d_state", json!(20), &["layers.0.mamba.in_proj.weight`", "[240, 48]", "[236, 48]"]),
        of("mamba_d_conv", json!(3), &["conv1d.weight`", "[132, 1, 3]", "[132, 1, 4]"]),
        of("time_step_limit", json!([1.0, 0.5]), &["`time_step_limit`", "[1.0, 0.5]"]),
        of("time_step_limit", json!([0.0]), &["`time_step_limit`", "the shortest and the longest"]),
        of("time_step_limit", json!(["x", "y"]), &["`time_step_limit`", "a list of numbers"]),
        of("shared_intermediate_size", json!(24), &["shared_mlp.input_linear.weight`", "[48, 48]"]),
        (
            "granitehybrid_moe",
            set("mamba_n_groups", json!(1)),
            &["in_proj.weight`", "[170, 32]", "[204, 32]"],
        ),
    ];
    refuses(cases);
    let counts = |counts: &[i32]| gguf::Value::Array(gguf::Array::I32(counts.to_vec()));
    let cases: [(&str, gguf::Value, &[&str]); 5] = [
        ("attention.head_count_kv", counts(&[0, 0, 2]), &["head_count_kv`", "one for each of 4"]),
        ("attention.value_length", gguf::Value::U32(8), &["value_length`", "the head size, 12"]),
        ("ssm.time_step_rank", gguf::Value::U32(7), &["ssm.inner_size`", "multiples of the 7 heads"]),
        ("ssm.group_count", gguf::Value::U32(0), &["the selective scan", "key_heads: 0"]),
        ("ssm.state_size", gguf::Value::U32(19), &["blk.0.ssm_in.weight`", "[238, 48]", "[236, 48]"]),
    ];
    for (key, value, parts) in cases {
        let edit = |file: &mut GgufFile| drop(file.metadata.insert(format!("granitehybrid.{key}"), value));
        let error = open_file("granitehybrid", edit).expect_err(key).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{key}: {error}, without {parts:?}");
    }
}

#[test]
fn what_gemma4_does_not_compute_is_refused_by_name() {
    let cases: Vec<Refused> = vec![
        ("gemma4", set("enable_moe_block", json!(true)), &["`num_experts`", "how many experts a layer has"]),
        ("gemma4", set("use_bidirectional_attention", json!("all")), &["`use_bidirectional", "`all`"]),
        ("gemma4", set("global_head_dim", Value::Null), &["`global_head_dim`", "without a window"]),
        ("gemma4", set("head_dim", json!(13)), &["`head_dim`", "an even head size", "13"]),
        ("gemma4", set("head_dim", json!(16)), &["self_attn.q_proj.weight`", "[64, 40]", "[48, 40]"]),
        ("gemma4", set("num_kv_shared_layers", json!(7)), &["`num_kv_shared_layers`", "fewer than the 7"]),
        ("gemma4", set("num_kv_shared_layers", json!(6)), &["layer 1", "of its kind among the first 1"]),
        (
            "gemma4",
            set("use_double_wide_mlp", json!(false)),
            &["layers.4.mlp.gate_proj", "[56, 40]", "[112, 40]"],
        ),
        ("gemma4", set("hidden_size_per_layer_input", json!(0)), &["post_per_layer_input_norm", "a norm"]),
        (
            "gemma4",
            set("vocab_size_per_layer_input", json!(96)),
            &["`vocab_size_per_layer_input`", "97 or more"],
        ),
        (
            "gemma4",
            Box::new(|config| {
                let rule = json!({"rope_type": "default", "rope_theta": 1e6});
                config["rope_parameters"]["full_attention"] = rule;
            }),
            &["full_attention.rope_type`", "`default`", "`proportional`"],
        ),
        (
            "gemma4",
            Box::new(|config| {
                config["rope_parameters"]["full_attention"]["partial_rotary_factor"] = json!(1.5)
            }),
            &["`rope_scaling`", "a share of 1.5"],
        ),
        (
            "gemma4",
            Box::new(|config| config["layer_types"] = json!(vec!["sliding_attention"; 7])),
            &["`layer_types`", "a last layer with a window"],
        ),
        (
            "gemma4_one_matrix",
            set("attention_k_eq_v", json!(false)),
            &["self_attn.k_proj.weight`", "[120, 48]"],
        ),
    ];
    refuses(cases);
}

/// The GGUF file of a family with a changed header.
fn open_file(family: &str, edit: impl FnOnce(&mut GgufFile)) -> Result<Model, ModelError> {
    let whole = fs::read(data(family).join("model.gguf")).expect("the model is there");
    let mut file = parse(&whole).expect("the model is whole");
    let first = file.tensors.values().map(|tensor| tensor.bytes.start).min().expect("it has tensors");
    edit(&mut file);
    let record = |(name, tensor): (&String, &TensorInfo)| TensorRecord {
        name: name.clone(),
        shape: tensor.shape.clone(),
        format: tensor.format,
        offset: (tensor.bytes.start - first) as u64,
    };
    let records: Vec<TensorRecord> = file.tensors.iter().map(record).collect();
    let mut bytes = encode_header(3, &file.metadata, &records);
    bytes.resize(bytes.len().next_multiple_of(DATA_ALIGNMENT as usize), 0);
    bytes.extend_from_slice(&whole[first..]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).expect("the folder can be written");
    Model::open(&path)
}

#[test]
fn files_of_gemma4_that_say_something_else_are_refused_by_key() {
    let flags = |flags: &[bool]| gguf::Value::Array(gguf::Array::Bool(flags.to_vec()));
    let counts = |counts: &[i32]| gguf::Value::Array(gguf::Array::I32(counts.to_vec()));
    let (one, both) = ("gemma4_one_matrix", [true, true, true, false]);
    let cases: Vec<(&str, &str, gguf::Value, &[&str])> = vec![
        (
            "gemma4",
            "expert_count",
            gguf::Value::U32(8),
            &["expert_used_count`", "how many experts a token uses"],
        ),
        (one, "attention.sliding_window_pattern", flags(&both[1..]), &["pattern`", "one for each of 4"]),
        (one, "attention.sliding_window_pattern", flags(&[true; 4]), &["one or more without a window"]),
        (
            one,
            "attention.head_count_kv",
            counts(&[3, 3, 2, 2]),
            &["head_count_kv`", "3 in one layer, 2 in another"],
        ),
        (one, "attention.head_count_kv", counts(&[3, 3, 3]), &["head_count_kv`", "one for each of 4"]),
        (one, "attention.head_count_kv", counts(&[4, 4, 4, 2]), &["head_count_kv`", "a divisor of the 6"]),
        (one, "attention.key_length_swa", gguf::Value::U32(17), &["key_length_swa`", "even"]),
        (one, "attention.key_length_swa", gguf::Value::U32(1 << 20), &["key_length_swa`", "2 to 512"]),
        (one, "attention.key_length", gguf::Value::U32(1024), &["key_length`", "2 to 512", "1024"]),
        (one, "attention.value_length_swa", gguf::Value::U32(8), &["value_length_swa`", "16"]),
        (one, "rope.dimension_count_swa", gguf::Value::U32(8), &["dimension_count_swa`", "16"]),
        (one, "attention.value_length", gguf::Value::U32(8), &["value_length`", "40"]),
        (
            "gemma4",
            "attention.shared_kv_layers",
            gguf::Value::U32(9),
            &["shared_kv_layers`", "fewer than the 7"],
        ),
        ("gemma4", "feed_forward_length", counts(&[56; 3]), &["feed_forward_length`", "one for each of 7"]),
        (
            "gemma4",
            "feed_forward_length",
            counts(&[56; 7]),
            &["blk.4.ffn_gate.weight`", "[56, 40]", "[112, 40]"],
        ),
    ];
    for (family, key, value, parts) in cases {
        let edit = |file: &mut GgufFile| drop(file.metadata.insert(format!("gemma4.{key}"), value));
        let error = open_file(family, edit).expect_err(key).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{key}: {error}, without {parts:?}");
    }
    for (tensor, part) in [("rope_freqs.weight", "[20]"), ("blk.0.attn_k.weight", "[48, 48]")] {
        let edit = |file: &mut GgufFile| drop(file.tensors.remove(tensor));
        let error = open_file(one, edit).expect_err(tensor).to_string();
        assert!(error.contains(tensor) && error.contains(part), "{error}");
    }
    // Factors that a file leaves out are one.
    let edit = |file: &mut GgufFile| drop(file.tensors.remove("blk.0.layer_output_scale.weight"));
    open_file(one, edit).expect("it opens without");
}

fn refuses(cases: Vec<Refused>) {
    for (family, edit, parts) in cases {
        let error = open_folder(family, edit).expect_err(family).to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{family}: {error}, without {parts:?}");
    }
}
