#!/usr/bin/env python3
"""Makes the models of the matrix as GGUF files that llama.cpp, ik_llama.cpp and yggc load, one of each format.

usage: DIR/venv/bin/python benches/peers/models.py OUT --source FILE.gguf --peers DIR [--sizes ...] [--formats ...]

`135m` is the source, SmolLM2-135M-Instruct, requantised by llama.cpp; where a row is no multiple of 256 it takes other formats
than asked for. `llama-1b` and `llama-3b` have the shapes of Llama 3.2 1B and 3B with an untied head, random codes, scales that
keep activations finite, and the source's tokenizer with unused tokens behind it: only times of them mean something. Which
matrix has which format is llama.cpp's choice. DIR is the folder that build.sh built into. Files that exist are kept.
"""

import argparse
import ctypes
import os
import pathlib

import gguf
import numpy

Type = gguf.GGMLQuantizationType
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17}
SHAPES = {
    "llama-1b": {"layers": 16, "hidden": 2048, "feed_forward": 8192, "heads": 32, "kv_heads": 8, "head": 64},
    "llama-3b": {"layers": 28, "hidden": 3072, "feed_forward": 8192, "heads": 24, "kv_heads": 8, "head": 128},
}
VOCABULARY, CONTEXT, ROPE_BASE, UNUSED = 128_256, 8192, 500_000.0, 5
# Where a block holds its f16 scale and minimum, and the minimum by the scale that makes the mean of its weights zero.
SCALES = {
    Type.Q4_0: [(0, 1.0)],
    Type.Q4_1: [(0, 1.0), (2, -7.5)],
    Type.Q8_0: [(0, 1.0)],
    Type.Q4_K: [(0, 1.0), (2, 7.5)],
    Type.Q5_K: [(0, 1.0), (2, 15.5)],
    Type.Q6_K: [(208, 1.0)],
}
SAMPLE_ROWS, PART_ROWS = 64, 4096


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("out", help="the folder of the files, SIZE.FORMAT.gguf")
    add("--source", required=True, help="the GGUF file of SmolLM2-135M-Instruct; `yggc fetch smollm2-135m-instruct` prints its path")
    add("--peers", help="the folder that build.sh built into, for 135m")
    add("--sizes", default="135m,llama-1b,llama-3b", help="separated by commas [%(default)s]")
    add("--formats", default=",".join(FILE_TYPES), help="separated by commas [%(default)s]")
    given = parser.parse_args()
    given.sizes, given.formats = given.sizes.split(","), given.formats.split(",")
    for asked, known in [(given.sizes, ["135m", *SHAPES]), (given.formats, FILE_TYPES)]:
        if unknown := [name for name in asked if name not in known]:
            parser.error(f"expected some of {', '.join(known)}, found {', '.join(unknown)}")
    if "135m" in given.sizes and not given.peers:
        parser.error("--peers: 135m is requantised by llama.cpp: name the folder that build.sh built into")
    return given


def requantise(source, path, file_type, peers):
    """The model `source` in another format, by llama.cpp."""
    os.environ["LLAMA_CPP_LIB_PATH"] = f"{peers}/lib/openmp"
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = file_type, True, 1
    code = llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(path), ctypes.byref(params))
    if code:
        raise SystemExit(f"llama.cpp could not requantise {source}: code {code}")


def tensor_type(file_type, name, layer, layers):
    """The format that llama.cpp gives a matrix: in the mixtures called M, Q6_K for some layers' values and down projections."""
    plain = {"Q4_K_M": Type.Q4_K, "Q5_K_M": Type.Q5_K}.get(file_type) or Type[file_type]
    if name == "output":
        return Type.Q8_0 if file_type == "Q8_0" else Type.Q6_K
    early_late_or_third = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    if file_type.endswith("_M") and name in ("attn_v", "ffn_down") and early_late_or_third:
        return Type.Q6_K
    return plain


