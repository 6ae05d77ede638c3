// The part of CUDA that the kernels use, on a processor: a block is a team of fibers, one per thread, and every barrier and exchange is
// where they take turns. For correctness only: no timing from here means anything.
//
// What a GPU leaves undefined ends the program with a message: a barrier that not all threads reach, an exchange in a warp from which
// threads have left, a launch with more threads than the kernel was compiled for. Fibers run forwards, backwards, each as far as it gets before
// the next one runs, or in a seeded order (YGG_EMULATION_ORDER: `forwards`, `reversed`, `greedy`, or a number); results must not depend on it. YGG_EMULATION_WITHOUT=FILE:LINE leaves out
// the barrier or the wait for other kernels in that line, YGG_EMULATION_SHIFT=FILE:LINE makes the index in that line one too many (FILE:LINE+N: N too many),
// YGG_EMULATION_LATE=FILE:LINE lets the thread that waits for other kernels in that line go on at once: tests of the tests, which must notice.
//
// A kernel that is begun while others still run may find nothing that they wrote. So it is shown what came before them, and rubbish wherever
// they changed a byte, until all threads of its block wait or have ended; a thread that ends without having waited ends the program.
#pragma once

#include "../abi.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the emulation switches fibers on x86-64 and aarch64 only"
#endif

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
inline thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void ygg_emulation_switch(void** save, void* to);

namespace ygg_emulation {

[[noreturn]] inline void refuse(const char* what) {
    std::fprintf(stderr, "emulated CUDA: %s, block (%u, %u, %u), thread %u\n", what, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x);
    std::abort();
}

constexpr std::size_t STACK = 128 << 10;

// A thread of the emulated GPU.
struct Fiber {
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    unsigned number = 0;
    enum { RUNNING, AT_BARRIER, IN_WARP, AT_OTHER_KERNELS, DONE } state = RUNNING;
    bool has_waited = false;
    // Exchanges it has made, so that two of them do not share a buffer.
    unsigned exchanges = 0;
};

struct Warp {
    unsigned arrived = 0, left = 0;
    alignas(16) unsigned char slots[2][32][64];
};

// What a kernel must not see before it has waited: bytes that kernels before it changed. Between blocks they are as they are.
struct Unseen {
    struct Run {
        unsigned char* at;
        std::size_t bytes;
    };
    std::vector<Run> runs;
    std::vector<unsigned char> kept;
    bool is_hidden = false;

    void hide() {
        kept.clear();
        for (const Run& run : runs) {
            kept.insert(kept.end(), run.at, run.at + run.bytes);
            std::memset(run.at, 0xCB, run.bytes);
        }
        is_hidden = true;
    }
    void show() {
        const unsigned char* from = kept.data();
        for (const Run& run : runs) {
            std::memcpy(run.at, from, run.bytes);
            from += run.bytes;
        }
        is_hidden = false;
    }
};

struct Block {
    // None where all kernels before have ended.
    Unseen* unseen = nullptr;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    unsigned arrived = 0, done = 0;
    std::vector<unsigned char> dynamic;
    void* scheduler = nullptr;
    Fiber* current = nullptr;
    void (*body)(const void*) = nullptr;
    const void* params = nullptr;
};
inline thread_local Block* block = nullptr;

struct Stacks {
    std::vector<char*> all;
    ~Stacks() {
        for (char* stack : all) munmap(stack, STACK);
    }
    char* get(std::size_t i) {
        while (all.size() <= i) {
            void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (stack == MAP_FAILED) refuse("no memory for a stack");
            // An overflow ends the program instead of writing into the next stack.
            mprotect(stack, 4096, PROT_NONE);
            all.push_back(static_cast<char*>(stack));
        }
        return all[i];
    }
};
inline thread_local Stacks stacks;

#if defined(__SANITIZE_ADDRESS__)
inline thread_local const void* scheduler_stack = nullptr;
inline thread_local std::size_t scheduler_size = 0;
#endif

inline void to_scheduler([[maybe_unused]] bool is_last) {
    Fiber* fiber = block->current;
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(is_last ? nullptr : &fake, scheduler_stack, scheduler_size);
#endif
    ygg_emulation_switch(&fiber->stack_pointer, block->scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_size);
#endif
}

inline void resume(Fiber& fiber) {
    block->current = &fiber;
    threadIdx = {fiber.number, 0, 0};
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, fiber.stack, STACK);
    ygg_emulation_switch(&block->scheduler, fiber.stack_pointer);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    ygg_emulation_switch(&block->scheduler, fiber.stack_pointer);
#endif
}

