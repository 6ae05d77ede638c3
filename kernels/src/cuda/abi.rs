//! Parameters of the CUDA kernels: bindings of `kernels/cuda/abi.h`, made by `kernels/cuda/bindings.sh`.

#![allow(
    missing_docs,
    non_camel_case_types,
    clippy::unreadable_literal,
    clippy::allow_attributes_without_reason,
    reason = "made of a C header, which documents them"
)]

pub const YGG_NO_GROUP: u32 = 4294967295;
pub const YGG_NO_SLOT: u32 = 4294967295;
pub const YGG_NO_PART: u32 = 4294967295;
pub const YGG_COMMITTED: u32 = 4294967294;
pub const YGG_NO_TOKEN: u32 = 4294967295;
pub type u8_ = ::core::ffi::c_uchar;
pub type u32_ = ::core::ffi::c_uint;
pub type u64_ = ::core::ffi::c_ulonglong;
pub const YGG_WARP: _bindgen_ty_1 = 32;
pub const YGG_TILE_K: _bindgen_ty_1 = 64;
pub const YGG_TILE_N: _bindgen_ty_1 = 16;
pub const YGG_TILE_W: _bindgen_ty_1 = 8;
pub const YGG_MOST_EXPERTS: _bindgen_ty_1 = 512;
pub const YGG_MOST_USED: _bindgen_ty_1 = 64;
pub const YGG_MOST_WIDTH: _bindgen_ty_1 = 64;
pub const YGG_SPLIT_K: _bindgen_ty_1 = 8;
pub const YGG_LINEAR_THREADS: _bindgen_ty_1 = 256;
pub const YGG_WIDE_TILES: _bindgen_ty_1 = 8;
pub const YGG_WIDE_STAGES: _bindgen_ty_1 = 3;
pub const YGG_ROW_THREADS: _bindgen_ty_1 = 256;
pub const YGG_PARTITION: _bindgen_ty_1 = 64;
pub const YGG_QUERY_TILE: _bindgen_ty_1 = 16;
pub const YGG_SCORES_APART: _bindgen_ty_1 = 144;
pub const YGG_SECTION_BYTES: _bindgen_ty_1 = 256;
pub const YGG_SECTIONS_HELD: _bindgen_ty_1 = 3;
pub const YGG_ATTENTION_THREADS: _bindgen_ty_1 = 128;
pub const YGG_RANGE: _bindgen_ty_1 = 256;
pub const YGG_RANGE_LANES: _bindgen_ty_1 = 16;
pub const YGG_MOST_CANDIDATES: _bindgen_ty_1 = 64;
pub const YGG_STATE_COLUMNS: _bindgen_ty_1 = 32;
pub const YGG_STATE_PARTS: _bindgen_ty_1 = 4;
pub const YGG_MOST_TAPS: _bindgen_ty_1 = 8;
pub const YGG_STATE_STRIDE: _bindgen_ty_1 = 64;
pub const YGG_SAVED_STATES: _bindgen_ty_1 = 6;
pub const YGG_MERGE_THREADS: _bindgen_ty_1 = 256;
pub type _bindgen_ty_1 = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggStep {
    pub skipped: *const u32_,
    pub group: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggStep"][::core::mem::size_of::<YggStep>() - 16usize];
    ["Alignment of YggStep"][::core::mem::align_of::<YggStep>() - 8usize];
    ["Offset of field: YggStep::skipped"][::core::mem::offset_of!(YggStep, skipped) - 0usize];
    ["Offset of field: YggStep::group"][::core::mem::offset_of!(YggStep, group) - 8usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRows {
    pub data: *mut f32,
    pub rows: u32_,
    pub columns: u32_,
    pub stride: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRows"][::core::mem::size_of::<YggRows>() - 24usize];
    ["Alignment of YggRows"][::core::mem::align_of::<YggRows>() - 8usize];
    ["Offset of field: YggRows::data"][::core::mem::offset_of!(YggRows, data) - 0usize];
    ["Offset of field: YggRows::rows"][::core::mem::offset_of!(YggRows, rows) - 8usize];
    ["Offset of field: YggRows::columns"][::core::mem::offset_of!(YggRows, columns) - 12usize];
    ["Offset of field: YggRows::stride"][::core::mem::offset_of!(YggRows, stride) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRope {
    pub cosines: *const f32,
    pub sines: *const f32,
    pub rotated: u32_,
    pub adjacent: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRope"][::core::mem::size_of::<YggRope>() - 24usize];
    ["Alignment of YggRope"][::core::mem::align_of::<YggRope>() - 8usize];
    ["Offset of field: YggRope::cosines"][::core::mem::offset_of!(YggRope, cosines) - 0usize];
    ["Offset of field: YggRope::sines"][::core::mem::offset_of!(YggRope, sines) - 8usize];
    ["Offset of field: YggRope::rotated"][::core::mem::offset_of!(YggRope, rotated) - 16usize];
    ["Offset of field: YggRope::adjacent"][::core::mem::offset_of!(YggRope, adjacent) - 20usize];
};
pub const YGG_EMBEDDING_F32: YggEmbedding = 0;
pub const YGG_EMBEDDING_F16: YggEmbedding = 1;
pub const YGG_EMBEDDING_BF16: YggEmbedding = 2;
pub const YGG_EMBEDDING_Q8_0: YggEmbedding = 3;
pub const YGG_EMBEDDING_Q4_0: YggEmbedding = 4;
pub const YGG_EMBEDDING_Q4_1: YggEmbedding = 5;
pub const YGG_EMBEDDING_Q4_K: YggEmbedding = 6;
pub const YGG_EMBEDDING_Q6_K: YggEmbedding = 7;
pub const YGG_EMBEDDING_Q5_0: YggEmbedding = 8;
pub const YGG_EMBEDDING_Q5_K: YggEmbedding = 9;
pub type YggEmbedding = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggEmbed {
    pub step: YggStep,
    pub tokens: *const u32_,
    pub matrix: *const u8_,
    pub row_bytes: u64_,
    pub format: u32_,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggEmbed"][::core::mem::size_of::<YggEmbed>() - 72usize];
    ["Alignment of YggEmbed"][::core::mem::align_of::<YggEmbed>() - 8usize];
    ["Offset of field: YggEmbed::step"][::core::mem::offset_of!(YggEmbed, step) - 0usize];
    ["Offset of field: YggEmbed::tokens"][::core::mem::offset_of!(YggEmbed, tokens) - 16usize];
    ["Offset of field: YggEmbed::matrix"][::core::mem::offset_of!(YggEmbed, matrix) - 24usize];
    ["Offset of field: YggEmbed::row_bytes"][::core::mem::offset_of!(YggEmbed, row_bytes) - 32usize];
    ["Offset of field: YggEmbed::format"][::core::mem::offset_of!(YggEmbed, format) - 40usize];
    ["Offset of field: YggEmbed::out"][::core::mem::offset_of!(YggEmbed, out) - 48usize];
};
pub const YGG_FRAGMENT_BF16: YggFragment = 0;
pub const YGG_FRAGMENT_F16: YggFragment = 1;
pub const YGG_FRAGMENT_F32: YggFragment = 2;
pub type YggFragment = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggFragments {
    pub data: *mut ::core::ffi::c_void,
    pub format: u32_,
    pub row_tiles: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggFragments"][::core::mem::size_of::<YggFragments>() - 16usize];
    ["Alignment of YggFragments"][::core::mem::align_of::<YggFragments>() - 8usize];
    ["Offset of field: YggFragments::data"][::core::mem::offset_of!(YggFragments, data) - 0usize];
    ["Offset of field: YggFragments::format"][::core::mem::offset_of!(YggFragments, format) - 8usize];
    ["Offset of field: YggFragments::row_tiles"][::core::mem::offset_of!(YggFragments, row_tiles) - 12usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggPrepare {
    pub step: YggStep,
    pub x: YggRows,
    pub gain: *const f32,
    pub eps: f32,
    pub out: YggFragments,
    pub parts: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggPrepare"][::core::mem::size_of::<YggPrepare>() - 80usize];
    ["Alignment of YggPrepare"][::core::mem::align_of::<YggPrepare>() - 8usize];
    ["Offset of field: YggPrepare::step"][::core::mem::offset_of!(YggPrepare, step) - 0usize];
    ["Offset of field: YggPrepare::x"][::core::mem::offset_of!(YggPrepare, x) - 16usize];
    ["Offset of field: YggPrepare::gain"][::core::mem::offset_of!(YggPrepare, gain) - 40usize];
    ["Offset of field: YggPrepare::eps"][::core::mem::offset_of!(YggPrepare, eps) - 48usize];
    ["Offset of field: YggPrepare::out"][::core::mem::offset_of!(YggPrepare, out) - 56usize];
    ["Offset of field: YggPrepare::parts"][::core::mem::offset_of!(YggPrepare, parts) - 72usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggKv {
    pub keys: *mut ::core::ffi::c_void,
    pub values: *mut ::core::ffi::c_void,
    pub heads: u32_,
    pub slots: u32_,
    pub head_dim: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggKv"][::core::mem::size_of::<YggKv>() - 32usize];
    ["Alignment of YggKv"][::core::mem::align_of::<YggKv>() - 8usize];
    ["Offset of field: YggKv::keys"][::core::mem::offset_of!(YggKv, keys) - 0usize];
    ["Offset of field: YggKv::values"][::core::mem::offset_of!(YggKv, values) - 8usize];
    ["Offset of field: YggKv::heads"][::core::mem::offset_of!(YggKv, heads) - 16usize];
    ["Offset of field: YggKv::slots"][::core::mem::offset_of!(YggKv, slots) - 20usize];
    ["Offset of field: YggKv::head_dim"][::core::mem::offset_of!(YggKv, head_dim) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggProjection {
    pub positions: *const u32_,
    pub slots: *const u32_,
    pub heads: u32_,
    pub halves: u32_,
    pub rope: YggRope,
    pub kv: YggKv,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggProjection"][::core::mem::size_of::<YggProjection>() - 80usize];
    ["Alignment of YggProjection"][::core::mem::align_of::<YggProjection>() - 8usize];
    ["Offset of field: YggProjection::positions"][::core::mem::offset_of!(YggProjection, positions) - 0usize];
    ["Offset of field: YggProjection::slots"][::core::mem::offset_of!(YggProjection, slots) - 8usize];
    ["Offset of field: YggProjection::heads"][::core::mem::offset_of!(YggProjection, heads) - 16usize];
    ["Offset of field: YggProjection::halves"][::core::mem::offset_of!(YggProjection, halves) - 20usize];
    ["Offset of field: YggProjection::rope"][::core::mem::offset_of!(YggProjection, rope) - 24usize];
    ["Offset of field: YggProjection::kv"][::core::mem::offset_of!(YggProjection, kv) - 48usize];
};
pub const YGG_SILU: YggFunction = 0;
pub const YGG_GELU: YggFunction = 1;
pub const YGG_CLAMPED_SILU: YggFunction = 2;
pub const YGG_SIGMOID: YggFunction = 3;
pub const YGG_ADD: YggFunction = 4;
pub type YggFunction = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggLinear {
    pub step: YggStep,
    pub fragments: *const ::core::ffi::c_void,
    pub codes: *const ::core::ffi::c_void,
    pub scales: *const ::core::ffi::c_void,
    pub up_codes: *const ::core::ffi::c_void,
    pub up_scales: *const ::core::ffi::c_void,
    pub out: YggRows,
    pub next: YggFragments,
    pub tiles_k: u32_,
    pub columns: u32_,
    pub residual: u32_,
    pub function: u32_,
    pub projection: YggProjection,
    pub bias: *const f32,
    pub parts: *mut f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggLinear"][::core::mem::size_of::<YggLinear>() - 208usize];
    ["Alignment of YggLinear"][::core::mem::align_of::<YggLinear>() - 8usize];
    ["Offset of field: YggLinear::step"][::core::mem::offset_of!(YggLinear, step) - 0usize];
    ["Offset of field: YggLinear::fragments"][::core::mem::offset_of!(YggLinear, fragments) - 16usize];
    ["Offset of field: YggLinear::codes"][::core::mem::offset_of!(YggLinear, codes) - 24usize];
    ["Offset of field: YggLinear::scales"][::core::mem::offset_of!(YggLinear, scales) - 32usize];
    ["Offset of field: YggLinear::up_codes"][::core::mem::offset_of!(YggLinear, up_codes) - 40usize];
    ["Offset of field: YggLinear::up_scales"][::core::mem::offset_of!(YggLinear, up_scales) - 48usize];
    ["Offset of field: YggLinear::out"][::core::mem::offset_of!(YggLinear, out) - 56usize];
    ["Offset of field: YggLinear::next"][::core::mem::offset_of!(YggLinear, next) - 80usize];
    ["Offset of field: YggLinear::tiles_k"][::core::mem::offset_of!(YggLinear, tiles_k) - 96usize];
    ["Offset of field: YggLinear::columns"][::core::mem::offset_of!(YggLinear, columns) - 100usize];
    ["Offset of field: YggLinear::residual"][::core::mem::offset_of!(YggLinear, residual) - 104usize];
    ["Offset of field: YggLinear::function"][::core::mem::offset_of!(YggLinear, function) - 108usize];
    ["Offset of field: YggLinear::projection"][::core::mem::offset_of!(YggLinear, projection) - 112usize];
    ["Offset of field: YggLinear::bias"][::core::mem::offset_of!(YggLinear, bias) - 192usize];
    ["Offset of field: YggLinear::parts"][::core::mem::offset_of!(YggLinear, parts) - 200usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRoute {
    pub step: YggStep,
    pub scores: YggRows,
    pub bias: *const f32,
    pub factors: *const f32,
    pub used: u32_,
    pub is_sigmoid: u32_,
    pub is_normalised: u32_,
    pub least: f32,
    pub scale: f32,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRoute"][::core::mem::size_of::<YggRoute>() - 104usize];
    ["Alignment of YggRoute"][::core::mem::align_of::<YggRoute>() - 8usize];
    ["Offset of field: YggRoute::step"][::core::mem::offset_of!(YggRoute, step) - 0usize];
    ["Offset of field: YggRoute::scores"][::core::mem::offset_of!(YggRoute, scores) - 16usize];
    ["Offset of field: YggRoute::bias"][::core::mem::offset_of!(YggRoute, bias) - 40usize];
    ["Offset of field: YggRoute::factors"][::core::mem::offset_of!(YggRoute, factors) - 48usize];
    ["Offset of field: YggRoute::used"][::core::mem::offset_of!(YggRoute, used) - 56usize];
    ["Offset of field: YggRoute::is_sigmoid"][::core::mem::offset_of!(YggRoute, is_sigmoid) - 60usize];
    ["Offset of field: YggRoute::is_normalised"][::core::mem::offset_of!(YggRoute, is_normalised) - 64usize];
    ["Offset of field: YggRoute::least"][::core::mem::offset_of!(YggRoute, least) - 68usize];
    ["Offset of field: YggRoute::scale"][::core::mem::offset_of!(YggRoute, scale) - 72usize];
    ["Offset of field: YggRoute::out"][::core::mem::offset_of!(YggRoute, out) - 80usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggPiece {
    pub expert: u32_,
    pub parts: [u32_; 8usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggPiece"][::core::mem::size_of::<YggPiece>() - 36usize];
    ["Alignment of YggPiece"][::core::mem::align_of::<YggPiece>() - 4usize];
    ["Offset of field: YggPiece::expert"][::core::mem::offset_of!(YggPiece, expert) - 0usize];
    ["Offset of field: YggPiece::parts"][::core::mem::offset_of!(YggPiece, parts) - 4usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggGroup {
    pub step: YggStep,
    pub routes: YggRows,
    pub count: *mut u32_,
    pub pieces: *mut YggPiece,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggGroup"][::core::mem::size_of::<YggGroup>() - 56usize];
    ["Alignment of YggGroup"][::core::mem::align_of::<YggGroup>() - 8usize];
    ["Offset of field: YggGroup::step"][::core::mem::offset_of!(YggGroup, step) - 0usize];
    ["Offset of field: YggGroup::routes"][::core::mem::offset_of!(YggGroup, routes) - 16usize];
    ["Offset of field: YggGroup::count"][::core::mem::offset_of!(YggGroup, count) - 40usize];
    ["Offset of field: YggGroup::pieces"][::core::mem::offset_of!(YggGroup, pieces) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRouted {
    pub linear: YggLinear,
    pub matrix_bytes: u64_,
    pub ups: u32_,
    pub used: u32_,
    pub sharing: u32_,
    pub row_tiles: u32_,
    pub count: *const u32_,
    pub pieces: *const YggPiece,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRouted"][::core::mem::size_of::<YggRouted>() - 248usize];
    ["Alignment of YggRouted"][::core::mem::align_of::<YggRouted>() - 8usize];
    ["Offset of field: YggRouted::linear"][::core::mem::offset_of!(YggRouted, linear) - 0usize];
    ["Offset of field: YggRouted::matrix_bytes"][::core::mem::offset_of!(YggRouted, matrix_bytes) - 208usize];
    ["Offset of field: YggRouted::ups"][::core::mem::offset_of!(YggRouted, ups) - 216usize];
    ["Offset of field: YggRouted::used"][::core::mem::offset_of!(YggRouted, used) - 220usize];
    ["Offset of field: YggRouted::sharing"][::core::mem::offset_of!(YggRouted, sharing) - 224usize];
    ["Offset of field: YggRouted::row_tiles"][::core::mem::offset_of!(YggRouted, row_tiles) - 228usize];
    ["Offset of field: YggRouted::count"][::core::mem::offset_of!(YggRouted, count) - 232usize];
    ["Offset of field: YggRouted::pieces"][::core::mem::offset_of!(YggRouted, pieces) - 240usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRoutedJoin {
    pub step: YggStep,
    pub routes: YggRows,
    pub products: *const f32,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRoutedJoin"][::core::mem::size_of::<YggRoutedJoin>() - 72usize];
    ["Alignment of YggRoutedJoin"][::core::mem::align_of::<YggRoutedJoin>() - 8usize];
    ["Offset of field: YggRoutedJoin::step"][::core::mem::offset_of!(YggRoutedJoin, step) - 0usize];
    ["Offset of field: YggRoutedJoin::routes"][::core::mem::offset_of!(YggRoutedJoin, routes) - 16usize];
    ["Offset of field: YggRoutedJoin::products"][::core::mem::offset_of!(YggRoutedJoin, products) - 40usize];
    ["Offset of field: YggRoutedJoin::out"][::core::mem::offset_of!(YggRoutedJoin, out) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggNormRows {
    pub step: YggStep,
    pub x: YggRows,
    pub gain: *const f32,
    pub eps: f32,
    pub columns: u32_,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggNormRows"][::core::mem::size_of::<YggNormRows>() - 80usize];
    ["Alignment of YggNormRows"][::core::mem::align_of::<YggNormRows>() - 8usize];
    ["Offset of field: YggNormRows::step"][::core::mem::offset_of!(YggNormRows, step) - 0usize];
    ["Offset of field: YggNormRows::x"][::core::mem::offset_of!(YggNormRows, x) - 16usize];
    ["Offset of field: YggNormRows::gain"][::core::mem::offset_of!(YggNormRows, gain) - 40usize];
    ["Offset of field: YggNormRows::eps"][::core::mem::offset_of!(YggNormRows, eps) - 48usize];
    ["Offset of field: YggNormRows::columns"][::core::mem::offset_of!(YggNormRows, columns) - 52usize];
    ["Offset of field: YggNormRows::out"][::core::mem::offset_of!(YggNormRows, out) - 56usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggElementwise {
    pub step: YggStep,
    pub a: YggRows,
    pub b: YggRows,
    pub out: YggRows,
    pub function: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggElementwise"][::core::mem::size_of::<YggElementwise>() - 96usize];
    ["Alignment of YggElementwise"][::core::mem::align_of::<YggElementwise>() - 8usize];
    ["Offset of field: YggElementwise::step"][::core::mem::offset_of!(YggElementwise, step) - 0usize];
    ["Offset of field: YggElementwise::a"][::core::mem::offset_of!(YggElementwise, a) - 16usize];
    ["Offset of field: YggElementwise::b"][::core::mem::offset_of!(YggElementwise, b) - 40usize];
    ["Offset of field: YggElementwise::out"][::core::mem::offset_of!(YggElementwise, out) - 64usize];
    ["Offset of field: YggElementwise::function"]
        [::core::mem::offset_of!(YggElementwise, function) - 88usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggScale {
    pub step: YggStep,
    pub x: YggRows,
    pub out: YggRows,
    pub factor: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggScale"][::core::mem::size_of::<YggScale>() - 72usize];
    ["Alignment of YggScale"][::core::mem::align_of::<YggScale>() - 8usize];
    ["Offset of field: YggScale::step"][::core::mem::offset_of!(YggScale, step) - 0usize];
    ["Offset of field: YggScale::x"][::core::mem::offset_of!(YggScale, x) - 16usize];
    ["Offset of field: YggScale::out"][::core::mem::offset_of!(YggScale, out) - 40usize];
    ["Offset of field: YggScale::factor"][::core::mem::offset_of!(YggScale, factor) - 64usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRopeRows {
    pub step: YggStep,
    pub x: YggRows,
    pub out: YggRows,
    pub positions: *const u32_,
    pub rope: YggRope,
    pub head_dim: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRopeRows"][::core::mem::size_of::<YggRopeRows>() - 104usize];
    ["Alignment of YggRopeRows"][::core::mem::align_of::<YggRopeRows>() - 8usize];
    ["Offset of field: YggRopeRows::step"][::core::mem::offset_of!(YggRopeRows, step) - 0usize];
    ["Offset of field: YggRopeRows::x"][::core::mem::offset_of!(YggRopeRows, x) - 16usize];
    ["Offset of field: YggRopeRows::out"][::core::mem::offset_of!(YggRopeRows, out) - 40usize];
    ["Offset of field: YggRopeRows::positions"][::core::mem::offset_of!(YggRopeRows, positions) - 64usize];
    ["Offset of field: YggRopeRows::rope"][::core::mem::offset_of!(YggRopeRows, rope) - 72usize];
    ["Offset of field: YggRopeRows::head_dim"][::core::mem::offset_of!(YggRopeRows, head_dim) - 96usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggSelectRows {
    pub step: YggStep,
    pub x: YggRows,
    pub indices: *const u32_,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggSelectRows"][::core::mem::size_of::<YggSelectRows>() - 72usize];
    ["Alignment of YggSelectRows"][::core::mem::align_of::<YggSelectRows>() - 8usize];
    ["Offset of field: YggSelectRows::step"][::core::mem::offset_of!(YggSelectRows, step) - 0usize];
    ["Offset of field: YggSelectRows::x"][::core::mem::offset_of!(YggSelectRows, x) - 16usize];
    ["Offset of field: YggSelectRows::indices"][::core::mem::offset_of!(YggSelectRows, indices) - 40usize];
    ["Offset of field: YggSelectRows::out"][::core::mem::offset_of!(YggSelectRows, out) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggAppend {
    pub step: YggStep,
    pub keys: YggRows,
    pub values: YggRows,
    pub positions: *const u32_,
    pub slots: *const u32_,
    pub rope: YggRope,
    pub kv: YggKv,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggAppend"][::core::mem::size_of::<YggAppend>() - 136usize];
    ["Alignment of YggAppend"][::core::mem::align_of::<YggAppend>() - 8usize];
    ["Offset of field: YggAppend::step"][::core::mem::offset_of!(YggAppend, step) - 0usize];
    ["Offset of field: YggAppend::keys"][::core::mem::offset_of!(YggAppend, keys) - 16usize];
    ["Offset of field: YggAppend::values"][::core::mem::offset_of!(YggAppend, values) - 40usize];
    ["Offset of field: YggAppend::positions"][::core::mem::offset_of!(YggAppend, positions) - 64usize];
    ["Offset of field: YggAppend::slots"][::core::mem::offset_of!(YggAppend, slots) - 72usize];
    ["Offset of field: YggAppend::rope"][::core::mem::offset_of!(YggAppend, rope) - 80usize];
    ["Offset of field: YggAppend::kv"][::core::mem::offset_of!(YggAppend, kv) - 104usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggAttention {
    pub step: YggStep,
    pub queries: YggRows,
    pub positions: *const u32_,
    pub prefix: *const u32_,
    pub tail_len: *const u32_,
    pub tails: *const u32_,
    pub tail_capacity: u32_,
    pub heads: u32_,
    pub partitions: u32_,
    pub scale: f32,
    pub softcap: f32,
    pub window: u32_,
    pub spread: u32_,
    pub sinks: *const f32,
    pub rope: YggRope,
    pub kv: YggKv,
    pub partial: *mut f32,
    pub partial_max: *mut f32,
    pub partial_sum: *mut f32,
    pub out: YggRows,
    pub next: YggFragments,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggAttention"][::core::mem::size_of::<YggAttention>() - 232usize];
    ["Alignment of YggAttention"][::core::mem::align_of::<YggAttention>() - 8usize];
    ["Offset of field: YggAttention::step"][::core::mem::offset_of!(YggAttention, step) - 0usize];
    ["Offset of field: YggAttention::queries"][::core::mem::offset_of!(YggAttention, queries) - 16usize];
    ["Offset of field: YggAttention::positions"][::core::mem::offset_of!(YggAttention, positions) - 40usize];
    ["Offset of field: YggAttention::prefix"][::core::mem::offset_of!(YggAttention, prefix) - 48usize];
    ["Offset of field: YggAttention::tail_len"][::core::mem::offset_of!(YggAttention, tail_len) - 56usize];
    ["Offset of field: YggAttention::tails"][::core::mem::offset_of!(YggAttention, tails) - 64usize];
    ["Offset of field: YggAttention::tail_capacity"]
        [::core::mem::offset_of!(YggAttention, tail_capacity) - 72usize];
    ["Offset of field: YggAttention::heads"][::core::mem::offset_of!(YggAttention, heads) - 76usize];
    ["Offset of field: YggAttention::partitions"]
        [::core::mem::offset_of!(YggAttention, partitions) - 80usize];
    ["Offset of field: YggAttention::scale"][::core::mem::offset_of!(YggAttention, scale) - 84usize];
    ["Offset of field: YggAttention::softcap"][::core::mem::offset_of!(YggAttention, softcap) - 88usize];
    ["Offset of field: YggAttention::window"][::core::mem::offset_of!(YggAttention, window) - 92usize];
    ["Offset of field: YggAttention::spread"][::core::mem::offset_of!(YggAttention, spread) - 96usize];
    ["Offset of field: YggAttention::sinks"][::core::mem::offset_of!(YggAttention, sinks) - 104usize];
    ["Offset of field: YggAttention::rope"][::core::mem::offset_of!(YggAttention, rope) - 112usize];
    ["Offset of field: YggAttention::kv"][::core::mem::offset_of!(YggAttention, kv) - 136usize];
    ["Offset of field: YggAttention::partial"][::core::mem::offset_of!(YggAttention, partial) - 168usize];
    ["Offset of field: YggAttention::partial_max"]
        [::core::mem::offset_of!(YggAttention, partial_max) - 176usize];
    ["Offset of field: YggAttention::partial_sum"]
        [::core::mem::offset_of!(YggAttention, partial_sum) - 184usize];
    ["Offset of field: YggAttention::out"][::core::mem::offset_of!(YggAttention, out) - 192usize];
    ["Offset of field: YggAttention::next"][::core::mem::offset_of!(YggAttention, next) - 216usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggShortConv {
    pub step: YggStep,
    pub x: YggRows,
    pub taps: *const f32,
    pub slots: *const u32_,
    pub prefix: *const u32_,
    pub tail_len: *const u32_,
    pub tails: *const u32_,
    pub tail_capacity: u32_,
    pub tap_count: u32_,
    pub kept: *mut f32,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggShortConv"][::core::mem::size_of::<YggShortConv>() - 120usize];
    ["Alignment of YggShortConv"][::core::mem::align_of::<YggShortConv>() - 8usize];
    ["Offset of field: YggShortConv::step"][::core::mem::offset_of!(YggShortConv, step) - 0usize];
    ["Offset of field: YggShortConv::x"][::core::mem::offset_of!(YggShortConv, x) - 16usize];
    ["Offset of field: YggShortConv::taps"][::core::mem::offset_of!(YggShortConv, taps) - 40usize];
    ["Offset of field: YggShortConv::slots"][::core::mem::offset_of!(YggShortConv, slots) - 48usize];
    ["Offset of field: YggShortConv::prefix"][::core::mem::offset_of!(YggShortConv, prefix) - 56usize];
    ["Offset of field: YggShortConv::tail_len"][::core::mem::offset_of!(YggShortConv, tail_len) - 64usize];
    ["Offset of field: YggShortConv::tails"][::core::mem::offset_of!(YggShortConv, tails) - 72usize];
    ["Offset of field: YggShortConv::tail_capacity"]
        [::core::mem::offset_of!(YggShortConv, tail_capacity) - 80usize];
    ["Offset of field: YggShortConv::tap_count"][::core::mem::offset_of!(YggShortConv, tap_count) - 84usize];
    ["Offset of field: YggShortConv::kept"][::core::mem::offset_of!(YggShortConv, kept) - 88usize];
    ["Offset of field: YggShortConv::out"][::core::mem::offset_of!(YggShortConv, out) - 96usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggStates {
    pub is_scan: u32_,
    pub is_grouped: u32_,
    pub key_heads: u32_,
    pub value_heads: u32_,
    pub key_dim: u32_,
    pub value_dim: u32_,
    pub ring: u32_,
    pub kept: *mut f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggStates"][::core::mem::size_of::<YggStates>() - 40usize];
    ["Alignment of YggStates"][::core::mem::align_of::<YggStates>() - 8usize];
    ["Offset of field: YggStates::is_scan"][::core::mem::offset_of!(YggStates, is_scan) - 0usize];
    ["Offset of field: YggStates::is_grouped"][::core::mem::offset_of!(YggStates, is_grouped) - 4usize];
    ["Offset of field: YggStates::key_heads"][::core::mem::offset_of!(YggStates, key_heads) - 8usize];
    ["Offset of field: YggStates::value_heads"][::core::mem::offset_of!(YggStates, value_heads) - 12usize];
    ["Offset of field: YggStates::key_dim"][::core::mem::offset_of!(YggStates, key_dim) - 16usize];
    ["Offset of field: YggStates::value_dim"][::core::mem::offset_of!(YggStates, value_dim) - 20usize];
    ["Offset of field: YggStates::ring"][::core::mem::offset_of!(YggStates, ring) - 24usize];
    ["Offset of field: YggStates::kept"][::core::mem::offset_of!(YggStates, kept) - 32usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggStateRows {
    pub step: YggStep,
    pub states: YggStates,
    pub x: YggRows,
    pub steps: YggRows,
    pub rates: YggRows,
    pub taps: *const f32,
    pub channel_biases: *const f32,
    pub decays: *const f32,
    pub step_biases: *const f32,
    pub tap_count: u32_,
    pub is_logarithm: u32_,
    pub shortest: f32,
    pub longest: f32,
    pub slots: *const u32_,
    pub prefix: *const u32_,
    pub tail_len: *const u32_,
    pub tails: *const u32_,
    pub tail_capacity: u32_,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggStateRows"][::core::mem::size_of::<YggStateRows>() - 240usize];
    ["Alignment of YggStateRows"][::core::mem::align_of::<YggStateRows>() - 8usize];
    ["Offset of field: YggStateRows::step"][::core::mem::offset_of!(YggStateRows, step) - 0usize];
    ["Offset of field: YggStateRows::states"][::core::mem::offset_of!(YggStateRows, states) - 16usize];
    ["Offset of field: YggStateRows::x"][::core::mem::offset_of!(YggStateRows, x) - 56usize];
    ["Offset of field: YggStateRows::steps"][::core::mem::offset_of!(YggStateRows, steps) - 80usize];
    ["Offset of field: YggStateRows::rates"][::core::mem::offset_of!(YggStateRows, rates) - 104usize];
    ["Offset of field: YggStateRows::taps"][::core::mem::offset_of!(YggStateRows, taps) - 128usize];
    ["Offset of field: YggStateRows::channel_biases"]
        [::core::mem::offset_of!(YggStateRows, channel_biases) - 136usize];
    ["Offset of field: YggStateRows::decays"][::core::mem::offset_of!(YggStateRows, decays) - 144usize];
    ["Offset of field: YggStateRows::step_biases"]
        [::core::mem::offset_of!(YggStateRows, step_biases) - 152usize];
    ["Offset of field: YggStateRows::tap_count"][::core::mem::offset_of!(YggStateRows, tap_count) - 160usize];
    ["Offset of field: YggStateRows::is_logarithm"]
        [::core::mem::offset_of!(YggStateRows, is_logarithm) - 164usize];
    ["Offset of field: YggStateRows::shortest"][::core::mem::offset_of!(YggStateRows, shortest) - 168usize];
    ["Offset of field: YggStateRows::longest"][::core::mem::offset_of!(YggStateRows, longest) - 172usize];
    ["Offset of field: YggStateRows::slots"][::core::mem::offset_of!(YggStateRows, slots) - 176usize];
    ["Offset of field: YggStateRows::prefix"][::core::mem::offset_of!(YggStateRows, prefix) - 184usize];
    ["Offset of field: YggStateRows::tail_len"][::core::mem::offset_of!(YggStateRows, tail_len) - 192usize];
    ["Offset of field: YggStateRows::tails"][::core::mem::offset_of!(YggStateRows, tails) - 200usize];
    ["Offset of field: YggStateRows::tail_capacity"]
        [::core::mem::offset_of!(YggStateRows, tail_capacity) - 208usize];
    ["Offset of field: YggStateRows::out"][::core::mem::offset_of!(YggStateRows, out) - 216usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggStateStep {
    pub load: u32_,
    pub save: u32_,
    pub slot: u32_,
    pub row: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggStateStep"][::core::mem::size_of::<YggStateStep>() - 16usize];
    ["Alignment of YggStateStep"][::core::mem::align_of::<YggStateStep>() - 4usize];
    ["Offset of field: YggStateStep::load"][::core::mem::offset_of!(YggStateStep, load) - 0usize];
    ["Offset of field: YggStateStep::save"][::core::mem::offset_of!(YggStateStep, save) - 4usize];
    ["Offset of field: YggStateStep::slot"][::core::mem::offset_of!(YggStateStep, slot) - 8usize];
    ["Offset of field: YggStateStep::row"][::core::mem::offset_of!(YggStateStep, row) - 12usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggStateOrder {
    pub rows: u32_,
    pub slots: *const u32_,
    pub prefix: *const u32_,
    pub tail_len: *const u32_,
    pub tails: *const u32_,
    pub tail_capacity: u32_,
    pub counts: *mut u32_,
    pub steps: *mut YggStateStep,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggStateOrder"][::core::mem::size_of::<YggStateOrder>() - 64usize];
    ["Alignment of YggStateOrder"][::core::mem::align_of::<YggStateOrder>() - 8usize];
    ["Offset of field: YggStateOrder::rows"][::core::mem::offset_of!(YggStateOrder, rows) - 0usize];
    ["Offset of field: YggStateOrder::slots"][::core::mem::offset_of!(YggStateOrder, slots) - 8usize];
    ["Offset of field: YggStateOrder::prefix"][::core::mem::offset_of!(YggStateOrder, prefix) - 16usize];
    ["Offset of field: YggStateOrder::tail_len"][::core::mem::offset_of!(YggStateOrder, tail_len) - 24usize];
    ["Offset of field: YggStateOrder::tails"][::core::mem::offset_of!(YggStateOrder, tails) - 32usize];
    ["Offset of field: YggStateOrder::tail_capacity"]
        [::core::mem::offset_of!(YggStateOrder, tail_capacity) - 40usize];
    ["Offset of field: YggStateOrder::counts"][::core::mem::offset_of!(YggStateOrder, counts) - 48usize];
    ["Offset of field: YggStateOrder::steps"][::core::mem::offset_of!(YggStateOrder, steps) - 56usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggStateWalk {
    pub step: YggStep,
    pub states: YggStates,
    pub matrices: *mut f32,
    pub held: *mut u32_,
    pub saved: *mut f32,
    pub skips: *const f32,
    pub counts: *const u32_,
    pub steps: *const YggStateStep,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggStateWalk"][::core::mem::size_of::<YggStateWalk>() - 128usize];
    ["Alignment of YggStateWalk"][::core::mem::align_of::<YggStateWalk>() - 8usize];
    ["Offset of field: YggStateWalk::step"][::core::mem::offset_of!(YggStateWalk, step) - 0usize];
    ["Offset of field: YggStateWalk::states"][::core::mem::offset_of!(YggStateWalk, states) - 16usize];
    ["Offset of field: YggStateWalk::matrices"][::core::mem::offset_of!(YggStateWalk, matrices) - 56usize];
    ["Offset of field: YggStateWalk::held"][::core::mem::offset_of!(YggStateWalk, held) - 64usize];
    ["Offset of field: YggStateWalk::saved"][::core::mem::offset_of!(YggStateWalk, saved) - 72usize];
    ["Offset of field: YggStateWalk::skips"][::core::mem::offset_of!(YggStateWalk, skips) - 80usize];
    ["Offset of field: YggStateWalk::counts"][::core::mem::offset_of!(YggStateWalk, counts) - 88usize];
    ["Offset of field: YggStateWalk::steps"][::core::mem::offset_of!(YggStateWalk, steps) - 96usize];
    ["Offset of field: YggStateWalk::out"][::core::mem::offset_of!(YggStateWalk, out) - 104usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggChoice {
    pub k: u32_,
    pub inverse: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggChoice"][::core::mem::size_of::<YggChoice>() - 8usize];
    ["Alignment of YggChoice"][::core::mem::align_of::<YggChoice>() - 4usize];
    ["Offset of field: YggChoice::k"][::core::mem::offset_of!(YggChoice, k) - 0usize];
    ["Offset of field: YggChoice::inverse"][::core::mem::offset_of!(YggChoice, inverse) - 4usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggCandidates {
    pub step: YggStep,
    pub logits: YggRows,
    pub choice: *const YggChoice,
    pub ranges: u32_,
    pub most: u32_,
    pub range_max: *mut f32,
    pub range_sum: *mut f32,
    pub range_count: *mut u32_,
    pub range_values: *mut f32,
    pub range_ids: *mut u32_,
    pub names: *const u32_,
    pub out: YggRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggCandidates"][::core::mem::size_of::<YggCandidates>() - 128usize];
    ["Alignment of YggCandidates"][::core::mem::align_of::<YggCandidates>() - 8usize];
    ["Offset of field: YggCandidates::step"][::core::mem::offset_of!(YggCandidates, step) - 0usize];
    ["Offset of field: YggCandidates::logits"][::core::mem::offset_of!(YggCandidates, logits) - 16usize];
    ["Offset of field: YggCandidates::choice"][::core::mem::offset_of!(YggCandidates, choice) - 40usize];
    ["Offset of field: YggCandidates::ranges"][::core::mem::offset_of!(YggCandidates, ranges) - 48usize];
    ["Offset of field: YggCandidates::most"][::core::mem::offset_of!(YggCandidates, most) - 52usize];
    ["Offset of field: YggCandidates::range_max"]
        [::core::mem::offset_of!(YggCandidates, range_max) - 56usize];
    ["Offset of field: YggCandidates::range_sum"]
        [::core::mem::offset_of!(YggCandidates, range_sum) - 64usize];
    ["Offset of field: YggCandidates::range_count"]
        [::core::mem::offset_of!(YggCandidates, range_count) - 72usize];
    ["Offset of field: YggCandidates::range_values"]
        [::core::mem::offset_of!(YggCandidates, range_values) - 80usize];
    ["Offset of field: YggCandidates::range_ids"]
        [::core::mem::offset_of!(YggCandidates, range_ids) - 88usize];
    ["Offset of field: YggCandidates::names"][::core::mem::offset_of!(YggCandidates, names) - 96usize];
    ["Offset of field: YggCandidates::out"][::core::mem::offset_of!(YggCandidates, out) - 104usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggNoise {
    pub seed: [u32_; 2usize],
    pub first: u32_,
    pub temperature: f32,
    pub inverse: f32,
    pub sharpness: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggNoise"][::core::mem::size_of::<YggNoise>() - 24usize];
    ["Alignment of YggNoise"][::core::mem::align_of::<YggNoise>() - 4usize];
    ["Offset of field: YggNoise::seed"][::core::mem::offset_of!(YggNoise, seed) - 0usize];
    ["Offset of field: YggNoise::first"][::core::mem::offset_of!(YggNoise, first) - 8usize];
    ["Offset of field: YggNoise::temperature"][::core::mem::offset_of!(YggNoise, temperature) - 12usize];
    ["Offset of field: YggNoise::inverse"][::core::mem::offset_of!(YggNoise, inverse) - 16usize];
    ["Offset of field: YggNoise::sharpness"][::core::mem::offset_of!(YggNoise, sharpness) - 20usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggNoisyRows {
    pub step: YggStep,
    pub logits: YggRows,
    pub noise: *const YggNoise,
    pub positions: *const u32_,
    pub names: *const u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggNoisyRows"][::core::mem::size_of::<YggNoisyRows>() - 64usize];
    ["Alignment of YggNoisyRows"][::core::mem::align_of::<YggNoisyRows>() - 8usize];
    ["Offset of field: YggNoisyRows::step"][::core::mem::offset_of!(YggNoisyRows, step) - 0usize];
    ["Offset of field: YggNoisyRows::logits"][::core::mem::offset_of!(YggNoisyRows, logits) - 16usize];
    ["Offset of field: YggNoisyRows::noise"][::core::mem::offset_of!(YggNoisyRows, noise) - 40usize];
    ["Offset of field: YggNoisyRows::positions"][::core::mem::offset_of!(YggNoisyRows, positions) - 48usize];
    ["Offset of field: YggNoisyRows::names"][::core::mem::offset_of!(YggNoisyRows, names) - 56usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggValues {
    pub candidates: YggRows,
    pub noise: *const YggNoise,
    pub most: u32_,
    pub kept: u32_,
    pub vocabulary: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggValues"][::core::mem::size_of::<YggValues>() - 48usize];
    ["Alignment of YggValues"][::core::mem::align_of::<YggValues>() - 8usize];
    ["Offset of field: YggValues::candidates"][::core::mem::offset_of!(YggValues, candidates) - 0usize];
    ["Offset of field: YggValues::noise"][::core::mem::offset_of!(YggValues, noise) - 24usize];
    ["Offset of field: YggValues::most"][::core::mem::offset_of!(YggValues, most) - 32usize];
    ["Offset of field: YggValues::kept"][::core::mem::offset_of!(YggValues, kept) - 36usize];
    ["Offset of field: YggValues::vocabulary"][::core::mem::offset_of!(YggValues, vocabulary) - 40usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRace {
    pub logits: YggRows,
    pub candidates: YggRows,
    pub noise: *const YggNoise,
    pub positions: *const u32_,
    pub ranges: u32_,
    pub leaders: *mut u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRace"][::core::mem::size_of::<YggRace>() - 80usize];
    ["Alignment of YggRace"][::core::mem::align_of::<YggRace>() - 8usize];
    ["Offset of field: YggRace::logits"][::core::mem::offset_of!(YggRace, logits) - 0usize];
    ["Offset of field: YggRace::candidates"][::core::mem::offset_of!(YggRace, candidates) - 24usize];
    ["Offset of field: YggRace::noise"][::core::mem::offset_of!(YggRace, noise) - 48usize];
    ["Offset of field: YggRace::positions"][::core::mem::offset_of!(YggRace, positions) - 56usize];
    ["Offset of field: YggRace::ranges"][::core::mem::offset_of!(YggRace, ranges) - 64usize];
    ["Offset of field: YggRace::leaders"][::core::mem::offset_of!(YggRace, leaders) - 72usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggTree {
    pub counts: *mut u32_,
    pub tokens: *mut u32_,
    pub parents: *mut u32_,
    pub ranks: *mut u32_,
    pub depths: *mut u32_,
    pub scores: *mut f32,
    pub offered: *mut f32,
    pub offers: *mut u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggTree"][::core::mem::size_of::<YggTree>() - 64usize];
    ["Alignment of YggTree"][::core::mem::align_of::<YggTree>() - 8usize];
    ["Offset of field: YggTree::counts"][::core::mem::offset_of!(YggTree, counts) - 0usize];
    ["Offset of field: YggTree::tokens"][::core::mem::offset_of!(YggTree, tokens) - 8usize];
    ["Offset of field: YggTree::parents"][::core::mem::offset_of!(YggTree, parents) - 16usize];
    ["Offset of field: YggTree::ranks"][::core::mem::offset_of!(YggTree, ranks) - 24usize];
    ["Offset of field: YggTree::depths"][::core::mem::offset_of!(YggTree, depths) - 32usize];
    ["Offset of field: YggTree::scores"][::core::mem::offset_of!(YggTree, scores) - 40usize];
    ["Offset of field: YggTree::offered"][::core::mem::offset_of!(YggTree, offered) - 48usize];
    ["Offset of field: YggTree::offers"][::core::mem::offset_of!(YggTree, offers) - 56usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggNodeRows {
    pub rows: u32_,
    pub tail_capacity: u32_,
    pub tokens: *mut u32_,
    pub positions: *mut u32_,
    pub slots: *mut u32_,
    pub prefix: *mut u32_,
    pub tail_len: *mut u32_,
    pub tails: *mut u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggNodeRows"][::core::mem::size_of::<YggNodeRows>() - 56usize];
    ["Alignment of YggNodeRows"][::core::mem::align_of::<YggNodeRows>() - 8usize];
    ["Offset of field: YggNodeRows::rows"][::core::mem::offset_of!(YggNodeRows, rows) - 0usize];
    ["Offset of field: YggNodeRows::tail_capacity"]
        [::core::mem::offset_of!(YggNodeRows, tail_capacity) - 4usize];
    ["Offset of field: YggNodeRows::tokens"][::core::mem::offset_of!(YggNodeRows, tokens) - 8usize];
    ["Offset of field: YggNodeRows::positions"][::core::mem::offset_of!(YggNodeRows, positions) - 16usize];
    ["Offset of field: YggNodeRows::slots"][::core::mem::offset_of!(YggNodeRows, slots) - 24usize];
    ["Offset of field: YggNodeRows::prefix"][::core::mem::offset_of!(YggNodeRows, prefix) - 32usize];
    ["Offset of field: YggNodeRows::tail_len"][::core::mem::offset_of!(YggNodeRows, tail_len) - 40usize];
    ["Offset of field: YggNodeRows::tails"][::core::mem::offset_of!(YggNodeRows, tails) - 48usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggGrow {
    pub tree: YggTree,
    pub candidates: YggRows,
    pub most: u32_,
    pub kept: u32_,
    pub vocabulary: u32_,
    pub width: u32_,
    pub is_first: u32_,
    pub root: *const u32_,
    pub next: YggNodeRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggGrow"][::core::mem::size_of::<YggGrow>() - 176usize];
    ["Alignment of YggGrow"][::core::mem::align_of::<YggGrow>() - 8usize];
    ["Offset of field: YggGrow::tree"][::core::mem::offset_of!(YggGrow, tree) - 0usize];
    ["Offset of field: YggGrow::candidates"][::core::mem::offset_of!(YggGrow, candidates) - 64usize];
    ["Offset of field: YggGrow::most"][::core::mem::offset_of!(YggGrow, most) - 88usize];
    ["Offset of field: YggGrow::kept"][::core::mem::offset_of!(YggGrow, kept) - 92usize];
    ["Offset of field: YggGrow::vocabulary"][::core::mem::offset_of!(YggGrow, vocabulary) - 96usize];
    ["Offset of field: YggGrow::width"][::core::mem::offset_of!(YggGrow, width) - 100usize];
    ["Offset of field: YggGrow::is_first"][::core::mem::offset_of!(YggGrow, is_first) - 104usize];
    ["Offset of field: YggGrow::root"][::core::mem::offset_of!(YggGrow, root) - 112usize];
    ["Offset of field: YggGrow::next"][::core::mem::offset_of!(YggGrow, next) - 120usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggPrune {
    pub tree: YggTree,
    pub width: u32_,
    pub is_kept: *mut u32_,
    pub count: *mut u32_,
    pub nodes: *mut u32_,
    pub next: YggNodeRows,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggPrune"][::core::mem::size_of::<YggPrune>() - 152usize];
    ["Alignment of YggPrune"][::core::mem::align_of::<YggPrune>() - 8usize];
    ["Offset of field: YggPrune::tree"][::core::mem::offset_of!(YggPrune, tree) - 0usize];
    ["Offset of field: YggPrune::width"][::core::mem::offset_of!(YggPrune, width) - 64usize];
    ["Offset of field: YggPrune::is_kept"][::core::mem::offset_of!(YggPrune, is_kept) - 72usize];
    ["Offset of field: YggPrune::count"][::core::mem::offset_of!(YggPrune, count) - 80usize];
    ["Offset of field: YggPrune::nodes"][::core::mem::offset_of!(YggPrune, nodes) - 88usize];
    ["Offset of field: YggPrune::next"][::core::mem::offset_of!(YggPrune, next) - 96usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggHandDown {
    pub tree: YggTree,
    pub hidden: YggRows,
    pub is_first: u32_,
    pub root: *const u32_,
    pub kept: *mut f32,
    pub given: *mut f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggHandDown"][::core::mem::size_of::<YggHandDown>() - 120usize];
    ["Alignment of YggHandDown"][::core::mem::align_of::<YggHandDown>() - 8usize];
    ["Offset of field: YggHandDown::tree"][::core::mem::offset_of!(YggHandDown, tree) - 0usize];
    ["Offset of field: YggHandDown::hidden"][::core::mem::offset_of!(YggHandDown, hidden) - 64usize];
    ["Offset of field: YggHandDown::is_first"][::core::mem::offset_of!(YggHandDown, is_first) - 88usize];
    ["Offset of field: YggHandDown::root"][::core::mem::offset_of!(YggHandDown, root) - 96usize];
    ["Offset of field: YggHandDown::kept"][::core::mem::offset_of!(YggHandDown, kept) - 104usize];
    ["Offset of field: YggHandDown::given"][::core::mem::offset_of!(YggHandDown, given) - 112usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggPath {
    pub count: *mut u32_,
    pub rows: *mut u32_,
    pub tokens: *mut u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggPath"][::core::mem::size_of::<YggPath>() - 24usize];
    ["Alignment of YggPath"][::core::mem::align_of::<YggPath>() - 8usize];
    ["Offset of field: YggPath::count"][::core::mem::offset_of!(YggPath, count) - 0usize];
    ["Offset of field: YggPath::rows"][::core::mem::offset_of!(YggPath, rows) - 8usize];
    ["Offset of field: YggPath::tokens"][::core::mem::offset_of!(YggPath, tokens) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggWalk {
    pub candidates: YggRows,
    pub tokens: *const u32_,
    pub slots: *const u32_,
    pub tail_len: *const u32_,
    pub tails: *const u32_,
    pub tail_capacity: u32_,
    pub path: YggPath,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggWalk"][::core::mem::size_of::<YggWalk>() - 88usize];
    ["Alignment of YggWalk"][::core::mem::align_of::<YggWalk>() - 8usize];
    ["Offset of field: YggWalk::candidates"][::core::mem::offset_of!(YggWalk, candidates) - 0usize];
    ["Offset of field: YggWalk::tokens"][::core::mem::offset_of!(YggWalk, tokens) - 24usize];
    ["Offset of field: YggWalk::slots"][::core::mem::offset_of!(YggWalk, slots) - 32usize];
    ["Offset of field: YggWalk::tail_len"][::core::mem::offset_of!(YggWalk, tail_len) - 40usize];
    ["Offset of field: YggWalk::tails"][::core::mem::offset_of!(YggWalk, tails) - 48usize];
    ["Offset of field: YggWalk::tail_capacity"][::core::mem::offset_of!(YggWalk, tail_capacity) - 56usize];
    ["Offset of field: YggWalk::path"][::core::mem::offset_of!(YggWalk, path) - 64usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggPathMoves {
    pub cache: *mut u8_,
    pub slots: u32_,
    pub slot_bytes: u32_,
    pub row_slots: *const u32_,
    pub path: YggPath,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggPathMoves"][::core::mem::size_of::<YggPathMoves>() - 48usize];
    ["Alignment of YggPathMoves"][::core::mem::align_of::<YggPathMoves>() - 8usize];
    ["Offset of field: YggPathMoves::cache"][::core::mem::offset_of!(YggPathMoves, cache) - 0usize];
    ["Offset of field: YggPathMoves::slots"][::core::mem::offset_of!(YggPathMoves, slots) - 8usize];
    ["Offset of field: YggPathMoves::slot_bytes"]
        [::core::mem::offset_of!(YggPathMoves, slot_bytes) - 12usize];
    ["Offset of field: YggPathMoves::row_slots"][::core::mem::offset_of!(YggPathMoves, row_slots) - 16usize];
    ["Offset of field: YggPathMoves::path"][::core::mem::offset_of!(YggPathMoves, path) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggMoves {
    pub cache: *mut u8_,
    pub planes: u32_,
    pub slots: u32_,
    pub slot_bytes: u32_,
    pub first: u32_,
    pub count: u32_,
    pub from: [u32_; 64usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggMoves"][::core::mem::size_of::<YggMoves>() - 288usize];
    ["Alignment of YggMoves"][::core::mem::align_of::<YggMoves>() - 8usize];
    ["Offset of field: YggMoves::cache"][::core::mem::offset_of!(YggMoves, cache) - 0usize];
    ["Offset of field: YggMoves::planes"][::core::mem::offset_of!(YggMoves, planes) - 8usize];
    ["Offset of field: YggMoves::slots"][::core::mem::offset_of!(YggMoves, slots) - 12usize];
    ["Offset of field: YggMoves::slot_bytes"][::core::mem::offset_of!(YggMoves, slot_bytes) - 16usize];
    ["Offset of field: YggMoves::first"][::core::mem::offset_of!(YggMoves, first) - 20usize];
    ["Offset of field: YggMoves::count"][::core::mem::offset_of!(YggMoves, count) - 24usize];
    ["Offset of field: YggMoves::from"][::core::mem::offset_of!(YggMoves, from) - 28usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggPoison {
    pub cache: *mut ::core::ffi::c_void,
    pub planes: u32_,
    pub slots: u32_,
    pub head_dim: u32_,
    pub first: u32_,
    pub count: u32_,
    pub halves: u32_,
    pub seed: u64_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggPoison"][::core::mem::size_of::<YggPoison>() - 40usize];
    ["Alignment of YggPoison"][::core::mem::align_of::<YggPoison>() - 8usize];
    ["Offset of field: YggPoison::cache"][::core::mem::offset_of!(YggPoison, cache) - 0usize];
    ["Offset of field: YggPoison::planes"][::core::mem::offset_of!(YggPoison, planes) - 8usize];
    ["Offset of field: YggPoison::slots"][::core::mem::offset_of!(YggPoison, slots) - 12usize];
    ["Offset of field: YggPoison::head_dim"][::core::mem::offset_of!(YggPoison, head_dim) - 16usize];
    ["Offset of field: YggPoison::first"][::core::mem::offset_of!(YggPoison, first) - 20usize];
    ["Offset of field: YggPoison::count"][::core::mem::offset_of!(YggPoison, count) - 24usize];
    ["Offset of field: YggPoison::halves"][::core::mem::offset_of!(YggPoison, halves) - 28usize];
    ["Offset of field: YggPoison::seed"][::core::mem::offset_of!(YggPoison, seed) - 32usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggRead {
    pub data: *const ::core::ffi::c_void,
    pub count: u64_,
    pub sink: *mut u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggRead"][::core::mem::size_of::<YggRead>() - 24usize];
    ["Alignment of YggRead"][::core::mem::align_of::<YggRead>() - 8usize];
    ["Offset of field: YggRead::data"][::core::mem::offset_of!(YggRead, data) - 0usize];
    ["Offset of field: YggRead::count"][::core::mem::offset_of!(YggRead, count) - 8usize];
    ["Offset of field: YggRead::sink"][::core::mem::offset_of!(YggRead, sink) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct YggMultiply {
    pub rounds: u32_,
    pub sink: *mut u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of YggMultiply"][::core::mem::size_of::<YggMultiply>() - 16usize];
    ["Alignment of YggMultiply"][::core::mem::align_of::<YggMultiply>() - 8usize];
    ["Offset of field: YggMultiply::rounds"][::core::mem::offset_of!(YggMultiply, rounds) - 0usize];
    ["Offset of field: YggMultiply::sink"][::core::mem::offset_of!(YggMultiply, sink) - 8usize];
};
