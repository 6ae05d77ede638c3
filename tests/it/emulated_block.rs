//! Block drafters on the emulated GPU.

use crate::emulated_cuda::passes;

const FORWARD: &str = "block::candidates_and_hidden_rows_are_the_references";
const TREES: &str = "block::candidates_of_nodes_are_those_after_their_tokens";
const NOISE: &str = "block::noise_ranks_the_candidates_of_every_place";
const ROWS: &str = "block::the_bits_of_a_block_do_not_depend_on_how_the_text_was_read";
const LOSSLESS: &str = "lossless::a_block_drafter_changes_no_token";

#[test]
fn blocks_are_drafted_as_on_a_processor() {
    passes(&[FORWARD, TREES, NOISE, ROWS, LOSSLESS], &[]);
}
