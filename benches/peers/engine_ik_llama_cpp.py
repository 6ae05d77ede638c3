"""ik_llama.cpp for peer_worker.py: WHERE is its source tree, built in WHERE/build; VARIANT is `repacked` or `mapped`.

`repacked` interleaves the rows of quantised matrices when the model is loaded, as its programs do with `-rtr 1`; `mapped`
leaves them as they are in the file. Structures are read from the tree's own llama.h, since their fields change often.
"""

import ctypes
import os
import pathlib
import re
import subprocess
import sys

PLAIN = {
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "llama_pos": ctypes.c_int32,
    "llama_seq_id": ctypes.c_int32,
}


def field(declaration):
    """Name and type of a field of a C structure: plain, an enumeration, a pointer or a callback."""
    found = re.fullmatch(r"(?P<type>[\w\s*]+?)\s*(?P<name>\w+)", declaration)
    words = found["type"].removeprefix("const ").split() if found else []
    if "*" in "".join(words) or words and words[-1].endswith("_callback"):
        return found["name"], ctypes.c_void_p
    if words and words[0] == "enum":
        return found["name"], ctypes.c_int
    if len(words) == 1 and words[0] in PLAIN:
        return found["name"], PLAIN[words[0]]
    raise RuntimeError(f"llama.h: cannot tell the type of the field `{declaration}`")


def structure(header, name):
    """The structure `name` as the header declares it."""
    found = re.search(rf"\bstruct {name} \{{(.*?)\}}", header, re.DOTALL)
    if not found:
        raise RuntimeError(f"llama.h declares no `struct {name}`: expected the header of ik_llama.cpp")
    declarations = [" ".join(declaration.split()) for declaration in found[1].split(";")]
    fields = [field(declaration) for declaration in declarations if declaration]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def library(tree):
    """The C interface of the tree's library, with types."""
    header = pathlib.Path(tree, "include/llama.h")
    built = sorted(pathlib.Path(tree, "build").glob("**/libllama.so"))
    if not header.exists() or len(built) != 1:
        raise RuntimeError(f"expected {header}, and one libllama.so under {tree}/build, found {len(built)}: build the tree there")
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    model, context, batch = (
        structure(text, name) for name in ("llama_model_params", "llama_context_params", "llama_batch")
    )
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32
    signatures = {
        "llama_backend_init": (None, []),
        "llama_batch_init": (batch, [number] * 3),
        "llama_context_default_params": (context, []),
        "llama_decode": (number, [pointer, batch]),
        "llama_get_logits": (ctypes.POINTER(ctypes.c_float), [pointer]),
        "llama_init_from_model": (pointer, [pointer, context]),
        "llama_kv_cache_seq_rm": (ctypes.c_bool, [pointer, number, number, number]),
        "llama_log_set": (None, [LOG, pointer]),
        "llama_model_default_params": (model, []),
        "llama_model_desc": (number, [pointer, text, ctypes.c_size_t]),
        "llama_model_get_vocab": (pointer, [pointer]),
        "llama_model_load_from_file": (pointer, [text, model]),
        "llama_model_n_params": (ctypes.c_uint64, [pointer]),
        "llama_model_size": (ctypes.c_uint64, [pointer]),
        "llama_print_system_info": (text, []),
        "llama_vocab_is_eog": (ctypes.c_bool, [pointer, number]),
        "llama_vocab_n_tokens": (number, [pointer]),
    }
    api = ctypes.CDLL(str(built[0]))
    for name, (result, arguments) in signatures.items():
        function = getattr(api, name)
        function.restype, function.argtypes = result, arguments
    return api


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


@LOG
def log(level, text, _):
    # Its warnings are about devices that a processor has not.
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        sys.stderr.buffer.write(text)
        sys.stderr.flush()


class Engine:
    def __init__(self, where, variant, _threads):
        self.variant, self.api = variant, library(where)
        commit = subprocess.run(["git", "-C", where, "rev-parse", "HEAD"], capture_output=True, text=True)
        self.version = commit.stdout.strip() or None
        self.api.llama_log_set(log, None)
        self.api.llama_backend_init()

    def load(self, model):
        params = self.api.llama_model_default_params()
        params.n_gpu_layers = 0
        params.repack_tensors = self.variant == "repacked"
        params.use_mmap = self.variant == "mapped"
        loaded = self.api.llama_model_load_from_file(os.fsencode(model), params)
        if not loaded:
            raise RuntimeError(f"ik_llama.cpp cannot load the model {model}: expected a GGUF file that it supports")
        return loaded

    def context(self, model, flash, threads, capacity, batch):
        params = self.api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = capacity, batch, batch
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn = flash
        return self.api.llama_init_from_model(model, params)

    def forget(self, context, position):
        return self.api.llama_kv_cache_seq_rm(context, 0, position, -1)

    def pause(self):
        """OpenMP keeps its threads."""

    def resume(self):
        """OpenMP keeps its threads."""
