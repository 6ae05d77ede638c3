"""The corpus on disk: shards of sequences with what the verifier said after each token, and the split held back for validation.

A shard is a safetensors file; N rows are the tokens of its S sequences, one after the other:
`tokens` [N], `starts` [S + 1], `prompt_tokens` [S], `greedy` [S], `hidden` [N, C] float16 (times `hidden_scale`), `top_ids` [N, 16] and
`top_probabilities` [N, 16] float16, all of the verifier after that token; probabilities are zero where it was not asked, as in prompts and
after a sequence's last token.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from .refusal import Refusal, require
from .seeds import Prompt

TOP = 16
"""Most probable tokens that are kept of a distribution."""

SHARED = ("verifier", "vocabulary", "width", "inner")
"""What parts of a corpus have in common; `inner` are the layers after which rows are kept, none of the last's."""

VALIDATION_SHARE = 20
"""One prompt of so many is held back."""


def is_held_back(prompt: list[int]) -> bool:
    """Whether sequences after a prompt are for validation alone. A prompt is on one side however often it is answered."""
    digest = hashlib.blake2b(numpy.array(prompt, dtype="<i4").tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % VALIDATION_SHARE == 0


@dataclass
class Text:
    """A prompt with its answer, the first `prompt_tokens` of `ids` being the prompt."""

    ids: list[int]
    prompt_tokens: int
    greedy: bool
    prompt: Prompt

    @property
    def held_back(self) -> bool:
        """Whether it is for validation alone."""
        return is_held_back(self.ids[: self.prompt_tokens])


@dataclass
class Sequence(Text):
    """A text with a row of `hidden`, `top_ids` and `top_probabilities` for every token."""

    hidden: torch.Tensor
    top_ids: torch.Tensor
    top_probabilities: torch.Tensor


class Corpus:
    """A folder of shards that one verifier wrote."""

    def __init__(self, folder: Path):
        self.folder = folder

    def agree(self, made_from: dict) -> None:
        """Notes what the corpus is made from, or refuses to go on with one that was made from something else."""
        self.folder.mkdir(parents=True, exist_ok=True)
        header = self.folder / "corpus.json"
        if not header.exists():
            header.write_text(json.dumps(made_from, indent=1) + "\n", encoding="utf-8")
            return
        found = self.header()
        for key, expected in made_from.items():
            require(
                found.get(key) == expected,
                f"`{header}` was made with {key} {found.get(key)!r}, and {expected!r} is asked for; give the same, or another folder",
            )

    def header(self) -> dict:
        """What the corpus is made from."""
        try:
            return json.loads((self.folder / "corpus.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise Refusal(f"`{self.folder}` is no corpus: {error}; write one with `generate`") from error

    def shards(self) -> list[Path]:
        """The shards, oldest first."""
        return sorted(self.folder.glob("shard-*.safetensors"))

    def write(self, number: int, sequences: list[Sequence]) -> None:
        """Writes shard `number`, whole or not at all."""
        hidden = torch.cat([sequence.hidden for sequence in sequences]).float()
        scale = torch.tensor(max(1.0, float(hidden.abs().max()) / 30000.0))
        lengths = torch.tensor([0] + [len(sequence.ids) for sequence in sequences])
        tensors = {
            "tokens": torch.tensor([id for sequence in sequences for id in sequence.ids], dtype=torch.int32),
            "starts": lengths.cumsum(0),
            "prompt_tokens": torch.tensor([sequence.prompt_tokens for sequence in sequences]),
            "greedy": torch.tensor([sequence.greedy for sequence in sequences], dtype=torch.uint8),
            "hidden": (hidden / scale).half(),
            "hidden_scale": scale,
            "top_ids": torch.cat([sequence.top_ids for sequence in sequences]).int(),
            "top_probabilities": torch.cat([sequence.top_probabilities for sequence in sequences]).half(),
        }
        prompts = json.dumps([[sequence.prompt.kind, *sequence.prompt.turns] for sequence in sequences])
        file = self.folder / f"shard-{number:05}.safetensors"
        unfinished = file.with_suffix(".unfinished")
        save_file(tensors, unfinished, metadata={"prompts": prompts})
        unfinished.rename(file)

    def join(self, parts: list["Corpus"]) -> None:
        """Makes this the corpus of all shards of `parts`, in their order: by hard links, or by copies where folders are on other file systems.

        Raises Refusal unless one verifier wrote all parts, each by a seed of its own. Goes on where an earlier call ended.
        """
        headers = [part.header() for part in parts]
        for key in SHARED:
            for part, header in zip(parts, headers, strict=True):
                expected = headers[0].get(key)
                require(
                    header.get(key) == expected,
                    f"`{part.folder}` was made with {key} {header.get(key)!r}, `{parts[0].folder}` with {expected!r}; give parts of one verifier",
                )
        seeds = [header.get("seed") for header in headers]
        require(len(set(seeds)) == len(seeds), f"the parts were made with the seeds {seeds}; expected each to have its own, or they hold the same")
        joined = {key: headers[0][key] for key in SHARED if key in headers[0]}
        excluded = [name for name in headers[0].get("excluded", []) if all(name in header.get("excluded", []) for header in headers)]
        self.agree({**joined, "seeds": seeds, "excluded": excluded})
        for number, shard in enumerate(shard for part in parts for shard in part.shards()):
            file = self.folder / f"shard-{number:05}.safetensors"
            if not file.exists():
                unfinished = file.with_suffix(".unfinished")
                unfinished.unlink(missing_ok=True)
                try:
                    os.link(shard, unfinished)
                except OSError:
                    shutil.copyfile(shard, unfinished)
                unfinished.rename(file)

    def labelled_tokens(self) -> int:
        """Tokens after which the verifier was asked."""
        total = 0
        for file in self.shards():
            with safe_open(file, "pt") as shard:
                total += int((shard.get_tensor("top_probabilities")[:, 0] > 0).sum())
        return total

    def is_enough(self, tokens: int) -> bool:
        """Whether the verifier was asked after so many tokens, and something is held back to judge by."""
        return self.labelled_tokens() >= tokens and any(text.held_back for text in self.texts())

    def texts(self, files: list[Path] | None = None):
        """The texts alone, of the given shards or of all."""
        for file in self.shards() if files is None else files:
            with safe_open(file, "pt") as shard:
                yield from _texts(shard)

    def sequences(self, files: list[Path] | None = None):
        """Every sequence of the given shards, by default of all."""
        for file in self.shards() if files is None else files:
            with safe_open(file, "pt") as shard:
                texts = list(_texts(shard))
                hidden, scale = shard.get_tensor("hidden"), shard.get_tensor("hidden_scale")
                top_ids, top_probabilities = shard.get_tensor("top_ids"), shard.get_tensor("top_probabilities")
            at = 0
            for text in texts:
                rows = slice(at, at + len(text.ids))
                at = rows.stop
                yield Sequence(
                    **vars(text),
                    hidden=hidden[rows].float() * scale,
                    top_ids=top_ids[rows],
                    top_probabilities=top_probabilities[rows],
                )


def _texts(shard) -> list[Text]:
    tokens, starts = shard.get_tensor("tokens").tolist(), shard.get_tensor("starts").tolist()
    prompts, greedy = json.loads(shard.metadata()["prompts"]), shard.get_tensor("greedy").tolist()
    lengths = shard.get_tensor("prompt_tokens").tolist()
    return [
        Text(tokens[starts[at] : starts[at + 1]], lengths[at], bool(greedy[at]), Prompt(kind, tuple(turns)))
        for at, (kind, *turns) in enumerate(prompts)
    ]
