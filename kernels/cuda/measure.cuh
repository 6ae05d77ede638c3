// What bounds every kernel: reading memory, multiplying in registers, being launched.
#pragma once

#include "common.cuh"

// grid: any
YGG_KERNEL(ygg_read, YggRead, YGG_ROW_THREADS) {
    const Words4* data = static_cast<const Words4*>(p.data);
    u32 all = 0;
    const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
    for (u64 i = static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count; i += stride) {
        const Words4 v = load_streamed(data + i);
        all |= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (all == 0xfedcba98u && p.sink[0] == 1) p.sink[1] = all;
}

// grid: any. 8 chains of fused multiply-adds.
YGG_KERNEL(ygg_multiply_adds, YggMultiply, YGG_ROW_THREADS) {
    float x[8];
    for (u32 i = 0; i < 8; ++i) x[i] = static_cast<float>(threadIdx.x + i);
    for (u32 round = 0; round < p.rounds; ++round)
        for (u32 i = 0; i < 8; ++i) x[i] = fma_rn(x[i], 0.999f, 0.5f);
    float sum = 0.0f;
    for (u32 i = 0; i < 8; ++i) sum = add_rn(sum, x[i]);
    if (sum == -1.0f) p.sink[0] = 1;
}

// grid: 1
YGG_KERNEL(ygg_nothing, YggMultiply, YGG_WARP) {
    if (p.rounds == 0xffffffffu) p.sink[0] = 1;
}
