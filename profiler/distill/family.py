"""The families that can be distilled: what their files are called and how each differs from Llama, as the run time's recipes have it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import rotation
from .refusal import require
from .rotation import Rotation

_REQUIRED = object()


@dataclass(frozen=True)
class Fields:
    """The configuration in a model's files: `value(key)` by a container's own key, None where there is none."""

    path: Path
    arch: str
    is_gguf: bool
    value: Callable

    def __call__(self, gguf: str | None, folder: str | None, default=_REQUIRED):
        """What GGUF files, after the architecture's name, and config.json call so; a container without a name for it has the default."""
        key = (gguf and f"{self.arch}.{gguf}") if self.is_gguf else folder
        found = self.value(key) if key else None
        if found is None:
            require(default is not _REQUIRED, f"`{self.path}` has no `{key}`; expected the configuration of a model")
            return default
        return found


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


@dataclass(frozen=True)
class Rule:
    """How a layer attends: by which of the rotations it turns (None: by none), and the `window` positions that a row sees, its own the last
    (None: all). With `taps` it has a short convolution instead."""

    rotation: int | None = 0
    window: int | None = None
    taps: int | None = None


@dataclass(frozen=True)
class Traits:
    """What a model computes, apart from its sizes. A cap of c bounds x by c tanh(x / c)."""

    rotations: tuple[Rotation, ...]
    layers: tuple[Rule, ...]
    score_scale: float
    gelu: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    score_cap: float | None = None
    logit_scale: float = 1.0
    logit_cap: float | None = None

    @classmethod
    def llama(cls, shape: Shape) -> "Traits":
        """Those of a plain llama."""
        plain = Rotation(rotation.plain_frequencies(shape.head_width, shape.rope_theta))
        return cls((plain,), (Rule(),) * shape.layers, shape.head_width**-0.5)


@dataclass(frozen=True)
class Family:
    """What all models of a family have in addition to a llama's tensors, and what their files call otherwise."""

    paired: bool = False
    """GGUF files rotate neighbours, not the halves of a head as Hugging Face's do."""
    biases: bool = False
    """Products of queries, keys and values have biases."""
    head_norms: str = ""
    """`each` head of queries and keys is normalised, or `all` of a row together."""
    norms: str = "before"
    """Sub-layers are normalised `before`, `after`, or `both`."""
    fused: bool = False
    """Files have queries, keys and values in one tensor, and gate and up."""
    offset: float = 0.0
    """What is added to the gains of a folder."""
    gelu: bool = False
    names: dict[str, str] = field(default_factory=dict)
    """Names of a folder's tensors, and those that this package has for them."""


_BEHIND = {
    "post_attention_layernorm": "attention_output_norm",
    "pre_feedforward_layernorm": "post_attention_layernorm",
    "post_feedforward_layernorm": "mlp_output_norm",
}
_GEMMA2 = Family(norms="both", offset=1.0, gelu=True, names=_BEHIND)
FAMILIES = {
    "llama": Family(paired=True),
    "qwen2": Family(biases=True),
    "qwen3": Family(head_norms="each"),
    "smollm3": Family(paired=True),
    "gemma2": _GEMMA2,
    "gemma3": Family(norms="both", offset=1.0, gelu=True, names=_BEHIND, head_norms="each"),
    "phi3": Family(fused=True),
    "granite": Family(paired=True),
    "olmo2": Family(norms="after", head_norms="all", names=_BEHIND),
    "lfm2": Family(head_norms="each", names={
        "embedding_norm": "norm", "operator_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
        "self_attn.out_proj": "self_attn.o_proj", "self_attn.q_layernorm": "self_attn.q_norm", "self_attn.k_layernorm": "self_attn.k_norm",
        "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj", "feed_forward.w2": "mlp.down_proj",
    }),
}
"""By the architecture that GGUF files name."""

MODEL_TYPES = {**{name: name for name in FAMILIES if name != "gemma3"}, "gemma3_text": "gemma3", "mistral": "llama", "ministral": "llama"}
"""Architectures by the `model_type` of a Hugging Face folder."""


def layer_tensors(family: Family, shape: Shape, rule: Rule) -> dict[str, tuple[int, ...]]:
    """The tensors of one layer and their sizes. Norms in front of sub-layers have the names of a llama's."""
    queries, keys, width = shape.heads * shape.head_width, shape.kv_heads * shape.head_width, shape.width
    found = {
        "mlp.gate_proj.weight": (shape.feed_forward, width),
        "mlp.up_proj.weight": (shape.feed_forward, width),
        "mlp.down_proj.weight": (width, shape.feed_forward),
    }
    if family.norms != "after":
        found |= {"input_layernorm.weight": (width,), "post_attention_layernorm.weight": (width,)}
    if family.norms != "before":
        found |= {"attention_output_norm.weight": (width,), "mlp_output_norm.weight": (width,)}
    if rule.taps is not None:
        return found | {"conv.in_proj.weight": (3 * width, width), "conv.conv.weight": (width, rule.taps), "conv.out_proj.weight": (width, width)}
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        found[f"self_attn.{name}_proj.weight"] = (rows, width)
        if family.biases:
            found[f"self_attn.{name}_proj.bias"] = (rows,)
        if family.head_norms and name != "v":
            found[f"self_attn.{name}_norm.weight"] = (rows if family.head_norms == "all" else shape.head_width,)
    return found | {"self_attn.o_proj.weight": (width, queries)}


