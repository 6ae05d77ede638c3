#!/usr/bin/env python3
"""Why copies are accepted less above temperature 0: `benches/entropy.py MODEL.gguf TOKENIZER PROMPTS.jsonl [--temperatures 0 1]`.

Answers prompts by the training program's forward (`profiler/distill`, which TOKENIZER, a folder that `yggc distill` wrote, is for) and
looks at every place what a copy would have proposed: the continuation of the latest occurrence of the last three tokens, else two, else
one. Prints a line of JSON for each temperature: the entropy and the largest probability of the model's distribution, the share of places
with a copy and with a right one, and the probability that the model gave to the copied token (0 without one), all means. What is drawn
with probability p is at best drafted with p, whatever the noise: a copy does not know the model's other candidates.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "profiler"))

from distill import checkpoint
from distill.llama import Verifier

LONGEST_PROMPT = 400
"""Tokens of a prompt, its last ones, so that prompts are read in little time."""


def copied(ids):
    """What follows the latest earlier occurrence of the last tokens, three of them or fewer; None if there is none."""
    for length in (3, 2, 1):
        for at in range(len(ids) - length - 1, -1, -1):
            if ids[at : at + length] == ids[-length:]:
                return ids[at + length]
    return None


def places(verifier, prompt, ends, temperature, tokens, draws):
    """Of every place of an answer: entropy in nats, largest probability, whether there is a copy, whether it is right, its probability."""
    cache, ids = verifier.cache(1), list(prompt)
    row = verifier.prefill(torch.tensor([prompt]), cache, 0)[0, -1:]
    for _ in range(tokens):
        logs = (verifier.logits(row)[0] / (temperature or 1.0)).log_softmax(-1)
        probabilities = logs.exp()
        token = int(torch.multinomial(probabilities, 1, generator=draws)) if temperature else int(logs.argmax())
        copy = copied(ids)
        of_copy = 0.0 if copy is None else float(probabilities[copy])
        yield float(-(probabilities * logs).nansum()), float(probabilities.max()), copy is not None, copy == token, of_copy
        ids.append(token)
        if token in ends:
            return
        row = verifier.decode(torch.tensor([token]), torch.tensor([len(ids) - 1]), cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("-n", "--tokens", type=int, default=32)
    parser.add_argument("--every", type=int, default=2, help="one prompt of so many")
    options = parser.parse_args()
    model = checkpoint.read(options.model, options.tokenizer)
    verifier = Verifier(model, torch.bfloat16)
    asked = [json.loads(line)["turns"][:1] for line in options.prompts.read_text(encoding="utf-8").splitlines()]
    prompts = [model.vocabulary.chat(turns)[-LONGEST_PROMPT:] for turns in asked[:: options.every]]
    for temperature in options.temperatures:
        draws = torch.Generator().manual_seed(1)
        ends = set(model.vocabulary.end_ids)
        found = [place for prompt in prompts for place in places(verifier, prompt, ends, temperature, options.tokens, draws)]
        names = ("entropy_nats", "largest_probability", "copied", "copy_right", "copy_probability")
        means = {name: sum(column) / len(found) for name, column in zip(names, zip(*found, strict=True), strict=True)}
        print(json.dumps({"temperature": temperature, "tokens": len(found), **means}), flush=True)


if __name__ == "__main__":
    main()
