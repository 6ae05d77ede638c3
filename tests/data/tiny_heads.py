"""What the scripts of `eagle3` and `block` share: random weights that every format holds exactly, the rotations and norms
of a small head, the verifier's rows, and how a head is written beside what PyTorch computes with it."""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

TEXT_TOKENS = 24
CANDIDATES = 8
EPS = 1e-5
FAMILIES = Path(__file__).resolve().parent / "families"


def exact(values):
    """The nearest values that BF16 and F16 both represent."""
    values = values.to(torch.bfloat16).to(torch.float32)
    return torch.where(values.abs() < 2.0**-16, torch.zeros_like(values), values)


def short(values):
    return [float(f"{value:.7g}") for value in values]


class TinyHead:
    """Sizes, weights by name in `w`, and the arithmetic that heads of all layouts have."""

    def __init__(self, spec, config, seed, heads, kv_heads):
        self.generator = torch.Generator().manual_seed(seed)
        self.spec, self.target_width, self.vocabulary = spec, config["hidden_size"], config["vocab_size"]
        self.width = spec.get("width", self.target_width)
        self.heads, self.kv_heads, self.head_dim, self.ff = heads, kv_heads, 16, 48
        self.draft = spec.get("draft", self.vocabulary)
        self.w = {}

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def matrix(self, rows, columns, gain=1.0):
        return exact(gain * self.normal(rows, columns) / math.sqrt(columns))

    def vector(self, length, mean=1.0, deviation=0.25):
        return exact(mean + deviation * self.normal(length))

    def choose_tokens(self):
        """Which tokens the head is over, after all weights: in order unless it says otherwise."""
        order = torch.randperm(self.vocabulary, generator=self.generator)[: self.draft]
        self.tokens = order if self.spec.get("shuffled") else order.sort().values

    def mapping(self):
        """The tensors that say which tokens the head is over."""
        among = torch.zeros(self.vocabulary, dtype=torch.bool)
        among[self.tokens] = True
        return {"d2t": self.tokens - torch.arange(self.draft), "t2d": among}

    def rotation(self):
        """Angle per position of each pair of a head."""
        size = self.head_dim
        angles = [10000.0 ** (-2.0 * i / size) for i in range(size // 2)]
        scaling = self.spec.get("rope_scaling")
        if scaling is None:
            return torch.tensor(angles)
        original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]

        def scaled(angle):
            turns = original * angle / (2.0 * math.pi)
            share = min(max((turns - low) / (high - low), 0.0), 1.0)
            return share * angle + (1.0 - share) * angle / factor

        return torch.tensor([scaled(angle) for angle in angles])

    def normed(self, x, gain):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.w[gain]

    def rotated(self, x, positions):
        """Heads turned by halves."""
        angles = positions[:, None] * self.rotation()
        cos, sin = torch.cat([angles.cos()] * 2, -1)[:, None], torch.cat([angles.sin()] * 2, -1)[:, None]
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


def streams(model, ids):
    """The residual stream `[layers + 1, tokens, D]` before every layer and after the last."""
    found, layers = {}, model.model.layers

    def before(number):
        return lambda _, args, kwargs: found.__setitem__(number, args[0] if args else kwargs["hidden_states"])

    def after(_, __, output):
        found[len(layers)] = output[0] if isinstance(output, tuple) else output

    hooks = [layer.register_forward_pre_hook(before(i), with_kwargs=True) for i, layer in enumerate(layers)]
    hooks.append(layers[-1].register_forward_hook(after))
    with torch.no_grad():
        model(torch.tensor([ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.stack([found[i].reshape(len(ids), -1).float() for i in range(len(layers) + 1)])


def make(head_class, out, spec, seed, shown_places):
    """Writes one head, and what it drafts: `head_class.expected` gives that, and all logits in their order."""
    folder = FAMILIES / spec["verifier"]
    config = json.loads((folder / "config.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, config["vocab_size"], (TEXT_TOKENS,), generator=generator).tolist()
    head = head_class(spec, config, seed)
    rows = torch.cat(list(streams(model, ids)[torch.tensor(spec["layers"])]), -1)
    # As a module's weight, before what the model itself multiplies it by.
    table = head.w.get("embed_tokens.weight", model.get_input_embeddings().weight.detach().float())
    drafted, all_logits = head.expected(model, table, ids, rows)
    margins = [a - b for logits in all_logits for a, b in zip(logits, logits[1:])]
    print(f"{out.name}: {sum(m > 0.01 for m in margins)} of {len(margins)} margins over 0.01")
    out.mkdir(exist_ok=True)
    save_file(head.tensors(), out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(head.config(spec["verifier"]), indent=1) + "\n")
    if spec.get("gguf"):
        head.write_gguf(out / "model.gguf")
    expected = dict(verifier=spec["verifier"], layers=spec["layers"], token_ids=ids,
                    rows=[dict(place=place, row=short(rows[place].tolist())) for place in shown_places], **drafted)
    (out / "expected.json").write_text(json.dumps(expected) + "\n")


def make_all(head_class, here, specs, first_seed, shown_places):
    """Those that the command names, or all."""
    for number, (name, spec) in enumerate(specs.items()):
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            make(head_class, here / name, spec, first_seed + number, shown_places)
