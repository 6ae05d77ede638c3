//! The `tree` room.
