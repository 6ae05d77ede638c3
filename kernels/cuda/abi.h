// What the host tells kernels: one structure of parameters each, and the sizes that both sides must agree on.
//
// Plain C, so that bindgen makes Rust of it (`kernels/cuda/bindings.sh`; the result is checked in and asserts the layout).
// Shapes are in `[rows, columns]`; `W` rows of a forward, `R` rows of outputs, `K` inputs, `N` outputs, `H` query heads,
// `G` key/value heads, `D` elements of a head, `S` slots. Strides are in elements.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

// A step that belongs to no group is never skipped.
#define YGG_NO_GROUP 0xffffffffu
// A row without a slot stores nothing.
#define YGG_NO_SLOT 0xffffffffu
// A part of a row that is none.
#define YGG_NO_PART 0xffffffffu
// A step of a walk that goes on from the states of the committed rows.
#define YGG_COMMITTED 0xfffffffeu
// An offer that is none.
#define YGG_NO_TOKEN 0xffffffffu

enum {
    // Threads of a warp; kernels assume it.
    YGG_WARP = 32,
    // Inputs of a linear that lie together in packed weights and in fragments: those of four multiplications (m16n8k16).
    YGG_TILE_K = 64,
    // Outputs of a linear that lie together: rows of the left operand of a multiplication.
    YGG_TILE_N = 16,
    // Token rows of one multiplication of tensor cores: columns of its right operand.
    YGG_TILE_W = 8,
    // Most experts of a layer: numbers in the registers of a warp that routes a row, and what a block that groups rows has room for.
    YGG_MOST_EXPERTS = 512,
    // Most experts of a row.
    YGG_MOST_USED = 64,
    // Most token rows of a forward: the widest that products have kernels for.
    YGG_MOST_WIDTH = 64,
    // Parts of the inputs of a linear, which are summed apart and joined in order: whatever the width, so that
    // bits do not depend on it.
    YGG_SPLIT_K = 8,
    // Threads of a block of a linear: a warp for each part of the inputs.
    YGG_LINEAR_THREADS = 256,
    // Of a wide linear: tiles of outputs of a block, whose activations are read once for all, and steps of activations in
    // shared memory: one is multiplied while two are copied.
    YGG_WIDE_TILES = 8,
    YGG_WIDE_STAGES = 3,
    // Threads of a block of other kernels over rows.
    YGG_ROW_THREADS = 256,
    // Places of a row's logical sequence that are attended to together, whatever the width: a lane of a warp weighs two.
    YGG_PARTITION = 64,
    // Query vectors of a block of attention: rows of the left operand of a multiplication.
    YGG_QUERY_TILE = 16,
    // Numbers of a query vector in a block that weighs several rows' own places at once: scores of its slots, and a byte for each ancestor of a row.
    YGG_SCORES_APART = 144,
    // Bytes of a slot that attention to heads of more than 256 elements has in shared memory at once: with so many such sections of 64 slots held,
    // the query vectors of heads of 512 leave room for a block on every multiprocessor (99 KB), and for two where there are 228.
    YGG_SECTION_BYTES = 256,
    YGG_SECTIONS_HELD = 3,
    // Threads of a block of attention: its four warps multiply 16 keys each.
    YGG_ATTENTION_THREADS = 128,
    // Logits that are summed together, as `ygg_kernels::candidates` says.
    YGG_RANGE = 256,
    // Lanes of such a sum.
    YGG_RANGE_LANES = 16,
    // Most candidates of a row.
    YGG_MOST_CANDIDATES = 64,
    // Columns of a state in a block, and threads that share each: rows of a state are divided among them.
    YGG_STATE_COLUMNS = 32,
    YGG_STATE_PARTS = 4,
    // Most taps of a channel.
    YGG_MOST_TAPS = 8,
    // Rows between two older states: ygg_kernels::StateLayer::STRIDE.
    YGG_STATE_STRIDE = 64,
    // States that are saved where sequences part: as many parents with several children as are on one path of a usual tree.
    YGG_SAVED_STATES = 6,
    // Threads of the block that joins the ranges of a row.
    YGG_MERGE_THREADS = 256,
};

