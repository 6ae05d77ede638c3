// Checks of single kernels and of the driver's refusals, through the driver's interface: what whole models would show late, or never.
//
// usage: checks NAME...; ends with 1 and says why if one fails. Kernels are judged by plain loops in double precision.
#include "../abi.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

typedef unsigned long long Pointer;
struct Attribute {
    unsigned id;
    char pad[4];
    union {
        char whole[64];
        int is_programmatic;
    };
};
struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    Attribute* attributes;
    unsigned count;
};
extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuCtxSynchronize();
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuFuncSetAttribute(void*, int, int);
int cuMemAlloc_v2(Pointer*, std::size_t);
int cuMemFree_v2(Pointer);
int cuMemcpyHtoD_v2(Pointer, const void*, std::size_t);
int cuMemcpyDtoH_v2(void*, Pointer, std::size_t);
int cuMemcpyHtoDAsync_v2(Pointer, const void*, std::size_t, void*);
int cuStreamCreate(void**, unsigned);
int cuLaunchKernelEx(const Config*, void*, void**, void**);
// Of the emulation alone: bytes that the last kernel asked for, where they are counted.
void ygg_emulation_count_loads();
void ygg_emulation_loaded(unsigned long long* bytes);
}
constexpr int MAX_DYNAMIC_SHARED = 8;
constexpr unsigned PROGRAMMATIC = 6;
constexpr int SUCCESS = 0;

static void* module;
static std::vector<std::string> complaints;

static bool expect(bool holds, const std::string& what) {
    if (!holds) complaints.push_back(what);
    return holds;
}
static void need(int result, const char* what) {
    if (result == SUCCESS) return;
    std::fprintf(stderr, "%s: error %d\n", what, result);
    std::exit(1);
}

// Device memory that begins as a copy.
template <class T> struct OnDevice {
    Pointer at = 0;
    std::size_t count;
    explicit OnDevice(const std::vector<T>& from) : count(from.size()) {
        need(cuMemAlloc_v2(&at, count * sizeof(T)), "allocate");
        need(cuMemcpyHtoD_v2(at, from.data(), count * sizeof(T)), "copy");
    }
    OnDevice(std::size_t count, T value) : OnDevice(std::vector<T>(count, value)) {}
    ~OnDevice() { cuMemFree_v2(at); }
    OnDevice(const OnDevice&) = delete;
    T* get() const { return reinterpret_cast<T*>(at); }
    std::vector<T> fetch() const {
        std::vector<T> to(count);
        need(cuMemcpyDtoH_v2(to.data(), at, count * sizeof(T)), "fetch");
        return to;
    }
};

static void* function(const char* name) {
    void* function = nullptr;
    need(cuModuleGetFunction(&function, module, name), name);
    return function;
}
template <class Params>
static int launch(const char* name, const unsigned (&grid)[3], unsigned threads, unsigned shared, const Params& params, void* stream = nullptr,
                  bool is_programmatic = false) {
    Attribute attribute{PROGRAMMATIC, {}, {}};
    attribute.is_programmatic = 1;
    const Config config{{grid[0], grid[1], grid[2]}, {threads, 1, 1}, shared, stream, &attribute, is_programmatic ? 1u : 0u};
    void* all[] = {const_cast<Params*>(&params)};
    return cuLaunchKernelEx(&config, function(name), all, nullptr);
}
template <class Params> static void run(const char* name, const unsigned (&grid)[3], unsigned threads, unsigned shared, const Params& params) {
    need(launch(name, grid, threads, shared, params), name);
    need(cuCtxSynchronize(), name);
}

// The last kernel asked for all of its operands, and hardly for more: a cheap model of its time.
static void asks_for_no_more(const std::string& name, double operands, double most = 1.3) {
    unsigned long long loaded = 0;
    ygg_emulation_loaded(&loaded);
    const double ratio = static_cast<double>(loaded) / operands;
    expect(0.999 <= ratio && ratio <= most, name + " asks for " + std::to_string(ratio) + " times the bytes of its operands, expected at most " + std::to_string(most));
}

static float half_value(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return static_cast<float>(bits >> 15 ? -magnitude : magnitude);
}
// The larger distance; what is no number is the largest of all.
static double farther(double worst, double distance) { return distance <= worst ? worst : std::isnan(distance) ? INFINITY : distance; }
static std::mt19937 dice(7);
static float number() { return std::uniform_real_distribution<float>(-1.0f, 1.0f)(dice); }
static YggStep step_of_no_group() { return {nullptr, YGG_NO_GROUP}; }

// Rows of halves saturate, whoever writes them; bfloat16 has room.
static void fragments_saturate() {
    const u32 columns = 64;
    std::vector<float> x(columns);
    for (u32 i = 0; i < columns; ++i) x[i] = i % 3 == 0 ? 65530.0f : i % 3 == 1 ? -7e4f : 3.0f;
    OnDevice<float> rows(x);
    OnDevice<u32> out(2 * 32 * 4, 0u);
    YggPrepare prepare{step_of_no_group(), {rows.get(), 1, columns, columns}, nullptr, 0.0f, {out.get(), YGG_FRAGMENT_F16, 1}, 1};
    run("ygg_prepare", {8, 1, 1}, YGG_ROW_THREADS, 0, prepare);
    std::map<std::uint16_t, unsigned> found;
    for (const u32 word : out.fetch()) ++found[static_cast<std::uint16_t>(word)], ++found[static_cast<std::uint16_t>(word >> 16)];
    found.erase(0);
    expect(found == std::map<std::uint16_t, unsigned>{{0x7bff, 22}, {0xfbff, 21}, {0x4200, 21}}, "inputs beyond halves are not the largest of them");

    // One partition and one place: what is joined is its value.
    OnDevice<float> partial(std::vector<float>(64, 1e5f)), largest(1, 0.0f), sum(1, 1.0f), joined(64, 0.0f);
    OnDevice<u32> prefix(1, 1u), none(1, 0u), next(2 * 32 * 4, 0u);
    YggAttention attention{};
    attention.step = step_of_no_group();
    attention.queries = {nullptr, 1, 64, 64};
    attention.prefix = prefix.get();
    attention.tail_len = none.get();
    attention.heads = attention.partitions = 1;
    attention.window = 0xffffffffu;
    attention.kv = {nullptr, nullptr, 1, 1, 64};
    attention.partial = partial.get();
    attention.partial_max = largest.get();
    attention.partial_sum = sum.get();
    attention.out = {joined.get(), 1, 64, 64};
    attention.next = {next.get(), YGG_FRAGMENT_F16, 1};
    run("ygg_attention_join", {1, 1, 1}, YGG_ATTENTION_THREADS, 0, attention);
    unsigned saturated = 0;
    for (const u32 word : next.fetch()) saturated += (word & 0xffffu) == 0x7bffu, saturated += word >> 16 == 0x7bffu;
    expect(saturated == 64, "what attention leaves for a product is beyond halves");
}

