"""The llama decoder in plain PyTorch: its parts, and the verifier, a llama with its family's traits, that decodes many sequences at once.

Letters: B sequences, T positions, S slots of the cache, D width, H heads, K heads of keys, E of a head, L taps, V vocabulary.
"""

import torch
from torch.nn import functional

from .checkpoint import Checkpoint
from .family import Rule, Shape
from .rotation import rotate


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """x [..., D] over its root mean square, times weight [D]; float32 inside."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.float()


SPARE_CANDIDATES = 16
"""Candidates beyond those asked for, whose order may still change when they are compared exactly."""

SLOTS_AT_ONCE = 64
"""Slots that a cache grows by."""


class Cache:
    """What B sequences keep, by layer; the slot of a row is its position. Slots come as they are needed. Keys and values are [B * K, S, E];
    of a convolution `keys` is what goes into it, [B, S, D]. `context` is how many positions rotations are chosen for."""

    def __init__(self, shape: Shape, rules: tuple[Rule, ...], sequences: int, context: int, like: torch.Tensor):
        self.context = context
        self.parts = [shape.kv_heads if rule.taps is None else 1 for rule in rules]
        widths = [shape.head_width if rule.taps is None else shape.width for rule in rules]
        self.keys = [like.new_zeros((sequences * parts, 0, width)) for parts, width in zip(self.parts, widths, strict=True)]
        self.values = list(self.keys)

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
        for part in (self.keys, self.values):
            for number, layer in enumerate(part):
                part[number] = layer.index_select(0, self.places(number, sequences))

    def places(self, number: int, sequences: torch.Tensor) -> torch.Tensor:
        """Where a layer keeps what is of these sequences."""
        parts = self.parts[number]
        return (sequences[:, None] * parts + torch.arange(parts, device=sequences.device)).flatten()


def capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """x within the bound, if there is one."""
    return x if cap is None else cap * torch.tanh(x / cap)


class Verifier:
    """The model whose text is learned: linears in `dtype`, the residual stream and norms in float32."""

    def __init__(self, checkpoint: Checkpoint, dtype: torch.dtype, device: str = "cpu", inner: tuple[int, ...] = ()):
        """`inner` are numbers of layers: rows of a whole forward are followed by those after so many, [..., D + D * len(inner)]."""
        self.shape, self.traits, self.inner = checkpoint.shape, checkpoint.traits, inner
        self.dtype = dtype
        self.device = device
        self.embedding = checkpoint.embedding.to(device)
        self.head_exact = checkpoint.head.to(device)
        self.head = self.head_exact.to(dtype)
        self.norm = checkpoint.tensors["model.norm.weight"].to(device)
        self.layers = []
        for number, rule in enumerate(self.traits.layers):
            def found(name: str, number=number) -> torch.Tensor | None:
                tensor = checkpoint.tensors.get(f"model.layers.{number}.{name}")
                return None if tensor is None else tensor.to(device)

            def joined(*names: str) -> torch.Tensor | None:
                parts = [found(name) for name in names]
                return None if parts[0] is None else torch.cat(parts).to(dtype)

            self.layers.append({
                "attention_norm": found("input_layernorm.weight"),
                "in": joined(*(f"self_attn.{name}_proj.weight" for name in "qkv")) if rule.taps is None else joined("conv.in_proj.weight"),
                "in_bias": joined(*(f"self_attn.{name}_proj.bias" for name in "qkv")),
                "query_norm": found("self_attn.q_norm.weight"),
                "key_norm": found("self_attn.k_norm.weight"),
                "taps": joined("conv.conv.weight"),
                "out": joined("self_attn.o_proj.weight" if rule.taps is None else "conv.out_proj.weight"),
                "attention_output_norm": found("attention_output_norm.weight"),
                "mlp_norm": found("post_attention_layernorm.weight"),
                "gate_up": joined("mlp.gate_proj.weight", "mlp.up_proj.weight"),
                "down": joined("mlp.down_proj.weight"),
                "mlp_output_norm": found("mlp_output_norm.weight"),
            })

    def cache(self, sequences: int, context: int = 0) -> Cache:
        """An empty cache for texts of at most `context` tokens; without it for those that rotations were first made for."""
        return Cache(self.shape, self.traits.layers, sequences, context, self.head)

    @torch.inference_mode()
    def prefill(self, ids: torch.Tensor, cache: Cache, first: int, layers: int | None = None) -> torch.Tensor:
        """Rows [B, T, C] of ids [B, T] at positions 0 to T - 1; writes sequences `first` to `first + B` of the cache.

        C is D, or more with inner rows. With `layers` only so many layers are run, and the rows are what the next one reads. Rows past the end of a shorter prompt are made too. They mean nothing, and no row before them sees them.
        """
        sequences, length = ids.shape
        positions = torch.arange(length, device=ids.device)
        traits = self.traits
        # A causal mask without a window is the kernel's own.
        seen = {window: self._seen(positions, positions, window) if window or traits.score_cap else None for window in self._windows()}
        cache.hold(length)

        def attend(number, queries, keys, values):
            heads = slice(first * self.shape.kv_heads, (first + sequences) * self.shape.kv_heads)
            queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
            cache.keys[number][heads, :length] = keys.flatten(0, 1)
            cache.values[number][heads, :length] = values.flatten(0, 1)
            groups = self.shape.heads // self.shape.kv_heads
            keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
            mask = seen[traits.layers[number].window]
            if traits.score_cap is not None:
                return (self._weights(queries @ keys.transpose(2, 3), ~mask) @ values).transpose(1, 2)
            mixed = functional.scaled_dot_product_attention(queries, keys, values, mask, is_causal=mask is None, scale=traits.score_scale)
            return mixed.transpose(1, 2)

        def recall(number, rows, taps):
            cache.keys[number][first : first + sequences, :length] = rows
            return functional.pad(rows, (0, 0, taps - 1, 0)).unfold(1, taps, 1)

        return self._forward(ids, positions[None], cache, attend, recall, layers)

    @torch.inference_mode()
    def decode(self, ids: torch.Tensor, positions: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Rows [B, C] of one further token a sequence: ids [B] at positions [B], over what the cache holds before them."""
        shape = self.shape
        cache.hold(int(positions.max()) + 1)
        places = positions.repeat_interleave(shape.kv_heads)
        heads = torch.arange(len(places), device=ids.device)
        slots = torch.arange(cache.slots, device=ids.device)
        unseen = {window: ~self._seen(places, slots, window)[:, None] for window in self._windows()}

        def attend(number, queries, keys, values):
            cache.keys[number][heads, places] = keys.flatten(0, 2)
            cache.values[number][heads, places] = values.flatten(0, 2)
            # The heads that share keys become the rows of one product.
            queries = queries.reshape(len(heads), shape.heads // shape.kv_heads, shape.head_width)
            scores = torch.bmm(queries, cache.keys[number].transpose(1, 2))
            weights = self._weights(scores, unseen[self.traits.layers[number].window])
            return torch.bmm(weights, cache.values[number]).reshape(len(ids), 1, shape.heads, shape.head_width)

        def recall(number, rows, taps):
            sequences = torch.arange(len(ids), device=ids.device)[:, None]
            cache.keys[number][sequences, positions[:, None]] = rows
            earlier = positions[:, None] - torch.arange(taps - 1, -1, -1, device=ids.device)
            kept = cache.keys[number][sequences, earlier.clamp_min(0)] * (earlier >= 0)[..., None]
            return kept.transpose(1, 2)[:, None]

        return self._forward(ids[:, None], positions[:, None], cache, attend, recall)[:, 0]

    def _windows(self) -> set[int | None]:
        return {rule.window for rule in self.traits.layers}

    def _seen(self, rows: torch.Tensor, slots: torch.Tensor, window: int | None) -> torch.Tensor:
        """Whether rows at positions [R] see slots [S], [R, S]."""
        seen = slots <= rows[:, None]
        return seen if window is None else seen & (slots > rows[:, None] - window)

    def _weights(self, scores: torch.Tensor, unseen: torch.Tensor) -> torch.Tensor:
        """What products of queries and keys [..., S] weigh values with."""
        scores = capped(scores.float() * self.traits.score_scale, self.traits.score_cap)
        return scores.masked_fill_(unseen, float("-inf")).softmax(-1).to(self.dtype)

    def _normed(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """x [..., D], normalised if there is a gain. A gain of many heads [H * E] is one of rows [..., H, E]."""
        if weight is None:
            return x
        rows = x if x.shape[-1] == len(weight) else x.flatten(-2)
        return rms_norm(rows, weight, self.shape.epsilon).reshape(x.shape)

    def _forward(self, ids, positions, cache, attend, recall, layers=None) -> torch.Tensor:
        """Rows of ids at positions. `attend` and `recall` write what a layer keeps: the first mixes values, the second gives [B, T, D, L],
        what went into a convolution at a row and before it, the row's own last."""
        traits = self.traits
        turns = [[part.unsqueeze(-2) for part in one.turns(positions, cache.context)] for one in traits.rotations]
        gated = functional.silu if not traits.gelu else lambda x: functional.gelu(x, approximate="tanh")
        x = self.embedding[ids] * traits.embedding_scale
        made = []
        for number, (layer, rule) in enumerate(zip(self.layers[:layers], traits.layers[:layers], strict=True)):
            made += [x] if number in self.inner else []
            inner = functional.linear(self._normed(x, layer["attention_norm"]).to(self.dtype), layer["in"], layer["in_bias"])
            if rule.taps is None:
                mixed = self._attended(number, layer, inner, None if rule.rotation is None else turns[rule.rotation], attend)
            else:
                gate_before, gate_after, rows = inner.chunk(3, -1)
                mixed = gate_after * (recall(number, gate_before * rows, rule.taps) * layer["taps"]).sum(-1)
            out = functional.linear(mixed, layer["out"])
            x = x + traits.residual_scale * self._normed(out, layer["attention_output_norm"])
            gate, up = functional.linear(self._normed(x, layer["mlp_norm"]).to(self.dtype), layer["gate_up"]).chunk(2, -1)
            out = functional.linear(gated(gate) * up, layer["down"])
            x = x + traits.residual_scale * self._normed(out, layer["mlp_output_norm"])
        return torch.cat((x, *made), -1) if layers is None else x

    def _attended(self, number, layer, inner, turns, attend) -> torch.Tensor:
        shape = self.shape
        keys = shape.kv_heads * shape.head_width
        parts = inner.split([shape.heads * shape.head_width, keys, keys], -1)
        queries, keys, values = (part.unflatten(-1, (-1, shape.head_width)) for part in parts)
        queries, keys = self._normed(queries, layer["query_norm"]), self._normed(keys, layer["key_norm"])
        if turns is not None:
            queries, keys = rotate(queries, *turns), rotate(keys, *turns)
        return attend(number, queries.to(self.dtype), keys.to(self.dtype), values).flatten(-2)

    def _final(self, hidden: torch.Tensor) -> torch.Tensor:
        """What the head multiplies, of rows with or without inner ones."""
        hidden = hidden[..., : self.shape.width]
        return rms_norm(hidden, self.norm, self.shape.epsilon) * self.traits.logit_scale

    @torch.inference_mode()
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of rows [..., C], in float32."""
        return capped(self._final(hidden) @ self.head_exact.T, self.traits.logit_cap)

    @torch.inference_mode()
    def best(self, hidden: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The `count` most probable next tokens of rows [R, C] and their probabilities, both [R, count], best first.

        Candidates come from a head in `dtype`, their own logits from one in float32: the order of near ties is float32's.
        """
        normed = self._final(hidden)
        logits = capped(functional.linear(normed.to(self.dtype), self.head), self.traits.logit_cap)
        rough, ids = logits.topk(min(count + SPARE_CANDIDATES, logits.shape[-1]), -1)
        total = rough[:, :1].float() - logits.log_softmax(-1, dtype=torch.float32).gather(-1, ids[:, :1])
        exact = capped(torch.bmm(self.head_exact[ids], normed.unsqueeze(-1)).squeeze(-1), self.traits.logit_cap)
        # The sum over all tokens, with the candidates' rough terms replaced by their exact ones.
        rest = 1 - (rough.float() - total).exp().sum(-1, keepdim=True)
        total = torch.logaddexp(exact.logsumexp(-1, keepdim=True), total + rest.clamp_min(1e-9).log())
        logs, order = (exact - total).topk(min(count, ids.shape[-1]), -1)
        return ids.gather(-1, order), logs.exp()

    @torch.inference_mode()
    def score(self, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Of every token of a text but the first: its negative log-likelihood in nats, and the most probable id there; both [n - 1]."""
        row = torch.tensor([ids], device=self.device)
        hidden = self.prefill(row, self.cache(1, len(ids)), 0)[0, :-1]
        logits = self.logits(hidden)
        logs = logits.log_softmax(-1)
        return -logs.gather(-1, row[0, 1:, None])[:, 0], logits.argmax(-1)
