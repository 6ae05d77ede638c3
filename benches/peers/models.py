#!/usr/bin/env python3
"""Makes the models of the matrix as GGUF files that llama.cpp, ik_llama.cpp and yggc load, one of each format.

usage: DIR/venv/bin/python benches/peers/models.py OUT --source FILE.gguf --peers DIR [--sizes ...] [--formats ...]

`135m` is the source, SmolLM2-135M-Instruct, requantised by llama.cpp; where a row is no multiple of 256 it takes other formats
than asked for. `llama-1b` and `llama-3b` have the shapes of Llama 3.2 1B and 3B with an untied head, `qwen3-moe` that of eight of the
48 layers of Qwen3-30B-A3B, `qwen3.5-0.8b` that of Qwen3.5-0.8B with an untied head. They have random codes, scales that keep
activations finite, and the source's tokenizer with unused tokens behind it: only times of them mean something. Which matrix has
which format is llama.cpp's choice. DIR is the folder that build.sh built into. Files that exist are kept.
"""

import argparse
import collections
import ctypes
import os
import pathlib

import gguf
import numpy

Type = gguf.GGMLQuantizationType
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17}
SHAPES = {
    "llama-1b": {
        "arch": "llama", "layers": 16, "hidden": 2048, "feed_forward": 8192, "heads": 32, "kv_heads": 8, "head": 64,
        "rotated": 64, "vocabulary": 128_256, "base": 500_000.0,
    },
    "llama-3b": {
        "arch": "llama", "layers": 28, "hidden": 3072, "feed_forward": 8192, "heads": 24, "kv_heads": 8, "head": 128,
        "rotated": 128, "vocabulary": 128_256, "base": 500_000.0,
    },
    "qwen3-moe": {
        "arch": "qwen3moe", "layers": 8, "hidden": 2048, "feed_forward": 768, "heads": 32, "kv_heads": 4, "head": 128,
        "rotated": 128, "vocabulary": 151_936, "base": 1_000_000.0, "experts": 128, "used": 8,
    },
    "qwen3.5-0.8b": {
        "arch": "qwen35", "layers": 24, "hidden": 1024, "feed_forward": 3584, "heads": 8, "kv_heads": 2, "head": 256,
        "rotated": 64, "vocabulary": 248_320, "base": 10_000_000.0, "state_heads": 16, "state": 128, "taps": 4, "whole": 4,
    },
}  # fmt: skip
CONTEXT, UNUSED = 8192, 5
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
    add("--sizes", default=",".join(["135m", *SHAPES]), help="separated by commas [%(default)s]")
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


def tensor_type(file_type, name, place, count):
    """The format that llama.cpp gives a matrix, the `place`-th of `count` of its name: mixtures called M have more bits for some."""
    plain = {"Q4_K_M": Type.Q4_K, "Q5_K_M": Type.Q5_K}.get(file_type) or Type[file_type]
    if name == "output":
        return Type.Q8_0 if file_type == "Q8_0" else Type.Q6_K
    if not file_type.endswith("_M"):
        return plain
    if name == "attn_qkv":
        return {Type.Q4_K: Type.Q5_K, Type.Q5_K: Type.Q6_K}[plain]
    early_late_or_third = place < count // 8 or place >= 7 * count // 8 or (place - count // 8) % 3 == 2
    if name in ("attn_v", "ffn_down", "ffn_down_exps") and early_late_or_third:
        return Type.Q6_K
    return plain


def attends(shape, layer):
    """Whether a layer has attention, and no state."""
    return (layer + 1) % shape.get("whole", 1) == 0


def matrices(shape):
    """Name, layer, rows, columns and spread of the weights of every matrix, layers in order; those of experts are one after the other."""
    hidden, ffn = shape["hidden"], shape["feed_forward"]
    queries, keys = shape["heads"] * shape["head"], shape["kv_heads"] * shape["head"]
    yield "token_embd", None, shape["vocabulary"], hidden, 1.0
    yield "output", None, shape["vocabulary"], hidden, 3 * hidden**-0.5
    experts = shape.get("experts", 1)
    suffix = "_exps" if experts > 1 else ""
    for layer in range(shape["layers"]):
        if attends(shape, layer):
            # Where layers with states are, queries come with a gate each.
            of_attention = [
                ("attn_q", queries * (2 if "whole" in shape else 1), hidden),
                ("attn_k", keys, hidden),
                ("attn_v", keys, hidden),
                ("attn_output", hidden, queries),
            ]
        else:
            inner = shape["state_heads"] * shape["state"]
            of_attention = [
                ("attn_qkv", 3 * inner, hidden),
                ("attn_gate", inner, hidden),
                ("ssm_alpha", shape["state_heads"], hidden),
                ("ssm_out", hidden, inner),
            ]
        of_mlp = [
            (f"ffn_gate{suffix}", experts * ffn, hidden),
            (f"ffn_up{suffix}", experts * ffn, hidden),
            (f"ffn_down{suffix}", experts * hidden, ffn),
        ]
        for name, rows, columns in of_attention + of_mlp:
            yield name, layer, rows, columns, columns**-0.5


