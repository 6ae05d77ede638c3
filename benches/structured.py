#!/usr/bin/env python3
"""Structured output over a suite of JSON schemas: `benches/structured.py MODEL SCHEMAS [--plan FILE] [--count 200] [--tokens 192] [--sampled 0]`.

SCHEMAS is a folder whose `.json` files each are a schema, or have one as `schema` or `json_schema`; of all below it, so many are drawn with a
fixed seed. Each is asked for three times in turn: constrained by speculation with the plan, constrained plainly, and not constrained with
as many tokens. With `--answers-only` not the third, and nothing says how long it took. An answer that TOKENS cut, as those of small models that repeat themselves
are, is asked for again with `--sampled N`: at temperature 1, by one seed behind another until one of N comes to its end. Prints a line of JSON
for each schema and one at the end: how many were refused and why, whether tokens were equal in every attempt, whether answers that came to their end validate, and
times per token of the greedy ones. Needs the package yggc and `jsonschema`.
"""

import argparse
import collections
import json
import random
import statistics
from pathlib import Path

import jsonschema

import yggc

parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
parser.add_argument("model")
parser.add_argument("schemas", type=Path)
parser.add_argument("--plan")
parser.add_argument("--count", type=int, default=200)
parser.add_argument("--tokens", type=int, default=192)
parser.add_argument("--sampled", type=int, default=0, metavar="N")
parser.add_argument("--answers-only", action="store_true")
parser.add_argument("--seed", type=int, default=1, help="which schemas are drawn")
parser.add_argument("--threads", type=int, help="the plan's")
options = parser.parse_args()


def schema_of(path):
    found = json.loads(path.read_text())
    if isinstance(found, dict):
        for name in ("json_schema", "schema"):
            if isinstance(found.get(name), dict):
                return found[name]
    return found


def both(question, schema, **asked):
    """The answers by the plan and by plain decoding."""
    asked |= {"json_schema": schema, "max_tokens": options.tokens}
    return planned.chat(question, **asked).answer(), plain.chat(question, speculation=False, **asked).answer()


def validity(text, schema):
    """What the validator says of an answer that came to its end."""
    try:
        jsonschema.validate(json.loads(text), schema)
        return {"valid": True}
    except (jsonschema.ValidationError, ValueError) as error:
        return {"valid": False, "why": str(error).split("\n")[0][:200]}
    except Exception as error:  # noqa: BLE001: a schema that the validator itself cannot take says nothing of the answer
        return {"validator": type(error).__name__}


paths = sorted(path for path in options.schemas.rglob("*.json"))
random.Random(options.seed).shuffle(paths)
planned = yggc.Engine(options.model, plan=options.plan, threads=options.threads)
plain = yggc.Engine(options.model, threads=options.threads)
refused, rows = collections.Counter(), []
for path in paths:
    if len(rows) == options.count:
        break
    schema = schema_of(path)
    question = "Write an example, as JSON, of what this schema describes:\n" + json.dumps(schema)[:1500]
    try:
        found, expected = both(question, schema, reuse=False)
    except (yggc.InputError, TypeError) as error:
        refused[str(error).split(":")[0][:60]] += 1
        continue
    answers = {"planned_ms": found, "plain_ms": expected}
    row = {"schema": path.stem, "tokens": expected.report.tokens, "finish": expected.finish_reason, "equal": found.token_ids == expected.token_ids}
    if not options.answers_only:
        answers["free_ms"] = plain.chat(question, max_tokens=max(2, expected.report.tokens), reuse=False).answer()
        row |= {name: (time := answer.report.ms_per_token) and round(time, 3) for name, answer in answers.items()}
    for seed in range(options.sampled):
        if expected.finish_reason == "stop":
            break
        found, expected = both(question, schema, temperature=1.0, seed=seed)
        row["equal"] &= found.token_ids == expected.token_ids
        row |= {"sampled": seed + 1, "sampled_tokens": expected.report.tokens}
    row["ended"] = expected.finish_reason == "stop"
    if row["ended"]:
        row |= validity(found.text, schema)
    rows.append(row)
    print(json.dumps(row), flush=True)


def ratio(above, below):
    each = [row[above] / row[below] for row in rows if row.get(above) and row.get(below)]
    # Of all tokens together: times per token, weighed by tokens.
    weighed = [(row[above] * row["tokens"], row[below] * row["tokens"]) for row in rows if row.get(above) and row.get(below)]
    return {"of_all": round(sum(a for a, _ in weighed) / sum(b for _, b in weighed), 3), "median": round(statistics.median(each), 3),
            "best": round(min(each), 3), "worst": round(max(each), 3)}


said = {
    "schemas": len(rows), "refused": dict(refused), "equal": sum(row["equal"] for row in rows),
    "ended_greedily": sum(row["finish"] == "stop" for row in rows), "ended": sum(row["ended"] for row in rows),
    "cut": [row["schema"] for row in rows if not row["ended"]], "valid": sum(row.get("valid") is True for row in rows),
    "invalid": [row["schema"] for row in rows if row.get("valid") is False],
    "not_judged": [row["schema"] for row in rows if "validator" in row],
}
if not options.answers_only:
    said |= {"plain_over_free": ratio("plain_ms", "free_ms"), "plain_over_planned": ratio("plain_ms", "planned_ms")}
print(json.dumps(said))
