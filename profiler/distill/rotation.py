"""Rotary positions: frequencies as files state them, and how rows turn by them."""

import math
from dataclasses import dataclass

import torch

from .refusal import require


@dataclass(frozen=True)
class Rotation:
    """`frequencies` [R / 2] are angles by position of the first R elements of a head, those beyond do not turn; cosines and sines are
    multiplied by `gain`. Contexts of more than `original` positions have the `long` frequencies, if there are any."""

    frequencies: torch.Tensor
    gain: float = 1.0
    long: torch.Tensor | None = None
    original: int = 0

    def turns(self, positions: torch.Tensor, context: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [..., R] of positions [...] in a context of so many positions."""
        is_long = self.long is not None and context > self.original
        return rotation(positions, self.long if is_long else self.frequencies, self.gain)


def plain_frequencies(width: int, theta: float) -> torch.Tensor:
    """Frequencies [R / 2] of R elements that nothing stretches."""
    return theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def rotation(positions: torch.Tensor, frequencies: torch.Tensor, gain: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [..., R], times `gain`, of positions [...] by frequencies [R / 2]; halves alike as Hugging Face has them."""
    angles = positions.double().unsqueeze(-1) * frequencies.to(positions.device)
    angles = torch.cat((angles, angles), -1)
    return gain * angles.cos().float(), gain * angles.sin().float()


def rotate(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """x [..., E] with its first R elements rotated, the first half of them with the second."""
    x = x.float()
    turned, rest = x[..., : cosines.shape[-1]], x[..., cosines.shape[-1] :]
    first, second = turned.chunk(2, -1)
    turned = turned * cosines + torch.cat((-second, first), -1) * sines
    return torch.cat((turned, rest), -1) if rest.shape[-1] else turned


def read(fields, factors: dict[str, torch.Tensor], shape) -> Rotation:
    """The rotation that a model's `fields` and tensors of `factors` (GGUF's, by which frequencies are divided) describe."""
    partial = fields(None, "partial_rotary_factor", rope_parameters(fields).get("partial_rotary_factor", 1.0))
    width = fields("rope.dimension_count", None, int(shape.head_width * partial))
    scaling = _of_gguf(fields, factors, shape) if fields.is_gguf else _of_folder(fields)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    found = _stretched(kind, scaling, shape, plain_frequencies(width, shape.rope_theta), fields.path)
    if "rope_freqs" in factors:
        found = Rotation(_divided(found.frequencies, factors["rope_freqs"], fields.path), found.gain)
    return found


def rope_parameters(fields, kind: str = "full_attention") -> dict:
    """What newer config.json files say of rotations; of several, that of layers of this kind."""
    found = fields(None, "rope_parameters", {})
    return found.get(kind, found)


def _of_folder(fields) -> dict:
    found = {**fields(None, "rope_scaling", {}), **rope_parameters(fields)}
    found["original"] = fields(None, "original_max_position_embeddings", found.get("original_max_position_embeddings"))
    return found


def _of_gguf(fields, factors: dict[str, torch.Tensor], shape) -> dict:
    kind, factor = fields("rope.scaling.type", None, "none"), fields("rope.scaling.factor", None, 1.0)
    found = {"rope_type": kind, "factor": factor, "original": fields("rope.scaling.original_context_length", None, shape.context)}
    attention = fields("rope.scaling.attn_factor", None, 0.0)
    if "rope_factors_long" in factors:
        return {**found, "rope_type": "longrope", "attention_factor": attention,
                **{f"{name}_factor": factors[f"rope_factors_{name}"].tolist() for name in ("long", "short")}}
    # Without the gain, which the file's factor multiplies.
    found["attention_factor"] = (0.1 * math.log(max(factor, 1.0)) + 1) * (attention or 1.0)
    found["beta_fast"] = fields("rope.scaling.yarn_beta_fast", None, 0.0)
    found["beta_slow"] = fields("rope.scaling.yarn_beta_slow", None, 0.0)
    return {**found, "rope_type": "none"} if kind == "longrope" else found


def _divided(plain: torch.Tensor, factors, path) -> torch.Tensor:
    factors = torch.as_tensor(factors, dtype=torch.float64)
    require(factors.shape == plain.shape, f"`{path}` has {len(factors)} factors of its rotation; expected {len(plain)}, half of what turns of a head")
    return plain / factors


def _stretched(kind: str, scaling: dict, shape, plain: torch.Tensor, path) -> Rotation:
    """A rotation made for longer contexts than it was trained with."""
    if kind in ("default", "none"):
        return Rotation(plain)
    known = ("linear", "llama3", "yarn", "longrope")
    require(kind in known, f"`{path}` stretches its rotation by `{kind}`; expected {', '.join(known)}")

    def number(name: str) -> float:
        found = scaling.get(name)
        require(isinstance(found, int | float) and found > 0, f"`{path}` stretches its rotation with a `{name}` of {found}; expected a number above 0")
        return found

    original = scaling.get("original") or shape.context
    if kind == "longrope":
        stretch = shape.context / original
        gain = scaling.get("attention_factor") or math.sqrt(1 + max(math.log(stretch), 0) / math.log(original))
        short, long = (_divided(plain, scaling.get(f"{name}_factor", []), path) for name in ("short", "long"))
        return Rotation(short, gain, long, original)
    factor = number("factor")
    if kind == "linear":
        return Rotation(plain / factor)
    if kind == "llama3":
        low, high = number("low_freq_factor"), number("high_freq_factor")
        turns = original * plain / (2 * math.pi)
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return Rotation(plain * kept + plain / factor * (1 - kept))

    # YaRN (Peng et al., 2023, section 3.2): what turns often is kept, what turns rarely is stretched.
    width = 2 * len(plain)

    def place(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(shape.rope_theta))

    first = max(math.floor(place(scaling.get("beta_fast") or 32)), 0)
    last = min(math.ceil(place(scaling.get("beta_slow") or 1)), width - 1)
    stretched = ((torch.arange(width // 2, dtype=torch.float64) - first) / max(last - first, 0.001)).clamp(0, 1)
    gain = scaling.get("attention_factor") or 0.1 * math.log(factor) + 1
    return Rotation(plain * (1 - stretched) + plain / factor * stretched, gain)
