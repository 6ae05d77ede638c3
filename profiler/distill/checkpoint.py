"""Reads a model from a GGUF file or a Hugging Face folder into plain float32 tensors.

Both become the same thing: the tensor names of Hugging Face's llama, rotation of halves, gains as they are multiplied, a tensor for every
matrix, a `Shape`, and the `Traits` of the family.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from .family import FAMILIES, MODEL_TYPES, Family, Fields, Shape, Traits, layer_tensors, traits
from .refusal import Refusal, require
from .rotation import rope_parameters
from .vocabulary import Vocabulary


@dataclass
class Checkpoint:
    """A model. `tensors` are float32; the head is the embedding where files have none."""

    name: str
    licence: str
    shape: Shape
    traits: Traits
    family: Family
    tensors: dict[str, torch.Tensor]
    read_vocabulary: Callable[[], Vocabulary] | None = None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Read when it is first asked for. Raises Refusal where the files have none that can be used."""
        return self.read_vocabulary()

    @property
    def embedding(self) -> torch.Tensor:
        """[V, D]"""
        return self.tensors["model.embed_tokens.weight"]

    @property
    def head(self) -> torch.Tensor:
        """[V, D]"""
        return self.tensors.get("lm_head.weight", self.embedding)


def read(path: Path, tokenizer: Path | None = None) -> Checkpoint:
    """The model at `path`: a `.gguf` file, or a folder with config.json and *.safetensors. Its tokenizer.json is in the folder `tokenizer`,
    else in the model's own.

    Raises Refusal for anything else, and for models of other families than `FAMILIES`.
    """
    if path.is_dir():
        found = _read_folder(path)
    elif path.suffix == ".gguf" and path.is_file():
        found = _read_gguf(path)
    else:
        raise Refusal(f"`{path}` is no model: expected a .gguf file, or a folder with config.json; check the path")
    _check(found, path)
    found.read_vocabulary = lambda: Vocabulary.from_folder(tokenizer or path)
    return found


GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "attention_output_norm",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": "conv.conv",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "mlp_output_norm",
}
"""A layer's tensors as GGUF names them, and as this package does."""
_GGUF_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "token_embd_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_FACTORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")


def _read_gguf(path: Path) -> Checkpoint:
    import gguf

    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise Refusal(f"`{path}` is no GGUF file that can be read: {error}; fetch or convert it again") from error

    def value(key: str):
        field = reader.fields.get(key)
        return None if field is None else field.contents()

    arch = value("general.architecture")
    require(arch in FAMILIES, f"`{path}` is a `{arch}`; expected an architecture that can be distilled: {', '.join(FAMILIES)}")
    fields = Fields(path, arch, True, value)
    tensors, factors = {}, {}
    for tensor in reader.tensors:
        data = numpy.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32)
        data, plain = torch.from_numpy(data), tensor.name.removesuffix(".weight")
        if plain in _FACTORS:
            factors[plain] = data
            continue
        name = _gguf_name(tensor.name)
        require(name is not None, f"`{path}` has a tensor `{tensor.name}`, which no `{arch}` model that can be distilled has")
        tensors[name.replace("mlp.up_proj", "mlp.gate_up_proj") if FAMILIES[arch].fused else name] = data
    embedding = tensors.get("model.embed_tokens.weight")
    require(embedding is not None, f"`{path}` has no `token_embd.weight`; expected every tensor of a model")
    shape = _shape(fields, len(embedding))
    if FAMILIES[arch].paired:
        turned = {name for name in tensors if ".self_attn.q_proj." in name or ".self_attn.k_proj." in name}
        tensors.update({name: _halves_from_pairs(tensors[name], shape.head_width) for name in turned})
    name, licence = value("general.name") or path.stem, value("general.license") or "not stated"
    return _checkpoint(fields, name, licence, shape, tensors, factors)


def _gguf_name(name: str) -> str | None:
    if name in _GGUF_OUTSIDE:
        return _GGUF_OUTSIDE[name]
    blk, _, rest = name.partition(".")
    number, _, rest = rest.partition(".")
    part, _, kind = rest.rpartition(".")
    return f"model.layers.{number}.{GGUF_NAMES[part]}.{kind}" if blk == "blk" and part in GGUF_NAMES else None


