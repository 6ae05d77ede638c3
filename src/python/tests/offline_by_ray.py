"""`examples/ray_offline.py` on this machine: results of one machine, what is left after an end, files that change, runs that fail or are lost.

    YGG_TEST_MODEL=model.gguf YGG_TEST_PROGRAM=yggc python src/python/tests/offline_by_ray.py
"""

import contextlib
import io
import os
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
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            failed = ray_offline.main([str(self.out), "--each", "text", *map(str, texts), "--", *command])
        return failed, said.getvalue()

    def results(self):
        return {path.name.split("-")[0]: path.read_bytes() for path in self.out.iterdir() if path.suffix != ".json"}

    def test_stores_are_those_of_one_machine_and_are_not_made_twice(self):
        self.assertEqual(self.run_over(self.texts[:2], CORPUS)[0], 0)
        failed, said = self.run_over(self.texts, CORPUS)
        self.assertEqual((failed, said.count("there already")), (0, 2), said)
        results = self.results()
        for path in self.texts:
            alone = self.folder / f"{path.stem}.store"
            command = [word.format(text=path, output=alone) for word in CORPUS]
            subprocess.run(command, check=True, capture_output=True)
            self.assertEqual(results[path.name], alone.read_bytes(), path.name)

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
