#!/usr/bin/env python3
"""Tables that compare drafters with plain decoding, from outputs of `yggc bench --json`.

usage: benches/drafters.py FILE.json...

A speed-up is the time of plain decoding divided by the arm's, for the same prompts in the same repetition. It is given for all steps
and for whole answers with prefill, as the median over the repetitions with minimum and maximum.
"""

import collections
import json
import pathlib
import statistics
import sys

from raw_lines import spread, table


# Depths that the tables show.
DEPTHS = 5


class Arm:
    """The runs of one arm by repetition and category."""

    def __init__(self, bench, place):
        self.facts = bench["arms"][place]
        self.runs = [
            (run["repetition"], prompt["category"], run)
            for prompt in bench["prompts"]
            for run in prompt["runs"]
            if run["arm"] == place
        ]

    def sums(self, of, category=None):
        """Sums of `of` over the runs of each repetition."""
        sums = collections.Counter()
        for repetition, its, run in self.runs:
            if category in (None, its):
                sums[repetition] += of(run)
        return sums

    def speedups(self, plain, of, category=None):
        mine, theirs = self.sums(of, category), plain.sums(of, category)
        return [theirs[repetition] / mine[repetition] for repetition in sorted(mine) if mine[repetition] > 0]


def step_ms(run):
    return (run["tpot_ms"] or 0) * (run["aal"] or 0) * run["steps"]


def total_ms(run):
    return run["total_ms"]


def share(number, digits=2):
    return "-" if number is None else f"{number:.{digits}f}"


def arms_table(name, bench):
    plain = Arm(bench, 0)
    categories = sorted({prompt["category"] for prompt in bench["prompts"]})
    rows, worst = [], []
    for place, facts in enumerate(bench["arms"]):
        arm = Arm(bench, place)
        steps = sum(run["steps"] for _, _, run in arm.runs)
        drafted = sum(run["drafted"] for _, _, run in arm.runs)
        rows.append([
            facts["name"] if facts["name"] == facts["drafter"] else f"{facts['name']} ({facts['drafter']})",
            share(facts["compression_ratio"]),
            share(drafted / steps if steps else None),
            share(facts["acceptance_rate"]),
            share(facts["tokens_per_s"], 0),
            share(facts["macro_tokens_per_s"], 0),
            share(facts["predicted_speedup"]),
            spread(arm.speedups(plain, step_ms)),
            spread(arm.speedups(plain, total_ms)),
        ])
        worst.append([statistics.median(arm.speedups(plain, step_ms, category)) for category in categories])
    head = ["arm", "tau", "verified a step", "alpha", "micro tokens/s", "macro tokens/s", "predicted", "time of steps", "whole time"]
    title = f"{name}: {len(bench['prompts'])} prompts, {bench['max_tokens']} tokens, {bench['repetitions']} repetitions"
    print(table(title, head, rows))
    if len(categories) > 1:
        head = ["category", "prompts"] + [facts["name"] for facts in bench["arms"][1:]]
        body = []
        for place, category in enumerate(categories):
            prompts = sum(prompt["category"] == category for prompt in bench["prompts"])
            body.append([category, prompts] + [f"{arm[place]:.3f}" for arm in worst[1:]])
        print(table(f"{name}: time of steps by category", head, body))


def depths_table(name, bench):
    """Time of drafting and acceptance by depth, of files that have them."""
    rows = []
    for place, facts in enumerate(bench["arms"]):
        runs = [run for _, _, run in Arm(bench, place).runs if run.get("counts_by_depth")]
        if not runs:
            continue
        steps = sum(run["steps"] for run in runs)
        counts = collections.defaultdict(lambda: [0, 0])
        for run in runs:
            for depth, (verified, accepted) in enumerate(run["counts_by_depth"]):
                counts[depth][0] += verified
                counts[depth][1] += accepted
        draft_ms = sum(run["draft_ms"] * run["steps"] for run in runs) / steps
        by_depth = [
            f"{accepted / verified:.2f} of {verified / steps:.2f}" if verified else "-"
            for verified, accepted in (counts[depth] for depth in range(DEPTHS))
        ]
        rows.append([facts["name"], f"{draft_ms:.2f}"] + by_depth)
    if rows:
        head = ["arm", "T_draft, ms a step"] + [f"depth {depth + 1}" for depth in range(DEPTHS)]
        print(table(f"{name}: acceptance by depth, of the steps that verified a node so deep, and the share of such steps", head, rows))


def main():
    if not sys.argv[1:] or any(argument.startswith("-") for argument in sys.argv[1:]):
        sys.exit(__doc__)
    for path in map(pathlib.Path, sys.argv[1:]):
        try:
            bench = json.loads(path.read_text())
            arms_table(path.stem, bench)
            depths_table(path.stem, bench)
        except (OSError, ValueError, KeyError) as error:
            sys.exit(f"{path}: expected what `yggc bench --json` wrote: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
