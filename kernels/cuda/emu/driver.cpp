// A libcuda.so.1 for tests: the driver functions that the CUDA backend calls, with kernels run by the emulation. Streams do their work when
// somebody waits for it, and no sooner; a capture records it. What a driver refuses is refused here too, above all inside a capture:
// allocation, synchronisation, waiting for an event from outside, copies to or from memory that was never allocated. So are a kernel that may
// begin early right behind a copy, and more shared memory than a function has asked for.
//
// YGG_EMULATION_TRAFFIC=FILE: a line for every kernel that ran is added to it: its name, grid, threads, bytes of dynamic shared memory, and
// the bytes that it asked for.
// YGG_EMULATION_FAILS_AT=N lets the N-th launch of a graph fail, YGG_EMULATION_FAILS_BEHIND=N what waits for it; as on a GPU, everything fails
// from then on. YGG_EMULATION_CAPTURES=apart refuses captures with kernels that may begin early.
#include "emulation.h"

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct Context* CUcontext;
typedef struct Stream* CUstream;
typedef struct Event* CUevent;
typedef struct Graph* CUgraph;
typedef struct Executable* CUgraphExec;
typedef struct Module* CUmodule;
typedef const ygg_emulation::Kernel* CUfunction;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_ISOLATION = 905,
};
enum {
    FUNC_ATTRIBUTE_PTX_VERSION = 5,
    FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED = 8,
    LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};
// The first architecture on which a kernel can begin while another runs.
constexpr int OVERLAPPING_ARCH = 90;

struct LaunchAttribute {
    unsigned id;
    char pad[4];
    union {
        char whole[64];
        int is_programmatic;
    };
};
struct LaunchConfig {
    dim3 grid, block;
    unsigned shared;
    CUstream stream;
    LaunchAttribute* attributes;
    unsigned count;
};

using Work = std::function<void()>;

struct Context {};
struct Module {};
struct Graph {
    std::vector<Work> nodes;
};
struct Executable {
    std::shared_ptr<const std::vector<Work>> nodes;
};
struct Stream {
    bool is_capturing = false;
    // Whether what is recorded has a kernel that may begin early.
    bool is_overlapping = false;
    // What it was given last, in a capture or outside.
    bool is_behind_copy = false;
    std::vector<Work> recorded;
    // Whoever reads before this is done finds what was there before, and whoever writes what it reads changes what it does.
    std::vector<Work> waiting;
    // How much of it there ever was before what waits now.
    std::size_t done = 0;
    // Memory before the last kernel that waited for all before it to end: what kernels behind it may find unchanged.
    std::map<std::uintptr_t, std::vector<unsigned char>> before;
};
struct Event {
    bool is_captured = false;
    bool is_recorded = false;
    Stream* stream = nullptr;
    // How much work the stream had had.
    std::size_t place = 0;
};

static Context the_context;
static Module the_module;
static Stream the_default;
static std::mutex lock;
// One stream's work may wait for another's.
static std::recursive_mutex running;
static std::map<std::uintptr_t, std::size_t> device_memory;
static std::set<Stream*> streams;
static thread_local CUcontext current = nullptr;

