"""What the families that can be distilled compute beside a plain llama, and how their files say it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .refusal import require

FAMILIES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3"}
"""The architecture that a GGUF file names, by the `model_type` of a Hugging Face folder."""

PAIRED = ("llama", "smollm3")
"""Architectures whose GGUF files rotate neighbours; the others' rotate the halves of a head, as Hugging Face's do."""

OPTIONAL = ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias", "self_attn.q_norm.weight", "self_attn.k_norm.weight")
"""Tensors of a layer that a plain llama lacks: biases of queries, keys and values, norms of each head's query and key."""

_EVERY = 4
"""SmolLM3 rotates nothing in every fourth layer, and its GGUF files do not say so."""


@dataclass(frozen=True)
class Traits:
    """`frequencies` [E / 2], angle by position; cosines and sines are multiplied by `gain`. Layers of `unrotated` rotate nothing. A row
    sees the `window` positions that end with its own; all if that is None."""

    frequencies: torch.Tensor
    gain: float = 1.0
    unrotated: frozenset[int] = frozenset()
    window: int | None = None


def plain_frequencies(head_width: int, theta: float) -> torch.Tensor:
    """Frequencies [E / 2] of a rotation that nothing stretches."""
    return theta ** -(torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)


def traits_of_folder(config: dict, head_width: int, theta: float, layers: int, folder) -> Traits:
    """Out of config.json."""
    scaling = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    frequencies, gain = _stretched(kind, scaling, config.get("max_position_embeddings"), head_width, theta, folder)
    family = config["model_type"]
    windowed = config.get("use_sliding_window", family == "mistral")
    require(family == "mistral" or not windowed, f"`{folder}` has a sliding window in some layers; expected one in none or in all")
    rotated = config.get("no_rope_layers")
    if family == "smollm3" and rotated is None:
        rotated = [(layer + 1) % config.get("no_rope_layer_interval", _EVERY) for layer in range(layers)]
    unrotated = frozenset(layer for layer, rotates in enumerate(rotated or []) if not rotates)
    return Traits(frequencies, gain, unrotated, config.get("sliding_window") if windowed else None)


def traits_of_gguf(value: Callable, arch: str, factors: torch.Tensor | None, head_width: int, theta: float, layers: int, path) -> Traits:
    """Out of a file's metadata, which `value(key, default)` reads, and its `rope_freqs`, by which frequencies are divided."""
    kind = value(f"{arch}.rope.scaling.type", "none")
    scaling = {"factor": value(f"{arch}.rope.scaling.factor", 1.0)}
    # Without the gain, which the file's factor multiplies.
    scaling["attention_factor"] = (0.1 * math.log(max(scaling["factor"], 1.0)) + 1) * value(f"{arch}.rope.scaling.attn_factor", 1.0)
    original = value(f"{arch}.rope.scaling.original_context_length", value(f"{arch}.context_length"))
    frequencies, gain = _stretched(kind, scaling, original, head_width, theta, path)
    if factors is not None:
        require(
            factors.shape == frequencies.shape,
            f"`{path}` has {len(factors)} factors of its rotation; expected {len(frequencies)}, half of a head",
        )
        frequencies = frequencies / factors.double()
    unrotated = range(_EVERY - 1, layers, _EVERY) if arch == "smollm3" else ()
    return Traits(frequencies, gain, frozenset(unrotated), value(f"{arch}.attention.sliding_window", 0) or None)


def _stretched(kind: str, scaling: dict, original: int, head_width: int, theta: float, path) -> tuple[torch.Tensor, float]:
    """Frequencies and gain of a rotation made for longer contexts than it was trained with."""
    plain = plain_frequencies(head_width, theta)
    if kind in ("default", "none"):
        return plain, 1.0
    require(kind in ("linear", "llama3", "yarn"), f"`{path}` stretches its rotation by `{kind}`; expected linear, llama3 or yarn")

    def number(name: str) -> float:
        found = scaling.get(name)
        require(isinstance(found, int | float) and found > 0, f"`{path}` stretches its rotation with a `{name}` of {found}; expected a number above 0")
        return found

    factor = number("factor")
    if kind == "linear":
        return plain / factor, 1.0
    original = scaling.get("original_max_position_embeddings") or original
    if kind == "llama3":
        low, high = number("low_freq_factor"), number("high_freq_factor")
        turns = original * plain / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return plain * kept + plain / factor * (1 - kept), 1.0

    # YaRN (Peng et al., 2023, section 3.2): what turns often is kept, what turns rarely is stretched.
    def place(turns: float) -> float:
        return head_width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(place(scaling.get("beta_fast") or 32)), 0)
    last = min(math.ceil(place(scaling.get("beta_slow") or 1)), head_width - 1)
    stretched = ((torch.arange(head_width // 2, dtype=torch.float64) - first) / max(last - first, 0.001)).clamp(0, 1)
    gain = scaling.get("attention_factor") or 0.1 * math.log(factor) + 1
    return plain * (1 - stretched) + plain / factor * stretched, gain