inline void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
    block->body(block->params);
    Fiber* fiber = block->current;
    if (block->unseen && !fiber->has_waited) refuse("a thread ends that has not waited for the kernels before");
    fiber->state = Fiber::DONE;
    block->done += 1;
    block->warps[fiber->number / 32].left += 1;
    to_scheduler(true);
    std::abort();
}

// The order in which fibers take turns.
struct Order {
    enum { FORWARDS, REVERSED, GREEDY, SEEDED } kind = FORWARDS;
    unsigned seed = 0;
    static const Order& get() {
        static const Order order = [] {
            Order order;
            if (const char* wish = std::getenv("YGG_EMULATION_ORDER")) {
                const std::string_view name(wish);
                order.kind = name == "forwards" ? FORWARDS : name == "reversed" ? REVERSED : name == "greedy" ? GREEDY : SEEDED;
                order.seed = static_cast<unsigned>(std::atoi(wish));
            }
            return order;
        }();
        return order;
    }
};

// A line of the kernels that a test wants to be wrong.
struct Place {
    std::string file;
    int line = 0;
    unsigned by = 1;
    explicit Place(const char* variable) {
        const char* wish = std::getenv(variable);
        const std::string_view place(wish ? wish : "");
        const std::size_t colon = place.rfind(':');
        if (colon == place.npos) return;
        file = place.substr(0, colon);
        line = std::atoi(wish + colon + 1);
        if (const std::size_t plus = place.find('+'); plus != place.npos) by = static_cast<unsigned>(std::atoi(wish + plus + 1));
    }
    bool is(const char* path, int number) const {
        return number == line && std::string_view(path).ends_with("/" + file);
    }
};
inline const Place without("YGG_EMULATION_WITHOUT"), shifted("YGG_EMULATION_SHIFT"), late("YGG_EMULATION_LATE");

inline void block_barrier(const char* file, int line) {
    if (without.is(file, line)) return;
    Block& b = *block;
    if (b.done > 0) refuse("a barrier that some threads will never reach");
    b.current->state = Fiber::AT_BARRIER;
    b.arrived += 1;
    if (b.arrived == b.fibers.size()) {
        b.arrived = 0;
        for (Fiber& fiber : b.fibers) fiber.state = Fiber::RUNNING;
        return;
    }
    to_scheduler(false);
}

inline void other_kernels(const char* file, int line) {
    Block& b = *block;
    if (!b.unseen || without.is(file, line)) return;
    b.current->has_waited = true;
    if (!b.unseen->is_hidden || late.is(file, line)) return;
    b.current->state = Fiber::AT_OTHER_KERNELS;
    to_scheduler(false);
}

inline void warp_barrier() {
    Block& b = *block;
    const unsigned number = b.current->number / 32;
    Warp& warp = b.warps[number];
    if (warp.left > 0) refuse("an exchange in a warp that threads have left");
    b.current->state = Fiber::IN_WARP;
    warp.arrived += 1;
    if (warp.arrived == 32) {
        warp.arrived = 0;
        for (unsigned i = 0; i < 32; ++i) b.fibers[number * 32 + i].state = Fiber::RUNNING;
        return;
    }
    to_scheduler(false);
}

// Every lane shows a value; then all can see everyone's. Valid until the lane's next exchange but one.
template <class T> inline const unsigned char (*show(const T& value))[64] {
    static_assert(sizeof(T) <= 64);
    Fiber* fiber = block->current;
    auto& slots = block->warps[fiber->number / 32].slots[fiber->exchanges++ % 2];
    std::memcpy(slots[fiber->number % 32], &value, sizeof(T));
    warp_barrier();
    return slots;
}
template <class T> inline T seen(const unsigned char (*slots)[64], unsigned lane) {
    T value;
    std::memcpy(&value, slots[lane % 32], sizeof(T));
    return value;
}

