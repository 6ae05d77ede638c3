// The part of CUDA that the kernels use, on a processor: a block is a team of fibers, one per thread, and every barrier and exchange is
// where they take turns. For correctness only: no timing from here means anything.
//
// What a GPU leaves undefined ends the program with a message: a barrier that not all threads reach, an exchange in a warp from which
// threads have left, a launch with more threads than the kernel was compiled for. Fibers run forwards, backwards, each as far as it gets before
// the next one runs, or in a seeded order (YGG_EMULATION_ORDER: `forwards`, `reversed`, `greedy`, or a number), and so do blocks
// (YGG_EMULATION_BLOCKS: `forwards`, `reversed`, or a number); results must not depend on it. With `apart` each block finds memory as it was
// before the launch, as if all ran at once, and two that change the same byte end the program. YGG_EMULATION_WITHOUT=FILE:LINE leaves out
// the barrier or the wait for other kernels in that line, YGG_EMULATION_SHIFT=FILE:LINE makes the index in that line one too many (FILE:LINE+N: N too many),
// YGG_EMULATION_LATE=FILE:LINE lets the thread that waits for other kernels in that line go on at once: tests of the tests, which must notice.
//
// A kernel that is begun while others still run may find nothing that they wrote. So it is shown what came before them, and rubbish wherever
// they changed a byte, until all threads of its block wait or have ended; a thread that ends without having waited ends the program, and so
// does one that writes to memory of the device before it waits, whatever it writes.
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
#include <tuple>
#include <vector>

#include <csignal>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the emulation switches fibers on x86-64 and aarch64 only"
#endif

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
// Found without a call. A library that is loaded late has little room for such variables, and no room for others in addition.
#define YGG_QUICK_THREAD_LOCAL __attribute__((tls_model("initial-exec"))) inline thread_local
YGG_QUICK_THREAD_LOCAL dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void ygg_emulation_switch(void** save, void* to);

namespace ygg_emulation {

[[noreturn]] inline void refuse(const char* what) {
    std::fprintf(stderr, "emulated CUDA: %s, block (%u, %u, %u), thread %u\n", what, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x);
    std::abort();
}

constexpr const char* LEFT = "an exchange in a warp that threads have left";
constexpr std::size_t STACK = 128 << 10;

// A thread of the emulated GPU.
struct Fiber {
    unsigned number = 0;
    // None before its first turn.
    char* stack = nullptr;
    void* stack_pointer = nullptr;
    enum { RUNNING, AT_BARRIER, IN_WARP, AT_OTHER_KERNELS, DONE } state = RUNNING;
    bool has_waited = false;
    // How many numbers it has shown to its warp.
    unsigned exchanges = 0;
    // How many counted loads it has begun.
    unsigned loads = 0;
};

// A lane's part of a product of tiles.
struct Operands {
    u32 a[4], b[2];
    float* d;
};

// A lane goes on as soon as the number that it reads is shown; after so many exchanges it waits for all.
constexpr unsigned EXCHANGES_AHEAD = 16;

struct Warp {
    // Lanes that wait for all, and those that have ended, each after so many exchanges.
    unsigned arrived = 0, left = 0, exchanges = 0;
    // What lanes showed: since they last waited for all, and before that.
    u32 shown[2 * EXCHANGES_AHEAD][32];
    // Of each lane, those that wait for what it shows next.
    u32 awaited_by[32] = {};
    Operands operands[32];
    // Loads of its lanes: the number of the load, where from, and bytes. What lanes load together of one place is one load.
    std::vector<std::tuple<unsigned, std::uintptr_t, unsigned>> loads;
};

// An array of a block.
struct Array {
    const void* name;
    std::size_t bytes;
    std::unique_ptr<unsigned char[]> memory;
};

// What a kernel must not see before it has waited: bytes that kernels before it changed. Between blocks they are as they are.
struct Unseen {
    struct Run {
        unsigned char* at;
        std::size_t bytes;
    };
    std::vector<Run> runs;
    // All memory of the device, in whole pages: nothing of it may be written meanwhile.
    std::vector<Run> device;
    std::vector<unsigned char> kept;
    bool is_hidden = false;

