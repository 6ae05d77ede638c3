#!/usr/bin/env python3
"""Makes tiny random block drafters for the tiny models of `../families`, each in a layout that is published, and what
PyTorch computes with them in float32 from the definitions of DFlash (https://arxiv.org/abs/2602.06036) and of the
Markov head of DSpark (https://arxiv.org/abs/2607.05147, equations 4 and 5).

    python3 make.py [NAME ...]

Needs torch, transformers and safetensors (versions: README.md). Writes NAME/ beside this script; without names, all.
"""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
TEXT_TOKENS = 24
CANDIDATES = 8
# Tokens whose conditional candidates are written down for every row: the best of the row before.
FOLLOWED = 2
# Places of the text whose rows of the verifier are written down.
SHOWN_PLACES = (0, 7, TEXT_TOKENS - 2)
EPS = 1e-5

# `layers`: for each number, the verifier's residual stream after so many of its layers. `first`: the row of a block
# whose logits are for the token after the text's last.
HEADS = {
    # z-lab: all in `dflash_config` but the block's size; rows are for their own places.
    "dflash-qwen3": dict(verifier="qwen3", layers=[1, 2], size=6, depth=2, own=["mask_token_id", "target_layer_ids"]),
    # z-lab: the size in `dflash_config`, too, a factor and a bound of logits, a factor on embeddings, F16.
    "dflash-gemma3": dict(
        verifier="gemma3", layers=[1, 2, 3], size=4, depth=1, dtype=torch.float16,
        own=["mask_token_id", "target_layer_ids", "block_size"],
        more=dict(final_logit_softcapping=30.0, output_multiplier=6.0, input_embedding_scale=1.5)),
    # DeepSpec: all at the top, an embedding and a head of its own, a Markov head, the embedding among the layers read.
    "dspark-llama": dict(
        verifier="llama", layers=[0, 2], size=5, depth=2, rank=8, confidence=True, own_embedding=True, own_head=True),
    # DeepSpec without a Markov head, which is its DFlash; F32, a scaled rotation.
    "dspark-qwen2": dict(
        verifier="qwen2", layers=[1], size=7, depth=1, dspark=True, dtype=torch.float32,
        rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16)),
    # speculators: a head for some tokens, out of order.
    "speculators-dflash-phi3": dict(
        verifier="phi3", layers=[2, 1], size=5, depth=2, speculators="dflash", draft=60, own_head=True, shuffled=True),
    # speculators: a Markov head over some tokens; a narrower drafter.
    "speculators-dspark-gemma2": dict(
        verifier="gemma2", layers=[1, 2], size=6, depth=2, speculators="dspark", rank=4, draft=70, own_head=True,
        own_embedding=True, width=32, confidence=True),
}


def exact(values):
    """The nearest values that BF16 and F16 both represent."""
    values = values.to(torch.bfloat16).to(torch.float32)
    return torch.where(values.abs() < 2.0**-16, torch.zeros_like(values), values)


