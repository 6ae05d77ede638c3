#!/usr/bin/env python3
"""Makes a tiny random model of each family, as safetensors and as GGUF, and what transformers computes with it in float32.

    python3 make.py [NAME ...]

Needs torch, transformers, safetensors and gguf (versions: README.md). Writes NAME/ beside this script; without names, all of them.
"""

import json
import math
import re
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, Mxfp4Config

HERE = Path(__file__).resolve().parent
TEXT_TOKENS = 96
FILE_LIMIT_BYTES = 300_000

COMMON = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=131, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
    bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False,
)


def family(architecture, model_type, arch, logit_std=2.0, final_gain=1.0, permute=False, lengths=(TEXT_TOKENS,),
           mxfp4=None, fused=False, **config):
    """`final_gain`: mean gain of the last norm; above 1 it allows small tied embeddings, which the layers outweigh.
    `permute`: rows of Q and K are reordered for rotation of adjacent pairs. `lengths`: tokens of each text.
    `mxfp4`: the container, `folder` or `gguf`, that has experts in this format; in the other one they are numbers.
    `fused`: the folder has the tensors of the class that runs them, with all experts of a layer in two."""
    config = {k: v for k, v in {**COMMON, **config}.items() if v is not DROP}
    config = {"architectures": [architecture], "model_type": model_type, "torch_dtype": "bfloat16", **config}
    return dict(config=config, arch=arch, logit_std=logit_std, final_gain=final_gain,
                permute=permute, lengths=lengths, mxfp4=mxfp4, fused=fused)


DROP = object()


def gpt_oss(mxfp4):
    return family("GptOssForCausalLM", "gpt_oss", "gpt-oss", mxfp4=mxfp4, head_dim=24,
                  attention_bias=True, intermediate_size=32, num_local_experts=5, num_experts_per_tok=2,
                  experts_per_token=2, swiglu_limit=7.0, rope_theta=150000, sliding_window=21,
                  layer_types=["sliding_attention", "full_attention"],
                  rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                    original_max_position_embeddings=32))


def gemma4(**config):
    return family("Gemma4ForCausalLM", "gemma4_text", "gemma4", tie_word_embeddings=True, hidden_act=DROP, rope_theta=DROP,
                  hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6, vocab_size=97, attention_bias=False,
                  final_logit_softcapping=8.0, logit_std=2.5, final_gain=6.0,
                  enable_moe_block=config.pop("enable_moe_block", False),
                  vocab_size_per_layer_input=97, use_bidirectional_attention=None, rope_parameters=dict(
                      full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0),
                      sliding_attention=dict(rope_type="default", rope_theta=10000.0)), **config)


