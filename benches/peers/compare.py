#!/usr/bin/env python3
"""Measures `yggc` beside llama.cpp and ik_llama.cpp on one GGUF file and the same token ids, the arms taking turns.

Writes every measurement as a line of --out and ends with tables; summary.py prints them again from that file. README.md
says what is measured and how the peers are built. matrix.py runs this for many models and numbers of threads.
"""

import argparse
import datetime
import json
import os
import random
import statistics
import sys
import time

import arms
import setting
import summary

MEASURES = ["ar", "widths", "prefill", "deep", "answers"]
WIDTHS = "1,2,4,8,16,32,64"
# Where `yggc bench --kernels` measures.
DEPTHS = [200, 1000]
PREDICTED = [2, 4, 8, 10]
# Most tokens that a peer's drafter model drafts, and the least probability of one; the last is llama.cpp's own choice.
DRAFTED = [(2, 0.0), (4, 0.0), (8, 0.0), (16, 0.75)]
# Prompts of the file that the AR arms answer, and that `yggc bench` answers in one go beside llama.cpp.
AR_PROMPTS, GROUP = 3, 8
# How often every variant of a peer answers the first prompt before the fastest is chosen.
SCREENINGS = 3
WORDS = "the river was cold and the old man sat by the fire with his dog while snow fell on the road to town".split()
# Ordinary tokens of any vocabulary, for peers alone.
ORDINARY = range(300, 30_000)


def parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--yggc", default="target/release/yggc", help="the program [%(default)s]")
    add("--device", help="what runs yggc's arms: cpu or cuda [yggc's default]")
    add("--activations", default="native", help="native, int8 or both, separated by a comma: yggc's arms [%(default)s]")
    add("--peers-only", action="store_true", help="no yggc; prompts are random token ids")
    add("--peers", required=True, help="the folder that build.sh built into")
    add("--ik", metavar="TREE", help="source tree of ik_llama.cpp, built natively in TREE/build [without that peer]")
    add("--against", metavar="PEERS", help="which peers, separated by commas [llama.cpp, and ik_llama.cpp with --ik]")
    add("--flash", default="off,on", help="with which flash attention of the peers [%(default)s]")
    add("--prompts", help="JSON lines with `text`, or `turns` of which the first is asked")
    add("--repetitions", type=int, default=5, help="[%(default)s]")
    add("--only", default="ar,widths,prefill,answers", help=f"which measures of {','.join(MEASURES)} [%(default)s]")
    add("--tokens", type=int, default=128, help="tokens of an answer at most [%(default)s]")
    add("--context", type=int, default=4608, help="tokens of prompt and answer together [%(default)s]")
    add("--plan", help="yggc's plan for the whole answers [the cached one, made on first use]")
    add("--draft-model", metavar="FILE", help="drafter model of all programs in whole answers [peers draft by lookup]")
    add("--ngram", type=int, default=2, help="longest n-gram of llama.cpp's prompt lookup [%(default)s]")
    add("--depth", type=int, choices=DEPTHS, default=200, help="tokens in the cache of forwards by width [%(default)s]")
    add("--widths", default=WIDTHS, help="rows of those forwards, separated by commas [%(default)s]")
    add("--forwards", type=int, default=10, help="forwards of a width in each repetition [%(default)s]")
    add("--prefill-tokens", type=int, default=512, help="length of the prompt whose prefill is timed [%(default)s]")
    add("--wait", type=float, default=5, help="seconds at most to wait for idle processors before each turn [%(default)s]")
    add("--tries", type=int, default=3, help="how often a turn that other programs disturb is taken at most [%(default)s]")
    add("--deep-tokens", type=int, default=4096, help="length of the prompt that `deep` decodes behind [%(default)s]")
    return parser


def options(arguments):
    asked = parser()
    asked.add_argument("--model", required=True, help="a GGUF file")
    asked.add_argument("--threads", type=int, default=2, help="[%(default)s]")
    asked.add_argument("--out", required=True, help="where measurements are written, as JSON lines")
    given = asked.parse_args(arguments)
    check(asked, given)
    return given


