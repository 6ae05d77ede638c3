#!/usr/bin/env python3
"""Measures forwards with native and with int8 activations: alternating processes of `yggc bench --kernels`.

Writes one JSON line for every process to --out and prints the medians of the ratios of adjacent runs. --summary prints them
again from such a file.
"""

import argparse
import json
import statistics
import subprocess
import sys


def measure(arguments):
    with open(arguments.out, "w", encoding="utf-8") as out:
        for _ in range(arguments.repetitions):
            for activations in ("native", "int8"):
                command = [arguments.yggc, "bench", "-m", arguments.model, "--kernels", "--json"]
                command += ["--widths", arguments.widths, "--activations", activations]
                command += ["--repetitions", str(arguments.forwards)]
                run = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                out.write(json.dumps({"activations": activations} | json.loads(run.stdout)) + "\n")
                out.flush()


def time_us(run, width, context):
    forward = next(f for f in run["forwards"] if (f["width"], f["context"]) == (width, context))
    return forward["forward"]["median_us"]


def read_share(run, context):
    """Bytes per second of a forward of one row by those of a plain read of the weights, half of which are faster."""
    roofline = run["roofline"]
    bytes_per_us = roofline["weight_bytes"] / time_us(run, 1, context)
    return bytes_per_us / 1e3 / roofline["median_gb_per_s"]


def summarise(path):
    with open(path, encoding="utf-8") as lines:
        runs = [json.loads(line) for line in lines]
    native = [run for run in runs if run["activations"] == "native"]
    int8 = [run for run in runs if run["activations"] == "int8"]
    pairs = list(zip(native, int8))
    print(f"{len(pairs)} pairs, medians [least - greatest]\n")
    print("| rows | context | native ms | int8 ms | int8 is faster by |")
    print("|---|---|---|---|---|")
    for forward in native[0]["forwards"]:
        width, context = forward["width"], forward["context"]
        times = [[time_us(run, width, context) / 1e3 for run in side] for side in (native, int8)]
        ratios = [a / b for a, b in zip(*times)]
        medians = [statistics.median(side) for side in times]
        print(
            f"| {width} | {context} | {medians[0]:.2f} | {medians[1]:.2f} "
            f"| {statistics.median(ratios):.2f} [{min(ratios):.2f} - {max(ratios):.2f}] |"
        )
    context = min(forward["context"] for forward in native[0]["forwards"])
    shares = [read_share(run, context) for run in native]
    print(
        f"\nA forward of one row behind {context} tokens, native, moves {statistics.median(shares):.2f} "
        f"[{min(shares):.2f} - {max(shares):.2f}] of the bytes per second of the median plain read of its weights."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--summary", metavar="FILE", help="only print the tables of a file measured before")
    parser.add_argument("--model", help="a GGUF file")
    parser.add_argument("--yggc", default="target/release/yggc", help="the program [target/release/yggc]")
    parser.add_argument("--widths", default="1,16,64", help="rows of the forwards [1,16,64]")
    parser.add_argument("--forwards", type=int, default=10, help="forwards of a width in each process [10]")
    parser.add_argument("--repetitions", type=int, default=5, help="processes of each [5]")
    parser.add_argument("--out", help="where measurements are written, as JSON lines")
    arguments = parser.parse_args()
    if arguments.summary:
        summarise(arguments.summary)
        return
    if not (arguments.model and arguments.out):
        parser.error("expected --model and --out, or --summary")
    measure(arguments)
    summarise(arguments.out)


if __name__ == "__main__":
    sys.exit(main())
