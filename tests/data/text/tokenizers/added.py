"""Gives the tiny tokenizers of make.py the added tokens of published models, with their `lstrip`, `rstrip`, `single_word` and `normalized`,
and records the ids that the tokenizers library gives to texts with these tokens amid white space: added.json. Needs tokenizers 0.23."""
import json
import pathlib
import random

from tokenizers import Tokenizer

here = pathlib.Path(__file__).parent
PLAIN, BEHIND, AROUND = {}, {"rstrip": True}, {"lstrip": True, "rstrip": True}


def special(*names, **flags):
    return [{"content": name, "special": True, **flags} for name in names]


def text(*names, **flags):
    return [{"content": name, "special": False, **flags} for name in names]


# family: tiny tokenizer, flags of the tokens that it has, added tokens as the models' tokenizer_config.json defines them
FAMILIES = {
    "llama-2": ("sentencepiece", PLAIN, []),
    "llama-3": ("llama-bpe", PLAIN, special("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")),
    "mistral": ("sentencepiece", PLAIN, special("[INST]", "[/INST]", "[TOOL_CALLS]")),
    "mistral-tekken": ("tekken", PLAIN, special("[INST]", "[/INST]", "[SYSTEM_PROMPT]")),
    "smollm2": ("smollm", PLAIN, special("<|im_start|>", "<repo_name>")),
    "smollm3": ("dbrx", PLAIN, special("<|im_start|>") + text("<think>", "</think>")),
    "qwen2": ("qwen2", PLAIN, special("<|im_start|>", "<|vision_start|>")),
    "qwen3": ("qwen2", PLAIN, special("<|im_start|>") + text("<think>", "</think>", "<tool_response>")),
    "deepseek-r1-distill-qwen": ("qwen2", PLAIN, special("<｜begin▁of▁sentence｜>") + text("<｜User｜>", "<｜Assistant｜>", "<think>")),
    "gemma2": ("gemma", PLAIN, special("<start_of_turn>", "<end_of_turn>") + text("\n\n", "\n\n\n", "\t\t", "▁▁", "▁▁▁", "<unused0>")),
    "gemma3": ("gemma", PLAIN, special("<start_of_turn>", "<end_of_turn>", "<start_of_image>") + text("\n\n", "▁▁")),
    "granite": ("smollm", PLAIN, special("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>")),
    "olmo2": ("dbrx", PLAIN, special("<|endoftext|>", "<|endofprompt|>") + text("|||PHONE_NUMBER|||", "<|extra_id_0|>", "<|im_start|>")),
    "lfm2": ("lfm2", PLAIN, special("<|startoftext|>", "<|im_start|>", "<|tool_list_start|>")),
    "phi3": ("sentencepiece", {"</s>": {"rstrip": True, "special": False}, "<|im_end|>": BEHIND, "<tool_call>": BEHIND},
             special("<|endoftext|>") + special("<|assistant|>", "<|placeholder1|>", "<|system|>", "<|end|>", "<|user|>", **BEHIND)),
    "phi4": ("dbrx", {name: AROUND for name in ("<unk>", "<s>", "</s>", "<|im_end|>", "<tool_call>")},
             special("<|endoftext|>", "<|fim_prefix|>", "<|im_start|>", "<|im_sep|>", "<|dummy_85|>", **AROUND)),
    "phi4-mini": ("gpt-4o", {name: BEHIND for name in ("<unk>", "<s>", "</s>", "<|im_end|>", "<tool_call>")},
                  special("<|endoftext|>", "<|endofprompt|>") + special("<|assistant|>", "<|end|>", "<|user|>", "<|system|>", **BEHIND)
                  + text("<|tool|>", "<|/tool|>", "<|tool_call|>", **BEHIND)),
    # No family of GGUF files: what tokenizer.json alone can say.
    "all-flags": ("qwen2", PLAIN, special("<left>", lstrip=True) + special("word", single_word=True)
                  + text("<Right>", rstrip=True, normalized=True) + text("é", normalized=True) + text("whole", single_word=True, **AROUND)),
}
WORDS = ["hello", "the quick", "x", "don't", "123", "é", "e\u0301", "²", "你好", "_", "wholeword", "word", "whole", "#", "\u200d"]
SPACES = ["", "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\r\n", "\t\t", " \n ", "\u00a0", "\u3000"]


def texts(names):
    chance = random.Random(len(names))
    chosen = [f"{space}{name}{space}a" for name in names for space in (" ", "\n", "\t \n")]
    while len(chosen) < 160:
        parts = [chance.choice(SPACES)]
        for _ in range(chance.randint(1, 6)):
            parts += [chance.choice(names if chance.random() < 0.5 else WORDS), chance.choice(SPACES)]
        chosen.append("".join(parts))
    return chosen


recorded = {}
for family, (kind, changed, added) in FAMILIES.items():
    file = json.loads((here / f"{kind}.json").read_text())["tokenizer"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    vocab = file["model"]["vocab"]
    ids = iter(range(1 + max(*vocab.values(), *(token["id"] for token in file["added_tokens"])), 1 << 20))
    tokens = [{**token, **changed.get(token["content"], {})} for token in file["added_tokens"]]
    # One that the vocabulary has keeps its id there.
    tokens += [{"id": vocab[token["content"]] if token["content"] in vocab else next(ids), **flags, **token} for token in added]
    file["added_tokens"] = tokens
    tokenizer = Tokenizer.from_str(json.dumps(file))
    assert all(tokenizer.token_to_id(token["content"]) == token["id"] for token in tokens), family
    corpus = texts([token["content"] for token in tokens])
    ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in corpus]
    recorded[family] = {"kind": kind, "added_tokens": tokens, "texts": corpus, "ids": ids}
lines = ",\n".join(f"{json.dumps(family)}: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}" for family, value in recorded.items())
(here / "added.json").write_text("{\n" + lines + "\n}\n")
