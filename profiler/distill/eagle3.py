"""The EAGLE-3 head: one layer over a token's embedding and a row made of three inner rows of the verifier, with a head of its own over
the verifier's frequent tokens.

After Li et al. (https://arxiv.org/abs/2503.01840), sections 3.1 and 3.2: rows further down a tree are the head's own, and training
unrolls that; nothing holds its rows to the verifier's. Written as published heads are, so that whatever reads those reads this one.
"""

from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from .checkpoint import Checkpoint, sizes_of, write_folder
from .family import Shape
from .hidden import RowDrafter
from .layer import DecoderLayer, Scale
from .llama import rms_norm
from .refusal import require

LEAST_LAYERS = 7
"""Of a verifier with fewer the three inner rows would not be three."""


def inner_layers(layers: int) -> tuple[int, int, int]:
    """How many layers of a verifier come before each of the rows that are read: the choice of those who publish heads."""
    require(layers >= LEAST_LAYERS, f"the verifier has {layers} layers; expected {LEAST_LAYERS} or more, to read a low, a middle and a high row")
    return 2, layers // 2, layers - 3


class Eagle3Drafter(RowDrafter):
    """A head for the ascending token ids `known`. The verifier's rows are its three inner ones, one after the other, [..., 3 D]."""

    is_reduced = True

    def __init__(self, shape: Shape, verifier: Checkpoint, known: list[int]):
        super().__init__(shape, verifier)
        self.fc = nn.Linear(3 * shape.width, shape.width, bias=False)
        self.midlayer = DecoderLayer(shape, reads=2)
        self.midlayer.hidden_norm = Scale(shape.width)
        self.norm = Scale(shape.width)
        self.lm_head = nn.Linear(shape.width, len(known), bias=False)
        ids = torch.tensor(known)
        self.register_buffer("known", ids, persistent=False)
        self.register_buffer("d2t", ids - torch.arange(len(known)))
        self.register_buffer("t2d", torch.zeros(shape.vocabulary, dtype=torch.bool).index_fill(0, ids, True))

    @classmethod
    def like(cls, verifier: Checkpoint, known: list[int]) -> "Eagle3Drafter":
        """A head of the sizes of the verifier's own layers."""
        return cls(Shape(**{**asdict(verifier.shape), "layers": 1}), verifier, known)

    def first_rows(self, hidden: torch.Tensor) -> torch.Tensor:
        """The three rows joined to one of the width of a layer."""
        return self.fc(hidden).float()

    def advance(self, tokens: torch.Tensor, before: torch.Tensor, cosines, sines, attend) -> torch.Tensor:
        """Rows [..., D] of tokens [...] and the rows [..., D] before them."""
        embedded = rms_norm(self.embedding[tokens], self.midlayer.input_layernorm.weight, self.shape.epsilon)
        normed = rms_norm(before, self.midlayer.hidden_norm.weight, self.shape.epsilon)
        return self.midlayer(before, cosines, sines, attend, torch.cat((embedded, normed), -1))

    def headed(self, x: torch.Tensor, _: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """What logits of the known tokens are products of: rows [..., D] of rows x, and the head [K, D]."""
        return rms_norm(x, self.norm.weight, self.shape.epsilon), self.lm_head.weight

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of rows [..., D], by which no other token than the known can be said."""
        made = nn.functional.linear(*self.headed(x))
        return made.new_full((*x.shape[:-1], self.shape.vocabulary), float("-inf")).index_copy_(-1, self.known, made)

    def save(self, folder: Path) -> None:
        """Writes config.json and model.safetensors as published heads have them. The embedding is the verifier's."""
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "hidden_act": "silu",
            **sizes_of(self.shape),
            "draft_vocab_size": len(self.known),
            "tie_word_embeddings": False,
        }
        write_folder(folder, config, self.state_dict())
