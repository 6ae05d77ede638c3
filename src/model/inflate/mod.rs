//! Inflation: a small model as a file that costs what a large one does and computes the same. With it real text, and
//! what drafters really propose, can be measured at the cost of models whose weights are not at hand.
//!
//! - *Hidden rows* get elements that stay 0: embedding and outputs of sub-layers write nothing to them. A norm then
//!   divides by a mean over `D'` elements in place of `D`, so its gain is multiplied by `sqrt(D / D')` and its epsilon
//!   by `D / D'`.
//! - *Heads* keep their size, so that rotations and the scale of scores do. More query heads and neurons of an MLP are
//!   copies that no later op reads. Where a group of query heads is smaller than the model's, its keys and values are
//!   there several times.
//! - *Layers* that are added copy the model's and add 0 to the hidden row.
//!
//! Codes of quantised weights are copied block by block and never rounded again. Columns that only meet zeros repeat
//! other columns; what must be zero is. The results are those of the small model but for the order of sums, whose
//! ranges depend on the sizes, and for the rounding of gains and epsilon. The norms of heads, where a family has them,
//! keep their mean and get the smaller epsilon: a relative difference of at most half an epsilon where the mean square
//! is 1.

mod shape;
mod sizes;
mod tensors;
mod write;

pub use shape::InflatedShape;

#[cfg(test)]
mod tests;
