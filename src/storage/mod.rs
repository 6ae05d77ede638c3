//! The `storage` room.
