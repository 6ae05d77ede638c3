"""Two `yggc serve` with `sglang-router`: one set of answers, conversations that return to their worker, and a worker that is killed.

    YGG_TEST_MODEL=model.gguf YGG_TEST_PROGRAM=target/release/yggc python src/python/tests/workers_by_router.py
"""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

MODEL, PROGRAM = os.environ["YGG_TEST_MODEL"], os.environ["YGG_TEST_PROGRAM"]
QUESTIONS = [f"Say {word} again and again." for word in ("river", "stone", "bread", "light", "glass", "cloud", "north", "piano")]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(port, messages, **fields):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    body = json.dumps({"model": "default", "messages": messages, "max_tokens": 32, "temperature": 0, **fields}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        return response.read().decode() if fields.get("stream") else json.load(response)


def text(answer):
    return answer["choices"][0]["message"]["content"]


def until(what, done, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if done():
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError(f"{what}: not within {seconds} s")


def metric(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


class Routed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.processes, cls.workers, cls.router = [], [free_port(), free_port()], free_port()
        try:
            for port in cls.workers:
                cls.start([PROGRAM, "serve", "-m", MODEL, "--no-spec", "--threads", "1", "--port", str(port), "--model-name", "default"])
            for port in cls.workers:
                until("a worker", lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200)
            urls = [f"http://127.0.0.1:{port}" for port in cls.workers]
            cls.start([
                sys.executable, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(cls.router), "--policy", "cache_aware",
                "--prometheus-port", str(free_port()), "--worker-urls", *urls,
            ])
            until("the router", lambda: ask(cls.router, "a", max_tokens=1), 120)
            cls.expected = [text(ask(cls.workers[0], question)) for question in QUESTIONS]
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def start(cls, command):
        cls.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    @classmethod
    def tearDownClass(cls):
        for process in reversed(cls.processes):
            process.kill()
            process.wait()

    def all_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
            return list(pool.map(lambda question: text(ask(self.router, question)), QUESTIONS))

    def test_1_answers_are_a_workers_and_both_work(self):
        before = [metric(port, "vllm:prompt_tokens_total") for port in self.workers]
        self.assertEqual(self.all_at_once(), self.expected)
        after = [metric(port, "vllm:prompt_tokens_total") for port in self.workers]
        self.assertTrue(all(b > a for a, b in zip(before, after)), (before, after))

    def test_2_streams_are_the_same_answers(self):
        lines = ask(self.router, QUESTIONS[0], stream=True).split("\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        deltas = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
        self.assertEqual("".join(deltas), self.expected[0])

    def test_3_a_conversation_returns_to_the_worker_that_knows_it(self):
        messages = [{"role": "user", "content": "Name a river of the north, and say in a few words where it rises and where it ends."}]
        for turn in range(3):
            answer = ask(self.router, messages)
            if turn > 0:
                self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0, turn)
            messages += [{"role": "assistant", "content": text(answer)}, {"role": "user", "content": "And another?"}]

    def test_4_a_killed_worker_loses_no_answer(self):
        self.processes[0].kill()
        self.processes[0].wait()
        self.assertEqual(self.all_at_once(), self.expected)


if __name__ == "__main__":
    unittest.main()
