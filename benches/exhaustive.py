#!/usr/bin/env python3
"""Measures many shapes of one profile, then asks whether the planner chose well and predicted well.

usage: benches/exhaustive.py OUT.jsonl --profile FILE [options]

Shapes of a grid are planned with `yggc plan --fix`. Of these, --configurations are measured: half are those predicted to
be fastest, half are spread over the others. They take turns with plain decoding in groups that are dealt anew in every
repetition. The planner's own plan and the --best of them are then measured again, all in one run, since the fastest of many
measured once is partly the luckiest. planner/tables.py makes the tables from OUT alone.
"""

import argparse
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "planner"))
import measuring
import tables

# What the grid is made of, by whether a drafter runs a model: growths, and nodes of each.
GRID = {True: ([1, 2, 4, 6], [1, 2, 4]), False: ([1, 3, 7, 15], [1, 2])}
VERIFY_WIDTHS = [2, 4, 8, 16, 32]
ROWS = ["all", "best"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measuring.add_options(parser, prompts=8, tokens=48, repetitions=3)
    add = parser.add_argument
    add("--configurations", type=int, default=48, help="shapes to measure [%(default)s]")
    add("--group", type=int, default=12, help="shapes that take turns in one process [%(default)s]")
    add("--best", type=int, default=5, help="fastest shapes that are measured again beside the plan [%(default)s]")
    add("--paired", type=int, default=10, help="repetitions of that [%(default)s]")
    add("--seed", type=int, default=1, help="of how groups are dealt [%(default)s]")
    given = parser.parse_args()
    measuring.check_options(parser, given)
    for name in ["configurations", "group", "best", "paired"]:
        if getattr(given, name) < 1:
            parser.error(f"--{name}: expected at least 1")
    return given


def grid(drafters):
    """Every fix of the grid that is a shape: no more rows than nodes."""
    for drafter, runs_a_model in drafters.items():
        depths, widths = GRID[runs_a_model]
        for depth in depths:
            for width in widths:
                for verify in VERIFY_WIDTHS:
                    if verify <= depth * width + 1:
                        for rows in ROWS:
                            yield f"drafter={drafter},Dd={depth},Wd={width},Wv={verify},rows={rows}"


def configurations(program, given):
    """The shapes that are measured: plan file and prediction by name."""
    planned = {}
    fixes = list(grid(program.drafters()))
    measuring.say(f"planning {len(fixes)} shapes")
    for fix in fixes:
        made = program.plan(f"c{len(planned)}", fix)
        # A drafter is fixed by name or kind, so a name that is a kind too may have given another drafter's shape.
        if made is not None and f"drafter={made[1]['drafter']}," in fix:
            planned[f"c{len(planned)}"] = made
    predicted = lambda name: planned[name][1]["predicted"]["speedup"]
    by_prediction = sorted(planned, key=lambda name: -predicted(name))
    half = (given.configurations + 1) // 2
    chosen, others = by_prediction[:half], by_prediction[half:]
    others.sort(key=lambda name: (planned[name][1]["drafter"], -predicted(name)))
    count = min(given.configurations - len(chosen), len(others))
    chosen += [others[place * len(others) // count] for place in range(count)]
    if len(chosen) < given.configurations:
        measuring.say(f"the grid has only {len(chosen)} shapes that were measured")
    return {name: planned[name] for name in chosen}


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
        program.bench("paired", 0, paired, ["plan", "unguarded"], given.paired)
    print(tables.tables(tables.read(given.out)))


if __name__ == "__main__":
    main()
