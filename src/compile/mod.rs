//! The `compile` room.