// More shared memory than 48 KB must be asked for, and as much as is used.
static void shared_memory_is_asked_for() {
    YggCandidates candidates{};
    OnDevice<u32> skipped(1, 1u);
    candidates.step = {skipped.get(), 0};
    const char* name = "ygg_candidates_of_rows";
    expect(launch(name, {1, 1, 1}, YGG_MERGE_THREADS, 60 << 10, candidates) != SUCCESS, "60 KB are granted to who did not ask");
    need(cuFuncSetAttribute(function(name), MAX_DYNAMIC_SHARED, 60 << 10), "ask for shared memory");
    expect(launch(name, {1, 1, 1}, YGG_MERGE_THREADS, 60 << 10, candidates) == SUCCESS, "60 KB are refused to who asked");
    expect(launch(name, {1, 1, 1}, YGG_MERGE_THREADS, 61 << 10, candidates) != SUCCESS, "61 KB are granted to who asked for 60");
    expect(cuFuncSetAttribute(function(name), MAX_DYNAMIC_SHARED, 200 << 10) != SUCCESS, "more is granted than there is");
    need(cuCtxSynchronize(), "run");
}

// A kernel that may begin early comes after a kernel. (Where kernels overlap.)
static void no_early_kernel_after_a_copy() {
    void* stream = nullptr;
    need(cuStreamCreate(&stream, 1), "make a stream");
    OnDevice<u32> words(4, 0u);
    const u32 from[4] = {};
    YggMultiply nothing{0, words.get()};
    need(cuMemcpyHtoDAsync_v2(words.at, from, sizeof from, stream), "copy");
    expect(launch("ygg_nothing", {1, 1, 1}, YGG_WARP, 0, nothing, stream, true) != SUCCESS, "a kernel may begin while a copy still runs");
    need(launch("ygg_nothing", {1, 1, 1}, YGG_WARP, 0, nothing, stream), "a kernel after a copy");
    YggScale scale{};
    OnDevice<u32> skipped(1, 1u);
    scale.step = {skipped.get(), 0};
    expect(launch("ygg_scale", {1, 1, 1}, YGG_ROW_THREADS, 0, scale, stream, true) == SUCCESS, "a kernel may not begin early after another");
    need(cuCtxSynchronize(), "run");
}

// What a row sees: a prefix, and the slots of its ancestors.
struct Row {
    u32 prefix;
    std::vector<u32> tail;
};
struct Heads {
    u32 head_dim, group;
    bool is_half;
    u32 window = 0xffffffffu;
    float softcap = 0.0f;
};

// Two key/value heads with random keys and values, and what attends to them.
struct Cache {
    const Heads of;
    const u32 heads, slots;
    std::vector<float> keys, values;
    std::vector<u16> half_keys, half_values;

    Cache(const Heads& of, u32 slots)
        : of(of), heads(2 * of.group), slots(slots), keys(2ul * slots * of.head_dim), values(keys.size()), half_keys(keys.size()), half_values(keys.size()) {
        for (std::size_t i = 0; i < keys.size(); ++i) {
            for (auto* bits : {&half_keys[i], &half_values[i]}) *bits = static_cast<u16>((dice() & 0x83ffu) | ((11 + dice() % 4) << 10));
            keys[i] = of.is_half ? half_value(half_keys[i]) : number();
            values[i] = of.is_half ? half_value(half_values[i]) : number();
        }
    }
    std::vector<float> queries_of(std::size_t rows) const {
        std::vector<float> queries(rows * heads * of.head_dim);
        for (float& x : queries) x = number();
        return queries;
    }
    static u32 longest(const std::vector<Row>& rows) {
        std::size_t longest = 1;
        for (const Row& row : rows) longest = std::max(longest, row.prefix + row.tail.size());
        return static_cast<u32>(longest);
    }

    // What the kernels make of rows, in as many blocks along the prefix, and as many of the rows of a tile.
    std::vector<float> attend(const std::vector<Row>& rows, const std::vector<float>& queries, u32 blocks) const {
        const u32 D = of.head_dim, W = static_cast<u32>(rows.size()), stride = (D + 3) / 4 * 4;
        std::size_t capacity = 1;
        for (const Row& row : rows) capacity = std::max(capacity, row.tail.size());
        std::vector<u32> prefix, tail_len, tails(W * capacity, 0);
        for (u32 w = 0; w < W; ++w) {
            prefix.push_back(rows[w].prefix);
            tail_len.push_back(static_cast<u32>(rows[w].tail.size()));
            std::copy(rows[w].tail.begin(), rows[w].tail.end(), tails.begin() + static_cast<std::ptrdiff_t>(w * capacity));
        }
        const u32 partitions = (longest(rows) + YGG_PARTITION - 1) / YGG_PARTITION;
        const std::size_t parts = static_cast<std::size_t>(W) * heads * partitions;
        OnDevice<float> on_queries(queries), on_keys(keys), on_values(values), partial(parts * stride, 7.0f), largest(parts, 7.0f), sums(parts, 7.0f),
            out(queries.size(), 0.0f);
        OnDevice<u16> on_half_keys(half_keys), on_half_values(half_values);
        OnDevice<u32> on_prefix(prefix), on_tail_len(tail_len), on_tails(tails), positions(W, 0u);
        YggAttention p{};
        p.step = step_of_no_group();
        p.queries = {on_queries.get(), W, heads * D, heads * D};
        p.positions = positions.get();
        p.prefix = on_prefix.get();
        p.tail_len = on_tail_len.get();
        p.tails = on_tails.get();
        p.tail_capacity = static_cast<u32>(capacity);
        p.heads = heads;
        p.partitions = partitions;
        p.scale = 1.0f / std::sqrt(static_cast<float>(D));
        p.softcap = of.softcap;
        p.window = of.window;
        p.kv = of.is_half ? YggKv{on_half_keys.get(), on_half_values.get(), 2, slots, D} : YggKv{on_keys.get(), on_values.get(), 2, slots, D};
        p.partial = partial.get();
        p.partial_max = largest.get();
        p.partial_sum = sums.get();
        p.out = {out.get(), W, heads * D, heads * D};
        const u32 vectors = W * of.group, element = of.is_half ? 2 : 4, widest = D <= 64 ? 64 : D <= 128 ? 128 : D <= 256 ? 256 : 512, wide = (D + 15) / 16 * 16, slot = wide * element + 16;
        const std::string name = std::string("ygg_attention_") + (of.is_half ? "f16_d" : "f32_d") + std::to_string(widest);
        const unsigned of_query = of.is_half ? std::max(2 * slot + (YGG_PARTITION + 8) * 4, YGG_SCORES_APART * 4u) : (wide + YGG_ATTENTION_THREADS) * 4;
        const unsigned whole = YGG_QUERY_TILE * of_query + (widest * element <= 512 ? 2 : 1) * YGG_PARTITION * slot;
        const u32 section = YGG_SECTION_BYTES + 16, sections = (D * element + YGG_SECTION_BYTES - 1) / YGG_SECTION_BYTES;
        const unsigned of_sections = of.is_half ? sections * 2 * section + (YGG_PARTITION + 8) * 4 : sections * YGG_SECTION_BYTES + YGG_ATTENTION_THREADS * 4;
        const unsigned shared = D <= 256 ? whole : YGG_QUERY_TILE * of_sections + YGG_SECTIONS_HELD * YGG_PARTITION * section;
        const u32 own = std::min(W, blocks);
        p.spread = std::min(partitions, blocks);
        need(cuFuncSetAttribute(function(name.c_str()), MAX_DYNAMIC_SHARED, static_cast<int>(std::max(shared, 48u << 10))), "ask for shared memory");
        run(name.c_str(), {p.spread + own, 2, (vectors + YGG_QUERY_TILE - 1) / YGG_QUERY_TILE}, YGG_ATTENTION_THREADS, shared, p);
        // Keys and values of every place, once: also of trees, of which one block has all rows.
        const bool is_tree = of.is_half && D <= 256 && W > 1 && blocks == 1 && vectors <= YGG_QUERY_TILE && longest(rows) < slots && slots == prefix[0] + W;
        if ((W == 1 || is_tree) && D % 8 == 0 && of.window > longest(rows)) asks_for_no_more(name, 4.0 * (is_tree ? slots : longest(rows)) * D * element);
        run("ygg_attention_join", {heads, W, 1}, YGG_ATTENTION_THREADS, 0, p);
        // Every warp reads the largest scores, twice, and the sums.
        if (W == 1 && of.window > longest(rows)) asks_for_no_more("ygg_attention_join", 4.0 * heads * partitions * (stride + 3 * YGG_ATTENTION_THREADS / YGG_WARP), 1.3 + 1.0 / partitions);
        return out.fetch();
    }

