//! What schemas become.
