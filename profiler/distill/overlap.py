"""Keeps benchmarks out of the training data: token sequences that share 13 tokens in a row with a prompt that is only for judging."""

import json
from pathlib import Path

from .refusal import Refusal, require

GRAM = 13
"""Tokens in a row that two texts must share to overlap."""


def texts_of(file: Path) -> list[str]:
    """The texts of a JSON-lines file of prompts: a line's `text`, `prompt`, or all of its `turns`."""
    texts = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"cannot read the prompts `{file}`: {error}; check the path") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise Refusal(f"`{file}`, line {number}: expected a JSON object, found {error}") from error
        found = row.get("turns") or [row.get("text") or row.get("prompt")] if isinstance(row, dict) else [None]
        require(
            all(isinstance(text, str) for text in found),
            f"`{file}`, line {number}: expected an object with `text`, `prompt` or `turns`",
        )
        texts += found
    return texts


class Overlap:
    """The 13-grams of excluded texts."""

    def __init__(self, vocabulary, files: list[Path]):
        self.grams: set[tuple[int, ...]] = set()
        for file in files:
            for text in texts_of(file):
                self.grams.update(_grams(vocabulary.encode(text)))

    def hits(self, ids: list[int]) -> bool:
        """Whether the tokens hold a 13-gram of an excluded text."""
        return bool(self.grams) and any(gram in self.grams for gram in _grams(ids))


def _grams(ids: list[int]):
    return (tuple(ids[at : at + GRAM]) for at in range(len(ids) - GRAM + 1))