    // The farthest that results are from those of loops.
    double distance(const std::vector<Row>& rows, const std::vector<float>& queries, const std::vector<float>& found) const {
        const u32 D = of.head_dim;
        double worst = 0.0;
        for (std::size_t w = 0; w < rows.size(); ++w)
            for (u32 head = 0; head < heads; ++head) {
                const u32 prefix = rows[w].prefix, length = prefix + static_cast<u32>(rows[w].tail.size());
                const float* query = &queries[(w * heads + head) * D];
                std::vector<double> total(D, 0.0), scores;
                std::vector<std::size_t> places;
                for (u32 i = length > of.window ? length - of.window : 0; i < length; ++i) {
                    const std::size_t at = (static_cast<std::size_t>(head / of.group) * slots + (i < prefix ? i : rows[w].tail[i - prefix])) * D;
                    double score = 0.0;
                    for (u32 d = 0; d < D; ++d) score += static_cast<double>(query[d]) * keys[at + d];
                    score /= std::sqrt(static_cast<double>(D));
                    scores.push_back(of.softcap > 0 ? of.softcap * std::tanh(score / of.softcap) : score);
                    places.push_back(at);
                }
                double best = -1e300, weights = 0.0;
                for (const double score : scores) best = std::max(best, score);
                for (std::size_t i = 0; i < places.size(); ++i) {
                    const double weight = std::exp(scores[i] - best);
                    weights += weight;
                    for (u32 d = 0; d < D; ++d) total[d] += weight * values[places[i] + d];
                }
                for (u32 d = 0; d < D; ++d)
                    worst = farther(worst, std::abs((places.empty() ? 0.0 : total[d] / weights) - found[(w * heads + head) * D + d]));
            }
        return worst;
    }
};

// Rows that see a prefix without its last few places, and then tails of scattered slots after the context.
static std::vector<Row> scattered(u32 rows, u32 prefix, u32 tails, u32 context) {
    std::vector<Row> all;
    for (u32 w = 0; w < rows; ++w) {
        Row row{prefix - std::min(w % 7, prefix), {}};
        for (u32 i = 0; i < tails - std::min(w % 3, tails); ++i) row.tail.push_back(context + (i * 5 + w) % 64);
        all.push_back(row);
    }
    return all;
}
static void attention_is_that_of_loops(const Heads& of, u32 W, u32 prefix, u32 tails) {
    const u32 context = prefix + tails + 1;
    const Cache cache(of, context + 64);
    const std::vector<Row> rows = scattered(W, prefix, tails, context);
    const std::vector<float> queries = cache.queries_of(W);
    const double worst = cache.distance(rows, queries, cache.attend(rows, queries, 3));
    expect(worst < 2e-5, "attention of " + std::to_string(W) + " rows of " + std::to_string(of.group) + " heads of " + std::to_string(of.head_dim) + " after " +
                             std::to_string(prefix) + " and " + std::to_string(tails) + " is off by " + std::to_string(worst));
}

static void attention() {
    // Around the ends of partitions, with heads that are no multiple of a load, in both formats.
    for (const bool is_half : {true, false})
        for (const u32 head_dim : {8u, 20u, 24u, 64u, 80u, 128u, 256u, 276u, 512u})
            for (const u32 prefix : {0u, 31u, 63u, 64u, 65u, 130u})
                attention_is_that_of_loops({head_dim, 1 + head_dim % 3, is_half}, prefix % 2 ? 1 : 5, prefix, prefix == 64 ? 70 : 3);
    attention_is_that_of_loops({128, 4, true}, 9, 700, 12);
    attention_is_that_of_loops({64, 8, true, 100, 20.0f}, 3, 400, 9);
    attention_is_that_of_loops({64, 1, false, 33}, 2, 400, 0);
    attention_is_that_of_loops({512, 8, true, 100, 20.0f}, 3, 400, 9);
}

// Positions beyond 16 bits in every product of sizes; and one place far in that outweighs all others by more than an exponent holds.
static void attention_of_a_long_context() {
    attention_is_that_of_loops({128, 1, true}, 1, 32760, 7);
    Cache cache({128, 1, true}, 4000);
    const std::vector<float> queries = cache.queries_of(1);
    for (u32 d = 0; d < 128; ++d) {
        const std::size_t at = 40ul * YGG_PARTITION * 128 + d;
        cache.half_keys[at] = queries[d] < 0 ? 0xd000 : 0x5000;
        cache.keys[at] = half_value(cache.half_keys[at]);
    }
    const double worst = cache.distance({{3900, {}}}, queries, cache.attend({{3900, {}}}, queries, 3));
    expect(worst < 2e-5, "attention to one place is off by " + std::to_string(worst));
}

// A row gets the same bits alone and among others, in any number of blocks, and whether what it sees is committed already.
static void attention_of_rows() {
    for (const Heads& of : {Heads{128, 1, true}, Heads{64, 3, true, 150}, Heads{24, 4, false}, Heads{512, 4, true}, Heads{320, 3, false, 150}}) {
        const Cache cache(of, 400);
        std::vector<Row> rows = scattered(11, 200, 7, 300);
        // The same sequence: its last places in the prefix, and as ancestors.
        rows.push_back({262, {}});
        rows.push_back({190, {}});
        for (u32 i = 190; i < 262; ++i) rows.back().tail.push_back(i);
        const std::size_t each = static_cast<std::size_t>(cache.heads) * of.head_dim, last = rows.size() - 1;
        std::vector<float> queries = cache.queries_of(rows.size());
        std::copy_n(queries.begin() + static_cast<std::ptrdiff_t>((last - 1) * each), each, queries.begin() + static_cast<std::ptrdiff_t>(last * each));
        const std::vector<float> all = cache.attend(rows, queries, 2);
        expect(std::memcmp(&all[(last - 1) * each], &all[last * each], each * sizeof(float)) == 0, "a commit changes bits");
        expect(cache.attend(rows, queries, 100) == all, "bits depend on the number of blocks");
        for (std::size_t w = 0; w < rows.size(); ++w) {
            const auto first = queries.begin() + static_cast<std::ptrdiff_t>(w * each);
            const std::vector<float> alone = cache.attend({rows[w]}, {first, first + static_cast<std::ptrdiff_t>(each)}, 1);
            expect(std::memcmp(alone.data(), &all[w * each], each * sizeof(float)) == 0, "row " + std::to_string(w) + " depends on its company");
        }
    }
}

