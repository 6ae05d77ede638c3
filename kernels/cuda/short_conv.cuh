// Short convolutions along the logical sequence of every row.
#pragma once

#include "common.cuh"

// grid: blocks of channels. A thread has one channel of all rows: what rows keep is there before a row of the same forward reads it.
YGG_KERNEL(ygg_short_conv, YggShortConv, YGG_ROW_THREADS) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    const u32 channels = p.out.columns, c = blockIdx.x * blockDim.x + threadIdx.x;
    if (is_skipped(p.step) || c >= channels) return;
    for (u32 w = 0; w < p.out.rows; ++w) {
        const float* x = row_of(p.x, w);
        const u32 slot = p.slots[index(w)];
        if (slot != YGG_NO_SLOT) p.kept[static_cast<u64>(slot) * channels + c] = mul_rn(x[c], x[index(2 * channels + c)]);
    }
    const float* taps = p.taps + static_cast<u64>(c) * p.tap_count;
    for (u32 w = 0; w < p.out.rows; ++w) {
        const float* x = row_of(p.x, w);
        const u32 prefix = p.prefix[index(w)], len = prefix + p.tail_len[index(w)];
        float sum = mul_rn(taps[index(p.tap_count - 1)], mul_rn(x[c], x[index(2 * channels + c)]));
        for (u32 back = 1; back < smaller(p.tap_count, len); ++back) {
            const u32 place = len - 1 - back;
            const u32* tail = p.tails + static_cast<u64>(w) * p.tail_capacity;
            const u32 slot = place < prefix ? place : tail[index(place - prefix)];
            sum = fma_rn(taps[index(p.tap_count - 1 - back)], p.kept[static_cast<u64>(slot) * channels + c], sum);
        }
        row_of(p.out, w)[c] = mul_rn(x[index(channels + c)], sum);
    }
}
