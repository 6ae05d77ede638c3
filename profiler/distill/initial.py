"""Where a hidden-state drafter begins: as a layer of the verifier whose input is guessed from what the drafter is given.

The layer, and the final norm with the factor on logits after it, are copies, without what the drafter has none of: biases, norms of heads
and after sub-layers. `eh_proj` is the linear least-squares guess of what that layer reads, from the token's embedding and the hidden row
before it; both are brought to unit variance by `enorm` and `hnorm`.
"""

import torch

from .checkpoint import Checkpoint
from .corpus import Corpus
from .hidden import HiddenDrafter
from .llama import Verifier, rms_norm
from .refusal import require

ROWS = 80_000
"""Rows that the guess is fitted to, at most."""

RIDGE = 3e-3
"""Regularisation, as a share of the inputs' variance."""


@torch.inference_mode()
def start_from_layer(drafter: HiddenDrafter, checkpoint: Checkpoint, verifier: Verifier, corpus: Corpus, number: int) -> float:
    """Sets the drafter's parameters from layer `number` of the verifier; the share of the layer's input that the guess explains."""
    shape = checkpoint.shape
    require(0 <= number < shape.layers, f"layer {number} was asked for; expected one of the verifier's, 0 to {shape.layers - 1}")
    require(checkpoint.traits.layers[number].taps is None, f"layer {number} has a convolution; expected one that attends: give another --start")
    own, theirs = drafter.shape, (shape.heads, shape.kv_heads, shape.head_width, shape.feed_forward)
    require(
        (own.heads, own.kv_heads, own.head_width, own.feed_forward) == theirs,
        "a drafter starts from a layer of the verifier only if it has that layer's sizes; leave out the sizes",
    )
    state = drafter.state_dict()
    for name in state:
        # A norm that the verifier lacks in front of a sub-layer is left as it is.
        copied = checkpoint.tensors.get(f"model.layers.{number}.{name.removeprefix('layers.0.')}") if name.startswith("layers.0.") else None
        if copied is not None:
            state[name].copy_(copied)
    state["norm.weight"].copy_(checkpoint.tensors["model.norm.weight"] * checkpoint.traits.logit_scale)

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
    require(rows > 2 * shape.width, f"the corpus has {rows} tokens; expected more than {2 * shape.width} to begin with: write more")
    embedded = rms_norm(drafter.embedding[torch.cat(tokens)], torch.ones(shape.width), shape.epsilon)
    before = rms_norm(torch.cat(hidden), torch.ones(shape.width), shape.epsilon)
    for name, part in (("enorm.weight", embedded), ("hnorm.weight", before)):
        spread = 1 / part.square().mean(0).sqrt().clamp_min(1e-4)
        state[name].copy_(spread)
        part *= spread
    inputs, outputs = torch.cat((embedded, before), 1).double(), torch.cat(wanted).double()
    gram = inputs.T @ inputs + RIDGE * rows * torch.eye(inputs.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(gram, inputs.T @ outputs)
    state["eh_proj.weight"].copy_(weight.T.float())
    centred = outputs - outputs.mean(0)
    return 1 - float((outputs - inputs @ weight).square().sum(0).div(centred.square().sum(0)).mean())