# In the style of published config.json files; lfm2 and olmo2 in the newer one, with `rope_parameters`.
FAMILIES = {
    "qwen2": family("Qwen2ForCausalLM", "qwen2", "qwen2", tie_word_embeddings=True, vocab_size=151, rms_norm_eps=1e-6,
                    use_sliding_window=False),
    "qwen3": family("Qwen3ForCausalLM", "qwen3", "qwen3", head_dim=24, rope_theta=1000.0,
                    rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)),
    "llama": family("LlamaForCausalLM", "llama", "llama", permute=True, tie_word_embeddings=True, head_dim=24,
                    vocab_size=257,
                    rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                      original_max_position_embeddings=32)),
    "mistral": family("MistralForCausalLM", "mistral", "llama", permute=True, num_attention_heads=6, head_dim=16,
                      sliding_window=21, num_hidden_layers=3, intermediate_size=64),
    "smollm3": family("SmolLM3ForCausalLM", "smollm3", "smollm3", permute=True, tie_word_embeddings=True,
                      num_hidden_layers=4, intermediate_size=64, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4,
                      use_sliding_window=False, num_key_value_heads=1),
    "granite": family("GraniteForCausalLM", "granite", "granite", permute=True, tie_word_embeddings=True,
                      attention_multiplier=0.15625, embedding_multiplier=0.75, residual_multiplier=0.625,
                      logits_scaling=2.5, final_gain=6.0),
    "olmo2": family("Olmo2ForCausalLM", "olmo2", "olmo2", vocab_size=97, rope_theta=DROP, rms_norm_eps=1e-6,
                    rope_parameters=dict(rope_type="default", rope_theta=5000.0)),
    "phi3": family("Phi3ForCausalLM", "phi3", "phi3", tie_word_embeddings=True, lengths=(TEXT_TOKENS, 60),
                   partial_rotary_factor=0.75, original_max_position_embeddings=64, max_position_embeddings=256,
                   sliding_window=512,
                   rope_scaling=dict(type="longrope", short_factor=[1.0, 1.0625, 1.125, 1.25, 1.5, 1.75],
                                     long_factor=[1.0, 1.25, 2.0, 3.5, 6.0, 9.0])),
    "gemma2": family("Gemma2ForCausalLM", "gemma2", "gemma2", tie_word_embeddings=True, head_dim=24,
                     hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                     sliding_window=19, query_pre_attn_scalar=24, attn_logit_softcapping=4.0,
                     final_logit_softcapping=8.0, logit_std=2.5, final_gain=8.0),
    "gemma3": family("Gemma3ForCausalLM", "gemma3_text", "gemma3", final_gain=3.0, tie_word_embeddings=True, hidden_size=32,
                     num_attention_heads=4, num_key_value_heads=1, head_dim=24, intermediate_size=64,
                     num_hidden_layers=6, hidden_act=DROP, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
                     sliding_window=17, sliding_window_pattern=6, query_pre_attn_scalar=24, rope_theta=1000000.0,
                     rope_local_base_freq=10000.0, rope_scaling=dict(rope_type="linear", factor=8.0)),
    "lfm2": family("Lfm2ForCausalLM", "lfm2", "lfm2", tie_word_embeddings=True, num_hidden_layers=3, hidden_act=DROP,
                   layer_types=["conv", "full_attention", "conv"], conv_L_cache=3, conv_bias=False,
                   block_auto_adjust_ff_dim=True, block_ff_dim=96, intermediate_size=96, block_multiple_of=32,
                   block_ffn_dim_multiplier=1.0, rms_norm_eps=DROP, norm_eps=1e-5, rope_theta=DROP,
                   rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    # Experts: of odd numbers and sizes, fewer and more than the rows of a forward.
    "mixtral": family("MixtralForCausalLM", "mixtral", "llama", permute=True, intermediate_size=40, hidden_size=48,
                      num_local_experts=5, num_experts_per_tok=2, sliding_window=None),
    "qwen3moe": family("Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe", head_dim=24,
                       moe_intermediate_size=32, num_experts=6, num_experts_per_tok=3, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False),
    "olmoe": family("OlmoeForCausalLM", "olmoe", "olmoe", vocab_size=97, hidden_size=48, intermediate_size=24, num_experts=9,
                    num_experts_per_tok=4, norm_topk_prob=False, clip_qkv=None),
    "granitemoe": family("GraniteMoeForCausalLM", "granitemoe", "granitemoe", permute=True, tie_word_embeddings=True,
                         hidden_size=48, intermediate_size=24, num_local_experts=7, num_experts_per_tok=3,
                         attention_multiplier=0.15625, embedding_multiplier=0.75, residual_multiplier=0.625,
                         logits_scaling=2.5, final_gain=6.0),
    "lfm2moe": family("Lfm2MoeForCausalLM", "lfm2_moe", "lfm2moe", tie_word_embeddings=True, num_hidden_layers=4,
                      hidden_act=DROP, layer_types=["conv", "full_attention", "conv", "full_attention"], conv_L_cache=3,
                      conv_bias=False, hidden_size=48, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=2,
                      num_dense_layers=1, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.25,
                      rms_norm_eps=DROP, norm_eps=1e-5, rope_theta=DROP,
                      rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "gpt_oss": gpt_oss("folder"),
    "gpt_oss_numbers": gpt_oss("gguf"),
    "qwen2moe": family("Qwen2MoeForCausalLM", "qwen2_moe", "qwen2moe", hidden_size=48, moe_intermediate_size=24,
                       shared_expert_intermediate_size=40, num_experts=7, num_experts_per_tok=3, norm_topk_prob=False,
                       decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False),
    "granitemoeshared": family("GraniteMoeSharedForCausalLM", "granitemoeshared", "granitemoe", permute=True,
                               tie_word_embeddings=True, hidden_size=48, intermediate_size=24, num_local_experts=6,
                               num_experts_per_tok=2, shared_intermediate_size=40, attention_multiplier=0.15625,
                               embedding_multiplier=0.75, residual_multiplier=0.625, logits_scaling=2.5, final_gain=6.0),
    "ernie4_5_moe": family("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", "ernie4_5-moe", tie_word_embeddings=True,
                           hidden_size=48, moe_intermediate_size=16, moe_num_experts=6, moe_k=2,
                           moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=1, moe_layer_interval=1,
                           moe_norm_min=1e-12, use_bias=False, rope_theta=500000.0),
    # Gated delta rules: two value heads for a key head and one; sizes that fill no vector; a text longer than a chunk.
    "qwen35": family("Qwen3_5ForCausalLM", "qwen3_5_text", "qwen35", num_hidden_layers=4, hidden_size=48, head_dim=24,
                     intermediate_size=64, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
                     linear_value_head_dim=20, linear_conv_kernel_dim=4, full_attention_interval=4, attn_output_gate=True,
                     layer_types=["linear_attention"] * 3 + ["full_attention"], rms_norm_eps=1e-6, rope_theta=DROP,
                     max_position_embeddings=512, lengths=(200,), rope_parameters=dict(
                         rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25, mrope_section=[1, 1, 1],
                         mrope_interleaved=True)),
    "qwen35_tied": family("Qwen3_5ForCausalLM", "qwen3_5_text", "qwen35", num_hidden_layers=2, hidden_size=40, head_dim=16,
                          intermediate_size=72, vocab_size=97, tie_word_embeddings=True, num_key_value_heads=1,
                          linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=17,
                          linear_value_head_dim=32, linear_conv_kernel_dim=3, full_attention_interval=2,
                          layer_types=["linear_attention", "full_attention"], rms_norm_eps=1e-6, rope_theta=DROP,
                          final_gain=4.0, rope_parameters=dict(
                              rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
                              mrope_interleaved=True)),
    # Embeddings for every layer, and the last layers attend to keys and values of others, in MLPs of twice the size.
    "gemma4": gemma4(hidden_size=40, intermediate_size=56, num_hidden_layers=7, num_attention_heads=4,
                     num_key_value_heads=1, head_dim=12, global_head_dim=24, num_global_key_value_heads=None,
                     sliding_window=17, layer_types=["sliding_attention", "full_attention", "sliding_attention"] * 2
                     + ["full_attention"], attention_k_eq_v=False, num_kv_shared_layers=3, use_double_wide_mlp=True,
                     hidden_size_per_layer_input=12),
    # Without both; other key/value heads in layers without a window, whose keys are the values as well.
    "gemma4_one_matrix": gemma4(hidden_size=48, intermediate_size=72, num_hidden_layers=4, num_attention_heads=6,
                                num_key_value_heads=3, head_dim=16, global_head_dim=40, num_global_key_value_heads=2,
                                sliding_window=19, layer_types=["sliding_attention", "sliding_attention",
                                                                "sliding_attention", "full_attention"],
                                attention_k_eq_v=True, num_kv_shared_layers=0, use_double_wide_mlp=False,
                                hidden_size_per_layer_input=0),
    "qwen35moe": family("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", "qwen35moe", fused=True, num_hidden_layers=2,
                        hidden_size=48, intermediate_size=DROP, head_dim=16, num_key_value_heads=1,
                        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=20,
                        linear_conv_kernel_dim=4, full_attention_interval=2, attn_output_gate=True,
                        layer_types=["linear_attention", "full_attention"], moe_intermediate_size=24,
                        shared_expert_intermediate_size=40, num_experts=9, num_experts_per_tok=3, rms_norm_eps=1e-6,
                        rope_theta=DROP, rope_parameters=dict(
                            rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1],
                            mrope_interleaved=True)),
    # Selective scans: two units of four heads, and of groups by themselves; sizes that fill no vector.
    "granitehybrid": family("GraniteMoeHybridForCausalLM", "granitemoehybrid", "granitehybrid", permute=True,
                            tie_word_embeddings=True, num_hidden_layers=4, hidden_size=48, intermediate_size=72,
                            shared_intermediate_size=72, num_local_experts=0, num_experts_per_tok=0,
                            layer_types=["mamba", "mamba", "attention", "mamba"], position_embedding_type="nope",
                            mamba_n_heads=8, mamba_n_groups=1, mamba_d_state=18, mamba_d_head=12, mamba_d_conv=4,
                            mamba_expand=2, mamba_chunk_size=32, mamba_conv_bias=True, mamba_proj_bias=False,
                            max_position_embeddings=512, lengths=(200,), attention_multiplier=0.15625,
                            embedding_multiplier=0.75, residual_multiplier=0.625, logits_scaling=2.5, final_gain=6.0),
    "granitehybrid_moe": family("GraniteMoeHybridForCausalLM", "granitemoehybrid", "granitehybrid", permute=True,
                                hidden_size=32, intermediate_size=24, shared_intermediate_size=40, vocab_size=97,
                                num_local_experts=6, num_experts_per_tok=2, layer_types=["mamba", "attention"],
                                position_embedding_type="rope", mamba_n_heads=8, mamba_n_groups=2, mamba_d_state=17,
                                mamba_d_head="auto", mamba_d_conv=3, mamba_expand=2, mamba_conv_bias=True,
                                mamba_proj_bias=False, attention_multiplier=0.25, embedding_multiplier=2.0,
                                residual_multiplier=0.75, logits_scaling=1.5),
    # One that only attends: the folder is as those above, the GGUF file as Granite 3's.
    "granitehybrid_attention": family("GraniteMoeHybridForCausalLM", "granitemoehybrid", "granite", permute=True,
                                      tie_word_embeddings=True, intermediate_size=40, shared_intermediate_size=40,
                                      num_local_experts=0, num_experts_per_tok=0, layer_types=["attention"] * 2,
                                      position_embedding_type="rope", attention_multiplier=0.15625, final_gain=6.0,
                                      embedding_multiplier=0.75, residual_multiplier=0.625, logits_scaling=2.5),
    # Experts parallel to every MLP, with norms of their own and factors; more experts than a row uses, sizes of no vector.
    "gemma4_moe": gemma4(hidden_size=40, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=12, global_head_dim=24, num_global_key_value_heads=1,
                         sliding_window=17, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                         attention_k_eq_v=True, num_kv_shared_layers=0, use_double_wide_mlp=False,
                         hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=7, top_k_experts=3,
                         moe_intermediate_size=24),
}