// What every step knows: where the mask of skipped groups is, and which group it belongs to.
typedef struct YggStep {
    const u32* skipped; // [groups]
    u32 group;
} YggStep;

// A rectangle of the arena.
typedef struct YggRows {
    float* data;
    u32 rows;
    u32 columns;
    u32 stride;
} YggRows;

// Cosines and sines of positions, each [positions, rotated / 2].
typedef struct YggRope {
    const float* cosines; // null: nothing turns
    const float* sines;
    u32 rotated;
    u32 adjacent; // 1: elements (2i, 2i + 1) turn together; 0: (i, i + rotated / 2)
} YggRope;

// How the rows of an embedding matrix are stored: as in the model file.
enum YggEmbedding {
    YGG_EMBEDDING_F32,
    YGG_EMBEDDING_F16,
    YGG_EMBEDDING_BF16,
    YGG_EMBEDDING_Q8_0,
    YGG_EMBEDDING_Q4_0,
    YGG_EMBEDDING_Q4_1,
    YGG_EMBEDDING_Q4_K,
    YGG_EMBEDDING_Q6_K,
    YGG_EMBEDDING_Q5_0,
    YGG_EMBEDDING_Q5_K,
};

typedef struct YggEmbed {
    YggStep step;
    const u32* tokens; // [W]
    const u8* matrix;  // [V, D]
    u64 row_bytes;
    u32 format; // YggEmbedding
    YggRows out;
} YggEmbed;

// How a linear reads its inputs.
enum YggFragment {
    YGG_FRAGMENT_BF16,
    YGG_FRAGMENT_F16,
    YGG_FRAGMENT_F32, // rows [W, K], no fragments
};

// Where a linear reads its inputs: rows as tensor cores take them, or plain ones.
typedef struct YggFragments {
    void* data; // [K / 64][row tiles][2][32 lanes][4] words, or rows [W, K]; null: none are wanted
    u32 format; // YggFragment
    u32 row_tiles; // of YGG_TILE_W rows, padding included
} YggFragments;

// Rows become what a linear reads, normalised if there is a gain.
typedef struct YggPrepare {
    YggStep step;
    YggRows x;
    const float* gain; // [K], or null
    float eps;
    YggFragments out;
    u32 parts; // of a row of x, each of which becomes a row: they lie one after the other, and K is what one of them has
} YggPrepare;

// Keys and values of a layer, each [G, S, D] of f16 or f32.
typedef struct YggKv {
    void* keys;
    void* values;
    u32 heads; // G
    u32 slots; // S
    u32 head_dim; // D
} YggKv;

// Where a product of queries, keys and values leaves them, in this order of outputs: queries turned, in its rows; keys turned, and values, in
// the cache. D is a multiple of YGG_TILE_N, and so is what turns. Where elements i and i + rotated / 2 turn together, tile t of a head
// has the elements 8 t .. 8 t + 8 and those that turn with them, as far as heads turn.
typedef struct YggProjection {
    const u32* positions; // [W]; null: the product leaves its rows and nothing else
    const u32* slots;     // [W]
    u32 heads;  // H
    u32 halves; // 1: the cache is of f16, 0: of f32
    YggRope rope;
    YggKv kv;
} YggProjection;

// What two numbers make: a function of the first times the second, or their sum. Meaning: ygg_kernels::Nonlinearity.
enum YggFunction {
    YGG_SILU,
    YGG_GELU, // as a hyperbolic tangent approximates it
    YGG_CLAMPED_SILU,
    YGG_SIGMOID,
    YGG_ADD,
};