inline void run_block(unsigned threads, std::size_t shared_bytes, void (*body)(const void*), const void* params, Unseen* unseen) {
    Block b;
    b.unseen = unseen;
    if (unseen) unseen->hide();
    b.fibers.resize(threads);
    b.warps.resize((threads + 31) / 32);
    // Whatever was there before is not zero.
    b.dynamic.assign(shared_bytes + 128, 0xCB);
    b.body = body;
    b.params = params;
    block = &b;
    std::vector<unsigned> turns(threads);
    std::iota(turns.begin(), turns.end(), 0);
    const Order& order = Order::get();
    if (order.kind == Order::REVERSED) std::reverse(turns.begin(), turns.end());
    for (unsigned i = 0; i < threads; ++i) {
        Fiber& fiber = b.fibers[i];
        fiber.number = i;
        fiber.stack = stacks.get(i);
        void** top = reinterpret_cast<void**>(fiber.stack + STACK);
#if defined(__x86_64__)
        *--top = nullptr;
        *--top = reinterpret_cast<void*>(fiber_main);
        for (int k = 0; k < 6; ++k) *--top = nullptr;
#else
        top -= 20;
        std::memset(top, 0, 20 * sizeof(void*));
        top[11] = reinterpret_cast<void*>(fiber_main); // x30
#endif
        fiber.stack_pointer = top;
    }
    std::mt19937 dice(order.seed * 7919 + blockIdx.x + 31 * blockIdx.y);
    while (b.done < threads) {
        bool goes_on = false;
        if (order.kind == Order::SEEDED) std::shuffle(turns.begin(), turns.end(), dice);
        for (unsigned i : turns) {
            if (b.fibers[i].state != Fiber::RUNNING) continue;
            goes_on = true;
            resume(b.fibers[i]);
            if (order.kind == Order::GREEDY) break;
        }
        if (goes_on || b.done == threads) continue;
        if (!unseen || !unseen->is_hidden) refuse("threads wait for each other for ever");
        unseen->show();
        for (Fiber& fiber : b.fibers)
            if (fiber.state == Fiber::AT_OTHER_KERNELS) fiber.state = Fiber::RUNNING;
    }
    if (unseen && unseen->is_hidden) unseen->show();
    block = nullptr;
}

// A kernel that a driver finds by its name.
struct Kernel {
    const char* name;
    std::size_t params_bytes;
    unsigned most_threads;
    void (*body)(const void*);
    Kernel* next;
    static inline Kernel* first = nullptr;
    Kernel(const char* name, std::size_t params_bytes, unsigned most_threads, void (*body)(const void*))
        : name(name), params_bytes(params_bytes), most_threads(most_threads), body(body), next(first) {
        first = this;
    }
    void launch(dim3 grid, unsigned threads, std::size_t shared_bytes, const void* params, Unseen* unseen) const {
        gridDim = grid;
        blockDim = {threads, 1, 1};
        for (unsigned z = 0; z < grid.z; ++z)
            for (unsigned y = 0; y < grid.y; ++y)
                for (unsigned x = 0; x < grid.x; ++x) {
                    blockIdx = {x, y, z};
                    run_block(threads, shared_bytes, body, params, unseen);
                }
    }
};

inline float half_value(std::uint16_t bits) {
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const std::uint32_t value = (bits & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : finite;
    return std::bit_cast<float>(value | (bits & 0x8000u) << 16);
}

// To nearest, ties to even.
inline std::uint16_t half_bits(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7fffu);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // Units of the smallest half: adding 2^23 of them leaves the nearest in the low bits.
        const float rounded = std::bit_cast<float>(magnitude) * 0x1p24f + 0x1p23f;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) & 0x7fffu));
    }
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline std::uint32_t bf16_bits(float x) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

} // namespace ygg_emulation

#define __device__
#define YGG_DEVICE inline
#define YGG_KERNEL(name, Params, threads) \
    static void name(const Params& p); \
    static const ygg_emulation::Kernel kernel_##name(#name, sizeof(Params), threads, \
                                                     [](const void* params) { name(*static_cast<const Params*>(params)); }); \
    static void name([[maybe_unused]] const Params& p)
