#!/usr/bin/env python3
"""Measures many shapes of one profile, to judge the choice and the predictions of the planner.

usage: benches/exhaustive.py OUT.jsonl --profile FILE [options]

Of the shapes that the planner priced, --configurations are planned with `yggc plan --fix` and measured: the half predicted fastest,
and a half spread over the others. They take turns with plain decoding, in groups that are shuffled in every repetition. The
planner's own plan and the --best fastest shapes are then measured again in one run, since the fastest of many noisy measurements is
partly luck. planner/tables.py makes the tables from OUT alone.
"""

import argparse
import collections
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "planner"))
import measuring
import tables

# Verify widths of the shapes, and shapes per drafter, width and choice of rows.
VERIFY_WIDTHS = [2, 3, 4, 6, 8, 16]
OF_A_KIND = 2
# Plain decoding is an arm of its own; swift is priced as the fixed skip set that it starts with.
WITHOUT = ["none", "swift"]
# Parts that are off in all shapes.
OFF = {"schedule": "plain", "predictor": "off"}


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measuring.add_options(parser, prompts=39, tokens=96, repetitions=1)
    add = parser.add_argument
    add("--configurations", type=int, default=48, help="shapes to measure [%(default)s]")
    add("--group", type=int, default=12, help="shapes that take turns in one process [%(default)s]")
    add("--best", type=int, default=5, help="fastest shapes that are measured again beside the plan [%(default)s]")
    add("--paired", type=int, default=5, help="repetitions of that [%(default)s]")
    add("--seed", type=int, default=1, help="of how groups are dealt [%(default)s]")
    given = parser.parse_args()
    measuring.check_options(parser, given)
    for name in ["configurations", "group", "best", "paired"]:
        if getattr(given, name) < 1:
            parser.error(f"--{name}: expected at least 1")
    return given


def candidates(program):
    """What the planner priced without any part switched on that takes no other shape: for every drafter, verify width and choice
    of rows the shapes predicted to be fastest, as (prediction, drafter, fix)."""
    by_kind = collections.defaultdict(list)
    for priced in program.alternatives():
        shape, rows = priced["shape"], measuring.ROWS[priced["rule"]]
        is_plain = priced["schedule"] == "plain" and priced["depth_rule"] == "fixed" and priced["growth"] == "equal"
        if priced["name"] in WITHOUT or not is_plain or shape["verify_width"] not in VERIFY_WIDTHS:
            continue
        parts = {"drafter": priced["name"], "Dd": shape["depth"], "Wd": shape["draft_width"], "Wv": shape["verify_width"]}
        fix = ",".join(f"{part}={value}" for part, value in {**parts, "rows": rows, **OFF}.items())
        by_kind[priced["name"], shape["verify_width"], rows].append((priced["speedup"], priced["name"], fix))
    return [priced for kind in by_kind.values() for priced in sorted(kind, reverse=True)[:OF_A_KIND]]


def configurations(program, given):
    """The shapes that are measured: plan file and prediction by name."""
    by_prediction = sorted(candidates(program), reverse=True)
    half = (given.configurations + 1) // 2
    chosen, others = by_prediction[:half], by_prediction[half:]
    others.sort(key=lambda priced: (priced[1], -priced[0]))
    count = min(given.configurations - len(chosen), len(others))
    chosen += [others[place * len(others) // count] for place in range(count)]
    measuring.say(f"planning {len(chosen)} shapes")
    planned = {}
    for _, drafter, fix in chosen:
        made = program.plan(f"c{len(planned)}", fix)
        # A drafter is fixed by name or kind, so a name that is a kind too may have given another drafter's shape.
        if made is not None and made[1]["drafter"] == drafter:
            planned[f"c{len(planned)}"] = made
    if len(planned) < given.configurations:
        measuring.say(f"{len(planned)} shapes of the profile are measured")
    return planned


def main():
    given = options()
    with open(given.out, "w") as out:
        program = measuring.Measuring("exhaustive", given, out)
        chosen = configurations(program, given)
        plan = program.plan("plan")
        for name, (_, shown) in {"plan": plan, **chosen}.items():
            program.record("configuration", name=name, **shown)
        files = {name: file for name, (file, _) in chosen.items()}
        call = 0
        for repetition in range(given.repetitions):
            dealt = list(files)
            random.Random(given.seed + repetition).shuffle(dealt)
            for start in range(0, len(dealt), given.group):
                group = dealt[start : start + given.group]
                measuring.say(f"repetition {repetition + 1} of {given.repetitions}, shapes from {start + 1} on")
                program.bench("all", call, {name: files[name] for name in group}, ["unguarded"], 1)
                call += 1
        shape = lambda shown: [shown[key] for key in ["drafter", "Dd", "Wd", "Wv", "rows"]]
        fastest = tables.fastest(tables.read(given.out), "all")
        best = [name for name in fastest if shape(chosen[name][1]) != shape(plan[1])][: given.best]
        measuring.say(f"the plan and the fastest {len(best)}, {given.paired} repetitions")
        paired = {"plan": plan[0]} | {name: files[name] for name in best}
        # A process each: a drafter that remembers requests would have answered before, and answer from memory.
        for repetition in range(given.paired):
            program.bench("paired", repetition, paired, ["plan", "unguarded"], 1)
    print(tables.tables(tables.read(given.out)))


if __name__ == "__main__":
    main()
