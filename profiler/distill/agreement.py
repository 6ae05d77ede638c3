"""How well a drafter would draft: agreement with the verifier by depth, and the tokens a step that trees of it would give.

Both are computed on sequences that were held back. Tokens a step are simulated, not timed: trees grow as at run time (Equal-Growth
Trees, https://arxiv.org/abs/2512.23858), are verified whole, and the text that the verifier wrote greedily says what is accepted.
"""

from dataclasses import dataclass

import torch

from .corpus import Sequence

RANKS = (1, 4, 8)
"""Agreement is told for the verifier's token among so many best of the drafter."""

SHAPES = ((2, 2), (3, 3), (4, 4))
"""Growths, and nodes of each, of the trees that are simulated."""

SIMULATED_TOKENS = 128
"""Tokens of a sequence that are simulated at most."""


@dataclass(frozen=True)
class Agreement:
    """Shares in [0, 1]: `by_depth[d]` of RANKS for the d-th draft token after a root. `steps[(Dd, Wd)]` are tokens a step."""

    by_depth: list[dict[int, float]]
    steps: dict[tuple[int, int], float]
    rows: int

    def __str__(self) -> str:
        depths = [" / ".join(f"{shares[rank]:.3f}" for rank in RANKS) for shares in self.by_depth]
        steps = ", ".join(f"Dd {depth} Wd {width}: {value:.2f}" for (depth, width), value in self.steps.items())
        return f"top-{'/'.join(map(str, RANKS))} by depth: {'; '.join(depths)}; simulated AAL {steps}"

    def as_json(self) -> dict:
        """Plain data for the log."""
        steps = {f"Dd {depth} Wd {width}": value for (depth, width), value in self.steps.items()}
        return {"by_depth": [{str(rank): share for rank, share in shares.items()} for shares in self.by_depth],
                "simulated_aal": steps, "rows": self.rows}


@torch.no_grad()
def measure(drafter, sequences: list[Sequence], passes: int, simulated: int) -> Agreement:
    """Agreement over all given sequences, by `passes` depths; tokens a step over the first `simulated` greedy ones."""
    hits = [{rank: 0 for rank in RANKS} for _ in range(passes)]
    counts = [0] * passes
    device = _device(drafter)
    for sequence in sequences:
        tokens, hidden = torch.tensor(sequence.ids, device=device), sequence.hidden.to(device)
        for depth, rows in enumerate(drafter.unroll(tokens[None], hidden[None], passes)):
            wanted = sequence.top_ids[1:, 0].long().to(device)
            asked = sequence.top_probabilities[1:, 0].to(device) > 0
            # The first row after a prompt whose root comes after it too.
            asked[: sequence.prompt_tokens - 1 + depth] = False
            best = drafter.logits(rows[0, asked]).topk(max(RANKS), -1).indices
            for rank in RANKS:
                hits[depth][rank] += int((best[:, :rank] == wanted[asked, None]).sum())
            counts[depth] += int(asked.sum())
    shares = [{rank: hit / max(count, 1) for rank, hit in found.items()} for found, count in zip(hits, counts, strict=True)]
    greedy = [sequence for sequence in sequences if sequence.greedy and len(sequence.ids) - sequence.prompt_tokens > 8][:simulated]
    steps = {shape: tokens_a_step(drafter, greedy, *shape) for shape in SHAPES} if greedy else {}
    return Agreement(shares, steps, counts[0])


def _device(drafter) -> torch.device:
    return next(drafter.parameters()).device


@torch.no_grad()
def tokens_a_step(drafter, sequences: list[Sequence], growths: int, width: int) -> float:
    """Tokens a step (the verifier's own included) of trees of `growths` times `width` nodes over greedy sequences."""
    emitted = steps = 0
    for sequence in sequences:
        first, end = sequence.prompt_tokens, min(len(sequence.ids), sequence.prompt_tokens + SIMULATED_TOKENS)
        with torch.device(_device(drafter)):
            tokens = torch.tensor(sequence.ids[:end])
            roots = torch.arange(first - 1, end - 2)
            tree = grow(drafter, tokens, sequence.hidden[:end].to(tokens.device), roots, growths, width)
            accepted = accepted_depths(tree, tokens, roots + 1).tolist()
        at = 0
        while at < len(accepted):
            steps += 1
            emitted += min(accepted[at] + 1, len(accepted) - at)
            at += accepted[at] + 1
    return emitted / max(steps, 1)