#define YGG_KERNEL_OF_BLOCKS(name, Params, threads, blocks) YGG_KERNEL(name, Params, threads)
#define YGG_SHARED static thread_local
#define YGG_DYNAMIC_SHARED(Type, name) \
    Type* name = reinterpret_cast<Type*>((reinterpret_cast<std::uintptr_t>(ygg_emulation::block->dynamic.data()) + 63) & ~std::uintptr_t{63})

struct alignas(16) Words4 {
    u32 x, y, z, w;
};

YGG_DEVICE float bits_to_float(u32 bits) { return std::bit_cast<float>(bits); }
YGG_DEVICE u32 float_to_bits(float x) { return std::bit_cast<u32>(x); }
YGG_DEVICE float mul_rn(float a, float b) { return a * b; }
YGG_DEVICE float add_rn(float a, float b) { return a + b; }
YGG_DEVICE float fma_rn(float a, float b, float c) { return std::fma(a, b, c); }
YGG_DEVICE double mul_rn(double a, double b) { return a * b; }
YGG_DEVICE double add_rn(double a, double b) { return a + b; }
YGG_DEVICE double divide(double a, double b) { return a / b; }
YGG_DEVICE float inverse_sqrt(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
YGG_DEVICE float divide(float a, float b) { return a / b; }
YGG_DEVICE float exp2_fast(float x) { return std::exp2(x); }
YGG_DEVICE float half_to_float(u16 bits) { return ygg_emulation::half_value(bits); }
YGG_DEVICE u16 float_to_half(float x) { return ygg_emulation::half_bits(x); }
YGG_DEVICE u32 pack_bf16(float low, float high) { return ygg_emulation::bf16_bits(low) | ygg_emulation::bf16_bits(high) << 16; }
YGG_DEVICE u32 pack_f16(float low, float high) {
    return ygg_emulation::half_bits(low) | static_cast<u32>(ygg_emulation::half_bits(high)) << 16;
}
YGG_DEVICE Words4 load_streamed(const Words4* from) {
    if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) ygg_emulation::refuse("16 bytes that are not aligned are loaded");
    return *from;
}

template <class Value> inline void emulated_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, Value value) {
    struct Words {
        u32 a[4], b[2];
    } mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const auto* slots = ygg_emulation::show(mine);
    const unsigned lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
    for (unsigned e = 0; e < 4; ++e) {
        float sum = d[e];
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned part = k % 8 / 2, half = k / 8, shift = k % 2 * 16;
            const Words left = ygg_emulation::seen<Words>(slots, row * 4 + part);
            const Words right = ygg_emulation::seen<Words>(slots, (column + e % 2) * 4 + part);
            sum += value(static_cast<u16>(left.a[e / 2 + 2 * half] >> shift)) * value(static_cast<u16>(right.b[half] >> shift));
        }
        d[e] = sum;
    }
}
inline void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    emulated_mma(d, a, b0, b1, [](u16 bits) { return bits_to_float(static_cast<u32>(bits) << 16); });
}
inline void mma_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    emulated_mma(d, a, b0, b1, [](u16 bits) { return half_to_float(bits); });
}

inline float shuffle(float x, u32 lane) { return ygg_emulation::seen<float>(ygg_emulation::show(x), lane); }
inline float shuffle_xor(float x, u32 mask) { return ygg_emulation::seen<float>(ygg_emulation::show(x), threadIdx.x % 32 ^ mask); }
inline u32 shuffle_xor(u32 x, u32 mask) { return ygg_emulation::seen<u32>(ygg_emulation::show(x), threadIdx.x % 32 ^ mask); }
inline void wait_for_kernels_before(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { ygg_emulation::other_kernels(file, line); }
// It sees nothing before it has waited, whenever it begins.
inline void let_next_kernel_begin() {}
inline void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { ygg_emulation::block_barrier(file, line); }
template <class Number> inline Number index(Number i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return ygg_emulation::shifted.is(file, line) ? i + ygg_emulation::shifted.by : i;
}
