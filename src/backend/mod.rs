//! The `backend` room.