// out = x weights^T (+ bias) (+ out), or function(x weights^T) * (x up^T).
typedef struct YggLinear {
    YggStep step;
    const void* fragments;
    const void* codes;     // packed weights, see ygg_kernels::cuda::packing
    const void* scales;    // of formats that have them
    const void* up_codes;  // of a gated pair, or null
    const void* up_scales;
    YggRows out; // [W, N]
    YggFragments next; // of a product that reads the result, too: N is then a multiple of YGG_TILE_K
    u32 tiles_k; // of YGG_TILE_K inputs
    u32 columns; // K
    u32 residual; // 1: added to what is there
    u32 function; // YggFunction, of a gated pair
    YggProjection projection;
    const float* bias; // [N], in the order of packed outputs; or null
    float* parts; // of wide products that are joined, else null: [blocks][YGG_SPLIT_K / 2][YGG_WIDE_TILES][row tiles][32 lanes][4]
} YggLinear;

// Which experts each row uses, and with what weights. Meaning: ygg_kernels::Routing.
typedef struct YggRoute {
    YggStep step;
    YggRows scores; // [W, E]
    const float* bias;    // [E], added where experts are chosen; or null
    const float* factors; // [E], of weights; or null
    u32 used; // k
    u32 is_sigmoid;    // 1: weights are sigmoids, 0: a softmax
    u32 is_normalised; // 1: weights are divided by their sum and `least`
    float least;
    float scale; // of weights
    YggRows out; // [W, 2 k]: numbers of experts, ascending, then their weights
} YggRoute;

// Up to YGG_TILE_W rows that use an expert: its matrix is read once for them. A part is a row and one of its experts: row * k + the place of that
// among those of the row.
typedef struct YggPiece {
    u32 expert;
    u32 parts[8]; // YGG_TILE_W; YGG_NO_PART where there is none
} YggPiece;

// Rows with the same expert become pieces.
typedef struct YggGroup {
    YggStep step;
    YggRows routes; // [W, 2 k]
    u32* count; // [1]: pieces
    YggPiece* pieces;
} YggGroup;

// Products of rows with the matrices of their experts, which lie one after the other: of gated pairs all gates, then all ups.
typedef struct YggRouted {
    YggLinear linear; // codes and scales of the first matrix; out: [W, N] of the first part of each row, those of its other parts after them; bias: [E, N], of all matrices
    u64 matrix_bytes; // from one matrix to the next, of codes as of scales
    u32 ups;  // number of the first up; 0 where no pairs are
    u32 used; // k
    u32 sharing; // parts that read the same inputs: k, or 1
    u32 row_tiles; // of the fragments
    const u32* count; // [1]: pieces
    const YggPiece* pieces;
} YggRouted;

// Each row becomes the sum of its parts, each times its weight, in order.
typedef struct YggRoutedJoin {
    YggStep step;
    YggRows routes; // [W, 2 k]
    const float* products; // [W, k, N]
    YggRows out; // [W, N]
} YggRoutedJoin;

typedef struct YggNormRows {
    YggStep step;
    YggRows x;
    const float* gain; // [columns]
    float eps;
    u32 columns; // normalised together: those of x, or of one of its heads
    YggRows out;
} YggNormRows;

typedef struct YggElementwise {
    YggStep step;
    YggRows a;
    YggRows b;
    YggRows out;
    u32 function; // YggFunction
} YggElementwise;

typedef struct YggScale {
    YggStep step;
    YggRows x;
    YggRows out;
    float factor; // or the bound
} YggScale;

typedef struct YggRopeRows {
    YggStep step;
    YggRows x;
    YggRows out;
    const u32* positions; // [W]
    YggRope rope;
    u32 head_dim;
} YggRopeRows;

typedef struct YggSelectRows {
    YggStep step;
    YggRows x;
    const u32* indices; // [R]
    YggRows out;
} YggSelectRows;

typedef struct YggAppend {
    YggStep step;
    YggRows keys;   // [W, G * D]
    YggRows values; // [W, G * D]
    const u32* positions; // [W]
    const u32* slots;     // [W]
    YggRope rope;
    YggKv kv;
} YggAppend;

