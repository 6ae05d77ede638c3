#!/usr/bin/env python3
"""Makes tiny random EAGLE-3 heads for the tiny models of `../families`, each in a layout that is published, and what
PyTorch computes with them in float32 from the definitions of the paper (https://arxiv.org/abs/2503.01840).

    python3 make.py [NAME ...]

Needs torch, transformers, safetensors and gguf (versions: README.md). Writes NAME/ beside this script; without names, all.
"""

import math
import sys
from pathlib import Path

import gguf
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tiny_heads import CANDIDATES, EPS, TEXT_TOKENS, TinyHead, exact, make_all, short

HERE = Path(__file__).resolve().parent
DEPTH = 6
# Places of the text whose rows of the verifier are written down.
SHOWN_PLACES = (0, 7, TEXT_TOKENS - 1)

# `layers`: for each number, the verifier's residual stream after so many of its layers.
HEADS = {
    # SafeAILab: `midlayer`, default layers (2, n / 2, n - 3), a reduced vocabulary.
    "safeailab-gemma3": dict(verifier="gemma3", layers=[2, 3, 3], draft=60, gguf=True),
    # SpecForge: layers by their own numbers in `eagle_config`; a scaled rotation.
    "specforge-llama": dict(
        verifier="llama", layers=[1, 2, 1], draft=96, dtype=torch.float16, gguf=True,
        rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16),
        top=dict(eagle_config=dict(eagle_aux_hidden_state_layer_ids=[0, 1, 0], use_aux_hidden_state=True))),
    # SpecForge: norms of each row, the whole vocabulary, default layers of a model that has few.
    "specforge-mistral": dict(verifier="mistral", layers=[2, 1, 0], fc_norm=True),
    # AngelSlim: an embedding of its own; biases.
    "angelslim-qwen2": dict(
        verifier="qwen2", layers=[0, 1, 2], draft=77, biased=True, own_embedding=True, dtype=torch.float32,
        top=dict(eagle_config=None, eagle_aux_hidden_state_layer_ids=[0, 1, 2])),
    # speculators: `layers.0`, norms of heads, a residual stream that begins with the normalised row.
    "speculators-qwen3": dict(
        verifier="qwen3", layers=[1, 0, 1], draft=50, speculators=True, qk_norm=True, norm_before_residual=True,
        top=dict(eagle_aux_hidden_state_layer_ids=[1, 0, 1])),
    # speculators: two rows, a norm of both together, rows handed down after the last norm.
    "speculators-phi3": dict(
        verifier="phi3", layers=[1, 2], draft=40, speculators=True, norm_before_fc=True, norm_output=True,
        top=dict(eagle_aux_hidden_state_layer_ids=[1, 2])),
    # A narrower head with its own embedding, a biased joining, and a mapping out of order.
    "narrow-gemma2": dict(
        verifier="gemma2", layers=[0, 1, 2], draft=64, width=32, own_embedding=True, fc_bias=True, shuffled=True,
        top=dict(eagle_aux_hidden_state_layer_ids=[0, 1, 2])),
}


