"""The verifier writes the corpus: answers to prompts of many kinds, many sequences at once, half greedy and half sampled."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .corpus import TOP, Corpus, Sequence, Text
from .llama import Verifier
from .overlap import Overlap, texts_of
from .refusal import Refusal
from .seeds import Prompt, Sources
from .vocabulary import Vocabulary

CANDIDATES = 64
"""Most probable tokens that are sampled from."""

PREFILL_ROWS = 4096
"""Rows of a forward over prompts, at most."""

COMPACT_BELOW = 0.85
"""Share of sequences still going under which the cache is compacted."""

MOST_PREFILLED = 32
"""Prompts of such a forward, at most."""

ROUND = 4
"""Batches whose prompts are drawn together and sorted by length, so that a batch's are alike."""

MOST_DRAWS = 256
"""Draws of a batch's prompts for a round, at most: 64 times as many as it takes. Few new ones are left then."""

WRITE_PROMPTS_EVERY = 2
"""Rounds between those before which the verifier writes prompts."""

WRITTEN_TOKENS, WRITTEN_CHARACTERS = 80, 12
"""Tokens of a prompt that the verifier writes at most, and characters of it at least."""

PASSAGE_KINDS = ("chat", "given", "qa", "steps", "written", "writing")
"""Kinds of prompts whose answers are texts to work on."""

PASSAGE_TOKENS = range(40, 240)
"""Tokens of an answer that is a text to work on."""


@dataclass(frozen=True)
class Options:
    """What to write. `prompts` and `exclude` are JSON-lines files; `batch` sequences at once, of `answer` tokens at most."""

    tokens: int
    seed: int = 1
    batch: int = 128
    answer: int = 256
    longest_prompt: int = 1152
    prompts: list[Path] = field(default_factory=list)
    exclude: list[Path] = field(default_factory=list)