def check(asked, given):
    """Splits lists and refuses what cannot be measured."""
    given.only, given.activations, given.flash = (text.split(",") for text in (given.only, given.activations, given.flash))
    for name, known in [("only", MEASURES), ("activations", ["native", "int8"]), ("flash", ["off", "on"])]:
        unknown = [word for word in getattr(given, name) if word not in known]
        if unknown:
            asked.error(f"--{name}: expected some of {', '.join(known)}, found {', '.join(unknown)}")
    try:
        given.widths = [int(width) for width in given.widths.split(",")]
    except ValueError:
        asked.error(f"--widths: expected numbers separated by commas, found {given.widths}")
    if not all(1 <= width <= 512 for width in given.widths):
        asked.error("--widths: expected numbers from 1 to 512, as many rows as a batch has")
    given.against = given.against.split(",") if given.against else ["llama.cpp", "ik_llama.cpp"] if given.ik else ["llama.cpp"]
    for name in given.against:
        if name not in arms.VARIANTS:
            asked.error(f"--against: expected some of {', '.join(arms.VARIANTS)}, found {name}")
    if "ik_llama.cpp" in given.against and not given.ik:
        asked.error("--against: ik_llama.cpp needs --ik with its source tree")
    if "answers" in given.only and "llama.cpp" not in given.against and not given.draft_model:
        asked.error(
            "--against: `answers` compares speculation: name llama.cpp too, give --draft-model, or leave `answers` out of --only"
        )
    if given.draft_model and not os.path.isfile(given.draft_model):
        asked.error(f"--draft-model: no file `{given.draft_model}`")
    numbers = ["repetitions", "tries", "tokens", "context", "ngram", "depth", "forwards", "prefill_tokens", "deep_tokens"]
    for name in numbers:
        if getattr(given, name) < 1:
            asked.error(f"--{name.replace('_', '-')}: expected at least 1")
    if given.tokens < 2:
        asked.error("--tokens: expected at least 2, the first of which is prefill's")
    if given.peers_only and "answers" in given.only:
        asked.error("--peers-only: `answers` compares yggc's plan: leave it out of --only")
    files = [] if given.peers_only else [
        ("yggc", "cargo build --release makes it"),
        ("prompts", "the repository has plans/calibration/prompts.jsonl"),
    ]
    for name, hint in files:
        if not os.path.isfile(getattr(given, name) or ""):
            asked.error(f"--{name}: no file `{getattr(given, name)}`; {hint}")


