//! The `model` room.
