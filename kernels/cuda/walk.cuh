// The walk through a verified tree where its candidates are, and the move of what it accepts: after a forward the host is not needed.
#pragma once

#include "candidates.cuh"

// grid: 1, a warp
YGG_KERNEL(ygg_walk, YggWalk, YGG_WARP) {
    using namespace ygg;
    wait_for_kernels_before();
    let_next_kernel_begin();
    u32 row = 0, count = 0;
    for (;;) {
        const float* candidates = row_of(p.candidates, row);
        // Nothing but NaN says 0, as everywhere.
        const u32 token = float_to_bits(candidates[0]) == 0 ? 0 : float_to_bits(candidates[index(1)]);
        if (lane() == 0) {
            p.path.rows[index(count)] = row;
            p.path.tokens[index(count)] = token;
        }
        count += 1;
        const u32 slot = p.slots[index(row)];
        u32 next = NONE;
        for (u32 w = row + 1 + lane(); w < p.candidates.rows; w += WARP) {
            const u32 len = p.tail_len[index(w)];
            if (len < 2 || p.tokens[index(w)] != token) continue;
            const u32* tail = p.tails + static_cast<u64>(w) * p.tail_capacity;
            if (tail[index(len - 2)] == slot) next = w;
        }
        for (u32 mask = WARP / 2; mask > 0; mask /= 2) next = smaller(next, shuffle_xor(next, mask));
        if (next == NONE) break;
        row = next;
    }
    if (lane() == 0) p.path.count[0] = count;
}

// grid: planes. A thread moves its bytes of every slot in order, so sources may lie among later destinations.
YGG_KERNEL(ygg_move_path, YggPathMoves, YGG_ROW_THREADS) {
    wait_for_kernels_before();
    u8* plane = p.cache + static_cast<u64>(blockIdx.x) * p.slots * p.slot_bytes;
    const u32 count = p.path.count[0], first = p.row_slots[0];
    for (u32 i = threadIdx.x; i < p.slot_bytes / 2; i += blockDim.x)
        for (u32 m = 1; m < count; ++m) {
            const u32 slot = p.row_slots[p.path.rows[index(m)]];
            const u16* from = reinterpret_cast<const u16*>(plane + static_cast<u64>(slot % p.slots) * p.slot_bytes);
            reinterpret_cast<u16*>(plane + static_cast<u64>((first + m) % p.slots) * p.slot_bytes)[i] = from[i];
        }
}
