"""The package against a model of `YGG_TEST_MODEL`, its plan of `YGG_TEST_PLAN`, made with what `YGG_TEST_OPTIONS` says as JSON, and the program
of `YGG_TEST_PROGRAM`.

`cargo test --test it python` sets them and runs this file with what it built; `pytest` runs it for an installed wheel.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import threading
import unittest

import yggc

MODEL, PLAN, PROGRAM = (os.environ[f"YGG_TEST_{name}"] for name in ("MODEL", "PLAN", "PROGRAM"))
OPTIONS = json.loads(os.environ["YGG_TEST_OPTIONS"])
QUESTION = "one and one and one"


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = yggc.Engine(MODEL)

    def test_they_are_those_of_the_program(self):
        command = [PROGRAM, "run", "-m", MODEL, "-p", QUESTION, "--no-spec", "--max-tokens", "24"]
        expected = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        self.assertEqual(self.engine.chat(QUESTION, max_tokens=24).answer().text, expected.removesuffix("\n"))

    def test_tokens_come_one_by_one_and_make_the_answer(self):
        generation = self.engine.chat([{"role": "user", "content": QUESTION}], max_tokens=12, log_probs=2)
        first = next(generation)
        answer = generation.answer()
        self.assertEqual(answer.token_ids[0], first.id)
        self.assertTrue(answer.text.startswith(first.text))
        self.assertEqual(answer.report.tokens, len(answer.token_ids))
        self.assertEqual(answer.prompt_token_ids, self.engine.encode_chat(QUESTION))
        self.assertEqual((first.id, first.log_prob), first.best[0])
        self.assertEqual(len(first.best), 2)
        self.assertEqual(answer.report.no_speculation_because, "no plan")

    def test_a_plan_changes_no_token(self):
        with yggc.Engine(MODEL, plan=PLAN, **OPTIONS) as planned:
            for sampling in ({}, {"temperature": 0.8, "seed": 7}, {"temperature": 1.0, "top_k": 20, "presence_penalty": 0.5}):
                expected = self.engine.generate(QUESTION, max_tokens=40, **sampling).answer()
                found = planned.generate(QUESTION, max_tokens=40, **sampling).answer()
                self.assertEqual(found.token_ids, expected.token_ids, sampling)
                self.assertEqual(found.report.plan, PLAN)

    def test_text_and_its_tokens_are_one_prompt(self):
        ids = self.engine.encode(QUESTION, prompt=True)
        texts = [self.engine.generate(prompt, max_tokens=8).answer().token_ids for prompt in (QUESTION, ids)]
        self.assertEqual(*texts)
        self.assertEqual(self.engine.decode(self.engine.encode(QUESTION)), QUESTION)

    def test_logits_are_those_that_greedy_answers_follow(self):
        answer = self.engine.generate(QUESTION, max_tokens=4).answer()
        text = answer.prompt_token_ids + answer.token_ids
        logits = memoryview(self.engine._native.logits(text)).cast("f", (len(text), self.engine.vocabulary)).tolist()
        for i, token in enumerate(answer.token_ids):
            row = logits[len(answer.prompt_token_ids) + i - 1]
            self.assertEqual(row.index(max(row)), token)
        try:
            import numpy
        except ImportError:
            return
        self.assertTrue(numpy.array_equal(self.engine.logits(text), numpy.array(logits, dtype=numpy.float32)))

    def test_stop_strings_end_the_text(self):
        whole = self.engine.generate(QUESTION, max_tokens=16).answer().text
        answer = self.engine.generate(QUESTION, max_tokens=16, stop=whole[3:5]).answer()
        self.assertEqual(answer.text, whole[: whole.index(whole[3:5])])
        self.assertEqual(answer.finish_reason, "stop")


class Choices(unittest.TestCase):
    OPTIONS = ("1", "12", " one")

    def test_they_are_those_of_the_program(self):
        with yggc.Engine(MODEL, read_widths=(4, 16)) as wide, yggc.Engine(MODEL) as narrow:
            for prompt, arguments, keywords in (
                (QUESTION, ["--raw"], {}),
                ([{"role": "user", "content": QUESTION}], ["--normalize", "length"], {"normalize": "length"}),
                (QUESTION, ["--raw", "--regex", "[0-9]+"], {"regex": "[0-9]+"}),
            ):
                command = [PROGRAM, "choose", "-m", MODEL, "-p", QUESTION, "--json", *arguments]
                for option in self.OPTIONS:
                    command += ["--option", option]
                expected = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["options"]
                for engine in (wide, narrow):
                    found = engine.choose(prompt, self.OPTIONS, **keywords)
                    self.assertEqual(
                        [(o.token_ids, o.log_prob, o.probability, o.is_admitted) for o in found],
                        [(o["token_ids"], o["log_prob"], o["probability"], o["admitted"]) for o in expected],
                    )
                    self.assertEqual([o.log_probs for o in found], [[t["log_prob"] for t in o["tokens"]] for o in expected])
                by_ids = [option["token_ids"] for option in expected]
                self.assertEqual(wide.choose(prompt, by_ids, **keywords), found)

    def test_what_cannot_be_chosen_from_is_refused(self):
        with yggc.Engine(MODEL, context=64) as engine:
            for part, ask in (
                ("0 options", lambda: engine.choose("a", [])),
                ("option 2 is empty", lambda: engine.choose("a", ["b", ""])),
                ("options 1 and 2", lambda: engine.choose("a", ["b", "b"])),
                ("normalize", lambda: engine.choose("a", ["b"], normalize="bytes")),
                ("takes none", lambda: engine.choose("a", ["b"], regex="[0-9]")),
                ("`context` of Engine", lambda: engine.choose("a", [[5] * 64])),
            ):
                with self.assertRaisesRegex(yggc.InputError, part):
                    ask()


class Structured(unittest.TestCase):
    def test_answers_fit_what_is_asked_with_and_without_a_plan(self):
        schema = {"type": "object", "properties": {"river": {"enum": ["Rhine", "Danube"]}, "long": {"type": "boolean"}},
                  "required": ["river", "long"], "additionalProperties": False}
        with yggc.Engine(MODEL) as plain, yggc.Engine(MODEL, plan=PLAN, **OPTIONS) as planned:
            for asked in ({"json_schema": schema}, {"regex": "(yes|no), [0-9]{2}"}, {"grammar": 'start: "a" ("b" | "c")+ "."'}):
                expected = plain.chat(QUESTION, max_tokens=100, **asked).answer()
                self.assertEqual(planned.chat(QUESTION, max_tokens=100, **asked).answer().token_ids, expected.token_ids)
            answer = json.loads(plain.chat(QUESTION, max_tokens=100, json_schema=schema).answer().text)
            self.assertIn(answer.pop("river"), ("Rhine", "Danube"))
            self.assertEqual(list(answer), ["long"])
            self.assertRegex(plain.chat(QUESTION, max_tokens=40, regex="(yes|no), [0-9]{2}").answer().text, "^(yes|no), [0-9]{2}$")

    def test_what_cannot_be_kept_is_refused(self):
        with yggc.Engine(MODEL) as engine:
            for asked in ({"json_schema": {"type": "wizard"}}, {"regex": "("}, {"grammar": "start: missing"}, {"json_schema": True, "regex": "a"},
                          {"json_schema": "a"}):
                with self.assertRaises(yggc.InputError, msg=asked):
                    engine.chat(QUESTION, **asked)


class Waiting(unittest.TestCase):
    def sooner_or_later(self, attempt):
        """What `attempt` finds, tried again for as long as it finds nothing: a busy machine may end a whole answer before Python's next line."""
        for _ in range(2000):
            found = attempt()
            if found:
                return found
        self.fail("no attempt met a request that was running")

    def test_an_engine_answers_one_request_at_a_time(self):
        with yggc.Engine(MODEL) as engine:
            for ask in (lambda: engine.generate(QUESTION, max_tokens=1).close(), lambda: engine.choose(QUESTION, ["b"])):
                def refusal():
                    with engine.generate(QUESTION, max_tokens=400):
                        try:
                            ask()
                        except yggc.BusyError as error:
                            return str(error)

                self.assertIn("one request at a time", self.sooner_or_later(refusal))
            self.assertEqual(len(engine.generate(QUESTION, max_tokens=2).answer().token_ids), 2)
            self.assertEqual(engine.choose(QUESTION, ["b"])[0].probability, 1.0)

    def test_threads_of_python_may_run_where_they_might_before(self):
        if not hasattr(os, "sched_getaffinity"):
            self.skipTest("the system does not say where threads may run")
        before = os.sched_getaffinity(0)
        with yggc.Engine(MODEL) as engine, yggc.Engine(MODEL) as other:
            engine.generate(QUESTION, max_tokens=4).answer()
            engine._native.logits([1, 2])
            self.assertEqual(os.sched_getaffinity(0), before)
            self.assertEqual((engine.threads, other.threads), (len(before), len(before)))

    def test_a_generation_that_is_dropped_frees_its_engine(self):
        with yggc.Engine(MODEL) as engine:
            for _ in range(3):
                next(engine.generate(QUESTION, max_tokens=400))
                gc.collect()
            self.assertEqual(len(engine.generate(QUESTION, max_tokens=2).answer().token_ids), 2)

    def test_cancelling_ends_an_answer_early(self):
        with yggc.Engine(MODEL) as engine:
            def cancelled():
                generation = engine.generate(QUESTION, max_tokens=450)
                generation.cancel()
                return generation.answer().finish_reason == "cancelled"

            self.assertTrue(self.sooner_or_later(cancelled))
            closed = engine.generate(QUESTION, max_tokens=450)
            closed.close()
            # What it had said can still be read, and its end.
            self.assertLessEqual(len(closed.answer().token_ids), 450)

    def test_engines_answer_at_once_and_events_of_a_loop_go_on(self):
        async def ask(engine, ticks):
            ids = []
            async for token in engine.generate(QUESTION, max_tokens=32):
                ids.append(token.id)
                ticks.append(threading.get_ident())
            return ids

        async def both(engines):
            ticks = []
            ids = await asyncio.gather(*(ask(engine, ticks) for engine in engines))
            self.assertEqual(set(ticks), {threading.get_ident()})
            last = await engines[0].generate(QUESTION, max_tokens=32).answer_async()
            return [*ids, last.token_ids]

        with yggc.Engine(MODEL, threads=1) as one, yggc.Engine(MODEL, threads=1) as other:
            first, second, third = asyncio.run(both([one, other]))
        self.assertEqual(first, second)
        self.assertEqual(first, third)


