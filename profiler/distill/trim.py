"""Which tokens the verifier says, counted in its corpus: a trimmed head keeps the most frequent ones."""

import json
from collections import Counter
from pathlib import Path

from .corpus import Corpus
from .refusal import require


def _said(corpus: Corpus) -> Counter:
    """How often answers that are not held back have every token."""
    said = Counter()
    for text in corpus.texts():
        if not text.held_back:
            said.update(text.ids[text.prompt_tokens :])
    return said


def frequent_tokens(corpus: Corpus, always: list[int], vocabulary: int, count: int) -> list[int]:
    """`count` token ids, ascending: those of `always`, then by how often answers that are not held back have them, then by id."""
    require(0 < count <= vocabulary, f"a trimmed head of {count} tokens was asked for; expected 1 to {vocabulary}, the vocabulary")
    said = _said(corpus)
    ranked = sorted(range(vocabulary), key=lambda id: (id not in always, -said[id], id))
    return sorted(ranked[:count])


def coverage(corpus: Corpus, kept: list[int]) -> float:
    """The share of answers' tokens, of sequences that were held back, that a head of these tokens can say."""
    known, hits, total = set(kept), 0, 0
    for text in corpus.texts():
        if text.held_back:
            answer = text.ids[text.prompt_tokens :]
            hits += sum(id in known for id in answer)
            total += len(answer)
    return hits / max(total, 1)


def write(folder: Path, corpus: Corpus) -> None:
    """Writes the ids of all tokens that answers have, the most frequent first, for `yggc profile`, which trims heads by them."""
    said = _said(corpus)
    ranked = sorted(said, key=lambda id: (-said[id], id))
    (folder / "frequent_tokens.json").write_text(json.dumps(ranked) + "\n", encoding="utf-8")
