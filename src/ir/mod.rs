//! The `ir` room.
