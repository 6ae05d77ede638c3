//! The `measure` room.