@dataclass
class Trees:
    """The same shape after every root: tokens, parents (-1 for the root) and depths (1 for its children) of nodes, [R, N] each."""

    tokens: torch.Tensor
    parents: torch.Tensor
    depths: torch.Tensor


def grow(drafter, tokens: torch.Tensor, hidden: torch.Tensor, roots: torch.Tensor, growths: int, width: int) -> Trees:
    """An Equal-Growth Tree after every root (rows of the drafter over the text): each growth adds the `width` candidates of highest
    path probability, wherever they hang; the nodes of the last growth are not forwarded."""
    count = len(roots)
    rows, trees = drafter.trees(tokens, hidden, roots)
    frontier = _children(drafter, rows[:, None], torch.zeros(count, 1), torch.full((count, 1), -1), width)
    node_tokens = torch.empty((count, 0), dtype=torch.long)
    parents, depths = node_tokens.clone(), node_tokens.clone()
    node_rows = rows.new_empty((count, 0, rows.shape[-1]))
    ancestors = torch.zeros((count, 0, 0), dtype=torch.bool)
    for growth in range(growths):
        logs, order = frontier.logs.topk(width, -1)
        chosen, parent = frontier.tokens.gather(1, order), frontier.parents.gather(1, order)
        frontier.logs.scatter_(1, order, float("-inf"))
        place = parent.clamp_min(0)
        behind_root = parent < 0
        depth = torch.where(behind_root, 1, _take(depths, place) + 1) if growth else torch.ones_like(parent)
        nodes = node_tokens.shape[1]
        line = torch.zeros((count, width, nodes + width), dtype=torch.bool)
        if growth:
            inherited = ancestors.gather(1, place[..., None].expand(-1, -1, nodes))
            line[..., :nodes] = inherited & ~behind_root[..., None]
        line[..., nodes:] = torch.eye(width, dtype=torch.bool)
        ancestors = torch.cat([torch.nn.functional.pad(ancestors, (0, width)), line], 1)
        node_tokens, parents, depths = (
            torch.cat(pair, 1) for pair in ((node_tokens, chosen), (parents, parent), (depths, depth))
        )
        if growth + 1 == growths:
            break
        before = rows[:, None].expand(-1, width, -1)
        if growth:
            taken = node_rows.gather(1, place[..., None].expand(-1, -1, rows.shape[-1]))
            before = torch.where(behind_root[..., None], before, taken)
        made = trees.forward(chosen, before, depth, line)
        node_rows = torch.cat([node_rows, made], 1)
        numbers = torch.arange(nodes, nodes + width).expand(count, -1)
        frontier = frontier.joined(_children(drafter, made, logs, numbers, width))
    return Trees(node_tokens, parents, depths)


@dataclass
class _Frontier:
    """Candidates [R, C]: path log-probabilities, tokens and parents."""

    logs: torch.Tensor
    tokens: torch.Tensor
    parents: torch.Tensor

    def joined(self, other: "_Frontier") -> "_Frontier":
        return _Frontier(*(torch.cat([getattr(self, name), getattr(other, name)], 1) for name in ("logs", "tokens", "parents")))


def _children(drafter, rows: torch.Tensor, logs: torch.Tensor, numbers: torch.Tensor, width: int) -> _Frontier:
    """The `width` best children of every node of rows [R, W, D] with path log-probabilities and numbers [R, W]."""
    found, tokens = drafter.logits(rows).log_softmax(-1).topk(width, -1)
    return _Frontier((found + logs[..., None]).flatten(1), tokens.flatten(1), numbers[..., None].expand_as(tokens).flatten(1))


def _take(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return values.gather(1, places)


def accepted_depths(trees: Trees, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """How deep [R] the text after each root (at `positions` [R] of `tokens`) is in its tree."""
    count = len(positions)
    accepted = torch.zeros(count, dtype=torch.long)
    at = torch.full((count,), -1)
    alive = torch.ones(count, dtype=torch.bool)
    for depth in range(1, int(trees.depths.max()) + 1):
        place = positions + depth
        inside = place < len(tokens)
        said = tokens[place.clamp_max(len(tokens) - 1)]
        match = (trees.parents == at[:, None]) & (trees.tokens == said[:, None])
        alive = alive & inside & match.any(1)
        at = torch.where(alive, match.int().argmax(1), -2)
        accepted += alive
    return accepted
