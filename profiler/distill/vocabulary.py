"""Text to token ids and back, and the chat template, as the model's files describe them."""

import json
import re
from datetime import datetime
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from .refusal import Refusal, require

_END_NAMES = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>", "<|end_of_turn|>", "<end_of_turn>",
    "<｜end▁of▁sentence｜>", "<eos>", "</s>",
)
_MARK = "\ue000"


class Vocabulary:
    """A tokenizer with its template. `size` counts ids that have a text."""

    def __init__(self, tokenizer: Tokenizer, template: str, end_ids: set[int], bos: str, eos: str):
        self.tokenizer = tokenizer
        self.template = template
        self.size = tokenizer.get_vocab_size()
        self.end_ids = sorted(end_ids | {id for name in _END_NAMES if (id := tokenizer.token_to_id(name)) is not None})
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
        environment.globals |= {"raise_exception": _raise, "strftime_now": datetime.now().strftime}
        # Blocks that mark what a model is trained on only have a scope of their own.
        self._template = environment.from_string(re.sub(r"(\{%-?\s*)(end)?generation(\s*-?%\})", r"\1\2with\3", template))
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
        require(file.is_file(), f"`{folder}` has no tokenizer.json; expected the verifier's tokenizer there (of a GGUF file, give the folder by --tokenizer)")
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


def _raise(message: str):
    raise TemplateError(message)
