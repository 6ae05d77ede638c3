//! The `sample` room.
