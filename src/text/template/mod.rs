//! Runs chat templates of untrusted models within limits of memory, time and stack.
//!
//! The engine limits instructions and calls, but one instruction may copy, join, compare or nest values of any size. So
//! every instruction and function whose work depends on the size of values is replaced by one that charges a [`Budget`]
//! for it first: operators, literals of lists and objects, output and loops when the template is compiled
//! ([`compile`]), filters, tests, methods and functions in the environment ([`environment`]).
//!
//! Invariants:
//! - What a rendering allocates is at most a small multiple of its budget, and so is its time.
//! - A value that a variable keeps nests at most `MAX_DEPTH` deep and is no lazy view of another: dropping, printing
//!   and comparing values recurse no deeper, and no value contains itself.
//! - The source nests and chains at most so deep that compiling and rendering it takes less than half of the stack that
//!   templates have.

mod budget;
mod checked;
mod compile;
mod environment;
mod operators;

pub(super) use budget::Budget;
pub(super) use compile::compile;
pub(super) use environment::environment;