static std::size_t memory_limit() {
    const char* wish = std::getenv("YGG_EMULATION_MEMORY");
    return wish ? std::strtoull(wish, nullptr, 10) : std::size_t{4} << 30;
}
static std::size_t memory_used() {
    std::size_t used = 0;
    for (const auto& [_, bytes] : device_memory) used += bytes;
    return used;
}
// Pages are protected as a whole.
using ygg_emulation::PAGE;
using ygg_emulation::pages;
// The pages of what begins at `at`.
static ygg_emulation::Unseen::Run pages_of(std::uintptr_t at, std::size_t bytes) {
    const std::size_t before = at % PAGE;
    return {reinterpret_cast<unsigned char*>(at - before), pages(before + bytes)};
}
static bool is_device_memory(CUdeviceptr at, std::size_t bytes) {
    const std::lock_guard guard(lock);
    auto after = device_memory.upper_bound(at);
    if (after == device_memory.begin()) return false;
    const auto& [start, size] = *--after;
    return at + bytes <= start + size;
}
static int arch() {
    const char* arch = std::getenv("YGG_EMULATION_ARCH");
    return arch ? std::atoi(arch) : 80;
}
static Stream& of(CUstream stream) { return stream ? *stream : the_default; }
static std::atomic<unsigned> graphs_launched = 0;
static std::atomic<bool> has_failed = false;
static bool is_told(const char* variable, unsigned launch) {
    const char* wish = std::getenv(variable);
    return wish && static_cast<unsigned>(std::atoi(wish)) == launch;
}
static bool is_overlapping() { return arch() >= OVERLAPPING_ARCH; }
// Whether the blocks of a launch do not see each other's writes: where kernels do not overlap.
static bool is_apart() {
    const char* wish = std::getenv("YGG_EMULATION_BLOCKS");
    return wish && std::strcmp(wish, "apart") == 0;
}
// What is hidden from a kernel must not be hidden from those of another thread, nor given back meanwhile.
static std::unique_lock<std::recursive_mutex> alone() {
    return is_overlapping() ? std::unique_lock(running) : std::unique_lock<std::recursive_mutex>();
}
static void perform(const Work& work) {
    const auto guard = alone();
    work();
}
static CUresult on(CUstream stream, Work work, bool is_copy = false) {
    if (has_failed) return LAUNCH_FAILED;
    of(stream).is_behind_copy = is_copy;
    auto& list = of(stream).is_capturing ? of(stream).recorded : of(stream).waiting;
    list.push_back(std::move(work));
    return SUCCESS;
}
// Does what a stream was given before a place.
static void drain(Stream& stream, std::size_t place = std::numeric_limits<std::size_t>::max()) {
    const std::size_t count = std::min(stream.waiting.size(), place - std::min(place, stream.done));
    const auto end = stream.waiting.begin() + static_cast<std::ptrdiff_t>(count);
    const std::vector<Work> waiting(std::make_move_iterator(stream.waiting.begin()), std::make_move_iterator(end));
    stream.waiting.erase(stream.waiting.begin(), end);
    stream.done += count;
    if (has_failed) return;
    for (const Work& work : waiting) perform(work);
}

#define API extern "C" __attribute__((visibility("default"))) CUresult

API cuInit(unsigned) { return SUCCESS; }
API cuDriverGetVersion(int* version) {
    *version = 13000;
    return SUCCESS;
}
API cuDeviceGetCount(int* count) {
    *count = 1;
    return SUCCESS;
}
API cuDeviceGet(CUdevice* device, int ordinal) {
    if (ordinal != 0) return INVALID_DEVICE;
    *device = 0;
    return SUCCESS;
}
API cuDeviceGetName(char* name, int len, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(len), "emulated by the host");
    return SUCCESS;
}
API cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
    const int capability = arch();
    switch (attribute) {
    case 16: *value = 2; break;                // multiprocessors
    case 75: *value = capability / 10; break;  // compute capability
    case 76: *value = capability % 10; break;
    case 97: *value = 99 << 10; break;         // shared memory of a block, if it is asked for
    default: *value = 0;
    }
    return SUCCESS;
}
API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = memory_limit();
    return SUCCESS;
}
API cuMemGetInfo_v2(std::size_t* left, std::size_t* total) {
    const std::lock_guard guard(lock);
    *total = memory_limit();
    *left = *total - std::min(*total, memory_used());
    return SUCCESS;
}
API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    *context = &the_context;
    return SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(CUdevice) { return SUCCESS; }
