"""Yggdrasil: exactly lossless speculative decoding of one request at a time, planned for the machine it runs on.

    import yggc

    engine = yggc.Engine("model.gguf", plan="here.plan")
    for token in engine.chat("Name five rivers."):
        print(token.text, end="", flush=True)

An engine answers one request at a time; a process may have several. Its tokens are those of plain decoding, whatever the plan. Every
call that waits lets other threads of Python run.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._native import BusyError, DeviceError, InputError, InternalError, __version__

if TYPE_CHECKING:
    import numpy

__all__ = [
    "Answer", "BusyError", "DeviceError", "Engine", "Generation", "InputError", "InternalError", "Option", "Report", "Token", "__version__",
    "autoplan",
]

Path = str | os.PathLike[str]
Messages = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and the text that is sure with it: nothing in the middle of a character or while a stop string may have begun."""

    id: int
    text: str
    log_prob: float | None
    """Its log-probability before temperature and filters, if the request asked for any."""
    best: list[tuple[int, float]]
    """The most probable tokens in its place with theirs, as many as the request asked for."""


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers of a request."""

    tokens: int
    reused_tokens: int
    """Tokens of the prompt that the engine still knew of its request before."""
    steps: int
    drafted: int
    accepted: int
    tokens_per_step: float | None
    tokens_per_second: float | None
    ms_per_token: float | None
    ms_to_first_token: float
    drafter: str
    plan: str | None
    predicted_speedup: float | None
    no_speculation_because: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    token_ids: list[int]
    prompt_token_ids: list[int]
    finish_reason: Literal["stop", "length", "cancelled"]
    report: Report


@dataclass(frozen=True, slots=True)
class Option:
    """What :meth:`Engine.choose` found about a text that may follow."""

    token_ids: list[int]
    log_probs: list[float]
    """Of each of its tokens, after the prompt and those before."""
    log_prob: float
    """The sum of them."""
    probability: float
    """Its share among the options."""
    is_admitted: bool
    """Whether the constraint takes it; its probability is 0 otherwise."""


class Generation:
    """A request that runs: an iterator of tokens, and an asynchronous one. It runs on a thread of its own, ahead of whoever reads it.

    The engine is free again when the last token was read, or after :meth:`close`, which leaving a ``with`` block calls, and the end of its life.
    """

    def __init__(self, native: _native.Generation) -> None:
        self._native = native
        self._text: list[str] = []
        self._ids: list[int] = []

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        token = self._take()
        if token is None:
            raise StopIteration
        return token

    def __aiter__(self) -> AsyncIterator[Token]:
        return self

    async def __anext__(self) -> Token:
        try:
            token = await asyncio.to_thread(self._take)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if token is None:
            raise StopAsyncIteration
        return token

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Token | None:
        found = self._native.next()
        if found is None:
            return None
        token_id, text, log_probs = found
        self._ids.append(token_id)
        self._text.append(text)
        log_prob, best = log_probs or (None, [])
        return Token(token_id, text, log_prob, best)

    def answer(self) -> Answer:
        """Reads the rest and returns the whole answer, what was read before included."""
        for _ in self:
            pass
        end = self._native.finished()
        if end is None:
            raise InputError("the generation was closed before its end: expected one that is read to its end")
        reason, rest, numbers = end
        return Answer("".join(self._text) + rest, list(self._ids), self._native.prompt_token_ids, reason, Report(**numbers))

    async def answer_async(self) -> Answer:
        """As :meth:`answer`, without blocking the event loop."""
        try:
            return await asyncio.to_thread(self.answer)
        except asyncio.CancelledError:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends the request within a step; its tokens so far can be read. Any thread may call it."""
        self._native.cancel()

    def close(self) -> None:
        """Ends the request and waits, for a step at most, until the engine is free."""
        self._native.close()