// Rows that see the same prefix, and ancestors in slots right after it: `children` of every row, or a chain.
static std::vector<Row> tree(u32 rows, u32 prefix, u32 children) {
    std::vector<Row> all(rows, Row{prefix, {}});
    for (u32 w = 0; w < rows; ++w) {
        for (u32 node = w; node > 0; node = (node - 1) / children) all[w].tail.push_back(prefix + node);
        all[w].tail.push_back(prefix);
        std::reverse(all[w].tail.begin(), all[w].tail.end());
    }
    return all;
}
// Rows of a tree get what loops say, and the bits that each gets alone, in its own block or with no other row at all.
static void attention_of_trees() {
    struct Case {
        Heads of;
        u32 rows, prefix, children;
    };
    for (const auto& [of, W, prefix, children] : {
             Case{{128, 1, true}, 16, 200, 3}, Case{{128, 1, true}, 40, 190, 1}, Case{{64, 3, true, 150, 20.0f}, 13, 250, 2}, Case{{64, 4, true}, 64, 127, 2},
             Case{{20, 1, true}, 9, 0, 2}, Case{{24, 2, true, 9}, 24, 66, 1}, Case{{80, 1, true}, 5, 128, 1}, Case{{256, 1, true}, 20, 120, 1},
             Case{{512, 2, true}, 9, 120, 2}}) {
        const Cache cache(of, prefix + W);
        const std::vector<Row> rows = tree(W, prefix, children);
        const std::vector<float> queries = cache.queries_of(W);
        const std::vector<float> found = cache.attend(rows, queries, 1);
        const std::string what = "a tree of " + std::to_string(W) + " rows of heads of " + std::to_string(of.head_dim) + " after " + std::to_string(prefix);
        const double worst = cache.distance(rows, queries, found);
        expect(worst < 2e-5, what + " is off by " + std::to_string(worst));
        for (const u32 blocks : {3u, W}) expect(cache.attend(rows, queries, blocks) == found, what + ": bits depend on the number of blocks");
        const std::size_t each = static_cast<std::size_t>(cache.heads) * of.head_dim;
        for (std::size_t w = 0; w < W; w += 7) {
            const auto first = queries.begin() + static_cast<std::ptrdiff_t>(w * each);
            const std::vector<float> alone = cache.attend({rows[w]}, {first, first + static_cast<std::ptrdiff_t>(each)}, 1);
            expect(std::memcmp(alone.data(), &found[w * each], each * sizeof(float)) == 0, what + ": row " + std::to_string(w) + " depends on its company");
        }
    }
}

// Rows as products read them: with and without a norm, of every length of a block's registers and beyond, and of odd ones.
static void prepared_rows() {
    for (const u32 columns : {40u, 61u, 576u, 4096u, 9000u, 10240u}) {
        std::vector<float> x(2 * columns), gains(columns);
        for (float& one : x) one = number();
        for (float& one : gains) one = number();
        const u32 padded = (columns + YGG_TILE_K - 1) / YGG_TILE_K * YGG_TILE_K;
        OnDevice<float> rows(x), gain(gains), plain(x.size(), 0.0f), normed(x.size(), 0.0f);
        OnDevice<u32> fragments(padded * 4, 0xffffffffu);
        const std::string what = std::to_string(columns) + " inputs: ";
        YggPrepare prepare{step_of_no_group(), {rows.get(), 2, columns, columns}, gain.get(), 1e-5f, {plain.get(), YGG_FRAGMENT_F32, 1}, 1};
        run("ygg_prepare", {2, 1, 1}, YGG_ROW_THREADS, 0, prepare);
        const YggNormRows norm{step_of_no_group(), {rows.get(), 2, columns, columns}, gain.get(), 1e-5f, columns, {normed.get(), 2, columns, columns}};
        run("ygg_rms_norm", {2, 1, 1}, YGG_ROW_THREADS, 0, norm);
        asks_for_no_more("ygg_rms_norm of " + std::to_string(columns), 16.0 * columns);
        const std::vector<float> found = plain.fetch();
        expect(found == normed.fetch(), what + "a norm apart has other bits");
        prepare.out = {fragments.get(), YGG_FRAGMENT_BF16, 1};
        run("ygg_prepare", {8, 1, 1}, YGG_ROW_THREADS, 0, prepare);
        asks_for_no_more("ygg_prepare of " + std::to_string(columns), 16.0 * columns);
        const std::vector<u32> words = fragments.fetch();
        double worst = 0.0, worst_fragment = 0.0;
        for (u32 w = 0; w < 8; ++w) {
            double squares = 0.0;
            for (u32 k = 0; w < 2 && k < columns; ++k) squares += static_cast<double>(x[w * columns + k]) * x[w * columns + k];
            for (u32 k = 0; k < padded; ++k) {
                const bool is_there = w < 2 && k < columns;
                const double expected = is_there ? x[w * columns + k] / std::sqrt(squares / columns + 1e-5) * gains[k] : 0.0;
                // Element k of row w: lane and word as the right operand of the multiplication of 16 inputs by 8 rows has them.
                const u32 word = words[((k / 32 * 32 + w * 4 + k % 8 / 2) * 4) + k % 32 / 16 * 2 + k % 16 / 8];
                const float fragment = std::bit_cast<float>(k % 2 ? word & 0xffff0000u : word << 16);
                worst_fragment = farther(worst_fragment, std::abs(fragment - expected) / (std::abs(expected) + 1e-6));
                if (is_there) worst = farther(worst, std::abs(found[w * columns + k] - expected));
            }
        }
        expect(worst < 1e-5, what + "a norm is off by " + std::to_string(worst));
        expect(worst_fragment < 0.01, what + "a fragment is off by " + std::to_string(worst_fragment) + " of itself");
    }
}

