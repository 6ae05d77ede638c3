#!/usr/bin/env python3
"""Upcycles a GGUF model of the family llama: `benches/upcycle.py MODEL.gguf OUT.gguf [--experts 8] [--used 2] [--seed 1]`.

Every MLP is copied into so many experts, and a router of random numbers is put before them (arXiv 2212.05055, before any further training).
The weights of the experts that a row uses sum to one, so the model is the same function to rounding: real text through routed experts, whose
answers the dense model judges. Needs the packages gguf and numpy.
"""

import argparse

import gguf
import numpy as np

parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
parser.add_argument("model")
parser.add_argument("out")
parser.add_argument("--experts", type=int, default=8)
parser.add_argument("--used", type=int, default=2)
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()

reader = gguf.GGUFReader(options.model)
architecture = reader.fields["general.architecture"].contents()
if architecture != "llama":
    raise SystemExit(f"{options.model}: expected the family llama, found {architecture}; others have other graphs with experts")
writer = gguf.GGUFWriter(options.out, architecture)
for name, field in reader.fields.items():
    # The writer states the first itself, and what begins with GGUF. is of the file.
    if name != "general.architecture" and not name.startswith("GGUF."):
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
writer.add_expert_count(options.experts)
writer.add_expert_used_count(options.used)

random = np.random.default_rng(options.seed)
for tensor in reader.tensors:
    layer, _, part = tensor.name.rpartition(".ffn_")
    if not part.startswith(("gate", "up", "down")):
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        continue
    # One copy after the other, as they are stored.
    copies = np.broadcast_to(tensor.data, (options.experts, *tensor.data.shape))
    writer.add_tensor(f"{layer}.ffn_{part.removesuffix('.weight')}_exps.weight", copies, raw_dtype=tensor.tensor_type)
    if part.startswith("gate"):
        width = int(tensor.shape[0])
        router = random.standard_normal((options.experts, width)).astype(np.float32) / np.sqrt(width)
        writer.add_tensor(f"{layer}.ffn_gate_inp.weight", router.astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
