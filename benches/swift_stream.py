#!/usr/bin/env python3
"""Measures how the drafter swift tunes its skip set over a stream of answers: matchness per try and per second, and the cost of tries.

usage: benches/swift_stream.py OUT.jsonl --plan FILE.plan [options]

One engine answers prompts one after the other, enough for --stream tokens if no answer ends early. layer_skip, with the fixed set that
swift starts with, and plain decoding answer the same prompts in turn. `--order shift` takes the categories one after the other (a domain
shift at each), `--order mixed` alternates among them. OUT has a header and one line per answer; the tables at the end are made from
that file alone, and `--summary OUT` prints them again.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from raw_lines import read, table

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALIBRATION = ROOT / "plans/calibration/prompts.jsonl"
# The domains of the paper, by the names that prompt files have for them.
SHIFT = ["translation", "code", "coding", "maths", "math", "chat"]
FIXED = "layer_skip"
ROWS = 20


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", help="where answers are written, as JSON lines; with --summary it is read")
    add("--summary", action="store_true", help="only print the tables of OUT")
    add("--plan", help="a plan that measured swift and layer_skip")
    add("--yggc", default=str(ROOT / "target/release/yggc"), help="the program [%(default)s]")
    add("--model", help="a model [yggc's default]")
    add("--device", help="what runs the model, the one that was profiled: cpu or cuda [yggc's default]")
    add("--threads", type=int, help="worker threads [yggc's default]")
    add("--isa", help="instruction set, the one that was profiled [yggc's default]")
    add("--prompts", default=str(CALIBRATION), help="JSON lines that `yggc bench` understands [%(default)s]")
    add("--categories", help="those asked, in this order, separated by commas [all; for a shift: those that there are of %s]" % ", ".join(SHIFT))
    add("--order", choices=["mixed", "shift"], default="mixed", help="[%(default)s]")
    add("--stream", type=int, default=50_000, help="tokens of the stream, if no answer ends early [%(default)s]")
    add("--tokens", type=int, default=128, help="tokens of an answer at most [%(default)s]")
    add("--context", type=int, default=1024, help="tokens of prompt and answer together [%(default)s]")
    add("--objective", choices=["matchness", "speed"], default="matchness", help="[%(default)s]")
    add("--growth", choices=["equal", "confident"], default="equal", help="[%(default)s]")
    given = parser.parse_args()
    if given.summary:
        return given
    if given.plan is None:
        parser.error("--plan: expected a plan, found none; `yggc plan --profile FILE -o FILE.plan` makes it")
    for name in ["plan", "yggc", "prompts"]:
        if not os.path.isfile(getattr(given, name)):
            parser.error(f"--{name}: no file `{getattr(given, name)}`")
    if given.stream < 1 or given.tokens < 2:
        parser.error("--stream and --tokens: expected at least 1 and 2")
    return given


def category(prompt):
    return prompt.get("category") or prompt.get("kind") or "any"


def stream(given):
    """Lines of prompts in the order of the stream: enough of them if every answer is as long as it may be."""
    by_category = collections.defaultdict(list)
    for line in pathlib.Path(given.prompts).read_text().splitlines():
        if line.strip():
            by_category[category(json.loads(line))].append(line)
    known = SHIFT if given.order == "shift" else list(by_category)
    asked = given.categories.split(",") if given.categories else [name for name in known if name in by_category]
    missing = [name for name in asked if name not in by_category]
    if missing or not asked:
        sys.exit(f"--categories: expected some of {', '.join(by_category)}, found {', '.join(missing) or 'none'}")
    answers = -(-given.stream // given.tokens)
    if given.order == "mixed":
        places = ((asked[i % len(asked)], i // len(asked)) for i in range(answers))
    else:
        each = -(-answers // len(asked))
        places = ((asked[i // each], i % each) for i in range(answers))
    return [by_category[name][place % len(by_category[name])] for name, place in places]


def said(name, value):
    """An option as it is kept: of a file its name, wherever it lay."""
    is_file = name in ["plan", "prompts"] and value is not None
    return pathlib.Path(value).name if is_file else value


def measure(given, out):
    def record(measure, **fields):
        out.write(json.dumps({"measure": measure, **fields}) + "\n")
        out.flush()

    lines = stream(given)
    with tempfile.TemporaryDirectory() as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(line + "\n" for line in lines))
        command = [given.yggc, "bench", "--plan", given.plan, "--prompts", str(prompts), "--arms", f"swift,{FIXED}"]
        command += ["-n", str(given.tokens), "--repetitions", "1", "--context", str(given.context), "--json"]
        command += ["--skip-objective", given.objective, "--draft-growth", given.growth]
        for name in ["model", "device", "threads", "isa"]:
            if getattr(given, name) is not None:
                command += [f"--{name}", str(getattr(given, name))]
        record(
            "header",
            script="swift_stream",
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            load_1min=os.getloadavg()[0],
            options={key: said(key, value) for key, value in vars(given).items() if key not in ["out", "yggc", "model", "summary"]},
        )
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"yggc bench: exit {done.returncode}: {done.stderr.strip()}")
    bench = json.loads(done.stdout)
    record("setting", **{key: bench[key] for key in ["machine", "model", "threads", "version"]})
    names = [arm["name"] for arm in bench["arms"]]
    for place, prompt in enumerate(bench["prompts"]):
        for run in prompt["runs"]:
            kept = {key: value for key, value in run.items() if key not in ["arm", "repetition", "place"]}
            record("answer", arm=names[run["arm"]], prompt=place, category=prompt["category"], **kept)


def summary(path):
    rows = read(path, "swift_stream.py")
    answers = collections.defaultdict(list)
    for row in rows["answer"]:
        answers[row["arm"]].append(row)
    tuned = answers["swift"]
    if not any("skip_search" in row for row in tuned):
        sys.exit(f"{path}: drafter swift never drafted: expected answers with what its search did, found none")
    body, tokens, seconds, tune_ms = [], 0, 0.0, 0.0
    every = -(-len(tuned) // ROWS)
    for place, row in enumerate(tuned, 1):
        found = row.get("skip_search")
        tokens, seconds = tokens + row["tokens"], seconds + row["total_ms"] / 1e3
        if found is None:
            continue
        tune_ms += found["tune_ms"]
        if place % every == 0 or place == len(tuned):
            counted = found["tried_us"] / found["stepped_us"] if found["stepped_us"] else 0.0
            share = tune_ms / 1e3 / seconds
            state = "searching" if found["is_searching"] else "settled"
            body.append([tokens, f"{seconds:.1f}", found["tries"], found["changes"], found["reopened"], state,
                         f"{found['matchness']:.3f}", f"{found['skip_ratio']:.2f}", f"{share:.2%}", f"{counted:.2%}"])
    head = ["tokens", "s", "tries", "changes", "begun again", "state", "matchness", "skipped", "tries of the time",
            "of the counted work"]
    print(table("The search over the stream", head, body))
    body = []
    for category in dict.fromkeys(row["category"] for row in tuned):
        cells = [category]
        for arm in ["ar", FIXED, "swift"]:
            own = [row for row in answers[arm] if row["category"] == category and row["aal"]]
            steps = sum(row["steps"] for row in own)
            of_steps = sum(row["aal"] * row["steps"] for row in own)
            drafted = sum(row["drafted"] for row in own)
            ms = sum(row["tpot_ms"] * row["aal"] * row["steps"] for row in own)
            aal = f"{of_steps / steps:.3f}" if steps else "-"
            share = f"{(of_steps - steps) / drafted:.3f}" if drafted else "-"
            cells += ([] if arm == "ar" else [aal, share]) + [f"{ms / of_steps:.3f}" if of_steps else "-"]
        body.append(cells)
    head = ["category", "ar ms/token", "fixed AAL", "accepted of verified", "ms/token", "swift AAL",
            "accepted of verified", "ms/token"]
    print(table("By category, in the order of the stream", head, body))


def main():
    given = options()
    if not given.summary:
        with open(given.out, "w") as out:
            measure(given, out)
    summary(given.out)


if __name__ == "__main__":
    main()