// Each row attends to its committed prefix and then to its tail, in partitions of YGG_PARTITION places; what they give is joined in order.
typedef struct YggAttention {
    YggStep step;
    YggRows queries; // [W, H * D]
    const u32* positions; // [W]
    const u32* prefix;    // [W]
    const u32* tail_len;  // [W]
    const u32* tails;     // [W, tail_capacity]
    u32 tail_capacity;
    u32 heads; // H
    u32 partitions; // of the longest context
    float scale;
    float softcap; // 0: none
    u32 window; // places that a row sees, its own the last of them
    u32 spread; // blocks that share the partitions of prefixes; later ones share the rows
    const float* sinks; // [H]: scores of a place that every row sees, and that has no values; or null
    YggRope rope;
    YggKv kv;
    float* partial;    // [W * H][partitions][D], with D as a multiple of 4
    float* partial_max; // [W * H][partitions]
    float* partial_sum; // [W * H][partitions]
    YggRows out; // [W, H * D]
    YggFragments next; // of a product that reads the result, too: H * D is then a multiple of YGG_TILE_K
} YggAttention;

// Each row keeps the product of its first and its last channels, and gives the ones between times the sum of what the last rows of its
// sequence keep, each times its tap. `C` channels, `T` taps.
typedef struct YggShortConv {
    YggStep step;
    YggRows x; // [W, 3 C]
    const float* taps; // [C, T], that of the row itself last
    const u32* slots;    // [W]
    const u32* prefix;   // [W]
    const u32* tail_len; // [W]
    const u32* tails;    // [W, tail_capacity]
    u32 tail_capacity;
    u32 tap_count; // T
    float* kept; // [S, C] of the layer
    YggRows out; // [W, C]
} YggShortConv;

// Sizes of a recurrence, and what a layer keeps of the last rows: slot s is row s mod `ring`.
typedef struct YggStates {
    u32 is_scan;    // 1: a selective scan, 0: a gated delta rule
    u32 is_grouped; // 1: value heads that read one key head lie together, 0: head h reads key head h mod J
    u32 key_heads;   // J
    u32 value_heads; // H
    u32 key_dim;   // A
    u32 value_dim; // B
    u32 ring;
    float* kept; // [ring, 2 C + 2 H]: the channels that went in; what became of them; of each value head the decay, and how far its state follows
} YggStates;

// What a row does to the states of a layer is made of what went in of it and of the rows before it, and kept. Meaning: ygg_kernels::Recurrence.
typedef struct YggStateRows {
    YggStep step;
    YggStates states;
    YggRows x;     // [W, C]
    YggRows steps; // [W, H]
    YggRows rates; // [W, H] of a delta rule
    const float* taps; // [C, T], that of the row itself last
    const float* channel_biases; // [C] of a scan
    const float* decays;      // [H]
    const float* step_biases; // [H]
    u32 tap_count; // T
    u32 is_logarithm; // 1: decays are stored as logarithms, 0: negated
    float shortest; // step
    float longest;
    const u32* slots;    // [W]
    const u32* prefix;   // [W]
    const u32* tail_len; // [W]
    const u32* tails;    // [W, tail_capacity]
    u32 tail_capacity;
    YggRows out; // [W, H B]: zeros of padding are written
} YggStateRows;

// A step of the walk over the rows of a forward: a state follows what is kept of a slot. Fields are YGG_NO_SLOT where there is nothing to do.
typedef struct YggStateStep {
    u32 load; // saved state to go on from, before all else; YGG_COMMITTED: that of the committed rows
    u32 save; // where the state is saved, before it follows
    u32 slot; // without one, the results of row `load` are those of the step's row, too
    u32 row;  // that gets the results
} YggStateStep;

// The walk over the rows of a forward. The same for all layers.
typedef struct YggStateOrder {
    u32 rows; // W
    const u32* slots;    // [W]
    const u32* prefix;   // [W]
    const u32* tail_len; // [W]
    const u32* tails;    // [W, tail_capacity]
    u32 tail_capacity;
    u32* counts; // [2]: committed rows that all rows follow, and steps
    YggStateStep* steps;
} YggStateOrder;

