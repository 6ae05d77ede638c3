// A libcuda.so.1 for tests: the driver functions that the CUDA backend calls, with kernels run by the emulation. Streams do their work when
// somebody waits for it, and no sooner; a capture records it, of all streams that join it by events. What a driver refuses is refused here too,
// above all inside a capture: synchronisation, waiting for an event from outside, a stream that is not joined at the end, copies from memory of the
// host that is not pinned, copies to or from memory that was never allocated. So are a kernel that may begin early right after a copy or a join,
// and more shared memory than a function has asked for.
//
// A graph has the dependencies of its capture and no others. YGG_EMULATION_COPIES says when its copies to the device happen: `late`, just before the
// first node that must come after it, or `early`, as soon as those before it have ended. So a node that does not wait for a copy does not find it, and
// a copy that does not wait for the readers of what it overwrites comes before them. YGG_EMULATION_FORGETS=joins:N leaves out the N-th wait of
// every capture, from 0, by which its own stream joins another; forks:N that by which another stream waits once more for its own.
//
// YGG_EMULATION_PINNED=BYTES: most memory of the host that can be pinned.
// YGG_EMULATION_TRAFFIC=FILE: a line for every kernel that ran is added to it: its name, grid, threads, bytes of dynamic shared memory, and
// the bytes that it asked for.
// YGG_EMULATION_FAILS_AT=N lets the N-th launch of a graph fail, YGG_EMULATION_FAILS_BEHIND=N what waits for it; as on a GPU, everything fails
// from then on. YGG_EMULATION_CAPTURES=apart refuses captures with kernels that may begin early.
#include "emulation.h"

#include <atomic>
#include <condition_variable>
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
    NOT_READY = 600,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_MERGE = 902,
    STREAM_CAPTURE_UNJOINED = 904,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_ISOLATION = 905,
    CAPTURED_EVENT = 907,
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

// Other work is copies to the host, and clearing.
enum class Kind { KERNEL, COPY_TO_DEVICE, OTHER, WAIT };
struct Node {
    Kind kind;
    Work work;
    // Of a graph: the nodes that end before it begins.
    std::vector<std::size_t> predecessors;
};

struct Context {};
struct Module {};
struct Graph {
    std::vector<Node> nodes;
};
struct Executable {
    // In the order in which they are done.
    std::shared_ptr<const std::vector<Node>> nodes;
};
// What is recorded, of all streams that belong to it.
struct Capture {
    CUstream origin;
    std::vector<Node> nodes;
    // Whether it has a kernel that may begin early.
    bool is_overlapping = false;
    bool is_over = false;
    std::set<CUstream> joined;
    // Waits of its own stream for others, and of others for it.
    unsigned joins = 0, forks = 0;
};
struct Stream {
    std::shared_ptr<Capture> capture;
    // What comes next in it waits for these.
    std::vector<std::size_t> last;
    // What it was given last outside of captures.
    Kind last_kind = Kind::KERNEL;
    // Whoever reads before this is done finds what was there before, and whoever writes what it reads changes what it does. The first stays here
    // while it is done.
    std::deque<Node> waiting;
    // Whether a thread does the first.
    bool is_busy = false;
    // How much of it there ever was before what waits now.
    std::size_t done = 0;
    // Memory before the last kernel that waited for all before it to end: what kernels after it may find unchanged.
    std::map<std::uintptr_t, std::vector<unsigned char>> before;
};
struct Event {
    // Of an event that was recorded in a capture: what the stream had come to there.
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> last;
    // Of one that was recorded outside: how much work the stream had had. A stream that is no more has done everything.
    std::weak_ptr<Stream> stream;
    std::size_t place = 0;
};

