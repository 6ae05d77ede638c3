#!/usr/bin/env python3
"""Derives tables from what prediction.py, exhaustive.py or ablation.py measured.

usage: benches/planner/tables.py FILE.jsonl

A speed-up is plain decoding's time by an arm's, of all steps of all prompts of one repetition in one run of `yggc bench`;
a time per token is of the same steps. Prefill is in neither. Figures are medians over repetitions, with the least and the
greatest in brackets.
"""

import collections
import math
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import raw_lines
from raw_lines import spread, table

# What a plan is judged by: the plan's time by that of the fastest shape, and predicted by measured speed-up.
WITHIN_BEST, WITHIN_PREDICTED = 0.03, 0.10
# Halves that prompts are split into, and samples that are drawn of them.
SPLITS, SAMPLES = 300, 500
# The median of how far a normal number of standard deviation 1 is from its mean.
NORMAL_MEDIAN = 0.6745


def read(path):
    return raw_lines.read(path, "prediction.py, exhaustive.py or ablation.py")


class Arm:
    """The answers of one arm: sums over the prompts of every repetition, each beside plain decoding's of the same run."""

    def __init__(self, repetitions):
        self.tpot_ms, self.step_ms, self.speedup = [], [], []
        tokens = steps = 0
        for runs, plain in repetitions:
            time, step_tokens, step_count = sums(runs)
            plain_time, plain_tokens, _ = sums(plain)
            if not step_count:
                continue
            if step_tokens != plain_tokens:
                sys.exit(f"an arm gave {step_tokens} tokens where plain decoding gave {plain_tokens}: they must be the same")
            self.tpot_ms.append(time / step_tokens)
            self.step_ms.append(time / step_count)
            self.speedup.append(plain_time / time)
            tokens, steps = tokens + step_tokens, steps + step_count
        self.aal = tokens / steps if steps else None
        self.error = standard_error(repetitions)
        answers = [run for runs, _ in repetitions for run in runs]
        self.fell_back = sum("fell_back" in run for run in answers) / len(answers)

    def median(self, numbers):
        return statistics.median(numbers) if numbers else math.nan


def sums(runs):
    """Milliseconds, tokens and number of the steps of some answers; the first token of an answer is prefill's."""
    stepped = [run for run in runs if run["steps"]]
    tokens = [round(run["aal"] * run["steps"]) for run in stepped]
    time = sum(run["tpot_ms"] * count for run, count in zip(stepped, tokens))
    return time, sum(tokens), sum(run["steps"] for run in stepped)


def standard_error(repetitions):
    """How far the speed-up over these prompts may be off that over all like them, relative to it: the standard error of a ratio of sums over
    prompts (Cochran, Sampling Techniques, 1977, 6.3); 0 of fewer than two."""
    by_prompt = collections.defaultdict(lambda: [0.0, 0.0])
    for runs, plain in repetitions:
        for place, answers in enumerate([runs, plain]):
            for run in answers:
                by_prompt[run["prompt"]][place] += sums([run])[0]
    times = [(own, plain) for own, plain in by_prompt.values() if own]
    if len(times) < 2:
        return 0.0
    all_own, all_plain = map(sum, zip(*times))
    influences = [plain / all_plain - own / all_own for own, plain in times]
    return math.sqrt(len(times) / (len(times) - 1) * sum(influence * influence for influence in influences))


def arms(rows, **wanted):
    """Arms by (name, arm), of the runs that have the wanted fields."""
    answers = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in rows["run"]:
        if all(run[key] == value for key, value in wanted.items()):
            answers[run["name"], run["arm"]][run["call"], run["repetition"]].append(run)
    plain = answers["ar", "ar"]
    return {who: Arm([(runs, plain[at]) for at, runs in by_run.items()]) for who, by_run in answers.items()}


def fastest(rows, phase):
    """Names of configurations, fastest first, by their median speed-up without the guard."""
    measured = {name: arm for (name, kind), arm in arms(rows, phase=phase).items() if kind == "unguarded"}
    return sorted(measured, key=lambda name: -measured[name].median(measured[name].speedup))


def shape(configuration):
    rows = ("<=" if configuration["rows"] == "best" else "") + str(configuration["Wv"])
    return [configuration["drafter"], configuration["Dd"], configuration["Wd"], rows]


