#!/usr/bin/env python3
"""Derives tables from what compare.py measured.

usage: benches/peers/summary.py FILE.jsonl

A ratio above 1 says that yggc was faster. Ratios are of pairs: same repetition, same prompt. Figures are medians, with the
least and the greatest in brackets.
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


def ar(rows):
    arms = by_arm(rows["ar"])
    choice = rows["choice"][0]
    best = f"llama.cpp {choice['threading']} fa={choice['flash']}"
    body = [
        [
            arm + (" (its best)" if arm == best else ""),
            spread([1e3 / time for time in numbers(runs, "tpot_ms")], 1),
            spread(ratios(runs, arms["yggc ar"], "tpot_ms")),
        ]
        for arm, runs in arms.items()
    ]
    return table("Plain decoding, without prefill", ["arm", "tokens/s", "yggc against it"], body)


def widths(rows):
    cells = collections.defaultdict(dict)
    for row in rows["widths"]:
        cells[row["depth"], row["arm"], row["width"]][row["repetition"]] = row["median_us"] / 1e3
    middle = {cell: statistics.median(times.values()) for cell, times in cells.items()}
    text = []
    for depth in sorted({depth for depth, arm, _ in cells if arm != "yggc"}):
        arms = sorted({arm for at, arm, _ in cells if at == depth})
        body = []
        for width in sorted({width for at, arm, width in cells if at == depth and arm != "yggc"}):
            line = [width]
            for arm in arms:
                time, one = middle.get((depth, arm, width)), middle.get((depth, arm, 1))
                line.append(
                    f"{spread(list(cells[depth, arm, width].values()))}, {time / one:.2f}x" if time and one else "-"
                )
            peers = [arm for arm in arms if arm != "yggc"]
            best = min(peers, key=lambda arm: middle[depth, arm, width])
            pairs = cells[depth, best, width], cells.get((depth, "yggc", width), {})
            line.append(
                spread([time / pairs[1][repetition] for repetition, time in pairs[0].items() if repetition in pairs[1]])
            )
            body.append(line)
        head = ["width", *(f"{arm}: ms, by width 1" for arm in arms), "yggc against llama.cpp's better one"]
        text.append(table(f"A forward by width, logits of every row, {depth} tokens in the cache", head, body))
    return "\n".join(text)


def prefill(rows):
    arms = by_arm(rows["prefill"])
    tokens = rows["prefill"][0]["prompt_tokens"]
    body = [
        [
            arm,
            spread(numbers(runs, "ttft_ms"), 1),
            f"{tokens / statistics.median(numbers(runs, 'ttft_ms')) * 1e3:.0f}",
            spread(ratios(runs, arms["yggc"], "ttft_ms")),
        ]
        for arm, runs in arms.items()
    ]
    return table(f"Time to the first token of a prompt of {tokens}", ["arm", "ms", "tokens/s", "yggc against it"], body)


def differing(runs, others):
    """Prompts of which some answer is not that of `others`, and how many prompts there are."""
    unequal = {
        pair[1] for pair, row in runs.items() if pair in others and row["token_ids"] != others[pair]["token_ids"]
    }
    return f"{len(unequal)} of {len({pair[1] for pair in runs})}"


def answers(rows):
    arms = by_arm(rows["answers"])
    plain, yggc = arms["llama.cpp plain"], arms["yggc plan"]
    total = {arm: sum(numbers(runs, "total_ms")) for arm, runs in arms.items()}
    body = []
    for arm, runs in arms.items():
        steps, tokens = sum(numbers(runs, "steps")), sum(numbers(runs, "tokens"))
        own = plain if arm.startswith("llama.cpp") else arms["yggc ar"]
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
    best = min((arm for arm in arms if arm.startswith("llama.cpp")), key=total.get)
    categories = collections.defaultdict(dict)
    for pair, row in arms[best].items():
        categories[row["category"]][pair] = row
    body = [
        [name, len({pair[1] for pair in runs}), spread(ratios(runs, yggc, "total_ms"))]
        for name, runs in categories.items()
    ]
    text.append(
        table(
            f"Whole answers by category: yggc's plan against {best}, llama.cpp's best of all answers together",
            ["category", "prompts", "ratio"],
            body,
        )
    )
    text.append(
        f"Prompts that llama.cpp and yggc answer differently when both decode plainly: {differing(plain, arms['yggc ar'])}.\n"
    )
    return "\n".join(text)


def tables(rows):
    """Everything that the rows say, as Markdown."""
    header = rows["header"][0]
    machine, options = header["machine"], header["options"]
    text = [
        f"{machine.get('cpu')} (family {machine.get('family')}, model {machine.get('model')}), {machine['processors']} processors, "
        f"{options['threads']} threads; {header['date']}; commit {header['commit']}{' with changes' if header['changed'] else ''}; "
        f"{header['yggc']['version']}; llama-cpp-python {header['llama_cpp']['openmp']['version']}; {header['model']['file']}; "
        f"{header['prompts']['file']}; {options['repetitions']} repetitions; load before {machine['load_1min']:.2f}.\n"
    ]
    measures = {"ar": ar, "widths": widths, "prefill": prefill, "answers": answers}
    text += [make(rows) for name, make in measures.items() if rows[name]]
    return "\n".join(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(tables(read(sys.argv[1])))