// How a layout of packed weights lies in memory, a tile of 16 outputs and 64 inputs at a time: as `ygg_kernels::cuda::packing` says.
struct Layout {
    const char* name;
    std::size_t code_bytes, scale_bytes;
    // Element (output, input) of a tile from its codes and its scales.
    float (*element)(const u8* codes, const u8* scales, u32 n, u32 k);
};
template <class T> static T at(const u8* from, std::size_t i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    return value;
}
// Where an element is: lane and register of its fragment, and which half of the register.
struct Place {
    u32 fragment, lane, reg, half;
    Place(u32 n, u32 k) : fragment(k / 16), lane(n % 8 * 4 + k % 8 / 2), reg(n / 8 + k % 16 / 8 * 2), half(k % 2) {}
};
static float bfloat_value(u16 bits) { return std::bit_cast<float>(static_cast<u32>(bits) << 16); }
template <bool HALF> static float of_sixteen(const u8* codes, const u8*, u32 n, u32 k) {
    const Place p(n, k);
    const u16 bits = at<u16>(codes, ((p.fragment * 32 + p.lane) * 4 + p.reg) * 2 + p.half);
    return HALF ? half_value(bits) : bfloat_value(bits);
}
static float nibble_code(const u8* codes, u32 n, u32 k) {
    const Place p(n, k);
    return static_cast<float>(at<u32>(codes, p.lane * 4 + p.fragment) >> (4 * p.reg + 16 * p.half) & 15u);
}
static float byte_code(const u8* codes, u32 n, u32 k) {
    const Place p(n, k);
    const std::size_t word = (p.fragment / 2 * 32 + p.lane) * 4 + p.fragment % 2 * 2 + p.reg / 2;
    return at<signed char>(codes, word * 4 + p.reg % 2 * 2 + p.half);
}
static float of_centred(const u8* codes, const u8* scales, u32 n, u32 k) {
    return (nibble_code(codes, n, k) - 8.0f) * half_value(at<u16>(scales, n % 8 * 4 + n / 8 * 2 + k / 32));
}
static float of_nibbles(const u8* codes, const u8* scales, u32 n, u32 k) {
    const std::size_t scale = n % 8 * 4 + n / 8 * 2 + k / 32;
    return nibble_code(codes, n, k) * half_value(at<u16>(scales, 2 * scale)) + half_value(at<u16>(scales, 2 * scale + 1));
}
static float of_nibbles_wide(const u8* codes, const u8* scales, u32 n, u32 k) {
    const std::size_t scale = n % 8 * 4 + n / 8 * 2 + k / 32;
    return nibble_code(codes, n, k) * at<float>(scales, 2 * scale) + at<float>(scales, 2 * scale + 1);
}
static float of_fives_wide(const u8* codes, const u8* scales, u32 n, u32 k) {
    const Place p(n, k);
    const u32 fifth = at<u32>(codes + 512, p.lane) >> (4 * p.fragment + p.reg + 16 * p.half) & 1u;
    const std::size_t scale = n % 8 * 4 + n / 8 * 2 + k / 32;
    return (nibble_code(codes, n, k) + 16.0f * static_cast<float>(fifth)) * at<float>(scales, 2 * scale) + at<float>(scales, 2 * scale + 1);
}
static float of_twos(const u8* codes, const u8* scales, u32 n, u32 k) {
    const Place p(n, k);
    const float code = static_cast<float>(at<u32>(codes, p.lane * 2 + p.fragment / 2) >> (2 * (p.fragment % 2 * 4 + p.reg) + 16 * p.half) & 3u);
    const u8* of_output = scales + n % 8 * 16;
    const u8 both = of_output[n / 8 * 4 + k / 16], *factors = of_output + 8 + n / 8 * 4;
    return code * half_value(at<u16>(factors, 0)) * static_cast<float>(both & 15) - half_value(at<u16>(factors, 1)) * static_cast<float>(both >> 4);
}
static float of_floats(const u8* codes, const u8* scales, u32 n, u32 k) {
    const u32 code = static_cast<u32>(nibble_code(codes, n, k));
    const float magnitude = code % 8 < 2 ? static_cast<float>(code % 8) : std::ldexp(1.0f + static_cast<float>(code % 2) / 2, static_cast<int>(code % 8 / 2));
    return (code < 8 ? magnitude : -magnitude) * bfloat_value(at<u16>(scales, n % 8 * 8 + n / 8 * 4 + k / 16));
}
static float of_steps(const u8* codes, const u8* scales, u32 n, u32 k) {
    static const float steps[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return steps[static_cast<u32>(nibble_code(codes, n, k))] * at<float>(scales, n % 8 * 4 + n / 8 * 2 + k / 32);
}
static float of_bytes(const u8* codes, const u8* scales, u32 n, u32 k) {
    return byte_code(codes, n, k) * half_value(at<u16>(scales, n % 8 * 4 + n / 8 * 2 + k / 32));
}
static float of_bytes_wide(const u8* codes, const u8* scales, u32 n, u32 k) {
    return byte_code(codes, n, k) * at<float>(scales, n % 8 * 8 + n / 8 * 4 + k / 16);
}
static const Layout LAYOUTS[] = {
    {"bf16", 2048, 0, of_sixteen<false>},       {"f16", 2048, 0, of_sixteen<true>},       {"nibbles", 512, 128, of_nibbles},
    {"centred", 512, 64, of_centred},
    {"nibbles_wide", 512, 256, of_nibbles_wide}, {"fives_wide", 640, 256, of_fives_wide},
    {"twos", 256, 128, of_twos}, {"floats", 512, 128, of_floats}, {"steps", 512, 128, of_steps},
    {"bytes", 1024, 64, of_bytes}, {"bytes_wide", 1024, 256, of_bytes_wide},
};

// Random codes, and scales as small as what they multiply is large.
static void fill(const Layout& layout, std::vector<u8>& codes, std::vector<u8>& scales) {
    const bool is_sixteen = layout.scale_bytes == 0, is_half = std::strcmp(layout.name, "f16") == 0, is_wide = std::strstr(layout.name, "wide") || std::strcmp(layout.name, "steps") == 0, is_bytes_wide = std::strcmp(layout.name, "bytes_wide") == 0, is_floats = std::strcmp(layout.name, "floats") == 0;
    for (std::size_t i = 0; i + 1 < codes.size(); i += 2) {
        // Numbers between a half and 4, of either sign.
        const u16 bits = static_cast<u16>(is_half ? (dice() & 0x83ffu) | ((14 + dice() % 3) << 10) : (dice() & 0x807fu) | ((126 + dice() % 3) << 7));
        u16 any = is_sixteen ? bits : static_cast<u16>(dice());
        // Codes of 6 bits.
        if (is_bytes_wide) any = static_cast<u16>(((any & 0x3f3fu) ^ 0x2020u) | (any & 0x0020u ? 0 : 0xc0u) | (any & 0x2000u ? 0 : 0xc000u));
        std::memcpy(&codes[i], &any, 2);
    }
    for (std::size_t i = 0; i + 3 < scales.size(); i += 4) {
        const u32 two_halves = ((dice() & 0x83ff83ffu) | (7u + dice() % 3) << 10 | (9u + dice() % 3) << 26);
        const bool is_of_groups = std::strcmp(layout.name, "twos") == 0 && i % 16 < 8;
        const auto bfloat = [] { return std::bit_cast<u32>(number() * 0.05f) & 0xffff0000u; };
        const u32 of_scales = is_floats ? bfloat() | bfloat() >> 16 : is_wide ? std::bit_cast<u32>(number() * 0.05f) : two_halves;
        const u32 word = is_of_groups ? static_cast<u32>(dice()) : of_scales;
        std::memcpy(&scales[i], &word, 4);
    }
}

// Rows of a product by pieces, as if of an expert that all of them use, out of order and some of them alone: the bits of a plain product.
static void experts_have_the_bits_of_products(const Layout& layout, const YggLinear& plain, const std::vector<u8> (&codes)[2], const std::vector<u8> (&scales)[2], const std::vector<float>& expected, const std::string& what) {
    const bool is_gated = plain.up_codes != nullptr;
    const u32 width = plain.out.rows, outputs = plain.out.columns;
    std::vector<u8> matrices;
    const std::size_t matrix_bytes = codes[0].size() + (layout.scale_bytes == 0 ? 0 : scales[0].size());
    for (u32 i = 0; i < (is_gated ? 2 : 1); ++i) {
        matrices.insert(matrices.end(), codes[i].begin(), codes[i].end());
        if (layout.scale_bytes != 0) matrices.insert(matrices.end(), scales[i].begin(), scales[i].end());
    }
    std::vector<u32> rows(width);
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), std::mt19937(width));
    std::vector<YggPiece> pieces;
    // One row and a full piece in turn.
    for (u32 first = 0, most = 1; first < width; first += most, most = YGG_TILE_W + 1 - most) {
        YggPiece piece{0, {}};
        for (u32 i = 0; i < YGG_TILE_W; ++i) piece.parts[i] = i < most && first + i < width ? rows[first + i] : YGG_NO_PART;
        pieces.push_back(piece);
    }
    OnDevice<u8> on_matrices(matrices);
    OnDevice<u32> count(std::vector<u32>{static_cast<u32>(pieces.size())});
    OnDevice<YggPiece> on_pieces(pieces);
    OnDevice<float> out(expected.size(), 0.0f);
    YggRouted routed{plain, matrix_bytes, is_gated ? 1u : 0u, 1, 1, width / YGG_TILE_W, count.get(), on_pieces.get()};
    routed.linear.codes = on_matrices.get();
    routed.linear.scales = on_matrices.get() + codes[0].size();
    routed.linear.up_codes = routed.linear.up_scales = nullptr;
    routed.linear.out.data = out.get();
    const std::string name = std::string(is_gated ? "ygg_routed_gated_" : "ygg_routed_") + layout.name;
    for (const u32 blocks : {3u, (outputs + YGG_TILE_N - 1) / YGG_TILE_N * static_cast<u32>(pieces.size())}) {
        run(name.c_str(), {blocks, 1, 1}, YGG_LINEAR_THREADS, 0, routed);
        expect(out.fetch() == expected, what + " with experts: other bits");
    }
}

