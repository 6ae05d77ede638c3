//! The passes: one file, one rewrite each. None fuses across a group, and none changes what is kept or the cache.

mod bind_width;
mod drop_dead;
mod fold_constants;
mod fuse_gate_up;
mod fuse_head;
mod fuse_norm;
mod fuse_qkv;
mod fuse_residual;
mod fuse_rope;

pub(super) use bind_width::bind_width;
pub(super) use drop_dead::drop_dead;
pub(super) use fold_constants::fold_constants;
pub(super) use fuse_gate_up::fuse_gate_up;
pub(super) use fuse_head::fuse_head;
pub(super) use fuse_norm::fuse_norm;
pub(super) use fuse_qkv::fuse_qkv;
pub(super) use fuse_residual::fuse_residual;
pub(super) use fuse_rope::fuse_rope;
