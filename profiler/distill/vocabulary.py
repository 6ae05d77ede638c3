"""Text to token ids and back, and the chat template, as the model's files describe them."""

import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from .refusal import Refusal, require

_END_NAMES = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>", "<|end_of_turn|>", "</s>")
_CONTROL, _UNKNOWN, _USER_DEFINED = 3, 2, 4
_MARK = "\ue000"


class Vocabulary:
    """A tokenizer with its template. `size` counts ids that have a text."""

    def __init__(self, tokenizer: Tokenizer, template: str, end_ids: set[int], bos: str, eos: str):
        self.tokenizer = tokenizer
        self.template = template
        self.size = tokenizer.get_vocab_size()
        self.end_ids = sorted(end_ids | {id for name in _END_NAMES if (id := tokenizer.token_to_id(name)) is not None})
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.globals["raise_exception"] = _raise
        self._template = environment.from_string(template)
        self._names = {"bos_token": bos, "eos_token": eos}

    def encode(self, text: str) -> list[int]:
        """Token ids of a text in which control tokens are recognised."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """The text of ids; control tokens say nothing."""
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def chat(self, turns: list[str]) -> list[int]:
        """A conversation that begins with the user and ends where the model is to answer."""
        return self.encode(self._render(turns, True))

    def opened_turn(self) -> list[int]:
        """A conversation up to where the user's first words would be."""
        return self.encode(self._render([_MARK], True).split(_MARK)[0])

    def save(self, folder: Path) -> None:
        """Writes tokenizer.json and tokenizer_config.json."""
        self.tokenizer.save(str(folder / "tokenizer.json"))
        names = {name: text for name, text in self._names.items() if text}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": self.template, **names}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    def _render(self, turns: list[str], answer: bool) -> str:
        roles = ("user", "assistant")
        messages = [{"role": roles[number % 2], "content": turn} for number, turn in enumerate(turns)]
        try:
            return self._template.render(messages=messages, add_generation_prompt=answer, tools=None, documents=None, **self._names)
        except TemplateError as error:
            raise Refusal(f"the model's chat template fails: {error}; expected one that takes turns of user and assistant") from error

    @classmethod
    def from_folder(cls, folder: Path) -> "Vocabulary":
        """Out of tokenizer.json and tokenizer_config.json."""
        from .checkpoint import read_json

        file = folder / "tokenizer.json"
        require(file.is_file(), f"`{folder}` has no tokenizer.json; expected the verifier's tokenizer there")
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more precise
            raise Refusal(f"`{file}` is no tokenizer: {error}") from error
        config = read_json(folder / "tokenizer_config.json")
        separate = folder / "chat_template.jinja"
        template = separate.read_text(encoding="utf-8") if separate.is_file() else config.get("chat_template")
        require(isinstance(template, str), f"`{folder}` has no chat template; expected one: the corpus is made of chat turns")

        def name(key: str) -> str:
            found = config.get(key) or ""
            return found.get("content", "") if isinstance(found, dict) else found

        eos = tokenizer.token_to_id(name("eos_token"))
        return cls(tokenizer, template, set() if eos is None else {eos}, name("bos_token"), name("eos_token"))

    @classmethod
    def from_gguf(cls, value, path: Path) -> "Vocabulary":
        """Out of `tokenizer.ggml.*`; `value(key, default)` reads a file's metadata."""
        kind, rule = value("tokenizer.ggml.model"), value("tokenizer.ggml.pre", "gpt-2")
        require(kind == "gpt2", f"`{path}` has a tokenizer `{kind}`; expected `gpt2`, byte-level BPE")
        tokens, kinds = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
        merges = [tuple(merge.split(" ", 1)) for merge in value("tokenizer.ggml.merges")]
        normalizer, before, ignore_merges = _rules(rule, path)
        model = models.BPE({text: id for id, text in enumerate(tokens)}, merges, ignore_merges=ignore_merges)
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = before
        tokenizer.decoder = decoders.ByteLevel()
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        added = [AddedToken(text, normalized=False, special=kind != _USER_DEFINED)
                 for text, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _UNKNOWN, _USER_DEFINED)]
        tokenizer.add_special_tokens([token for token in added if token.special])
        tokenizer.add_tokens([token for token in added if not token.special])

        def named(key: str) -> tuple[set[int], str]:
            id = value(key, -1)
            return (set(), "") if id < 0 else ({id}, tokens[id])

        end_ids, eos = named("tokenizer.ggml.eos_token_id")
        return cls(tokenizer, value("tokenizer.chat_template"), end_ids, named("tokenizer.ggml.bos_token_id")[1], eos)


def _raise(message: str):
    raise TemplateError(message)


def _rules(name: str, path: Path):
    """Normaliser, pre-tokenizer, and whether a word that is a token is taken whole, of the rule that `tokenizer.ggml.pre` names."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name == "gpt-2":
        return None, words, False
    if name == "smollm":
        return None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), words]), False
    if name == "llama-bpe":
        return None, _case_blind(r"\p{N}{1,3}"), True
    if name == "qwen2":
        return normalizers.NFC(), _case_blind(r"\p{N}"), False
    raise Refusal(f"`{path}` cuts words as `{name}`; expected gpt-2, smollm, llama-bpe or qwen2")


def _case_blind(number: str):
    pattern = "|".join([
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?\p{L}+", number, r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
    ])
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
