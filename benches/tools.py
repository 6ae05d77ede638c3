#!/usr/bin/env python3
"""Tool calls in 20 conversations: `benches/tools.py PROGRAM MODEL [--plan FILE] [--repetitions 3] [-- OPTIONS]`, with OPTIONS of `yggc serve`.

Starts the server and asks for the next turn of every conversation of `prompts/tools.jsonl`, greedy and sampled, in turn: calls by speculation with the
plan, calls plainly, and as many tokens without a constraint, as streams; then calls by speculation once more, not as a stream. Prints a line of JSON for
each answer and one at the end: whether every call names a function that it may and its arguments fit the schema, whether calls and numbers of
tokens were equal, and medians of times per token behind the first. `--check` asks once, measures nothing, and ends with 1 unless all answers
are equal and valid. `--template FILE` serves a copy of MODEL, a GGUF file, with this chat template, and so with its family's format of calls; a plan of MODEL then needs OPTIONS `--force`.
Needs `jsonschema`.
"""

import argparse
import http.client
import json
import statistics
import struct
import subprocess
import sys
import tempfile
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
    parser.add_argument("--drafter", default="plan", help="another that the plan measured")
    parser.add_argument("--check", action="store_true", help="only whether answers are equal and valid")
    parser.add_argument("--template", type=Path, help="chat template instead of the model's")
    parser.add_argument("--conversations", type=Path, default=Path(__file__).parent / "prompts/tools.jsonl")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:split])
    options.server = given[split + 1:]
    if options.check:
        options.repetitions = 1
    return options


def with_template(model, template, out):
    """Writes a copy of a GGUF file that has another chat template."""
    data = Path(model).read_bytes()
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    at, alignment = 24, 32

    def number(form):
        nonlocal at
        [value] = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        length = number("Q")
        at += length
        return data[at - length:at]

    def skip(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            of, count = number("I"), number("Q")
            if of in sizes:
                at += sizes[of] * count
            else:
                for _ in range(count):
                    skip(of)
        else:
            at += sizes[kind]

    tensors, entries = struct.unpack_from("<QQ", data, 8)
    kept, count = [], 0
    for _ in range(entries):
        start = at
        key, kind = text(), number("I")
        if key == b"general.alignment":
            alignment = struct.unpack_from("<I", data, at)[0]
        skip(kind)
        if key != b"tokenizer.chat_template":
            kept.append(data[start:at])
            count += 1
    begin = at
    for _ in range(tensors):
        text()
        dimensions = number("I")
        at += 8 * dimensions + 12
    infos, key, source = data[begin:at], b"tokenizer.chat_template", template.read_bytes()
    kept.append(struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(source)) + source)
    head = data[:8] + struct.pack("<QQ", tensors, count + 1) + b"".join(kept) + infos
    head += bytes(-len(head) % alignment)
    Path(out).write_bytes(head + data[at + -at % alignment:])


class Unlaid(Exception):
    """A conversation whose order of roles the chat template refuses."""


def refused(status, said):
    """What is to be done about an answer that is none."""
    return Unlaid() if status == 400 and "could not lay out the conversation" in said else SystemExit(f"{status}: {said}")


def asked_whole(address, body):
    """The answer's calls, why it ended and its tokens, not as a stream."""
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    reply = connection.getresponse()
    answer = json.loads(reply.read())
    connection.close()
    if reply.status != 200:
        raise refused(reply.status, json.dumps(answer))
    [choice] = answer["choices"]
    called = [call["function"] for call in choice["message"].get("tool_calls") or ()]
    calls = [[function["name"], function["arguments"]] for function in called]
    return [calls, choice["finish_reason"], answer["usage"]["completion_tokens"]]


def asked(address, body):
    """The answer's calls, why it ended, its tokens, and milliseconds per token behind the first."""
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
    body = body | {"stream": True, "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise refused(reply.status, reply.read().decode())
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
        "planned": common | {"drafter": options.drafter, "max_tokens": options.tokens},
        "plain": common | {"drafter": "none", "max_tokens": options.tokens},
    }
    times, answers = {arm: [] for arm in ARMS}, {}
    for _ in range(options.repetitions):
        for arm in ARMS[:2] if options.check else ARMS:
            if arm == "free":
                arms[arm] = common | {"drafter": "none", "tool_choice": "auto", "max_tokens": max(2, answers["plain"][2])}
            *answer, per_token = asked(address, arms[arm])
            assert arm == "free" or answers.setdefault(arm, answer) == answer, "the same request, another answer"
            if per_token:
                times[arm].append(per_token)
    calls, reason, tokens = answers["planned"]
    is_equal = answers["planned"] == answers["plain"] == asked_whole(address, arms["planned"])
    wrong = fault(conversation, calls) if reason == "tool_calls" else None
    medians = {f"{arm}_ms": round(statistics.median(times[arm]), 3) if times[arm] else None for arm in ARMS}
    return {"conversation": conversation["id"], "sampling": sampling, "tokens": tokens, "finish": reason, "calls": calls,
            "equal": is_equal, "fault": wrong} | medians


def ratio(rows, above, below):
    both = [row[above] / row[below] for row in rows if row[above] and row[below]]
    return {"median": round(statistics.median(both), 3), "best": round(min(both), 3), "worst": round(max(both), 3)}


def main():
    options = arguments()
    conversations = [json.loads(line) for line in options.conversations.read_text().splitlines()]
    folder = tempfile.TemporaryDirectory()
    model = options.model
    if options.template:
        model = f"{folder.name}/{Path(options.model).name}"
        with_template(options.model, options.template, model)
    command = [options.program, "serve", "-m", model, "--port", "0", *options.server]
    command += ["--plan", options.plan] if options.plan else []
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = server.stdout.readline().strip()
        if not said:
            raise SystemExit("the server did not start")
        address = urlsplit(said)
        rows, unlaid = [], []
        for conversation in conversations:
            try:
                for sampling in SAMPLINGS:
                    rows.append(row(address, conversation, sampling, options))
                    print(json.dumps(rows[-1]), flush=True)
            except Unlaid:
                unlaid.append(conversation["id"])
    finally:
        server.terminate()
        server.wait()
    whole, equal = sum(row["finish"] == "tool_calls" for row in rows), sum(row["equal"] for row in rows)
    faults = [row["conversation"] for row in rows if row["fault"]]
    said = {"conversations": len(conversations), "answers": len(rows), "unlaid": unlaid, "whole": whole, "faults": faults, "equal": equal}
    if not options.check:
        said |= {"plain_over_free": ratio(rows, "plain_ms", "free_ms"), "plain_over_planned": ratio(rows, "plain_ms", "planned_ms")}
    print(json.dumps(said))
    # An answer that its limit cut off is no call; most are not. Some templates take no user's message right behind a result.
    is_right = not faults and equal == len(rows) and 2 * whole > len(rows) and 5 * len(unlaid) < len(conversations)
    raise SystemExit(0 if is_right or not options.check else 1)


if __name__ == "__main__":
    main()