class Head:
    """Layers over a block and the text before it."""

    def __init__(self, spec, config, seed):
        generator = torch.Generator().manual_seed(seed)
        self.spec, self.target_width, self.vocabulary = spec, config["hidden_size"], config["vocab_size"]
        self.width = d = spec.get("width", self.target_width)
        self.heads, self.kv_heads, self.head_dim, self.ff = 4, 2, 16, 48
        self.draft = spec.get("draft", self.vocabulary)
        self.is_dspark = bool(spec.get("rank") or spec.get("dspark") or spec.get("speculators") == "dspark")
        self.first = 0 if self.is_dspark else 1
        self.mask = self.vocabulary - 2
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim

        def matrix(rows, columns, gain=1.0):
            return exact(gain * torch.randn(rows, columns, generator=generator) / math.sqrt(columns))

        def vector(length, mean=1.0, deviation=0.25):
            return exact(mean + deviation * torch.randn(length, generator=generator))

        w = {"fc.weight": matrix(d, len(spec["layers"]) * self.target_width), "hidden_norm.weight": vector(d),
             "norm.weight": vector(d)}
        for i in range(spec["depth"]):
            w.update({f"layers.{i}.{name}.weight": values for name, values in {
                "input_layernorm": vector(d),
                "self_attn.q_proj": matrix(q, d, 1.6),
                "self_attn.k_proj": matrix(kv, d, 1.6),
                "self_attn.v_proj": matrix(kv, d),
                "self_attn.o_proj": matrix(d, q),
                "self_attn.q_norm": vector(self.head_dim, 1.5),
                "self_attn.k_norm": vector(self.head_dim, 1.5),
                "post_attention_layernorm": vector(d),
                "mlp.gate_proj": matrix(self.ff, d),
                "mlp.up_proj": matrix(self.ff, d),
                "mlp.down_proj": matrix(d, self.ff),
            }.items()})
        if spec.get("own_embedding"):
            w["embed_tokens.weight"] = exact(0.5 * torch.randn(self.vocabulary, d, generator=generator))
        if spec.get("own_head"):
            w["lm_head.weight"] = matrix(self.draft, d, 2.0)
        rank = spec.get("rank")
        if rank:
            w["markov_head.markov_w1.weight"] = exact(torch.randn(self.vocabulary, rank, generator=generator))
            w["markov_head.markov_w2.weight"] = matrix(self.draft, rank)
        if spec.get("confidence"):
            w["confidence_head.proj.weight"] = matrix(1, d + (rank or 0))
            w["confidence_head.proj.bias"] = vector(1, 0.0)
        self.w = w
        order = torch.randperm(self.vocabulary, generator=generator)[: self.draft]
        self.tokens = order if spec.get("shuffled") else order.sort().values

    def rotation(self):
        """Angle per position of each pair of a head."""
        size = self.head_dim
        angles = [10000.0 ** (-2.0 * i / size) for i in range(size // 2)]
        scaling = self.spec.get("rope_scaling")
        if scaling is None:
            return torch.tensor(angles)
        original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]

        def scaled(angle):
            turns = original * angle / (2.0 * math.pi)
            share = min(max((turns - low) / (high - low), 0.0), 1.0)
            return share * angle + (1.0 - share) * angle / factor

        return torch.tensor([scaled(angle) for angle in angles])

    def normed(self, x, gain):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.w[gain]

    def rotated(self, x, positions):
        """Heads turned by halves."""
        angles = positions[:, None] * self.rotation()
        cos, sin = torch.cat([angles.cos()] * 2, -1)[:, None], torch.cat([angles.sin()] * 2, -1)[:, None]
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def block(self, table, lm_head, root, rows):
        """Last rows of a block and its logits, after a text of whose tokens the verifier's rows are given."""
        more = self.spec.get("more", {})
        tokens = torch.tensor([root] + [self.mask] * (self.spec["size"] - 1))
        x = table[tokens] * more.get("input_embedding_scale", 1.0)
        context = self.normed(rows @ self.w["fc.weight"].T, "hidden_norm.weight")
        places = torch.arange(len(rows) + len(tokens), dtype=torch.float32)
        own = places[len(rows):]
        for i in range(self.spec["depth"]):
            def product(name, y):
                return y @ self.w[f"layers.{i}.{name}.weight"].T

            def heads(name, count, y):
                return product(f"self_attn.{name}_proj", y).view(len(y), count, self.head_dim)

            y = self.normed(x, f"layers.{i}.input_layernorm.weight")
            both = torch.cat([context, y])
            q = self.rotated(self.normed(heads("q", self.heads, y), f"layers.{i}.self_attn.q_norm.weight"), own)
            k = self.normed(heads("k", self.kv_heads, both), f"layers.{i}.self_attn.k_norm.weight")
            k = self.rotated(k, places)
            v = heads("v", self.kv_heads, both)
            k, v = (z.repeat_interleave(self.heads // self.kv_heads, 1) for z in (k, v))
            scores = torch.einsum("ihe,jhe->hij", q, k) / math.sqrt(self.head_dim)
            attended = torch.einsum("hij,jhe->ihe", scores.softmax(-1), v).reshape(len(x), -1)
            x = x + product("self_attn.o_proj", attended)
            y = self.normed(x, f"layers.{i}.post_attention_layernorm.weight")
            gated = torch.nn.functional.silu(product("mlp.gate_proj", y)) * product("mlp.up_proj", y)
            x = x + product("mlp.down_proj", gated)
        logits = self.normed(x, "norm.weight") @ self.w.get("lm_head.weight", lm_head).T
        logits = logits * more.get("output_multiplier", 1.0)
        cap = more.get("final_logit_softcapping")
        return x, logits if cap is None else cap * torch.tanh(logits / cap)

    def best(self, logits):
        best = logits.topk(CANDIDATES)
        return dict(candidates=self.tokens[best.indices].tolist(), logits=short(best.values.tolist()))

    def conditional(self, logits, before):
        """A row's logits where the token before is known."""
        if not self.spec.get("rank"):
            return logits
        first, second = self.w["markov_head.markov_w1.weight"], self.w["markov_head.markov_w2.weight"]
        return logits + second @ first[before]

    def config(self, verifier):
        """`config.json` in the drafter's layout."""
        spec = self.spec
        sizes = dict(
            model_type="qwen3", hidden_size=self.width, intermediate_size=self.ff, num_hidden_layers=spec["depth"],
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, head_dim=self.head_dim,
            vocab_size=self.vocabulary, max_position_embeddings=16, rms_norm_eps=EPS, rope_theta=10000.0,
            hidden_act="silu", rope_scaling=spec.get("rope_scaling"), attention_bias=False, tie_word_embeddings=False,
            layer_types=["full_attention"] * spec["depth"], sliding_window=None, use_sliding_window=False)
        facts = dict(block_size=spec["size"], mask_token_id=self.mask)
        if spec.get("rank") is not None or spec.get("dspark"):
            facts.update(markov_rank=spec.get("rank", 0), markov_head_type="vanilla",
                         enable_confidence_head=bool(spec.get("confidence")), confidence_head_with_markov=True)
        if self.width != self.target_width:
            facts["target_hidden_size"] = self.target_width
        if spec.get("speculators"):
            kind = spec["speculators"]
            return dict(
                architectures=["DFlashSpeculator" if kind == "dflash" else "DSparkSpeculator"],
                speculators_model_type=kind, draft_vocab_size=self.draft, aux_hidden_state_layer_ids=spec["layers"],
                sample_from_anchor=self.first == 0, transformer_layer_config=sizes,
                speculators_config=dict(algorithm=kind, verifier=dict(name_or_path=verifier)), **facts)
        # Numbers of layers from 0, whose outputs are read; -1 is the embedding.
        facts["target_layer_ids"] = [layer - 1 for layer in spec["layers"]]
        name = "Qwen3DSparkModel" if self.is_dspark else "DFlashDraftModel"
        own = {key: facts.pop(key) for key in spec.get("own", [])}
        inner = dict(dflash_config=dict(own, **spec.get("more", {}))) if own else {}
        return dict(architectures=[name], **sizes, **facts, **inner)

    def tensors(self):
        """The file's tensors."""
        dtype = self.spec.get("dtype", torch.bfloat16)
        named = {name: values.to(dtype).contiguous() for name, values in self.w.items()}
        if self.draft != self.vocabulary:
            named["d2t"] = self.tokens - torch.arange(self.draft)
            named["t2d"] = torch.zeros(self.vocabulary, dtype=torch.bool)
            named["t2d"][self.tokens] = True
        return named


def streams(model, ids):
    """The residual stream `[layers + 1, tokens, D]` before every layer and after the last."""
    found, layers = {}, model.model.layers

    def before(number):
        return lambda _, args, kwargs: found.__setitem__(number, args[0] if args else kwargs["hidden_states"])

    def after(_, __, output):
        found[len(layers)] = output[0] if isinstance(output, tuple) else output

    hooks = [layer.register_forward_pre_hook(before(i), with_kwargs=True) for i, layer in enumerate(layers)]
    hooks.append(layers[-1].register_forward_hook(after))
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.stack([found[i].reshape(len(ids), -1).float() for i in range(len(layers) + 1)])


def short(values):
    return [float(f"{value:.7g}") for value in values]


def make(name, seed):
    spec = HEADS[name]
    folder = HERE.parent / "families" / spec["verifier"]
    config = json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, config["vocab_size"], (TEXT_TOKENS,), generator=generator).tolist()
    head = Head(spec, config, seed)
    rows = torch.cat(list(streams(model, ids)[torch.tensor(spec["layers"])]), -1)
    # As a module's weight, before what the model itself multiplies it by.
    table = head.w.get("embed_tokens.weight", model.get_input_embeddings().weight.detach().float())
    lm_head = model.get_output_embeddings().weight.detach().float()
    hidden, logits = head.block(table, lm_head, ids[-1], rows[:-1])
    blocks, followed = [], [ids[-1]]
    for row in range(head.first, spec["size"]):
        marginal = head.best(logits[row])
        after = [dict(token=token, **head.best(head.conditional(logits[row], token))) for token in followed]
        blocks.append(dict(row=row, hidden=short(hidden[row].tolist()), marginal=marginal, after=after))
        followed = after[0]["candidates"][:FOLLOWED]
    margins = [a - b for row in blocks for node in row["after"] for a, b in zip(node["logits"], node["logits"][1:])]
    print(f"{name}: {sum(m > 0.01 for m in margins)} of {len(margins)} margins over 0.01")
    out = HERE / name
    out.mkdir(exist_ok=True)
    save_file(head.tensors(), out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(head.config(spec["verifier"]), indent=1) + "\n")
    expected = dict(verifier=spec["verifier"], layers=spec["layers"], token_ids=ids,
                    rows=[dict(place=place, row=short(rows[place].tolist())) for place in SHOWN_PLACES], block=blocks)
    (out / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    for number, name in enumerate(HEADS):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(name, 200 + number)
