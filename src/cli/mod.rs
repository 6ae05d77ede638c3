//! The `cli` room.
