#!/usr/bin/env python3
"""Streamed weights: what plain decoding reads a second, beside direct reads of the same file, and what a plan makes of it.

usage: benches/streaming.py OUT.jsonl --packed FILE --prompts FILE.jsonl [--yggc PROGRAM] [--repetitions N] -- BENCH_ARGUMENT...

Every repetition reads the packed file past the system's cache, in requests of 1 MiB into huge pages as the program does, by 4 and by 8 threads
(`direct_reads.c`, built with cc), and then runs `yggc bench` once with the given arguments (-m, --resident, --plan, -n and the like). The file is the one in the folder `packed` of the cache that the
program keeps for the model. One line of OUT.jsonl holds a repetition, and the table is printed.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from raw_lines import spread

CHUNK = 1 << 20
PAGE = 4096
# Threads of direct reads: as many as the program has, and twice as many.
READERS = (4, 8)


def built(folder):
    """The program of direct reads."""
    program = folder / "direct_reads"
    source = pathlib.Path(__file__).with_name("direct_reads.c")
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
    return program


def direct_rates(program, path, most):
    """Bytes per second of direct reads of the last `most` bytes, by number of threads."""
    first = max(0, path.stat().st_size // PAGE * PAGE - most) // PAGE * PAGE
    command = [program, path, str(first), str(most // CHUNK * CHUNK)]
    runs = {threads: [*command, str(threads), str(CHUNK)] for threads in READERS}
    return {threads: float(subprocess.run(run, stdout=subprocess.PIPE, check=True).stdout) for threads, run in runs.items()}


def bench(program, prompts, arguments):
    command = [program, "bench", "--json", "--repetitions", "1", "--prompts", prompts, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(command)}` ended with {done.returncode}")
    return json.loads(done.stdout)


def step_ms(result, place):
    """Milliseconds of a token by time of steps, over all prompts."""
    runs = [run for prompt in result["prompts"] for run in prompt["runs"] if run["arm"] == place]
    times = [(run["tpot_ms"], run["tokens"] - 1) for run in runs if run["tpot_ms"] is not None]
    return sum(ms * tokens for ms, tokens in times) / sum(tokens for _, tokens in times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--packed", type=pathlib.Path, required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--yggc", default="yggc")
    parser.add_argument("--repetitions", type=int, default=5)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:split])
    passed_on = sys.argv[split + 1 :]
    streamed, shares, speed_ups = None, [], {}
    with tempfile.TemporaryDirectory() as folder, arguments.out.open("w", encoding="utf-8") as out:
        reads = built(pathlib.Path(folder))
        for repetition in range(arguments.repetitions):
            rates = direct_rates(reads, arguments.packed, streamed or 1 << 30)
            result = bench(arguments.yggc, arguments.prompts, passed_on)
            streamed = result["weights"]["streamed_bytes"]
            plain = step_ms(result, 0)
            shares.append(streamed / plain * 1e3 / max(rates.values()))
            for place, arm in enumerate(result["arms"][1:], 1):
                speed_ups.setdefault(arm["name"], []).append(plain / step_ms(result, place))
            line = {"repetition": repetition, "direct_bytes_per_s": rates, "bench": result}
            out.write(json.dumps(line) + "\n")
            out.flush()
            of_reads = " and ".join(f"{rate / 1e9:.2f} GB/s by {threads} threads" for threads, rate in rates.items())
            print(f"direct reads: {of_reads}; plain {plain:.0f} ms a token, {streamed / plain / 1e6:.2f} GB/s", flush=True)
    print(f"plain decoding reads {spread(shares)} of the rate of direct reads, the faster of both")
    for name, gains in speed_ups.items():
        print(f"{name}: {spread(gains)} of plain decoding (median {statistics.median(gains):.2f})")


if __name__ == "__main__":
    main()
