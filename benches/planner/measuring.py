"""What prediction.py, exhaustive.py and ablation.py share: `yggc` as they call it, the prompts they ask, and the file they write to."""

import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CALIBRATION = ROOT / "plans/calibration/prompts.jsonl"
UNSEEN = ROOT / "benches/prompts/spec_bench_dev.jsonl"
# The choice of rows as fixes call it, by what plans call it.
ROWS = {"widest": "all", "best_rate": "best"}
# What of a run is kept, beside what it is a run of.
FIELDS = ["tokens", "steps", "drafted", "aal", "tpot_ms", "ttft_ms", "total_ms", "fell_back"]


def add_options(parser, prompts, tokens, repetitions):
    """The options that all scripts have, with their defaults."""
    add = parser.add_argument
    add("out", help="where measurements are written, as JSON lines")
    add("--profile", required=True, help="what `yggc profile` measured on this machine")
    add("--yggc", default=str(ROOT / "target/release/yggc"), help="the program [%(default)s]")
    add("--model", help="a model [yggc's default]")
    add("--device", help="what runs the model, the one that was profiled: cpu or cuda [yggc's default]")
    add("--threads", type=int, help="worker threads, as many as were profiled [yggc's default]")
    add("--isa", help="instruction set, the one that was profiled [yggc's default]")
    add("--context", type=int, default=2048, help="tokens of prompt and answer together [%(default)s]")
    add("--prompts", default=str(UNSEEN), help="JSON lines that `yggc bench` understands [%(default)s]")
    add("--count", type=int, default=prompts, help="prompts to ask, evenly spread over the file [%(default)s]")
    add("--tokens", type=int, default=tokens, help=f"tokens of an answer at most [{tokens or 'as many as the longest that the profile recorded'}]")
    add("--repetitions", type=int, default=repetitions, help="answers of every arm to every prompt [%(default)s]")


def check_options(parser, given):
    for name in ["threads", "context", "count", "repetitions"]:
        if getattr(given, name) is not None and getattr(given, name) < 1:
            parser.error(f"--{name}: expected at least 1")
    if given.tokens is not None and given.tokens < 2:
        parser.error("--tokens: expected at least 2, the first of which is prefill's")
    for name, hint in [
        ("yggc", "cargo build --release makes it"),
        ("profile", "yggc profile -o FILE makes it"),
        ("prompts", "the repository has benches/prompts/spec_bench_dev.jsonl"),
    ]:
        if not os.path.isfile(getattr(given, name)):
            parser.error(f"--{name}: no file `{getattr(given, name)}`; {hint}")


def growth_name(growth):
    """A plan's growth: its name, or an object with the name and the template."""
    return growth if isinstance(growth, str) else next(iter(growth))


