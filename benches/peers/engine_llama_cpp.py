"""llama.cpp for peer_worker.py: WHERE is the folder of its libraries, VARIANT the kind of threads they were built with,
and `+mapped` if weights stay in the mapped file instead of being packed anew in memory."""

import ctypes
import os
import pathlib
import sys

# The package finds its libraries when it is imported.
os.environ["LLAMA_CPP_LIB_PATH"] = sys.argv[2]
import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding


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


class Engine:
    api = llama_cpp
    version = llama_cpp.__version__

    def __init__(self, _where, variant, threads):
        self.packs = not variant.endswith("+mapped")
        llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.pool = Threadpool(threads)

    def load(self, model):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = self.packs
        loaded = llama_cpp.llama_model_load_from_file(os.fsencode(model), params)
        if not loaded:
            raise RuntimeError(f"llama.cpp cannot load the model {model}: expected a GGUF file that it supports")
        return loaded

    def context(self, model, flash, threads, capacity, batch):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = capacity, batch, batch, 1
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = (
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        params.no_perf = True
        context = llama_cpp.llama_init_from_model(model, params)
        if context:
            self.pool.attach(context)
        return context

    def forget(self, context, position):
        return llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context), 0, position, -1)

    def lookup(self, ngram, predicted):
        return LlamaPromptLookupDecoding(max_ngram_size=ngram, num_pred_tokens=predicted)

    def pause(self):
        self.pool.cpu.ggml_threadpool_pause(self.pool.pool)

    def resume(self):
        self.pool.cpu.ggml_threadpool_resume(self.pool.pool)


@llama_cpp.llama_log_callback
def log(level, text, _):
    if level in (3, 4):  # GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR
        sys.stderr.buffer.write(text)
        sys.stderr.flush()
