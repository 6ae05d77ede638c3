"""Drafters of hidden rows, and the hidden-state drafter: one decoder layer over a token's embedding and the hidden row before it, with
the verifier's head.

After EAGLE (Li et al., ICML 2024, section 3.1, https://arxiv.org/abs/2401.15077); drafts further down a tree read the drafter's own
rows, and training unrolls that, after EAGLE-3 (https://arxiv.org/abs/2503.01840) and HASS (https://arxiv.org/abs/2408.15766).
"""

from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from .checkpoint import Checkpoint, read_json, read_safetensors, sizes_of, write_folder
from .family import Shape
from .layer import DecoderLayer, Scale, TreeAttention, UnrolledAttention
from .llama import rms_norm
from .refusal import require
from .rotation import plain_frequencies, rotation

MODEL_TYPE = "hidden_state_drafter"


class RowDrafter(nn.Module):
    """What reads the verifier's rows, and further down a tree its own. Rows are of positions 1 and on: row j of a text is made of the
    embedding of token j + 1 and what is known of token j.

    A kind says whether its head knows the trimmed tokens alone (`is_reduced`), what the first pass reads of the verifier's rows [..., C] (`first_rows`, [..., D]) and how a row is made (`advance`).
    """

    def __init__(self, shape: Shape, verifier: Checkpoint):
        super().__init__()
        self.shape = shape
        self.verifier_name = verifier.name
        self.register_buffer("embedding", verifier.embedding, persistent=False)

    def unroll(self, tokens: torch.Tensor, hidden: torch.Tensor, passes: int) -> list[torch.Tensor]:
        """Texts: tokens [B, T], the verifier's rows [B, T, C]. The drafter's rows [B, T - 1, D] of every pass; the first n of
        pass n + 1 have no root before them and mean nothing."""
        tokens, first = tokens[:, 1:], self.first_rows(hidden[:, :-1])
        attention = UnrolledAttention(self.shape.heads // self.shape.kv_heads)
        cosines, sines = self.rotation(torch.arange(1, tokens.shape[1] + 1, device=tokens.device))
        made, before = [], first
        for _ in range(passes):
            x = self.advance(tokens, before, cosines, sines, attention)
            made.append(x)
            before = torch.cat((first[:, :1], x[:, :-1]), 1)
        return made

    def training_rows(self, tokens: torch.Tensor, hidden: torch.Tensor, passes: int) -> list[torch.Tensor]:
        """What training compares: every pass."""
        return self.unroll(tokens, hidden, passes)

    def trees(self, tokens: torch.Tensor, hidden: torch.Tensor, roots: torch.Tensor) -> tuple[torch.Tensor, "HiddenTrees"]:
        """One text: tokens [T], the verifier's rows [T, C]. Rows [R, D] of the roots (rows of the text) and trees that grow from them."""
        groups = self.shape.heads // self.shape.kv_heads
        seen = UnrolledAttention(groups)
        cosines, sines = self.rotation(torch.arange(1, len(tokens), device=tokens.device))
        x = self.advance(tokens[None, 1:], self.first_rows(hidden[None, :-1]), cosines, sines, seen)[0]
        return x[roots], HiddenTrees(self, TreeAttention(groups, seen.keys[0][0], seen.values[0][0], roots), roots)

    def rotation(self, positions: torch.Tensor):
        """Cosines and sines of positions."""
        return rotation(positions, plain_frequencies(self.shape.head_width, self.shape.rope_theta))


class HiddenDrafter(RowDrafter):
    """Reads the hidden row that the verifier's head reads; its head is the verifier's."""

    is_reduced = False

    def __init__(self, shape: Shape, verifier: Checkpoint):
        super().__init__(shape, verifier)
        self.enorm, self.hnorm = Scale(shape.width), Scale(shape.width)
        self.eh_proj = nn.Linear(2 * shape.width, shape.width, bias=False)
        self.layers = nn.ModuleList([DecoderLayer(shape)])
        self.norm = Scale(shape.width)
        self.register_buffer("head", verifier.head, persistent=False)
        self.register_buffer("verifier_norm", verifier.tensors["model.norm.weight"], persistent=False)

    def first_rows(self, hidden: torch.Tensor) -> torch.Tensor:
        """The verifier's rows as they are."""
        return hidden

    def advance(self, tokens: torch.Tensor, before: torch.Tensor, cosines, sines, attend) -> torch.Tensor:
        """Rows [..., D] of tokens [...] and the rows [..., D] before them."""
        embedded = rms_norm(self.embedding[tokens], self.enorm.weight, self.shape.epsilon)
        before = rms_norm(before, self.hnorm.weight, self.shape.epsilon)
        return self.layers[0](self.eh_proj(torch.cat((embedded, before), -1)).float(), cosines, sines, attend)

    def headed(self, x: torch.Tensor, columns: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """What logits are products of: rows [..., D] of rows x, and the head [C, D] for the tokens of `columns` [C], by default for all."""
        head = self.head if columns is None else self.head[columns]
        return rms_norm(x, self.norm.weight, self.shape.epsilon), head

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of rows [..., D]."""
        return nn.functional.linear(*self.headed(x))

    def distance(self, x: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Smooth L1 between what the head reads of the drafter's rows [R, D] and of the verifier's."""
        ours = rms_norm(x, self.norm.weight, self.shape.epsilon)
        return nn.functional.smooth_l1_loss(ours, rms_norm(hidden, self.verifier_norm, self.shape.epsilon))

    def save(self, folder: Path) -> None:
        """Writes the folder that drafts from: config.json and model.safetensors, bfloat16."""
        config = {
            "architectures": ["HiddenStateDrafter"],
            "model_type": MODEL_TYPE,
            **sizes_of(self.shape),
            "verifier": {"name": self.verifier_name, "vocab_size": self.shape.vocabulary},
        }
        write_folder(folder, config, self.state_dict())

    @classmethod
    def load(cls, folder: Path, verifier: Checkpoint) -> "HiddenDrafter":
        """The drafter of a folder, for its verifier. Raises Refusal for another one's."""
        config = read_json(folder / "config.json")
        require(config.get("model_type") == MODEL_TYPE, f"`{folder}` is no {MODEL_TYPE}, but a {config.get('model_type')}")
        sizes = {"width": "hidden_size", "feed_forward": "intermediate_size", "heads": "num_attention_heads",
                 "kv_heads": "num_key_value_heads", "head_width": "head_dim", "epsilon": "rms_norm_eps",
                 "rope_theta": "rope_theta", "vocabulary": "vocab_size", "context": "max_position_embeddings"}
        for name in sizes.values():
            require(name in config, f"`{folder}/config.json` has no `{name}`; expected the config of a {MODEL_TYPE}")
        shape = Shape(layers=1, **{ours: config[name] for ours, name in sizes.items()})
        for what in ("width", "vocabulary"):
            expected, found = getattr(verifier.shape, what), getattr(shape, what)
            require(expected == found, f"`{folder}` is for a verifier of {what} {found}; expected {expected}, that of {verifier.name}")
        made = cls(shape, verifier)
        tensors = read_safetensors(folder)
        expected = {name: tensor.shape for name, tensor in made.state_dict().items()}
        found = {name: tensor.shape for name, tensor in tensors.items()}
        require(expected == found, f"`{folder}/model.safetensors` has other tensors than its config.json says")
        made.load_state_dict(tensors)
        return made

    @classmethod
    def like(cls, verifier: Checkpoint, **sizes) -> "HiddenDrafter":
        """A drafter of the sizes of the verifier's own layers, but where `sizes` says otherwise."""
        return cls(Shape(**{**asdict(verifier.shape), "layers": 1, **sizes}), verifier)


class HiddenTrees:
    """Trees of drafts after the roots of one text."""

    def __init__(self, drafter: RowDrafter, attention: TreeAttention, roots: torch.Tensor):
        self.drafter, self.attention = drafter, attention
        self.positions = roots + 1

    def forward(self, tokens: torch.Tensor, parents: torch.Tensor, depths: torch.Tensor, ancestors: torch.Tensor) -> torch.Tensor:
        """Rows [R, W, D] of W further nodes a tree: tokens and depths [R, W], their parents' rows [R, W, D], ancestors [R, W, N]."""
        self.attention.ancestors = ancestors
        cosines, sines = self.drafter.rotation(self.positions[:, None] + depths)
        return self.drafter.advance(tokens, parents, cosines, sines, self.attention)
