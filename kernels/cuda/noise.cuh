// Gumbel noise of tokens: `ygg_kernels::noise` says what, to the last bit. Every product and sum is rounded by itself,
// in double precision.
#pragma once

#include "candidates.cuh"

namespace ygg {

// The noise of one place of a text.
struct NoiseKey {
    u32 words[4];
};

// Philox4x32-10 of the place, under the seed.
YGG_DEVICE NoiseKey noise_key(const YggNoise& noise, u32 position) {
    const u64 place = static_cast<u64>(position) + index(noise.first);
    NoiseKey c = {{static_cast<u32>(place), static_cast<u32>(place >> 32), 0, 0}};
    u32 low = noise.seed[0], high = noise.seed[1];
#pragma unroll
    for (u32 round = 0; round < 10; ++round) {
        const u64 a = static_cast<u64>(0xD2511F53u) * c.words[0], b = static_cast<u64>(0xCD9E8D57u) * c.words[2];
        c = {{static_cast<u32>(b >> 32) ^ c.words[1] ^ low, static_cast<u32>(b), static_cast<u32>(a >> 32) ^ c.words[3] ^ high,
              static_cast<u32>(a)}};
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return c;
}

YGG_DEVICE u32 noise_hash(u32 token, u32 a, u32 b) {
    u32 x = token * 0x9E3779B9u + a;
    x = (x ^ (x >> 16)) * 0x21F0AAADu;
    x = ((x ^ (x >> 15)) + b) * 0xD35A2D97u;
    return x ^ (x >> 15);
}
// The upper half of a token's bits, and all of them.
YGG_DEVICE u32 noise_upper(const NoiseKey& key, u32 token) { return noise_hash(token, key.words[0], key.words[1]); }
YGG_DEVICE u64 noise_bits(const NoiseKey& key, u32 token) {
    return static_cast<u64>(noise_upper(key, token)) << 32 | noise_hash(token, key.words[2], key.words[3]);
}

// 2 atanh(s) for |s| < 0.172.
YGG_DEVICE double twice_atanh(double s) {
    const double square = mul_rn(s, s);
    double sum = mul_rn(1.0 / 21.0, square);
    sum = mul_rn(add_rn(sum, 1.0 / 19.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 17.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 15.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 13.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 11.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 9.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 7.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 5.0), square);
    sum = mul_rn(add_rn(sum, 1.0 / 3.0), square);
    return mul_rn(2.0, add_rn(s, mul_rn(s, sum)));
}

// ln(x) of a positive, normal number.
YGG_DEVICE double ln_normal(double x) {
    const u64 half_root = 0x3FE6A09E00000000ull;
    const u64 bits = double_to_bits(x) - half_root;
    const double exponent = static_cast<double>(static_cast<i32>(static_cast<u32>(bits >> 32)) >> 20);
    const double m = bits_to_double((bits & 0xFFFFFFFFFFFFFull) + half_root);
    const double f = add_rn(m, -1.0);
    const double low = mul_rn(exponent, bits_to_double(0x3DEA39EF35793C76ull));
    return add_rn(mul_rn(exponent, bits_to_double(0x3FE62E42FEE00000ull)), add_rn(twice_atanh(divide(f, add_rn(2.0, f))), low));
}

// The noise of random bits, -ln(-ln(1 - v)).
YGG_DEVICE double gumbel(u64 bits) {
    // 2^-64, and the last number before 1.
    const double unit = bits_to_double(0x3BF0000000000000ull), most = bits_to_double(0x3FEFFFFFFFFFFFFFull);
    double v = mul_rn(add_rn(static_cast<double>(bits), 0.5), unit);
    v = v < most ? v : most;
    const double exponential = v < 0.25 ? -twice_atanh(divide(-v, add_rn(2.0, -v))) : -ln_normal(add_rn(1.0, -v));
    return -ln_normal(exponential);
}

// The score of a logit without its noise.
YGG_DEVICE double score(float logit, float largest, float temperature) {
    if (logit == largest) return 0.0;
    return divide(add_rn(static_cast<double>(logit), -static_cast<double>(largest)), static_cast<double>(temperature));
}

} // namespace ygg

// grid: ranges, rows; a warp each. Logits become values under noise, of which candidates are then the best.
YGG_KERNEL(ygg_noise, YggNoisyRows, YGG_WARP) {
    wait_for_kernels_before();
    let_next_kernel_begin();
    if (ygg::is_skipped(p.step)) return;
    using namespace ygg;
    const u32 row = blockIdx.y, end = smaller((blockIdx.x + 1) * RANGE, p.logits.columns);
    float* logits = row_of(p.logits, row);
    const NoiseKey key = noise_key(*p.noise, p.positions[index(row)]);
    const float inverse = p.noise->inverse;
    for (u32 i = blockIdx.x * RANGE + lane(); i < end; i += WARP) {
        const u32 token = p.names ? p.names[index(i)] : i;
        logits[i] = add_rn(mul_rn(logits[index(i)], inverse), static_cast<float>(gumbel(noise_bits(key, token))));
    }
}
