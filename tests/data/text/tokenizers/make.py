"""Trains a tiny tokenizer of every kind on corpus.json, which it makes too, and writes each as tokenizer.json and as GGUF metadata, with the
ids that the tokenizers library gives the corpus. Needs tokenizers 0.23."""
import json
import pathlib
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

here = pathlib.Path(__file__).parent
SPECIALS = ["<unk>", "<s>", "</s>", "<|im_end|>"]
TOOL = "<tool_call>"


def corpus():
    chance = random.Random(23)
    words = ("the quick brown fox jumps over lazy dogs def return self.value = None; for i in range(10): print('x') don't WE'LL it's "
             "Straße café naïve Привет мир γειά σου 你好 世界 日本語 カタカナ 한국어 مرحبا שלום नमस्ते ไทย ქართული ሰላም 123 4567 3.14 0xFF １２３ ² ½ "
             "🙂 👩‍👩‍👧 🇨🇭 e\u0301 ﬁ K helloWorld HTTPServer snake_case // /* <div> {} [] != => && #include ▁ Ġ \u200b \ufeff").split(" ")
    spaces = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "", "", " \n "]
    blocks = [(0x20, 0x7E), (0xA1, 0x24F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0xDFF), (0xE01, 0x10FF), (0x1200, 0x13FF), (0x1E00, 0x1FFF),
              (0x2010, 0x2BFF), (0x3041, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x10400, 0x1044F), (0x1F300, 0x1FAFF)]
    texts = ["", " ", "\n", "a", *SPECIALS, TOOL, "<|im_", "end|>"]
    while len(texts) < 2000:
        kind = len(texts) % 8
        if kind < 4:
            text = "".join(chance.choice(words) + chance.choice(spaces) for _ in range(chance.randint(1, 4)))
        elif kind < 6:
            low, high = chance.choice(blocks)
            characters = (chr(chance.randint(low, high)) for _ in range(chance.randint(1, 6)))
            text = chance.choice(spaces) + "".join(c for c in characters if unicodedata.category(c) not in ("Cn", "Cs", "Co"))
        elif kind == 6:
            text = chance.choice(words) + chance.choice(spaces) + chance.choice([*SPECIALS[1:], TOOL]) + chance.choice(spaces) + chance.choice(words)
        else:
            text = bytes(chance.randint(0, 255) for _ in range(chance.randint(1, 6))).decode("utf-8", errors="replace")
        texts.append(text)
    return texts


ENDINGS, SPACES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER, BEFORE = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"[^\r\n\p{L}\p{N}]?"
LLAMA3 = ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
TEKKEN = f"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*|" + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
GPT4O = f"{BEFORE}{UPPER}*{LOWER}+{ENDINGS}?|{BEFORE}{UPPER}+{LOWER}*{ENDINGS}?|" + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" + SPACES)
WORDS = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(*patterns):
    return [*(pre_tokenizers.Split(Regex(p), "isolated") for p in patterns), BYTES]


# name in GGUF: steps, whether words are taken whole, whether characters are composed
KINDS = {
    "gpt-2": ([WORDS], False, False),
    "smollm": ([DIGITS, WORDS], False, False),
    "llama-bpe": (split(LLAMA3), True, False),
    "lfm2": (split(LLAMA3), True, False),
    "dbrx": (split(LLAMA3), False, False),
    "qwen2": (split(LLAMA3.replace("{1,3}", "")), False, True),
    "tekken": (split(TEKKEN), True, False),
    "gpt-4o": (split(GPT4O), False, False),
    "deepseek-v3": (split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", V3), False, False),
    "deepseek-coder": ([*split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+")[:-1], DIGITS, BYTES], False, False),
}


def write(name, tokenizer, gguf, texts):
    file = json.loads(tokenizer.to_str())
    special = {t["content"]: t["special"] for t in file["added_tokens"]}
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    byte = lambda t: len(t) == 6 and t.startswith("<0x")
    kinds = [2 if t == "<unk>" else (3 if special[t] else 4) if t in special else 6 if byte(t) else 1 for t in tokens]
    metadata = {"tokenizer.ggml." + key: value for key, value in {"tokens": tokens, "token_type": kinds, "bos_token_id": 1, "eos_token_id": 2,
                "unknown_token_id": 0, **gguf}.items()}
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    text = json.dumps({"tokenizer": file, "gguf": metadata, "ids": ids}, ensure_ascii=False, separators=(",", ":"))
    (here / f"{name}.json").write_text(text + "\n")


def merges_of(tokenizer):
    return [m if isinstance(m, str) else " ".join(m) for m in json.loads(tokenizer.to_str())["model"]["merges"]]


def byte_level(name, texts):
    steps, whole, composes = KINDS[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole))
    tokenizer.normalizer = normalizers.NFC() if composes else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=460, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_tokens([AddedToken(TOOL, normalized=False, special=False)])
    write(name, tokenizer, {"model": "gpt2", "pre": name, "merges": merges_of(tokenizer), "add_bos_token": False}, texts)


def marks(name, texts, prefix):
    """SentencePiece's BPE: bytes for what has no piece, a score for every piece, merges made from the scores."""
    learner = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    learner.normalizer = normalizers.Replace(" ", "▁")
    learner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=420, limit_alphabet=200, special_tokens=SPECIALS, show_progress=False))
    learned = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    pieces = SPECIALS + [f"<0x{b:02X}>" for b in range(256)] + [t for t, _ in learned if t not in SPECIALS]
    if "▁" not in pieces:
        pieces.append("▁")
    ids = {piece: i for i, piece in enumerate(pieces)}
    first = len(SPECIALS) + 256
    scores = [0.0 if i < first else float(first - i) for i in range(len(pieces))]
    merges, parts = [], set(ids) - set(SPECIALS)
    for piece, score in zip(pieces[first:], scores[first:]):
        local = [(piece[:c], piece[c:]) for c in range(1, len(piece)) if piece[:c] in parts and piece[c:] in parts]
        merges += [(score, *m) for m in sorted(local, key=lambda m: (ids[m[0]], ids[m[1]]))]
    merges = sorted(merges, key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    tokenizer = Tokenizer(models.BPE(ids, [(l, r) for _, l, r in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIALS])
    tokenizer.add_tokens([AddedToken(TOOL, normalized=False, special=False)])
    scores += [0.0] * (tokenizer.get_vocab_size() - len(scores))
    write(name, tokenizer, {"model": "llama", "pre": "default", "scores": scores, "add_space_prefix": prefix, "add_bos_token": False}, texts)


def unigram(texts):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    known = [text for at, text in enumerate(texts) if at % 8 < 4]
    tokenizer.train_from_iterator(known, trainers.UnigramTrainer(vocab_size=500, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False))
    tokenizer.add_tokens([AddedToken(TOOL, normalized=False, special=False)])
    scores = [score for _, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    scores += [0.0] * (tokenizer.get_vocab_size() - len(scores))
    write("unigram", tokenizer, {"model": "t5", "scores": scores, "add_space_prefix": True, "add_bos_token": False}, texts)


texts = corpus()
(here / "corpus.json").write_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")) + "\n")
for name in KINDS:
    byte_level(name, texts)
marks("sentencepiece", texts, True)
marks("gemma", texts, False)
unigram(texts)
(here / "kinds.json").write_text(json.dumps([*KINDS, "sentencepiece", "gemma", "unigram"]) + "\n")
