#!/usr/bin/env python3
"""Compares how native and int8 activations score texts with products of float32 numbers.

Each text is scored three times by `yggc score`: with int8 activations, with native ones on the instruction set at hand, and with native ones
on the portable tier, which multiplies float32 numbers: the judge. Prints the mean negative log-likelihood of each, and the share of tokens
whose most probable id is the judge's. Writes one JSON line for every text and model to --out; --summary prints the table of such a file.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ARMS = {"int8": [], "native": [], "float32": ["--isa", "portable"]}
JUDGE = "float32"


def score(arguments, model, path, arm):
    activations = "int8" if arm == "int8" else "native"
    command = [arguments.yggc, "score", "-m", model, "--text-file", path, "--json", "--activations", activations, *ARMS[arm]]
    tokens = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["tokens"]
    return {"nll": [token["nll"] for token in tokens], "argmax": [token["argmax"] for token in tokens]}


def measure(arguments):
    with open(arguments.texts, encoding="utf-8") as lines:
        texts = ["\n\n".join(json.loads(line)["turns"]) for line in lines][:: arguments.every]
    with open(arguments.out, "w", encoding="utf-8") as out, tempfile.TemporaryDirectory() as folder:
        for model in arguments.models:
            for number, text in enumerate(texts):
                path = os.path.join(folder, f"{number}.txt")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                arms = {arm: score(arguments, model, path, arm) for arm in ARMS}
                out.write(json.dumps({"model": os.path.basename(model), "text": number, "arms": arms}) + "\n")
                out.flush()


def summarise(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    print("| model | tokens | nll float32 | nll native | nll int8 | argmax native | argmax int8 |")
    print("|---|---|---|---|---|---|---|")
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [row["arms"] for row in rows if row["model"] == model]
        joined = {arm: {key: sum((arms[arm][key] for arms in of_model), []) for key in ("nll", "argmax")} for arm in ARMS}
        count = len(joined[JUDGE]["nll"])
        nll = {arm: sum(joined[arm]["nll"]) / count for arm in ARMS}
        equal = {arm: sum(a == b for a, b in zip(joined[arm]["argmax"], joined[JUDGE]["argmax"])) / count for arm in ARMS}
        more = {arm: f"{nll[arm]:.4f} ({100 * (nll[arm] / nll[JUDGE] - 1):+.2f} %)" for arm in ("native", "int8")}
        print(
            f"| {model} | {count} | {nll[JUDGE]:.4f} | {more['native']} | {more['int8']} "
            f"| {100 * equal['native']:.2f} % | {100 * equal['int8']:.2f} % |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    parser.add_argument("--summary", metavar="FILE", help="only print the table of a file measured before")
    parser.add_argument("--texts", default="benches/prompts/spec_bench_dev.jsonl", help="JSON lines with `turns` [%(default)s]")
    parser.add_argument("--every", type=int, default=16, help="takes every n-th text [%(default)s]")
    parser.add_argument("--yggc", default="target/release/yggc", help="the program [%(default)s]")
    parser.add_argument("--out", help="where scores are written, as JSON lines")
    arguments = parser.parse_args()
    if arguments.summary:
        summarise(arguments.summary)
        return
    if not (arguments.models and arguments.out):
        parser.error("expected models and --out, or --summary")
    measure(arguments)
    summarise(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
