#!/usr/bin/env python3
"""Runs one peer for compare.py: one JSON request a line on standard input, one JSON reply a line on standard output.

usage: peer_worker.py ENGINE WHERE VARIANT MODEL THREADS CONTEXT [DRAFT-MODEL]

ENGINE is a module of this folder, engine_llama_cpp or engine_ik_llama_cpp, which says what WHERE and VARIANT are. The C
interface is used so that a peer pays for nothing but its own work: logits only of the rows that are looked at, the greedy
choice by one vectorised search, no copy of logits. Times in ms.
"""

import ctypes
import importlib
import json
import sys
import time

import numpy

BATCH = 512
# Threads of the peers go on polling for a moment after a forward; the next arm must not meet them.
SETTLE_S = 0.1


def as_array(pointer, kind, count):
    return numpy.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(kind)), (count,))


class Worker:
    """One model with a context of each kind of attention, and the worker of a drafter model if there is one."""

    def __init__(self, engine, model, threads, capacity, draft=None):
        self.engine, self.api, self.capacity, self.model = engine, engine.api, capacity, engine.load(model)
        self.draft = Worker(engine, draft, threads, capacity) if draft else None
        self.vocab = self.api.llama_model_get_vocab(self.model)
        self.vocabulary = self.api.llama_vocab_n_tokens(self.vocab)
        self.contexts = {}
        for flash in ("off", "on"):
            self.contexts[flash] = engine.context(self.model, flash == "on", threads, capacity, BATCH)
            if not self.contexts[flash]:
                raise RuntimeError(f"no context of {capacity} tokens can be opened with flash attention {flash}")
        # Ids in the cache of each context that `decode` filled it with.
        self.held = {flash: None for flash in self.contexts}
        self.batch = self.api.llama_batch_init(BATCH, 0, 1)
        self.token = as_array(self.batch.token, ctypes.c_int32, BATCH)
        self.position = as_array(self.batch.pos, ctypes.c_int32, BATCH)
        self.wanted = as_array(self.batch.logits, ctypes.c_int8, BATCH)
        as_array(self.batch.n_seq_id, ctypes.c_int32, BATCH)[:] = 1
        for row in ctypes.cast(self.batch.seq_id, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))[:BATCH]:
            row[0] = 0

    def about(self):
        text = ctypes.create_string_buffer(256)
        self.api.llama_model_desc(self.model, text, len(text))
        return {
            "version": self.engine.version,
            "system": self.api.llama_print_system_info().decode(),
            "model": text.value.decode(),
            "parameters": self.api.llama_model_n_params(self.model),
            "bytes": self.api.llama_model_size(self.model),
        }

    def use(self, flash):
        self.flash, self.current = flash, self.contexts[flash]
        if self.draft:
            self.draft.use(flash)

    def forget(self, position):
        """Drops the cache from `position` on."""
        if not self.engine.forget(self.current, position):
            raise RuntimeError(f"the cache cannot be dropped from position {position} on")

    def back_to(self, tokens):
        """Leaves `tokens` in the cache, with which it begins; a peer's states of rows cannot go back, so they are made anew."""
        if not self.engine.forget(self.current, len(tokens)):
            self.prefill(tokens)
        self.held[self.flash] = tokens

    def forward(self, tokens, position, rows):
        """Logits `[rows, vocabulary]` of the last `rows` of `tokens`, which stand at `position` and after."""
        width = len(tokens)
        self.batch.n_tokens = width
        self.token[:width] = tokens
        self.position[:width] = range(position, position + width)
        self.wanted[: width - rows] = 0
        self.wanted[width - rows : width] = 1
        code = self.api.llama_decode(self.current, self.batch)
        if code:
            raise RuntimeError(f"llama_decode of {width} rows at position {position} returned {code}")
        # Waits for the forward to end; a cast pointer, nothing is copied.
        return numpy.ctypeslib.as_array(self.api.llama_get_logits(self.current), (rows, self.vocabulary))

    def prefill(self, prompt):
        """Logits of the last token of `prompt`, alone in the cache."""
        self.held[self.flash] = None
        self.forget(0)
        for start in range(0, len(prompt), BATCH):
            part = prompt[start : start + BATCH]
            logits = self.forward(part, start, 1)
        return logits[0]

    def answer(self, request):
        """A greedy answer to the end of text or `tokens` tokens; `lookup` drafts with the engine's prompt lookup, `draft` by a model."""
        prompt, most = request["prompt"], request["tokens"]
        if len(prompt) + most > self.capacity:
            raise RuntimeError(
                f"{len(prompt)} prompt tokens and {most} more do not fit a context of {self.capacity}: ask for a longer --context"
            )
        lookup = request.get("lookup")
        drafter = lookup and self.engine.lookup(**lookup)
        if request.get("draft"):
            drafter = ModelDrafter(self.draft, **request["draft"])
        history = numpy.empty(len(prompt) + most, dtype=numpy.intc)
        history[: len(prompt)] = prompt
        start = time.perf_counter()
        token = int(self.prefill(prompt).argmax())
        if request.get("draft"):
            drafter.begin(prompt)
        first = time.perf_counter()
        history[len(prompt)] = token
        length, steps, drafted = len(prompt) + 1, 0, 0
        ended = self.api.llama_vocab_is_eog(self.vocab, token)
        while not ended and length < len(history):
            draft = drafter(history[:length])[: len(history) - length - 1] if drafter else ()
            logits = self.forward([token, *draft], length - 1, len(draft) + 1)
            cached, steps, drafted = length + len(draft), steps + 1, drafted + len(draft)
            for row in range(len(draft) + 1):
                token = int(logits[row].argmax())
                history[length] = token
                length += 1
                ended = self.api.llama_vocab_is_eog(self.vocab, token)
                if ended or row == len(draft) or draft[row] != token:
                    break
            if length - 1 < cached:
                self.forget(length - 1)
        end = time.perf_counter()
        count = length - len(prompt)
        return {
            "tokens": count,
            "steps": steps,
            "drafted": drafted,
            "ttft_ms": (first - start) * 1e3,
            "tpot_ms": (end - first) * 1e3 / (count - 1) if count > 1 else None,
            "total_ms": (end - start) * 1e3,
            "token_ids": history[len(prompt) : length].tolist(),
        }

    def decode(self, request):
        """Time per token of `tokens` greedy tokens behind `prompt`, which stays in the cache for the next such request."""
        prompt, most = request["prompt"], request["tokens"]
        if self.held[self.flash] != prompt:
            self.prefill(prompt)
            self.held[self.flash] = prompt
        token, start = prompt[-1], time.perf_counter()
        for place in range(most):
            token = int(self.forward([token], len(prompt) + place, 1)[0].argmax())
        end = time.perf_counter()
        self.back_to(prompt)
        return {"tokens": most, "tpot_ms": (end - start) * 1e3 / most}

    def width(self, request):
        """Times of forwards over `width` rows after `depth` tokens, logits for every row; the first is not counted."""
        depth, width, tokens = request["depth"], request["width"], request["ids"]
        if self.held[self.flash] != tokens[:depth]:
            self.prefill(tokens[:depth])
            self.held[self.flash] = tokens[:depth]
        rows, times = tokens[depth : depth + width], []
        for _ in range(request["forwards"] + 1):
            start = time.perf_counter()
            self.forward(rows, depth, width)
            times.append((time.perf_counter() - start) * 1e3)
            self.back_to(tokens[:depth])
        return {"forward_ms": times[1:]}


