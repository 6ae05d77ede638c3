//! The `yggc` program.
fn main() {}
