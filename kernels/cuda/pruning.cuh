// Pruning of draft trees where they grew: from a draft phase to its verification nothing of the host is needed.
#pragma once

#include "growth.cuh"

// grid: 1. The best nodes (Yggdrasil, arXiv 2512.23858, verification-width pruning): a step down a path adds a logarithm of at most 0, so none is
// worth more than its parent, and they are connected. A node is kept if few enough are better: trees are small, so counting needs no sort. Begun when all before it has ended: there is nothing to wait for.
YGG_KERNEL(ygg_prune, YggPrune, YGG_MERGE_THREADS) {
    using namespace ygg;
    let_next_kernel_begin();
    const YggTree& tree = p.tree;
    const u32 nodes = tree.counts[0], committed = p.next.slots[0];
    for (u32 node = threadIdx.x; node < nodes; node += blockDim.x) {
        u32 better = 0;
        for (u32 other = 0; other < nodes; ++other) better += is_better(tree.scores[index(other)], other, tree.scores[node], node);
        p.is_kept[node] = better < p.width;
    }
    barrier();
    const u32 kept = nodes < p.width ? nodes : p.width;
    for (u32 node = threadIdx.x; node < nodes; node += blockDim.x) {
        u32 row = 0;
        for (u32 before = 0; before < node; ++before) row += p.is_kept[before];
        if (!p.is_kept[node]) continue;
        p.nodes[row] = node;
        write_row(p.next, row, tree, node, committed);
    }
    for (u32 w = kept + threadIdx.x; w < p.next.rows; w += blockDim.x) write_row(p.next, w, tree, NONE, committed);
    if (threadIdx.x == 0) p.count[0] = kept;
}