    void protect(int allowed) const {
        for (const Run& run : device)
            if (mprotect(run.at, run.bytes, allowed) != 0) refuse("memory of the device cannot be protected");
    }
    void hide() {
        kept.clear();
        for (const Run& run : runs) {
            kept.insert(kept.end(), run.at, run.at + run.bytes);
            std::memset(run.at, 0xCB, run.bytes);
        }
        protect(PROT_READ);
        is_hidden = true;
    }
    void show() {
        protect(PROT_READ | PROT_WRITE);
        const unsigned char* from = kept.data();
        for (const Run& run : runs) {
            std::memcpy(run.at, from, run.bytes);
            from += run.bytes;
        }
        is_hidden = false;
    }
};

// Memory of the device while blocks run that do not see what the others write.
struct Apart {
    struct Memory {
        unsigned char* at;
        std::vector<unsigned char> before, after;
        std::vector<bool> is_written;
    };
    std::vector<Memory> all;

    void add(unsigned char* at, std::size_t bytes) {
        const std::vector<unsigned char> before(at, at + bytes);
        all.push_back({at, before, before, std::vector<bool>(bytes, false)});
    }
    // Keeps what a block has changed and takes it back.
    void end_block() {
        constexpr std::size_t TOGETHER = 256;
        for (Memory& memory : all)
            for (std::size_t first = 0; first < memory.before.size(); first += TOGETHER) {
                const std::size_t count = std::min(TOGETHER, memory.before.size() - first);
                if (std::memcmp(memory.at + first, &memory.before[first], count) == 0) continue;
                for (std::size_t i = first; i < first + count; ++i) {
                    if (memory.at[i] == memory.before[i]) continue;
                    if (memory.is_written[i]) refuse("two blocks of a launch write the same byte");
                    memory.is_written[i] = true;
                    memory.after[i] = memory.at[i];
                }
                std::memcpy(memory.at + first, &memory.before[first], count);
            }
    }
    void end() {
        for (const Memory& memory : all) std::memcpy(memory.at, memory.after.data(), memory.after.size());
    }
};

// The order in which fibers take turns, or blocks.
struct Order {
    enum { FORWARDS, REVERSED, GREEDY, SEEDED } kind = FORWARDS;
    unsigned seed = 0;
    explicit Order(const char* variable) {
        const char* wish = std::getenv(variable);
        if (!wish) return;
        const std::string_view name(wish);
        kind = name == "forwards" || name == "apart" ? FORWARDS : name == "reversed" ? REVERSED : name == "greedy" ? GREEDY : SEEDED;
        seed = static_cast<unsigned>(std::atoi(wish));
    }
    static const Order& get() {
        static const Order order("YGG_EMULATION_ORDER");
        return order;
    }
};

// Memory that ends, but for what aligns it, before a page that nobody may touch.
constexpr std::size_t PAGE = 4096;
inline std::size_t pages(std::size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }
inline unsigned char* allocate_guarded(std::size_t bytes, std::size_t aligned) {
    void* all = mmap(nullptr, pages(bytes) + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    unsigned char* end = static_cast<unsigned char*>(all) + pages(bytes);
    mprotect(end, PAGE, PROT_NONE);
    return end - (bytes + aligned - 1) / aligned * aligned;
}
inline void free_guarded(unsigned char* at, std::size_t bytes) {
    munmap(at - reinterpret_cast<std::uintptr_t>(at) % PAGE, pages(bytes) + PAGE);
}

struct Stacks {
    std::vector<char*> all;
    ~Stacks() {
        for (char* stack : all) {
#if defined(__SANITIZE_ADDRESS__)
            // Whatever is mapped here next begins without the marks of the stack.
            ASAN_UNPOISON_MEMORY_REGION(stack, STACK);
#endif
            munmap(stack, STACK);
        }
    }
    // Stacks lie a power of two apart: tops that lay at the same place of each would share a few lines of a cache.
    static std::size_t unused_above(std::size_t i) { return i * (17 * 64) % (32 << 10); }
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
    static Stacks& of_this_thread() {
        static thread_local Stacks stacks;
        return stacks;
    }
};
// 16 bytes on their way to shared memory. They arrive when they are waited for, and no sooner.
struct Copy {
    void* to;
    const void* from;
    bool is_there;
    unsigned commit;
};
struct Copies {
    std::vector<Copy> begun;
    unsigned commits = 0;
};
struct Block {
    // None where all kernels before have ended.
    Unseen* unseen = nullptr;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    unsigned arrived = 0, done = 0;
    Stacks* stacks = nullptr;
    unsigned stacks_used = 0;
    unsigned char* dynamic = nullptr;
    std::vector<Array> arrays;
    // Of every fiber.
    std::vector<Copies> copies;
    // Of the thread that runs the block, while fibers run.
    void* scheduler = nullptr;
    Fiber* current = nullptr;
    const char* kernel = nullptr;
    void (*body)(const void*) = nullptr;
    const void* params = nullptr;
    const Order& order = Order::get();
    std::mt19937 dice{0};
    // Numbers of fibers in the order of their turns, and how many had theirs in this round.
    std::vector<unsigned> turns;
    std::size_t taken = 0;

    Warp& warp() { return warps[current->number / 32]; }
    Fiber* lanes() { return &fibers[current->number / 32 * 32]; }
    void new_round() {
        taken = 0;
        if (order.kind == Order::SEEDED) std::shuffle(turns.begin(), turns.end(), dice);
    }
    void wake(Fiber& fiber) {
        fiber.state = Fiber::RUNNING;
        // The first that can run is always next.
        if (order.kind == Order::GREEDY && fiber.number < taken) taken = fiber.number;
    }
    // Whose turn it is; nobody's where all wait or have ended.
    Fiber* next() {
        for (unsigned rounds = 0; rounds < 2; ++rounds) {
            while (taken < turns.size())
                if (Fiber& fiber = fibers[turns[taken++]]; fiber.state == Fiber::RUNNING) return &fiber;
            new_round();
        }
        return nullptr;
    }
};
YGG_QUICK_THREAD_LOCAL Block* block = nullptr;

#if defined(__SANITIZE_ADDRESS__)
// Of the thread that runs blocks: what the first fiber came from.
inline thread_local const void* scheduler_stack = nullptr;
inline thread_local std::size_t scheduler_size = 0;

inline void arrive_from_elsewhere(void* fake) {
    const void* stack = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake, &stack, &size);
    if (!scheduler_stack) scheduler_stack = stack, scheduler_size = size;
}
#endif

void fiber_main();

// A stack on which the fiber begins when it is changed to.
inline void give_stack(Fiber& fiber) {
    const unsigned number = block->stacks_used++;
    fiber.stack = block->stacks->get(number);
    void** top = reinterpret_cast<void**>(fiber.stack + STACK - Stacks::unused_above(number));
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

// A write to protected memory of the device ends the program with a message, and so does every other fault of a kernel, such as one of the
// pages past what it was given. The rest is whose it was. A sanitizer says it by itself.
inline struct sigaction before_ours;
// The stack of a handler is too small for a formatted message.
[[noreturn]] inline void tell_fault(const char* what) {
    for (const char* part : {"emulated CUDA: in ", block->kernel, what}) [[maybe_unused]] const auto told = write(2, part, std::strlen(part));
    std::abort();
}
inline void on_fault(int number, siginfo_t* info, void* context) {
    const auto* at = static_cast<const unsigned char*>(info->si_addr);
    if (block && block->unseen && block->unseen->is_hidden)
        for (const Unseen::Run& run : block->unseen->device)
            if (run.at <= at && at < run.at + run.bytes)
                tell_fault(" memory is written before the kernels before were waited for\n");
    if (block) tell_fault(" a thread reaches for memory that it was not given\n");
    // Faults again, in the hands of whoever was there before.
    sigaction(number, &before_ours, nullptr);
    (void)context;
}
inline void watch_faults() {
    static const bool is_watched = [] {
#if !defined(__SANITIZE_ADDRESS__)
        struct sigaction ours = {};
        ours.sa_sigaction = on_fault;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &ours, &before_ours);
#endif
        return true;
    }();
    (void)is_watched;
}

// Makes ready what runs next: a fiber, or the scheduler where there is none. Gives the stack pointer to change to.
inline void* turn_to(Fiber* fiber, [[maybe_unused]] void** left) {
    Block& b = *block;
    b.current = fiber;
    if (fiber) {
        threadIdx.x = fiber->number;
        if (!fiber->stack) give_stack(*fiber);
    }
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(left, fiber ? fiber->stack : scheduler_stack, fiber ? STACK : scheduler_size);
#endif
    return fiber ? fiber->stack_pointer : b.scheduler;
}

// Lets a fiber run, or the scheduler. What is left is kept in `save` and taken up by whoever goes back there.
inline void change_to(Fiber* fiber, void** save) {
    void* left = nullptr;
    ygg_emulation_switch(save, turn_to(fiber, &left));
#if defined(__SANITIZE_ADDRESS__)
    arrive_from_elsewhere(left);
#endif
}

inline void pass_turn() {
    Block& b = *block;
    Fiber* fiber = b.current;
    change_to(b.next(), &fiber->stack_pointer);
}

inline void fiber_main() {
#if defined(__SANITIZE_ADDRESS__)
    arrive_from_elsewhere(nullptr);
#endif
    for (;;) {
        block->body(block->params);
        Block& b = *block;
        Fiber* fiber = b.current;
        if (b.unseen && !fiber->has_waited) refuse("a thread ends that has not waited for the kernels before");
        if (!b.copies[fiber->number].begun.empty()) refuse("a thread ends that has not waited for its copies");
        fiber->state = Fiber::DONE;
        b.done += 1;
        if (b.warp().left++ == 0) b.warp().exchanges = fiber->exchanges;
        if (b.warp().exchanges != fiber->exchanges) refuse(LEFT);
        Fiber* next = b.next();
        // For good: nothing of its own may be left on the stack that a sanitizer would still guard.
        if (!next || next->stack) ygg_emulation_switch(&fiber->stack_pointer, turn_to(next, nullptr));
        // Whoever begins here needs no stack but this one.
        next->stack = fiber->stack;
        b.current = next;
        threadIdx.x = next->number;
    }
}

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
        for (Fiber& fiber : b.fibers) b.wake(fiber);
        return;
    }
    pass_turn();
}

