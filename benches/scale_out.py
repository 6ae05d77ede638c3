#!/usr/bin/env python3
"""Throughput of one and of two replicas behind Ray Serve on this machine: `benches/scale_out.py MODEL [--requests 24] [--tokens 64] [--rounds 5]`.

Needs the package yggc and `ray[serve]`. Every round asks both in turn, all requests at once, and prints a line of JSON: answers per second, and
whether every answer was that of one engine.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
parser.add_argument("model")
parser.add_argument("--requests", type=int, default=24)
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--threads", type=int, default=1, help="of each replica")
options = parser.parse_args()

os.environ |= {"YGG_MODEL": options.model, "YGG_THREADS": str(options.threads)}
sys.path.insert(0, str(Path(__file__).parent.parent / "src/python/examples"))

import ray
import ray_serve
from ray import serve

QUESTIONS = [f"Write a few lines about number {i}." for i in range(options.requests)]


def ask(replicas, question):
    """The text of an answer and its tokens."""
    body = json.dumps({"messages": [{"role": "user", "content": question}], "max_tokens": options.tokens}).encode()
    url = f"http://127.0.0.1:8124/{replicas}/v1/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, {"content-type": "application/json"}), timeout=600) as response:
        answer = json.load(response)
    return answer["choices"][0]["message"]["content"], answer["usage"]["completion_tokens"]


def all_at_once(replicas):
    """Every answer, and tokens per second."""
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(options.requests) as pool:
        answers = list(pool.map(lambda question: ask(replicas, question), QUESTIONS))
    seconds = time.perf_counter() - start
    return [text for text, _ in answers], sum(tokens for _, tokens in answers) / seconds


paths = [str(Path(path).resolve()) for path in sys.path if path]
ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}})
serve.start(http_options={"host": "127.0.0.1", "port": 8124})
for replicas in (1, 2):
    engines = ray_serve.Replica.options(num_replicas=replicas, autoscaling_config=None, max_ongoing_requests=options.requests)
    app = ray_serve.Chat.bind(engines.bind(options.model, None))
    serve.run(app, name=f"of {replicas}", route_prefix=f"/{replicas}")
    all_at_once(replicas)

ratios, expected = [], None
for number in range(options.rounds):
    rates = {}
    for replicas in (1, 2) if number % 2 == 0 else (2, 1):
        texts, rates[replicas] = all_at_once(replicas)
        expected = expected or texts
        print(json.dumps({
            "round": number, "replicas": replicas, "threads": options.threads, "requests": options.requests,
            "tokens_per_second": round(rates[replicas], 1), "same_answers": texts == expected,
        }), flush=True)
    ratios.append(rates[2] / rates[1])
print(json.dumps({"two_over_one": round(statistics.median(ratios), 3), "worst": round(min(ratios), 3), "best": round(max(ratios), 3)}))
serve.shutdown()
ray.shutdown()