API cuCtxSetCurrent(CUcontext context) {
    current = context;
    return SUCCESS;
}
API cuCtxGetCurrent(CUcontext* context) {
    *context = current;
    return SUCCESS;
}
API cuCtxSynchronize() {
    std::set<Stream*> all{&the_default};
    {
        const std::lock_guard guard(lock);
        all.insert(streams.begin(), streams.end());
    }
    for (Stream* stream : all) drain(*stream);
    return has_failed ? LAUNCH_FAILED : SUCCESS;
}
API cuStreamCreate(CUstream* stream, unsigned) {
    const std::lock_guard guard(lock);
    *stream = new Stream;
    streams.insert(*stream);
    return SUCCESS;
}
API cuStreamDestroy_v2(CUstream stream) {
    drain(*stream);
    const std::lock_guard guard(lock);
    streams.erase(stream);
    delete stream;
    return SUCCESS;
}
API cuStreamSynchronize(CUstream stream) {
    if (of(stream).is_capturing) return STREAM_CAPTURE_UNSUPPORTED;
    drain(of(stream));
    return has_failed ? LAUNCH_FAILED : SUCCESS;
}
API cuStreamIsCapturing(CUstream stream, int* status) {
    *status = of(stream).is_capturing ? 1 : 0;
    return SUCCESS;
}
API cuMemAlloc_v2(CUdeviceptr* at, std::size_t bytes) {
    if (!current) return INVALID_CONTEXT;
    const auto nobody_else = alone();
    const std::lock_guard guard(lock);
    if (bytes == 0) return INVALID_VALUE;
    if (memory_used() + bytes > memory_limit()) return OUT_OF_MEMORY;
    void* memory = ygg_emulation::allocate_guarded(bytes, 256);
    if (!memory) return OUT_OF_MEMORY;
    // Not zero: as floats and as halves, numbers that show.
    std::memset(memory, 0xCB, bytes);
    device_memory[reinterpret_cast<std::uintptr_t>(memory)] = bytes;
    *at = reinterpret_cast<CUdeviceptr>(memory);
    return SUCCESS;
}
// NVIDIA's waits for what was begun, which may read what is freed. Here it is kept for a while instead.
static std::deque<std::pair<unsigned char*, std::size_t>> freed;
constexpr std::size_t KEPT = 32;
API cuMemFree_v2(CUdeviceptr at) {
    const auto nobody_else = alone();
    const std::lock_guard guard(lock);
    const auto found = device_memory.find(at);
    if (found == device_memory.end()) return INVALID_VALUE;
    freed.emplace_back(reinterpret_cast<unsigned char*>(at), found->second);
    device_memory.erase(found);
    if (freed.size() <= KEPT) return SUCCESS;
    ygg_emulation::free_guarded(freed.front().first, freed.front().second);
    freed.pop_front();
    return SUCCESS;
}
API cuMemHostAlloc(void** at, std::size_t bytes, unsigned) {
    *at = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
API cuMemFreeHost(void* at) {
    std::free(at);
    return SUCCESS;
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    if (!is_device_memory(to, bytes)) return INVALID_VALUE;
    return on(stream, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); }, true);
}
API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    if (!is_device_memory(from, bytes)) return INVALID_VALUE;
    return on(stream, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); }, true);
}
// Those that wait do not wait for other streams.
API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
    if (!is_device_memory(to, bytes)) return INVALID_VALUE;
    if (has_failed) return LAUNCH_FAILED;
    perform([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
    return SUCCESS;
}
API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
    if (!is_device_memory(from, bytes)) return INVALID_VALUE;
    if (has_failed) return LAUNCH_FAILED;
    perform([=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
    return SUCCESS;
}
API cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
    if (!is_device_memory(to, bytes)) return INVALID_VALUE;
    return on(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); }, true);
}
API cuEventCreate(CUevent* event, unsigned) {
    *event = new Event;
    return SUCCESS;
}
API cuEventDestroy_v2(CUevent event) {
    delete event;
    return SUCCESS;
}
API cuEventRecord(CUevent event, CUstream stream) {
    const Stream& recorded = of(stream);
    *event = {recorded.is_capturing, true, &of(stream), recorded.done + recorded.waiting.size()};
    return SUCCESS;
}
API cuEventSynchronize(CUevent) { return SUCCESS; }
API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    if (!event->is_recorded || event->is_captured) return SUCCESS;
    if (of(stream).is_capturing) return STREAM_CAPTURE_ISOLATION;
    return on(stream, [other = event->stream, place = event->place] {
        const bool is_there = other == &the_default || streams.count(other);
        if (is_there) drain(*other, place);
    });
}
API cuModuleLoadData(CUmodule* module, const void* image) {
    if (!image) return INVALID_VALUE;
    *module = &the_module;
    return SUCCESS;
}
API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, int*, void**) { return cuModuleLoadData(module, image); }
API cuModuleUnload(CUmodule) { return SUCCESS; }
API cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
    for (const auto* kernel = ygg_emulation::Kernel::first; kernel; kernel = kernel->next)
        if (std::strcmp(kernel->name, name) == 0) {
            *function = kernel;
            return SUCCESS;
        }
    return NOT_FOUND;
}
// Dynamic shared memory that functions may have, as was last asked for.
static std::map<CUfunction, std::size_t> granted;
API cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    if (attribute != FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED) return NOT_SUPPORTED;
    if (value < 0 || static_cast<std::size_t>(value) > ygg_emulation::MOST_SHARED) return INVALID_VALUE;
    const std::lock_guard guard(lock);
    granted[function] = static_cast<std::size_t>(value);
    return SUCCESS;
}
API cuFuncGetAttribute(int* value, int attribute, CUfunction) {
    *value = attribute == FUNC_ATTRIBUTE_PTX_VERSION ? arch() : 0;
    return SUCCESS;
}

