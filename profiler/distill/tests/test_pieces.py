"""Tests of what needs no training: arithmetic, files, overlap, prompts, fits."""

import json
import math
import random
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch

from .. import card, generate, seeds, trim
from ..checkpoint import _halves_from_pairs, pairs_from_halves, read
from ..corpus import Corpus, Sequence, is_held_back
from ..llama import Verifier, rms_norm
from ..overlap import GRAM, Overlap
from ..refusal import Refusal
from ..rotation import plain_frequencies, rotate, rotation
from ..seeds import Prompt, Sources
from . import tiny



class Arithmetic(unittest.TestCase):
    def test_norm_is_the_formula(self):
        x = [3.0, -4.0, 0.5]
        root = math.sqrt(sum(value * value for value in x) / 3 + 1e-5)
        found = rms_norm(torch.tensor(x), torch.tensor([1.0, 2.0, 0.0]), 1e-5)
        torch.testing.assert_close(found, torch.tensor([3.0 / root, -8.0 / root, 0.0]))

    def test_rotation_turns_halves_by_the_position(self):
        x, position, theta = [0.3, -1.2, 0.7, 2.0], 5, 100.0
        expected = [0.0] * 4
        for pair in range(2):
            angle = position * theta ** (-pair / 2)
            first, second = x[pair], x[pair + 2]
            expected[pair] = first * math.cos(angle) - second * math.sin(angle)
            expected[pair + 2] = second * math.cos(angle) + first * math.sin(angle)
        torch.testing.assert_close(rotate(torch.tensor(x), *rotation(torch.tensor(position), plain_frequencies(4, theta))), torch.tensor(expected))

    def test_rows_of_gguf_and_hugging_face_are_each_other_s_inverse(self):
        rows = torch.arange(8.0)[:, None].expand(8, 3).contiguous()
        self.assertEqual(pairs_from_halves(rows, 4)[:, 0].tolist(), [0, 2, 1, 3, 4, 6, 5, 7])
        self.assertTrue(torch.equal(_halves_from_pairs(pairs_from_halves(rows, 4), 4), rows))


class VerifierRows(unittest.TestCase):
    def setUp(self):
        self.verifier = Verifier(tiny.checkpoint(), torch.float32)

    def test_decoding_beside_others_is_a_prefill_of_each(self):
        texts = [tiny.text(length, length) for length in (70, 9, 66)]
        cache = self.verifier.cache(3)
        ids = torch.zeros((3, 70), dtype=torch.long)
        for row, text in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(text)
        self.verifier.prefill(ids[:, :5], cache, 0)
        for at in range(5, 9):
            made = self.verifier.decode(ids[:, at], torch.full((3,), at), cache)
        cache.keep(torch.tensor([0, 2]))
        for row, text in enumerate(texts):
            whole = self.verifier.prefill(torch.tensor([text]), self.verifier.cache(1), 0)[0]
            torch.testing.assert_close(made[row], whole[8], rtol=1e-4, atol=1e-4)
        for at in range(9, 66):
            made = self.verifier.decode(ids[[0, 2], at], torch.full((2,), at), cache)
        whole = self.verifier.prefill(ids[:1], self.verifier.cache(1), 0)[0]
        torch.testing.assert_close(made[0], whole[65], rtol=1e-4, atol=1e-4)

    def test_the_best_are_those_of_the_whole_softmax(self):
        hidden = self.verifier.prefill(torch.tensor([tiny.text(20)]), self.verifier.cache(1), 0)[0]
        ids, probabilities = self.verifier.best(hidden, 16)
        normed = rms_norm(hidden, self.verifier.norm, 1e-5)
        expected, order = (normed @ self.verifier.head_exact.T).softmax(-1).topk(16)
        self.assertTrue(torch.equal(ids, order))
        torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-6)