def floats(shape, random):
    """Name and values of every tensor of f32."""
    ones = lambda count: numpy.ones(count, "f4")
    hidden = shape["hidden"]
    yield "output_norm.weight", ones(hidden)
    for layer in range(shape["layers"]):
        of = f"blk.{layer}."
        yield f"{of}attn_norm.weight", ones(hidden)
        yield f"{of}{'post_attention' if 'whole' in shape else 'ffn'}_norm.weight", ones(hidden)
        if "experts" in shape:
            router = random.standard_normal((shape["experts"], hidden), "f4") * hidden**-0.5
            yield f"{of}ffn_gate_inp.weight", router.astype("f4")
        if not attends(shape, layer):
            heads, channels = shape["state_heads"], 3 * shape["state_heads"] * shape["state"]
            yield f"{of}ssm_a", numpy.linspace(-2.0, -0.1, heads, dtype="f4")
            yield f"{of}ssm_dt.bias", numpy.linspace(-3.0, 1.0, heads, dtype="f4")
            yield f"{of}ssm_conv1d.weight", (random.standard_normal((channels, shape["taps"]), "f4") * 0.5).astype("f4")
            yield f"{of}ssm_norm.weight", ones(shape["state"])
            # llama.cpp quantises the other of the two only.
            yield f"{of}ssm_beta.weight", (random.standard_normal((heads, hidden), "f4") * hidden**-0.5).astype("f4")
        elif shape["arch"] != "llama":
            for name in ("attn_q_norm", "attn_k_norm"):
                yield f"{of}{name}.weight", ones(shape["head"])


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


def copy_tokenizer(writer, source, vocabulary):
    for name, entry in gguf.GGUFReader(source).fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind, value = entry.types[0], entry.contents()
        if name == "tokenizer.ggml.tokens":
            value += [f"<|unused_{token}|>" for token in range(len(value), vocabulary)]
        if name == "tokenizer.ggml.token_type":
            value += [UNUSED] * (vocabulary - len(value))
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kind)


def synthesise(source, path, name, file_type):
    """A model of a published shape with random weights."""
    shape, random = SHAPES[name], numpy.random.default_rng(7)
    writer = gguf.GGUFWriter(path, shape["arch"])
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
    writer.add_rope_dimension_count(shape["rotated"])
    writer.add_rope_freq_base(shape["base"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape["vocabulary"])
    if "experts" in shape:
        writer.add_expert_count(shape["experts"])
        writer.add_expert_used_count(shape["used"])
        writer.add_expert_feed_forward_length(shape["feed_forward"])
    if "whole" in shape:
        inner = shape["state_heads"] * shape["state"]
        writer.add_ssm_conv_kernel(shape["taps"])
        writer.add_ssm_state_size(shape["state"])
        writer.add_ssm_group_count(shape["state_heads"])
        writer.add_ssm_time_step_rank(shape["state_heads"])
        writer.add_ssm_inner_size(inner)
        writer.add_uint32(f"{shape['arch']}.full_attention_interval", shape["whole"])
        third = shape["rotated"] // 2 // 3
        writer.add_rope_dimension_sections([shape["rotated"] // 2 - 2 * third, third, third, 0])
    copy_tokenizer(writer, source, shape["vocabulary"])

    plain = list(floats(shape, random))
    for tensor, values in plain:
        writer.add_tensor_info(tensor, list(values.shape), values.dtype, values.nbytes)
    described = []
    seen, all_of = collections.Counter(), collections.Counter(name for name, *_ in matrices(shape))
    for matrix, layer, rows, columns, spread in matrices(shape):
        kind = tensor_type(file_type, matrix, seen[matrix], all_of[matrix])
        seen[matrix] += 1
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = columns // weights * size
        many = shape["experts"] if matrix.endswith("_exps") else 1
        described_shape = [many, rows // many, row_bytes] if many > 1 else [rows, row_bytes]
        label = f"{matrix}.weight" if layer is None else f"blk.{layer}.{matrix}.weight"
        writer.add_tensor_info(label, described_shape, numpy.dtype("u1"), rows * row_bytes, kind)
        described.append((kind, rows, columns, spread))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, values in plain:
        writer.write_tensor_data(values)
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
