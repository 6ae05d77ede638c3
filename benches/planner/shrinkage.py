#!/usr/bin/env python3
"""How far promises shrunk towards no gain (USUAL_GAIN in src/planner/judge/unseen.rs) are off what other prompts gave.

usage: benches/planner/shrinkage.py FILE.jsonl...

FILEs are those of prediction.py by plans without shrinkage. A row is a standard deviation of gains before any prompt is seen, first the
root of the mean square of log(measured / promised) over all drafters, then the same of two plans that rested on few steps: of a 0.5B
model by itself and of a pair at temperature 0.6 (docs/benchmarks.md). The error of a promise is told by its `least`, or by its interval.
"""

import math
import sys

import tables

NORMAL = 1.645
# Promised, the upper end of nine in ten, measured.
OF_FEW_STEPS = [(2.42, 3.43, 1.42), (1.67, 2.54, 1.08)]


def promises(path):
    """Promised, the half of its interval relative to it, and measured, of every drafter without the guard."""
    rows = tables.read(path)
    configurations = {row["name"]: row for row in rows["configuration"]}
    for (name, kind), arm in tables.arms(rows).items():
        expected = configurations.get(name, {}).get("expected")
        if kind == "unguarded" and expected and arm.speedup:
            yield expected["speedup"], expected["speedup"] / expected["least"] - 1, arm.median(arm.speedup)


def off(promise, deviation):
    promised, half, measured = promise
    trust = deviation**2 / (deviation**2 + (half / NORMAL) ** 2)
    return math.log(measured) - trust * math.log(promised)


def main():
    found = [promise for path in sys.argv[1:] for promise in promises(path)]
    if not found:
        sys.exit(__doc__)
    # Other prompts differ from all by as much as those that were recorded.
    few = [(promised, (high / promised - 1) / math.sqrt(2), measured) for promised, high, measured in OF_FEW_STEPS]
    print(f"{len(found)} drafters")
    for deviation in [math.inf, 0.5, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1]:
        errors = [off(promise, min(deviation, 1e6)) for promise in found]
        root = math.sqrt(sum(error**2 for error in errors) / len(errors))
        of_few = ", ".join(f"{off(promise, min(deviation, 1e6)):+.2f}" for promise in few)
        print(f"{deviation:4} {root:.3f}  {of_few}")


if __name__ == "__main__":
    main()
