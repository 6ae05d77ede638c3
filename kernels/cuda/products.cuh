// The products of every layout of weights that kernels are wanted for.
#pragma once

#include "routed.cuh"

// What is known of a piece takes registers: gated pairs of five bits, and of uneven steps, have none left for a second block.
#define YGG_PRODUCTS(name, Format, blocks, gated_blocks) YGG_LINEARS(name, Format) YGG_ROUTED(name, Format, blocks, gated_blocks)

// Which layouts kernels are wanted for: bits as in ygg_kernels::cuda::packing. All, where nothing else is said.
#ifndef YGG_LAYOUTS
#define YGG_LAYOUTS 2047
#endif

#if YGG_LAYOUTS & 1
YGG_PRODUCTS(bf16, ygg::Sixteen<false>, 2, 2)
#endif
#if YGG_LAYOUTS & 2
YGG_PRODUCTS(f16, ygg::Sixteen<true>, 2, 2)
#endif
#if YGG_LAYOUTS & 4
YGG_PRODUCTS(nibbles, ygg::Nibbles, 2, 2)
#endif
#if YGG_LAYOUTS & 64
YGG_PRODUCTS(centred, ygg::Centred, 2, 2)
#endif
#if YGG_LAYOUTS & 8
YGG_PRODUCTS(nibbles_wide, ygg::NibblesWide, 2, 2)
#endif
#if YGG_LAYOUTS & 128
YGG_PRODUCTS(fives_wide, ygg::FivesWide, 2, 1)
#endif
#if YGG_LAYOUTS & 16
YGG_PRODUCTS(bytes, ygg::Bytes, 2, 2)
#endif
#if YGG_LAYOUTS & 32
YGG_PRODUCTS(bytes_wide, ygg::BytesWide, 2, 2)
#endif
#if YGG_LAYOUTS & 256
YGG_PRODUCTS(floats, ygg::Floats, 2, 2)
#endif
#if YGG_LAYOUTS & 512
YGG_PRODUCTS(steps, ygg::Steps, 1, 1)
#endif
#if YGG_LAYOUTS & 1024
YGG_PRODUCTS(twos, ygg::Twos, 2, 2)
#endif