# What converters call the matrices of experts: gate, up, down.
EXPERT_PARTS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}


def stores_gains_less_one(spec):
    return spec["arch"] in ("gemma2", "gemma3", "qwen35", "qwen35moe")


def exact(values):
    """The nearest values that BF16 and F16 both represent."""
    values = values.to(torch.bfloat16).to(torch.float32)
    return torch.where(values.abs() < 2.0**-16, torch.zeros_like(values), values)


def in_mxfp4(values):
    """The nearest values in blocks of 32 along the last dimension; codes `[..., K / 32, 16]` and scales `[..., K / 32]`
    as folders have them."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    powers = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True))) - 2
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    table = torch.cat([table, -table])
    codes = ((blocks / 2**powers)[..., None] - table).abs().argmin(-1)
    rounded = (table[codes] * 2**powers).reshape(values.shape)
    codes = codes.to(torch.uint8)
    return rounded, codes[..., ::2] | codes[..., 1::2] << 4, (powers[..., 0] + 127).to(torch.uint8)


def fill(model, spec, seed):
    """Random weights whose logits have a deviation near `logit_std` and whose attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    gains_are_offsets = stores_gains_less_one(spec)
    scaling = getattr(config, "logits_scaling", 1.0)
    head_std = spec["logit_std"] * scaling / spec["final_gain"] / math.sqrt(config.hidden_size)
    tied = config.tie_word_embeddings
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            mean = 1.5 if any(f".{x}_norm." in name or f".{x}_layernorm." in name for x in "qk") else 1.0
            # Gemma 4 does not scale scores by the size of heads.
            mean = 0.5 if spec["arch"] == "gemma4" and mean > 1 else mean
            # Few gated elements, normalised, would make much of little.
            mean = 0.3 if "post_per_layer_input_norm" in name else mean
            mean = spec["final_gain"] if name == "model.norm.weight" else mean
            values = mean - float(gains_are_offsets and "linear_attn" not in name) + 0.25 * noise
        elif name.endswith("A_log"):
            # Heads that forget within a few rows, and heads that remember hundreds.
            values = -2.0 + 1.5 * noise
        elif name.endswith("dt_bias"):
            values = -1.0 + noise
        elif name.endswith("e_score_correction_bias"):
            values = 0.1 * noise
        elif name.endswith(".bias") or name.endswith("_bias"):
            # What all rows add alike would hide the rest.
            values = (0.1 if any(x in name for x in ("o_proj", "down_proj")) else 0.5) * noise
        elif name.endswith("per_expert_scale"):
            values = 1.0 + 0.4 * noise
        elif name.endswith("router.scale"):
            # Scores far enough apart that rounding decides nothing.
            values = math.sqrt(config.hidden_size) * (1.0 + 0.25 * noise)
        elif name.endswith("sinks"):
            values = 2.0 * noise
        elif spec["mxfp4"] and ".experts." in name:
            # Many products beyond the bound of the gate. Rows and columns are swapped.
            gain = 3.0 if "gate_up" in name else 0.1
            values = gain * noise.transpose(1, 2).contiguous() / math.sqrt(parameter.shape[1])
            values = in_mxfp4(values)[0].transpose(1, 2)
        elif name == "lm_head.weight":
            values = head_std * noise
        elif "embed_tokens_per_layer" in name:
            values = noise / math.sqrt(config.hidden_size_per_layer_input)
        elif "embed_tokens" in name:
            values = (head_std if tied else 0.5) * noise
        elif "conv.conv" in name or "conv1d" in name:
            values = noise / math.sqrt(parameter.shape[-1])
        else:
            gain = 1.6 if any(x in name for x in ("q_proj", "k_proj", "qkv_proj")) else 1.0
            values = gain * noise / math.sqrt(parameter.shape[-1])
        with torch.no_grad():
            parameter.copy_(exact(values))
    for name, buffer in sorted(model.named_buffers()):
        if name.endswith("expert_bias"):
            buffer.copy_(exact(0.1 * torch.randn(buffer.shape, generator=generator)))
        elif name.endswith("layer_scalar"):
            buffer.copy_(exact(0.8 + 0.2 * torch.randn(buffer.shape, generator=generator)))