def traits(fields: Fields, shape: Shape, factors: dict[str, torch.Tensor]) -> Traits:
    """What a model's files say, with the defaults of its family; `factors` are GGUF's tensors of rotations."""
    arch, family = fields.arch, FAMILIES[fields.arch]
    activation = "gelu_pytorch_tanh" if family.gelu else "silu"
    said = fields(None, "hidden_activation", fields(None, "hidden_act", activation))
    require(said == activation, f"`{fields.path}` has the activation `{said}`; expected `{activation}`, that of {arch}")
    rotations = [rotation.read(fields, factors, shape)]
    turned = 2 * len(rotations[0].frequencies)
    require(turned == shape.head_width or not family.paired, f"`{fields.path}` turns {turned} elements of a head; expected all {shape.head_width}")
    windows = _windows(fields, shape.layers)
    rules = [Rule(window=window or None) for window in windows]
    scale = shape.head_width
    if arch.startswith("gemma"):
        # GGUF files do not say how scores are scaled; the largest model alone has another rule.
        is_largest = shape.layers == {"gemma2": 46, "gemma3": 62}[arch]
        scale = fields(None, "query_pre_attn_scalar", shape.width / shape.heads if fields.is_gguf and is_largest else scale)
    if arch == "gemma3":
        local = rotation.rope_parameters(fields, "sliding_attention").get("rope_theta")
        local = fields("rope.freq_base_swa", "rope_local_base_freq", 10000.0) if fields.is_gguf or local is None else local
        rotations.append(Rotation(rotation.plain_frequencies(shape.head_width, local)))
        rules = [Rule(rotation=int(window is not None), window=window or None) for window in windows]
    if arch == "smollm3":
        interval = fields(None, "no_rope_layer_interval", 4)
        turns = fields(None, "no_rope_layers", None) or [(layer + 1) % interval for layer in range(shape.layers)]
        rules = [Rule(rotation=0 if turns[layer] else None, window=rule.window) for layer, rule in enumerate(rules)]
    if arch == "lfm2":
        taps = fields("shortconv.l_cache", "conv_L_cache")
        rules = [rule if attends else Rule(taps=taps) for rule, attends in zip(rules, _attending(fields, shape.layers), strict=True)]
    return Traits(
        tuple(rotations), tuple(rules),
        score_scale=fields("attention.scale", "attention_multiplier", scale**-0.5),
        gelu=family.gelu,
        embedding_scale=shape.width**0.5 if arch.startswith("gemma") else fields("embedding_scale", "embedding_multiplier", 1.0),
        residual_scale=fields("residual_scale", "residual_multiplier", 1.0),
        score_cap=fields("attn_logit_softcapping", "attn_logit_softcapping", None),
        logit_scale=1 / fields("logit_scale", "logits_scaling", 1.0),
        logit_cap=fields("final_logit_softcapping", "final_logit_softcapping", None),
    )


def _windows(fields: Fields, layers: int) -> list[int | None]:
    """Windows of layers: None where a layer is of a kind that has none, 0 where it would have one and the model has none."""
    asked = fields(None, "use_sliding_window", False)
    first, pattern = fields(None, "max_window_layers", 0), fields(None, "sliding_window_pattern", 6)
    has_window = {
        # The window of a folder that calls itself llama means nothing.
        "llama": lambda layer: fields(None, "model_type", "") != "llama",
        "phi3": lambda layer: True,
        "gemma2": lambda layer: layer % 2 == 0,
        "gemma3": lambda layer: (layer + 1) % pattern != 0,
        **dict.fromkeys(("qwen2", "qwen3", "smollm3"), lambda layer: asked and layer >= first),
    }.get(fields.arch)
    if has_window is None:
        return [None] * layers
    kinds = fields(None, "layer_types", None)
    if kinds is not None and (asked or fields.arch not in ("qwen2", "qwen3", "smollm3")):
        strange = set(kinds) - {"full_attention", "sliding_attention"}
        require(not strange and len(kinds) == layers, f"`{fields.path}` has layers of the kinds {kinds}; expected {layers}, each full_attention or sliding_attention")
        has_window = lambda layer: kinds[layer] == "sliding_attention"  # noqa: E731
    window = fields("attention.sliding_window", "sliding_window", 0)
    return [window if has_window(layer) else None for layer in range(layers)]


def _attending(fields: Fields, layers: int) -> list[bool]:
    """Which layers of an LFM 2 attend; the others have a convolution."""
    if fields.is_gguf:
        return [heads > 0 for heads in fields("attention.head_count_kv", None)]
    indices = fields(None, "full_attn_idxs", range(layers))
    kinds = fields(None, "layer_types", ["full_attention" if layer in indices else "conv" for layer in range(layers)])
    return [kind == "full_attention" for kind in kinds]