class Writer:
    """Answers batches of prompts."""

    def __init__(self, verifier: Verifier, vocabulary: Vocabulary, seed: int):
        self.verifier = verifier
        self.end_ids = torch.tensor(vocabulary.end_ids, device=verifier.device)
        self.seed = seed

    def answer(self, number: int, prompts: list[list[int]], limit: int, greedy: list[bool]) -> list[Sequence]:
        """A sequence for every prompt (token ids) with at most `limit` further tokens, greedy or sampled at temperature 1 from the
        best 64. `number` makes the draws; a sequence ends with a token that ends turns, or at the limit.
        """
        verifier, device = self.verifier, self.verifier.device
        count, lengths = len(prompts), [len(prompt) for prompt in prompts]
        slots = max(lengths) + limit
        generator = torch.Generator(device).manual_seed(self.seed * 1_000_003 + number)
        tokens = torch.zeros((count, slots), dtype=torch.long, device=device)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt, device=device)
        hidden = torch.zeros((count, slots, verifier.shape.width * (1 + len(verifier.inner))), device=device)
        top_ids = torch.zeros((count, slots, TOP), dtype=torch.int32, device=device)
        top_probabilities = torch.zeros((count, slots, TOP), dtype=torch.float16, device=device)
        ends = torch.tensor(lengths, device=device)
        limits = ends + limit
        greedy = torch.tensor(greedy, device=device)
        unfinished = torch.ones(count, dtype=torch.bool, device=device)
        cache = verifier.cache(count)
        last = self._prefill(tokens[:, : max(lengths)], ends, cache, hidden)
        # The sequences that the cache holds; ended ones are stepped in vain until enough of them are worth a compaction.
        rows = torch.arange(count, device=device)
        while True:
            ids, probabilities = verifier.best(last, CANDIDATES)
            drawn = ids.gather(1, torch.multinomial(probabilities, 1, generator=generator))[:, 0]
            chosen = torch.where(greedy[rows], ids[:, 0], drawn)
            going = unfinished[rows]
            places = (rows[going], ends[rows[going]])
            tokens[places] = chosen[going]
            top_ids[places[0], places[1] - 1] = ids[going, :TOP].int()
            top_probabilities[places[0], places[1] - 1] = probabilities[going, :TOP].half()
            ends[places[0]] += 1
            unfinished[places[0]] = ~torch.isin(chosen[going], self.end_ids) & (ends[places[0]] < limits[places[0]])
            going = unfinished[rows]
            left = int(going.sum())
            if left == 0:
                break
            if left <= COMPACT_BELOW * len(rows):
                kept = going.nonzero()[:, 0]
                cache.keep(kept)
                rows, chosen = rows[kept], chosen[kept]
            positions = (ends[rows] - 1).clamp_max(slots - 1)
            last = verifier.decode(chosen, positions, cache)
            going = unfinished[rows]
            hidden[rows[going], positions[going]] = last[going]
        # Where inner rows are asked for they alone are kept.
        kept = verifier.shape.width if verifier.inner else 0
        return [
            Sequence(
                ids=tokens[row, : ends[row]].tolist(),
                prompt_tokens=lengths[row],
                greedy=bool(greedy[row]),
                prompt=Prompt("", ()),
                hidden=hidden[row, : ends[row], kept:].cpu(),
                top_ids=top_ids[row, : ends[row]].cpu(),
                top_probabilities=top_probabilities[row, : ends[row]].cpu(),
            )
            for row in range(count)
        ]

    def _prefill(self, prompts: torch.Tensor, ends: torch.Tensor, cache, hidden: torch.Tensor) -> torch.Tensor:
        """Forwards prompts [B, T]; fills hidden rows and gives those of the prompts' last tokens [B, D]."""
        count, first = len(prompts), 0
        cache.hold(prompts.shape[1])
        while first < count:
            # As many as make few rows; neighbouring prompts are of about the same length.
            block = max(1, PREFILL_ROWS // int(ends[first : first + MOST_PREFILLED].max()))
            rows = slice(first, min(first + min(block, MOST_PREFILLED), count))
            longest = int(ends[rows].max())
            hidden[rows, :longest] = self.verifier.prefill(prompts[rows, :longest], cache, first)
            first = rows.stop
        return hidden[torch.arange(count, device=hidden.device), ends - 1]


def generate(verifier: Verifier, vocabulary: Vocabulary, corpus: Corpus, options: Options, say=print) -> None:
    """Writes shards until the corpus has `options.tokens` answered tokens, and one sequence to judge by. Goes on where an earlier run ended."""
    overlap = Overlap(vocabulary, options.exclude)
    writer = Writer(verifier, vocabulary, options.seed)
    given = [Prompt("given", (text,)) for file in options.prompts for text in texts_of(file)]
    total, started, made = corpus.labelled_tokens(), time.monotonic(), 0
    number = len(corpus.shards())
    answers: list[tuple[Prompt, str]] = []
    asked: set[tuple[str, ...]] = set()
    read = 0
    has_held_back = any(text.held_back for text in corpus.texts())
    while total < options.tokens or not has_held_back:
        this_round, place = divmod(number, ROUND)
        if place == 0 or made == 0:
            if this_round % WRITE_PROMPTS_EVERY == 0:
                _write_prompts(writer, vocabulary, corpus.folder, this_round, options.batch)
            for text in corpus.texts(corpus.shards()[read : this_round * ROUND]):
                _note_answer(answers, vocabulary, text)
                asked.add(text.prompt.turns)
            read = this_round * ROUND
            written = _written(corpus.folder, this_round)
            sources = Sources(options.seed, given, written, answers)
            prompts = _prompts_of_round(this_round, sources, vocabulary, overlap, options, asked)
        batch = prompts[place * options.batch : (place + 1) * options.batch]
        greedy = [place % 2 == 0 for place in range(len(batch))]
        sequences = writer.answer(number, [ids for _, ids in batch], options.answer, greedy)
        kept = []
        for (prompt, _), sequence in zip(batch, sequences, strict=True):
            sequence.prompt = prompt
            if not overlap.hits(sequence.ids):
                kept.append(sequence)
        corpus.write(number, kept)
        has_held_back = has_held_back or any(sequence.held_back for sequence in kept)
        new = sum(int((sequence.top_probabilities[:, 0] > 0).sum()) for sequence in kept)
        total, made, number = total + new, made + new, number + 1
        rate = made / (time.monotonic() - started)
        say(f"corpus {total} of {options.tokens} tokens, {rate:.0f} a second, {len(sequences) - len(kept)} sequences overlapped")


def _written(folder: Path, this_round: int) -> list[Prompt]:
    """The prompts that the verifier wrote before a round."""
    found = []
    for file in sorted(folder.glob("written-*.json"))[: this_round // WRITE_PROMPTS_EVERY + 1]:
        found += [Prompt("written", (text,)) for text in json.loads(file.read_text(encoding="utf-8"))]
    return found


def _prompts_of_round(
    this_round: int, sources: Sources, vocabulary: Vocabulary, overlap: Overlap, options: Options, asked: set[tuple[str, ...]]
) -> list[tuple[Prompt, list[int]]]:
    """The prompts of a round's batches and their token ids, shortest first: a function of the seed and the rounds before.

    None of `asked` is among them, and none twice: of a prompt's greedy answer there is but one."""
    found, asked = [], set(asked)
    for number in range(MOST_DRAWS):
        for prompt in sources.batch((this_round, number), options.batch):
            if prompt.turns in asked:
                continue
            asked.add(prompt.turns)
            ids = vocabulary.chat(list(prompt.turns))
            if len(ids) <= options.longest_prompt and not overlap.hits(ids):
                found.append((prompt, ids))
        if len(found) >= ROUND * options.batch:
            return sorted(found[: ROUND * options.batch], key=lambda pair: len(pair[1]))
    raise Refusal(
        f"{len(asked)} prompts were asked or are too long, and {len(found)} of the {ROUND * options.batch} of a round are new; "
        "give more by --prompts, or train on what there is"
    )


def _note_answer(answers: list[tuple[Prompt, str]], vocabulary: Vocabulary, found: Text) -> None:
    """Notes an answer that later prompts can be made from: a whole one of some length, of a prompt that is not held back."""
    length = len(found.ids) - found.prompt_tokens
    whole = found.ids[-1] in vocabulary.end_ids
    if whole and length in PASSAGE_TOKENS and found.prompt.kind in PASSAGE_KINDS and not found.held_back:
        answers.append((found.prompt, vocabulary.decode(found.ids[found.prompt_tokens :])))


def _write_prompts(writer: Writer, vocabulary: Vocabulary, folder: Path, this_round: int, count: int) -> None:
    """Has the verifier write prompts, by giving it the user's turn, unless it has before this round."""
    file = folder / f"written-{this_round:05}.json"
    if file.exists():
        return
    opened = vocabulary.opened_turn()
    sequences = writer.answer(-1 - this_round, [opened] * count, WRITTEN_TOKENS, [False] * count)
    texts = {
        vocabulary.decode(sequence.ids[len(opened) :]).strip(): None
        for sequence in sequences
        if sequence.ids[-1] in vocabulary.end_ids
    }
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps([text for text in texts if len(text) >= WRITTEN_CHARACTERS]), encoding="utf-8")
    unfinished.rename(file)
