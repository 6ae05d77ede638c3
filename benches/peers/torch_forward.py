#!/usr/bin/env python3
"""Forwards of a 7B Llama in PyTorch, by width: random bf16 weights, a static cache, one captured CUDA graph for each width.

usage: benches/peers/torch_forward.py OUT.jsonl [--repetitions N] [--prefix N] [--context N]

What `yggc bench --kernels` measures of `yggc inspect --synthesize llama-7b`: products by cuBLAS, attention by PyTorch's fused kernels, 1 to 64
rows behind a prefix. No tokens are chosen on the host, so nothing but the device's time is in it. A line of OUT is a width, behind a header.
Needs torch.
"""

import argparse
import json
import statistics
import sys

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
HIDDEN, MLP, LAYERS, VOCABULARY, HEADS = 4096, 11008, 32, 32000, 32


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--prefix", type=int, default=200, help="places that are in the cache")
    parser.add_argument("--context", type=int, default=1024, help="slots of the cache")
    given = parser.parse_args()
    if given.repetitions < 1 or given.prefix < 0 or given.prefix + max(WIDTHS) > given.context:
        parser.error(f"expected a repetition or more, and a context of {max(WIDTHS)} places more than the prefix")
    return given


class Llama:
    """Weights and cache; `forward` gives the best token of every row."""

    def __init__(self, torch, context):
        self.torch = torch
        weight = lambda *shape: torch.randn(*shape, device="cuda") * 0.02
        ones = lambda: torch.ones(HIDDEN, device="cuda")
        self.layers = [
            (weight(3 * HIDDEN, HIDDEN), weight(HIDDEN, HIDDEN), weight(2 * MLP, HIDDEN), weight(HIDDEN, MLP), ones(), ones())
            for _ in range(LAYERS)
        ]
        self.head, self.embedding = weight(VOCABULARY, HIDDEN), weight(VOCABULARY, HIDDEN)
        self.keys = torch.zeros(LAYERS, 1, HEADS, context, HIDDEN // HEADS, device="cuda")
        self.values = torch.zeros_like(self.keys)

    def forward(self, tokens, positions, mask):
        nn = self.torch.nn.functional
        rows, x = tokens.shape[0], self.embedding[tokens]
        for i, (qkv, out, gate_up, down, before, behind) in enumerate(self.layers):
            q, k, v = nn.linear(nn.rms_norm(x, (HIDDEN,), before), qkv).view(rows, 3, HEADS, HIDDEN // HEADS).unbind(1)
            self.keys[i, 0].index_copy_(1, positions, k.transpose(0, 1))
            self.values[i, 0].index_copy_(1, positions, v.transpose(0, 1))
            seen = nn.scaled_dot_product_attention(q.transpose(0, 1)[None], self.keys[i], self.values[i], attn_mask=mask)
            x = x + nn.linear(seen[0].transpose(0, 1).reshape(rows, HIDDEN), out)
            gate, up = nn.linear(nn.rms_norm(x, (HIDDEN,), behind), gate_up).chunk(2, -1)
            x = x + nn.linear(nn.silu(gate) * up, down)
        return nn.linear(x, self.head).argmax(-1)


def milliseconds(torch, replay, repetitions):
    """Of every replay, by the device's clock."""
    times = []
    for _ in range(repetitions + 3):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        replay()
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended))
    # The first ones are for whatever happens once.
    return times[3:]


def main():
    given = options()
    import torch

    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU: expected one; see nvidia-smi")
    with torch.inference_mode(), open(given.out, "x") as out:
        side = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        other = torch.empty_like(side)
        copies = milliseconds(torch, lambda: other.copy_(side), 20)
        del side, other
        header = {"measure": "header", "script": "torch_forward", "torch": torch.__version__, "device": torch.cuda.get_device_name()}
        header |= {"options": vars(given), "copy_gb_per_s": 2 * (2 << 30) / statistics.median(copies) / 1e6}
        print(json.dumps(header), file=out, flush=True)
        torch.set_default_dtype(torch.bfloat16)
        llama = Llama(torch, given.context)
        for rows in WIDTHS:
            tokens = torch.zeros(rows, dtype=torch.long, device="cuda")
            positions = torch.arange(given.prefix, given.prefix + rows, device="cuda")
            mask = torch.arange(given.context, device="cuda")[None, :] <= positions[:, None]
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(2):
                    llama.forward(tokens, positions, mask)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                llama.forward(tokens, positions, mask)
            times = milliseconds(torch, graph.replay, given.repetitions)
            print(json.dumps({"rows": rows, "ms": statistics.median(times), "all_ms": times}), file=out, flush=True)
            print(f"{rows:3} rows {statistics.median(times):8.3f} ms")


if __name__ == "__main__":
    main()
