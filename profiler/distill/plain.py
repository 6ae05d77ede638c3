"""The plain drafter: a small llama of its own, with the verifier's vocabulary and an embedding made from the verifier's."""

from pathlib import Path

import torch
from torch import nn

from .checkpoint import Checkpoint, sizes_of, write_folder
from .family import Shape
from .gguf_file import write_gguf
from .layer import DecoderLayer, Scale, TreeAttention, UnrolledAttention
from .llama import rms_norm
from .rotation import plain_frequencies, rotation

LAYERS, WIDTH, HEAD_WIDTH = 3, 256, 64
"""Sizes by default; feed-forward is three times the width."""


class PlainDrafter(nn.Module):
    """Rows are of positions 1 and on, so that both kinds are judged alike: row j of a text follows its tokens 0 to j + 1.

    It reads no hidden rows: what it drafts after a root does not depend on how deep, and one pass is all there is to unroll.
    """

    is_reduced = False

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList([DecoderLayer(shape) for _ in range(shape.layers)])
        self.norm = Scale(shape.width)

    @classmethod
    def like(cls, verifier: Checkpoint, layers: int = LAYERS, width: int = WIDTH, head_width: int = HEAD_WIDTH) -> "PlainDrafter":
        """A drafter for a verifier, its embedding and head the verifier's embedding along its `width` principal directions."""
        theirs = verifier.shape
        width = min(width, theirs.width)
        head_width = min(head_width, width)
        heads = width // head_width
        shape = Shape(
            layers=layers, width=width, heads=heads, kv_heads=heads, head_width=head_width, feed_forward=3 * width,
            vocabulary=theirs.vocabulary, context=theirs.context, epsilon=theirs.epsilon, rope_theta=theirs.rope_theta,
        )
        made = cls(shape)
        with torch.no_grad():
            made.embed_tokens.weight.copy_(principal_part(verifier.embedding, width))
        return made

    def unroll(self, tokens: torch.Tensor, hidden: torch.Tensor | None, passes: int) -> list[torch.Tensor]:
        """Texts: tokens [B, T]. The same rows [B, T - 1, D] for every pass that is asked for."""
        rows = self._text(tokens, [UnrolledAttention(self._groups) for _ in self.layers])[:, 1:]
        return [rows] * passes

    def training_rows(self, tokens: torch.Tensor, hidden: torch.Tensor | None, passes: int) -> list[torch.Tensor]:
        """What training compares: one pass."""
        return self.unroll(tokens, hidden, 1)

    def trees(self, tokens: torch.Tensor, hidden: torch.Tensor | None, roots: torch.Tensor) -> tuple[torch.Tensor, "PlainTrees"]:
        """One text: tokens [T]. Rows [R, D] of the roots (rows of the text) and trees that grow from them."""
        attentions = [UnrolledAttention(self._groups) for _ in self.layers]
        rows = self._text(tokens[None], attentions)[0, 1:]
        # The text's keys have been repeated for the heads that share them; the trees see the text up to the root's token.
        trees = [TreeAttention(self._groups, seen.keys[0][0], seen.values[0][0], roots + 1) for seen in attentions]
        return rows[roots], PlainTrees(self, trees, roots)

    def headed(self, x: torch.Tensor, columns: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """What logits are products of: rows [..., D] of rows x, and the head [C, D] for the tokens of `columns` [C], by default for all."""
        head = self.embed_tokens.weight if columns is None else self.embed_tokens.weight[columns]
        return rms_norm(x, self.norm.weight, self.shape.epsilon), head

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits [..., V] of rows [..., D]."""
        return nn.functional.linear(*self.headed(x))

    @property
    def _groups(self) -> int:
        return self.shape.heads // self.shape.kv_heads

    def _text(self, tokens: torch.Tensor, attentions: list) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        cosines, sines = self._rotation(torch.arange(tokens.shape[1], device=tokens.device))
        for layer, attention in zip(self.layers, attentions, strict=True):
            x = layer(x, cosines, sines, attention)
        return x

    def _rotation(self, positions: torch.Tensor):
        return rotation(positions, plain_frequencies(self.shape.head_width, self.shape.rope_theta))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters by Hugging Face's names."""
        return {f"model.{name}": tensor.detach() for name, tensor in self.state_dict().items()}

    def save(self, folder: Path) -> None:
        """Writes config.json and model.safetensors, bfloat16. The tokenizer's files are the verifier's."""
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            **sizes_of(self.shape),
            "tie_word_embeddings": True,
        }
        write_folder(folder, config, self.tensors())

    def save_gguf(self, file: Path, verifier: Path) -> None:
        """Writes the drafter as a GGUF of F16 matrices, with the tokenizer of the verifier's GGUF."""
        write_gguf(file, self.shape, self.tensors(), verifier)


class PlainTrees:
    """Trees of drafts after the roots of one text."""

    def __init__(self, drafter: PlainDrafter, attentions: list[TreeAttention], roots: torch.Tensor):
        self.drafter, self.attentions = drafter, attentions
        self.positions = roots + 1

    def forward(self, tokens: torch.Tensor, parents: torch.Tensor, depths: torch.Tensor, ancestors: torch.Tensor) -> torch.Tensor:
        """Rows [R, W, D] of W further nodes a tree: tokens and depths [R, W], ancestors [R, W, N]. Parents' rows are not read."""
        x = self.drafter.embed_tokens(tokens)
        cosines, sines = self.drafter._rotation(self.positions[:, None] + depths)
        for layer, attention in zip(self.drafter.layers, self.attentions, strict=True):
            attention.ancestors = ancestors
            x = layer(x, cosines, sines, attention)
        return x


def principal_part(embedding: torch.Tensor, width: int) -> torch.Tensor:
    """The rows [V, D] along the `width` directions in which they vary most, [V, width]."""
    centred = embedding - embedding.mean(0)
    values, vectors = torch.linalg.eigh(centred.T.double() @ centred.double())
    return centred @ vectors[:, values.argsort(descending=True)[:width]].float()