class Head(TinyHead):
    """One layer over a token and a joined row; the head over its reduced vocabulary."""

    def __init__(self, spec, config, seed):
        super().__init__(spec, config, seed, 2, 1)
        matrix, vector, d = self.matrix, self.vector, self.width
        count = len(spec["layers"])
        q, kv, joined = self.heads * self.head_dim, self.kv_heads * self.head_dim, count * self.target_width

        w = {
            "fc.weight": matrix(d, joined),
            "hidden_norm.weight": vector(d),
            "input_layernorm.weight": vector(d),
            "self_attn.q_proj.weight": matrix(q, 2 * d, 1.6),
            "self_attn.k_proj.weight": matrix(kv, 2 * d, 1.6),
            "self_attn.v_proj.weight": matrix(kv, 2 * d),
            "self_attn.o_proj.weight": matrix(d, q),
            "post_attention_layernorm.weight": vector(d),
            "mlp.gate_proj.weight": matrix(self.ff, d),
            "mlp.up_proj.weight": matrix(self.ff, d),
            "mlp.down_proj.weight": matrix(d, self.ff),
            "norm.weight": vector(d),
            "lm_head.weight": matrix(self.draft, d, 2.0),
        }
        if spec.get("biased"):
            for name, rows in (("q", q), ("k", kv), ("v", kv)):
                w[f"self_attn.{name}_proj.bias"] = vector(rows, 0.0, 0.5)
        if spec.get("qk_norm"):
            w["self_attn.q_norm.weight"] = vector(self.head_dim, 1.5)
            w["self_attn.k_norm.weight"] = vector(self.head_dim, 1.5)
        if spec.get("fc_bias"):
            w["fc.bias"] = vector(d, 0.0, 0.5)
        if spec.get("norm_before_fc"):
            w["input_norm.weight"] = vector(joined)
        if spec.get("fc_norm"):
            for i in range(count):
                w[f"fc_norm.{i}.weight"] = vector(self.target_width)
        if spec.get("own_embedding"):
            w["embed_tokens.weight"] = exact(0.5 * self.normal(self.vocabulary, d))
        self.w = w
        self.choose_tokens()

    def join(self, rows):
        """Rows of all layers, one after the other, as one of the head's own width."""
        if self.spec.get("norm_before_fc"):
            rows = self.normed(rows, "input_norm.weight")
        if self.spec.get("fc_norm"):
            parts = rows.split(self.target_width, -1)
            parts = [self.normed(part, f"fc_norm.{i}.weight") for i, part in enumerate(parts)]
            rows = torch.cat(parts, -1)
        return rows @ self.w["fc.weight"].T + self.w.get("fc.bias", 0.0)

    def rotated(self, x, positions):
        """Heads turned by halves."""
        angles = positions[:, None] * self.rotation()
        cos, sin = torch.cat([angles.cos()] * 2, -1)[:, None], torch.cat([angles.sin()] * 2, -1)[:, None]
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def layer(self, embedded, given, positions, seen):
        """Logits and own rows of the head's rows; row `i` attends to those that `seen[i]` marks."""
        n, hidden = len(given), self.normed(given, "hidden_norm.weight")
        both = torch.cat([self.normed(embedded, "input_layernorm.weight"), hidden], -1)

        def heads(name, count):
            x = both @ self.w[f"self_attn.{name}_proj.weight"].T + self.w.get(f"self_attn.{name}_proj.bias", 0.0)
            x = x.view(n, count, self.head_dim)
            gain = f"self_attn.{name}_norm.weight"
            return self.normed(x, gain) if gain in self.w else x

        q = self.rotated(heads("q", self.heads), positions)
        k = self.rotated(heads("k", self.kv_heads), positions).repeat_interleave(self.heads // self.kv_heads, 1)
        v = heads("v", self.kv_heads).repeat_interleave(self.heads // self.kv_heads, 1)
        scores = torch.einsum("ihe,jhe->hij", q, k) / math.sqrt(self.head_dim)
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        attended = torch.einsum("hij,jhe->ihe", weights, v).reshape(n, -1)
        x = hidden if self.spec.get("norm_before_residual") else given
        x = x + attended @ self.w["self_attn.o_proj.weight"].T
        y = self.normed(x, "post_attention_layernorm.weight")
        gate, up = y @ self.w["mlp.gate_proj.weight"].T, y @ self.w["mlp.up_proj.weight"].T
        x = x + (torch.nn.functional.silu(gate) * up) @ self.w["mlp.down_proj.weight"].T
        normed = self.normed(x, "norm.weight")
        return normed @ self.w["lm_head.weight"].T, normed if self.spec.get("norm_output") else x

    def draft_tree(self, table, ids, rows):
        """The two best children of the best node of each depth, with the candidates and the own row of every node.

        Row `i` of the head is for token `i + 1`, with the verifier's rows at place `i`.
        """
        given, tokens = self.join(rows[:-1]), list(ids[1:])
        positions, seen = list(range(len(tokens))), torch.ones(len(tokens), len(tokens)).tril().bool()
        nodes = [dict(token=ids[-1], parent=None, row=len(tokens) - 1)]
        last = 0
        for depth in range(DEPTH + 1):
            embedded = table[torch.tensor(tokens)]
            logits, own = self.layer(embedded, given, torch.tensor(positions, dtype=torch.float32), seen)
            for node in nodes:
                best = logits[node["row"]].topk(CANDIDATES)
                node["candidates"] = self.tokens[best.indices].tolist()
                node["logits"] = best.values.tolist()
                node["hidden"] = own[node["row"]].tolist()
            if depth == DEPTH:
                return nodes
            parent = nodes[last]
            for token in parent["candidates"][:2]:
                nodes.append(dict(token=token, parent=last, row=len(tokens)))
                given = torch.cat([given, own[parent["row"]][None]])
                tokens.append(token)
                positions.append(positions[parent["row"]] + 1)
                count = len(tokens)
                wider = torch.zeros(count, count).bool()
                wider[:-1, :-1] = seen
                wider[-1, :-1] = seen[parent["row"]]
                wider[-1, -1] = True
                seen = wider
            last = len(nodes) - 2

    def config(self, verifier):
        """`config.json` in the head's layout."""
        spec = self.spec
        sizes = dict(
            hidden_size=self.width, intermediate_size=self.ff, num_hidden_layers=1, num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads, head_dim=self.head_dim, vocab_size=self.vocabulary,
            max_position_embeddings=16, rms_norm_eps=EPS, rope_theta=10000.0, hidden_act="silu",
            rope_scaling=spec.get("rope_scaling"), attention_bias=bool(spec.get("biased")), mlp_bias=False,
            tie_word_embeddings=False)
        flags = {k: True for k in ("fc_norm", "norm_before_fc", "norm_before_residual", "norm_output") if spec.get(k)}
        if self.width != self.target_width:
            flags["target_hidden_size"] = self.target_width
        flags.update(spec.get("top", {}))
        if spec.get("speculators"):
            kind = "qwen3" if spec.get("qk_norm") else "llama"
            return dict(
                architectures=["Eagle3Speculator"], speculators_model_type="eagle3", draft_vocab_size=self.draft,
                transformer_layer_config=dict(model_type=kind, **sizes),
                speculators_config=dict(algorithm="eagle3", verifier=dict(name_or_path=verifier)), **flags)
        return dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", draft_vocab_size=self.draft, **sizes,
                    **flags)

    def write_gguf(self, path):
        """The head as llama.cpp's converter writes it: rows of queries and keys for rotation of adjacent pairs, tokens as
        ids."""
        writer = gguf.GGUFWriter(path, "eagle3")
        writer.add_uint32("eagle3.block_count", 1)
        writer.add_uint32("eagle3.embedding_length", self.width)
        writer.add_uint32("eagle3.feed_forward_length", self.ff)
        writer.add_uint32("eagle3.attention.head_count", self.heads)
        writer.add_uint32("eagle3.attention.head_count_kv", self.kv_heads)
        writer.add_uint32("eagle3.attention.key_length", self.head_dim)
        writer.add_uint32("eagle3.attention.value_length", self.head_dim)
        writer.add_uint32("eagle3.rope.dimension_count", self.head_dim)
        writer.add_uint32("eagle3.context_length", 16)
        writer.add_uint32("eagle3.vocab_size", self.vocabulary)
        writer.add_float32("eagle3.attention.layer_norm_rms_epsilon", EPS)
        writer.add_float32("eagle3.rope.freq_base", 10000.0)
        writer.add_array("eagle3.extract_layers", self.spec["layers"])
        writer.add_uint32("eagle3.target_hidden_size", self.target_width)
        writer.add_bool("eagle3.norm_before_residual", False)
        writer.add_string("tokenizer.ggml.model", "no_vocab")
        names = {
            "fc.weight": "fc.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
            "input_layernorm.weight": "blk.0.attn_norm.weight", "hidden_norm.weight": "blk.0.attn_norm_2.weight",
            "self_attn.q_proj.weight": "blk.0.attn_q.weight", "self_attn.k_proj.weight": "blk.0.attn_k.weight",
            "self_attn.v_proj.weight": "blk.0.attn_v.weight", "self_attn.o_proj.weight": "blk.0.attn_output.weight",
            "post_attention_layernorm.weight": "blk.0.ffn_norm.weight", "mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
            "mlp.up_proj.weight": "blk.0.ffn_up.weight", "mlp.down_proj.weight": "blk.0.ffn_down.weight",
        }
        for name, values in self.w.items():
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                columns = values.shape[1]
                values = values.view(-1, 2, self.head_dim // 2, columns).transpose(1, 2).reshape(-1, columns)
            kind = torch.float16 if values.dim() == 2 else torch.float32
            writer.add_tensor(names[name], values.to(kind).contiguous().numpy())
        if self.spec.get("rope_scaling"):
            usual = torch.tensor([10000.0 ** (-2.0 * i / self.head_dim) for i in range(self.head_dim // 2)])
            writer.add_tensor("rope_freqs.weight", (usual / self.rotation()).float().numpy())
        writer.add_tensor("d2t", self.tokens.numpy())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def tensors(self):
        """The file's tensors in the head's layout."""
        prefix = "layers.0." if self.spec.get("speculators") else "midlayer."
        outer = ("fc.", "fc_norm.", "input_norm.", "norm.", "lm_head.", "embed_tokens.")
        dtype = self.spec.get("dtype", torch.bfloat16)
        named = {(k if k.startswith(outer) else prefix + k): v.to(dtype).contiguous() for k, v in self.w.items()}
        return dict(named, **self.mapping())

    def expected(self, model, table, ids, rows):
        """A tree's nodes with their candidates; all logits in their order."""
        nodes = self.draft_tree(table, ids, rows)
        logits = [node["logits"] for node in nodes]
        for node in nodes:
            del node["row"]
            node["logits"], node["hidden"] = short(node["logits"]), short(node["hidden"])
        return dict(nodes=nodes), logits


if __name__ == "__main__":
    make_all(Head, HERE, HEADS, 100, SHOWN_PLACES)
