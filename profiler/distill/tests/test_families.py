"""The verifier's forward compared with transformers', for every family, out of both containers."""

import json
import unittest
from dataclasses import replace
from pathlib import Path

import torch

from ..checkpoint import _check, read
from ..family import FAMILIES, Fields, traits
from ..llama import Verifier
from ..refusal import Refusal
from . import tiny

MODELS = Path(__file__).resolve().parents[3] / "tests/data/families"
"""Of each family a tiny model, as a folder and in GGUF, and what transformers says of some texts; the README there has more."""

TINY = sorted(folder.name for folder in MODELS.iterdir() if folder.is_dir())


def texts(family: str) -> list[dict]:
    return json.loads((MODELS / family / "expected.json").read_text(encoding="utf-8"))["texts"]


class Families(unittest.TestCase):
    def test_every_family_is_what_transformers_computes(self):
        for family in TINY:
            for path in (MODELS / family, MODELS / family / "model.gguf"):
                verifier = Verifier(read(path), torch.float32)
                for text in texts(family):
                    nll, best = verifier.score(text["token_ids"])
                    with self.subTest(family=family, file=path.name):
                        self.assertLess(abs(nll.mean() / text["mean_nll"] - 1), 0.005)
                        sure = torch.tensor(text["margin"][:-1]) > 0.05
                        self.assertTrue(torch.equal(best[sure], torch.tensor(text["argmax"][:-1])[sure]))

    def test_decoding_is_a_prefill(self):
        for family in TINY:
            verifier = Verifier(read(MODELS / family), torch.float32)
            ids = torch.tensor([texts(family)[0]["token_ids"]])
            whole = verifier.prefill(ids, verifier.cache(1), 0)[0]
            cache = verifier.cache(1)
            verifier.prefill(ids[:, :40], cache, 0)
            for at in range(40, ids.shape[1]):
                made = verifier.decode(ids[:, at], torch.tensor([at]), cache)
                with self.subTest(family=family, at=at):
                    torch.testing.assert_close(made[0], whole[at], rtol=1e-3, atol=1e-3)

    def test_every_architecture_has_a_tiny_model(self):
        self.assertEqual(set(TINY), {*FAMILIES, "mistral"})

    def test_a_tensor_that_would_be_left_out_is_refused(self):
        found = tiny.checkpoint()
        _check(found, Path("tiny"))
        name = "model.layers.0.mlp.up_proj.bias"
        found = replace(found, tensors={**found.tensors, name: torch.zeros(48)})
        with self.assertRaisesRegex(Refusal, "up_proj.bias"):
            _check(found, Path("tiny"))

    def test_a_rotation_that_lacks_its_factor_is_refused(self):
        for kind in ("linear", "llama3", "yarn"):
            config = {"rope_scaling": {"rope_type": kind}}
            fields = Fields(Path("tiny"), "llama", False, config.get)
            with self.subTest(kind=kind), self.assertRaisesRegex(Refusal, "`factor` of None"):
                traits(fields, tiny.checkpoint().shape, {})