class Engine:
    """A model with its plan, ready for one request at a time.

    :param model: a ``.gguf`` file, or a folder with ``config.json``, ``*.safetensors`` and ``tokenizer.json``.
    :param plan: a plan of :func:`autoplan` or ``python -m yggc plan``; without one it decodes plainly.
    :param force_plan: use the plan even if it was made for another machine, model or build.
    :param drafter: a drafter that the plan measured, which then drafts at every step; ``"none"`` decodes plainly.
    :param draft_model: path of the plan's drafter model, if it has moved; ``store`` likewise for a corpus store.
    :param device: ``"cpu"`` or ``"cuda"``.
    :param isa: instruction set of the CPU kernels; the fastest that this CPU has if left out.
    :param activations: ``"int8"`` or ``"native"``, a numeric class of its own.
    :param cache: element type of the key/value cache, ``"f16"`` or ``"q8"``, a numeric class of its own, too.
    :param threads: worker threads; one per processor that the process may use if left out.
    :param context: most tokens of prompt and answer together; 4096, or the model's limit if that is lower, if left out.
    :param read_widths: rows of forwards of :meth:`choose` in addition to those of the plan, such as ``(4, 8, 16)``, the widest for memory of
        so many rows of logits; without a plan one row at a time, if left out. The numbers are the same.
    :param memory_limit: most bytes of the host's memory for weights and session together; on a GPU for streamed weights.
    :param resident: most bytes of weights in memory, of the GPU with ``device="cuda"``; the others are read by every forward: from disk, which needs
        ``packed_folder``, or for a GPU from memory of the host. What the plan is for, if left out; without a plan all are in memory.
    :param packed_folder: folder in which packed weights are kept for the next start.
    :raises InputError: for a model, a plan or an option that cannot be used.
    :raises DeviceError: for a device that is missing or has no room.
    """

    def __init__(
        self,
        model: Path,
        *,
        plan: Path | None = None,
        force_plan: bool = False,
        drafter: str | None = None,
        draft_model: Path | None = None,
        store: Path | None = None,
        device: str = "cpu",
        isa: str | None = None,
        activations: str | None = None,
        cache: str = "f16",
        threads: int | None = None,
        context: int | None = None,
        read_widths: Sequence[int] = (),
        memory_limit: int | None = None,
        resident: int | None = None,
        packed_folder: Path | None = None,
    ) -> None:
        self._native = _native.Engine(model, {
            "plan": plan, "force_plan": force_plan, "drafter": drafter, "draft_model": draft_model, "store": store, "device": device,
            "isa": isa, "activations": activations, "cache": cache, "threads": threads, "context": context,
            "read_widths": list(read_widths), "memory_limit": memory_limit, "resident": resident, "packed_folder": packed_folder,
        })

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        log_probs: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        repetition_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        speculation: bool = True,
        reuse: bool = True,
        json_schema: Mapping[str, Any] | bool | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> Generation:
        """Begins to continue a text as it is, or token ids.

        :param temperature: 0 takes the most probable token; above, the same ``seed`` draws the same answer.
        :param stop: strings that end the text; none is part of it.
        :param log_probs: how many other tokens each token comes with, and their log-probabilities; 0 for its own alone.
        :param speculation: whether it drafts; its tokens are the same.
        :param reuse: whether it keeps what it can of the request before; its tokens are the same.
        :param json_schema: a schema that the answer fits, or ``True`` for any JSON object.
        :param regex: an expression that the whole answer matches.
        :param grammar: a grammar in Lark's form that the whole answer fits. At most one of the three; an answer that reaches
            ``max_tokens`` is cut off before it is whole.
        :raises BusyError: if the engine answers another request.
        :raises InputError: for a prompt that does not fit, or a number out of range.
        """
        return Generation(self._native.generate(
            prompt if isinstance(prompt, str) else list(prompt),
            _request(max_tokens, temperature, top_k, top_p, min_p, seed, stop, log_probs, logit_bias, repetition_penalty,
                     frequency_penalty, presence_penalty, speculation, reuse, _constraint(json_schema, regex, grammar)),
        ))

    def chat(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_variables: Mapping[str, Any] | None = None,
        max_tokens: int = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        log_probs: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        repetition_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        speculation: bool = True,
        reuse: bool = True,
        json_schema: Mapping[str, Any] | bool | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> Generation:
        """Begins to answer a conversation, laid out by the model's chat template. A text alone is what a user says.

        :param messages: objects with ``role`` and ``content``, and what else the template reads.
        :param tools: definitions of tools, for templates that show them.
        :param template_variables: further variables of the template, such as ``{"enable_thinking": False}``.

        The other parameters are those of :meth:`generate`.
        """
        return Generation(self._native.chat(
            *_conversation(messages, tools, template_variables),
            _request(max_tokens, temperature, top_k, top_p, min_p, seed, stop, log_probs, logit_bias, repetition_penalty,
                     frequency_penalty, presence_penalty, speculation, reuse, _constraint(json_schema, regex, grammar)),
        ))

    def choose(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        options: Sequence[str | Sequence[int]],
        *,
        normalize: Literal["none", "length"] = "none",
        tools: Sequence[Mapping[str, Any]] = (),
        template_variables: Mapping[str, Any] | None = None,
        reuse: bool = True,
        json_schema: Mapping[str, Any] | bool | None = None,
        regex: str | None = None,
        grammar: str | None = None,
    ) -> list[Option]:
        """How probable each of some given texts is after a prompt, in their order: exact, and the prompt is run once.

        :param prompt: a text or token ids as :meth:`generate` reads them, or the messages of a conversation as :meth:`chat` does.
        :param options: texts or token ids, all different. A text is encoded apart from the prompt: after a raw one it begins with the space
            between both. After a conversation it begins the answer.
        :param normalize: whether a probability is made of the option's whole log-probability, or of the mean over its tokens.
        :param json_schema: as in :meth:`generate`; options that cannot begin such an answer have probability 0. So with ``regex`` and ``grammar``.
        :raises BusyError: if the engine answers another request.
        :raises InputError: for an option that is empty, there twice or too long, or for a constraint that takes none.
        """
        given = {
            "options": [option if isinstance(option, str) else list(option) for option in options], "normalize": normalize,
            "reuse": reuse, "constraint": _constraint(json_schema, regex, grammar),
        }
        if isinstance(prompt, str):
            found = self._native.choose(prompt, None, given)
        elif any(isinstance(part, Mapping) for part in prompt):
            found = self._native.choose(None, _conversation(prompt, tools, template_variables), given)
        else:
            found = self._native.choose(list(prompt), None, given)
        return [Option(*option) for option in found]

    def encode(self, text: str, *, special: bool = False, prompt: bool = False) -> list[int]:
        """Token ids of a text: control tokens in it are plain characters, or with ``special`` themselves; with ``prompt`` as
        :meth:`generate` reads it."""
        return self._native.encode(text, prompt, special)

    def encode_chat(
        self,
        messages: Messages,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_variables: Mapping[str, Any] | None = None,
        generation_prompt: bool = True,
    ) -> list[int]:
        """Token ids of a conversation, laid out by the model's chat template."""
        return self._native.encode_chat(*_conversation(messages, tools, template_variables), generation_prompt)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of token ids."""
        return self._native.decode(list(token_ids))

    def logits(self, token_ids: Iterable[int]) -> numpy.ndarray:
        """The model's logits after every token, float32 ``[len(token_ids), vocabulary]``, by one prefill. Needs numpy."""
        import numpy

        ids = list(token_ids)
        return numpy.frombuffer(self._native.logits(ids), dtype=numpy.float32).reshape(len(ids), self.vocabulary)

    def forget(self) -> None:
        """Forgets the text of the last request: the next one runs its whole prompt."""
        self._native.forget()

    def close(self) -> None:
        """Frees the engine's memory; an engine that answers is freed at the end of its request."""
        self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def context(self) -> int:
        """Most tokens of prompt and answer together."""
        return self._native.context

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self._native.vocabulary

    @property
    def end_ids(self) -> list[int]:
        """Tokens that end an answer."""
        return self._native.end_ids

    @property
    def threads(self) -> int:
        """Worker threads."""
        return self._native.threads

    @property
    def isa(self) -> str:
        """The instruction set of its kernels."""
        return self._native.isa


def autoplan(
    model: Path,
    plan: Path,
    *,
    budget: float = 55.0,
    threads: int | None = None,
    draft_models: Sequence[Path] = (),
    packed_folder: Path | None = None,
) -> None:
    """Measures the drafters on this machine for about ``budget`` seconds and writes the fastest plan to the file ``plan``. Other work on the
    machine spoils what it measures. It is for engines with the same ``threads`` and defaults otherwise; ``python -m yggc profile`` and
    ``plan`` can do more."""
    _native.autoplan(model, plan, budget, threads, list(draft_models), packed_folder)


def _request(
    max_tokens: int, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, stop: str | Sequence[str],
    log_probs: int | None, logit_bias: Mapping[int, float] | None, repetition_penalty: float, frequency_penalty: float,
    presence_penalty: float, speculation: bool, reuse: bool, constraint: tuple[str, str] | None,
) -> dict[str, Any]:
    return {
        "max_tokens": max_tokens, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed,
        "stop": [stop] if isinstance(stop, str) else list(stop), "log_probs": log_probs,
        "logit_bias": list((logit_bias or {}).items()), "repetition_penalty": repetition_penalty,
        "frequency_penalty": frequency_penalty, "presence_penalty": presence_penalty, "speculation": speculation, "reuse": reuse,
        "constraint": constraint,
    }


def _constraint(
    json_schema: Mapping[str, Any] | bool | None, regex: str | None, grammar: str | None,
) -> tuple[str, str] | None:
    asked = []
    if json_schema is True:
        asked.append(("json_object", ""))
    elif isinstance(json_schema, Mapping):
        asked.append(("json_schema", json.dumps(json_schema)))
    elif json_schema is not None:
        raise InputError(f"json_schema: expected a schema as a mapping, or True for any object, found {json_schema!r}")
    if regex is not None:
        asked.append(("regex", regex))
    if grammar is not None:
        asked.append(("grammar", grammar))
    if len(asked) > 1:
        raise InputError("json_schema, regex and grammar: expected one of them, found more; join them in one grammar")
    return asked[0] if asked else None


def _conversation(
    messages: Messages, tools: Sequence[Mapping[str, Any]], variables: Mapping[str, Any] | None,
) -> tuple[str, str, str]:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return json.dumps(list(messages)), json.dumps(list(tools)), json.dumps(variables or {})
