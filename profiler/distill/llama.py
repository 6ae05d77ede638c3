"""The llama decoder in plain PyTorch: its parts, and the verifier, a llama with its family's traits, that decodes many sequences at once.

Letters: B sequences, T positions, S slots of the cache, D width, H heads, K heads of keys, E of a head, V vocabulary.
"""

import torch
from torch.nn import functional

from .checkpoint import Checkpoint


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """x [..., D] over its root mean square, times weight [D]; float32 inside."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.float()


def rotation(positions: torch.Tensor, frequencies: torch.Tensor, gain: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [..., E], times `gain`, of positions [...] by frequencies [E / 2]; halves alike as Hugging Face has them."""
    angles = positions.double().unsqueeze(-1) * frequencies.to(positions.device)
    angles = torch.cat((angles, angles), -1)
    return gain * angles.cos().float(), gain * angles.sin().float()


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """x [..., E] rotated, the first half of its last axis with the second."""
    first, second = x.float().chunk(2, -1)
    return x * cosines + torch.cat((-second, first), -1) * sines


SPARE_CANDIDATES = 16
"""Candidates beyond those asked for, whose order may still change when they are compared exactly."""

SLOTS_AT_ONCE = 64
"""Slots that a cache grows by."""


class Cache:
    """Keys and values of B sequences, [B * K, S, E] a layer; the slot of a row is its position. Slots come as they are needed."""

    def __init__(self, layers: int, sequences: int, kv_heads: int, head_width: int, like: torch.Tensor):
        self.kv_heads = kv_heads
        empty = torch.zeros((sequences * kv_heads, 0, head_width), dtype=like.dtype, device=like.device)
        self.keys, self.values = [empty] * layers, [empty] * layers

    @property
    def slots(self) -> int:
        """S"""
        return self.keys[0].shape[1]

    def hold(self, slots: int) -> None:
        """Makes room for so many slots, and for some more so that copies are rare."""
        missing = slots - self.slots
        if missing > 0:
            missing += -slots % SLOTS_AT_ONCE
            for part in (self.keys, self.values):
                for number, layer in enumerate(part):
                    part[number] = functional.pad(layer, (0, 0, 0, missing))

    def keep(self, sequences: torch.Tensor) -> None:
        """Drops all sequences but those of the given places, layer by layer."""
        heads = (sequences[:, None] * self.kv_heads + torch.arange(self.kv_heads, device=sequences.device)).flatten()
        for part in (self.keys, self.values):
            for number, layer in enumerate(part):
                part[number] = layer.index_select(0, heads)


