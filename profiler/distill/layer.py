"""The one decoder layer that both kinds of drafters are made of, and attention over texts and over trees of drafts."""

import torch
from torch import nn
from torch.nn import functional

from .family import Shape
from .llama import rms_norm
from .rotation import rotate


class DecoderLayer(nn.Module):
    """A llama layer; parameters by Hugging Face's names. Attention itself is the caller's: it knows what a row may see. What it attends
    by is `reads` rows wide."""

    def __init__(self, shape: Shape, reads: int = 1):
        super().__init__()
        self.shape = shape
        queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width

        def linear(inputs: int, outputs: int) -> nn.Linear:
            made = nn.Linear(inputs, outputs, bias=False)
            nn.init.normal_(made.weight, std=0.02)
            return made

        self.input_layernorm = Scale(shape.width)
        self.self_attn = nn.ModuleDict({
            "q_proj": linear(reads * shape.width, queries),
            "k_proj": linear(reads * shape.width, keys),
            "v_proj": linear(reads * shape.width, keys),
            "o_proj": linear(queries, shape.width),
        })
        self.post_attention_layernorm = Scale(shape.width)
        self.mlp = nn.ModuleDict({
            "gate_proj": linear(shape.width, shape.feed_forward),
            "up_proj": linear(shape.width, shape.feed_forward),
            "down_proj": linear(shape.feed_forward, shape.width),
        })

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, attend, normed: torch.Tensor | None = None) -> torch.Tensor:
        """x [..., D] to [..., D]; rotations [..., E] of its rows. `attend(queries [..., H, E], keys [..., K, E], values)` gives [..., H, E].
        Attention reads `normed`, without it x as its own norm leaves it."""
        normed = rms_norm(x, self.input_layernorm.weight, self.shape.epsilon) if normed is None else normed
        parts = (self.self_attn[name](normed).unflatten(-1, (-1, self.shape.head_width)) for name in ("q_proj", "k_proj", "v_proj"))
        queries, keys, values = parts
        cosines, sines = cosines.unsqueeze(-2), sines.unsqueeze(-2)
        mixed = attend(rotate(queries, cosines, sines), rotate(keys, cosines, sines), values.float())
        x = x + self.self_attn["o_proj"](mixed.flatten(-2)).float()
        normed = rms_norm(x, self.post_attention_layernorm.weight, self.shape.epsilon)
        gated = functional.silu(self.mlp["gate_proj"](normed)) * self.mlp["up_proj"](normed)
        return x + self.mlp["down_proj"](gated).float()


class Scale(nn.Module):
    """The weight of a norm."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


class UnrolledAttention:
    """What rows see when drafting is unrolled over a text: pass 1 reads the verifier's rows, pass n the drafter's own of pass n - 1.

    A row of pass n stands for a draft n - 1 tokens after a root. It sees the rows of pass 1 up to that root, and after the root
    the one row of each later pass that led to it. One object serves one layer; texts are [B, M, ...].
    """

    def __init__(self, groups: int):
        self.groups = groups
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def __call__(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        number = len(self.keys)
        self.keys.append(keys.repeat_interleave(self.groups, -2))
        self.values.append(values.repeat_interleave(self.groups, -2))
        rows = queries.shape[1]
        place = torch.arange(rows, device=queries.device)
        unseen = place[None, :] > place[:, None] - number
        queries = queries * queries.shape[-1] ** -0.5
        scores = torch.einsum("bqhe,bkhe->bhqk", queries, self.keys[0]).masked_fill(unseen, float("-inf"))
        later = [
            (_delayed(self.keys[n], number - n), _delayed(self.values[n], number - n)) for n in range(1, number + 1)
        ]
        steps = [torch.einsum("bqhe,bqhe->bhq", queries, keys).unsqueeze(-1) for keys, _ in later]
        weights = torch.cat([scores, *steps], -1).softmax(-1)
        mixed = torch.einsum("bhqk,bkhe->bqhe", weights[..., :rows], self.values[0])
        for n, (_, values) in enumerate(later):
            mixed = mixed + weights[..., rows + n].transpose(1, 2).unsqueeze(-1) * values
        return mixed


def _delayed(rows: torch.Tensor, by: int) -> torch.Tensor:
    """[B, M, ...] with row j - by at place j, zeros before the first."""
    return rows if by == 0 else functional.pad(rows[:, :-by], [0, 0] * (rows.dim() - 2) + [by, 0])


class TreeAttention:
    """What nodes of many trees over one text see: the text's rows up to their tree's root, their ancestors and themselves.

    `keys` and `values` are the text's, repeated for the heads that share them, [M, H, E]; `roots` [R] are rows. Nodes are added W of each tree at a time, and know their
    ancestors among all nodes so far by a mask [R, W, N], themselves included. One object serves one layer.
    """

    def __init__(self, groups: int, keys: torch.Tensor, values: torch.Tensor, roots: torch.Tensor):
        self.groups = groups
        self.text = (keys, values)
        self.unseen = torch.arange(len(keys), device=keys.device)[None, :] > roots[:, None]
        self.nodes: tuple[torch.Tensor, torch.Tensor] | None = None
        self.ancestors: torch.Tensor | None = None

    def __call__(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        keys, values = keys.repeat_interleave(self.groups, -2), values.repeat_interleave(self.groups, -2)
        if self.nodes is not None:
            keys, values = (torch.cat(pair, 1) for pair in zip(self.nodes, (keys, values), strict=True))
        self.nodes = (keys, values)
        queries = queries * queries.shape[-1] ** -0.5
        text = torch.einsum("rwhe,mhe->rhwm", queries, self.text[0]).masked_fill(self.unseen[:, None, None], float("-inf"))
        nodes = torch.einsum("rwhe,rnhe->rhwn", queries, keys).masked_fill(~self.ancestors[:, None], float("-inf"))
        weights = torch.cat([text, nodes], -1).softmax(-1)
        rows = len(self.text[0])
        return torch.einsum("rhwm,mhe->rwhe", weights[..., :rows], self.text[1]) + torch.einsum(
            "rhwn,rnhe->rwhe", weights[..., rows:], values
        )
