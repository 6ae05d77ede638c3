"""The two programs that compare.py measures: yggc, one command a measurement, and llama.cpp, in processes that stay."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

WORKER = pathlib.Path(__file__).resolve().parent / "llama_worker.py"
THREADINGS = ("openmp", "threads")


class Yggc:
    """`yggc` with the model, threads and context of this comparison."""

    def __init__(self, options):
        self.program, self.plan = options.yggc, options.plan
        self.device = ["--model", options.model, "--threads", str(options.threads)]
        self.context = ["--context", str(options.context)]
        self.folder = tempfile.TemporaryDirectory()

    def command(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{self.program} {' '.join(arguments)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def version(self):
        return self.command("--version").strip()

    def plain(self, text, tokens):
        """What `run --no-spec --json` says: prompt_token_ids, token_ids and more."""
        prompt = ["--no-spec", "--json", "-n", str(tokens), f"--prompt={text}"]
        return json.loads(self.command("run", *self.device, *self.context, *prompt))

    def bench(self, texts, arms, tokens):
        """Runs by arm, one of each text, in order; each has tokens, ttft_ms, tpot_ms, total_ms, prompt_tokens and more."""
        prompts = f"{self.folder.name}/prompts.jsonl"
        with open(prompts, "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        plan = ["--plan", self.plan] if self.plan and arms != ["ar"] else []
        once = ["--prompts", prompts, "--arms", ",".join(arms), "-n", str(tokens), "--repetitions", "1", "--json"]
        bench = json.loads(self.command("bench", *self.device, *self.context, *plan, *once))
        names = [arm["name"] for arm in bench["arms"]]
        runs = {name: [] for name in names}
        for prompt in bench["prompts"]:
            for run in prompt["runs"]:
                runs[names[run["arm"]]].append(run | {"prompt_tokens": prompt["prompt_tokens"]})
        return runs, {
            arm["name"]: {key: arm[key] for key in ["drafter", "plan", "spec_off_reason"]} for arm in bench["arms"]
        }

    def widths(self, widths, forwards, depth):
        """Forwards as `bench --kernels` measures them, one of each width: width, median_us, min_us, spread."""
        asked = ["--widths", ",".join(map(str, widths)), "--repetitions", str(forwards), "--json"]
        found = json.loads(self.command("bench", "--kernels", *self.device, *asked))["forwards"]
        rows = [{"width": row["width"]} | row["forward"] for row in found if row["context"] == depth]
        if [row["width"] for row in rows] != widths:
            sys.exit(f"`yggc bench --kernels --json` holds no forward of each width after {depth} tokens: has its form changed?")
        return rows


class LlamaCpp:
    """llama.cpp of one build, OpenMP's threads or its own, in a process that keeps the model loaded."""

    def __init__(self, options, threading):
        python, libraries = f"{options.peers}/venv/bin/python", f"{options.peers}/lib/{threading}"
        for path in [f"{options.peers}/built", python, libraries]:
            if not os.path.exists(path):
                sys.exit(
                    f"{path} is missing: run {WORKER.parent}/build.sh {options.peers} to build llama.cpp for this machine"
                )
        self.threading = threading
        self.process = subprocess.Popen(
            [python, str(WORKER), options.model, str(options.threads), str(options.context)],
            env=os.environ | {"LLAMA_CPP_LIB_PATH": libraries},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.about = self.reply()

    def reply(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            died = f"died of signal {-code}" if code < 0 else f"ended with exit status {code}"
            sys.exit(f"llama.cpp ({self.threading}) {died}: rebuild it on this machine with {WORKER.parent}/build.sh")
        reply = json.loads(line)
        if "error" in reply:
            sys.exit(f"llama.cpp ({self.threading}): {reply['error']}")
        return reply

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # reply() says how it ended.
        return self.reply()

    def answer(self, flash, prompt, tokens, lookup=None):
        return self.ask(do="answer", flash=flash, prompt=prompt, tokens=tokens, lookup=lookup)

    def width(self, flash, ids, depth, width, forwards):
        return self.ask(do="width", flash=flash, ids=ids, depth=depth, width=width, forwards=forwards)["forward_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
