"""Tests of drafters: what rows see, trees against texts, simulated steps, training that learns and goes on."""

import json
import tempfile
import unittest
from pathlib import Path

import torch
from safetensors.torch import load_file

from .. import agreement
from .. import generate as generation
from ..corpus import Corpus, is_held_back
from ..eagle3 import Eagle3Drafter, inner_layers
from ..generate import Writer, generate
from ..hidden import HiddenDrafter
from ..initial import start_from_layer
from ..llama import Verifier
from ..loss import ROWS, head_loss
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


class Losses(unittest.TestCase):
    def test_the_loss_of_a_few_rows_at_a_time_is_that_of_all(self):
        torch.manual_seed(5)
        rows = torch.randn(ROWS + 9, 24, requires_grad=True)
        matrix, correction = torch.randn(50, 24, requires_grad=True), torch.randn(50)
        found = torch.randint(0, 50, (len(rows), 4))
        wanted = torch.rand(found.shape).softmax(-1)
        logits = rows.bfloat16().float() @ matrix.bfloat16().float().T + correction
        total, taken = logits.logsumexp(-1), logits.gather(-1, found)
        best = taken.gather(-1, wanted.argmax(-1, keepdim=True))[:, 0]
        expected = (total - 0.7 * (wanted * taken).sum(-1) - 0.3 * best).mean()
        expected.backward()
        gradients = [part.grad.clone() for part in (rows, matrix)]
        rows.grad = matrix.grad = None
        loss = head_loss(rows, matrix, correction, wanted, found, 0.3)
        (3 * loss).backward()
        self.assertAlmostEqual(loss.item(), expected.item(), delta=0.01 * expected.item())
        for part, gradient in zip((rows, matrix), gradients, strict=True):
            difference = (part.grad / 3 - gradient).norm() / gradient.norm()
            self.assertLess(difference.item(), 0.01)


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


