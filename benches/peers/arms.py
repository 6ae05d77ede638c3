"""The programs that compare.py measures: yggc, one command a measurement, and its peers, in processes that stay."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# How each peer can be run: llama.cpp with OpenMP's threads or its own, ik_llama.cpp with repacked matrices or those of the file.
VARIANTS = {"llama.cpp": ["openmp", "threads"], "ik_llama.cpp": ["repacked", "mapped"]}


class Yggc:
    """`yggc` with the model, threads and context of this comparison."""

    def __init__(self, options):
        self.program = options.yggc
        self.planned = ["--plan", options.plan] if options.plan else []
        if options.draft_model:
            self.planned += ["--draft-model", options.draft_model]
        self.device = ["--model", options.model, "--threads", str(options.threads)]
        if options.device:
            self.device += ["--device", options.device]
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

    def bench(self, activations, texts, arms, tokens):
        """Runs by arm, one of each text, in order; each has tokens, ttft_ms, tpot_ms, total_ms, prompt_tokens and more."""
        prompts = f"{self.folder.name}/prompts.jsonl"
        with open(prompts, "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        plan = self.planned if arms != ["ar"] else []
        once = ["--prompts", prompts, "--arms", ",".join(arms), "-n", str(tokens), "--repetitions", "1", "--json"]
        setting = [*self.device, *self.context, "--activations", activations]
        bench = json.loads(self.command("bench", *setting, *plan, *once))
        names = [arm["name"] for arm in bench["arms"]]
        runs = {name: [] for name in names}
        for prompt in bench["prompts"]:
            for run in prompt["runs"]:
                runs[names[run["arm"]]].append(run | {"prompt_tokens": prompt["prompt_tokens"]})
        return runs, {
            arm["name"]: {key: arm[key] for key in ["drafter", "plan", "spec_off_reason"]} for arm in bench["arms"]
        }

    def widths(self, activations, widths, forwards, depth):
        """Forwards as `bench --kernels` measures them, one of each width: width, median_us, min_us, spread."""
        asked = ["--activations", activations, "--widths", ",".join(map(str, widths)), "--repetitions", str(forwards)]
        found = json.loads(self.command("bench", "--kernels", *self.device, *asked, "--json"))["forwards"]
        rows = [{"width": row["width"]} | row["forward"] for row in found if row["context"] == depth]
        if [row["width"] for row in rows] != widths:
            sys.exit(f"`yggc bench --kernels --json` holds no forward of each width after {depth} tokens: has its form changed?")
        return rows


class Peer:
    """A peer in one variant, in a process that keeps the model loaded."""

    def __init__(self, options, name, variant):
        self.name = f"{name} {variant}"
        python = f"{options.peers}/venv/bin/python"
        engine, where = {
            "llama.cpp": ("engine_llama_cpp", f"{options.peers}/lib/{variant}"),
            "ik_llama.cpp": ("engine_ik_llama_cpp", options.ik),
        }[name]
        for path in [f"{options.peers}/built", python, where]:
            if not os.path.exists(path):
                sys.exit(f"{path} is missing: README.md beside compare.py says how it is built for this machine")
        command = [python, str(HERE / "peer_worker.py"), engine, where, variant]
        draft = [options.draft_model] if options.draft_model else []
        self.process = subprocess.Popen(
            [*command, options.model, str(options.threads), str(options.context), *draft],
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
            sys.exit(f"{self.name} {died}: was it built on this machine?")
        reply = json.loads(line)
        if "error" in reply:
            sys.exit(f"{self.name}: {reply['error']}")
        return reply

    def ask(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # reply() says how it ended.
        return self.reply()

    def answer(self, flash, prompt, tokens, **speculation):
        """A greedy answer, by `lookup` or `draft` if one of them is given."""
        return self.ask(do="answer", flash=flash, prompt=prompt, tokens=tokens, **speculation)

    def decode(self, flash, prompt, tokens):
        return self.ask(do="decode", flash=flash, prompt=prompt, tokens=tokens)

    def width(self, flash, ids, depth, width, forwards):
        return self.ask(do="width", flash=flash, ids=ids, depth=depth, width=width, forwards=forwards)["forward_ms"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
