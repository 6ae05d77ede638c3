//! The `runtime` room.
