#!/usr/bin/env python3
"""Runs llama.cpp for compare.py: one JSON request a line on standard input, one JSON reply a line on standard output.

usage: LLAMA_CPP_LIB_PATH=DIR/lib/openmp DIR/venv/bin/python llama_worker.py MODEL THREADS CONTEXT

The low-level API is used so that llama.cpp pays for nothing but its own work: logits only of the rows that are looked at,
the greedy choice by one vectorised search, no copy of logits, threads that stay alive between forwards. Times in ms.
"""

import ctypes
import json
import os
import pathlib
import sys
import time

import llama_cpp
import numpy
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

BATCH = 512
# Threads of llama.cpp go on polling for a moment after a forward; the next arm must not meet them.
SETTLE_S = 0.1


class ThreadpoolParams(ctypes.Structure):
    """ggml_threadpool_params of ggml.h; GGML_MAX_N_THREADS is 512."""

    _fields_ = [
        ("cpumask", ctypes.c_bool * 512),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    ]


def loaded(name):
    """The library `name` that llama_cpp loaded; a wheel holds each under three names, and a second copy has its own state."""
    files = {
        line.split()[-1]
        for line in open("/proc/self/maps")
        if pathlib.Path(line.split()[-1]).name.startswith(f"{name}.so")
    }
    if len(files) != 1:
        raise RuntimeError(f"expected {name} to be loaded from one file, found {sorted(files)}: rebuild with build.sh")
    return ctypes.CDLL(files.pop())


class Threadpool:
    """Threads that live as long as the process, as llama.cpp's own programs make them."""

    def __init__(self, threads):
        self.cpu, self.llama = loaded("libggml-cpu"), loaded("libllama")
        params = ThreadpoolParams()
        init = loaded("libggml-base").ggml_threadpool_params_init
        init.argtypes, init.restype = [ctypes.POINTER(ThreadpoolParams), ctypes.c_int], None
        init(ctypes.byref(params), threads)
        self.cpu.ggml_threadpool_new.argtypes = [ctypes.POINTER(ThreadpoolParams)]
        self.cpu.ggml_threadpool_new.restype = ctypes.c_void_p
        self.pool = ctypes.c_void_p(self.cpu.ggml_threadpool_new(ctypes.byref(params)))
        if not self.pool:
            raise RuntimeError(f"ggml_threadpool_new made no pool of {threads} threads")

        for switch in (self.cpu.ggml_threadpool_pause, self.cpu.ggml_threadpool_resume):
            switch.argtypes, switch.restype = [ctypes.c_void_p], None

    def attach(self, context):
        attach = self.llama.llama_attach_threadpool
        attach.argtypes, attach.restype = [ctypes.c_void_p] * 3, None
        attach(context, self.pool, self.pool)

    def pause(self):
        self.cpu.ggml_threadpool_pause(self.pool)

    def resume(self):
        self.cpu.ggml_threadpool_resume(self.pool)


