//! The `speculate` room.
