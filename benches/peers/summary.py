#!/usr/bin/env python3
"""Derives tables from what compare.py measured.

usage: benches/peers/summary.py FILE.jsonl...

A ratio above 1 says that yggc was faster. Ratios are of pairs: same repetition, same prompt. Figures are medians, with the
least and the greatest in brackets. Of a peer that ran without and with flash attention the faster one is taken, measure by
measure. Several files, each of one model and number of threads, get one table that ends with the worst and the best ratios.
"""

import collections
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import raw_lines
from raw_lines import spread, table


def read(path):
    return raw_lines.read(path, "compare.py")


def by_arm(rows):
    """Rows of every arm by what they are paired by, arms in order of appearance."""
    arms = collections.defaultdict(dict)
    for row in rows:
        arms[row["arm"]][row["repetition"], row.get("prompt")] = row
    return arms


def ratios(arm, yggc, key):
    """Times of `arm` by those of `yggc`, pair by pair."""
    return [row[key] / yggc[pair][key] for pair, row in arm.items() if pair in yggc]


def numbers(arm, key):
    return [row[key] for row in arm.values()]


def measures(rows):
    """Name, the key of its time in ms, and the rows of every measure that is one time an arm."""
    if rows["ar"]:
        yield "decode, ms a token", "tpot_ms", rows["ar"]
    for width in sorted({row["width"] for row in rows["widths"]}):
        of_width = [row | {"ms": row["median_us"] / 1e3} for row in rows["widths"] if row["width"] == width]
        yield f"T({width}) behind {of_width[0]['depth']}, ms", "ms", of_width
    for measure, text, key in [("prefill", "prefill of {}, ms", "ttft_ms"), ("deep", "decode behind {}, ms a token", "tpot_ms")]:
        if rows[measure]:
            yield text.format(rows[measure][0]["prompt_tokens"]), key, rows[measure]


def best_arms(arms, key):
    """The arm of the least median of every peer, by peer."""
    best = {}
    for arm in arms:
        peer = arm.split()[0]
        median = statistics.median(numbers(arms[arm], key))
        if peer != "yggc" and (peer not in best or median < statistics.median(numbers(arms[best[peer]], key))):
            best[peer] = arm
    return best


def every_arm(rows):
    """All arms of all measures: time, and by each arm of yggc the ratio."""
    body, ours = [], []
    for name, key, measured in measures(rows):
        arms = by_arm(measured)
        best = best_arms(arms, key).values()
        ours = [arm for arm in arms if arm.startswith("yggc")] or ours
        for arm, runs in arms.items():
            against = [spread(ratios(runs, arms.get(own, {}), key)) for own in ours]
            body.append([name, arm + (" (its best)" if arm in best else ""), spread(numbers(runs, key)), *against])
    return table("Times", ["measure", "arm", "time", *(f"{own} against it" for own in ours)], body)


def differing(runs, others):
    """Prompts of which some answer is not that of `others`, and how many prompts there are."""
    unequal = {
        pair[1] for pair, row in runs.items() if pair in others and row["token_ids"] != others[pair]["token_ids"]
    }
    return f"{len(unequal)} of {len({pair[1] for pair in runs})}"


def answers(rows):
    arms = by_arm(rows["answers"])
    yggc = arms["yggc plan"]
    total = {arm: sum(numbers(runs, "total_ms")) for arm, runs in arms.items()}
    body = []
    for arm, runs in arms.items():
        steps, tokens = sum(numbers(runs, "steps")), sum(numbers(runs, "tokens"))
        peer = arm.split()[0]
        own = arms["yggc ar"] if peer == "yggc" else arms[f"{peer} plain"]
        body.append(
            [
                arm,
                f"{tokens / total[arm] * 1e3:.1f}",
                f"{(tokens - len(runs)) / steps:.2f}" if steps else "-",
                spread(numbers(runs, "total_ms"), 0),
                spread(ratios(runs, yggc, "total_ms")),
                f"{total[arm] / tokens / total['yggc plan'] * sum(numbers(yggc, 'tokens')):.2f}",
                differing(runs, own),
            ]
        )
    head = [
        "arm",
        "tokens/s, prefill included",
        "tokens a step",
        "ms an answer",
        "yggc's plan against it, by time of an answer",
        "by time per token, all answers together",
        "prompts answered otherwise than plainly by the same program",
    ]
    text = [table("Whole answers", head, body)]
    best = min((arm for arm in arms if not arm.startswith("yggc")), key=total.get)
    categories = collections.defaultdict(dict)
    for pair, row in arms[best].items():
        categories[row["category"]][pair] = row
    body = [
        [name, len({pair[1] for pair in runs}), spread(ratios(runs, yggc, "total_ms"))]
        for name, runs in categories.items()
    ]
    text.append(
        table(
            f"Whole answers by category: yggc's plan against {best}, the peers' best of all answers together",
            ["category", "prompts", "ratio"],
            body,
        )
    )
    for arm in arms:
        if arm.endswith(".cpp plain"):
            unlike = differing(arms[arm], arms["yggc ar"])
            text.append(f"Prompts that {arm.split()[0]} and yggc answer differently when both decode plainly: {unlike}.\n")
    return "\n".join(text)


