// The noise of tokens as kernels compute it: of every line `seed place token` of numbers that is read, a line with the words of the
// key, the bits, and the noise, all hexadecimal.
#include "../noise.cuh"

#include <cstdio>

int main() {
    unsigned long long seed, place;
    unsigned token;
    while (std::scanf("%llu %llu %u", &seed, &place, &token) == 3) {
        // Positions and what they are counted from are apart.
        const u32 first = static_cast<u32>(place < 3 ? place : 3);
        const YggNoise noise{{static_cast<u32>(seed), static_cast<u32>(seed >> 32)}, first, 1.0f, 1.0f, 1.0f};
        const ygg::NoiseKey key = ygg::noise_key(noise, static_cast<u32>(place - first));
        const u64 bits = ygg::noise_bits(key, token);
        for (const u32 word : key.words) std::printf("%x ", word);
        std::printf("%llx %llx\n", bits, double_to_bits(ygg::gumbel(bits)));
    }
}