class Llama:
    """One model with a context of each kind of attention."""

    def __init__(self, model, threads, context):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(model), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load the model {model}: expected a GGUF file that it supports")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.capacity = context
        self.pool = Threadpool(threads)
        self.contexts = {flash: self.context(flash, threads) for flash in ("off", "on")}
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        as_array = numpy.ctypeslib.as_array
        self.token = as_array(self.batch.token, (BATCH,))
        self.position = as_array(self.batch.pos, (BATCH,))
        self.wanted = as_array(self.batch.logits, (BATCH,))
        as_array(self.batch.n_seq_id, (BATCH,))[:] = 1
        for row in range(BATCH):
            self.batch.seq_id[row][0] = 0
        self.use("off")

    def context(self, flash, threads):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = self.capacity, BATCH, BATCH, 1
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = (
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash == "on" else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.no_perf = True
        context = llama_cpp.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError(f"llama.cpp opens no context of {self.capacity} tokens with flash attention {flash}")
        self.pool.attach(context)
        return context

    def use(self, flash):
        self.current = self.contexts[flash]
        self.memory = llama_cpp.llama_get_memory(self.current)

    def forget(self, position):
        """Drops the cache from `position` on."""
        if not llama_cpp.llama_memory_seq_rm(self.memory, 0, position, -1):
            raise RuntimeError(f"llama.cpp cannot drop its cache from position {position} on")

    def forward(self, tokens, position, rows):
        """Logits `[rows, vocabulary]` of the last `rows` of `tokens`, which stand at `position` and after."""
        width = len(tokens)
        self.batch.n_tokens = width
        self.token[:width] = tokens
        self.position[:width] = range(position, position + width)
        self.wanted[: width - rows] = 0
        self.wanted[width - rows : width] = 1
        code = llama_cpp.llama_decode(self.current, self.batch)
        if code:
            raise RuntimeError(f"llama_decode of {width} rows at position {position} returned {code}")
        # Waits for the forward to end; a cast pointer, nothing is copied.
        return numpy.ctypeslib.as_array(llama_cpp.llama_get_logits(self.current), (rows, self.vocabulary))

    def prefill(self, prompt):
        """Logits of the last token of `prompt`, alone in the cache."""
        self.forget(0)
        for start in range(0, len(prompt), BATCH):
            part = prompt[start : start + BATCH]
            logits = self.forward(part, start, 1)
        return logits[0]

    def answer(self, request):
        """A greedy answer to the end of text or `tokens` tokens; `lookup` drafts with llama-cpp-python's prompt lookup."""
        prompt, most = request["prompt"], request["tokens"]
        if len(prompt) + most > self.capacity:
            raise RuntimeError(
                f"{len(prompt)} prompt tokens and {most} more do not fit a context of {self.capacity}: ask for a longer --context"
            )
        lookup = request.get("lookup")
        drafter = lookup and LlamaPromptLookupDecoding(
            max_ngram_size=lookup["ngram"], num_pred_tokens=lookup["predicted"]
        )
        history = numpy.empty(len(prompt) + most, dtype=numpy.intc)
        history[: len(prompt)] = prompt
        start = time.perf_counter()
        token = int(self.prefill(prompt).argmax())
        first = time.perf_counter()
        history[len(prompt)] = token
        length, steps, drafted = len(prompt) + 1, 0, 0
        ended = llama_cpp.llama_vocab_is_eog(self.vocab, token)
        while not ended and length < len(history):
            draft = drafter(history[:length])[: len(history) - length - 1] if drafter else ()
            logits = self.forward([token, *draft], length - 1, len(draft) + 1)
            cached, steps, drafted = length + len(draft), steps + 1, drafted + len(draft)
            for row in range(len(draft) + 1):
                token = int(logits[row].argmax())
                history[length] = token
                length += 1
                ended = llama_cpp.llama_vocab_is_eog(self.vocab, token)
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

    def width(self, request):
        """Times of forwards over `width` rows after `depth` tokens, logits for every row; the first is not counted."""
        depth, width, tokens = request["depth"], request["width"], request["ids"]
        self.prefill(tokens[:depth])
        rows, times = tokens[depth : depth + width], []
        for _ in range(request["forwards"] + 1):
            start = time.perf_counter()
            self.forward(rows, depth, width)
            times.append((time.perf_counter() - start) * 1e3)
            self.forget(depth)
        return {"forward_ms": times[1:]}


@llama_cpp.llama_log_callback
def log(level, text, _):
    if level in (3, 4):  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR
        sys.stderr.buffer.write(text)
        sys.stderr.flush()


def main():
    if len(sys.argv) != 4 or "LLAMA_CPP_LIB_PATH" not in os.environ:
        sys.exit(__doc__)
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()

    def reply(answer):
        print(json.dumps(answer), flush=True)

    try:
        llama = Llama(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        llama.pool.pause()
        requests = {"answer": llama.answer, "width": llama.width}
        reply({"version": llama_cpp.__version__, "system": llama_cpp.llama_print_system_info().decode()})
        for line in sys.stdin:
            request = json.loads(line)
            llama.use(request["flash"])
            llama.pool.resume()
            answer = requests[request["do"]](request)
            llama.pool.pause()
            time.sleep(SETTLE_S)
            reply(answer)
    except RuntimeError as error:
        reply({"error": str(error)})
        sys.exit(1)


if __name__ == "__main__":
    main()