static Context the_context;
static Module the_module;
static const auto the_default = std::make_shared<Stream>();
static std::mutex lock;
// What streams were given and have done; whoever waits for another thread's progress waits for `progress`.
static std::mutex queues;
static std::condition_variable progress;
static std::recursive_mutex running;
static std::map<std::uintptr_t, std::size_t> device_memory;
static std::map<std::uintptr_t, std::size_t> pinned_memory;
static std::map<Stream*, std::shared_ptr<Stream>> streams;
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
static bool is_within(const std::map<std::uintptr_t, std::size_t>& memory, std::uintptr_t at, std::size_t bytes) {
    const std::lock_guard guard(lock);
    auto after = memory.upper_bound(at);
    if (after == memory.begin()) return false;
    const auto& [start, size] = *--after;
    return at + bytes <= start + size;
}
static bool is_device_memory(CUdeviceptr at, std::size_t bytes) { return is_within(device_memory, at, bytes); }
static int arch() {
    const char* arch = std::getenv("YGG_EMULATION_ARCH");
    return arch ? std::atoi(arch) : 80;
}
static Stream& of(CUstream stream) { return stream ? *stream : *the_default; }
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
static CUresult on(CUstream at, Kind kind, Work work) {
    if (has_failed) return LAUNCH_FAILED;
    Stream& stream = of(at);
    if (stream.capture) {
        stream.capture->nodes.push_back({kind, std::move(work), stream.last});
        stream.last = {stream.capture->nodes.size() - 1};
        return SUCCESS;
    }
    const std::lock_guard guard(queues);
    stream.last_kind = kind;
    stream.waiting.push_back({kind, std::move(work), {}});
    return SUCCESS;
}
// A copy that is captured reads and writes memory of the host when the graph is launched: it must be pinned.
static CUresult on_copy(CUstream at, Kind kind, const void* host, std::size_t bytes, Work work) {
    const bool is_pinned = is_within(pinned_memory, reinterpret_cast<std::uintptr_t>(host), bytes);
    if (of(at).capture && !is_pinned) return STREAM_CAPTURE_UNSUPPORTED;
    return on(at, kind, std::move(work));
}
// Does what a stream was given before a place, or lets the thread that has begun with it.
static void drain(Stream& stream, std::size_t place = std::numeric_limits<std::size_t>::max()) {
    std::unique_lock guard(queues);
    place = std::min(place, stream.done + stream.waiting.size());
    while (stream.done < place) {
        if (stream.is_busy) {
            progress.wait(guard);
            continue;
        }
        stream.is_busy = true;
        const Node node = std::move(stream.waiting.front());
        guard.unlock();
        if (!has_failed) {
            // A wait lets others run.
            if (node.kind == Kind::WAIT)
                node.work();
            else
                perform(node.work);
        }
        guard.lock();
        stream.waiting.pop_front();
        ++stream.done;
        stream.is_busy = false;
        progress.notify_all();
    }
}
// The order of a graph's nodes with copies to the device as late as what comes after them allows, or as early as what is before them does.
static std::vector<std::size_t> order_of(const std::vector<Node>& nodes) {
    const char* wish = std::getenv("YGG_EMULATION_COPIES");
    const bool is_early = wish && std::strcmp(wish, "early") == 0;
    std::vector<std::size_t> order;
    std::vector<bool> is_done(nodes.size(), false);
    const std::function<void(std::size_t)> come_to = [&](std::size_t number) {
        if (is_done[number]) return;
        for (const std::size_t before : nodes[number].predecessors) come_to(before);
        is_done[number] = true;
        order.push_back(number);
    };
    const auto is_ready = [&](std::size_t number) {
        const auto& predecessors = nodes[number].predecessors;
        return std::all_of(predecessors.begin(), predecessors.end(), [&](std::size_t before) { return is_done[before]; });
    };
    std::vector<std::size_t> copies;
    for (std::size_t number = 0; number < nodes.size(); ++number)
        if (nodes[number].kind == Kind::COPY_TO_DEVICE) copies.push_back(number);
    std::size_t next_copy = 0;
    const auto come_to_ready_copies = [&] {
        // Copies of one stream follow each other.
        while (next_copy < copies.size() && (is_done[copies[next_copy]] || is_ready(copies[next_copy]))) come_to(copies[next_copy++]);
    };
    for (std::size_t number = 0; number < nodes.size(); ++number) {
        if (is_early) come_to_ready_copies();
        if (nodes[number].kind != Kind::COPY_TO_DEVICE) come_to(number);
    }
    for (std::size_t number = 0; number < nodes.size(); ++number) come_to(number);
    return order;
}
// Whether this is the wait that every capture is to leave out.
static bool is_forgotten(const char* kind, unsigned number) {
    const char* wish = std::getenv("YGG_EMULATION_FORGETS");
    const std::size_t length = std::strlen(kind);
    if (!wish || std::strncmp(wish, kind, length) != 0 || wish[length] != ':') return false;
    return static_cast<unsigned>(std::atoi(wish + length + 1)) == number;
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
    std::vector<std::shared_ptr<Stream>> all{the_default};
    {
        const std::lock_guard guard(lock);
        for (const auto& [_, stream] : streams) all.push_back(stream);
    }
    for (const auto& stream : all) drain(*stream);
    return has_failed ? LAUNCH_FAILED : SUCCESS;
}
API cuStreamCreate(CUstream* stream, unsigned) {
    const std::lock_guard guard(lock);
    const auto made = std::make_shared<Stream>();
    *stream = made.get();
    streams[made.get()] = made;
    return SUCCESS;
}
API cuStreamDestroy_v2(CUstream stream) {
    drain(*stream);
    const std::lock_guard guard(lock);
    streams.erase(stream);
    return SUCCESS;
}
API cuStreamSynchronize(CUstream stream) {
    if (of(stream).capture) return STREAM_CAPTURE_UNSUPPORTED;
    drain(of(stream));
    return has_failed ? LAUNCH_FAILED : SUCCESS;
}
API cuStreamQuery(CUstream stream) {
    if (of(stream).capture) return STREAM_CAPTURE_UNSUPPORTED;
    const std::lock_guard guard(queues);
    if (has_failed) return LAUNCH_FAILED;
    return of(stream).waiting.empty() ? SUCCESS : NOT_READY;
}
API cuStreamIsCapturing(CUstream stream, int* status) {
    *status = of(stream).capture ? 1 : 0;
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
    const std::lock_guard guard(lock);
    std::size_t used = bytes;
    for (const auto& [_, others] : pinned_memory) used += others;
    const char* most = std::getenv("YGG_EMULATION_PINNED");
    if (most && used > std::strtoull(most, nullptr, 10)) return OUT_OF_MEMORY;
    *at = std::aligned_alloc(PAGE, pages(bytes));
    if (!*at) return OUT_OF_MEMORY;
    pinned_memory[reinterpret_cast<std::uintptr_t>(*at)] = bytes;
    return SUCCESS;
}
API cuMemFreeHost(void* at) {
    const std::lock_guard guard(lock);
    if (pinned_memory.erase(reinterpret_cast<std::uintptr_t>(at)) == 0) return INVALID_VALUE;
    std::free(at);
    return SUCCESS;
}
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
    if (!is_device_memory(to, bytes)) return INVALID_VALUE;
    return on_copy(stream, Kind::COPY_TO_DEVICE, from, bytes, [=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); });
}
API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    if (!is_device_memory(from, bytes)) return INVALID_VALUE;
    return on_copy(stream, Kind::OTHER, to, bytes, [=] { std::memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
// The structure of `cuMemcpy2D`, by cuda.h; a side is memory of the host (1) or of the device (2).
struct CopyOfRows {
    std::size_t from_x, from_y;
    unsigned from_kind;
    const void* from_host;
    CUdeviceptr from_device;
    void* from_array;
    std::size_t from_pitch;
    std::size_t to_x, to_y;
    unsigned to_kind;
    void* to_host;
    CUdeviceptr to_device;
    void* to_array;
    std::size_t to_pitch;
    std::size_t bytes, rows;
};
API cuMemcpy2DAsync_v2(const CopyOfRows* given, CUstream stream) {
    const CopyOfRows copy = *given;
    const bool to_device = copy.from_kind == 1 && copy.to_kind == 2;
    const bool to_host = copy.from_kind == 2 && copy.to_kind == 1;
    if (!to_device && !to_host) return INVALID_VALUE;
    if (copy.bytes == 0 || copy.rows == 0 || copy.bytes > copy.from_pitch || copy.bytes > copy.to_pitch) return INVALID_VALUE;
    if (copy.from_x != 0 || copy.from_y != 0 || copy.to_x != 0 || copy.to_y != 0) return INVALID_VALUE;
    const auto span = [&](std::size_t pitch) { return (copy.rows - 1) * pitch + copy.bytes; };
    const CUdeviceptr device = to_device ? copy.to_device : copy.from_device;
    if (!is_device_memory(device, span(to_device ? copy.to_pitch : copy.from_pitch))) return INVALID_VALUE;
    const void* host = to_device ? copy.from_host : copy.to_host;
    const std::size_t host_bytes = span(to_device ? copy.from_pitch : copy.to_pitch);
    return on_copy(stream, to_device ? Kind::COPY_TO_DEVICE : Kind::OTHER, host, host_bytes, [=] {
        const auto* from = to_device ? static_cast<const char*>(copy.from_host) : reinterpret_cast<const char*>(copy.from_device);
        auto* to = to_device ? reinterpret_cast<char*>(copy.to_device) : static_cast<char*>(copy.to_host);
        for (std::size_t row = 0; row < copy.rows; ++row) std::memcpy(to + row * copy.to_pitch, from + row * copy.from_pitch, copy.bytes);
    });
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
    return on(stream, Kind::OTHER, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}
API cuEventCreate(CUevent* event, unsigned) {
    *event = new Event;
    return SUCCESS;
}
API cuEventDestroy_v2(CUevent event) {
    delete event;
    return SUCCESS;
}
API cuEventRecord(CUevent event, CUstream at) {
    Stream& stream = of(at);
    if (stream.capture) {
        *event = {stream.capture, stream.last, {}, 0};
        return SUCCESS;
    }
    std::shared_ptr<Stream> recorded = the_default;
    if (at) {
        const std::lock_guard guard(lock);
        recorded = streams.at(at);
    }
    const std::lock_guard guard(queues);
    *event = {nullptr, {}, recorded, stream.done + stream.waiting.size()};
    return SUCCESS;
}
API cuEventSynchronize(CUevent event) {
    if (event->capture) return CAPTURED_EVENT;
    if (const auto stream = event->stream.lock()) drain(*stream, event->place);
    return has_failed ? LAUNCH_FAILED : SUCCESS;
}
// A stream that waits for an event of a capture belongs to it from then on.
static CUresult wait_in(const std::shared_ptr<Capture>& capture, CUstream at, const std::vector<std::size_t>& last) {
    if (!at) return STREAM_CAPTURE_UNSUPPORTED;
    if (at->capture && at->capture != capture) return STREAM_CAPTURE_MERGE;
    if (at == capture->origin) {
        if (is_forgotten("joins", capture->joins++)) return SUCCESS;
    } else if (at->capture) {
        if (is_forgotten("forks", capture->forks++)) return SUCCESS;
    } else {
        capture->joined.insert(at);
        at->capture = capture;
        at->last.clear();
    }
    for (const std::size_t node : last)
        if (std::find(at->last.begin(), at->last.end(), node) == at->last.end()) at->last.push_back(node);
    return SUCCESS;
}
API cuStreamWaitEvent(CUstream at, CUevent event, unsigned) {
    if (event->capture) return event->capture->is_over ? CAPTURED_EVENT : wait_in(event->capture, at, event->last);
    const auto other = event->stream.lock();
    if (!other) return SUCCESS;
    if (of(at).capture) return STREAM_CAPTURE_ISOLATION;
    return on(at, Kind::WAIT, [other = event->stream, place = event->place] {
        if (const auto stream = other.lock()) drain(*stream, place);
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
// One, so that a block of a product takes several parts of the work.
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t shared) {
    if (shared > ygg_emulation::MOST_SHARED) return INVALID_VALUE;
    *blocks = 1;
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
// After one kernel, or first in a capture.
static bool may_begin_early(const Stream& stream) {
    if (!stream.capture) return stream.last_kind == Kind::KERNEL;
    const auto& last = stream.last;
    return last.empty() || (last.size() == 1 && stream.capture->nodes[last[0]].kind == Kind::KERNEL);
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
    const Stream& stream = of(config->stream);
    if (is_programmatic && (!is_overlapping() || !may_begin_early(stream))) return NOT_SUPPORTED;
    if (stream.capture) stream.capture->is_overlapping |= is_programmatic;
    const auto* bytes = static_cast<const unsigned char*>(params[0]);
    auto kept = std::make_shared<std::vector<std::uint64_t>>((kernel->params_bytes + 7) / 8);
    std::memcpy(kept->data(), bytes, kernel->params_bytes);
    return on(config->stream, Kind::KERNEL, [=, config = *config] { run_kernel(of(config.stream), *kernel, config, is_programmatic, kept->data()); });
}
API cuStreamBeginCapture_v2(CUstream stream, int) {
    // The default stream cannot be captured.
    if (!stream) return STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return STREAM_CAPTURE_UNSUPPORTED;
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->last.clear();
    return SUCCESS;
}
// Whether all that was recorded ends before what its own stream came to last.
static bool is_joined(const Capture& capture, const std::vector<std::size_t>& last) {
    std::vector<bool> is_before(capture.nodes.size(), false);
    for (const std::size_t node : last) is_before[node] = true;
    for (std::size_t node = capture.nodes.size(); node-- > 0;)
        if (is_before[node])
            for (const std::size_t before : capture.nodes[node].predecessors) is_before[before] = true;
    return std::all_of(is_before.begin(), is_before.end(), [](bool is) { return is; });
}
API cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    const std::shared_ptr<Capture> capture = stream->capture;
    *graph = nullptr;
    if (!capture || capture->origin != stream) return STREAM_CAPTURE_UNSUPPORTED;
    capture->is_over = true;
    const bool is_whole = is_joined(*capture, stream->last);
    for (const CUstream joined : capture->joined) joined->capture = nullptr;
    stream->capture = nullptr;
    if (!is_whole) return STREAM_CAPTURE_UNJOINED;
    const char* wish = std::getenv("YGG_EMULATION_CAPTURES");
    if (capture->is_overlapping && wish && std::strcmp(wish, "apart") == 0) return STREAM_CAPTURE_INVALIDATED;
    *graph = new Graph{std::move(capture->nodes)};
    return SUCCESS;
}
API cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
    auto nodes = std::make_shared<std::vector<Node>>();
    for (const std::size_t number : order_of(graph->nodes)) nodes->push_back(graph->nodes[number]);
    *executable = new Executable{nodes};
    return SUCCESS;
}
API cuGraphGetNodes(CUgraph graph, void*, std::size_t* count) {
    *count = graph->nodes.size();
    return SUCCESS;
}
API cuGraphUpload(CUgraphExec, CUstream) { return SUCCESS; }
API cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    if (of(stream).capture) return STREAM_CAPTURE_UNSUPPORTED;
    if (has_failed) return LAUNCH_FAILED;
    const unsigned launch = ++graphs_launched;
    const bool fails = is_told("YGG_EMULATION_FAILS_AT", launch);
    has_failed = fails || is_told("YGG_EMULATION_FAILS_BEHIND", launch);
    if (has_failed) return fails ? LAUNCH_FAILED : SUCCESS;
    const std::lock_guard guard(queues);
    of(stream).waiting.push_back({Kind::OTHER, [nodes = executable->nodes] {
        for (const Node& node : *nodes) node.work();
    }, {}});
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

// Of the emulation alone: from here on the bytes that kernels ask for are counted; those of the last one.
extern "C" __attribute__((visibility("default"))) void ygg_emulation_count_loads() { ygg_emulation::counts_loads = true; }
extern "C" __attribute__((visibility("default"))) void ygg_emulation_loaded(unsigned long long* bytes) { *bytes = loaded_last; }