inline void other_kernels(const char* file, int line) {
    Block& b = *block;
    if (!b.unseen || without.is(file, line)) return;
    b.current->has_waited = true;
    if (!b.unseen->is_hidden || late.is(file, line)) return;
    b.current->state = Fiber::AT_OTHER_KERNELS;
    pass_turn();
}

// Waits for all lanes of the warp. The last one does `work`, which all of them need, before anybody goes on.
template <class Work> inline void warp_barrier(Work work) {
    Block& b = *block;
    Warp& warp = b.warp();
    if (warp.left > 0) refuse(LEFT);
    b.current->state = Fiber::IN_WARP;
    warp.arrived += 1;
    if (warp.arrived < 32) return pass_turn();
    warp.arrived = 0;
    work();
    Fiber* lanes = b.lanes();
    for (unsigned i = 0; i < 32; ++i) b.wake(lanes[i]);
}

// Shows a number to all lanes and gives that which another one shows.
inline u32 exchange(u32 value, u32 from) {
    Block& b = *block;
    Warp& warp = b.warp();
    Fiber *lanes = b.lanes(), *fiber = b.current;
    const unsigned mine = fiber->number % 32, number = fiber->exchanges;
    if (number > 0 && number % EXCHANGES_AHEAD == 0) warp_barrier([] {});
    u32(&shown)[32] = warp.shown[number % (2 * EXCHANGES_AHEAD)];
    shown[mine] = value;
    fiber->exchanges += 1;
    if (u32& awaited_by = warp.awaited_by[mine]) {
        for (u32 left = awaited_by; left; left &= left - 1) b.wake(lanes[std::countr_zero(left)]);
        awaited_by = 0;
    }
    const Fiber& other = lanes[from % 32];
    while (other.exchanges <= number) {
        if (other.state == Fiber::DONE) refuse(LEFT);
        warp.awaited_by[from % 32] |= 1u << mine;
        fiber->state = Fiber::IN_WARP;
        pass_turn();
    }
    return shown[from % 32];
}