def ratio(predicted, measured):
    return f"{predicted / measured:.2f}" if measured and not math.isnan(measured) else "-"


SHAPE = ["drafter", "Dd", "Wd", "Wv"]


def predictions(title, configurations, measured):
    """What was predicted of shapes without the guard beside what they did: text, and how many were predicted well."""
    body, errors, step_errors = [], [], []
    for name, arm in measured.items():
        predicted = configurations[name]["predicted"]
        speedup, plain_ms = arm.median(arm.speedup), arm.plain_ms
        step = arm.median(arm.step_ms) / plain_ms
        predicted_step = predicted["step_us"] / predicted["ar_tpot_us"]
        errors.append(abs(predicted["speedup"] / speedup - 1))
        step_errors.append(abs(predicted_step / step - 1))
        body.append(
            [
                *shape(configurations[name]),
                f"{predicted['aal']:.2f}, {arm.aal:.2f}",
                f"{predicted_step:.2f}, {step:.2f}",
                f"{predicted['speedup']:.2f}",
                spread(arm.speedup),
                ratio(predicted["speedup"], speedup),
            ]
        )
    head = [*SHAPE, "AAL: predicted, measured", "a step by a plain one: predicted, measured"]
    head += ["speed-up: predicted", "measured", "predicted by measured"]
    good = sum(error <= WITHIN_PREDICTED for error in errors)
    text = table(title, head, body)
    text += (
        f"\n{good} of {len(errors)} speed-ups are predicted within {WITHIN_PREDICTED:.0%}; errors: median {statistics.median(errors):.1%}, "
        f"greatest {max(errors):.1%}. Step times: median {statistics.median(step_errors):.1%}, greatest {max(step_errors):.1%}.\n"
    )
    return text


def unguarded(rows, phase):
    """Arms without the guard by name, fastest first, each with plain decoding's time per token of its own runs."""
    found = arms(rows, phase=phase)
    measured = {}
    for name in fastest(rows, phase):
        arm = found[name, "unguarded"]
        arm.plain_ms = arm.median([tpot * speedup for tpot, speedup in zip(arm.tpot_ms, arm.speedup)])
        measured[name] = arm
    return measured


