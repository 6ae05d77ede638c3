#!/usr/bin/env python3
"""Measures the gain of every part of a plan: the same drafter, with parts added one after the other.

usage: benches/ablation.py OUT.jsonl --profile FILE [options]

Every row is the best plan under a fix that excludes the missing parts. At each temperature, all rows of all drafters, the
unrestricted plan, plain decoding and eager plain decoding take turns in one run. In a second run the unrestricted plan with its
guard takes turns with plain decoding. planner/tables.py makes the tables from OUT alone.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "planner"))
import measuring
import tables

# Parts of a fix that every row gets unless it names them: what is switched off until a row switches it on.
OFF = {"predictor": "off", "growth": "egt", "schedule": "plain"}
# Rows with their fixes: (what is added or changed, parts beside the drafter). A row that a drafter cannot have is left out
# for it.
ROWS = [
    ("chain", "Wd=1,Wv=nodes,rows=all"),
    ("+ equal-growth tree", "Wv=nodes,rows=all"),
    ("+ pruning", "rows=all"),
    ("+ rows chosen at every step", "rows=best"),
    ("+ depth predicted at every step", "rows=best,predictor=on"),
    ("+ heads drafted ahead, depth fixed", "rows=best,schedule=head_ahead"),
    ("pruning, by AAL instead of eq. 3", "rows=all,objective=aal"),
    ("a static tree of best ranks (Sequoia) instead", "rows=all,growth=sequoia"),
    ("a static k-ary tree instead", "rows=all,growth=kary"),
    ("8 rows of an equal-growth tree", "Wv=8,rows=all,growth=egt"),
    ("8 rows of a static tree of best ranks (Sequoia)", "Wv=8,rows=all,growth=sequoia"),
    ("8 rows of a static k-ary tree", "Wv=8,rows=all,growth=kary"),
]
# Parts of rows that only drafters with a model can have.
OF_A_MODEL = ["predictor=on", "schedule=head_ahead", "growth=egt", "growth=sequoia", "growth=kary"]
# Arms that no plan decides about: plain decoding op by op.
WITHOUT_A_PLAN = ["eager"]
WITHOUT_A_MODEL = ["lookup"]
DRAFTERS = ["lookup", "layer_skip"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measuring.add_options(parser, prompts=4, tokens=32, repetitions=5)
    add = parser.add_argument
    add("--temperatures", default="0,0.3,0.6,1.0", help="separated by commas [%(default)s]")
    add("--seed", type=int, default=7, help="of sampled answers [%(default)s]")
    add("--drafters", default=",".join(DRAFTERS), help="separated by commas [%(default)s]")
    add("--arms", default="unguarded", help="every row without the guard, with it (plan), or both [%(default)s]")
    given = parser.parse_args()
    measuring.check_options(parser, given)
    for name in ["drafters", "arms"]:
        setattr(given, name, getattr(given, name).split(","))
    try:
        given.temperatures = [float(temperature) for temperature in given.temperatures.split(",")]
    except ValueError:
        parser.error(f"--temperatures: expected numbers separated by commas, found {given.temperatures}")
    if not set(given.arms) <= {"unguarded", "plan"}:
        parser.error(f"--arms: expected unguarded, plan, or both, found {','.join(given.arms)}")
    return given


def fix(drafter, parts):
    named = {part.partition("=")[0] for part in parts.split(",")}
    off = [f"{part}={value}" for part, value in OFF.items() if part not in named]
    return ",".join([f"drafter={drafter}", *off, parts])


def main():
    given = options()
    with open(given.out, "w") as out:
        program = measuring.Measuring("ablation", given, out)
        files = {}
        for drafter in given.drafters:
            for place, (row, parts) in enumerate(ROWS):
                if drafter in WITHOUT_A_MODEL and any(part in OF_A_MODEL for part in parts.split(",")):
                    continue
                name = f"{drafter}_{place}"
                made = program.plan(name, fix(drafter, parts))
                if made is None and "growth=" in parts:
                    program.record("refused", of=drafter, row=row, fix=fix(drafter, parts))
                    continue
                if made is None:
                    sys.exit(f"no measured shape satisfies `{fix(drafter, parts)}`: profile {drafter} or leave it out")
                files[name] = made[0]
                program.record("configuration", name=name, of=drafter, row=row, fix=fix(drafter, parts), **made[1])
        file, shown = program.plan("plan")
        files["plan"] = file
        program.record("configuration", name="plan", of="plan", row="the plan, nothing fixed", fix="", **shown)
        for call, temperature in enumerate(given.temperatures):
            measuring.say(f"temperature {temperature}: {len(files)} plans, {given.repetitions} repetitions")
            sampling = ["--temperature", str(temperature), "--seed", str(given.seed)]
            arms = [*given.arms, *WITHOUT_A_PLAN]
            program.bench("ablation", 2 * call, files, arms, given.repetitions, sampling)
            if "plan" not in given.arms:
                served = {"plan": files["plan"]}
                program.bench("ablation", 2 * call + 1, served, ["plan"], given.repetitions, sampling)
    print(tables.tables(tables.read(given.out)))


if __name__ == "__main__":
    main()