// Lets the states of a layer follow committed rows, then the walk.
typedef struct YggStateWalk {
    YggStep step;
    YggStates states;
    float* matrices; // [3][H][A][B]: the newest state, and two older ones at multiples of YGG_STATE_STRIDE rows
    u32* held;       // [H][ceil(B / YGG_STATE_COLUMNS)][3]: after how many rows each of these is; YGG_NO_SLOT where there is none
    float* saved;    // [YGG_SAVED_STATES][H][A][B]
    const float* skips; // [H] of a scan: factors of values in results
    const u32* counts;
    const YggStateStep* steps;
    YggRows out; // [W, H B]
} YggStateWalk;

// Which candidates a forward wants of every row.
typedef struct YggChoice {
    u32 k;
    float inverse; // of the temperature; 0: logits are kept as they are and nothing is summed
} YggChoice;

// The best of every row of logits. Meaning: ygg_kernels::candidates.
typedef struct YggCandidates {
    YggStep step;
    YggRows logits; // [R, V]
    const YggChoice* choice;
    u32 ranges; // of YGG_RANGE logits
    u32 most;   // room for candidates
    float* range_max;  // [R][ranges]
    float* range_sum;  // [R][ranges]
    u32* range_count;  // [R][ranges]
    float* range_values; // [R][ranges][most]
    u32* range_ids;      // [R][ranges][most]
    const u32* names; // [V]: token of each logit of a trimmed head; null: its id
    YggRows out; // [R, 2 most + 1]: count, tokens, values
} YggCandidates;

// The noise that decides the tokens of a request. Meaning: ygg_kernels::noise.
typedef struct YggNoise {
    u32 seed[2]; // its lower half first
    u32 first;   // place in the text of the token after position 0
    float temperature; // of the request
    float inverse;     // of that
    float sharpness;   // that by the temperature at which candidates are valued
} YggNoise;

// Logits become values under noise: over the temperature, with the noise of their tokens added.
typedef struct YggNoisyRows {
    YggStep step;
    YggRows logits; // [R, V]
    const YggNoise* noise;
    const u32* positions; // [R]
    const u32* names; // [V]: as of candidates
} YggNoisyRows;

// Candidates under noise become those that a growth takes, with the logarithms of how likely they win. Meaning: the crate's
// `sample::Coupling::value`.
typedef struct YggValues {
    YggRows candidates; // [R, 2 most + 1]
    const YggNoise* noise;
    u32 most; // room for candidates in a row
    u32 kept; // candidates of a node that count
    u32 vocabulary; // tokens that count
} YggValues;

// The token that is drawn from every row of logits takes the place of its best candidate.
typedef struct YggRace {
    YggRows logits;     // [R, V]
    YggRows candidates; // [R, 2 most + 1], of these logits
    const YggNoise* noise;
    const u32* positions; // [R]
    u32 ranges;   // of YGG_RANGE logits
    u32* leaders; // [R][ranges]
} YggRace;

// An Equal-Growth Tree while it grows, in the order in which nodes came in: the root, then growth after growth. N nodes at most.
typedef struct YggTree {
    u32* counts;   // [3]: nodes, how many of them the last growth added, and how many the one before it did
    u32* tokens;   // [N]
    u32* parents;  // [N]
    u32* ranks;    // [N]
    u32* depths;   // [N]
    float* scores; // [N] logarithms of the probabilities of paths
    float* offered; // [N][kept] scores of the children that expanded nodes could get
    u32* offers;    // [N][kept] their tokens; YGG_NO_TOKEN where there is none, or it was taken
} YggTree;

// Inputs of a forward of `rows` rows, as the rows of a tree's nodes. 0 rows: there is no forward.
typedef struct YggNodeRows {
    u32 rows; // W
    u32 tail_capacity;
    u32* tokens;    // [W]
    u32* positions; // [W]
    u32* slots;     // [W]
    u32* prefix;    // [W]
    u32* tail_len;  // [W]
    u32* tails;     // [W, tail_capacity]
} YggNodeRows;