class Verifier:
    """The model whose text is learned: linears in `dtype`, the residual stream and norms in float32."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: str = "cpu"):
        self.shape, self.traits = checkpoint.shape, checkpoint.traits
        self.dtype = dtype
        self.device = device
        self.embedding = checkpoint.embedding.to(device)
        self.head_exact = checkpoint.head.to(device)
        self.head = self.head_exact.to(dtype)
        self.norm = checkpoint.tensors["model.norm.weight"].to(device)
        self.layers = []
        for number in range(self.shape.layers):
            def weight(name: str, number=number) -> torch.Tensor:
                return checkpoint.tensors[f"model.layers.{number}.{name}.weight"].to(device)

            def optional(name: str, number=number) -> torch.Tensor | None:
                found = checkpoint.tensors.get(f"model.layers.{number}.self_attn.{name}")
                return None if found is None else found.to(device)

            biases = [optional(f"{name}_proj.bias") for name in "qkv"]
            self.layers.append({
                "attention_norm": weight("input_layernorm"),
                "qkv": torch.cat([weight(f"self_attn.{name}_proj") for name in "qkv"]).to(dtype),
                "qkv_bias": None if biases[0] is None else torch.cat(biases).to(dtype),
                "query_norm": optional("q_norm.weight"),
                "key_norm": optional("k_norm.weight"),
                "out": weight("self_attn.o_proj").to(dtype),
                "mlp_norm": weight("post_attention_layernorm"),
                "gate_up": torch.cat([weight("mlp.gate_proj"), weight("mlp.up_proj")]).to(dtype),
                "down": weight("mlp.down_proj").to(dtype),
            })

    def cache(self, sequences: int) -> Cache:
        """An empty cache."""
        shape = self.shape
        return Cache(shape.layers, sequences, shape.kv_heads, shape.head_width, self.head)

    @torch.inference_mode()
    def prefill(self, ids: torch.Tensor, cache: Cache, first: int, layers: int | None = None) -> torch.Tensor:
        """Hidden rows [B, T, D] of ids [B, T] at positions 0 to T - 1; writes sequences `first` to `first + B` of the cache.

        With `layers` only so many layers are run, and the rows are what the next one reads. Rows behind the end of a shorter prompt are made too. They mean nothing, and no row before them sees them.
        """
        sequences, length = ids.shape
        positions = torch.arange(length, device=ids.device)
        cosines, sines = rotation(positions, self.traits.frequencies, self.traits.gain)
        seen = self._seen(positions, positions) if self.traits.window is not None else None
        cache.hold(length)
        heads = slice(first * self.shape.kv_heads, (first + sequences) * self.shape.kv_heads)

        def attend(number, queries, keys, values):
            queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
            cache.keys[number][heads, :length] = keys.flatten(0, 1)
            cache.values[number][heads, :length] = values.flatten(0, 1)
            groups = self.shape.heads // self.shape.kv_heads
            keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
            mixed = functional.scaled_dot_product_attention(queries, keys, values, seen, is_causal=seen is None)
            return mixed.transpose(1, 2)

        return self._forward(ids, cosines[:, None], sines[:, None], attend, layers)

    @torch.inference_mode()
    def decode(self, ids: torch.Tensor, positions: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Hidden rows [B, D] of one further token a sequence: ids [B] at positions [B], over what the cache holds before them."""
        shape = self.shape
        cosines, sines = rotation(positions[:, None], self.traits.frequencies, self.traits.gain)
        cache.hold(int(positions.max()) + 1)
        places = positions.repeat_interleave(shape.kv_heads)
        heads = torch.arange(len(places), device=ids.device)
        unseen = ~self._seen(places, torch.arange(cache.slots, device=ids.device))[:, None]

        def attend(number, queries, keys, values):
            cache.keys[number][heads, places] = keys.flatten(0, 2)
            cache.values[number][heads, places] = values.flatten(0, 2)
            # The heads that share keys become the rows of one product.
            queries = queries.reshape(len(heads), shape.heads // shape.kv_heads, shape.head_width)
            scores = torch.bmm(queries, cache.keys[number].transpose(1, 2)).float() * shape.head_width**-0.5
            weights = scores.masked_fill_(unseen, float("-inf")).softmax(-1).to(self.dtype)
            return torch.bmm(weights, cache.values[number]).reshape(len(ids), 1, shape.heads, shape.head_width)

        return self._forward(ids[:, None], cosines[:, :, None], sines[:, :, None], attend)[:, 0]

    def _seen(self, rows: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Whether rows at positions [R] see slots [S], [R, S]."""
        seen = slots <= rows[:, None]
        return seen if self.traits.window is None else seen & (slots > rows[:, None] - self.traits.window)

    def _forward(self, ids, cosines, sines, attend, layers=None) -> torch.Tensor:
        shape = self.shape
        widths = [shape.heads * shape.head_width, shape.kv_heads * shape.head_width, shape.kv_heads * shape.head_width]
        x = self.embedding[ids]
        for number, layer in enumerate(self.layers[:layers]):
            normed = rms_norm(x, layer["attention_norm"], shape.epsilon).to(self.dtype)
            parts = functional.linear(normed, layer["qkv"], layer["qkv_bias"]).split(widths, -1)
            queries, keys, values = (part.unflatten(-1, (-1, shape.head_width)) for part in parts)
            if layer["query_norm"] is not None:
                queries = rms_norm(queries, layer["query_norm"], shape.epsilon)
                keys = rms_norm(keys, layer["key_norm"], shape.epsilon)
            if number not in self.traits.unrotated:
                queries, keys = rotate(queries, cosines, sines), rotate(keys, cosines, sines)
            mixed = attend(number, queries.to(self.dtype), keys.to(self.dtype), values)
            x = x + functional.linear(mixed.flatten(-2), layer["out"])
            normed = rms_norm(x, layer["mlp_norm"], shape.epsilon).to(self.dtype)
            gate, up = functional.linear(normed, layer["gate_up"]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        return x

    @torch.inference_mode()
    def best(self, hidden: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The `count` most probable next tokens of hidden rows [R, D] and their probabilities, both [R, count], best first.

        Candidates come from a head in `dtype`, their own logits from one in float32: the order of near ties is float32's.
        """
        normed = rms_norm(hidden, self.norm, self.shape.epsilon)
        logits = functional.linear(normed.to(self.dtype), self.head)
        rough, ids = logits.topk(min(count + SPARE_CANDIDATES, logits.shape[-1]), -1)
        total = rough[:, :1].float() - logits.log_softmax(-1, dtype=torch.float32).gather(-1, ids[:, :1])
        exact = torch.bmm(self.head_exact[ids], normed.unsqueeze(-1)).squeeze(-1)
        # The sum over all tokens, with the candidates' rough terms replaced by their exact ones.
        rest = 1 - (rough.float() - total).exp().sum(-1, keepdim=True)
        total = torch.logaddexp(exact.logsumexp(-1, keepdim=True), total + rest.clamp_min(1e-9).log())
        logs, order = (exact - total).topk(min(count, ids.shape[-1]), -1)
        return ids.gather(-1, order), logs.exp()

    @torch.inference_mode()
    def score(self, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of every token of a text but the first: its negative log-likelihood in nats, and the most probable id there; both [n - 1]."""
        row = torch.tensor([ids], device=self.device)
        hidden = self.prefill(row, self.cache(1), 0)[0, :-1]
        normed = rms_norm(hidden, self.norm, self.shape.epsilon)
        logits = normed @ self.head_exact.T
        logs = logits.log_softmax(-1)
        return -logs.gather(-1, row[0, 1:, None])[:, 0], logits.argmax(-1)
