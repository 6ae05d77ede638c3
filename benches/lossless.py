#!/usr/bin/env python3
"""Runs a model on the same prompts with and without forced drafters; token ids must be equal.

usage: benches/lossless.py OUT.jsonl [--prompts 20] [--tokens 128] [--arms chain,lookup,...] [--draft-model DIR] [--model MODEL] [--device cuda] [--yggc target/release/yggc]

Arms: lookup, three layer-skip shapes and, with --draft-model, two of that drafter, forced by `yggc plan --fix`; greedy and sampled; one thread and two. Each line of
OUT is one answer. Exit status 1 if any answer differs from plain decoding's, or an arm never drafted.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SHAPES = {
    "chain": "drafter=layer_skip,Dd=4,Wd=1,Wv=4",
    "tree_4x4": "drafter=layer_skip,Dd=4,Wd=4,Wv=16",
    "tree_6x8": "drafter=layer_skip,Dd=6,Wd=8,Wv=48",
    "lookup": "drafter=lookup",
    "model_2x1": "drafter=model,Dd=2,Wd=1,rows=all",
    "model_4x4": "drafter=model,Dd=4,Wd=4,Wv=16,rows=all",
}
SAMPLING = {"greedy": [], "sampled": ["--temperature", "0.8", "--seed", "7"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--arms", type=lambda names: names.split(","))
    parser.add_argument("--draft-model", help="a drafter of the model, as `yggc distill` writes it")
    parser.add_argument("--model", help="a model [yggc's default]")
    parser.add_argument("--device", help="what runs it: cpu or cuda [yggc's default]")
    parser.add_argument("--yggc", default="target/release/yggc")
    options = parser.parse_args()
    calibration = pathlib.Path(__file__).resolve().parent.parent / "plans/calibration/prompts.jsonl"
    prompts = [json.loads(line) for line in calibration.read_text().splitlines()]
    prompts = prompts[:: max(1, len(prompts) // options.prompts)][: options.prompts]

    def yggc(*arguments):
        done = subprocess.run([options.yggc, *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"yggc {' '.join(arguments)}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    device = [f"--{name}={value}" for name, value in [("model", options.model), ("device", options.device)] if value]
    drafter = ["--draft-model", options.draft_model] if options.draft_model else []
    possible = [arm for arm in SHAPES if drafter or not arm.startswith("model_")]
    arms = options.arms or possible
    unknown = [arm for arm in arms if arm not in possible]
    if unknown:
        sys.exit(f"--arms: expected some of {', '.join(possible)}, found {', '.join(unknown)}; arms of a model need --draft-model")
    shapes = {arm: SHAPES[arm] for arm in arms}
    failed = False
    with tempfile.TemporaryDirectory() as folder, open(options.out, "w", buffering=1) as out:
        for threads in ["1", "2"]:
            profile = f"{folder}/{threads}.profile"
            yggc("profile", *device, "--threads", threads, "--budget", "90", "-o", profile, *drafter)
            for arm, fix in shapes.items():
                yggc("plan", "--profile", profile, "-o", f"{folder}/{arm}.plan", "--fix", fix)
            for setting, flags in SAMPLING.items():
                count = {arm: [0, 0, 0] for arm in shapes}
                for prompt in prompts:
                    common = ["run", *device, "-p", prompt["text"], "-n", str(options.tokens), "--threads", threads, "--json"]
                    plain = json.loads(yggc(*common, *flags, "--no-spec"))
                    for arm in shapes:
                        forced = json.loads(yggc(*common, *flags, "--plan", f"{folder}/{arm}.plan"))
                        equal = forced["token_ids"] == plain["token_ids"]
                        stats = forced["stats"]
                        count[arm][0] += equal
                        count[arm][1] += stats["drafted"]
                        count[arm][2] += stats["tokens"] - 1 - stats["steps"]
                        row = {"threads": threads, "setting": setting, "arm": arm, "prompt": prompt["id"], "equal": equal}
                        row |= {key: stats[key] for key in ["tokens", "steps", "drafted", "aal"]}
                        print(json.dumps(row), file=out)
                for arm, (equal, drafted, accepted) in count.items():
                    failed |= equal < len(prompts) or drafted == 0
                    print(f"{threads} threads {setting:8} {arm:9} {equal}/{len(prompts)} equal, {drafted} drafted, {accepted} accepted")
    sys.exit(failed)


if __name__ == "__main__":
    main()
