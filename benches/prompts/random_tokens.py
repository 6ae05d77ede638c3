#!/usr/bin/env python3
"""Writes prompts of random words and characters, which no drafter has reason to do well on: always the same ones.

usage: benches/prompts/random_tokens.py > benches/prompts/random_tokens.jsonl
"""

import json
import random
import string
import sys

SEED = 20
# Prompts of every kind, and characters of each at least.
EACH, LENGTH = 3, 600
# Few words in random order: what follows an earlier occurrence of the last words is no hint, but there always is one.
FEW = "stone lamp seven under green walk paper never".split()
# Beyond ASCII too, so that tokens of single bytes occur.
SYMBOLS = string.ascii_letters + string.digits + string.punctuation + "äßéñøŁжλ中の☂"


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    generator = random.Random(SEED)

    def one_of(choices):
        # Of the generator's methods, only this one promises the same numbers in every version.
        return choices[int(generator.random() * len(choices))]

    def some(choices, least, most):
        return "".join(one_of(choices) for _ in range(one_of(range(least, most + 1))))

    def syllables():
        return "".join(one_of("bdfgklmnprstvz") + one_of("aeiou") for _ in range(one_of(range(1, 5))))

    kinds = {
        "random_words": syllables,
        "random_letters": lambda: some(string.ascii_lowercase, 1, 12),
        "random_digits": lambda: some(string.digits, 1, 9),
        "random_symbols": lambda: some(SYMBOLS, 1, 12),
        "few_words": lambda: one_of(FEW),
    }
    for kind, word in kinds.items():
        for _ in range(EACH):
            text = word()
            while len(text) < LENGTH:
                text += " " + word()
            print(json.dumps({"kind": kind, "text": text}, ensure_ascii=False))


if __name__ == "__main__":
    main()