def setting(header):
    """Machine, versions and options of a file in a sentence."""
    machine, options = header["machine"], header["options"]
    peers = header.get("peers") or {f"llama.cpp {name}": said for name, said in header["llama_cpp"].items()}
    versions = dict.fromkeys(f"{name.split()[0]} {said['version']}" for name, said in peers.items())
    return (
        f"{machine.get('cpu')} (family {machine.get('family')}, model {machine.get('model')}), tier {machine.get('tier')}, "
        f"{machine['processors']} processors, {options['threads']} threads; {header['date']}; "
        f"commit {header['commit']}{' with changes' if header['changed'] else ''}; "
        f"{header['yggc']['version'] if header['yggc'] else 'no yggc'}; {', '.join(versions)}; {header['model']['file']}; "
        f"{header['prompts']['file'] if header['prompts'] else 'random prompts'}; {options['repetitions']} repetitions; "
        f"load before {machine['load_1min']:.2f}.\n"
    )


def size_and_format(model):
    """`1.50 G` and `Q4_K - Medium` of a file whose description is `llama 1B Q4_K - Medium`."""
    return f"{model['parameters'] / 1e9:.2f} G", model["description"].split(maxsplit=2)[2]


def matrix(files):
    """One table of many files: a line for each model, number of threads, measure and arm of yggc; then the extremes."""
    peers = list(dict.fromkeys(arm.split()[0] for rows in files for _, _, at in measures(rows) for arm in by_arm(at)))
    peers = [peer for peer in peers if peer != "yggc"]
    body, extremes = [], collections.defaultdict(list)
    for rows in files:
        header = rows["header"][0]
        size, weights = size_and_format(header["model"])
        place = [header["model"]["file"].removesuffix(".gguf"), size, weights, header["machine"].get("tier"), header["options"]["threads"]]
        for name, key, measured in measures(rows):
            arms = by_arm(measured)
            best = best_arms(arms, key)
            for own in [arm for arm in arms if arm.startswith("yggc")] or [None]:
                line = [*place, name, f"{own}: {spread(numbers(arms[own], key))}" if own else "-"]
                for peer in peers:
                    theirs = arms.get(best.get(peer), {})
                    found = ratios(theirs, arms[own], key) if own else []
                    line += [spread(numbers(theirs, key)), spread(found)]
                    if found:
                        extremes[peer, own].append((statistics.median(found), f"{name}, {' '.join(map(str, place))} threads"))
                body.append(line)
    head = ["model", "parameters", "format", "tier", "threads", "measure", "yggc"]
    text = [table("All models", head + [column for peer in peers for column in (peer, f"yggc against {peer}")], body)]
    for (peer, own), found in extremes.items():
        (worst, worst_at), (best, best_at) = min(found), max(found)
        text.append(f"{own} against {peer}: worst {worst:.2f} ({worst_at}), best {best:.2f} ({best_at}).\n")
    return "\n".join(text)


def tables(files):
    """Everything that the files say, as Markdown."""
    text = [setting(rows["header"][0]) for rows in files]
    if len(files) > 1:
        return "\n".join([*text, matrix(files)])
    (rows,) = files
    return "\n".join([*text, every_arm(rows), *([answers(rows)] if rows["answers"] else [])])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(tables([read(path) for path in sys.argv[1:]]))