def say(text):
    print(f"{datetime.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


class Measuring:
    """One run of a script: temporary plans, the prompts, and the file that everything is written to."""

    def __init__(self, script, given, out):
        self.given, self.out = given, out
        if given.tokens is None:
            # Longer answers repeat more of themselves: a plan speaks of such as its profile recorded.
            profile = json.loads(self.command("profile", "show", given.profile, "--json"))
            given.tokens = max([2, *(len(request["output"]) for request in profile["token_traces"])])
        self.folder = tempfile.TemporaryDirectory()
        self.device = ["--context", str(given.context)]
        for name in ["model", "device", "threads", "isa"]:
            if getattr(given, name) is not None:
                self.device += [f"--{name}", str(getattr(given, name))]
        self.prompts, count = self.choose_prompts()
        load = os.getloadavg()[0]
        if load > 0.5:
            say(f"warning: the load of the last minute was {load:.2f}: nothing else should run while this measures")
        self.record(
            "header",
            script=script,
            date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            commit=self.git("rev-parse", "HEAD"),
            changed=bool(self.git("status", "--porcelain")),
            version=self.command("--version").strip(),
            load_1min=load,
            prompts={"file": os.path.basename(given.prompts), "asked": count},
            options={key: value for key, value in vars(given).items() if key not in ["out", "yggc", "prompts", "model"]}
            | {"profile": os.path.basename(given.profile)},
        )

    def record(self, measure, **fields):
        self.out.write(json.dumps({"measure": measure, **fields}) + "\n")
        self.out.flush()

    def git(self, *arguments):
        """What git says; None where there is no git, or no repository."""
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def choose_prompts(self):
        """A file of --count lines of the prompts, evenly spread, and how many there are."""
        lines = [line for line in pathlib.Path(self.given.prompts).read_text().splitlines() if line.strip()]
        count = min(self.given.count, len(lines))
        chosen = [lines[place * len(lines) // count] for place in range(count)]
        file = pathlib.Path(self.folder.name) / "prompts.jsonl"
        file.write_text("".join(line + "\n" for line in chosen))
        return str(file), count

    def command(self, *arguments, may_refuse=None):
        """What a command prints. None if it refuses its input with words that `may_refuse` is among."""
        done = subprocess.run([self.given.yggc, *arguments], capture_output=True, text=True)
        if done.returncode == 3 and may_refuse and may_refuse in done.stderr:
            return None
        if done.returncode:
            sys.exit(f"yggc {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def plan(self, name, fix=None):
        """Makes the plan of the profile under a fix; returns its file and what it predicts, or None if no shape fits."""
        file = f"{self.folder.name}/{name}.plan"
        fixed = ["--fix", fix] if fix else []
        made = self.command(
            "plan", "--profile", self.given.profile, "-o", file, *fixed, may_refuse="no measured shape satisfies"
        )
        return None if made is None else (file, self.shown(file))

    def shown(self, file):
        """What a plan says of the shape it chose, and what to expect of it by the length of the context."""
        chosen = json.loads(self.command("plan", "show", file, "--json"))["chosen"]
        first = chosen["ranges"][0]
        rows, predicted = first["row_choice"], first["predicted"]
        return {
            "drafter": chosen["name"],
            "Dd": first["depth"],
            "Wd": chosen["draft_width"],
            "Wv": rows["widths"][-1]["width"],
            "growth": growth_name(chosen["growth"]),
            "rows": ROWS[rows["rule"]],
            "predicted": {key: predicted[key] for key in ["aal", "step_us", "tpot_us", "ar_tpot_us", "speedup"]},
            "expected": first["unseen"],
            "by_context": [
                {"context": known["context"], "ar_tpot_us": known["predicted"]["ar_tpot_us"], **known["unseen"]}
                for known in chosen["ranges"]
            ],
        }

    def alternatives(self):
        """Every shape that the planner priced for greedy requests."""
        file, _ = self.plan("alternatives")
        return json.loads(self.command("plan", "show", file, "--json"))["plan"]["bands"][0]["alternatives"]

    def bench(self, phase, call, plans, arms, repetitions, sampling=()):
        """`yggc bench` of plan files by name; every answer becomes a line. Plain decoding is always among the arms, and only
        eager plain decoding is not of a plan."""
        files = {file: name for name, file in plans.items()}
        given = [argument for file in files for argument in ("--plan", file)]
        asked = ["--prompts", self.prompts, "-n", str(self.given.tokens), "--repetitions", str(repetitions)]
        said = self.command("bench", *self.device, *given, *asked, "--arms", ",".join(arms), *sampling, "--json")
        bench = json.loads(said)
        facts = {key: bench[key] for key in ["machine", "model", "kernels", "threads", "version", "sampling"]}
        if call == 0:
            self.record("setting", phase=phase, **facts)
        who = []
        for arm in bench["arms"]:
            kind, _, file = arm["name"].partition(":")
            name = kind if kind in ["ar", "eager"] else files[file or next(iter(files))]
            who.append({"name": name, "arm": kind})
        for place, prompt in enumerate(bench["prompts"]):
            for run in prompt["runs"]:
                self.record(
                    "run",
                    phase=phase,
                    call=call,
                    **who[run["arm"]],
                    repetition=run["repetition"],
                    prompt=place,
                    prompt_tokens=prompt["prompt_tokens"],
                    category=prompt["category"],
                    temperature=bench["sampling"]["temperature"],
                    **{key: run[key] for key in FIELDS if key in run},
                )
