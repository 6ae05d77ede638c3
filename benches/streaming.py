#!/usr/bin/env python3
"""Streamed weights: what plain decoding reads a second, beside direct reads of the same file, and what a plan makes of it; and llama.cpp beside it.

usage: benches/streaming.py OUT.jsonl --packed FILE --prompts FILE.jsonl [--yggc PROGRAM] [--repetitions N]
       [--limit BYTES] [--peers DIR --model FILE.gguf [--peer-tokens N]] -- BENCH_ARGUMENT...

Every repetition reads the packed file past the system's cache, in requests of 1 MiB into huge pages as the program does, by 4 and by 8 threads
(`direct_reads.c`, built with cc), and then runs `yggc bench` once with the given arguments (-m, --resident, --plan, -n and the like). The file is the one in the folder `packed` of the cache that the
program keeps for the model. One line of OUT.jsonl holds a repetition, and the table is printed.

With --limit both programs run in a control group of so much memory, page cache included, which needs root. With --peers, the folder that
`peers/build.sh` made, each repetition then lets llama.cpp answer the same prompts (the same token ids, greedy, --peer-tokens each) from the mapped model
file, dropped from the cache before: what does not fit is read by page faults.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from memory_group import MemoryGroup, forget
from raw_lines import spread

HERE = pathlib.Path(__file__).resolve().parent

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


def run(command, group=None):
    """What a command prints as JSON, in a control group if there is one, and the most memory that the group took."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, preexec_fn=group and group.enter)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(map(str, command))}` ended with {done.returncode}")
    return json.loads(done.stdout), group and group.peak()


def limited(limit):
    """A control group of so much memory; none without a limit."""
    return MemoryGroup(limit) if limit else contextlib.nullcontext()


def bench(program, prompts, arguments, limit):
    with limited(limit) as group:
        return run([program, "bench", "--json", "--repetitions", "1", "--prompts", prompts, *arguments], group)


def value_of(arguments, *names):
    """The value behind one of the flags, if it is there."""
    return next((arguments[place + 1] for place, name in enumerate(arguments[:-1]) if name in names), None)


def token_ids(program, prompts, arguments):
    """The tokens of every prompt, as yggc lays them out."""
    kept = [("-m", "--model"), ("--threads",), ("--resident",), ("--cache-dir",)]
    device = [part for names in kept if (value := value_of(arguments, *names)) for part in (names[0], value)]
    texts = [json.loads(line)["text"] for line in pathlib.Path(prompts).read_text(encoding="utf-8").splitlines() if line.strip()]
    command = [program, "run", "--no-spec", "--json", "-n", "1", *device]
    return [run([*command, f"--prompt={text}"])[0]["prompt_token_ids"] for text in texts]


def peer(options, prompts, threads):
    """Answers of llama.cpp to the prompts from a cold cache, as peer_worker.py says them, and the most memory that it took."""
    forget(options.model)
    capacity = max(map(len, prompts)) + options.peer_tokens + 1
    worker = [options.peers / "venv/bin/python", HERE / "peers/peer_worker.py", "engine_llama_cpp", options.peers / "lib/threads", "threads+mapped"]
    command = [*map(str, worker), str(options.model), threads, str(capacity)]
    asked = [{"do": "answer", "flash": "on", "prompt": ids, "tokens": options.peer_tokens} for ids in prompts]
    with limited(options.limit) as group:
        lines = "".join(json.dumps(request) + "\n" for request in asked)
        done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=False, preexec_fn=group and group.enter)
        replies = [json.loads(line) for line in done.stdout.splitlines()]
        failed = next((reply["error"] for reply in replies if "error" in reply), None)
        if done.returncode != 0 or failed:
            sys.exit(f"llama.cpp ended with {done.returncode}: {failed or 'is the limit too small for its cache?'}")
        return replies[1:], group and group.peak()


def peer_ms(answers):
    """Milliseconds of a token behind the first, over all answers."""
    times = [(answer["tpot_ms"], answer["tokens"] - 1) for answer in answers if answer["tpot_ms"] is not None]
    return sum(ms * tokens for ms, tokens in times) / sum(tokens for _, tokens in times)


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
    parser.add_argument("--limit", type=int, help="bytes of memory of each program")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of peers/build.sh")
    parser.add_argument("--model", type=pathlib.Path, help="model file of the peer")
    parser.add_argument("--peer-tokens", type=int, default=8)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:split])
    passed_on = sys.argv[split + 1 :]
    if bool(arguments.peers) != bool(arguments.model):
        sys.exit("--peers and --model go together")
    threads = value_of(passed_on, "--threads")
    if arguments.peers and not threads:
        sys.exit("llama.cpp is given as many threads as yggc: say how many with --threads behind --")
    prompts = token_ids(arguments.yggc, arguments.prompts, passed_on) if arguments.peers else []
    streamed, shares, speed_ups, over_peer = None, [], {}, {}
    with tempfile.TemporaryDirectory() as folder, arguments.out.open("w", encoding="utf-8") as out:
        reads = built(pathlib.Path(folder))
        for repetition in range(arguments.repetitions):
            rates = direct_rates(reads, arguments.packed, streamed or 1 << 30)
            result, peak = bench(arguments.yggc, arguments.prompts, passed_on, arguments.limit)
            streamed = result["weights"]["streamed_bytes"]
            plain = step_ms(result, 0)
            shares.append(streamed / plain * 1e3 / max(rates.values()))
            for place, arm in enumerate(result["arms"][1:], 1):
                speed_ups.setdefault(arm["name"], []).append(plain / step_ms(result, place))
            line = {"repetition": repetition, "direct_bytes_per_s": rates, "bench": result}
            line |= {"limit_bytes": arguments.limit, "peak_bytes": peak}
            if arguments.peers:
                answers, peer_peak = peer(arguments, prompts, threads)
                line |= {"peer": answers, "peer_peak_bytes": peer_peak}
                for place, arm in enumerate(result["arms"]):
                    over_peer.setdefault(arm["name"], []).append(peer_ms(answers) / step_ms(result, place))
            out.write(json.dumps(line) + "\n")
            out.flush()
            of_reads = " and ".join(f"{rate / 1e9:.2f} GB/s by {threads} threads" for threads, rate in rates.items())
            # What is read of experts depends on the text.
            read = "" if "expert_places" in result["weights"] else f", {streamed / plain / 1e6:.2f} GB/s"
            print(f"direct reads: {of_reads}; plain {plain:.0f} ms a token{read}", flush=True)
            if arguments.peers:
                print(f"llama.cpp: {peer_ms(answers):.0f} ms a token", flush=True)
    if "expert_places" not in result["weights"]:
        print(f"plain decoding reads {spread(shares)} of the rate of direct reads, the faster of both")
    for name, gains in speed_ups.items():
        print(f"{name}: {spread(gains)} of plain decoding (median {statistics.median(gains):.2f})")
    for name, gains in over_peer.items():
        print(f"{name}: {spread(gains)} times as fast as llama.cpp from its mapped file")


if __name__ == "__main__":
    main()
