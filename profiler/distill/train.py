"""Trains a drafter on a corpus: distributions of the verifier, unrolled drafts, AdamW with warm-up and cosine; resumable."""

import json
import math
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from . import agreement
from .corpus import Corpus, Sequence
from .loss import head_loss
from .refusal import Refusal, require

SHARDS_AT_ONCE = 8
"""Shards in memory."""

LENGTHS = 64
"""Batches are as long as a multiple of this: for every shape of a product that is new, oneDNN makes code."""


@dataclass(frozen=True)
class Options:
    """How to train. Tokens count as seen when they are labelled and have been in a step's batch, once for all passes."""

    tokens: int
    seed: int = 1
    rows: int = 2048
    """Rows of a step's batch, padding included."""
    rate: float = 5e-4
    warm_up: int = 40
    """Steps until the learning rate is whole."""
    passes: int = 2
    """Draft tokens after a root that training unrolls."""
    fade: float = 0.6
    """Weight of a pass's loss against that of the pass before."""
    hard: float = 0.3
    """Weight of the verifier's best token alone, in addition to its 16 best as a distribution."""
    others: int = 1024
    """Tokens outside the trimmed head that are drawn for every step, so that the whole head stays usable."""
    regression: float = 0.0
    """Weight of the distance between the drafter's rows and the verifier's, where the drafter makes such rows."""
    decay: float = 0.01
    held_back_rows: int = 10_000
    """Labelled rows that agreement is measured on, at most."""
    simulated: int = 10
    """Held-back sequences that trees are simulated on."""
    measure_every: int = 250_000
    """Tokens seen between measurements."""
    save_every_s: int = 120