// A product, or a gated pair of them, at every width: the sums of loops, and the same bits whatever the width.
static void product_is_that_of_loops(const Layout& layout, u32 columns, u32 outputs, bool is_gated) {
    const u32 tiles_k = (columns + YGG_TILE_K - 1) / YGG_TILE_K, tiles_n = (outputs + YGG_TILE_N - 1) / YGG_TILE_N, most = 64;
    const std::string what = std::string(is_gated ? "a gated pair of " : "a product by ") + layout.name + " of " + std::to_string(columns) + " inputs";
    std::vector<u8> codes[2], scales[2];
    for (u32 i = 0; i < 2; ++i) {
        codes[i].resize(layout.code_bytes * tiles_k * tiles_n);
        scales[i].resize(std::max<std::size_t>(layout.scale_bytes * tiles_k * tiles_n, 4));
        fill(layout, codes[i], scales[i]);
    }
    std::vector<float> x(static_cast<std::size_t>(most) * columns);
    for (float& one : x) one = bfloat_value(static_cast<u16>(std::bit_cast<u32>(number()) >> 16));
    OnDevice<u8> on_codes(codes[0]), on_up_codes(codes[1]), on_scales(scales[0]), on_up_scales(scales[1]);
    OnDevice<float> on_x(x);
    const u32 format = std::strcmp(layout.name, "f16") == 0 ? YGG_FRAGMENT_F16 : YGG_FRAGMENT_BF16;
    const double weights = static_cast<double>(tiles_k) * tiles_n * (layout.code_bytes + layout.scale_bytes) * (is_gated ? 2 : 1);
    std::vector<std::vector<float>> found;
    OnDevice<u32> fragments(static_cast<std::size_t>(tiles_k) * most * YGG_TILE_K / 2, 0x7fc07fc0u);
    YggLinear widest{};
    for (u32 width = 8; width <= most; width *= 2) {
        YggPrepare prepare{step_of_no_group(), {on_x.get(), width, columns, columns}, nullptr, 0.0f, {fragments.get(), format, width / 8}, 1};
        run("ygg_prepare", {width, 1, 1}, YGG_ROW_THREADS, 0, prepare);
        const std::string kind = is_gated ? "ygg_gated_" : "ygg_linear_", name = kind + layout.name + "_w" + std::to_string(width);
        // As the backend says.
        const bool is_large = std::strncmp(layout.name, "nibbles", 7) == 0 || std::strcmp(layout.name, "twos") == 0 || std::strstr(layout.name, "wide");
        const bool is_wide = width > (is_gated && is_large ? 8u : 16u);
        const u32 of_block = is_wide ? YGG_WIDE_TILES / (is_gated ? 2 : 1) : 1, blocks = (tiles_n + of_block - 1) / of_block;
        // Blocks that take pairs of parts of the inputs, and a join after them; blocks that take all of the inputs. One thing each, or several.
        for (const u32 pairs : {is_wide ? YGG_SPLIT_K / 2 : 1, 1})
            for (const u32 most_blocks : {~0u, 3u}) {
                OnDevice<float> out(static_cast<std::size_t>(width) * outputs, 0.0f), parts(static_cast<std::size_t>(pairs) * blocks * YGG_WIDE_TILES * YGG_TILE_N * width, 7.0f);
                YggLinear linear{};
                linear.step = step_of_no_group();
                linear.fragments = fragments.get();
                linear.codes = on_codes.get();
                linear.scales = on_scales.get();
                linear.up_codes = is_gated ? on_up_codes.get() : nullptr;
                linear.up_scales = is_gated ? on_up_scales.get() : nullptr;
                linear.out = {out.get(), width, outputs, outputs};
                linear.tiles_k = tiles_k;
                linear.columns = columns;
                linear.function = YGG_SILU;
                linear.parts = pairs > 1 ? parts.get() : nullptr;
                const unsigned shared = !is_wide ? 0 : (YGG_WIDE_STAGES * 2 * YGG_TILE_K / 2 + YGG_WIDE_TILES * YGG_TILE_N * 3 / 2) * width * 4;
                need(cuFuncSetAttribute(function(name.c_str()), MAX_DYNAMIC_SHARED, static_cast<int>(std::max(shared, 48u << 10))), "ask for shared memory");
                const u32 launched = std::min(blocks * pairs, most_blocks);
                run(name.c_str(), {launched, 1, 1}, YGG_LINEAR_THREADS, shared, linear);
                // Rows are asked for once for the outputs of a block, whatever their number. A block that asks a tile ahead does so after its last
                // one, too.
                const bool is_ahead = width == 8 || (!is_wide && !is_large && std::strcmp(layout.name, "floats") != 0);
                const u32 past_end = is_ahead ? std::min<u32>(YGG_SPLIT_K, tiles_k) * launched : 0;
                asks_for_no_more(name, weights + 2.0 * (width * YGG_TILE_K * (tiles_k * blocks + past_end)));
                if (pairs > 1) {
                    run((kind + "join").c_str(), {blocks, width / 8, 1}, YGG_LINEAR_THREADS, 0, linear);
                    asks_for_no_more(kind + "join", 4.0 * (pairs * blocks * YGG_WIDE_TILES * YGG_TILE_N * width));
                }
                found.push_back(out.fetch());
                widest = linear;
            }
    }
    for (const auto& wider : found)
        expect(std::memcmp(wider.data(), found[0].data(), found[0].size() * sizeof(float)) == 0, what + ": bits depend on the width");
    experts_have_the_bits_of_products(layout, widest, codes, scales, found.back(), what);
    double worst = 0.0;
    for (u32 n = 0; n < outputs; ++n) {
        std::vector<float> rows[2];
        for (u32 i = 0; i < 2; ++i)
            for (u32 k = 0; k < columns; ++k) {
                const std::size_t tile = static_cast<std::size_t>(n / YGG_TILE_N) * tiles_k + k / YGG_TILE_K;
                rows[i].push_back(layout.element(&codes[i][tile * layout.code_bytes], scales[i].data() + tile * layout.scale_bytes, n % YGG_TILE_N, k % YGG_TILE_K));
            }
        for (u32 w = 0; w < most; ++w) {
            double sums[2] = {}, sizes[2] = {};
            for (u32 i = 0; i < 2; ++i)
                for (u32 k = 0; k < columns; ++k) {
                    const double product = static_cast<double>(rows[i][k]) * x[static_cast<std::size_t>(w) * columns + k];
                    sums[i] += product;
                    sizes[i] += product * product;
                }
            const double expected = is_gated ? sums[0] / (1.0 + std::exp(-sums[0])) * sums[1] : sums[0];
            // What rounding of weights to bf16 may do: of every product a 2^-9th.
            const double size = is_gated ? std::sqrt(sizes[0]) * std::abs(sums[1]) + std::sqrt(sizes[1]) * (std::abs(sums[0]) + 1) : std::sqrt(sizes[0]);
            worst = farther(worst, std::abs(expected - found.back()[static_cast<std::size_t>(w) * outputs + n]) / size);
        }
    }
    expect(worst < 0.01, what + " is off by " + std::to_string(worst) + " of its size");
}

