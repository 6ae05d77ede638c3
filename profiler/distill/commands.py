"""The command line of `python3 -m distill`."""

import argparse
import ctypes
import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from . import card, checkpoint, trim
from . import train as training
from .checkpoint import Checkpoint
from .corpus import Corpus
from .eagle3 import Eagle3Drafter, inner_layers
from .generate import Options, generate
from .hidden import HiddenDrafter
from .initial import start_from_layer
from .llama import Verifier
from .overlap import GRAM, Overlap
from .plain import PlainDrafter
from .refusal import Refusal, require


def main(arguments: list[str]) -> int:
    """Runs a command; its exit code: 0 done, 3 bad input. argparse ends with 2 for bad usage."""
    given = _parser().parse_args(arguments)
    torch.set_num_threads(given.threads)
    _keep_memory()
    try:
        given.run(given)
    except Refusal as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("error: interrupted; the same command goes on from here", file=sys.stderr)
        return 1
    return 0


def _keep_memory() -> None:
    """Tells glibc to keep freed memory: else every large tensor is mapped anew, and touching its pages takes longer than its arithmetic."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((-4, 0), (-1, 1 << 30), (-2, 64 << 20)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD of malloc.h
            libc.mallopt(option, value)
    except (OSError, AttributeError):
        say("this is no glibc: large tensors may be slow")


def say(text: str) -> None:
    """Prints a line at once."""
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="distill", description="makes a drafter for a verifier")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads of PyTorch [all processors]")
    commands = parser.add_subparsers(required=True)

    def command(name: str, what: str, run):
        made = commands.add_parser(name, help=what)
        made.set_defaults(run=run)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        made.add_argument("--device", choices=("cpu", "cuda"), default=device, help="where tensors are [a GPU if there is one]")
        made.add_argument("-m", "--model", type=Path, required=True, help="the verifier: a .gguf file or a Hugging Face folder")
        made.add_argument("--tokenizer", type=Path, help="folder of its tokenizer.json [the verifier's]; GGUF files need one, which `yggc distill` writes")
        return made.add_argument

    add = command("make", "all of it: corpus, drafter, card; goes on where it was ended", _make)
    add("-o", "--output", type=Path, required=True, help="folder of the drafter; all else is in its folder `work`")
    add("--part", type=Path, action="append", default=[], help="a corpus to join instead of writing one; may be repeated")
    _add_generation(add)
    _add_training(add)
    add = command("generate", "the verifier writes a corpus", _generate)
    add("--corpus", type=Path, required=True)
    _add_generation(add)
    add("--kind", choices=KINDS, default="hidden", help="of drafter that is to learn from it")
    add("--seed", type=int, default=1)
    add = command("train", "a drafter learns from a corpus", _train)
    add("--corpus", type=Path, required=True)
    add("-o", "--output", type=Path, required=True, help="folder of the drafter")
    _add_training(add)
    add = command("score", "what `yggc score --json` prints of token ids, by this program's own forward", _score)
    add("--token-ids", type=Path, required=True, help="a JSON list of ids")
    add = command("overlap", "refuses a corpus that shares 13 tokens in a row with prompts that are only for judging", _overlap)
    add("--corpus", type=Path, required=True)
    add("--exclude", type=Path, action="append", required=True, help="JSON lines of prompts; may be repeated")
    add = command("card", "the drafter's card, out of its history", _card)
    add("--corpus", type=Path, required=True)
    add("-o", "--output", type=Path, required=True, help="folder of the drafter")
    add("--kind", choices=KINDS, default="hidden")
    add("--command", default="", help="what the card says made it")
    add("--note", default="", help="what else the card says about how it was made")
    return parser


KINDS = ("hidden", "eagle3", "plain")


def _new_drafter(kind: str, model: Checkpoint, columns: list[int]):
    """A drafter that has learned nothing yet, for a trimmed head of `columns`."""
    if kind == "eagle3":
        return Eagle3Drafter.like(model, columns)
    return (HiddenDrafter if kind == "hidden" else PlainDrafter).like(model)


def _inner_of(kind: str, model: Checkpoint) -> tuple[int, ...]:
    """The inner rows of the verifier that a kind learns from instead of the last."""
    return inner_layers(model.shape.layers) if kind == "eagle3" else ()


def _add_generation(add) -> None:
    add("--tokens", type=int, default=1_000_000, help="tokens to write")
    add("--batch", type=int, default=128, help="sequences at once")
    add("--answer", type=int, default=256, help="tokens of an answer at most")
    add("--prompts", type=Path, action="append", default=[], help="JSON lines of prompts to begin with; may be repeated")
    add("--exclude", type=Path, action="append", default=[], help="JSON lines of prompts that must not be in the corpus; may be repeated")


def _add_training(add) -> None:
    defaults = training.Options(tokens=0)
    add("--kind", choices=KINDS, default="hidden")
    add("--seen", type=int, help="labelled tokens to train on, repetitions counted [three times the corpus's]")
    add("--start", type=int, default=-1, help="layer of the verifier that a drafter of its rows begins as; negative: from the last")
    add("--trim", type=int, default=8192, help="tokens of the trimmed head that is compared at every step; all that an EAGLE-3 head knows")
    for name in TRAINED_BY:
        value = getattr(defaults, name)
        add("--" + name.replace("_", "-"), type=type(value), default=value)


TRAINED_BY = ("seed", "rows", "rate", "passes", "fade", "hard", "regression", "decay", "warm_up", "measure_every", "save_every_s", "simulated")


def _read(given) -> Checkpoint:
    return checkpoint.read(given.model, given.tokenizer)


def _generate(given) -> None:
    _write_corpus(given, _read(given), Corpus(given.corpus))


def _write_corpus(given, model: Checkpoint, corpus: Corpus) -> None:
    inner = list(_inner_of(given.kind, model))
    # A corpus smaller than one batch's answers is a trial, and need not fill one.
    batch = min(given.batch, max(16, given.tokens // 100))
    options = Options(
        tokens=given.tokens, seed=given.seed, batch=batch, answer=given.answer, prompts=given.prompts, exclude=given.exclude
    )
    corpus.agree({
        "verifier": model.name, "vocabulary": model.shape.vocabulary, "width": model.shape.width, "seed": given.seed,
        "batch": batch, "answer": given.answer, "prompts": [file.name for file in given.prompts],
        "excluded": [file.name for file in given.exclude], **({"inner": inner} if inner else {}),
    })
    if not corpus.is_enough(given.tokens):
        generate(Verifier(model, torch.bfloat16, given.device, tuple(inner)), model.vocabulary, corpus, options, say)


def _train(given) -> None:
    _train_on(given, _read(given), Corpus(given.corpus), given.output)


def _train_on(given, model: Checkpoint, corpus: Corpus, work: Path):
    inner = list(_inner_of(given.kind, model))
    found = corpus.header().get("inner", [])
    require(found == inner, f"`{corpus.folder}` has rows after the layers {found or 'all'}; expected {inner or 'all'} for --kind {given.kind}: write one for it")
    given.seen = given.seen or 3 * corpus.labelled_tokens()
    options = training.Options(tokens=given.seen, **{name: getattr(given, name) for name in TRAINED_BY})
    columns = trim.frequent_tokens(corpus, model.vocabulary.end_ids, model.shape.vocabulary, min(given.trim, model.shape.vocabulary))
    drafter = _new_drafter(given.kind, model, columns)
    trainer = training.Trainer(drafter, corpus, columns, options, work, say, given.device)
    if not trainer.resume() and given.kind != "plain":
        drafter.to("cpu")
        attending = [number for number, rule in enumerate(model.traits.layers) if rule.taps is None]
        start = attending[given.start] if given.start < 0 else given.start
        explained = start_from_layer(drafter, model, Verifier(model, torch.bfloat16, given.device), corpus, start)
        say(f"begins as layer {start} of the verifier, whose input is guessed with {explained:.2f} of its variance explained")
        drafter.to(given.device)
    trainer.run()
    if given.kind == "plain":
        model.vocabulary.save(work)
        if given.model.suffix == ".gguf":
            drafter.save_gguf(work / "drafter.gguf", given.model)
    return drafter, options


def _make(given) -> None:
    model, work = _read(given), given.output / "work"
    corpus = Corpus(work / "corpus")
    if given.part:
        _join_parts(given, model, corpus)
    else:
        _write_corpus(given, model, corpus)
    drafter, options = _train_on(given, model, corpus, work / "training")
    for file in sorted((work / "training").iterdir()):
        if file.name != "training.pt":
            shutil.copyfile(file, given.output / file.name)
    trim.write(given.output, corpus)
    source = " ".join("--corpus PART" for _ in given.part) or f"--tokens {given.tokens}"
    command = f"yggc distill -m MODEL -o DIR --kind {given.kind} {source} --seen {given.seen} --seed {given.seed}"
    command += "".join(f" --exclude {file.name}" for file in given.exclude)
    card.write(given.output, given.kind, drafter, model, corpus, asdict(options), command)
    say(f"the drafter is in {given.output}, with its card, README.md")


def _join_parts(given, model: Checkpoint, corpus: Corpus) -> None:
    corpus.join([Corpus(folder) for folder in given.part])
    corpus.agree({"verifier": model.name, "vocabulary": model.shape.vocabulary, "width": model.shape.width})
    _refuse_overlap(model, corpus, given.exclude)


def _score(given) -> None:
    model = _read(given)
    nll, best = Verifier(model, torch.float32).score(json.loads(given.token_ids.read_text(encoding="utf-8")))
    print(json.dumps({"mean_nll": float(nll.mean()), "nll": nll.tolist(), "argmax": best.tolist()}))


def _overlap(given) -> None:
    _refuse_overlap(_read(given), Corpus(given.corpus), given.exclude)


def _refuse_overlap(model: Checkpoint, corpus: Corpus, exclude: list[Path]) -> None:
    overlap = Overlap(model.vocabulary, exclude)
    texts = list(corpus.texts())
    hits = sum(overlap.hits(text.ids) for text in texts)
    require(hits == 0, f"{hits} of {len(texts)} sequences share {GRAM} tokens in a row with an excluded prompt; write the corpus with --exclude")
    say(f"none of {len(texts)} sequences shares {GRAM} tokens in a row with an excluded prompt")


def _card(given) -> None:
    model, corpus = _read(given), Corpus(given.corpus)
    columns = training.Trainer.saved_columns(given.output)
    drafter = _new_drafter(given.kind, model, columns)
    trainer = training.Trainer(drafter, corpus, columns, training.Options(tokens=0), given.output, say)
    trainer.resume()
    card.write(given.output, given.kind, drafter, model, corpus, trainer.saved_options, given.command, given.note)
