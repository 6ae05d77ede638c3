#!/usr/bin/env python3
"""Measures `yggc` beside llama.cpp on one GGUF file and the same token ids, the arms taking turns.

Writes every measurement as a line of --out and ends with tables; summary.py prints them again from that file. README.md
says what is measured. build.sh builds llama.cpp.
"""

import argparse
import datetime
import json
import os
import statistics
import sys
import time

import arms
import setting
import summary

MEASURES = ["ar", "widths", "prefill", "answers"]
WIDTHS = [1, 2, 4, 8, 16, 32, 64]
# Where `yggc bench --kernels` measures.
DEPTHS = [200, 1000]
PREDICTED = [2, 4, 8, 10]
# Prompts of the file that the AR arms answer, and that `yggc bench` answers in one go beside llama.cpp.
AR_PROMPTS, GROUP = 3, 8
WORDS = "the river was cold and the old man sat by the fire with his dog while snow fell on the road to town".split()


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", required=True, help="a GGUF file")
    add("--yggc", default="target/release/yggc", help="the program [%(default)s]")
    add("--peers", required=True, help="the folder that build.sh built into")
    add("--prompts", required=True, help="JSON lines with `text`, or `turns` of which the first is asked")
    add("--threads", type=int, default=2, help="[%(default)s]")
    add("--repetitions", type=int, default=5, help="[%(default)s]")
    add("--out", required=True, help="where measurements are written, as JSON lines")
    add("--only", default=",".join(MEASURES), help="which measures, separated by commas [%(default)s]")
    add("--tokens", type=int, default=128, help="tokens of an answer at most [%(default)s]")
    add("--context", type=int, default=4096, help="tokens of prompt and answer together [%(default)s]")
    add("--plan", help="yggc's plan for the whole answers [the cached one, made on first use]")
    add("--ngram", type=int, default=2, help="longest n-gram of llama.cpp's prompt lookup [%(default)s]")
    add("--depth", type=int, choices=DEPTHS, default=200, help="tokens in the cache of forwards by width [%(default)s]")
    add("--forwards", type=int, default=10, help="forwards of a width in each repetition [%(default)s]")
    add("--prefill-tokens", type=int, default=512, help="length of the prompt whose prefill is timed [%(default)s]")
    given = parser.parse_args()
    given.only = given.only.split(",")
    unknown = [measure for measure in given.only if measure not in MEASURES]
    if unknown:
        parser.error(f"--only: expected some of {', '.join(MEASURES)}, found {', '.join(unknown)}")
    for name in ["threads", "repetitions", "tokens", "context", "ngram", "depth", "forwards", "prefill_tokens"]:
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected at least 1")
    if given.tokens < 2:
        parser.error("--tokens: expected at least 2, the first of which is prefill's")
    for name, hint in [
        ("model", "yggc fetch prints the path of a known one"),
        ("yggc", "cargo build --release makes it"),
        ("prompts", "the repository has plans/calibration/prompts.jsonl"),
    ]:
        if not os.path.isfile(getattr(given, name)):
            parser.error(f"--{name}: no file `{getattr(given, name)}`; {hint}")
    return given


