"""A llama of random weights with a vocabulary of bytes, small enough for tests."""

import random

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from ..checkpoint import Checkpoint
from ..family import FAMILIES, Shape, Traits
from ..vocabulary import Vocabulary

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def vocabulary() -> Vocabulary:
    """A token for every byte, and three that structure turns."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({text: id for id, text in enumerate([*CONTROL, *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in CONTROL])
    return Vocabulary(tokenizer, TEMPLATE, {2}, "", "<|im_end|>")


def checkpoint(seed: int = 1, layers: int = 3) -> Checkpoint:
    """A few layers, heads that share keys, a tied head."""
    words = vocabulary()
    shape = Shape(layers=layers, width=32, heads=4, kv_heads=2, head_width=8, feed_forward=48, vocabulary=words.size, context=256,
                  epsilon=1e-5, rope_theta=10000.0)
    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn((rows, columns), generator=draw) * columns**-0.5

    def gain() -> torch.Tensor:
        return 1 + 0.1 * torch.randn(32, generator=draw)

    tensors = {"model.embed_tokens.weight": 2 * matrix(shape.vocabulary, 32), "model.norm.weight": 2 * gain()}
    for number in range(shape.layers):
        tensors.update({f"model.layers.{number}.{name}.weight": tensor for name, tensor in {
            "input_layernorm": gain(), "self_attn.q_proj": 2 * matrix(32, 32), "self_attn.k_proj": 2 * matrix(16, 32),
            "self_attn.v_proj": matrix(16, 32), "self_attn.o_proj": matrix(32, 32), "post_attention_layernorm": gain(),
            "mlp.gate_proj": matrix(48, 32), "mlp.up_proj": matrix(48, 32), "mlp.down_proj": matrix(32, 48),
        }.items()})
    return Checkpoint("tiny", "none", shape, Traits.llama(shape), FAMILIES["llama"], tensors, vocabulary)


def text(length: int, seed: int = 1) -> list[int]:
    """Random ids that are no control tokens."""
    draw = random.Random(seed)
    return [draw.randrange(3, 259) for _ in range(length)]
