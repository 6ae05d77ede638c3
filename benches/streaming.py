#!/usr/bin/env python3
"""Streamed weights: what plain decoding reads a second, beside direct reads of the same file by as many threads, and what a plan makes of it.

usage: benches/streaming.py OUT.jsonl --packed FILE --prompts FILE.jsonl [--yggc PROGRAM] [--repetitions N] -- BENCH_ARGUMENT...

Every repetition reads the packed file past the system's cache, in requests of 1 MiB by 4 threads as the program does, and then runs `yggc bench`
once with the given arguments (-m, --resident, --plan, -n and the like). The file is the one in the folder `packed` of the cache that the
program keeps for the model. One line of OUT.jsonl holds a repetition, and the table is printed.
"""

import argparse
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

from raw_lines import spread

CHUNK = 1 << 20
READERS = 4


def direct_read(path, most):
    """Bytes per second of direct reads of the last `most` bytes, and how many were read."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    end = os.fstat(file).st_size // CHUNK * CHUNK
    places = iter(range(max(0, end - most) // CHUNK * CHUNK, end, CHUNK))
    lock, read = threading.Lock(), [0] * READERS

    def work(reader):
        buffer = mmap.mmap(-1, CHUNK)
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return
            read[reader] += os.preadv(file, [buffer], place)

    threads = [threading.Thread(target=work, args=(reader,)) for reader in range(READERS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    os.close(file)
    return sum(read) / seconds, sum(read)


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
    with arguments.out.open("w", encoding="utf-8") as out:
        for repetition in range(arguments.repetitions):
            rate, read = direct_read(arguments.packed, streamed or 1 << 30)
            result = bench(arguments.yggc, arguments.prompts, passed_on)
            streamed = result["weights"]["streamed_bytes"]
            plain = step_ms(result, 0)
            shares.append(streamed / plain * 1e3 / rate)
            for place, arm in enumerate(result["arms"][1:], 1):
                speed_ups.setdefault(arm["name"], []).append(plain / step_ms(result, place))
            line = {"repetition": repetition, "direct_bytes_per_s": rate, "direct_bytes": read, "bench": result}
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(f"direct reads {rate / 1e9:.2f} GB/s, plain {plain:.0f} ms a token, {streamed / plain / 1e6:.2f} GB/s", flush=True)
    print(f"plain decoding reads {spread(shares)} of the rate of direct reads")
    for name, gains in speed_ups.items():
        print(f"{name}: {spread(gains)} of plain decoding (median {statistics.median(gains):.2f})")


if __name__ == "__main__":
    main()
