"""The card of a drafter: what it is, what it learned from, how, how well it agrees, and what more of the same would give."""

import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from . import initial, trim
from .checkpoint import Checkpoint
from .corpus import VALIDATION_SHARE, Corpus
from .refusal import Refusal, require

FITTED_FROM = 0.1
"""Measurements before this share of the tokens seen are not fitted: warm-up is not learning."""


def history_of(folder: Path) -> list[dict]:
    """The measurements of a training. Raises Refusal where there are none."""
    file = folder / "history.jsonl"
    try:
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise Refusal(f"`{folder}` has no history of a training: {error}; train first") from error
    require(bool(found), f"`{file}` is empty; train first")
    return found


def fitted(history: list[dict], rank: str = "1") -> tuple[float, float] | None:
    """`(a, b)` of `1 - agreement = a * tokens ** -b`, by least squares of the logarithms; None with fewer than three measurements."""
    last = history[-1]["tokens_seen"]
    points = [
        (math.log(entry["tokens_seen"]), math.log(1 - entry["by_depth"][0][rank]))
        for entry in history
        if entry["tokens_seen"] > FITTED_FROM * last and entry["by_depth"][0][rank] < 1
    ]
    if len({x for x, _ in points}) < 3:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return math.exp(mean_y - slope * mean_x), -slope


def predicted(fit: tuple[float, float], tokens: float) -> float:
    """Agreement at so many tokens by the fit."""
    return 1 - fit[0] * tokens ** -fit[1]


def write(folder: Path, kind: str, drafter, verifier: Checkpoint, corpus: Corpus, options: dict, command: str,
          note: str = "") -> None:
    """Writes README.md into the drafter's folder."""
    history = history_of(folder)
    last = history[-1]
    shape = asdict(drafter.shape)
    parameters = sum(parameter.numel() for parameter in drafter.parameters())
    bytes_ = (folder / "model.safetensors").stat().st_size
    texts = list(corpus.texts())
    kinds = Counter(text.prompt.kind for text in texts)
    prompts = len({tuple(text.ids[: text.prompt_tokens]) for text in texts})
    answered = sum(len(text.ids) - text.prompt_tokens for text in texts)
    what = {
        "hidden": "One decoder layer over a token's embedding and the verifier's hidden row before it; embedding and head are the verifier's.",
        "eagle3": "An EAGLE-3 head: one decoder layer over a token's embedding and three inner rows of the verifier before it, with a head "
        "of its own over the verifier's frequent tokens; the embedding is the verifier's.",
        "plain": "A small llama of its own; its embedding, which is its head too, began as the principal part of the verifier's.",
    }[kind]
    rows = [
        f"| {entry['tokens_seen']:,} | {_ranks(entry['by_depth'][0])} | {_ranks(entry['by_depth'][-1])} | "
        + " | ".join(f"{value:.2f}" for value in entry["simulated_aal"].values())
        + f" | {entry['rows']:,} |"
        for entry in history
    ]
    shapes = " | ".join(last["simulated_aal"])
    initial_rows = min(initial.ROWS, answered)
    guessed = f"Before any token is seen it is a layer of the verifier (the last, unless told otherwise), whose input is guessed by least squares over {initial_rows:,} tokens."
    begins = "Before any token is seen all but its embedding is random." if kind == "plain" else guessed
    compared = "the tokens that it knows" if drafter.is_reduced else f"a trimmed head and {options['others']:,} others"
    fit = fitted(history)
    if fit is None:
        curve = "Fewer than three measurements: nothing is fitted."
    else:
        ten = 10 * last["tokens_seen"]
        curve = (
            f"By least squares over the measurements after the first tenth, the share of tokens that differ falls as tokens seen to the power "
            f"{-fit[1]:.3f}. **Extrapolated, not measured**: top-1 agreement of {predicted(fit, ten):.2f} after ten times as many tokens "
            f"({ten:,}), if they are as new to it as these were. The fall of the learning rate is part of this curve."
        )
    trimmed = []
    for size in (8192, 16384):
        if size < shape["vocabulary"]:
            kept = trim.frequent_tokens(corpus, verifier.vocabulary.end_ids, shape["vocabulary"], size)
            trimmed.append(f"{100 * trim.coverage(corpus, kept):.1f} % by {size:,}")
    text = f"""# A drafter for {verifier.name}

{what} Made by `yggc distill`; it can draft for this verifier alone, and changes nothing of what the verifier says.

| | |
|---|---|
| kind | {kind} |
| sizes | width {shape['width']}, {shape['layers']} layer(s), {shape['heads']} heads, {shape['kv_heads']} of keys, {shape['head_width']} wide, feed-forward {shape['feed_forward']} |
| parameters | {parameters:,} in bfloat16, {bytes_:,} bytes |
| licence | {verifier.licence}, as the verifier's |

## Data

Written by the verifier: {answered:,} tokens in {len(texts):,} answers to {prompts:,} prompts, half of them greedy, half sampled at temperature 1 from
the 64 best tokens. Prompts: {', '.join(f'{kind} {count}' for kind, count in kinds.most_common())} (`given`: from files; `written`: by the verifier;
`turns`: the second question of a conversation; the others by template). No person's text but the prompts' own was used. One prompt of {VALIDATION_SHARE} is held back with
its answers and judges. Sequences that share 13 tokens in a row with a prompt of {_excluded(corpus)} were dropped.

The verifier's most frequent tokens (`frequent_tokens.json`, by which `yggc profile` trims heads) say most of held-back answers: {', '.join(trimmed) or 'the vocabulary is too small to trim'}.

## Recipe

`{command}`

{note}

AdamW (0.9, 0.95; decay {options['decay']}), learning rate {options['rate']:g} after {options['warm_up']} steps, then cosine; {options['rows']:,} rows a step; the verifier's 16 best tokens as a distribution
and the best of them alone ({options['hard']:g} of the loss), against {compared}; {options['passes']} passes unrolled, each weighing {options['fade']:g} of the one before.

## Agreement with the verifier

On answers that were held back, by tokens seen in training (repetitions counted): the share of tokens where the verifier's own is among the drafter's best 1 / 4 / 8, for draft
tokens 1 and {len(last['by_depth'])} after a root, the text before them given; then tokens a step (the verifier's own included) of simulated trees that are verified whole. {begins}

| tokens seen | token 1 | token {len(last['by_depth'])} | {shapes} | judged on |
|---|---|---|{'---|' * len(last['simulated_aal'])}---|
{chr(10).join(rows)}

{curve}
"""
    (folder / "README.md").write_text(text.replace("\n\n\n\n", "\n\n"), encoding="utf-8")


def _ranks(shares: dict) -> str:
    return " / ".join(f"{share:.3f}" for share in shares.values())


def _excluded(corpus: Corpus) -> str:
    names = corpus.header().get("excluded") or []
    return ", ".join(f"`{name}`" for name in names) or "no file (none was given)"
