#!/usr/bin/env python3
"""Judges what a plan promises on prompts that its profile has not seen.

usage: benches/prediction.py OUT.jsonl --profile FILE [options]

The best shape of every drafter of the profile takes turns with plain decoding, without the guard, and the plan as it is served does,
with it. The plan says of every drafter which speed-up to expect on other prompts behind contexts of some lengths, and within which bounds nine of
ten should be; answers are as long as those that it was made from.
planner/tables.py makes the tables from OUT alone.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "planner"))
import measuring
import tables

# What starts as another drafter of the same profile and is recorded as it.
WITHOUT = ["none", "swift"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measuring.add_options(parser, prompts=39, tokens=None, repetitions=1)
    given = parser.parse_args()
    measuring.check_options(parser, given)
    if pathlib.Path(given.prompts).resolve() == measuring.CALIBRATION:
        parser.error(f"--prompts: {given.prompts} is what profiles record; expected prompts that no profile has seen")
    return given


def main():
    given = options()
    with open(given.out, "w") as out:
        program = measuring.Measuring("prediction", given, out)
        file, shown = program.plan("plan")
        program.record("configuration", name="plan", **shown)
        plans = {"plan": file}
        greedy = json.loads(program.command("plan", "show", file, "--json"))["plan"]["bands"][0]
        for sub_plan in greedy["by_drafter"]:
            name = sub_plan["name"]
            made = None if name in WITHOUT else program.plan(name, f"drafter={name}")
            # A drafter is fixed by name or kind: a name that is a kind too may have given another drafter's shape.
            if made is not None and made[1]["drafter"] == name:
                plans[name] = made[0]
                program.record("configuration", name=name, **made[1])
        for repetition in range(given.repetitions):
            measuring.say(f"repetition {repetition + 1} of {given.repetitions}: {len(plans) - 1} drafters and the plan")
            # A process each: a drafter that remembers requests would have answered before, and answer from memory.
            program.bench("unseen", 2 * repetition, {"plan": file}, ["plan"], 1)
            others = {name: file for name, file in plans.items() if name != "plan"}
            program.bench("unseen", 2 * repetition + 1, others, ["unguarded"], 1)
    print(tables.tables(tables.read(given.out)))


if __name__ == "__main__":
    main()