template <class Type> using Same = Type;

// An array of the block, the same for all that ask by this name.
inline void* block_array(const void* name, std::size_t bytes) {
    std::vector<Array>& arrays = block->arrays;
    for (const Array& array : arrays)
        if (array.name == name) return array.memory.get();
    unsigned char* memory = new unsigned char[bytes];
    // Whatever was there before is not zero.
    std::memset(memory, 0xCB, bytes);
    arrays.push_back({name, bytes, std::unique_ptr<unsigned char[]>(memory)});
    return memory;
}

inline void run_block(Block& b) {
    const unsigned threads = static_cast<unsigned>(b.fibers.size());
    if (b.unseen) b.unseen->hide();
    b.arrived = b.done = b.stacks_used = 0;
    b.arrays.clear();
    b.copies.assign(threads, {});
    for (Warp& warp : b.warps) warp.arrived = warp.left = 0;
    std::iota(b.turns.begin(), b.turns.end(), 0);
    if (b.order.kind == Order::REVERSED) std::reverse(b.turns.begin(), b.turns.end());
    if (b.order.kind == Order::SEEDED) b.dice.seed(b.order.seed * 7919 + blockIdx.x + 31 * blockIdx.y);
    b.new_round();
    for (unsigned i = 0; i < threads; ++i) b.fibers[i] = {.number = i};
    while (b.done < threads) {
        if (Fiber* fiber = b.next()) {
            change_to(fiber, &b.scheduler);
            continue;
        }
        if (!b.unseen || !b.unseen->is_hidden) refuse("threads wait for each other for ever");
        b.unseen->show();
        for (Fiber& fiber : b.fibers)
            if (fiber.state == Fiber::AT_OTHER_KERNELS) b.wake(fiber);
    }
    if (b.unseen && b.unseen->is_hidden) b.unseen->show();
}

