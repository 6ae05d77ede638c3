"""Where a drafter of hidden rows begins: as a layer of the verifier whose input is guessed from what the drafter is given.

The layer, and the final norm with the factor on logits after it, are copies, without what the drafter has none of: biases, norms of heads
and after sub-layers. What that layer reads is guessed by linear least squares from the token's embedding and the row before it: by
`eh_proj` of a hidden-state drafter, whose norms bring both to unit variance; of an EAGLE-3 head by `fc` from the rows alone, which is what
goes on past the layer, and by the projections of attention from both.
"""

import torch

from .checkpoint import Checkpoint
from .corpus import Corpus
from .eagle3 import Eagle3Drafter
from .hidden import HiddenDrafter, RowDrafter
from .llama import Verifier, rms_norm
from .refusal import require

ROWS = 80_000
"""Rows that the guess is fitted to, at most."""

RIDGE = 3e-3
"""Regularisation, as a share of the inputs' variance."""


@torch.inference_mode()
def start_from_layer(drafter: RowDrafter, checkpoint: Checkpoint, verifier: Verifier, corpus: Corpus, number: int) -> float:
    """Sets the drafter's parameters from layer `number` of the verifier; the share of the layer's input that the guess explains."""
    shape = checkpoint.shape
    require(0 <= number < shape.layers, f"layer {number} was asked for; expected one of the verifier's, 0 to {shape.layers - 1}")
    require(checkpoint.traits.layers[number].taps is None, f"layer {number} has a convolution; expected one that attends: give another --start")
    own, theirs = drafter.shape, (shape.heads, shape.kv_heads, shape.head_width, shape.feed_forward)
    require(
        (own.heads, own.kv_heads, own.head_width, own.feed_forward) == theirs,
        "a drafter starts from a layer of the verifier only if it has that layer's sizes; leave out the sizes",
    )
    layer = {
        name.removeprefix(f"model.layers.{number}."): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(f"model.layers.{number}.")
    }
    drafter.norm.weight.copy_(checkpoint.tensors["model.norm.weight"] * checkpoint.traits.logit_scale)
    read = _Read(drafter, verifier, corpus, number)
    start = _start_eagle3 if isinstance(drafter, Eagle3Drafter) else _start_hidden
    guess = start(drafter, layer, read, checkpoint)
    centred = read.wanted - read.wanted.mean(0)
    return 1 - float((read.wanted - guess).square().sum(0).div(centred.square().sum(0)).mean())


class _Read:
    """Rows to guess by: embeddings [N, D] of tokens, the verifier's rows [N, C] before them, and what its layer reads there, [N, D]."""

    def __init__(self, drafter: RowDrafter, verifier: Verifier, corpus: Corpus, number: int):
        tokens, hidden, wanted, rows = [], [], [], 0
        for sequence in corpus.sequences():
            if sequence.held_back:
                continue
            ids = torch.tensor([sequence.ids], device=verifier.device)
            read = verifier.prefill(ids, verifier.cache(1), 0, layers=number)[0]
            # The last token may have no hidden row, and the first token's is far from all others.
            tokens.append(ids[0, 2:-1].cpu())
            hidden.append(sequence.hidden[1:-2])
            wanted.append(read[2:-1].cpu())
            rows += len(tokens[-1])
            if rows >= ROWS:
                break
        width = drafter.shape.width
        require(rows > 2 * width, f"the corpus has {rows} tokens; expected more than {2 * width} to begin with: write more")
        self.epsilon = drafter.shape.epsilon
        self.embedded = self.normed(drafter.embedding[torch.cat(tokens)])
        self.hidden, self.wanted = torch.cat(hidden), torch.cat(wanted).double()

    def normed(self, x: torch.Tensor) -> torch.Tensor:
        """x [N, D] over its root mean square."""
        return rms_norm(x, torch.ones(x.shape[-1]), self.epsilon)


def _guess(inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """The matrix [A, B] that makes outputs [N, B] of inputs [N, A], float64, by least squares."""
    inputs = inputs.double()
    variance = float(inputs.square().mean())
    gram = inputs.T @ inputs + RIDGE * variance * len(inputs) * torch.eye(inputs.shape[1], dtype=torch.float64)
    return torch.linalg.solve(gram, inputs.T @ outputs.double())


def _start_hidden(drafter: HiddenDrafter, layer: dict, read: _Read, _: Checkpoint) -> torch.Tensor:
    state = drafter.layers[0].state_dict()
    for name in state.keys() & layer.keys():
        # A norm that the verifier lacks in front of a sub-layer is left as it is.
        state[name].copy_(layer[name])
    embedded, before = read.embedded, read.normed(read.hidden)
    for norm, part in ((drafter.enorm, embedded), (drafter.hnorm, before)):
        spread = 1 / part.square().mean(0).sqrt().clamp_min(1e-4)
        norm.weight.copy_(spread)
        part *= spread
    inputs = torch.cat((embedded, before), 1)
    weight = _guess(inputs, read.wanted)
    drafter.eh_proj.weight.copy_(weight.T.float())
    return inputs.double() @ weight


def _start_eagle3(drafter: Eagle3Drafter, layer: dict, read: _Read, checkpoint: Checkpoint) -> torch.Tensor:
    midlayer = drafter.midlayer
    weight = _guess(read.hidden, read.wanted)
    drafter.fc.weight.copy_(weight.T.float())
    guess = read.hidden.double() @ weight
    # What the layer's own norm would have left, by embedding and row; its gain is the projections' from here on.
    gain = layer.get("input_layernorm.weight", torch.ones(drafter.shape.width)).double()
    normed = _guess(torch.cat((read.embedded, read.normed(guess.float())), 1), read.normed(read.wanted.float()))
    for name in ("q_proj", "k_proj", "v_proj"):
        projected = layer[f"self_attn.{name}.weight"].double() * gain
        midlayer.self_attn[name].weight.copy_((projected @ normed.T).float())
    state = midlayer.state_dict()
    for name in ("self_attn.o_proj.weight", "post_attention_layernorm.weight", *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down"))):
        if name in layer:
            state[name].copy_(layer[name])
    drafter.lm_head.weight.copy_(checkpoint.head[drafter.known.cpu()])
    return guess