def _shape(fields: Fields, vocabulary: int) -> Shape:
    heads, width = fields("attention.head_count", "num_attention_heads"), fields("embedding_length", "hidden_size")
    kv_heads = fields("attention.head_count_kv", "num_key_value_heads", heads)
    if isinstance(kv_heads, list):
        attending = sorted({found for found in kv_heads if found > 0})
        require(len(attending) == 1, f"`{fields.path}` has {kv_heads} heads of keys; expected as many in every layer that attends")
        kv_heads = attending[0]
    is_lfm2 = fields.arch == "lfm2" and not fields.is_gguf
    theta = rope_parameters(fields).get("rope_theta")
    epsilon = fields(None, "norm_eps", None) if is_lfm2 else None
    return Shape(
        layers=fields("block_count", "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_width=fields("attention.key_length", "head_dim", width // heads),
        feed_forward=_feed_forward(fields) if is_lfm2 else fields("feed_forward_length", "intermediate_size"),
        vocabulary=vocabulary,
        context=fields("context_length", "max_position_embeddings"),
        epsilon=epsilon or fields("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        rope_theta=theta or fields("rope.freq_base", "rope_theta", 10000.0),
    )


def _feed_forward(fields: Fields) -> int:
    """The feed-forward width of an LFM 2, whose config.json states one and a half times that of an MLP with three matrices."""
    stated = fields(None, "block_ff_dim", None) or fields(None, "intermediate_size")
    if not fields(None, "block_auto_adjust_ff_dim", True):
        return stated
    multiple = fields(None, "block_multiple_of", 256)
    return multiple * -(-int(fields(None, "block_ffn_dim_multiplier", 1.0) * (2 * stated // 3)) // multiple)


def _checkpoint(fields: Fields, name: str, licence: str, shape: Shape, tensors: dict, factors: dict) -> Checkpoint:
    """With fused tensors cut apart."""
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    cuts = {"qkv_proj": (("q_proj", "k_proj", "v_proj"), [queries, keys, keys]),
            "gate_up_proj": (("gate_proj", "up_proj"), [shape.feed_forward] * 2)}
    for whole in [name for name in tensors if FAMILIES[fields.arch].fused and name.split(".")[-2] in cuts]:
        part = whole.split(".")[-2]
        parts, rows = cuts[part]
        found = tensors.pop(whole)
        require(len(found) == sum(rows), f"`{fields.path}`: expected `{whole}` of {sum(rows)} rows, found {len(found)}")
        tensors.update({whole.replace(part, name): rows for name, rows in zip(parts, found.split(rows), strict=True)})
    return Checkpoint(name, licence, shape, traits(fields, shape, factors), FAMILIES[fields.arch], tensors)


def _halves_from_pairs(weight: torch.Tensor, head_width: int) -> torch.Tensor:
    """GGUF's llama rotates neighbours, Hugging Face's the halves of a head: the rows [H * E, ...] in the latter's order."""
    return weight.reshape(-1, head_width // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape).contiguous()


def pairs_from_halves(weight: torch.Tensor, head_width: int) -> torch.Tensor:
    """The inverse of what reading a GGUF does to queries' and keys' rows."""
    rows, columns = weight.shape
    return weight.reshape(rows // head_width, 2, head_width // 2, columns).transpose(1, 2).reshape(rows, columns).contiguous()


def read_json(path: Path) -> dict:
    """The JSON object in a file. Raises Refusal where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot read `{path}` as JSON: {error}; check the folder") from error
    require(isinstance(found, dict), f"`{path}` is no JSON object; expected one")
    return found


def read_safetensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder's *.safetensors, float32."""
    files = sorted(folder.glob("*.safetensors"))
    require(bool(files), f"`{folder}` has no *.safetensors; expected the weights there")
    tensors = {}
    for file in files:
        try:
            with safe_open(file, framework="pt") as opened:
                tensors.update({name: opened.get_tensor(name).float() for name in opened.keys()})
        except Exception as error:  # safetensors raises an exception class of its own, which is no public name
            raise Refusal(f"cannot read `{file}`: {error}; fetch it again") from error
    return tensors


def sizes_of(shape: Shape) -> dict:
    """A shape as config.json says it."""
    return {
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.rope_theta,
        "vocab_size": shape.vocabulary,
        "num_hidden_layers": shape.layers,
        "max_position_embeddings": shape.context,
        "torch_dtype": "bfloat16",
    }


def write_folder(folder: Path, config: dict, state: dict[str, torch.Tensor]) -> None:
    """Writes config.json and model.safetensors, what is no integer in bfloat16; each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: tensor.detach().cpu() for name, tensor in state.items()}
    tensors = {name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).contiguous() for name, tensor in kept.items()}
    unfinished = folder / "model.unfinished"
    save_file(tensors, unfinished, metadata={"format": "pt"})
    unfinished.rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _read_folder(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    require(kind in MODEL_TYPES, f"`{folder}` is a `{kind}`; expected a model_type that can be distilled: {', '.join(MODEL_TYPES)}")
    fields = Fields(folder, MODEL_TYPES[kind], False, config.get)
    family = FAMILIES[fields.arch]
    tensors = {}
    for name, tensor in read_safetensors(folder).items():
        place = re.match(r"(model\.(?:layers\.\d+\.)?)(.*)(\.\w+)", name)
        if place:
            name = place[1] + family.names.get(place[2], place[2]) + place[3]
        tensors[name] = tensor + family.offset if name.endswith("norm.weight") else tensor.squeeze(1) if name.endswith("conv.conv.weight") else tensor
    return _checkpoint(fields, config.get("_name_or_path") or folder.name, "not stated", _shape(fields, fields(None, "vocab_size")), tensors, {})


def _check(found: Checkpoint, path: Path) -> None:
    shape = found.shape
    expected = {"model.embed_tokens.weight": (shape.vocabulary, shape.width), "model.norm.weight": (shape.width,)}
    for number, rule in enumerate(found.traits.layers):
        expected.update({f"model.layers.{number}.{name}": size for name, size in layer_tensors(found.family, shape, rule).items()})
    if "lm_head.weight" in found.tensors:
        expected["lm_head.weight"] = (shape.vocabulary, shape.width)
    for name, size in expected.items():
        tensor = found.tensors.get(name)
        require(tensor is not None, f"`{path}` has no tensor `{name}`; expected every tensor of a model")
        require(
            tuple(tensor.shape) == size,
            f"`{path}`: expected `{name}` of shape {list(size)}, found {list(tensor.shape)}",
        )
    unread = sorted(set(found.tensors) - set(expected))
    require(not unread, f"`{path}` has a tensor `{unread[0] if unread else ''}`, which would be left out; expected a model without")
