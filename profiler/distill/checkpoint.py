"""Reads a model from a GGUF file or a Hugging Face folder into plain float32 tensors.

Both become the same thing: Hugging Face's tensor names, rotation of halves, a `Shape`, and the `Traits` of the family.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy
import torch
from safetensors import safe_open

from .family import FAMILIES, OPTIONAL, PAIRED, Traits, traits_of_folder, traits_of_gguf
from .refusal import Refusal, require
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Shape:
    """Sizes of a model. Letters in this package: D width, H heads, K heads of keys, E of a head, F feed-forward, V vocabulary."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int
    context: int
    epsilon: float
    rope_theta: float


@dataclass
class Checkpoint:
    """A model as its files have it. `tensors` by Hugging Face's names, float32; the head is the embedding where files have none."""

    name: str
    licence: str
    shape: Shape
    traits: Traits
    tensors: dict[str, torch.Tensor]
    read_vocabulary: Callable[[], Vocabulary]

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


def read(path: Path) -> Checkpoint:
    """The model at `path`: a `.gguf` file, or a folder with config.json, *.safetensors and tokenizer.json.

    Raises Refusal for anything else, and for models of other families than `FAMILIES`.
    """
    if path.is_dir():
        found = _read_folder(path)
    elif path.suffix == ".gguf" and path.is_file():
        found = _read_gguf(path)
    else:
        raise Refusal(f"`{path}` is no model: expected a .gguf file, or a folder with config.json; check the path")
    _check(found, path)
    return found


GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""A layer's tensors as GGUF names them, and as Hugging Face does."""
_GGUF_OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def _read_gguf(path: Path) -> Checkpoint:
    import gguf

    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, OSError, IndexError, KeyError) as error:
        raise Refusal(f"`{path}` is no GGUF file that can be read: {error}; fetch or convert it again") from error

    def value(key: str, default=None):
        field = reader.fields.get(key)
        if field is None:
            require(default is not None, f"`{path}` has no `{key}`; expected the metadata of a model")
            return default
        return field.contents()

    arch = value("general.architecture")
    require(arch in FAMILIES.values(), f"`{path}` is a `{arch}`; expected an architecture that can be distilled: {_listed(FAMILIES.values())}")
    heads, width = value(f"{arch}.attention.head_count"), value(f"{arch}.embedding_length")
    head_width = value(f"{arch}.attention.key_length", width // heads)
    tensors, factors = {}, None
    for tensor in reader.tensors:
        data = numpy.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32)
        data = torch.from_numpy(data)
        if tensor.name == "rope_freqs.weight":
            factors = data
            continue
        name = _hugging_face_name(tensor.name)
        require(name is not None, f"`{path}` has a tensor `{tensor.name}`, which no `{arch}` model that can be distilled has")
        if arch in PAIRED and (".self_attn.q_proj." in name or ".self_attn.k_proj." in name):
            data = _halves_from_pairs(data, head_width)
        tensors[name] = data
    embedding = tensors.get("model.embed_tokens.weight")
    require(embedding is not None, f"`{path}` has no `token_embd.weight`; expected every tensor of a model")
    shape = Shape(
        layers=value(f"{arch}.block_count"),
        width=width,
        heads=heads,
        kv_heads=value(f"{arch}.attention.head_count_kv", heads),
        head_width=head_width,
        feed_forward=value(f"{arch}.feed_forward_length"),
        vocabulary=len(embedding),
        context=value(f"{arch}.context_length"),
        epsilon=value(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope_theta=value(f"{arch}.rope.freq_base", 10000.0),
    )
    return Checkpoint(
        name=value("general.name", path.stem),
        licence=value("general.license", "not stated"),
        shape=shape,
        traits=traits_of_gguf(value, arch, factors, head_width, shape.rope_theta, shape.layers, path),
        tensors=tensors,
        read_vocabulary=lambda: Vocabulary.from_gguf(value, path),
    )


def _listed(names) -> str:
    return ", ".join(dict.fromkeys(names))


def _hugging_face_name(name: str) -> str | None:
    if name in _GGUF_OUTSIDE:
        return _GGUF_OUTSIDE[name]
    parts = name.split(".")
    if len(parts) == 4 and parts[0] == "blk" and parts[2] in GGUF_NAMES:
        return f"model.layers.{parts[1]}.{GGUF_NAMES[parts[2]]}.{parts[3]}"
    return None


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


def _read_folder(folder: Path) -> Checkpoint:
    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    require(kind in FAMILIES, f"`{folder}` is a `{kind}`; expected a model_type that can be distilled: {_listed(FAMILIES)}")
    rope = config.get("rope_parameters") or {}

    def value(key: str, default=None):
        found = config.get(key)
        found = default if found is None else found
        require(found is not None, f"`{folder}/config.json` has no `{key}`; expected the config of a model")
        return found

    heads, width = value("num_attention_heads"), value("hidden_size")
    shape = Shape(
        layers=value("num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=value("num_key_value_heads", heads),
        head_width=value("head_dim", width // heads),
        feed_forward=value("intermediate_size"),
        vocabulary=value("vocab_size"),
        context=value("max_position_embeddings"),
        epsilon=value("rms_norm_eps"),
        rope_theta=rope.get("rope_theta", config.get("rope_theta", 10000.0)),
    )
    return Checkpoint(
        name=config.get("_name_or_path") or folder.name,
        licence="not stated",
        shape=shape,
        traits=traits_of_folder(config, shape.head_width, shape.rope_theta, shape.layers, folder),
        tensors=read_safetensors(folder),
        read_vocabulary=lambda: Vocabulary.from_folder(folder),
    )


def _check(found: Checkpoint, path: Path) -> None:
    shape = found.shape
    queries, keys = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    layer = {
        "input_layernorm.weight": (shape.width,),
        "self_attn.q_proj.weight": (queries, shape.width),
        "self_attn.k_proj.weight": (keys, shape.width),
        "self_attn.v_proj.weight": (keys, shape.width),
        "self_attn.o_proj.weight": (shape.width, queries),
        "post_attention_layernorm.weight": (shape.width,),
        "mlp.gate_proj.weight": (shape.feed_forward, shape.width),
        "mlp.up_proj.weight": (shape.feed_forward, shape.width),
        "mlp.down_proj.weight": (shape.width, shape.feed_forward),
    }
    # All layers have them or none has.
    sizes = dict(zip(OPTIONAL, ((queries,), (keys,), (keys,), (shape.head_width,), (shape.head_width,)), strict=True))
    layer.update({name: size for name, size in sizes.items() if f"model.layers.0.{name}" in found.tensors})
    expected = {"model.embed_tokens.weight": (shape.vocabulary, shape.width), "model.norm.weight": (shape.width,)}
    for number in range(shape.layers):
        expected.update({f"model.layers.{number}.{name}": size for name, size in layer.items()})
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
