"""`examples/ray_serve.py` with two replicas of a model of `YGG_TEST_MODEL` on this machine: answers, affinity, a killed replica, throughput.

    YGG_TEST_MODEL=model.gguf python src/python/tests/replicas_by_ray.py
"""

import concurrent.futures
import json
import os
import signal
import sys
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

MODEL = os.environ["YGG_TEST_MODEL"]
os.environ |= {"YGG_MODEL": MODEL, "YGG_THREADS": "1", "YGG_MIN_REPLICAS": "2", "YGG_MAX_REPLICAS": "2"}
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import ray
import ray_serve
from ray import serve

import yggc

URL = "http://127.0.0.1:8123/v1/chat/completions"
QUESTIONS = [f"Say {word} again and again." for word in ("river", "stone", "bread", "light", "glass", "cloud", "north", "piano")]


def ask(messages, **fields):
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    body = json.dumps({"messages": messages, **fields}).encode()
    with urllib.request.urlopen(urllib.request.Request(URL, body, {"content-type": "application/json"}), timeout=300) as response:
        return response.read().decode() if fields.get("stream") else json.load(response)


def text(answer):
    return answer["choices"][0]["message"]["content"]


class Replicas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}})
        serve.start(http_options={"host": "127.0.0.1", "port": 8123})
        serve.run(ray_serve.app)
        with yggc.Engine(MODEL, threads=1) as engine:
            cls.expected = [engine.chat(question, max_tokens=48).answer().text for question in QUESTIONS]

    @classmethod
    def tearDownClass(cls):
        serve.shutdown()
        ray.shutdown()

    def all_at_once(self, workers, **fields):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return list(pool.map(lambda question: ask(question, max_tokens=48, **fields), QUESTIONS))

    def test_answers_are_an_engines(self):
        answers = self.all_at_once(4)
        self.assertEqual([text(answer) for answer in answers], self.expected)
        self.assertEqual(len({answer["usage"]["pid"] for answer in answers}), 2, "both replicas answer")

    def test_streams_are_the_same_answers(self):
        chunks = [json.loads(line[6:]) for line in ask(QUESTIONS[0], max_tokens=48, stream=True).split("\n") if line.startswith("data: {")]
        self.assertEqual("".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks), self.expected[0])
        self.assertIn(chunks[-1]["choices"][0]["finish_reason"], ("stop", "length"))

    def test_a_conversation_returns_to_its_replica(self):
        messages, pids = [{"role": "user", "content": "Name a river."}], set()
        for turn in range(4):
            answer = ask(messages, max_tokens=12)
            pids.add(answer["usage"]["pid"])
            if turn > 0:
                self.assertGreater(answer["usage"]["reused_tokens"], 0)
            messages += [{"role": "assistant", "content": text(answer)}, {"role": "user", "content": "And another?"}]
            # What Serve knows of its replicas travels.
            time.sleep(1)
        self.assertEqual(len(pids), 1)

    def test_bad_requests_are_refused(self):
        for messages, fields in (([], {}), ("a", {"max_tokens": 0}), ("a", {"logprobs": True}), ([{"role": "wizard", "content": "a"}], {})):
            with self.assertRaises(urllib.error.HTTPError) as refused:
                ask(messages, **fields)
            self.assertIn(refused.exception.code, (400, 422), messages)

    def test_no_answer_is_lost_or_mixed_when_a_replica_is_killed(self):
        victim = ask(QUESTIONS[0], max_tokens=1)["usage"]["pid"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, question, max_tokens=48) for question in QUESTIONS]
            time.sleep(0.2)
            os.kill(victim, signal.SIGKILL)
            answers = [future.result() for future in asked]
        self.assertEqual([text(answer) for answer in answers], self.expected)


if __name__ == "__main__":
    unittest.main()