class Files(unittest.TestCase):
    def test_what_is_no_model_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = Path(folder) / "bad.gguf"
            bad.write_bytes(b"GGUF but not for long")
            (Path(folder) / "config.json").write_text('{"model_type": "mixtral"}')
            for path, said in ((bad, "no GGUF"), (Path(folder), "mixtral"), (Path(folder) / "none", "is no model")):
                with self.assertRaisesRegex(Refusal, said):
                    read(path)

    def test_a_corpus_is_read_as_it_was_written(self):
        draw = torch.Generator().manual_seed(1)

        def sequence(length: int, scale: float) -> Sequence:
            return Sequence(tiny.text(length), 3, True, Prompt("qa", ("a", "b")), scale * torch.randn((length, 4), generator=draw),
                            torch.randint(259, (length, 16), generator=draw), torch.rand((length, 16), generator=draw))

        with tempfile.TemporaryDirectory() as folder:
            corpus = Corpus(Path(folder))
            corpus.agree({"seed": 1})
            written = [sequence(7, 1.0), sequence(5, 1e6)]
            corpus.write(0, written)
            for found, expected in zip(corpus.sequences(), written, strict=True):
                self.assertEqual((found.ids, found.prompt_tokens, found.greedy, found.prompt),
                                 (expected.ids, expected.prompt_tokens, expected.greedy, expected.prompt))
                self.assertTrue(torch.equal(found.top_ids, expected.top_ids))
                torch.testing.assert_close(found.hidden, expected.hidden, rtol=2e-3, atol=3.0)
            corpus.agree({"seed": 1})
            with self.assertRaisesRegex(Refusal, "made with seed 1, and 2"):
                corpus.agree({"seed": 2})
            kept = trim.frequent_tokens(corpus, [258], 259, 20)
            self.assertEqual((len(kept), kept, 258 in kept), (20, sorted(kept), True))
            trim.write(Path(folder), corpus)
            ranked = json.loads(Path(folder, "frequent_tokens.json").read_text())
            said = Counter(id for text in corpus.texts() if not text.held_back for id in text.ids[text.prompt_tokens :])
            self.assertEqual([said[id] for id in ranked], sorted(said.values(), reverse=True))

    def test_a_corpus_ends_where_prompts_do(self):
        sources = SimpleNamespace(batch=lambda _, count: [Prompt("given", ("a question",))] * count)
        vocabulary, overlap = SimpleNamespace(chat=lambda turns: [1, 2]), SimpleNamespace(hits=lambda ids: False)
        options = generate.Options(tokens=1, batch=2)
        with self.assertRaisesRegex(Refusal, "1 of the 8 of a round are new; give more by --prompts"):
            generate._prompts_of_round(0, sources, vocabulary, overlap, options, set())

    def test_parts_are_joined_in_their_order(self):
        facts = {"verifier": "tiny", "vocabulary": 259, "width": 4}

        def part(folder: Path, ids: list[int], **made_from) -> Corpus:
            corpus, rows = Corpus(folder), len(ids)
            corpus.agree({**facts, "excluded": ["a.jsonl"], **made_from})
            corpus.write(0, [Sequence(ids, 3, True, Prompt("qa", ("a",)), torch.ones((rows, 4)), torch.zeros((rows, 16)), torch.ones((rows, 16)))])
            return corpus

        with tempfile.TemporaryDirectory() as folder:
            parts = [part(Path(folder, "b"), tiny.text(7, 1), seed=2), part(Path(folder, "a"), tiny.text(9, 2), seed=1, excluded=["a.jsonl", "b.jsonl"])]
            joined = Corpus(Path(folder, "joined"))
            joined.join(parts)
            self.assertEqual([text.ids for text in joined.texts()], [tiny.text(7, 1), tiny.text(9, 2)])
            self.assertEqual(joined.header(), {**facts, "seeds": [2, 1], "excluded": ["a.jsonl"]})
            joined.shards()[1].unlink()
            joined.join(parts)
            self.assertEqual([shard.read_bytes() for shard in joined.shards()], [parts[0].shards()[0].read_bytes(), parts[1].shards()[0].read_bytes()])
            with self.assertRaisesRegex(Refusal, "seeds"):
                joined.join(parts[::-1])
            for other, said in ((part(Path(folder, "c"), tiny.text(7), seed=2), "each to have its own"), (part(Path(folder, "d"), tiny.text(7), seed=3, width=8), "width 8")):
                with self.assertRaisesRegex(Refusal, said):
                    Corpus(Path(folder, "refused")).join([parts[0], other])

    def test_a_prompt_is_held_back_or_not_and_few_are(self):
        held = [is_held_back(tiny.text(9, seed)) for seed in range(2000)]
        self.assertEqual(held, [is_held_back(tiny.text(9, seed)) for seed in range(2000)])
        self.assertTrue(40 < sum(held) < 180, sum(held))