class Comparison:
    """The arms and the file that measurements go to."""

    def __init__(self, given, out):
        self.given, self.out = given, out
        # Rows of the turn that is under way.
        self.turn = None
        self.yggc = None if given.peers_only else arms.Yggc(given)
        self.peers = {
            (name, variant): arms.Peer(given, name, variant) for name in given.against for variant in arms.VARIANTS[name]
        }

    def record(self, measure, **fields):
        row = {"measure": measure, **fields}
        if self.turn is None:
            self.write(row)
        else:
            self.turn.append(row)

    def write(self, row):
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()

    def in_turn(self, functions, *place):
        """Runs functions one after the other, beginning with another one at every place; again if other programs disturbed one."""
        start = sum(place) % len(functions)
        for function in functions[start:] + functions[:start]:
            for left in reversed(range(self.given.tries)):
                setting.wait_until_idle(self.given.wait)
                self.turn, load = [], setting.Load([peer.process.pid for peer in self.peers.values()])
                function()
                others = load.others()
                if others < setting.IDLE_SHARE or not left:
                    break
            for row in self.turn:
                self.write(row | {"others": round(others, 3)})
            self.turn = None

    def say(self, text):
        print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)

    def repetitions(self, measure):
        for repetition in range(self.given.repetitions):
            self.say(f"{measure}: repetition {repetition + 1} of {self.given.repetitions}")
            yield repetition

    def header(self, prompts):
        """What was measured where, before anything is."""
        facts = setting.machine()
        if facts["load_1min"] > 0.5:
            self.say(
                f"warning: the load of the last minute was {facts['load_1min']:.2f}: nothing else should run while this measures"
            )
        status = setting.git("status", "--porcelain")
        about = {f"{name} {variant}": peer.about for (name, variant), peer in self.peers.items()}
        first = next(iter(about.values()))
        self.record(
            "header",
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            machine=facts,
            commit=setting.git("rev-parse", "HEAD"),
            changed=None if status is None else bool(status),
            yggc=self.yggc and {"version": self.yggc.version(), "sha256": setting.sha256(self.given.yggc)},
            peers={name: {key: said[key] for key in ["version", "system"]} for name, said in about.items()},
            model={
                "file": os.path.basename(self.given.model),
                "sha256": setting.sha256(self.given.model),
                "description": first["model"],
                "parameters": first["parameters"],
                "bytes": first["bytes"],
            },
            prompts=prompts
            and {
                "file": os.path.basename(self.given.prompts),
                "sha256": setting.sha256(self.given.prompts),
                "count": len(prompts),
            },
            options={
                key: value
                for key, value in vars(self.given).items()
                if key not in ["model", "draft_model", "yggc", "peers", "ik", "prompts", "plan", "out"]
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

    def bench(self, activations, prompts, names, tokens):
        """`yggc bench`, checked to have asked the ids that the peers are asked."""
        runs, about = self.yggc.bench(activations, [prompt["text"] for prompt in prompts], names, tokens)
        for name in names:
            for prompt, run in zip(prompts, runs[name], strict=True):
                if run["prompt_tokens"] != len(prompt["ids"]):
                    sys.exit(
                        f"prompt {prompt['id']}: `yggc run` made {len(prompt['ids'])} token ids and `yggc bench` "
                        f"{run['prompt_tokens']}: they must be asked the same"
                    )
        return runs, about

    def measured(self, measure):
        """yggc's part of a measure as one function for each kind of activations; none if it is left out."""
        return [lambda a=a: measure(a) for a in self.given.activations] if self.yggc else []

    def of_peers(self, measure):
        """A peer's part of a measure, by either attention that was asked for, for each peer that is left."""
        return [
            lambda p=peer, f=flash, a=f"{name} {variant} fa={flash}": measure(p, f, a)
            for (name, variant), peer in self.peers.items()
            for flash in self.given.flash
        ]

    def choose(self, prompt):
        """Keeps the fastest variant of each peer at plain decoding of `prompt` and ends the others; returns (variant, flash) by peer."""
        times = {}

        def screen(peer, flash, arm):
            # As many tokens whatever they are: an answer may end with its first.
            tpot_ms = peer.decode(flash, prompt["ids"], self.given.tokens)["tpot_ms"]
            times.setdefault(arm, []).append(tpot_ms)  # Disturbed or not: the least counts.

        self.say("screening the variants of the peers")
        for repetition in range(SCREENINGS):
            self.in_turn(self.of_peers(screen), repetition)
        chosen = {}
        for name in dict.fromkeys(name for name, _ in self.peers):
            own = {arm: min(tpots) for arm, tpots in times.items() if arm.startswith(f"{name} ")}
            variant, flash = min(own, key=own.get).removeprefix(f"{name} ").split(" fa=")
            chosen[name] = variant, flash
            self.record("choice", peer=name, variant=variant, flash=flash, screened_tpot_ms=own)
            self.say(f"{name} is fastest {variant} and with flash attention {flash}")
        for (name, variant), peer in self.peers.items():
            if chosen[name][0] != variant:
                peer.close()
        self.peers = {pair: peer for pair, peer in self.peers.items() if chosen[pair[0]][0] == pair[1]}
        return chosen

    def ar(self, prompts):
        """Plain decoding of the first prompts, without prefill."""
        for repetition in self.repetitions("ar"):
            for place, prompt in enumerate(prompts[:AR_PROMPTS]):

                def peer(peer, flash, arm):
                    answer = peer.answer(flash, prompt["ids"], self.given.tokens)
                    if answer["tpot_ms"] is not None:
                        self.record("ar", arm=arm, repetition=repetition, prompt=prompt["id"], **answer)

                def yggc(activations):
                    run = self.bench(activations, [prompt], ["ar"], self.given.tokens)[0]["ar"][0]
                    if run["tpot_ms"] is not None:
                        fields = {key: run[key] for key in ["tokens", "steps", "ttft_ms", "tpot_ms", "total_ms"]}
                        self.record("ar", arm=f"yggc {activations}", repetition=repetition, prompt=prompt["id"], **fields)

                self.in_turn(self.of_peers(peer) + self.measured(yggc), repetition, place)

    def widths(self, ids):
        """Forwards by width with logits of every row, after --depth tokens."""
        depth, widths, forwards = self.given.depth, self.given.widths, self.given.forwards
        for repetition in self.repetitions("widths"):

            def yggc(activations):
                for row in self.yggc.widths(activations, widths, forwards, depth):
                    self.record("widths", arm=f"yggc {activations}", repetition=repetition, depth=depth, **row)

            def peer(width):
                def forward(peer, flash, arm):
                    times = peer.width(flash, ids, depth, width, forwards)
                    self.record(
                        "widths",
                        arm=arm,
                        repetition=repetition,
                        depth=depth,
                        width=width,
                        median_us=statistics.median(times) * 1e3,
                        forward_ms=times,
                    )

                return forward

            turns = [turn for width in widths for turn in self.of_peers(peer(width))]
            self.in_turn(turns + self.measured(yggc), repetition)

    def prompt(self, length):
        """A prompt of `length` token ids."""
        if not self.yggc:
            return {"id": f"random-{length}", "ids": random.Random(length).choices(ORDINARY, k=length)}
        words = max(1, length - len(self.yggc.plain("the", 1)["prompt_token_ids"]) + 1)
        for _ in range(8):
            text = " ".join(WORDS[place % len(WORDS)] for place in range(words))
            ids = self.yggc.plain(text, 1)["prompt_token_ids"]
            if len(ids) == length:
                return {"id": f"exact-{length}", "text": text, "ids": ids}
            words += length - len(ids)
            if words < 1:
                break
        sys.exit(f"found no prompt of exactly {length} tokens: try another length")

    def prefill(self, prompt):
        """Time to the first token of a prompt, model loaded and warm."""
        length = len(prompt["ids"])
        for repetition in range(-1, self.given.repetitions):

            def peer(peer, flash, arm):
                answer = peer.answer(flash, prompt["ids"], 1)
                if repetition >= 0:
                    self.record("prefill", arm=arm, repetition=repetition, prompt_tokens=length, ttft_ms=answer["ttft_ms"])

            def yggc(activations):
                run = self.bench(activations, [prompt], ["ar"], 1)[0]["ar"][0]
                arm = f"yggc {activations}"
                self.record("prefill", arm=arm, repetition=repetition, prompt_tokens=length, ttft_ms=run["ttft_ms"])

            if repetition < 0:
                self.say("prefill: warm-up")
                self.in_turn(self.of_peers(peer))
            else:
                self.say(f"prefill: repetition {repetition + 1} of {self.given.repetitions}")
                self.in_turn(self.of_peers(peer) + self.measured(yggc), repetition)

    def deep(self, prompt):
        """Plain decoding behind a long prompt, which peers keep in their cache between repetitions."""
        length, tokens = len(prompt["ids"]), self.given.tokens
        if length + tokens > self.given.context:
            sys.exit(f"--context {self.given.context}: expected at least {length + tokens} for --deep-tokens and --tokens")
        for repetition in self.repetitions("deep"):

            def peer(peer, flash, arm):
                answer = peer.decode(flash, prompt["ids"], tokens)
                self.record("deep", arm=arm, repetition=repetition, prompt_tokens=length, **answer)

            def yggc(activations):
                run = self.bench(activations, [prompt], ["ar"], tokens)[0]["ar"][0]
                if run["tpot_ms"] is not None:
                    fields = {key: run[key] for key in ["tokens", "tpot_ms"]}
                    self.record("deep", arm=f"yggc {activations}", repetition=repetition, prompt_tokens=length, **fields)

            self.in_turn(self.of_peers(peer) + self.measured(yggc), repetition)

    def answers(self, chosen, prompts):
        """Whole answers with prefill: plain on all sides, and with the speculation of yggc and of the peers."""
        peer_arms = {f"{name} plain": (name, {}) for name in chosen}
        if self.given.draft_model:
            for predicted, least in DRAFTED:
                draft = {"draft": {"predicted": predicted, "least": least}}
                label = f"{predicted} of {least} or more" if least else f"{predicted}"
                peer_arms |= {f"{name} draft {label}": (name, draft) for name in chosen}
        elif "llama.cpp" in chosen:
            for predicted in PREDICTED:
                lookup = {"lookup": {"ngram": self.given.ngram, "predicted": predicted}}
                peer_arms[f"llama.cpp lookup {predicted}"] = ("llama.cpp", lookup)
        activations = self.given.activations[0]

        def peer(repetition, arm, group):
            name, speculation = peer_arms[arm]
            variant, flash = chosen[name]
            for prompt in group:
                answer = self.peers[name, variant].answer(flash, prompt["ids"], self.given.tokens, **speculation)
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
            runs, about = self.bench(activations, group, ["ar", "plan"], self.given.tokens)
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
        about = self.bench(activations, prompts[:1], ["ar", "plan"], 2)[1]
        self.record("plan", **about["plan"])
        for name, (variant, flash) in chosen.items():
            self.peers[name, variant].answer(flash, prompts[0]["ids"], self.given.tokens)
        groups = [prompts[start : start + GROUP] for start in range(0, len(prompts), GROUP)]
        for repetition in self.repetitions("answers"):
            for place, group in enumerate(groups):
                turns = [lambda arm=arm: peer(repetition, arm, group) for arm in peer_arms]
                self.in_turn([*turns, lambda: yggc(repetition, group)], repetition, place)

    def close(self):
        for peer in self.peers.values():
            peer.close()


def measure(given):
    """One comparison, written to --out."""
    prompts = [] if given.peers_only else setting.read_prompts(given.prompts)
    unfinished = f"{given.out}.part"
    with open(unfinished, "w") as out:
        comparison = Comparison(given, out)
        comparison.header(prompts)
        if given.peers_only:
            asked = [comparison.prompt(length) for length in (32, 64, 128)]
        else:
            asked = prompts if "answers" in given.only else prompts[:AR_PROMPTS]
            comparison.token_ids(asked)
        start = time.monotonic()
        chosen = comparison.choose(asked[0])
        if "ar" in given.only:
            comparison.ar(asked)
        if "widths" in given.only:
            comparison.widths(comparison.prompt(given.depth + max(given.widths))["ids"])
        if "prefill" in given.only:
            comparison.prefill(comparison.prompt(given.prefill_tokens))
        if "deep" in given.only:
            comparison.deep(comparison.prompt(given.deep_tokens))
        if "answers" in given.only:
            comparison.answers(chosen, asked)
        comparison.say(f"measured for {(time.monotonic() - start) / 60:.1f} minutes")
        comparison.close()
    os.rename(unfinished, given.out)


if __name__ == "__main__":
    given = options(sys.argv[1:])
    if not os.path.isfile(given.model):
        sys.exit(f"--model: no file `{given.model}`; yggc fetch prints the path of a known one")
    measure(given)
    print(summary.tables([summary.read(given.out)]))