// One growth: the candidates of the nodes that were forwarded join the offers, the best offers become nodes, and these the rows of the
// next forward. Meaning: the Frontier of the crate's `tree::growth`.
typedef struct YggGrow {
    YggTree tree;
    YggRows candidates; // [R, 2 most + 1] of the last forward; its first rows are the nodes of the last growth, or one is the root
    u32 most;     // room for candidates in a row
    u32 kept;     // candidates of a node that count
    u32 vocabulary; // tokens that count
    u32 width;    // nodes of a growth
    u32 is_first; // 1: the root was forwarded, and nothing else of the tree is there
    const u32* root; // [3]: its token, how many tokens are committed before it, and its row in its forward
    YggNodeRows next;
} YggGrow;

// The nodes of a grown tree with the most probable paths become the rows of its verification; of equals the one that came first. Meaning: the crate's `tree::prune`, by logarithms.
typedef struct YggPrune {
    YggTree tree;
    u32 width;    // nodes that are verified at most
    u32* is_kept; // [N]
    u32* count;   // [1]: nodes that are kept
    u32* nodes;   // [W]: which, ascending
    YggNodeRows next; // row 0 has the root's slot already, after what is committed
} YggPrune;

// After a growth, for a model that reads hidden rows: each row of the next forward is given the hidden row of its node's parent.
typedef struct YggHandDown {
    YggTree tree;
    YggRows hidden; // [R, K] of the last forward, in the rows of its candidates
    u32 is_first;   // as for the growth
    const u32* root; // as for the growth
    float* kept;  // [N, K]: hidden rows of the nodes that were forwarded
    float* given; // [W, K] of the next forward; zeros where a row is of no node
} YggHandDown;

// The path through a tree that a forward verified: C rows at most as many as the forward has.
typedef struct YggPath {
    u32* count;  // [1]: C
    u32* rows;   // [C], the root's first
    u32* tokens; // [C]: what the verifier says after each; after the last, what no row carries
} YggPath;

// From the root to the row that carries what the verifier says after it, and on from there. Meaning: the crate's `speculate::Walk`
// without limits. The last slots of a row's tail are its parent's and its own; row 0 is the root, and parents come before children.
typedef struct YggWalk {
    YggRows candidates; // [W, 2 most + 1] of the forward
    // Its inputs.
    const u32* tokens;   // [W]
    const u32* slots;    // [W]
    const u32* tail_len; // [W]; 0 of padding
    const u32* tails;    // [W, tail_capacity]
    u32 tail_capacity;
    YggPath path;
} YggWalk;

// What a path's rows have in planes of a cache moves to the slots from its root's on, in order.
typedef struct YggPathMoves {
    u8* cache; // [planes][S][slot_bytes]: of keys and values of a head, or of what convolutions keep
    u32 slots;  // S
    u32 slot_bytes; // of one plane
    const u32* row_slots; // [W]: where the forward wrote its rows
    YggPath path;
} YggPathMoves;

// Slots from[i] of planes of a cache move to first + i, in order.
typedef struct YggMoves {
    u8* cache; // [planes][S][slot_bytes], as for paths
    u32 planes;
    u32 slots;  // S
    u32 slot_bytes; // of one plane
    u32 first;
    u32 count;
    u32 from[64]; // YGG_MOST_WIDTH
} YggMoves;

// Slots become finite noise.
typedef struct YggPoison {
    void* cache;
    u32 planes;
    u32 slots;
    u32 head_dim; // elements of a slot of one plane
    u32 first;
    u32 count;
    u32 halves; // 1: f16, 0: f32
    u64 seed;
} YggPoison;

// Reads bytes and does nothing with them.
typedef struct YggRead {
    const void* data; // of 16 bytes each
    u64 count;
    u32* sink; // written never, as far as the compiler can tell
} YggRead;

// Multiplies and adds in registers.
typedef struct YggMultiply {
    u32 rounds;
    u32* sink;
} YggMultiply;