class Trainer:
    """A drafter on its way. `columns` are the ids of the trimmed head that training always compares; of a drafter that knows no others
    all that is compared."""

    def __init__(self, drafter, corpus: Corpus, columns: list[int], options: Options, folder: Path, say, device: str = "cpu"):
        self.drafter, self.corpus, self.options, self.folder, self.say = drafter.to(device), corpus, options, folder, say
        self.device = device
        vocabulary = drafter.shape.vocabulary
        self.columns = torch.tensor(columns)
        inside = torch.zeros(vocabulary, dtype=torch.bool)
        inside[self.columns] = True
        self.outside = torch.empty(0, dtype=torch.long) if drafter.is_reduced else (~inside).nonzero()[:, 0]
        require(not (drafter.is_reduced and options.regression), "an EAGLE-3 head's rows are not held to the verifier's; leave out --regression")
        flat = [parameter for parameter in drafter.parameters() if parameter.dim() < 2]
        matrices = [parameter for parameter in drafter.parameters() if parameter.dim() >= 2]
        groups = [{"params": matrices, "weight_decay": options.decay}, {"params": flat, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.95), fused=True)
        self.step = self.seen = 0
        self.epoch, self.done_shards = 0, []
        self.history: list[dict] = []
        self.losses: list[list[float]] = []
        self.saved_options = asdict(options)
        self.draw = torch.Generator().manual_seed(options.seed)

    def run(self) -> None:
        """Trains until `options.tokens` have been seen; writes the folder at every measurement and at the end."""
        options, started, saved, seen_before = self.options, time.monotonic(), time.monotonic(), self.seen
        held_back = self._held_back()
        next_measure = (self.seen // options.measure_every + 1) * options.measure_every
        if not self.history:
            self._measure(held_back)
        while self.seen < options.tokens:
            for batch in self._batches():
                self._learn(batch)
                now = time.monotonic()
                if self.step % 20 == 0:
                    means = [sum(column) / len(column) for column in zip(*self.losses[-20:], strict=True)]
                    rate = (self.seen - seen_before) / (now - started)
                    said = " ".join(f"{mean:.3f}" for mean in means)
                    self.say(f"step {self.step}, {self.seen} of {options.tokens} tokens, {rate:.0f} a second, loss {said}")
                if self.seen >= next_measure:
                    self._measure(held_back)
                    next_measure += options.measure_every
                if now - saved > options.save_every_s:
                    self.save()
                    saved = now
                if self.seen >= options.tokens:
                    break
        if self.history[-1]["tokens_seen"] != self.seen:
            self._measure(held_back)
        self.save()

    def _held_back(self) -> list[Sequence]:
        found, rows = [], 0
        for sequence in self.corpus.sequences():
            if sequence.held_back and rows < self.options.held_back_rows:
                found.append(sequence)
                rows += int((sequence.top_probabilities[:, 0] > 0).sum())
        require(bool(found), "the corpus holds no sequence back to judge by: it is too small; write more with `generate`")
        return found

    def _batches(self):
        """Batches of the shards that this epoch has not had yet: those written meanwhile come in with the next."""
        options = self.options
        shards = self.corpus.shards()
        random.Random(f"{options.seed}/{self.epoch}").shuffle(shards)
        left = [shard for shard in shards if shard.name not in self.done_shards]
        require(bool(shards), "the corpus is empty; write it with `generate`")
        for first in range(0, len(left), SHARDS_AT_ONCE):
            pool = left[first : first + SHARDS_AT_ONCE]
            sequences = [found for found in self.corpus.sequences(pool) if not found.held_back]
            sequences.sort(key=lambda found: len(found.ids))
            batches, batch = [], []
            for found in sequences:
                if batch and len(found.ids) * (len(batch) + 1) > options.rows:
                    batches.append(batch)
                    batch = []
                batch.append(found)
            batches += [batch] if batch else []
            random.Random(f"{options.seed}/{self.epoch}/{first}").shuffle(batches)
            yield from batches
            self.done_shards += [shard.name for shard in pool]
        self.epoch, self.done_shards = self.epoch + 1, []

    def _learn(self, batch: list[Sequence]) -> None:
        options = self.options
        longest = -(-max(len(found.ids) for found in batch) // LENGTHS) * LENGTHS
        tokens = torch.zeros((len(batch), longest), dtype=torch.long)
        hidden = torch.zeros((len(batch), longest, batch[0].hidden.shape[-1]))
        top_ids = torch.zeros((len(batch), longest, batch[0].top_ids.shape[-1]), dtype=torch.long)
        shares = torch.zeros(top_ids.shape)
        for row, found in enumerate(batch):
            tokens[row, : len(found.ids)] = torch.tensor(found.ids)
            hidden[row, : len(found.ids)] = found.hidden
            top_ids[row, : len(found.ids)] = found.top_ids
            shares[row, : len(found.ids)] = found.top_probabilities.float()
        tokens, hidden, top_ids, shares = (part.to(self.device) for part in (tokens, hidden, top_ids, shares))
        drawn = self.outside[torch.randperm(len(self.outside), generator=self.draw)[: options.others]]
        columns = torch.cat((self.columns, drawn)).to(self.device)
        # Each drawn token stands for so many, and is no label: it only holds its like down.
        weight = math.log(max(len(self.outside), 1) / max(len(drawn), 1))
        correction = torch.cat((torch.zeros(len(self.columns)), torch.full((len(drawn),), weight))).to(self.device)
        place = torch.full((self.drafter.shape.vocabulary,), -1)
        place[self.columns] = torch.arange(len(self.columns))
        place = place.to(self.device)

        for group in self.optimizer.param_groups:
            group["lr"] = options.rate * self._schedule()
        with torch.autocast(self.device, torch.bfloat16):
            rows = self.drafter.training_rows(tokens, hidden, options.passes)
        losses = []
        labelled = shares[:, 1:, 0] > 0
        for number, made in enumerate(rows):
            chosen = labelled.clone()
            chosen[:, :number] = False
            found = place[top_ids[:, 1:][chosen]]
            wanted = shares[:, 1:][chosen] * (found >= 0)
            mass = wanted.sum(-1, keepdim=True)
            known = mass[:, 0] > 0.05
            wanted, found = (wanted / mass.clamp_min(1e-6))[known], found[known].clamp_min(0)
            loss = head_loss(*self.drafter.headed(made[chosen][known], columns), correction, wanted, found, options.hard)
            if options.regression:
                loss = loss + options.regression * self.drafter.distance(made[chosen], hidden[:, 1:][chosen])
            losses.append(loss)
        total = sum(loss * options.fade**number for number, loss in enumerate(losses))
        self.optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        self.optimizer.step()
        self.losses = [*self.losses[-99:], [float(loss.detach()) for loss in losses]]
        self.step += 1
        self.seen += int(labelled.sum())

    def _schedule(self) -> float:
        if self.step < self.options.warm_up:
            return (self.step + 1) / self.options.warm_up
        done = min(self.seen / self.options.tokens, 1.0)
        return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))

    def _measure(self, held_back: list[Sequence]) -> None:
        self.drafter.eval()
        with torch.autocast(self.device, torch.bfloat16):
            found = agreement.measure(self.drafter, held_back, self.options.passes, self.options.simulated)
        self.drafter.train()
        self.history.append({"tokens_seen": self.seen, "step": self.step, **found.as_json()})
        self.say(f"{self.seen} tokens seen: {found}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.drafter.save(self.folder)
        lines = "".join(json.dumps(entry) + "\n" for entry in self.history)
        (self.folder / "history.jsonl").write_text(lines, encoding="utf-8")

    def save(self) -> None:
        """Writes what a later run goes on from."""
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / "training.unfinished"
        torch.save({
            "drafter": self.drafter.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step, "seen": self.seen,
            "epoch": self.epoch, "done_shards": self.done_shards, "history": self.history, "draw": self.draw.get_state(),
            "options": asdict(self.options), "columns": self.columns,
        }, unfinished)
        unfinished.rename(self.folder / "training.pt")

    @staticmethod
    def saved_columns(folder: Path) -> list[int]:
        """The trimmed head of a training that was saved."""
        file = folder / "training.pt"
        require(file.exists(), f"`{folder}` has no training.pt; expected the folder of a training")
        return torch.load(file, map_location="cpu", weights_only=True)["columns"].tolist()

    def resume(self) -> bool:
        """Goes on from what was saved, if anything was."""
        file = self.folder / "training.pt"
        if not file.exists():
            return False
        try:
            saved = torch.load(file, map_location="cpu", weights_only=True)
            self.drafter.load_state_dict(saved["drafter"])
            self.optimizer.load_state_dict(saved["optimizer"])
        except Exception as error:  # torch raises several kinds for a damaged file
            raise Refusal(f"cannot go on from `{file}`: {error}; remove it to begin again") from error
        self.step, self.seen, self.epoch = saved["step"], saved["seen"], saved["epoch"]
        self.done_shards, self.history, self.columns = saved["done_shards"], saved["history"], saved["columns"]
        self.draw.set_state(saved["draw"])
        self.saved_options = saved["options"]
        return True
