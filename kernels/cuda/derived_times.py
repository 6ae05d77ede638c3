#!/usr/bin/env python3
"""Derives what forwards of a 7B model would take on an H200 from counted instructions and bytes. Nothing here is measured.

usage: derived_times.py CUOBJDUMP IMAGE

Prints T(W) by width, in BF16 and Q4_0, with what each resource alone would take. A product takes as long as its slowest resource; blocks of
wide products run in whole waves, one to a multiprocessor. docs/gpu.md says what is assumed.
"""
import math
import sys

from machine_code import instructions_of_tile, read

# Outputs and inputs of the products of a layer, and whether they are a gated pair; the head.
LAYERS, LAYER, HEAD = 32, [(12288, 4096, False), (4096, 4096, False), (22016, 4096, True), (4096, 11008, False)], (32000, 4096, False)
# Bytes a second of memory as its vendor names it, the share of it that plain copies reach, and of the second cache: twice the memory's.
MEMORY, REACHED, CACHE = 4.8e12, 0.9, 9.6e12
MULTIPROCESSORS, CLOCK = 132, 1.75e9
# Cycles of a quarter's tensor core for a product of 16 x 16 x 8: half of the rate that a vendor names for other instructions.
PRODUCT_CYCLES = 8
# Seconds from the end of a kernel to the work of the next, and of the longest chain of an attention over 200 places.
BOUNDARY, ATTENTION = 1e-6, 2e-6
LAYOUTS = {"BF16": ("bf16", 2.0), "Q4_0": ("centred", 0.5625)}


def of_product(facts, layout, bytes, width, outputs, inputs, is_gated):
    """Seconds by resource."""
    rows = max(8, 1 << (width - 1).bit_length())
    kernel = f"ygg_{'gated' if is_gated else 'linear'}_{layout}_w{rows}"
    instructions = instructions_of_tile(kernel, facts["sm_90a", kernel])
    weights = outputs * inputs * bytes
    if rows == 8:
        asked, waves = outputs / (32 if is_gated else 16) * inputs * width * 2, 1
    else:
        blocks = math.ceil(outputs / 128)
        pairs = 1 if blocks >= 240 else 4
        asked = blocks * inputs * rows * 2 + (8 * pairs * outputs * rows if pairs > 1 else 0)
        waves = math.ceil(blocks * pairs / MULTIPROCESSORS) * MULTIPROCESSORS / (blocks * pairs)
    cycles = outputs / 16 * inputs / 64 / (4 * MULTIPROCESSORS * CLOCK) * waves
    return {
        "memory": weights / (MEMORY * REACHED) * waves,
        "cache": (weights + asked) / CACHE,
        "issue": instructions * cycles,
        "tensor cores": rows / 2 * PRODUCT_CYCLES * cycles,
    }


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    facts = read(*sys.argv[1:])
    for name, (layout, bytes) in LAYOUTS.items():
        floor = sum(n * k for n, k, _ in LAYER * LAYERS + [HEAD]) * bytes / MEMORY
        of_one = None
        for width in (1, 2, 4, 8, 16, 32, 64):
            products = [of_product(facts, layout, bytes, width, *product) for product in LAYER * LAYERS + [HEAD]]
            kernels = (8 if width <= 8 else 12) * LAYERS + 3
            total = sum(max(times.values()) for times in products) + kernels * BOUNDARY + LAYERS * ATTENTION * max(1, width / 32)
            of_one = of_one or total
            alone = ", ".join(f"{resource} {sum(times[resource] for times in products) * 1e3:.2f}" for resource in products[0])
            print(f"{name} W {width}: {total * 1e3:.2f} ms, {total / of_one:.2f} T(1), {floor / total:.0%} of {MEMORY / 1e12} TB/s ({alone})")


if __name__ == "__main__":
    main()