def beside_the_fastest(rows, kind):
    """The plan's time by that of the fastest shape, both with the guard (`plan`) or both without (`unguarded`): a sentence. The fastest of many
    is so by the luck of its prompts, too; so it is also chosen on one half of the prompts and judged on the other."""
    times = collections.defaultdict(lambda: collections.defaultdict(float))
    for run in rows["run"]:
        if run["phase"] == "paired" and run["arm"] == kind:
            times[run["name"]][run["prompt"]] += sums([run])[0]
    plan = times.pop("plan", {})
    prompts = sorted(prompt for prompt in plan if all(prompt in its for its in times.values()))
    if not times or len(prompts) < 4:
        return ""

    def total(its, asked):
        return sum(its[prompt] for prompt in asked)

    def best(asked):
        return min(times.values(), key=lambda its: total(its, asked))

    dice = random.Random(1)
    apart, drawn = [], []
    for _ in range(SPLITS):
        dice.shuffle(prompts)
        halves = prompts[: len(prompts) // 2], prompts[len(prompts) // 2 :]
        apart += [total(plan, judged) / total(best(chosen), judged) for chosen, judged in (halves, halves[::-1])]
    for _ in range(SAMPLES):
        sample = dice.choices(prompts, k=len(prompts))
        drawn.append(total(plan, sample) / total(best(prompts), sample))
    cut = sorted(drawn)[len(drawn) // 40 : -(len(drawn) // 40)]
    return (
        f"{'With' if kind == 'plan' else 'Without'} the guard the plan takes {total(plan, prompts) / total(best(prompts), prompts):.3f} times as long "
        f"as the fastest on these {len(prompts)} prompts ({cut[0]:.3f} to {cut[-1]:.3f} in 95% of samples of them), "
        f"{statistics.mean(apart):.3f} times as long as the fastest on one half of them, judged on the other.\n"
    )


def exhaustive(rows):
    configurations = {row.pop("name"): row for row in rows["configuration"]}
    every = unguarded(rows, "all")
    text = [predictions(f"{len(every)} shapes without the guard, the fastest first", configurations, every)]
    paired = arms(rows, phase="paired")
    if not paired:
        return "\n".join([*text, "The plan and the fastest were not measured again.\n"])
    again = unguarded(rows, "paired")
    text.append(predictions("The plan and the fastest of them in one run, without the guard", configurations, again))
    body, excess = [], 0.0
    served = paired["plan", "plan"]
    for (name, kind), arm in sorted(paired.items(), key=lambda entry: entry[1].median(entry[1].tpot_ms)):
        pairs = [mine / its for mine, its in zip(served.tpot_ms, arm.tpot_ms)]
        excess = max(excess, arm.median(pairs) - 1)
        who = "plain decoding" if name == "ar" else " ".join(map(str, shape(configurations[name])))
        body.append(
            [
                f"**{who}**" if (name, kind) == ("plan", "plan") else who,
                {"ar": "-", "plan": f"yes, {arm.fell_back:.0%} of answers fell back", "unguarded": "no"}[kind],
                spread(arm.tpot_ms),
                spread(arm.speedup),
                spread(pairs),
            ]
        )
    head = ["drafter Dd Wd Wv", "guard", "ms per token", "speed-up", "the plan's time by its"]
    text.append(table("The same run with the guard: bold is what the planner chose, as it is served", head, body))
    text.append(
        f"The plan takes {excess:.1%} more time per token than the fastest of these, by the medians of pairs: "
        f"{'within' if excess <= WITHIN_BEST else 'beyond'} {WITHIN_BEST:.0%}.\n"
    )
    text += [beside_the_fastest(rows, kind) for kind in ["plan", "unguarded"]]
    return "\n".join(text)


def by_category(rows):
    """The speed-up of the plan as it is served, by category of prompts, the least first."""
    categories = dict.fromkeys(run["category"] for run in rows["run"])
    measured = {category: arms(rows, phase="unseen", category=category)["plan", "plan"] for category in categories}
    return sorted((arm.median(arm.speedup), category) for category, arm in measured.items() if arm.speedup)


def between(by_context, context, value):
    """A value at a length of the context: linear between those that the plan speaks of, the nearest beyond them, as plans price steps."""
    below = [known for known in by_context if known["context"] <= context]
    above = [known for known in by_context if known["context"] > context]
    if not below or not above:
        return value((below or above)[-1 if below else 0])
    low, high = below[-1], above[0]
    share = (context - low["context"]) / (high["context"] - low["context"])
    return value(low) + share * (value(high) - value(low))


def expected_at(configuration, runs):
    """What the plan promises for the contexts of some answers: plain decoding's time of all their tokens by that of the plan. Files of former
    versions have what it promises for the contexts of its own prompts alone."""
    by_context = configuration.get("by_context")
    stepped = [run for run in runs if run["steps"] and "prompt_tokens" in run]
    if not by_context or not stepped:
        return configuration["expected"]
    asked = [(run["prompt_tokens"] + run["tokens"] / 2, run["tokens"] - 1) for run in stepped]

    def total(value):
        return sum(tokens * between(by_context, context, value) for context, tokens in asked)

    plain = total(lambda known: known["ar_tpot_us"])
    at = {key: plain / total(lambda known: known["ar_tpot_us"] / known[key]) for key in ["speedup", "low", "high"]}
    return configuration["expected"] | at


def prediction(rows):
    configurations = {row.pop("name"): row for row in rows["configuration"]}
    found = arms(rows, phase="unseen")
    body, errors, of_prompts, inside = [], [], [], 0
    for name, configuration in configurations.items():
        arm = found.get((name, "plan" if name == "plan" else "unguarded"))
        if arm is None or not arm.speedup:
            continue
        asked = [run for run in rows["run"] if run["name"] == name]
        predicted, expected = configuration["predicted"], expected_at(configuration, asked)
        speedup = arm.median(arm.speedup)
        is_inside = expected["low"] <= speedup <= expected["high"]
        inside += is_inside
        errors.append(abs(expected["speedup"] / speedup - 1))
        of_prompts.append(arm.error)
        body.append(
            [
                f"**the plan as served**: {configuration['drafter']}" if name == "plan" else configuration["drafter"],
                *shape(configuration)[1:],
                expected["prompts"],
                f"{predicted['aal']:.2f}, {arm.aal:.2f}",
                f"{predicted['speedup']:.2f}",
                f"{expected['speedup']:.2f} ({expected['low']:.2f} to {expected['high']:.2f})",
                spread(arm.speedup),
                f"{arm.error:.1%}",
                ratio(expected["speedup"], speedup),
                "yes" if is_inside else "**no**",
            ]
        )
    head = [*SHAPE, "prompts recorded", "AAL: recorded, measured", "speed-up: recorded prompts", "expected on others, at their contexts"]
    head += ["measured", "standard error of the prompts asked", "expected by measured", "within the interval"]
    categories = ", ".join(f"{category} {speedup:.2f}" for speedup, category in by_category(rows))
    return table("What the plan promises on prompts that the profile has not seen", head, body) + (
        f"\n{inside} of {len(errors)} measured speed-ups lie within their intervals; the expected ones are off by {statistics.median(errors):.1%} "
        f"in the median and {max(errors):.1%} at most. The prompts asked are a sample, too: what is true of all prompts like them would be off by "
        f"{NORMAL_MEDIAN * statistics.median(of_prompts):.1%} in the median.\n\nThe plan as served, by category: {categories}.\n"
    )


def ablation(rows):
    configurations = {row.pop("name"): row for row in rows["configuration"]}
    text = []
    for temperature in dict.fromkeys(run["temperature"] for run in rows["run"]):
        found = arms(rows, phase="ablation", temperature=temperature)
        kinds = [kind for kind in ["unguarded", "plan"] if any(arm == kind for _, arm in found)]
        body = []
        for title, who in [("plain decoding, eager: op by op", "eager"), ("plain decoding, static programs", "ar")]:
            plain = found.get((who, who))
            if plain:
                times = [spread(plain.step_ms), spread(plain.tpot_ms)]
                body.append([title, *["-"] * 4, f"{plain.aal:.2f}", *times, "-", spread(plain.speedup), "-"])
        for name, configuration in configurations.items():
            arm = found[name, kinds[0]]
            line = [
                f"{configuration['of']}: {configuration['row']}" if configuration["fix"] else configuration["row"],
                *shape(configuration),
                f"{arm.aal:.2f}",
                spread(arm.step_ms),
                spread(arm.tpot_ms),
                f"{configuration['predicted']['speedup']:.2f}",
                spread(arm.speedup),
            ]
            guarded = found.get((name, "plan"))
            line.append(
                f"{spread(guarded.speedup)}, {guarded.fell_back:.0%} fell back" if guarded and kinds[0] != "plan" else "-"
            )
            body.append(line)
        guard = "without the guard" if kinds[0] == "unguarded" else "with the guard"
        head = ["", *SHAPE, "AAL", "ms per step", "ms per token", "speed-up predicted for greedy requests", "speed-up"]
        head.append("speed-up with the guard, answers that fell back")
        text.append(table(f"Temperature {temperature:g}, {guard}", head, body))
    text.append(
        "A row is the shape that is predicted to be best when no more than it and the rows above it have may be chosen; where it says "
        "`instead`, in the place of what the row with pruning has. Rows of as many rows compare ways to grow.\n"
    )
    for refused in rows["refused"]:
        text.append(f"{refused['of']}: {refused['row']}: the recorded steps cannot answer for any such tree.\n")
    return "\n".join(text)


def tables(rows):
    """Everything that the rows say, as Markdown."""
    header, setting = rows["header"][0], rows["setting"][0]
    machine, options = setting["machine"], header["options"]
    facts = f"{machine['name']} (family {machine['family']}, model {machine['model']}), {machine['isa']}"
    repetitions = f"{options['repetitions']} repetitions"
    if header["script"] == "exhaustive":
        repetitions += f", {options['paired']} of the paired run"
    text = (
        f"{facts}, {setting['threads']} threads; {header['date']}; commit {header['commit']}"
        f"{' with changes' if header['changed'] else ''}; {header['version']}; {setting['model']['name']}; "
        f"{header['prompts']['asked']} prompts of {header['prompts']['file']}, at most {options['tokens']} tokens, {repetitions}; "
        f"load before {header['load_1min']:.2f}.\n"
    )
    return "\n".join([text, {"prediction": prediction, "exhaustive": exhaustive, "ablation": ablation}[header["script"]](rows)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(tables(read(sys.argv[1])))