static void products() {
    // One trip of the loop over inputs and a part of it, several, and those of models of 7B.
    for (const Layout& layout : LAYOUTS) {
        product_is_that_of_loops(layout, 576, 24, true);
        product_is_that_of_loops(layout, 2112, 56, false);
        product_is_that_of_loops(layout, 4224, 16, true);
    }
}
// The least that all kernels of products have something to do in.
static void product() { product_is_that_of_loops(LAYOUTS[0], 1100, 140, false); }
static void products_of_long_rows() {
    for (const Layout& layout : LAYOUTS) product_is_that_of_loops(layout, 14336, 32, false);
}

// The noise of a token by the library's logarithms, from words that loops make.
static std::vector<u32> key_at(u64 seed, u64 place) {
    std::vector<u32> c{static_cast<u32>(place), static_cast<u32>(place >> 32), 0, 0};
    u32 keys[2] = {static_cast<u32>(seed), static_cast<u32>(seed >> 32)};
    for (int round = 0; round < 10; ++round) {
        const u64 a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        c = {static_cast<u32>(b >> 32) ^ c[1] ^ keys[0], static_cast<u32>(b), static_cast<u32>(a >> 32) ^ c[3] ^ keys[1], static_cast<u32>(a)};
        keys[0] += 0x9E3779B9u, keys[1] += 0xBB67AE85u;
    }
    return c;
}
static long double noise_of(const std::vector<u32>& key, u32 token) {
    u64 bits = 0;
    for (int half = 0; half < 2; ++half) {
        u32 x = token * 0x9E3779B9u + key[2 * half];
        x = (x ^ x >> 16) * 0x21F0AAADu;
        x = ((x ^ x >> 15) + key[2 * half + 1]) * 0xD35A2D97u;
        bits = bits << 32 | (x ^ x >> 15);
    }
    const long double v = (static_cast<long double>(bits) + 0.5L) / 18446744073709551616.0L;
    return -std::log(-std::log1p(-v));
}

// Tokens that are drawn, at usual temperatures and at ones that leave no digits, where numbers are missing, infinite or equal; rows have
// more ranges than a block has threads, or end within the first.
static void draws() {
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    std::mt19937 random(7);
    unsigned surprises = 0;
    const struct { u32 tokens; std::vector<float> temperatures; } sizes[] = {{100, {1.0f, 0.6f}}, {1000, {1e-6f, 0.6f, 1.0f, 3e5f, 2.0f}}, {70000, {0.7f}}};
    for (const auto& [tokens, temperatures] : sizes)
        for (const float temperature : temperatures) {
            const u32 rows = 5, ranges = (tokens + YGG_RANGE - 1) / YGG_RANGE, first = 2 + tokens % 3;
            const u64 seed = random() * 0x9E3779B97F4A7C15ull;
            std::vector<float> logits(rows * tokens), best(rows * 3);
            std::vector<u32> positions(rows);
            for (u32 row = 0; row < rows; ++row) {
                // Not in order, and not one after the other.
                positions[row] = 1000 + row * row * 7 % 11;
                float* of_row = &logits[row * tokens];
                for (u32 i = 0; i < tokens; ++i) of_row[i] = std::normal_distribution<float>(0.0f, 1.5f)(random);
                if (row == 1) for (u32 i = 0; i < tokens; ++i) of_row[i] = i % 3 == 0 ? nan : i % 3 == 1 ? -inf : std::round(of_row[i]);
                if (row == 2) for (u32 i = 0; i < tokens; ++i) of_row[i] = nan;
                if (row == 3) of_row[tokens / 2] = of_row[tokens - 1] = inf;
                if (row == 4) for (u32 i = 0; i < tokens; ++i) of_row[i] = -inf;
                u32 favourite = 0xffffffffu, numbers = 0;
                for (u32 i = 0; i < tokens; ++i) {
                    if (std::isnan(of_row[i])) continue;
                    numbers = 1;
                    if (favourite == 0xffffffffu || of_row[i] > of_row[favourite]) favourite = i;
                }
                best[row * 3] = std::bit_cast<float>(numbers);
                best[row * 3 + 1] = std::bit_cast<float>(numbers == 0 ? 77u : favourite);
            }
            OnDevice<float> on_logits(logits), on_best(best);
            OnDevice<u32> on_positions(positions), leaders(rows * ranges, 0xcbcbcbcbu);
            OnDevice<YggNoise> noise(std::vector<YggNoise>{{{static_cast<u32>(seed), static_cast<u32>(seed >> 32)}, first, temperature, 1.0f / temperature, 0.0f}});
            const YggRace race{{on_logits.get(), rows, tokens, tokens}, {on_best.get(), rows, 3, 3}, noise.get(), on_positions.get(), ranges, leaders.get()};
            run("ygg_race_of_ranges", {ranges, rows, 1}, YGG_WARP, 0, race);
            run("ygg_race_of_rows", {rows, 1, 1}, YGG_MERGE_THREADS, 0, race);
            const std::vector<float> drawn = on_best.fetch();
            for (u32 row = 0; row < rows; ++row) {
                const u32 count = std::bit_cast<u32>(best[row * 3]), favourite = std::bit_cast<u32>(best[row * 3 + 1]);
                u32 winner = favourite;
                long double leading = -std::numeric_limits<long double>::infinity();
                const std::vector<u32> key = key_at(seed, static_cast<u64>(positions[row]) + first);
                for (u32 i = 0; i < tokens && count > 0; ++i) {
                    const float logit = logits[row * tokens + i], largest = logits[row * tokens + favourite];
                    const long double x = logit == largest ? 0.0L : (static_cast<long double>(logit) - largest) / temperature;
                    if (x + noise_of(key, i) > leading) leading = x + noise_of(key, i), winner = i;
                }
                surprises += winner != favourite;
                const u32 found = std::bit_cast<u32>(drawn[row * 3 + 1]);
                expect(found == winner, "row " + std::to_string(row) + " of " + std::to_string(tokens) + " tokens at " + std::to_string(temperature) + ": "
                                            + std::to_string(found) + " is drawn, not " + std::to_string(winner));
            }
        }
    expect(surprises > 12, "only " + std::to_string(surprises) + " draws are not of the best token");
}