class Comparison:
    """The arms, the prompts and the file that measurements go to."""

    def __init__(self, given, out):
        self.given, self.out = given, out
        self.yggc = arms.Yggc(given)
        self.llama = {threading: arms.LlamaCpp(given, threading) for threading in arms.THREADINGS}
        self.configurations = [(threading, flash) for threading in arms.THREADINGS for flash in ("off", "on")]

    def record(self, measure, **fields):
        self.out.write(json.dumps({"measure": measure, **fields}) + "\n")
        self.out.flush()

    def in_turn(self, *place):
        """Runs functions one after the other, beginning with another one at every place."""

        def run(functions):
            start = sum(place) % len(functions)
            for function in functions[start:] + functions[:start]:
                function()

        return run

    def say(self, text):
        print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)

    def header(self, prompts):
        """What was measured where, before anything is."""
        facts = setting.machine()
        if facts["load_1min"] > 0.5:
            self.say(
                f"warning: the load of the last minute was {facts['load_1min']:.2f}: nothing else should run while this measures"
            )
        status = setting.git("status", "--porcelain")
        self.record(
            "header",
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            machine=facts,
            commit=setting.git("rev-parse", "HEAD"),
            changed=None if status is None else bool(status),
            yggc={"version": self.yggc.version(), "sha256": setting.sha256(self.given.yggc)},
            llama_cpp={name: llama.about for name, llama in self.llama.items()},
            model={"file": os.path.basename(self.given.model), "sha256": setting.sha256(self.given.model)},
            prompts={
                "file": os.path.basename(self.given.prompts),
                "sha256": setting.sha256(self.given.prompts),
                "count": len(prompts),
            },
            options={
                key: getattr(self.given, key)
                for key in [
                    "threads",
                    "repetitions",
                    "only",
                    "tokens",
                    "context",
                    "ngram",
                    "depth",
                    "forwards",
                    "prefill_tokens",
                ]
            },
        )

    def token_ids(self, prompts):
        """Gives every prompt its ids as yggc makes them, its plain answer, and a check that it fits."""
        self.say(f"token ids and plain answers of {len(prompts)} prompts")
        for prompt in prompts:
            said = self.yggc.plain(prompt["text"], self.given.tokens)
            prompt["ids"], prompt["plain"] = said["prompt_token_ids"], said["token_ids"]
            if len(prompt["ids"]) + self.given.tokens > self.given.context:
                sys.exit(
                    f"prompt {prompt['id']} has {len(prompt['ids'])} tokens, which with {self.given.tokens} more do not fit "
                    f"--context {self.given.context}: raise it or remove the prompt"
                )

    def bench(self, prompts, names, tokens):
        """`yggc bench`, checked to have asked the ids that llama.cpp is asked."""
        runs, about = self.yggc.bench([prompt["text"] for prompt in prompts], names, tokens)
        for name in names:
            for prompt, run in zip(prompts, runs[name], strict=True):
                if run["prompt_tokens"] != len(prompt["ids"]):
                    sys.exit(
                        f"prompt {prompt['id']}: `yggc run` made {len(prompt['ids'])} token ids and `yggc bench` "
                        f"{run['prompt_tokens']}: they must be asked the same"
                    )
        return runs, about

    def ar(self, prompts):
        """Plain decoding of the first prompts, without prefill; returns llama.cpp's fastest build and attention."""
        prompts = prompts[:AR_PROMPTS]
        times = {configuration: [] for configuration in self.configurations}

        def llama(repetition, prompt, threading, flash):
            answer = self.llama[threading].answer(flash, prompt["ids"], self.given.tokens)
            if answer["tpot_ms"] is None:
                return
            if repetition >= 0:
                self.record(
                    "ar", arm=f"llama.cpp {threading} fa={flash}", repetition=repetition, prompt=prompt["id"], **answer
                )
                times[threading, flash].append(answer["tpot_ms"])

        def yggc(repetition, prompt):
            run = self.bench([prompt], ["ar"], self.given.tokens)[0]["ar"][0]
            if run["tpot_ms"] is not None:
                self.record(
                    "ar",
                    arm="yggc ar",
                    repetition=repetition,
                    prompt=prompt["id"],
                    **{key: run[key] for key in ["tokens", "steps", "ttft_ms", "tpot_ms", "total_ms"]},
                )

        for threading, flash in self.configurations:
            llama(-1, prompts[0], threading, flash)
        for repetition in range(self.given.repetitions):
            self.say(f"ar: repetition {repetition + 1} of {self.given.repetitions}")
            for place, prompt in enumerate(prompts):
                turns = [lambda t=t, f=f: llama(repetition, prompt, t, f) for t, f in self.configurations]
                self.in_turn(repetition, place)([*turns, lambda: yggc(repetition, prompt)])
        if not all(times.values()):
            sys.exit(
                "the first prompts are answered with one token: no time per token to choose llama.cpp's build by; put others first"
            )
        best = min(times, key=lambda configuration: statistics.median(times[configuration]))
        self.record(
            "choice",
            threading=best[0],
            flash=best[1],
            median_tpot_ms={f"{t} fa={f}": statistics.median(v) for (t, f), v in times.items()},
        )
        self.say(f"llama.cpp is fastest with {best[0]} and flash attention {best[1]}")
        return best

    def widths(self, threading, ids):
        """Forwards by width with logits of every row, after --depth tokens."""
        depth, longest = self.given.depth, max(WIDTHS)

        def yggc(repetition):
            for row in self.yggc.widths(WIDTHS, self.given.forwards, depth):
                self.record("widths", arm="yggc", repetition=repetition, depth=depth, **row)

        def llama(repetition):
            for width in WIDTHS:
                for flash in ("off", "on"):
                    times = self.llama[threading].width(flash, ids[: depth + longest], depth, width, self.given.forwards)
                    self.record(
                        "widths",
                        arm=f"llama.cpp {threading} fa={flash}",
                        repetition=repetition,
                        depth=depth,
                        width=width,
                        median_us=statistics.median(times) * 1e3,
                        forward_ms=times,
                    )

        for repetition in range(self.given.repetitions):
            self.say(f"widths: repetition {repetition + 1} of {self.given.repetitions}")
            self.in_turn(repetition)([lambda: yggc(repetition), lambda: llama(repetition)])

    def exact_prompt(self, length):
        """A prompt of `length` token ids."""
        words = max(1, length - len(self.yggc.plain("the", 1)["prompt_token_ids"]) + 1)
        for _ in range(8):
            text = " ".join(WORDS[place % len(WORDS)] for place in range(words))
            ids = self.yggc.plain(text, 1)["prompt_token_ids"]
            if len(ids) == length:
                return {"id": f"prefill-{length}", "text": text, "ids": ids}
            words += length - len(ids)
            if words < 1:
                break
        sys.exit(f"found no prompt of exactly {length} tokens: try another --prefill-tokens")

    def prefill(self, threading, prompt):
        """Time to the first token of a prompt, model loaded and warm."""

        def llama(repetition, flash):
            answer = self.llama[threading].answer(flash, prompt["ids"], 1)
            if repetition >= 0:
                self.record(
                    "prefill",
                    arm=f"llama.cpp {threading} fa={flash}",
                    repetition=repetition,
                    prompt_tokens=len(prompt["ids"]),
                    ttft_ms=answer["ttft_ms"],
                )

        def yggc(repetition):
            run = self.bench([prompt], ["ar"], 1)[0]["ar"][0]
            self.record(
                "prefill", arm="yggc", repetition=repetition, prompt_tokens=run["prompt_tokens"], ttft_ms=run["ttft_ms"]
            )

        for flash in ("off", "on"):
            llama(-1, flash)
        for repetition in range(self.given.repetitions):
            self.say(f"prefill: repetition {repetition + 1} of {self.given.repetitions}")
            turns = [lambda f=f: llama(repetition, f) for f in ("off", "on")]
            self.in_turn(repetition)([*turns, lambda: yggc(repetition)])

    def answers(self, threading, flash, prompts):
        """Whole answers with prefill: plain and with speculation, on both sides."""
        lookups = {f"llama.cpp lookup {n}": {"ngram": self.given.ngram, "predicted": n} for n in PREDICTED}
        lookups = {"llama.cpp plain": None} | lookups

        def llama(repetition, arm, group):
            for prompt in group:
                answer = self.llama[threading].answer(flash, prompt["ids"], self.given.tokens, lookups[arm])
                self.record(
                    "answers",
                    arm=arm,
                    repetition=repetition,
                    prompt=prompt["id"],
                    category=prompt["category"],
                    prompt_tokens=len(prompt["ids"]),
                    **answer,
                )

        def yggc(repetition, group):
            runs, about = self.bench(group, ["ar", "plan"], self.given.tokens)
            for name, label in [("ar", "yggc ar"), ("plan", "yggc plan")]:
                for prompt, run in zip(group, runs[name], strict=True):
                    fields = {
                        key: run[key]
                        for key in ["prompt_tokens", "tokens", "steps", "drafted", "ttft_ms", "tpot_ms", "total_ms"]
                    }
                    self.record(
                        "answers",
                        arm=label,
                        repetition=repetition,
                        prompt=prompt["id"],
                        category=prompt["category"],
                        drafter=about[name]["drafter"],
                        token_ids=prompt["plain"],
                        **fields,
                    )

        self.say("answers: the plan, made now if there is none, and a warm-up")
        about = self.bench(prompts[:1], ["ar", "plan"], 2)[1]
        self.record("plan", **about["plan"])
        self.llama[threading].answer(flash, prompts[0]["ids"], self.given.tokens)
        groups = [prompts[start : start + GROUP] for start in range(0, len(prompts), GROUP)]
        for repetition in range(self.given.repetitions):
            self.say(f"answers: repetition {repetition + 1} of {self.given.repetitions}")
            for place, group in enumerate(groups):
                turns = [lambda arm=arm: llama(repetition, arm, group) for arm in lookups]
                self.in_turn(repetition, place)([*turns, lambda: yggc(repetition, group)])

    def close(self):
        for llama in self.llama.values():
            llama.close()


def main():
    given = options()
    prompts = setting.read_prompts(given.prompts)
    with open(given.out, "w") as out:
        comparison = Comparison(given, out)
        comparison.header(prompts)
        asked = prompts if "answers" in given.only else prompts[:AR_PROMPTS]
        comparison.token_ids(asked)
        start = time.monotonic()
        # Which of its builds llama.cpp is measured with follows from its plain decoding, so that always runs.
        threading, flash = comparison.ar(asked)
        if "widths" in given.only:
            comparison.widths(threading, comparison.exact_prompt(given.depth + max(WIDTHS))["ids"])
        if "prefill" in given.only:
            comparison.prefill(threading, comparison.exact_prompt(given.prefill_tokens))
        if "answers" in given.only:
            comparison.answers(threading, flash, asked)
        comparison.say(f"measured for {(time.monotonic() - start) / 60:.1f} minutes")
        comparison.close()
    print(summary.tables(summary.read(given.out)))


if __name__ == "__main__":
    main()
