#!/usr/bin/env python3
"""Compares how native and int8 activations score texts with products of float32 numbers.

Each text is scored three times by `yggc score`: with int8 activations, with native ones on the instruction set at hand, and with native ones
on the portable tier, which multiplies float32 numbers: the judge. Prints the mean negative log-likelihood of each, and the share of tokens
whose most probable id is the judge's. Writes one JSON line for every text and model to --out; --summary prints the table of such a file.

With --device cuda the native arm runs on the GPU, which has no int8 activations; the judge stays the processor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ARMS = {"int8": [], "native": [], "float32": ["--isa", "portable"]}
JUDGE = "float32"


def arms_on(device):
    """The arms, and what each asks of `yggc score`."""
    if device == "cuda":
        return {"native": ["--device", device], JUDGE: ARMS[JUDGE]}
    return ARMS


def score(arguments, model, path, arm, asked):
    activations = "int8" if arm == "int8" else "native"
    command = [arguments.yggc, "score", "-m", model, "--text-file", path, "--json", "--activations", activations, *asked]
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
                arms = {arm: score(arguments, model, path, arm, asked) for arm, asked in arms_on(arguments.device).items()}
                out.write(json.dumps({"model": os.path.basename(model), "text": number, "arms": arms}) + "\n")
                out.flush()


def summarise(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    judged = [arm for arm in ("native", "int8") if arm in rows[0]["arms"]]
    head = ["model", "tokens", "nll float32", *(f"nll {arm}" for arm in judged), *(f"argmax {arm}" for arm in judged)]
    print(f"| {' | '.join(head)} |")
    print("|---" * len(head) + "|")
    for model in dict.fromkeys(row["model"] for row in rows):
        of_model = [row["arms"] for row in rows if row["model"] == model]
        joined = {arm: {key: sum((arms[arm][key] for arms in of_model), []) for key in ("nll", "argmax")} for arm in [JUDGE, *judged]}
        count = len(joined[JUDGE]["nll"])
        nll = {arm: sum(of_arm["nll"]) / count for arm, of_arm in joined.items()}
        equal = {arm: sum(a == b for a, b in zip(joined[arm]["argmax"], joined[JUDGE]["argmax"])) / count for arm in judged}
        more = [f"{nll[arm]:.4f} ({100 * (nll[arm] / nll[JUDGE] - 1):+.2f} %)" for arm in judged]
        cells = [model, str(count), f"{nll[JUDGE]:.4f}", *more, *(f"{100 * equal[arm]:.2f} %" for arm in judged)]
        print(f"| {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL.gguf")
    parser.add_argument("--summary", metavar="FILE", help="only print the table of a file measured before")
    parser.add_argument("--texts", default="benches/prompts/spec_bench_dev.jsonl", help="JSON lines with `turns` [%(default)s]")
    parser.add_argument("--every", type=int, default=16, help="takes every n-th text [%(default)s]")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of the native arm [%(default)s]")
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