// States along the sequences of a tree's rows, as loops say; and no step more than there are places in the tree, though rows come in any order, and
// one twice. The committed rows are followed in several forwards, and cut to where only the older of two earlier states is of use.
static void states_of(u32 is_scan, u32 is_grouped) {
    const u32 key_heads = 2, heads = 4, key_dim = 5, value_dim = 40, group = heads / key_heads, channels = 2 * key_heads * key_dim + heads * value_dim;
    const u32 ring = 150, row_floats = 2 * channels + 2 * heads, width = 11, capacity = 12, tiles = (value_dim + YGG_STATE_COLUMNS - 1) / YGG_STATE_COLUMNS, state = heads * key_dim * value_dim;
    std::mt19937 random(is_scan + 2 * is_grouped);
    auto between = [&](float low, float high) { return std::uniform_real_distribution<float>(low, high)(random); };
    std::vector<float> kept(ring * row_floats), skips(heads), zeros(3 * state, 0.0f);
    for (u32 row = 0; row < ring; ++row)
        for (u32 i = 0; i < row_floats; ++i) {
            const bool is_decay = i >= 2 * channels && i < 2 * channels + heads;
            // What is followed long ago still counts.
            kept[row * row_floats + i] = is_decay ? between(0.98f, 1.0f) : between(-0.5f, 0.5f);
        }
    for (float& skip : skips) skip = between(-1.0f, 1.0f);
    OnDevice<float> on_kept(kept), on_skips(skips), matrices(zeros), saved(YGG_SAVED_STATES * state, 7.0f), out(width * heads * value_dim, 0.0f);
    OnDevice<u32> held(std::vector<u32>(heads * tiles * 3, 0u)), counts(2, 7u);
    OnDevice<YggStateStep> steps(width * (width + capacity), YggStateStep{});
    const YggStates states{is_scan, is_grouped, key_heads, heads, key_dim, value_dim, ring, on_kept.get()};
    const std::string what = std::string(is_scan ? "a scan" : "a delta rule") + (is_grouped ? " of grouped heads" : "");
    for (const u32 from : {3u, 70u, 140u, 100u}) {
        if (from == 100) {
            std::vector<u32> words;
            for (u32 i = 0; i < heads * tiles; ++i) words.insert(words.end(), {YGG_NO_SLOT, YGG_NO_SLOT, 64u});
            need(cuMemcpyHtoD_v2(held.at, words.data(), words.size() * sizeof(u32)), "copy");
        }
        // Rows of a random tree after the committed ones, of slots that are none of theirs in the ring; the second last is another's twin, the last is padding.
        std::vector<std::vector<u32>> paths;
        for (u32 w = 0; w + 2 < width; ++w) {
            std::vector<u32> path = w == 0 || random() % 4 == 0 ? std::vector<u32>{} : paths[random() % paths.size()];
            path.push_back(from + w);
            paths.push_back(path);
        }
        std::shuffle(paths.begin(), paths.end(), random);
        paths.push_back(paths[4]);
        std::vector<u32> slots, prefixes(width, from), lengths, tails(width * capacity, 0u);
        for (u32 w = 0; w < width; ++w) {
            const bool is_row = w < paths.size();
            slots.push_back(is_row ? paths[w].back() : YGG_NO_SLOT);
            lengths.push_back(is_row ? static_cast<u32>(paths[w].size()) : 0u);
            if (is_row) std::copy(paths[w].begin(), paths[w].end(), tails.begin() + w * capacity);
        }
        OnDevice<u32> on_slots(slots), on_prefixes(prefixes), on_lengths(lengths), on_tails(tails);
        const YggStateOrder order{width, on_slots.get(), on_prefixes.get(), on_lengths.get(), on_tails.get(), capacity, counts.get(), steps.get()};
        run("ygg_state_order", {1, 1, 1}, YGG_MOST_WIDTH, 0, order);
        const YggStateWalk walk{step_of_no_group(), states, matrices.get(), held.get(), saved.get(), is_scan ? on_skips.get() : nullptr, counts.get(), steps.get(), {out.get(), width, heads * value_dim, heads * value_dim}};
        const unsigned shared = (key_dim * (YGG_STATE_COLUMNS + 2) + 2 * YGG_STATE_PARTS * YGG_STATE_COLUMNS) * 4;
        run("ygg_state_walk", {heads, tiles, 1}, YGG_STATE_COLUMNS * YGG_STATE_PARTS, shared, walk);
        expect(counts.fetch() == std::vector<u32>{from, width - 1}, what + ": a place is walked twice after " + std::to_string(from) + " rows");
        const std::vector<float> found = out.fetch();
        double worst = 0.0;
        for (u32 w = 0; w < paths.size(); ++w)
            for (u32 head = 0; head < heads; ++head) {
                std::vector<double> matrix(key_dim * value_dim, 0.0), results(value_dim, 0.0);
                const u32 key_head = is_grouped ? head / group : head % key_heads;
                auto follow = [&](u32 slot) {
                    const float* made = &kept[slot % ring * row_floats + channels];
                    const u32 first_value = is_scan ? 0 : 2 * key_heads * key_dim, values = heads * value_dim, keys = key_heads * key_dim;
                    const float *query = made + (is_scan ? values + keys : 0) + key_head * key_dim, *key = made + (is_scan ? values : keys) + key_head * key_dim;
                    const double decay = made[channels + head], amount = made[channels + heads + head];
                    for (u32 j = 0; j < value_dim; ++j) {
                        const double value = made[first_value + head * value_dim + j];
                        double known = 0.0;
                        for (u32 i = 0; i < key_dim; ++i) known += key[i] * decay * matrix[i * value_dim + j];
                        const double change = amount * (is_scan ? value : value - known);
                        results[j] = is_scan ? skips[head] * value : 0.0;
                        for (u32 i = 0; i < key_dim; ++i) {
                            matrix[i * value_dim + j] = decay * matrix[i * value_dim + j] + key[i] * change;
                            results[j] += query[i] * matrix[i * value_dim + j];
                        }
                    }
                };
                for (u32 row = 0; row < from; ++row) follow(row);
                for (const u32 slot : paths[w]) follow(slot);
                for (u32 j = 0; j < value_dim; ++j) worst = farther(worst, std::abs(results[j] - found[(w * heads + head) * value_dim + j]));
            }
        expect(worst < 1e-4, what + " is off by " + std::to_string(worst) + " after " + std::to_string(from) + " rows");
    }
}
static void states() {
    for (u32 i = 0; i < 4; ++i) states_of(i % 2, i / 2);
}

static const std::map<std::string, std::function<void()>> CHECKS = {
    {"states", states},
    {"fragments_saturate", fragments_saturate},
    {"shared_memory_is_asked_for", shared_memory_is_asked_for},
    {"no_early_kernel_after_a_copy", no_early_kernel_after_a_copy},
    {"product", product},
    {"products", products},
    {"products_of_long_rows", products_of_long_rows},
    {"prepared_rows", prepared_rows},
    {"draws", draws},
    {"attention", attention},
    {"attention_of_rows", attention_of_rows},
    {"attention_of_trees", attention_of_trees},
    {"attention_of_a_long_context", attention_of_a_long_context},
};

int main(int count, char** names) {
    need(cuInit(0), "start the driver");
    ygg_emulation_count_loads();
    void* context = nullptr;
    need(cuDevicePrimaryCtxRetain(&context, 0), "make a context");
    need(cuCtxSetCurrent(context), "use a context");
    need(cuModuleLoadData(&module, "emulated"), "load kernels");
    bool has_failed = count < 2;
    for (int i = 1; i < count; ++i) {
        const auto check = CHECKS.find(names[i]);
        if (check == CHECKS.end()) {
            std::fprintf(stderr, "no check is called %s\n", names[i]);
            return 2;
        }
        complaints.clear();
        check->second();
        for (const std::string& complaint : complaints) std::printf("%s: %s\n", names[i], complaint.c_str());
        if (complaints.empty()) std::printf("%s: ok\n", names[i]);
        has_failed |= !complaints.empty();
    }
    return has_failed ? 1 : 0;
}