def matrices(shape):
    """Name, layer, rows, columns and spread of the weights of every matrix, layers in order."""
    hidden, ffn = shape["hidden"], shape["feed_forward"]
    queries, keys = shape["heads"] * shape["head"], shape["kv_heads"] * shape["head"]
    yield "token_embd", None, VOCABULARY, hidden, 1.0
    yield "output", None, VOCABULARY, hidden, 3 * hidden**-0.5
    for layer in range(shape["layers"]):
        for name, rows, columns in [
            ("attn_q", queries, hidden),
            ("attn_k", keys, hidden),
            ("attn_v", keys, hidden),
            ("attn_output", hidden, queries),
            ("ffn_gate", ffn, hidden),
            ("ffn_up", ffn, hidden),
            ("ffn_down", hidden, ffn),
        ]:
            yield name, layer, rows, columns, columns**-0.5


def random_rows(random, kind, rows, columns, scale):
    """Rows of random codes, each block scaled by 0.5 to 1.5 times `scale`, half of them negated: codes alone have no mean of zero."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // weights, size), dtype=numpy.uint8)
    scales = scale * random.uniform(0.5, 1.5, len(blocks)) * random.choice([-1.0, 1.0], len(blocks))
    for offset, factor in SCALES[kind]:
        blocks[:, offset : offset + 2] = (factor * scales).astype("<f2").view(numpy.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def unit_scale(random, kind, columns):
    """The scale at which weights of this format have a standard deviation of 1."""
    probe = 2.0**-6
    return probe / gguf.dequantize(random_rows(random, kind, SAMPLE_ROWS, columns, probe), kind).std()


def copy_tokenizer(writer, source):
    for name, entry in gguf.GGUFReader(source).fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind, value = entry.types[0], entry.contents()
        if name == "tokenizer.ggml.tokens":
            value += [f"<|unused_{token}|>" for token in range(len(value), VOCABULARY)]
        if name == "tokenizer.ggml.token_type":
            value += [UNUSED] * (VOCABULARY - len(value))
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kind)


def synthesise(source, path, name, file_type):
    """A model of a published shape with random weights."""
    shape, random = SHAPES[name], numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"{name} random")
    writer.add_file_type(FILE_TYPES[file_type])
    writer.add_block_count(shape["layers"])
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape["hidden"])
    writer.add_feed_forward_length(shape["feed_forward"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_key_length(shape["head"])
    writer.add_value_length(shape["head"])
    writer.add_rope_dimension_count(shape["head"])
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    copy_tokenizer(writer, source)

    norms = ["output_norm", *(f"blk.{layer}.{norm}" for layer in range(shape["layers"]) for norm in ("attn_norm", "ffn_norm"))]
    for norm in norms:
        writer.add_tensor_info(f"{norm}.weight", [shape["hidden"]], numpy.dtype("f4"), 4 * shape["hidden"])
    described = []
    for matrix, layer, rows, columns, spread in matrices(shape):
        kind = tensor_type(file_type, matrix, layer or 0, shape["layers"])
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = columns // weights * size
        label = f"{matrix}.weight" if layer is None else f"blk.{layer}.{matrix}.weight"
        writer.add_tensor_info(label, [rows, row_bytes], numpy.dtype("u1"), rows * row_bytes, kind)
        described.append((kind, rows, columns, spread))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _ in norms:
        writer.write_tensor_data(numpy.ones(shape["hidden"], "f4"))
    units = {pair: unit_scale(random, *pair) for pair in {(kind, columns) for kind, _, columns, _ in described}}
    for kind, rows, columns, spread in described:
        parts = [
            random_rows(random, kind, min(PART_ROWS, rows - start), columns, spread * units[kind, columns])
            for start in range(0, rows, PART_ROWS)
        ]
        writer.write_tensor_data(numpy.concatenate(parts))
    writer.close()


def main():
    given = options()
    pathlib.Path(given.out).mkdir(parents=True, exist_ok=True)
    for size in given.sizes:
        for file_type in given.formats:
            path = pathlib.Path(given.out, f"{size}.{file_type}.gguf")
            if not path.exists():
                unfinished = f"{path}.part"
                if size == "135m":
                    requantise(given.source, unfinished, FILE_TYPES[file_type], given.peers)
                else:
                    synthesise(given.source, unfinished, size, file_type)
                os.rename(unfinished, path)
            print(path, flush=True)


if __name__ == "__main__":
    main()
