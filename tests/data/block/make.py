#!/usr/bin/env python3
"""Makes tiny random block drafters for the tiny models of `../families`, each in a layout that is published, and what
PyTorch computes with them in float32 from the definitions of DFlash (https://arxiv.org/abs/2602.06036) and of the
Markov head of DSpark (https://arxiv.org/abs/2607.05147, equations 4 and 5).

    python3 make.py [NAME ...]

Needs torch, transformers and safetensors (versions: README.md). Writes NAME/ beside this script; without names, all.
"""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tiny_heads import CANDIDATES, EPS, TEXT_TOKENS, TinyHead, exact, make_all, short

HERE = Path(__file__).resolve().parent
# Tokens whose conditional candidates are written down for every row: the best of the row before.
FOLLOWED = 2
# Places of the text whose rows of the verifier are written down.
SHOWN_PLACES = (0, 7, TEXT_TOKENS - 2)

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


class Head(TinyHead):
    """Layers over a block and the text before it."""

    def __init__(self, spec, config, seed):
        super().__init__(spec, config, seed, 4, 2)
        matrix, vector, d = self.matrix, self.vector, self.width
        self.is_dspark = bool(spec.get("rank") or spec.get("dspark") or spec.get("speculators") == "dspark")
        self.first = 0 if self.is_dspark else 1
        self.mask = self.vocabulary - 2
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim

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
            w["embed_tokens.weight"] = exact(0.5 * self.normal(self.vocabulary, d))
        if spec.get("own_head"):
            w["lm_head.weight"] = matrix(self.draft, d, 2.0)
        rank = spec.get("rank")
        if rank:
            w["markov_head.markov_w1.weight"] = exact(self.normal(self.vocabulary, rank))
            w["markov_head.markov_w2.weight"] = matrix(self.draft, rank)
        if spec.get("confidence"):
            w["confidence_head.proj.weight"] = matrix(1, d + (rank or 0))
            w["confidence_head.proj.bias"] = vector(1, 0.0)
        self.w = w
        self.choose_tokens()

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
            named.update(self.mapping())
        return named

    def expected(self, model, table, ids, rows):
        """A block's rows with their candidates, alone and after the likeliest tokens; all logits in their order."""
        lm_head = model.get_output_embeddings().weight.detach().float()
        hidden, logits = self.block(table, lm_head, ids[-1], rows[:-1])
        places, followed = [], [ids[-1]]
        for row in range(self.first, self.spec["size"]):
            after = [dict(token=token, **self.best(self.conditional(logits[row], token))) for token in followed]
            places.append(dict(row=row, hidden=short(hidden[row].tolist()), marginal=self.best(logits[row]), after=after))
            followed = after[0]["candidates"][:FOLLOWED]
        return dict(block=places), [node["logits"] for place in places for node in place["after"]]


if __name__ == "__main__":
    make_all(Head, HERE, HEADS, 200, SHOWN_PLACES)
