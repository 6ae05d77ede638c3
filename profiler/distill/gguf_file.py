"""Writes a small llama as a GGUF file that any engine loads, with the tokenizer of the verifier's own GGUF."""

from pathlib import Path

import torch

from .checkpoint import GGUF_NAMES, pairs_from_halves
from .family import Shape
from .refusal import require


def write_gguf(file: Path, shape: Shape, tensors: dict[str, torch.Tensor], verifier: Path) -> None:
    """`tensors` by Hugging Face's names; matrices are written as F16, norms as F32; the embedding is the head too."""
    import gguf

    require(verifier.suffix == ".gguf", f"a GGUF needs the tokenizer of one, and the verifier is `{verifier}`; expected a .gguf")
    reader = gguf.GGUFReader(verifier)
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_name(file.stem)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    names = {theirs: ours for ours, theirs in GGUF_NAMES.items()}
    for name, tensor in tensors.items():
        if name == "model.embed_tokens.weight":
            ours = "token_embd.weight"
        elif name == "model.norm.weight":
            ours = "output_norm.weight"
        else:
            number, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
            ours = f"blk.{number}.{names[part]}.weight"
        if ours.endswith(("attn_q.weight", "attn_k.weight")):
            tensor = pairs_from_halves(tensor, shape.head_width)
        data = tensor.float() if tensor.dim() == 1 else tensor.half()
        writer.add_tensor(ours, data.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
