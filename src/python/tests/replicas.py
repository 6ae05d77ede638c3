"""`examples/one_answer.py` with two replicas of `YGG_TEST_MODEL`, processes of this file, one of which dies in the middle of an answer.

What `replicas_by_ray.py` tests under Ray Serve, without Ray: `cargo test --test it python` runs it.
"""

import asyncio
import json
import os
import signal
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

from one_answer import ATTEMPTS, one_answer

import yggc

MODEL = os.environ["YGG_TEST_MODEL"]
QUESTIONS = [f"{word} and {word} and" for word in ("one", "two", "river", "stone", "bread", "light", "glass", "cloud")]
TOKENS = 24


def replica(answers, tokens):
    """Answers what comes by stdin; kills itself in the answer after so many, after so many tokens of it."""
    with yggc.Engine(MODEL, threads=1) as engine:
        for number, line in enumerate(sys.stdin):
            asked = json.loads(line)
            with engine.chat(asked["question"], max_tokens=TOKENS) as generation:
                for count, token in enumerate(generation):
                    if (number, count) == (answers, tokens):
                        os.kill(os.getpid(), signal.SIGKILL)
                    if count >= asked["skip"]:
                        print(json.dumps({"text": token.text}), flush=True)
                answer = generation.answer()
            print(json.dumps({"rest": answer.text, "finish_reason": answer.finish_reason}), flush=True)


class Lost(Exception):
    """A replica ended before its answer."""


class Replica:
    """A process, and the requests that wait for it."""

    @classmethod
    async def start(cls, *dies):
        self = cls()
        self.turn, self.waiting = asyncio.Lock(), 0
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-B", __file__, "replica", *map(str, dies), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        return self

    async def answer(self, question, skip):
        self.waiting += 1
        try:
            async with self.turn:
                try:
                    self.process.stdin.write(json.dumps({"question": question, "skip": skip}).encode() + b"\n")
                    await self.process.stdin.drain()
                except ConnectionError:
                    raise Lost from None
                while line := await self.process.stdout.readline():
                    event = json.loads(line)
                    yield event
                    if "finish_reason" in event:
                        return
                raise Lost
        finally:
            self.waiting -= 1


class Replicas(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        with yggc.Engine(MODEL, threads=1) as engine:
            cls.expected = [engine.chat(question, max_tokens=TOKENS).answer().text for question in QUESTIONS]

    async def start(self, *dying):
        self.skipped = []
        self.replicas = [await Replica.start(*dies) for dies in dying]
        for started in self.replicas:
            self.addAsyncCleanup(started.process.wait)
            self.addCleanup(started.process.stdin.close)

    async def ask(self, question):
        """An answer's texts, by the replica that the fewest wait for, of those that no answer was lost by."""

        async def ask(skip):
            self.skipped.append(skip)
            chosen = min(self.replicas, key=lambda each: each.waiting)
            try:
                async for event in chosen.answer(question, skip):
                    yield event
            except Lost:
                if len(self.replicas) > 1 and chosen in self.replicas:
                    self.replicas.remove(chosen)
                raise

        return [event["text"] async for event in one_answer(ask, Lost)]

    async def test_no_answer_is_lost_or_mixed_when_a_replica_dies_in_the_middle_of_one(self):
        # The first token of an answer is not sent twice, whether the replica dies before or after it.
        for tokens in (0, 1, TOKENS // 2):
            with self.subTest(tokens=tokens):
                await self.start((), (1, tokens))
                dying = self.replicas[1]
                answers = await asyncio.gather(*map(self.ask, QUESTIONS))
                self.assertEqual(["".join(texts) for texts in answers], self.expected)
                self.assertEqual(await dying.process.wait(), -signal.SIGKILL)
                # The answer in its middle, and those that waited for the replica.
                again = len(self.skipped) - len(QUESTIONS)
                self.assertGreaterEqual(again, 1)
                self.assertIn(tokens, self.skipped)

    async def test_an_answer_that_every_replica_loses_is_given_up(self):
        await self.start((0, 3))
        with self.assertRaises(Lost):
            await self.ask(QUESTIONS[0])
        self.assertEqual(self.skipped, [0] + [3] * (ATTEMPTS - 1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["replica"]:
        replica(*(map(int, sys.argv[2:]) if sys.argv[2:] else (-1, -1)))
    else:
        unittest.main()