def make_text(length, vocab, seed):
    """Random tokens, the third quarter a copy of the first: attention has something to find."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (length,), generator=generator).tolist()
    quarter = length // 4
    ids[2 * quarter : 3 * quarter] = ids[:quarter]
    return ids


def run(model, ids):
    """Reference outputs of one text."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    top = logits.topk(2, dim=-1)
    logp = torch.log_softmax(logits.double(), dim=-1)
    nll = -logp[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    margin = top.values[:, 0] - top.values[:, 1]
    print(f"    {len(ids)} tokens: logits std {logits.std():.2f}, {len(set(top.indices[:, 0].tolist()))} different argmax, "
          f"{(margin > 0.05).float().mean():.0%} of margins over 0.05, mean nll {nll.mean():.3f}")
    return dict(
        token_ids=ids,
        argmax=top.indices[:, 0].tolist(),
        margin=[round(float(x), 5) for x in margin],
        nll=[round(float(x), 5) for x in nll],
        mean_nll=round(float(nll.mean()), 6),
    )


def interleave(rows, heads):
    """Rows of each head from (first half, second half) order to adjacent pairs."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def write_metadata(writer, c, spec):
    """Hyperparameters under the keys that llama.cpp's converter writes for this architecture."""
    rope = c.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    scaling = c.get("rope_scaling") or {}
    heads, arch = c["num_attention_heads"], spec["arch"]
    head_dim = c["hidden_size"] // heads
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_head_count(heads)
    writer.add_layer_norm_rms_eps(c.get("rms_norm_eps", c.get("norm_eps")))
    writer.add_rope_freq_base(c.get("rope_theta", rope.get("rope_theta")))
    writer.add_vocab_size(c["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("no_vocab")
    if "head_dim" in c:
        head_dim = c.get("global_head_dim", c["head_dim"])
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch in ("llama", "granite", "granitemoe", "smollm3"):
        writer.add_rope_dimension_count(head_dim)
    experts = c.get("num_experts", c.get("num_local_experts", c.get("moe_num_experts")))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(c.get("num_experts_per_tok", c.get("moe_k", c.get("top_k_experts"))))
    for shared in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        if shared in c:
            writer.add_expert_shared_feed_forward_length(c[shared])
    if arch == "ernie4_5-moe":
        writer.add_interleave_moe_layer_step(c["moe_layer_interval"])
        writer.add_leading_dense_block_count(c["moe_layer_start_index"])
        writer.add_expert_shared_count(c["moe_num_shared_experts"])
        writer.add_expert_shared_feed_forward_length(c["moe_intermediate_size"] * c["moe_num_shared_experts"])
    if "moe_intermediate_size" in c:
        writer.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if arch == "lfm2moe":
        writer.add_leading_dense_block_count(c["num_dense_layers"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(c["norm_topk_prob"])
        writer.add_expert_weights_scale(c["routed_scaling_factor"])
    if arch == "gpt-oss":
        writer.add_expert_feed_forward_length(c["intermediate_size"])
    if arch.startswith("qwen35"):
        writer.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(c["linear_key_head_dim"])
        writer.add_ssm_group_count(c["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(c["linear_num_value_heads"])
        writer.add_ssm_inner_size(c["linear_value_head_dim"] * c["linear_num_value_heads"])
        writer.add_full_attention_interval(c["full_attention_interval"])
        writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    if arch == "granitehybrid":
        writer.add_ssm_conv_kernel(c["mamba_d_conv"])
        writer.add_ssm_state_size(c["mamba_d_state"])
        writer.add_ssm_group_count(c["mamba_n_groups"])
        writer.add_ssm_inner_size(c["mamba_expand"] * c["hidden_size"])
        writer.add_ssm_time_step_rank(c["mamba_n_heads"])
        writer.add_rope_dimension_count(head_dim)
        # llama.cpp's converter says so of every model with scans; its graph turns nothing then.
        writer.add_rope_scaling_finetuned(c["position_embedding_type"] == "rope")
        writer.add_head_count_kv([c["num_key_value_heads"] if t == "attention" else 0 for t in c["layer_types"]])
        writer.add_feed_forward_length(c["intermediate_size"])
    elif arch.startswith("lfm2"):
        attention = [t == "full_attention" for t in c["layer_types"]]
        writer.add_head_count_kv([c["num_key_value_heads"] if x else 0 for x in attention])
        writer.add_shortconv_l_cache(c["conv_L_cache"])
        writer.add_feed_forward_length(lfm2_feed_forward(c))
    elif arch == "gemma4":
        write_gemma4(writer, c)
    else:
        writer.add_head_count_kv(c["num_key_value_heads"])
        if "intermediate_size" in c:
            writer.add_feed_forward_length(c["intermediate_size"])
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    elif kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif kind == "longrope":
        original = c["original_max_position_embeddings"]
        stretch = c["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_dimension_count(int(c["partial_rotary_factor"] * head_dim))
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))
    if arch.startswith("granite"):
        writer.add_attention_scale(c["attention_multiplier"])
        writer.add_embedding_scale(c["embedding_multiplier"])
        writer.add_residual_scale(c["residual_multiplier"])
        writer.add_logit_scale(c["logits_scaling"])
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(c["final_logit_softcapping"])
    if arch == "gemma3":
        writer.add_rope_freq_base_swa(c["rope_local_base_freq"])
    if c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])


def write_gemma4(writer, c):
    windowed = [t == "sliding_attention" for t in c["layer_types"]]
    layers, shared, size = c["num_hidden_layers"], c["num_kv_shared_layers"], c["intermediate_size"]
    of_whole = c["num_global_key_value_heads"]
    heads = c["num_key_value_heads"]
    writer.add_head_count_kv([heads if x else of_whole for x in windowed] if of_whole else heads)
    doubled = [size * (1 + (i >= layers - shared)) for i in range(layers)]
    writer.add_feed_forward_length(doubled if c["use_double_wide_mlp"] else size)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(c["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern(windowed)
    writer.add_key_length_swa(c["head_dim"])
    writer.add_value_length_swa(c["head_dim"])
    writer.add_rope_dimension_count(c["global_head_dim"])
    writer.add_rope_dimension_count_swa(c["head_dim"])
    writer.add_rope_freq_base_swa(c["rope_parameters"]["sliding_attention"]["rope_theta"])
    writer.add_final_logit_softcapping(c["final_logit_softcapping"])


def lfm2_feed_forward(c):
    if "block_ff_dim" not in c:
        return c["intermediate_size"]
    width = int(c["block_ffn_dim_multiplier"] * int(2 * c["block_ff_dim"] / 3))
    multiple = c["block_multiple_of"]
    return multiple * -(-width // multiple)


def rope_factors(c):
    """The tensors of divisors of rotary frequencies, by GGUF name."""
    scaling = c.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    whole = (c.get("rope_parameters") or {}).get("full_attention", {})
    if whole.get("rope_type") == "proportional":
        pairs = c["global_head_dim"] // 2
        turned = int(pairs * whole["partial_rotary_factor"])
        return {"rope_freqs.weight": np.array([1.0] * turned + [1e30] * (pairs - turned), np.float32)}
    if kind == "longrope":
        return {f"rope_factors_{x}.weight": np.array(scaling[f"{x}_factor"], np.float32) for x in ("long", "short")}
    if kind != "llama3":
        return {}
    head_dim = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    turns = scaling["original_max_position_embeddings"] / (
        2 * math.pi * np.float64(c["rope_theta"]) ** (np.arange(0, head_dim, 2) / head_dim))
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return {"rope_freqs.weight": (1 / (kept + (1 - kept) / scaling["factor"])).astype(np.float32)}


def with_experts_together(weights):
    """The same with one tensor for all experts' gates of a layer, one for their ups, one for their downs."""
    together, of_experts = {}, {}
    is_dense = not any("block_sparse_moe" in name for name in weights)
    for name, tensor in weights.items():
        each = re.fullmatch(r"(.*\.)(?:mlp|feed_forward|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight", name)
        if each:
            layer, number, part = each.groups()
            of_experts.setdefault(f"{layer}mlp.experts.{EXPERT_PARTS.get(part, part)}.weight", {})[int(number)] = tensor
        elif name.endswith("shared_mlp.input_linear.weight"):
            layer = name.removesuffix("shared_mlp.input_linear.weight")
            for part, half in zip(("gate_proj", "up_proj"), tensor.chunk(2)):
                together[f"{layer}mlp.{'' if is_dense else 'shared_expert.'}{part}.weight"] = half.contiguous()
        elif is_dense and name.endswith("shared_mlp.output_linear.weight"):
            together[name.replace("shared_mlp.output_linear", "mlp.down_proj")] = tensor
        elif name.endswith("e_score_correction_bias"):
            together[name.removesuffix("_bias") + ".bias"] = tensor.reshape(-1)
        elif name.endswith("input_linear.weight"):
            layer = name.removesuffix("block_sparse_moe.input_linear.weight")
            for part, half in zip(("gate_proj", "up_proj"), tensor.chunk(2, dim=1)):
                together[f"{layer}mlp.experts.{part}.weight"] = half.contiguous()
        elif name.endswith("expert_bias"):
            together[f"{name}.bias"] = tensor
        elif "mlp.experts.gate_up_proj" in name:
            layer, kind = name.split("gate_up_proj")
            tensor = tensor if kind else tensor.transpose(1, 2)
            for part, first in (("gate_proj", 0), ("up_proj", 1)):
                together[f"{layer}{part}.{kind[1:] or 'weight'}"] = tensor[:, first::2].contiguous()
        elif "mlp.experts.down_proj" in name and name.split(".")[-1].startswith("down_proj"):
            kind = name.split("down_proj")[1]
            together[f"{name.removesuffix(kind)}.{kind[1:] or 'weight'}"] = (
                tensor if kind else tensor.transpose(1, 2).contiguous())
        elif name.endswith(("sinks", "layer_scalar", "experts.gate_up_proj", "experts.down_proj")):
            together[f"{name}.weight"] = tensor
        else:
            together[name] = tensor
    stacked = {name: torch.stack([parts[i] for i in range(len(parts))]) for name, parts in of_experts.items()}
    return together | stacked


def value_heads_in_turn(name, values, c):
    """Value heads of a gated delta rule, which folders store key head by key head, in the order of GGUF files: the first of
    every key head, then the second."""
    keys, heads = c.get("linear_num_key_heads"), c.get("linear_num_value_heads")
    if "linear_attn." not in name or keys == heads or name.endswith("linear_attn.norm.weight"):
        return values
    order = np.arange(heads).reshape(keys, heads // keys).T.ravel()
    width = c["linear_value_head_dim"]
    of_elements = (order[:, None] * width + np.arange(width)).ravel()
    if "out_proj" in name:
        return values[:, of_elements]
    if "in_proj_z" in name:
        return values[of_elements]
    if "in_proj_qkv" in name or "conv1d" in name:
        others = 2 * keys * c["linear_key_head_dim"]
        return np.concatenate([values[:others], values[others:][of_elements]])
    return values[order]


def converted(name, values, c, spec):
    """A tensor as llama.cpp's converter changes it, where that cannot be undone by a rule of its own."""
    if stores_gains_less_one(spec) and name.endswith("norm.weight") and "linear_attn" not in name:
        values = values + np.float32(1)
    if name.endswith("A_log"):
        values = -np.exp(values)
    if "conv1d.weight" in name:
        values = values.squeeze(1)
    if name.endswith(("mamba.A_log", "mamba.D")):
        values = values[:, None]
    if name.endswith("mamba.norm.weight"):
        values = values.reshape(c["mamba_n_groups"], -1)
    return value_heads_in_turn(name, values, c)


# What llama.cpp's converter calls vectors of Gemma 4's router, which gguf has no names for.
OF_ROUTER = {"router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale"}


def gguf_name(names, name):
    for vector, new in OF_ROUTER.items():
        if name.endswith(vector):
            return f"blk.{name.split('.')[2]}.{new}"
    new = names.get_name(name.replace("dt_bias", "dt_proj.bias"), try_suffixes=(".weight", ".bias"))
    if new is None:
        raise ValueError(f"{name}: gguf knows no name for it")
    return new


def gguf_tensors(c, spec, weights):
    """Name -> array (F32 or F16), as llama.cpp's converter stores them."""
    arch = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == spec["arch"])
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    tensors = rope_factors(c)
    for name, tensor in weights.items():
        new = gguf_name(names, name)
        values = tensor.float().numpy()
        if "conv.conv" in name:
            values = values.squeeze(1)
        if spec["permute"] and (".q_proj." in name or ".k_proj." in name):
            values = interleave(values, c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"])
        values = converted(name, values, c, spec)
        # As llama.cpp's converter: a router stays as it is.
        dense = values.ndim in (2, 3) and "conv.conv" not in name and "conv1d" not in name and "ffn_gate_inp" not in new
        dense = dense and not new.endswith((".bias", "ssm_a", "ssm_d", "ssm_norm.weight"))
        tensors[new] = values.astype(np.float16) if dense else values
    return tensors


def in_gguf(values, name, spec):
    """What a GGUF file has of a tensor, and of what type."""
    if spec["mxfp4"] == "gguf" and "_exps.weight" in name:
        kind = gguf.GGMLQuantizationType.MXFP4
        return gguf.quants.quantize(values.astype(np.float32), kind), kind
    return values, None


def write_gguf(path, c, spec, tensors):
    writer = gguf.GGUFWriter(path, spec["arch"])
    writer.add_name(f"random {c['model_type']}")
    write_metadata(writer, c, spec)
    for name, values in tensors.items():
        stored, kind = in_gguf(values, name, spec)
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_gguf(path, c, spec, tensors, weights):
    """The file read back holds what was written, and undoing the converter's changes gives the weights."""
    packed = gguf.GGMLQuantizationType.MXFP4
    read = {t.name: gguf.quants.dequantize(t.data, packed).astype(np.float16) if t.tensor_type == packed
            else np.array(t.data) for t in gguf.GGUFReader(path).tensors}
    assert read.keys() == tensors.keys(), read.keys() ^ tensors.keys()
    for name, values in tensors.items():
        assert read[name].dtype == values.dtype and np.array_equal(read[name], values), name
    arch = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == spec["arch"])
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    for name, tensor in weights.items():
        values = read[gguf_name(names, name)].astype(np.float32)
        original = converted(name, tensor.float().numpy(), c, spec).reshape(values.shape)
        if spec["permute"] and (".q_proj." in name or ".k_proj." in name):
            heads = c["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
            width = values.shape[0] // heads
            order = [h * width + 2 * (i % (width // 2)) + i // (width // 2) for h in range(heads) for i in range(width)]
            values = values[order]
        assert np.array_equal(values, original), name


def in_file(name, values):
    """The tensors that a folder in MXFP4 has of one of a model."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return [(name, values)]
    turned = values.float().transpose(1, 2).contiguous()
    rounded, codes, scales = in_mxfp4(turned)
    assert torch.equal(rounded, turned), name
    return [(f"{name}_blocks", codes.contiguous()), (f"{name}_scales", scales.contiguous())]


def make(name, seed):
    spec = FAMILIES[name]
    c = spec["config"]
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    fill(model, spec, seed)
    if c["tie_word_embeddings"]:
        model.tie_weights()

    # Tensors as files have them, not as the class that runs them does.
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        stored = load_file(Path(saved) / "model.safetensors")
    with_bytes = spec["mxfp4"] == "folder"
    kept = {k: v.dtype if k.endswith(("expert_bias", "correction_bias")) else torch.bfloat16 for k, v in stored.items()}
    weights = {k: v.to(kept[k]).contiguous() for k, v in stored.items()}
    files = weights
    if spec["fused"]:
        files = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
    if with_bytes:
        files = dict(pair for k, v in weights.items() for pair in in_file(k, v))
        c = {**c, "quantization_config": {"quant_method": "mxfp4"}}
        (folder / "config.json").write_text(json.dumps(c, indent=2) + "\n")
    save_file(files, folder / "model.safetensors", metadata={"format": "pt"})
    # What is published is what is run: the model is loaded again from the files.
    as_numbers = dict(quantization_config=Mxfp4Config(dequantize=True)) if with_bytes else {}
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **as_numbers)
    assert not any(report.values()), report
    model.eval()

    tensors = gguf_tensors(c, spec, with_experts_together(weights))
    write_gguf(folder / "model.gguf", c, spec, tensors)
    check_gguf(folder / "model.gguf", c, spec, tensors,
               with_experts_together(weights if with_bytes or spec["fused"] else load_file(folder / "model.safetensors")))

    print(f"{name}: {sum(p.numel() for p in weights.values())} weights")
    texts = [run(model, make_text(n, c["vocab_size"], seed + 1000 + i)) for i, n in enumerate(spec["lengths"])]
    lines = ",\n".join("{" + ",\n ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in t.items()) + "}" for t in texts)
    (folder / "expected.json").write_text('{"texts": [\n' + lines + "\n]}\n")
    for file in ("model.safetensors", "model.gguf"):
        size = (folder / file).stat().st_size
        assert size <= FILE_LIMIT_BYTES, f"{name}/{file}: {size} bytes"


def main():
    torch.set_num_threads(1)
    for name in sys.argv[1:] or FAMILIES:
        # The two of gpt-oss are one model.
        make(name, 23 + list(FAMILIES).index(name.removesuffix("_numbers")))


if __name__ == "__main__":
    main()