class ModelDrafter:
    """Greedy tokens of a drafter model: at most `predicted`, none behind one that it holds less probable than `least`."""

    def __init__(self, worker, predicted, least):
        self.worker, self.predicted, self.least = worker, predicted, least

    def begin(self, prompt):
        """Reads the prompt, which counts as a part of prefill, as it does for yggc."""
        self.worker.prefill(prompt)
        self.held = list(prompt)

    def __call__(self, history):
        ids = history.tolist()
        same = next((place for place, (a, b) in enumerate(zip(self.held, ids)) if a != b), min(len(self.held), len(ids)))
        keep = min(same, len(ids) - 1)
        self.worker.forget(keep)
        logits, draft = self.worker.forward(ids[keep:], keep, 1)[0], []
        while True:
            token = int(logits.argmax())
            if self.least and 1 / numpy.exp(logits - logits[token]).sum() < self.least:
                break
            draft.append(token)
            if len(draft) == self.predicted:
                break
            logits = self.worker.forward([token], len(ids) + len(draft) - 1, 1)[0]
        self.held = ids + draft[:-1]
        return draft


def main():
    if len(sys.argv) not in (7, 8):
        sys.exit(__doc__)
    name, where, variant, model, threads, capacity, *draft = sys.argv[1:]

    def reply(answer):
        print(json.dumps(answer), flush=True)

    try:
        engine = importlib.import_module(name).Engine(where, variant, int(threads))
        worker = Worker(engine, model, int(threads), int(capacity), *draft)
        engine.pause()
        requests = {"answer": worker.answer, "decode": worker.decode, "width": worker.width}
        reply(worker.about())
        for line in sys.stdin:
            request = json.loads(line)
            worker.use(request["flash"])
            engine.resume()
            answer = requests[request["do"]](request)
            engine.pause()
            time.sleep(SETTLE_S)
            reply(answer)
    except RuntimeError as error:
        reply({"error": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