class Excluded(unittest.TestCase):
    def test_thirteen_tokens_in_a_row_are_an_overlap_and_twelve_are_none(self):
        words = tiny.vocabulary()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.jsonl"
            file.write_text('{"turns": ["' + "abcdefghijklmnopqrst" + '"]}\n{"prompt": "0123456789abcdef"}\n')
            overlap = Overlap(words, [file])
            self.assertTrue(overlap.hits(words.encode("say abcdefghijklm!")))
            self.assertTrue(overlap.hits(words.encode("3456789abcdef")))
            self.assertFalse(overlap.hits(words.encode("say abcdefghijkl and bcdefghijklm")))
            self.assertEqual(GRAM, 13)
            file.write_text('{"id": 7}\n')
            with self.assertRaisesRegex(Refusal, "line 1"):
                Overlap(words, [file])


class Prompts(unittest.TestCase):
    def test_templates_fill_and_a_batch_is_a_function_of_its_number(self):
        draw = random.Random(1)
        for _ in range(3000):
            text = seeds.by_template(draw).turns[0]
            self.assertTrue(text.strip() and "{" not in text.replace("{}", ""), text)
        answers = [(Prompt("qa", ("What is it?",)), "It is a river.")]
        sources = Sources(1, [Prompt("given", ("Hello.",))], [Prompt("written", ("Why?",))], answers)
        first = sources.batch((0, 0), 200)
        self.assertEqual(first, sources.batch((0, 0), 200))
        self.assertNotEqual(first, sources.batch((0, 1), 200))
        self.assertTrue({"given", "written", "maths", "code", "rag", "turns"} <= {prompt.kind for prompt in first})

    def test_some_texts_to_work_on_are_several_answers(self):
        answers = [(Prompt("qa", (f"What is {number}?",)), f"Answer {number}.") for number in range(20)]
        prompts = Sources(1, [], [], answers).batch((0, 0), 4000)
        held = [sum(answer in prompt.turns[0] for _, answer in answers) for prompt in prompts if prompt.kind == "summary"]
        self.assertEqual({1, *seeds.LONG_ANSWERS}, set(held))

    def test_turns_go_through_the_template(self):
        words = tiny.vocabulary()
        self.assertEqual(words.tokenizer.decode(words.chat(["a", "b", "c"]), skip_special_tokens=False),
                         "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
                         "<|im_start|>assistant\n")
        self.assertEqual(words.tokenizer.decode(words.opened_turn(), skip_special_tokens=False), "<|im_start|>user\n")


class Curve(unittest.TestCase):
    def test_a_power_law_is_found_again(self):
        history = [{"tokens_seen": tokens, "by_depth": [{"1": 1 - 2.0 * max(tokens, 1) ** -0.1}]} for tokens in (0, 1e4, 2e4, 5e4, 1e5)]
        fit = card.fitted(history)
        self.assertAlmostEqual(card.predicted(fit, 1e6), 1 - 2.0 * 1e6**-0.1, places=6)
        self.assertIsNone(card.fitted(history[:2]))


if __name__ == "__main__":
    unittest.main()
