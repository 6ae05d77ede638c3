#!/usr/bin/env python3
"""Quantises the matrices of a GGUF model's layers to NVFP4: `benches/nvfp4.py MODEL.gguf OUT.gguf`.

As NVIDIA describes it: a number for each matrix brings its largest group of 16 to the end of E4M3's range; embeddings, head and norms stay as
they are. llama.cpp and yggc read the file. Matrices whose rows are no whole blocks of 64 stay, too. Needs the packages gguf and numpy.
"""

import argparse

import gguf
import numpy as np

parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
parser.add_argument("model")
parser.add_argument("out")
options = parser.parse_args()

KIND = gguf.GGMLQuantizationType.NVFP4
# Floats of 4 bits (E2M1), and of 8 (E4M3) without a sign and without the one that is no number.
FLOATS = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=np.float32)
SCALES = np.array([(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)][:-1], dtype=np.float32)


def nearest(numbers, x):
    """Place of the nearest of rising numbers."""
    above = np.clip(np.searchsorted(numbers, x), 1, len(numbers) - 1)
    return above - (x - numbers[above - 1] < numbers[above] - x)


def blocks(values):
    """Blocks of 64 as GGUF files have them: four scales, then each group's halves in the low and in the high bits of its bytes."""
    groups = values.reshape(-1, 4, 16)
    scales = nearest(SCALES, np.abs(groups).max(axis=2) / FLOATS[-1])
    units = np.maximum(SCALES[scales], SCALES[1])[..., None]
    codes = nearest(FLOATS, np.abs(groups) / units) | (groups < 0) << 3
    both = codes[..., :8] | codes[..., 8:] << 4
    of_row = values.shape[-1] // 64 * 36
    return np.concatenate([scales, both.reshape(-1, 32)], axis=1).astype(np.uint8).reshape(-1, of_row)


reader = gguf.GGUFReader(options.model)
writer = gguf.GGUFWriter(options.out, reader.fields["general.architecture"].contents())
for name, field in reader.fields.items():
    # The writer states the first itself, and what begins with GGUF. is of the file.
    if name != "general.architecture" and not name.startswith("GGUF."):
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
for tensor in reader.tensors:
    layer, dot, part = tensor.name.rpartition(".weight")
    is_matrix = len(tensor.shape) == 2 and tensor.name.startswith("blk.") and dot and not part and tensor.shape[0] % 64 == 0
    if not is_matrix:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        continue
    values = gguf.dequantize(tensor.data, tensor.tensor_type)
    whole = np.float32(np.abs(values).max() / (SCALES[-1] * FLOATS[-1]))
    writer.add_tensor(tensor.name, blocks(values / whole), raw_dtype=KIND)
    writer.add_tensor(f"{layer}.scale", np.array([whole], dtype=np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
