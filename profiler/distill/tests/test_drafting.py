"""Tests of drafters: what rows see, trees against texts, simulated steps, training that learns and goes on."""

import json
import tempfile
import unittest
from pathlib import Path

import torch

from .. import agreement
from .. import generate as generation
from ..corpus import Corpus, is_held_back
from ..generate import Writer, generate
from ..hidden import HiddenDrafter
from ..initial import start_from_layer
from ..llama import Verifier
from ..plain import PlainDrafter
from ..refusal import Refusal
from ..seeds import Prompt
from ..train import Options, Trainer
from . import tiny


def hidden_rows(verifier: Verifier, ids: list[int]) -> torch.Tensor:
    return verifier.prefill(torch.tensor([ids]), verifier.cache(1), 0)[0]


def drafters(checkpoint):
    torch.manual_seed(3)
    made = [HiddenDrafter.like(checkpoint), PlainDrafter.like(checkpoint, layers=2, width=16, head_width=8)]
    for drafter in made:
        for parameter in drafter.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return made


class Rows(unittest.TestCase):
    def setUp(self):
        self.checkpoint = tiny.checkpoint()
        self.verifier = Verifier(self.checkpoint, torch.float32)
        self.ids = tiny.text(12)
        self.hidden = hidden_rows(self.verifier, self.ids)

    def test_the_first_pass_is_the_layer_written_out(self):
        drafter, shape = drafters(self.checkpoint)[0], self.checkpoint.shape
        state = {name: tensor.double() for name, tensor in drafter.state_dict().items()}

        def norm(x, weight):
            return x / (x.square().mean(-1, keepdim=True) + shape.epsilon).sqrt() * weight

        embedded = norm(self.checkpoint.embedding[self.ids[1:]].double(), state["enorm.weight"])
        before = norm(self.hidden[:-1].double(), state["hnorm.weight"])
        x = torch.cat((embedded, before), 1) @ state["eh_proj.weight"].T
        normed = norm(x, state["layers.0.input_layernorm.weight"])
        mixed = torch.zeros(len(x), shape.heads, shape.head_width, dtype=torch.float64)

        def heads(name):
            return (normed @ state[f"layers.0.self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, shape.head_width))

        def turned(row, head):
            angles = (row + 1) * shape.rope_theta ** (-torch.arange(0, shape.head_width, 2, dtype=torch.float64) / shape.head_width)
            first, second = head.chunk(2)
            return torch.cat((first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()))

        queries, keys, values = heads("q"), heads("k"), heads("v")
        for row in range(len(x)):
            for head in range(shape.heads):
                shared = head // (shape.heads // shape.kv_heads)
                query = turned(row, queries[row, head])
                scores = torch.stack([query @ turned(seen, keys[seen, shared]) for seen in range(row + 1)])
                mixed[row, head] = (scores * shape.head_width**-0.5).softmax(0) @ values[: row + 1, shared]
        x = x + mixed.flatten(1) @ state["layers.0.self_attn.o_proj.weight"].T
        normed = norm(x, state["layers.0.post_attention_layernorm.weight"])
        gate = normed @ state["layers.0.mlp.gate_proj.weight"].T
        up = normed @ state["layers.0.mlp.up_proj.weight"].T
        x = x + (torch.nn.functional.silu(gate) * up) @ state["layers.0.mlp.down_proj.weight"].T
        found = drafter.unroll(torch.tensor([self.ids]), self.hidden[None], 1)[0][0]
        torch.testing.assert_close(found.double(), x, rtol=1e-3, atol=1e-3)

    def test_unrolled_passes_are_chains_of_trees(self):
        tokens = torch.tensor(self.ids)
        for drafter in drafters(self.checkpoint):
            with torch.no_grad():
                passes = drafter.unroll(tokens[None], self.hidden[None], 3)
                roots = torch.arange(0, 8)
                row, trees = drafter.trees(tokens, self.hidden, roots)
                torch.testing.assert_close(row, passes[0][0, roots])
                for depth in (1, 2):
                    ancestors = torch.ones((len(roots), 1, depth), dtype=torch.bool)
                    said = tokens[roots + 1 + depth][:, None]
                    row = trees.forward(said, row[:, None], torch.full((len(roots), 1), depth), ancestors)[:, 0]
                    torch.testing.assert_close(row, passes[depth][0, roots + depth], rtol=1e-4, atol=1e-4)

    def test_siblings_do_not_see_each_other(self):
        tokens, roots = torch.tensor(self.ids), torch.tensor([4])
        for drafter in drafters(self.checkpoint):
            with torch.no_grad():
                row, trees = drafter.trees(tokens, self.hidden, roots)
                both = trees.forward(torch.tensor([[7, 9]]), row[:, None].expand(-1, 2, -1), torch.ones((1, 2), dtype=torch.long),
                                     torch.eye(2, dtype=torch.bool)[None])
                row, trees = drafter.trees(tokens, self.hidden, roots)
                alone = trees.forward(torch.tensor([[9]]), row[:, None], torch.ones((1, 1), dtype=torch.long),
                                      torch.ones((1, 1, 1), dtype=torch.bool))
            torch.testing.assert_close(both[:, 1:], alone)

    def test_a_folder_is_read_as_it_was_written_and_another_verifier_s_is_refused(self):
        drafter = drafters(self.checkpoint)[0]
        with tempfile.TemporaryDirectory() as folder:
            drafter.save(Path(folder))
            found = HiddenDrafter.load(Path(folder), self.checkpoint).state_dict()
            for name, tensor in drafter.state_dict().items():
                self.assertTrue(torch.equal(found[name], tensor.bfloat16().float()), name)
            file = Path(folder) / "config.json"
            config = json.loads(file.read_text())
            self.assertEqual((config["model_type"], config["num_hidden_layers"]), ("hidden_state_drafter", 1))
            file.write_text(json.dumps({**config, "vocab_size": 7}))
            with self.assertRaisesRegex(Refusal, "vocabulary 7; expected 259"):
                HiddenDrafter.load(Path(folder), self.checkpoint)


class Simulation(unittest.TestCase):
    def test_what_is_accepted_is_the_longest_path_that_the_text_takes(self):
        trees = agreement.Trees(
            tokens=torch.tensor([[5, 6, 7, 8]] * 3), parents=torch.tensor([[-1, -1, 1, 2]] * 3), depths=torch.tensor([[1, 1, 2, 3]] * 3)
        )
        for text, expected in (([0, 6, 7, 8, 1], 3), ([0, 5, 7, 8, 1], 1), ([0, 6, 7, 1, 1], 2), ([0, 8, 7, 8, 1], 0), ([0, 6], 1)):
            found = agreement.accepted_depths(trees, torch.tensor(text), torch.zeros(3, dtype=torch.long))
            self.assertEqual(found.tolist(), [expected] * 3, text)

    def test_trees_grow_by_path_probability(self):
        """A drafter of fixed distributions: whatever the row, token 1 has 0.6, token 2 0.3, token 3 0.1."""

        class Fixed:
            def trees(self, tokens, hidden, roots):
                return torch.zeros(len(roots), 4), self

            def forward(self, tokens, parents, depths, ancestors):
                return torch.zeros(*tokens.shape, 4)

            def logits(self, rows, columns=None):
                return torch.tensor([1e-9, 0.6, 0.3, 0.1]).log().expand(*rows.shape[:-1], 4)

        trees = agreement.grow(Fixed(), torch.arange(5), torch.zeros(5, 4), torch.tensor([0, 1]), 3, 2)
        # Growths: {1, 2}; {11, 111 is not yet there, so 12 or 21: 0.36, 0.18}; {111 with 0.216, the other of 0.18}.
        self.assertEqual(trees.depths[0].tolist()[:3], [1, 1, 2])
        self.assertEqual(trees.tokens[0].tolist()[:3], [1, 2, 1])
        self.assertEqual(trees.parents[0].tolist()[:3], [-1, -1, 0])
        self.assertEqual((trees.tokens[0, 4].item(), trees.parents[0, 4].item(), trees.depths[0, 4].item()), (1, 2, 3))
        self.assertTrue(torch.equal(trees.tokens[0], trees.tokens[1]))


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.checkpoint = tiny.checkpoint()
        cls.verifier = Verifier(cls.checkpoint, torch.float32)
        cls.corpus = Corpus(Path(cls.folder.name))
        writer = Writer(cls.verifier, cls.checkpoint.vocabulary, 1)
        for number in range(3):
            candidates = [tiny.text(4 + seed % 5, 1000 * number + seed) for seed in range(400)]
            prompts = [ids for ids in candidates if is_held_back(ids)][:4] + [ids for ids in candidates if not is_held_back(ids)][:26]
            sequences = writer.answer(number, prompts, 24, [row % 2 == 0 for row in range(30)])
            for sequence in sequences:
                sequence.prompt = Prompt("qa", ("?",))
            cls.corpus.write(number, sequences)

    def test_greedy_answers_are_the_verifier_s_best_and_labels_are_its_rows(self):
        checked = 0
        for found in self.corpus.sequences():
            hidden = hidden_rows(self.verifier, found.ids)
            rows = slice(found.prompt_tokens - 1, len(found.ids) - 1)
            torch.testing.assert_close(found.hidden[rows], hidden[rows], rtol=5e-3, atol=5e-3)
            best, probabilities = self.verifier.best(hidden[rows], 16)
            clear = probabilities[:, 0] > probabilities[:, 1] + 1e-3
            self.assertTrue(torch.equal(best[clear, 0].int(), found.top_ids[rows][clear, 0]))
            self.assertEqual(int((found.top_probabilities[:, 0] > 0).sum()), rows.stop - rows.start)
            if found.greedy:
                checked += int(clear.sum())
                said = torch.tensor(found.ids[found.prompt_tokens :])
                self.assertTrue(torch.equal(said[clear], best[clear, 0]))
        self.assertGreater(checked, 500)

    def test_a_corpus_has_something_to_judge_by_however_small(self):
        with tempfile.TemporaryDirectory() as folder:
            corpus = Corpus(Path(folder))
            generate(self.verifier, self.checkpoint.vocabulary, corpus, generation.Options(tokens=1, seed=2, batch=2, answer=2), lambda text: None)
            self.assertTrue(corpus.is_enough(1))
            self.assertEqual([text.held_back for text in corpus.texts(corpus.shards()[:-1])].count(True), 0)
            self.assertGreater(len(corpus.shards()), 1)

    def trainer(self, folder: Path, tokens: int) -> Trainer:
        drafter = HiddenDrafter.like(self.checkpoint)
        start_from_layer(drafter, self.checkpoint, self.verifier, self.corpus, 2)
        options = Options(tokens=tokens, rows=128, rate=1e-2, warm_up=2, passes=2, others=40, measure_every=100_000, simulated=2)
        return Trainer(drafter, self.corpus, list(range(200)), options, folder, lambda text: None)

    def test_training_learns_and_goes_on_where_it_was(self):
        with tempfile.TemporaryDirectory() as folder:
            trainer = self.trainer(Path(folder), 12_000)
            trainer.run()
            seen = [found for found in self.corpus.sequences() if not found.held_back]
            after = agreement.measure(trainer.drafter, seen, 2, 0)
            before = agreement.measure(self.trainer(Path(folder), 1).drafter, seen, 2, 0)
            for depth in (0, 1):
                self.assertGreater(after.by_depth[depth][1], before.by_depth[depth][1] + 0.03)
            self.assertTrue((Path(folder) / "model.safetensors").exists())
            again = self.trainer(Path(folder), 13_000)
            self.assertTrue(again.resume())
            self.assertEqual((again.seen, again.step, again.history), (trainer.seen, trainer.step, trainer.history))
            for found, expected in zip(again.drafter.parameters(), trainer.drafter.parameters(), strict=True):
                self.assertTrue(torch.equal(found, expected))
            again.run()
            self.assertGreaterEqual(again.seen, 13_000)
            (Path(folder) / "training.pt").write_bytes(b"not a checkpoint")
            with self.assertRaisesRegex(Refusal, "remove it to begin again"):
                self.trainer(Path(folder), 13_000).resume()


if __name__ == "__main__":
    unittest.main()
