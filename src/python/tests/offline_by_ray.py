"""`examples/ray_offline.py` on this machine: results of one machine, what is left after an end, files that change, runs that fail or are lost.

The parts of a corpus to distill from need what `profiler/distill/requirements.txt` names.

    YGG_TEST_MODEL=model.gguf YGG_TEST_PROGRAM=yggc python src/python/tests/offline_by_ray.py
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MODEL, PROGRAM = (os.environ[f"YGG_TEST_{name}"] for name in ("MODEL", "PROGRAM"))
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

import ray
import ray_offline

TEXTS = ["The Rhine begins in the Alps and ends at the North Sea. " * 3, "One and one are two, and two and two are four. " * 3,
         "Bread is made of flour, water, salt and time. " * 3]
CORPUS = [PROGRAM, "corpus", "build", "-m", MODEL, "--threads", "1", "--input", "{text}", "-o", "{output}"]
PART = [PROGRAM, "distill", "-m", MODEL, "--corpus-only", "--tokens", "400", "--threads", "1", "--seed", "{seed}", "-o", "{output}"]
# `yggc distill` trains by the first python3, which is to be this one.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def content(path):
    """The bytes of a file, or of every file of a folder."""
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return path.read_bytes()


class Offline(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}})

    @classmethod
    def tearDownClass(cls):
        ray.shutdown()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"
        self.texts = [self.folder / f"{i}.txt" for i in range(len(TEXTS))]
        for path, text in zip(self.texts, TEXTS):
            path.write_text(text)

    def run_over(self, texts, command):
        """How many runs failed, and all that was said."""
        return self.run_each({"text": texts}, command)

    def run_each(self, each, command):
        said, given = io.StringIO(), []
        for name, values in each.items():
            given += ["--each", name, *map(str, values)]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            failed = ray_offline.main([str(self.out), *given, "--", *command])
        return failed, said.getvalue()

    def results(self):
        return {path.name.rsplit("-", 1)[0]: content(path) for path in self.out.iterdir() if path.suffix != ".json"}

    def by_hand(self, command, **values):
        """What the command gives without Ray."""
        output = self.folder / "by hand"
        ended = subprocess.run([word.format(**values, output=output) for word in command], check=True, capture_output=True)
        made = content(output) if output.exists() else ended.stdout
        shutil.rmtree(output) if output.is_dir() else output.unlink(missing_ok=True)
        return made

    def test_stores_are_those_of_one_machine_and_are_not_made_twice(self):
        self.assertEqual(self.run_over(self.texts[:2], CORPUS)[0], 0)
        failed, said = self.run_over(self.texts, CORPUS)
        self.assertEqual((failed, said.count("there already")), (0, 2), said)
        self.assertEqual(self.results(), {path.name: self.by_hand(CORPUS, text=path) for path in self.texts})

    def test_parts_of_a_corpus_to_distill_from_are_those_of_one_machine_and_train(self):
        failed, said = self.run_each({"seed": [1]}, PART)
        self.assertEqual(failed, 0, said)
        failed, said = self.run_each({"seed": [1, 2]}, PART)
        self.assertEqual((failed, said.count("there already")), (0, 1), said)
        results = self.results()
        self.assertEqual(results, {str(seed): self.by_hand(PART, seed=seed) for seed in (1, 2)})
        self.assertTrue(all("work/corpus/shard-00000.safetensors" in files for files in results.values()))

        parts = sorted(path for path in self.out.iterdir() if path.is_dir())
        drafter = self.folder / "drafter"
        command = [PROGRAM, "distill", "-m", MODEL, "-o", drafter, "--seen", "200", "--threads", "1", "--corpus", *parts]
        subprocess.run(command, check=True, capture_output=True)
        self.assertEqual(json.loads((drafter / "work/corpus/corpus.json").read_text())["seeds"], [1, 2])
        self.assertTrue((drafter / "model.safetensors").exists())

    def test_profiles_plans_and_measurements_of_several_plans(self):
        prompts = self.folder / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in TEXTS[:2]))
        profile = [PROGRAM, "profile", "-m", MODEL, "--threads", "1", "--rehearsal", "--budget", "10", "--drafter", "{drafter}", "-o", "{output}"]
        failed, said = self.run_each({"drafter": ["lookup", "suffix"]}, profile)
        self.assertEqual(failed, 0, said)
        profiles = {path.name.split("-")[0]: path for path in self.out.iterdir() if path.suffix != ".json"}

        # A plan is a function of its profile, but for when it was made.
        self.out = self.folder / "plans"
        plan = [PROGRAM, "plan", "--profile", "{profile}", "--fix", "rows=all,predictor=off", "-o", "{output}"]
        failed, said = self.run_each({"profile": profiles.values()}, plan)
        self.assertEqual(failed, 0, said)
        plans = [path for path in self.out.iterdir() if path.suffix != ".json"]
        for path in plans:
            alone = self.folder / "alone.plan"
            alone.write_bytes(self.by_hand(plan, profile=next(each for each in profiles.values() if path.name.startswith(each.name))))
            compared = subprocess.run([PROGRAM, "plan", "diff", path, alone], check=True, capture_output=True, text=True).stdout
            self.assertEqual(compared.strip(), "no difference")

        # Times are this machine's; every result says which arms it measured.
        self.out = self.folder / "measured"
        bench = [PROGRAM, "bench", "-m", MODEL, "--threads", "1", "--plan", "{plan}", "--prompts", "{prompts}", "-n", "16", "--arms", "ar,plan", "--json"]
        failed, said = self.run_each({"plan": plans, "prompts": [prompts]}, bench)
        self.assertEqual((failed, len(self.results())), (0, 2), said)
        for result in self.results().values():
            self.assertEqual([arm["name"] for arm in json.loads(result)["arms"]], ["ar", "plan"])

    def test_what_changed_or_was_cut_off_is_made_again(self):
        count = ["wc", "-c", "{text}"]
        self.run_over(self.texts, count)
        self.texts[1].write_text("shorter")
        first = next(self.out.glob("0.txt-*.json"))
        first.write_text(first.read_text()[:10])
        failed, said = self.run_over(self.texts, count)
        self.assertEqual((failed, said.count("there already")), (0, 1), said)
        self.assertEqual(self.results()["1.txt"].split()[0], b"7")
        self.assertEqual(self.run_over(self.texts, ["wc", "-l", "{text}"])[1].count("there already"), 0)

    def test_a_run_that_fails_is_told_and_others_are_kept(self):
        failed, said = self.run_over([self.texts[0], "nowhere.txt"], ["cat", "{text}"])
        self.assertEqual(failed, 1)
        self.assertIn("nowhere.txt", said)
        self.assertEqual(self.results(), {"0.txt": TEXTS[0].encode()})

    def test_a_worker_that_dies_costs_what_it_ran(self):
        mark = self.folder / "mark"
        dies_once = f"if mkdir {mark} 2>/dev/null; then kill -9 $PPID; fi; cat {{text}} >{{output}}"
        failed, said = self.run_over(self.texts, ["sh", "-c", dies_once])
        self.assertEqual(failed, 0, said)
        self.assertEqual(self.results(), {path.name: text.encode() for path, text in zip(self.texts, TEXTS)})


if __name__ == "__main__":
    unittest.main()