// Shared memory of a block that no attribute asks for.
constexpr std::size_t PLAIN_SHARED = 48 << 10;
// Most shared memory of a block, the fixed and the dynamic together.
constexpr std::size_t MOST_SHARED = 99 << 10;

// Bytes that kernels asked for, and whether they are counted: sorting loads takes as long as many a kernel.
YGG_QUICK_THREAD_LOCAL std::uint64_t loaded;
inline bool counts_loads = std::getenv("YGG_EMULATION_TRAFFIC") != nullptr;

// Notes a load.
inline void note_load(const void* from, unsigned bytes) {
    if (reinterpret_cast<std::uintptr_t>(from) % bytes != 0) refuse("what is loaded together is not aligned");
    if (counts_loads) block->warp().loads.push_back({block->current->loads++, reinterpret_cast<std::uintptr_t>(from), bytes});
}
// Counts what the lanes of a block's warps loaded.
inline void count_loads(Block& b) {
    for (Warp& warp : b.warps) {
        std::sort(warp.loads.begin(), warp.loads.end());
        const auto end = std::unique(warp.loads.begin(), warp.loads.end());
        for (auto load = warp.loads.begin(); load != end; ++load) loaded += std::get<2>(*load);
        warp.loads.clear();
    }
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
    // `granted`: dynamic shared memory that the function may have.
    void launch(dim3 grid, unsigned threads, std::size_t shared_bytes, std::size_t granted, const void* params, Unseen* unseen, Apart* apart) const {
        gridDim = grid;
        blockDim = {threads, 1, 1};
        threadIdx = {0, 0, 0};
        Block b;
        b.stacks = &Stacks::of_this_thread();
        b.unseen = unseen;
        b.fibers.resize(threads);
        b.turns.resize(threads);
        b.warps.resize((threads + 31) / 32);
        // Exactly as much as was asked for. None is needed where that is nothing.
        b.dynamic = shared_bytes ? allocate_guarded(shared_bytes, 16) : nullptr;
        b.kernel = name;
        b.body = body;
        b.params = params;
        block = &b;
        const Order blocks("YGG_EMULATION_BLOCKS");
        std::vector<unsigned> numbers(static_cast<std::size_t>(grid.x) * grid.y * grid.z);
        std::iota(numbers.begin(), numbers.end(), 0);
        if (blocks.kind == Order::REVERSED) std::reverse(numbers.begin(), numbers.end());
        if (blocks.kind == Order::SEEDED) std::shuffle(numbers.begin(), numbers.end(), std::mt19937(blocks.seed));
        for (const unsigned number : numbers) {
            blockIdx = {number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y};
            // Whatever was there before is not zero.
            if (b.dynamic) std::memset(b.dynamic, 0xCB, shared_bytes);
            run_block(b);
            if (counts_loads) count_loads(b);
            if (apart) apart->end_block();
            std::size_t fixed = 0;
            for (const Array& array : b.arrays) fixed += array.bytes;
            if (shared_bytes > granted && fixed + shared_bytes > PLAIN_SHARED)
                refuse("a block has more shared memory than a function may have that did not ask for it");
            if (fixed + shared_bytes > MOST_SHARED) refuse("a block has more shared memory than a multiprocessor");
        }
        block = nullptr;
        if (apart) apart->end();
        if (b.dynamic) free_guarded(b.dynamic, shared_bytes);
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
#define YGG_SHARED(Type, name) \
    static const char name##_name = 0; \
    auto& name = *static_cast<ygg_emulation::Same<Type>*>(ygg_emulation::block_array(&name##_name, sizeof(Type)))
#define YGG_DYNAMIC_SHARED(Type, name) Type* name = reinterpret_cast<Type*>(ygg_emulation::block->dynamic)

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
YGG_DEVICE double bits_to_double(u64 bits) { return std::bit_cast<double>(bits); }
YGG_DEVICE u64 double_to_bits(double x) { return std::bit_cast<u64>(x); }
YGG_DEVICE u32 leading_zeros(u32 x) { return static_cast<u32>(std::countl_zero(x)); }
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
    ygg_emulation::note_load(from, 16);
    return *from;
}

struct alignas(8) Words2 {
    u32 x, y;
};
YGG_DEVICE Words2 load_streamed(const Words2* from) {
    ygg_emulation::note_load(from, 8);
    return *from;
}
YGG_DEVICE u32 load_streamed(const u32* from) {
    ygg_emulation::note_load(from, 4);
    return *from;
}
YGG_DEVICE u32 masked_xor(u32 x, u32 mask, u32 bits) { return (x & mask) ^ bits; }
YGG_DEVICE u32 fma_bf16(u32 a, u32 b, u32 c) {
    auto half = [&](u32 shift) {
        auto value = [&](u32 word) { return bits_to_float((word >> shift) << 16); };
        return ygg_emulation::bf16_bits(std::fma(value(a), value(b), value(c)));
    };
    return half(0) | half(16) << 16;
}
YGG_DEVICE u32 of_warp(u32 x) { return x; }
YGG_DEVICE u32 select_bytes(u32 a, u32 b, u32 selector) {
    const u64 both = a | static_cast<u64>(b) << 32;
    u32 word = 0;
    for (u32 i = 0; i < 4; ++i) word |= static_cast<u32>(both >> (selector >> (4 * i) & 7u) * 8 & 0xffu) << (8 * i);
    return word;
}
YGG_DEVICE Words4 load_words(const Words4* from) {
    ygg_emulation::note_load(from, 16);
    return *from;
}
YGG_DEVICE float load_number(const float* from) {
    ygg_emulation::note_load(from, 4);
    return *from;
}
inline void copy_async(void* to, const void* from, bool is_there) {
    if ((reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to)) % 16 != 0)
        ygg_emulation::refuse("16 bytes that are not aligned are copied");
    ygg_emulation::Copies& copies = ygg_emulation::block->copies[threadIdx.x];
    copies.begun.push_back({to, from, is_there, copies.commits});
    // Whoever reads before it waits finds this.
    std::memset(to, 0xCB, 16);
    if (is_there) ygg_emulation::note_load(from, 16);
}
inline void commit_copies() { ++ygg_emulation::block->copies[threadIdx.x].commits; }
template <u32 BUT> inline void wait_for_copies(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    ygg_emulation::Copies& copies = ygg_emulation::block->copies[threadIdx.x];
    const bool is_left_out = ygg_emulation::without.is(file, line);
    std::erase_if(copies.begun, [&](const ygg_emulation::Copy& copy) {
        if (copy.commit + BUT >= copies.commits) return false;
        if (is_left_out) return true;
        if (copy.is_there)
            std::memcpy(copy.to, copy.from, 16);
        else
            std::memset(copy.to, 0, 16);
        return true;
    });
}

// Eight numbers at once, in whatever registers there are.
using Words8 = u32 __attribute__((vector_size(32)));
using Floats8 = float __attribute__((vector_size(32)));

// Makes words, each with 16 bits of a number, floats.
struct Bf16Bits {
    static void widen(Words8& words) { words <<= 16; }
};
struct F16Bits {
    static void widen(Words8& words) {
        const Words8 magnitude = (words & 0x7fffu) << 13, finite = (Words8)((Floats8)magnitude * 0x1p112f);
        const Words8 value = (words & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : finite;
        words = value | (words & 0x8000u) << 16;
    }
};

// d += a b of a warp's lanes: products are added in the order of k, one after the other.
template <class Bits> inline void multiply_tiles(const ygg_emulation::Operands (&lanes)[32]) {
    // Rows of a in words of their own; rows of b that lie in the two halves of its words.
    alignas(32) u32 a[16][16], words[8][8];
    alignas(32) float d[16][8];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const ygg_emulation::Operands& of = lanes[lane];
        const unsigned row = lane / 4, pair = lane % 4 * 2;
        for (unsigned i = 0; i < 4; ++i) {
            u32* two = &a[row + i % 2 * 8][pair + i / 2 * 8];
            two[0] = of.a[i] & 0xffffu;
            two[1] = of.a[i] >> 16;
        }
        for (unsigned i = 0; i < 2; ++i) {
            words[pair / 2 + i * 4][row] = of.b[i];
            std::memcpy(&d[row + i * 8][pair], of.d + 2 * i, 2 * sizeof(float));
        }
    }
    Words8 b[16];
    for (unsigned i = 0; i < 8; ++i) {
        std::memcpy(&b[2 * i + 1], words[i], sizeof(Words8));
        b[2 * i] = b[2 * i + 1] & 0xffffu;
        b[2 * i + 1] >>= 16;
    }
    for (Words8& row : b) Bits::widen(row);
    for (u32(&row)[16] : a)
        for (unsigned half = 0; half < 16; half += 8) Bits::widen(reinterpret_cast<Words8&>(row[half]));
    // Eight rows stay in registers.
    for (unsigned first = 0; first < 16; first += 8) {
        Floats8 sums[8];
        std::memcpy(sums, d[first], sizeof sums);
#pragma GCC unroll 16
        for (unsigned k = 0; k < 16; ++k)
#pragma GCC unroll 8
            for (unsigned row = 0; row < 8; ++row) sums[row] += bits_to_float(a[first + row][k]) * (Floats8)b[k];
        std::memcpy(d[first], sums, sizeof sums);
    }
    for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned i = 0; i < 2; ++i) std::memcpy(lanes[lane].d + 2 * i, &d[lane / 4 + i * 8][lane % 4 * 2], 2 * sizeof(float));
}
template <class Bits> inline void emulated_mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    ygg_emulation::Block& block = *ygg_emulation::block;
    ygg_emulation::Warp& warp = block.warp();
    warp.operands[threadIdx.x % 32] = {{a[0], a[1], a[2], a[3]}, {b0, b1}, d};
    ygg_emulation::warp_barrier([&] { multiply_tiles<Bits>(warp.operands); });
}
inline void mma_bf16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) { emulated_mma<Bf16Bits>(d, a, b0, b1); }
inline void mma_bf16_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    d[0] = d[1] = d[2] = d[3] = 0.0f;
    mma_bf16(d, a, b0, b1);
}
inline void mma_f16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) { emulated_mma<F16Bits>(d, a, b0, b1); }

inline u32 shuffle(u32 x, u32 lane) { return ygg_emulation::exchange(x, lane); }
inline float shuffle(float x, u32 lane) { return bits_to_float(shuffle(float_to_bits(x), lane)); }
inline u32 shuffle_xor(u32 x, u32 mask) { return shuffle(x, threadIdx.x ^ mask); }
inline float shuffle_xor(float x, u32 mask) { return shuffle(x, threadIdx.x ^ mask); }
inline void warp_barrier() { ygg_emulation::warp_barrier([] {}); }
inline void wait_for_kernels_before(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { ygg_emulation::other_kernels(file, line); }
// It sees nothing before it has waited, whenever it begins.
inline void let_next_kernel_begin() {}
inline void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { ygg_emulation::block_barrier(file, line); }
template <class Number> inline Number index(Number i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return ygg_emulation::shifted.is(file, line) ? i + ygg_emulation::shifted.by : i;
}
