#!/usr/bin/env python3
"""Structured output over a suite of JSON schemas: `benches/structured.py MODEL SCHEMAS [--plan FILE] [--count 200] [--tokens 192]`.

SCHEMAS is a folder whose `.json` files each are a schema, or have one as `schema` or `json_schema`; of all below it, so many are drawn with a
fixed seed. Each is asked for three times in turn: constrained by speculation with the plan, constrained plainly, and not constrained with
as many tokens. Prints a line of JSON for each schema and one at the end: how many were refused and why, whether tokens were equal, whether answers that
came to their end validate, and times per token. Needs the package yggc and `jsonschema`.
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
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--threads", type=int, help="the plan's")
options = parser.parse_args()


def schema_of(path):
    found = json.loads(path.read_text())
    if isinstance(found, dict):
        for name in ("json_schema", "schema"):
            if isinstance(found.get(name), dict):
                return found[name]
    return found


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
    asked = {"max_tokens": options.tokens, "reuse": False}
    try:
        found = planned.chat(question, json_schema=schema, **asked).answer()
        expected = plain.chat(question, json_schema=schema, speculation=False, **asked).answer()
    except (yggc.InputError, TypeError) as error:
        refused[str(error).split(":")[0][:60]] += 1
        continue
    free = plain.chat(question, **{**asked, "max_tokens": max(2, expected.report.tokens)}).answer()
    row = {"schema": path.stem, "tokens": expected.report.tokens, "finish": expected.finish_reason, "equal": found.token_ids == expected.token_ids}
    if expected.finish_reason == "stop":
        try:
            jsonschema.validate(json.loads(found.text), schema)
            row["valid"] = True
        except (jsonschema.ValidationError, ValueError) as error:
            row |= {"valid": False, "why": str(error).split("\n")[0][:200]}
        except Exception as error:  # noqa: BLE001: a schema that the validator itself cannot take says nothing of the answer
            row["validator"] = type(error).__name__
    times = {name: answer.report.ms_per_token for name, answer in (("planned_ms", found), ("plain_ms", expected), ("free_ms", free))}
    row |= {name: time and round(time, 3) for name, time in times.items()}
    rows.append(row)
    print(json.dumps(row), flush=True)


def ratio(above, below):
    both = [row[above] / row[below] for row in rows if row[above] and row[below]]
    # Of all tokens together: times per token, weighed by tokens.
    weighed = [(row[above] * row["tokens"], row[below] * row["tokens"]) for row in rows if row[above] and row[below]]
    return {"of_all": round(sum(a for a, _ in weighed) / sum(b for _, b in weighed), 3), "median": round(statistics.median(both), 3),
            "best": round(min(both), 3), "worst": round(max(both), 3)}


print(json.dumps({
    "schemas": len(rows), "refused": dict(refused), "equal": sum(row["equal"] for row in rows),
    "ended": sum(row["finish"] == "stop" for row in rows), "valid": sum(row.get("valid") is True for row in rows),
    "invalid": [row["schema"] for row in rows if row.get("valid") is False],
    "plain_over_free": ratio("plain_ms", "free_ms"), "plain_over_planned": ratio("plain_ms", "planned_ms"),
}))