class Eagle3(unittest.TestCase):
    """As the paper and published heads have it."""

    def setUp(self):
        self.checkpoint = tiny.checkpoint(layers=7)
        self.inner = inner_layers(7)
        self.verifier = Verifier(self.checkpoint, torch.float32, inner=self.inner)
        self.ids = tiny.text(12)
        self.rows = hidden_rows(self.verifier, self.ids)
        torch.manual_seed(5)
        self.known = list(range(3, 259, 2))
        self.drafter = Eagle3Drafter.like(self.checkpoint, self.known)
        for parameter in self.drafter.parameters():
            torch.nn.init.normal_(parameter, std=0.4)

    def test_inner_rows_are_what_later_layers_read(self):
        self.assertEqual(self.inner, (2, 3, 4))
        plain = Verifier(self.checkpoint, torch.float32)
        parts = self.rows.chunk(4, -1)
        torch.testing.assert_close(parts[0], hidden_rows(plain, self.ids))
        for number, part in zip(self.inner, parts[1:], strict=True):
            torch.testing.assert_close(part, plain.prefill(torch.tensor([self.ids]), plain.cache(1), 0, layers=number)[0])
        cache = self.verifier.cache(1)
        for at, id in enumerate(self.ids):
            made = self.verifier.decode(torch.tensor([id]), torch.tensor([at]), cache)
        torch.testing.assert_close(made[0], self.rows[-1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(self.verifier.best(self.rows, 4)[1], plain.best(parts[0], 4)[1])
        with self.assertRaisesRegex(Refusal, "has 6 layers; expected 7 or more"):
            inner_layers(6)

    def test_both_passes_are_the_head_written_out(self):
        shape = self.checkpoint.shape
        state = {name: tensor.double() for name, tensor in self.drafter.state_dict().items()}
        inner = self.rows[:, shape.width :]

        def norm(x, name):
            return x / (x.square().mean(-1, keepdim=True) + shape.epsilon).sqrt() * state[name]

        def turned(position, head):
            angles = position * shape.rope_theta ** (-torch.arange(0, shape.head_width, 2, dtype=torch.float64) / shape.head_width)
            first, second = head.chunk(2)
            return torch.cat((first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()))

        def read(tokens, before):
            embedded = norm(self.checkpoint.embedding[tokens].double(), "midlayer.input_layernorm.weight")
            both = torch.cat((embedded, norm(before, "midlayer.hidden_norm.weight")), -1)
            return [(both @ state[f"midlayer.self_attn.{name}_proj.weight"].T).unflatten(-1, (-1, shape.head_width)) for name in "qkv"]

        def attended(queries, positions, keys, values, places):
            """Queries [R, H, E] at positions over keys and values [R, S, K, E] at places [R, S]."""
            mixed = torch.zeros(len(queries), shape.heads, shape.head_width, dtype=torch.float64)
            for row, head in ((row, head) for row in range(len(queries)) for head in range(shape.heads)):
                shared = head // (shape.heads // shape.kv_heads)
                query = turned(positions[row], queries[row, head])
                scores = torch.stack([query @ turned(at, key[shared]) for at, key in zip(places[row], keys[row], strict=True)])
                mixed[row, head] = (scores * shape.head_width**-0.5).softmax(0) @ torch.stack([value[shared] for value in values[row]])
            return mixed.flatten(1)

        def after(before, mixed):
            x = before + mixed @ state["midlayer.self_attn.o_proj.weight"].T
            normed = norm(x, "midlayer.post_attention_layernorm.weight")
            gate, up = (normed @ state[f"midlayer.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            return x + (torch.nn.functional.silu(gate) * up) @ state["midlayer.mlp.down_proj.weight"].T

        tokens, first = torch.tensor(self.ids[1:]), inner[:-1].double() @ state["fc.weight"].T
        rows = len(tokens)
        queries, keys, values = read(tokens, first)
        positions = list(range(1, rows + 1))
        x = after(first, attended(queries, positions, [keys[: r + 1] for r in range(rows)], [values[: r + 1] for r in range(rows)],
                                  [positions[: r + 1] for r in range(rows)]))
        # A draft one token after the root of row r - 1: the text up to that root, and itself by the head's own row.
        queries, own_keys, own_values = read(tokens[1:], x[:-1])
        second = after(x[:-1], attended(
            queries, positions[1:], [[*keys[: r + 1], own_keys[r]] for r in range(rows - 1)],
            [[*values[: r + 1], own_values[r]] for r in range(rows - 1)], [positions[: r + 2] for r in range(rows - 1)],
        ))
        with torch.no_grad():
            found = self.drafter.unroll(torch.tensor([self.ids]), inner[None], 2)
        torch.testing.assert_close(found[0][0].double(), x, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(found[1][0, 1:].double(), second, rtol=1e-3, atol=1e-3)
        logits = norm(x, "norm.weight") @ state["lm_head.weight"].T
        torch.testing.assert_close(self.drafter.logits(found[0][0])[:, self.known].double(), logits, rtol=1e-3, atol=1e-3)

    def test_no_token_is_said_that_the_head_does_not_know(self):
        logits = self.drafter.logits(torch.randn(3, 32))
        unknown = [id for id in range(self.checkpoint.shape.vocabulary) if id not in self.known]
        self.assertTrue(bool((logits[:, unknown] == float("-inf")).all()) and bool(logits[:, self.known].isfinite().all()))

    def test_a_folder_is_laid_out_as_published_heads_are(self):
        with tempfile.TemporaryDirectory() as folder:
            self.drafter.save(Path(folder))
            config = json.loads((Path(folder) / "config.json").read_text())
            tensors = load_file(Path(folder) / "model.safetensors")
        self.assertEqual((config["architectures"], config["draft_vocab_size"], config["vocab_size"]), (["LlamaForCausalLMEagle3"], 128, 259))
        self.assertEqual(
            {name: list(tensor.shape) for name, tensor in tensors.items()},
            {"fc.weight": [32, 96], "midlayer.input_layernorm.weight": [32], "midlayer.hidden_norm.weight": [32],
             "midlayer.self_attn.q_proj.weight": [32, 64], "midlayer.self_attn.k_proj.weight": [16, 64],
             "midlayer.self_attn.v_proj.weight": [16, 64], "midlayer.self_attn.o_proj.weight": [32, 32],
             "midlayer.post_attention_layernorm.weight": [32], "midlayer.mlp.gate_proj.weight": [48, 32],
             "midlayer.mlp.up_proj.weight": [48, 32], "midlayer.mlp.down_proj.weight": [32, 48], "norm.weight": [32],
             "lm_head.weight": [128, 32], "d2t": [128], "t2d": [259]},
        )
        self.assertEqual((tensors["d2t"] + torch.arange(128)).tolist(), self.known)
        self.assertEqual(tensors["t2d"].nonzero()[:, 0].tolist(), self.known)
        self.assertEqual((tensors["d2t"].dtype, tensors["t2d"].dtype, tensors["fc.weight"].dtype), (torch.int64, torch.bool, torch.bfloat16))


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
        cls.corpus = cls.written(cls.verifier, cls.checkpoint, "last")

    @classmethod
    def written(cls, verifier: Verifier, checkpoint, name: str) -> Corpus:
        corpus = Corpus(Path(cls.folder.name) / name)
        corpus.folder.mkdir()
        writer = Writer(verifier, checkpoint.vocabulary, 1)
        for number in range(3):
            candidates = [tiny.text(4 + seed % 5, 1000 * number + seed) for seed in range(400)]
            prompts = [ids for ids in candidates if is_held_back(ids)][:4] + [ids for ids in candidates if not is_held_back(ids)][:26]
            sequences = writer.answer(number, prompts, 24, [row % 2 == 0 for row in range(30)])
            for sequence in sequences:
                sequence.prompt = Prompt("qa", ("?",))
            corpus.write(number, sequences)
        return corpus

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
            asked = [text.prompt.turns for text in corpus.texts()]
            self.assertEqual(len(set(asked)), len(asked), "no prompt is asked twice")

    def trainer(self, folder: Path, tokens: int) -> Trainer:
        drafter = HiddenDrafter.like(self.checkpoint)
        start_from_layer(drafter, self.checkpoint, self.verifier, self.corpus, 2)
        options = Options(tokens=tokens, rows=128, rate=1e-2, warm_up=2, passes=2, others=40, measure_every=100_000, simulated=2)
        return Trainer(drafter, self.corpus, list(range(200)), options, folder, lambda text: None)

    def test_an_eagle3_head_begins_well_and_learns(self):
        checkpoint = tiny.checkpoint(layers=7)
        verifier = Verifier(checkpoint, torch.float32, inner=inner_layers(7))
        corpus = self.written(verifier, checkpoint, "inner")
        self.assertEqual(next(corpus.sequences()).hidden.shape[-1], 96)
        torch.manual_seed(7)
        drafter = Eagle3Drafter.like(checkpoint, list(range(3, 259)))
        seen = [found for found in corpus.sequences() if not found.held_back]
        random_one = agreement.measure(drafter, seen, 2, 0)
        explained = start_from_layer(drafter, checkpoint, verifier, corpus, 6)
        self.assertGreater(explained, 0.3)
        before = agreement.measure(drafter, seen, 2, 0)
        self.assertGreater(before.by_depth[0][1], random_one.by_depth[0][1] + 0.05)
        options = Options(tokens=12_000, rows=128, rate=1e-2, warm_up=2, passes=2, measure_every=100_000, simulated=2)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(drafter, corpus, drafter.known.tolist(), options, Path(folder), lambda text: None)
            trainer.run()
            self.assertEqual(Trainer.saved_columns(Path(folder)), drafter.known.tolist())
        after = agreement.measure(drafter, seen, 2, 0)
        for depth in (0, 1):
            self.assertGreater(after.by_depth[depth][1], before.by_depth[depth][1] + 0.03)
        with self.assertRaisesRegex(Refusal, "leave out --regression"):
            Trainer(drafter, corpus, [3], Options(tokens=1, regression=0.1), Path(folder), lambda text: None)

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
