// The only file that knows which compiler reads it: instructions that C++ has no word for, each with a twin for the host.
//
// nvcc and NVRTC take the first half; a host compiler takes the second, where a block is a team of fibers (emu/emulation.h).
// No CUDA header is needed, so that NVRTC alone, without a toolkit, compiles the kernels.
#pragma once

#include "abi.h"

#ifdef __CUDACC__

#define YGG_DEVICE __device__ __forceinline__
// A kernel that takes one structure of parameters; `threads` is the most a block has.
#define YGG_KERNEL(name, Params, threads) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Params p)
// One of which so many blocks are to fit a multiprocessor, which says how many registers it may have.
#define YGG_KERNEL_OF_BLOCKS(name, Params, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Params p)
// Shared memory whose size the launch tells.
#define YGG_DYNAMIC_SHARED(Type, name) \
    extern __shared__ __align__(16) unsigned char name##_bytes[]; \
    Type* name = reinterpret_cast<Type*>(name##_bytes)
template <class Type> using ygg_same = Type;
#define YGG_SHARED(Type, name) __shared__ ygg_same<Type> name

struct alignas(16) Words4 {
    u32 x, y, z, w;
};

YGG_DEVICE float bits_to_float(u32 bits) { return __uint_as_float(bits); }
YGG_DEVICE u32 float_to_bits(float x) { return __float_as_uint(x); }
// Products and sums that are rounded apart, whatever the compiler would like to fuse.
YGG_DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
YGG_DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
YGG_DEVICE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
YGG_DEVICE double mul_rn(double a, double b) { return __dmul_rn(a, b); }
YGG_DEVICE double add_rn(double a, double b) { return __dadd_rn(a, b); }
YGG_DEVICE double divide(double a, double b) { return __ddiv_rn(a, b); }
YGG_DEVICE double bits_to_double(u64 bits) { return __longlong_as_double(static_cast<long long>(bits)); }
YGG_DEVICE u64 double_to_bits(double x) { return static_cast<u64>(__double_as_longlong(x)); }
// Of a word that is not 0.
YGG_DEVICE u32 leading_zeros(u32 x) { return static_cast<u32>(__clz(static_cast<i32>(x))); }
YGG_DEVICE float inverse_sqrt(float x) { return __frsqrt_rn(x); }
YGG_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
// 2^x within 2 units in the last place; 0 at minus infinity.
YGG_DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
YGG_DEVICE float half_to_float(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
YGG_DEVICE u16 float_to_half(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
// Two numbers in one word, the first in the low half, rounded to nearest even.
YGG_DEVICE u32 pack_bf16(float low, float high) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
YGG_DEVICE u32 pack_f16(float low, float high) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
// 16 bytes that are read once: they need no place in the first cache.
YGG_DEVICE Words4 load_streamed(const Words4* from) {
    Words4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

struct alignas(8) Words2 {
    u32 x, y;
};
YGG_DEVICE Words2 load_streamed(const Words2* from) {
    Words2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}
YGG_DEVICE u32 load_streamed(const u32* from) {
    u32 v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}
// 16 bytes, or 4, that kernels before wrote. The emulation counts them as it counts those above.
YGG_DEVICE Words4 load_words(const Words4* from) { return *from; }
YGG_DEVICE float load_number(const float* from) { return *from; }

// Begins to copy 16 bytes to shared memory, or to fill them with zeros. They are there for this thread once it has waited, for others after
// a barrier.
YGG_DEVICE void copy_async(void* to, const void* from, bool is_there) {
    const u32 at = static_cast<u32>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
// What was begun since the last commit is waited for together.
YGG_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all that was committed, but for the last so many.
template <u32 BUT> YGG_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(BUT) : "memory"); }

// (x & mask) ^ bits.
YGG_DEVICE u32 masked_xor(u32 x, u32 mask, u32 bits) {
    u32 word;
    asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(word) : "r"(x), "r"(mask), "r"(bits));
    return word;
}
// a b + c of the two bf16 of a word.
YGG_DEVICE u32 fma_bf16(u32 a, u32 b, u32 c) {
    u32 word;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));
    return word;
}
// A number that is the same in all threads of a warp, where the compiler can see it.
YGG_DEVICE u32 of_warp(u32 x) { return __shfl_sync(0xffffffffu, x, 0); }

// The four bytes of `a`, then those of `b`, that the nibbles of `selector` name, lowest first.
YGG_DEVICE u32 select_bytes(u32 a, u32 b, u32 selector) {
    u32 word;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(selector));
    return word;
}

// d (16 x 8) += a (16 x 16) b (16 x 8), as mma.m16n8k16 lays them over the lanes of a warp.
YGG_DEVICE void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// d = a b.
YGG_DEVICE void mma_bf16_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
YGG_DEVICE void mma_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

YGG_DEVICE float shuffle(float x, u32 lane) { return __shfl_sync(0xffffffffu, x, lane); }
YGG_DEVICE float shuffle_xor(float x, u32 mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
YGG_DEVICE u32 shuffle_xor(u32 x, u32 mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
YGG_DEVICE void barrier() { __syncthreads(); }
// What a lane has read or written before, others of its warp have not yet written, or see.
YGG_DEVICE void warp_barrier() { __syncwarp(); }
// A kernel may be begun while the ones before it in a forward still run (programmatic dependent launch). Until it has waited it reads
// nothing but weights and what copies brought, and writes nothing; and every thread waits, whatever it does then: whoever waits for this
// kernel waits for all before it by that. https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-griddepcontrol
YGG_DEVICE void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may be begun once every block has come here or ended.
YGG_DEVICE void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The index itself. In the emulation tests can make it too large, which other tests must notice.
template <class Number> YGG_DEVICE Number index(Number i) { return i; }

#else
#include "emu/emulation.h"
#endif