class Refusals(unittest.TestCase):
    def refused(self, pattern, call, exception=yggc.InputError):
        with self.assertRaisesRegex(exception, pattern):
            call()

    def test_engines(self):
        self.refused("nowhere.gguf", lambda: yggc.Engine("nowhere.gguf"))
        self.refused("expected \"cpu\" or \"cuda\"", lambda: yggc.Engine(MODEL, device="tpu"))
        self.refused("expected \"portable\"", lambda: yggc.Engine(MODEL, isa="sse2"))
        self.refused("expected \"f16\" or \"q8\"", lambda: yggc.Engine(MODEL, cache="q4"))
        self.refused("`packed_folder` to a folder", lambda: yggc.Engine(MODEL, resident=1))
        self.refused("nowhere.plan", lambda: yggc.Engine(MODEL, plan="nowhere.plan"))
        self.refused("`force_plan` of Engine", lambda: yggc.Engine(MODEL, plan=PLAN, cache="q8", **OPTIONS))

    def test_threads_that_the_system_refuses(self):
        # In a process with little room for stacks: a system with much starts tens of thousands first.
        script = "import resource, sys, yggc\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nyggc.Engine(sys.argv[1], threads=100_000)"
        ended = subprocess.run([sys.executable, "-c", script, MODEL], capture_output=True, text=True)
        self.assertRegex(ended.stderr, "yggc.*DeviceError: .*threads")

    def test_requests(self):
        with yggc.Engine(MODEL, context=64) as engine:
            self.refused("at least 1", lambda: engine.generate("a", max_tokens=0))
            self.refused("`context` of Engine", lambda: engine.generate([5] * 64))
            for name, number in [
                ("temperature", -1.0), ("temperature", 1e39), ("temperature", float("nan")), ("top_p", 0.0), ("min_p", 2.0),
                ("repetition_penalty", 0.0), ("presence_penalty", 2.5), ("frequency_penalty", float("-inf")),
            ]:
                self.refused(f"{name}: expected a number", lambda: engine.generate("a", **{name: number}))
            self.refused("logit_bias: expected a number from -100 to 100", lambda: engine.generate("a", logit_bias={5: 101}).answer())
            self.refused("expected numbers below", lambda: engine.decode([1 << 20]))
            self.refused("at least one", lambda: engine._native.logits([]))
            self.refused("role", lambda: engine.chat([{"content": "a"}]))
            self.refused("expected text", lambda: engine.chat([{"role": "user", "content": 5}]))
            self.refused("without `content`", lambda: engine.chat([{"role": "user"}]))
            said = [{"role": "user", "content": "a"}, {"role": "assistant"}, {"role": "user", "content": "b"}]
            self.assertEqual(len(engine.chat(said, max_tokens=2).answer().token_ids), 2)
            self.refused("wizard", lambda: engine.chat([{"role": "wizard", "content": "a"}]))
            with self.assertRaises((TypeError, ValueError)):
                engine.generate(5)
            # A refused request leaves the engine as it was.
            self.assertEqual(len(engine.generate("a", max_tokens=2).answer().token_ids), 2)
        self.refused("closed", lambda: engine.generate("a"))


class Package(unittest.TestCase):
    def test_its_version_is_the_programs(self):
        version = subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(version.split()[1], yggc.__version__)

    def test_everything_public_says_what_it_is(self):
        for name in yggc.__all__:
            self.assertTrue(getattr(yggc, name).__doc__, name)


if __name__ == "__main__":
    unittest.main()