// Bytes that kernels changed since the last one that waited for all before it. Memory that came since then is nobody's yet.
static std::vector<ygg_emulation::Unseen::Run> changed(const Stream& stream) {
    std::vector<ygg_emulation::Unseen::Run> runs;
    const std::lock_guard guard(lock);
    for (const auto& [start, bytes] : stream.before) {
        const auto now = device_memory.find(start);
        if (now == device_memory.end() || now->second != bytes.size()) continue;
        auto* memory = reinterpret_cast<unsigned char*>(start);
        constexpr std::size_t TOGETHER = 512;
        for (std::size_t i = 0; i < bytes.size();) {
            if (i + TOGETHER <= bytes.size() && std::memcmp(memory + i, bytes.data() + i, TOGETHER) == 0) {
                i += TOGETHER;
                continue;
            }
            const std::size_t first = i;
            while (i < bytes.size() && memory[i] != bytes[i]) ++i;
            if (i > first)
                runs.push_back({memory + first, i - first});
            else
                ++i;
        }
    }
    return runs;
}
static std::size_t granted_to(const ygg_emulation::Kernel& kernel) {
    const std::lock_guard guard(lock);
    const auto found = granted.find(&kernel);
    return found == granted.end() ? 0 : found->second;
}
// By the last kernel of this thread.
static thread_local std::uint64_t loaded_last;
static void run_kernel(Stream& stream, const ygg_emulation::Kernel& kernel, const LaunchConfig& config, bool is_programmatic, const void* params) {
    auto launch = [&](ygg_emulation::Unseen* unseen) {
        ygg_emulation::loaded = 0;
        std::optional<ygg_emulation::Apart> apart;
        if (is_apart()) {
            const std::lock_guard guard(lock);
            apart.emplace();
            for (const auto& [start, bytes] : device_memory) apart->add(reinterpret_cast<unsigned char*>(start), bytes);
        }
        ygg_emulation::watch_faults();
        kernel.launch(config.grid, config.block.x, config.shared, granted_to(kernel), params, unseen, apart ? &*apart : nullptr);
        loaded_last = ygg_emulation::loaded;
        if (const char* path = std::getenv("YGG_EMULATION_TRAFFIC")) {
            const std::lock_guard guard(lock);
            const auto [x, y, z] = config.grid;
            if (std::FILE* file = std::fopen(path, "a")) {
                std::fprintf(file, "%s %u,%u,%u %u %u %llu\n", kernel.name, x, y, z, config.block.x, config.shared,
                             static_cast<unsigned long long>(loaded_last));
                std::fclose(file);
            }
        }
    };
    if (!is_overlapping()) return launch(nullptr);
    if (is_apart()) ygg_emulation::refuse("blocks apart are for architectures whose kernels do not overlap");
    if (is_programmatic) {
        ygg_emulation::Unseen unseen;
        unseen.runs = changed(stream);
        {
            const std::lock_guard guard(lock);
            for (const auto& [start, bytes] : device_memory) unseen.device.push_back(pages_of(start, bytes));
        }
        return launch(&unseen);
    }
    {
        const std::lock_guard guard(lock);
        for (const auto& [start, bytes] : device_memory) {
            const auto* memory = reinterpret_cast<const unsigned char*>(start);
            stream.before[start].assign(memory, memory + bytes);
        }
    }
    launch(nullptr);
}
API cuLaunchKernelEx(const LaunchConfig* config, CUfunction kernel, void** params, void**) {
    const auto [gx, gy, gz] = config->grid;
    const auto [bx, by, bz] = config->block;
    const bool fits =
        gx && gy && gz && gy < 65536 && gz < 65536 && bx && by == 1 && bz == 1 && bx <= kernel->most_threads;
    if (!fits || bx % 32 != 0) return INVALID_VALUE;
    if (config->shared > std::max(granted_to(*kernel), ygg_emulation::PLAIN_SHARED)) return INVALID_VALUE;
    bool is_programmatic = false;
    for (unsigned i = 0; i < config->count; ++i) {
        if (config->attributes[i].id != LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) return NOT_SUPPORTED;
        is_programmatic |= config->attributes[i].is_programmatic != 0;
    }
    if (is_programmatic && (!is_overlapping() || of(config->stream).is_behind_copy)) return NOT_SUPPORTED;
    of(config->stream).is_overlapping |= is_programmatic;
    const auto* bytes = static_cast<const unsigned char*>(params[0]);
    auto kept = std::make_shared<std::vector<std::uint64_t>>((kernel->params_bytes + 7) / 8);
    std::memcpy(kept->data(), bytes, kernel->params_bytes);
    return on(config->stream, [=, config = *config] { run_kernel(of(config.stream), *kernel, config, is_programmatic, kept->data()); });
}
API cuStreamBeginCapture_v2(CUstream stream, int) {
    // The default stream cannot be captured.
    if (!stream) return STREAM_CAPTURE_UNSUPPORTED;
    stream->is_capturing = true;
    stream->is_behind_copy = stream->is_overlapping = false;
    return SUCCESS;
}
API cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    const char* wish = std::getenv("YGG_EMULATION_CAPTURES");
    const bool is_refused = stream->is_overlapping && wish && std::strcmp(wish, "apart") == 0;
    *graph = is_refused ? nullptr : new Graph{std::move(stream->recorded)};
    stream->recorded.clear();
    stream->is_capturing = stream->is_behind_copy = false;
    return is_refused ? STREAM_CAPTURE_INVALIDATED : SUCCESS;
}
API cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
    *executable = new Executable{std::make_shared<const std::vector<Work>>(graph->nodes)};
    return SUCCESS;
}
API cuGraphGetNodes(CUgraph graph, void*, std::size_t* count) {
    *count = graph->nodes.size();
    return SUCCESS;
}
API cuGraphUpload(CUgraphExec, CUstream) { return SUCCESS; }
API cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    if (of(stream).is_capturing) return STREAM_CAPTURE_UNSUPPORTED;
    if (has_failed) return LAUNCH_FAILED;
    const unsigned launch = ++graphs_launched;
    const bool fails = is_told("YGG_EMULATION_FAILS_AT", launch);
    has_failed = fails || is_told("YGG_EMULATION_FAILS_BEHIND", launch);
    if (has_failed) return fails ? LAUNCH_FAILED : SUCCESS;
    of(stream).waiting.push_back([nodes = executable->nodes] {
        for (const Work& node : *nodes) node();
    });
    return SUCCESS;
}
API cuGraphExecDestroy(CUgraphExec executable) {
    delete executable;
    return SUCCESS;
}
API cuGraphDestroy(CUgraph graph) {
    delete graph;
    return SUCCESS;
}
API cuGetErrorString(CUresult error, const char** text) {
    static thread_local char buffer[48];
    std::snprintf(buffer, sizeof buffer, "error %d of the emulated driver", error);
    *text = buffer;
    return SUCCESS;
}
API cuGetErrorName(CUresult error, const char** name) { return cuGetErrorString(error, name); }

// Of the emulation alone: bytes that the last kernel asked for.
extern "C" __attribute__((visibility("default"))) void ygg_emulation_loaded(unsigned long long* bytes) { *bytes = loaded_last; }
