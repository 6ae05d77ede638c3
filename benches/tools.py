#!/usr/bin/env python3
"""Tool calls in 20 conversations: `benches/tools.py PROGRAM MODEL [--plan FILE] [--repetitions 3] [-- OPTIONS]`, with OPTIONS of `yggc serve`.

Starts the server and asks for the next turn of every conversation of `prompts/tools.jsonl`, greedy and sampled, in turn: calls by speculation with the
plan, calls plainly, and as many tokens without a constraint. Prints a line of JSON for each answer and one at the end: whether every call names a
function that it may and its arguments fit the schema, whether calls and numbers of tokens were equal, and medians of times per token behind the first.
Needs `jsonschema`.
"""

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema

SAMPLINGS = {"greedy": {"temperature": 0}, "sampled": {"temperature": 0.8, "top_p": 0.95, "seed": 11}}
ARMS = ("planned", "plain", "free")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--plan")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256, help="of an answer at most")
    parser.add_argument("--conversations", type=Path, default=Path(__file__).parent / "prompts/tools.jsonl")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:split])
    options.server = given[split + 1:]
    return options


def asked(address, body):
    """The answer's calls, why it ended, its tokens, and milliseconds per token behind the first."""
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise SystemExit(f"{reply.status}: {reply.read().decode()}")
    calls, reason, usage, first = {}, None, None, None
    for line in reply:
        first = first or time.perf_counter()
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices", ()):
            reason = choice["finish_reason"] or reason
            for call in choice["delta"].get("tool_calls", ()):
                entry = calls.setdefault(call["index"], ["", ""])
                entry[0] += call["function"].get("name", "")
                entry[1] += call["function"].get("arguments", "")
    took = time.perf_counter() - first
    connection.close()
    tokens = usage["completion_tokens"]
    return list(calls.values()), reason, tokens, 1e3 * took / (tokens - 1) if tokens > 1 else None


def fault(conversation, calls):
    """What is wrong with calls, if anything is."""
    choice = conversation["tool_choice"]
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in conversation["tools"]}
    allowed = [choice["function"]["name"]] if isinstance(choice, dict) else list(schemas)
    if not calls:
        return "no call"
    for name, text in calls:
        if name not in allowed:
            return f"{name!r} is none of {allowed}"
        try:
            jsonschema.validate(json.loads(text), schemas[name], format_checker=jsonschema.FormatChecker())
        except (jsonschema.ValidationError, ValueError) as error:
            return str(error).split("\n")[0][:200]
    return None


def row(address, conversation, sampling, options):
    common = {key: conversation[key] for key in ("messages", "tools", "tool_choice", "parallel_tool_calls")} | SAMPLINGS[sampling]
    arms = {
        "planned": common | {"drafter": "plan", "max_tokens": options.tokens},
        "plain": common | {"drafter": "none", "max_tokens": options.tokens},
    }
    times, answers = {arm: [] for arm in ARMS}, {}
    for _ in range(options.repetitions):
        for arm in ARMS:
            if arm == "free":
                arms[arm] = common | {"drafter": "none", "tool_choice": "auto", "max_tokens": max(2, answers["plain"][2])}
            *answer, per_token = asked(address, arms[arm])
            assert arm == "free" or answers.setdefault(arm, answer) == answer, "the same request, another answer"
            if per_token:
                times[arm].append(per_token)
    calls, reason, tokens = answers["planned"]
    wrong = fault(conversation, calls) if reason == "tool_calls" else None
    medians = {f"{arm}_ms": round(statistics.median(times[arm]), 3) if times[arm] else None for arm in ARMS}
    return {"conversation": conversation["id"], "sampling": sampling, "tokens": tokens, "finish": reason, "calls": calls,
            "equal": answers["planned"] == answers["plain"], "fault": wrong} | medians


def ratio(rows, above, below):
    both = [row[above] / row[below] for row in rows if row[above] and row[below]]
    return {"median": round(statistics.median(both), 3), "best": round(min(both), 3), "worst": round(max(both), 3)}


def main():
    options = arguments()
    conversations = [json.loads(line) for line in options.conversations.read_text().splitlines()]
    command = [options.program, "serve", "-m", options.model, "--port", "0", *options.server]
    command += ["--plan", options.plan] if options.plan else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = urlsplit(server.stdout.readline().strip())
        rows = []
        for conversation in conversations:
            for sampling in SAMPLINGS:
                rows.append(row(address, conversation, sampling, options))
                print(json.dumps(rows[-1]), flush=True)
    finally:
        server.terminate()
        server.wait()
    print(json.dumps({
        "conversations": len(conversations), "answers": len(rows), "whole": sum(row["finish"] == "tool_calls" for row in rows),
        "faults": [row["conversation"] for row in rows if row["fault"]], "equal": sum(row["equal"] for row in rows),
        "plain_over_free": ratio(rows, "plain_ms", "free_ms"), "plain_over_planned": ratio(rows, "plain_ms", "planned_ms"),
    }))


if __name__ == "__main__":
    main()
