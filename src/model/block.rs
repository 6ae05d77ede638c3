//! What the files of a block drafter say in addition to the sizes of its layers, and the tables of its Markov head.

use super::{ModelError, TensorTable, draft_vocabulary::DraftVocabulary, family::Naming};
use crate::ir::{BlockRows, HeadTokens};

/// A block drafter, whatever layout it is in.
#[derive(Debug)]
pub(super) struct BlockHead {
    /// How its tensors are called.
    pub(super) naming: Naming,
    /// The verifier's layers whose rows it is given: for each number, what comes out of so many.
    pub(super) layers: Vec<usize>,
    /// Elements of the verifier's rows, if its files say.
    pub(super) target_width: Option<usize>,
    /// What it forwards.
    pub(super) rows: BlockRows,
    /// What its head is for.
    pub(super) vocabulary: DraftVocabulary,
    /// Factor on embeddings.
    pub(super) embedding_scale: f32,
    /// Factor on logits.
    pub(super) logit_scale: f32,
    /// Bound of logits.
    pub(super) logit_softcap: Option<f32>,
    /// The rank of its Markov head, if it has one.
    pub(super) markov_rank: Option<usize>,
}

/// The tables of a Markov head: of the tokens before, and of those that may follow.
pub(super) const MARKOV: [&str; 2] = ["markov_head.markov_w1.weight", "markov_head.markov_w2.weight"];
/// What tells how likely a token is accepted. Nothing reads it: the planner knows that from recordings.
pub(super) const CONFIDENCE: [&str; 2] = ["confidence_head.proj.weight", "confidence_head.proj.bias"];

impl BlockHead {
    /// Checks the layers that it reads against those of a verifier that has `count`.
    ///
    /// # Errors
    /// [`ModelError`] if the verifier has too few.
    pub(super) fn expect_layers(&self, count: usize) -> Result<(), ModelError> {
        match self.layers.iter().max() {
            Some(least) if *least > count => {
                let found = format!("{count}; give the verifier that the drafter was trained for");
                Err(ModelError::invalid("the verifier", format!("at least {least} layers"), found))
            }
            _ => Ok(()),
        }
    }

    /// Checks the tables of the Markov head.
    ///
    /// # Errors
    /// [`ModelError`] for one that is missing, has another shape or is quantised.
    pub(super) fn expect_markov(&self, vocabulary: usize, tensors: &TensorTable) -> Result<(), ModelError> {
        let Some(rank) = self.markov_rank else { return Ok(()) };
        for (name, rows) in MARKOV.into_iter().zip([vocabulary, self.vocabulary.rows]) {
            let shape = vec![rows, rank];
            let Some(info) = tensors.get(name) else {
                return Err(ModelError::MissingTensor { name: name.to_owned(), shape });
            };
            let what = || format!("tensor `{name}`");
            if info.shape != shape {
                let found = format!("{:?}", info.shape);
                return Err(ModelError::invalid(what(), format!("shape {shape:?}"), found));
            }
            if !info.format.is_dense() {
                let found = format!("{:?}", info.format);
                return Err(ModelError::unsupported(what(), found, "F32, F16, BF16"));
            }
        }
        Ok(())
    }

    /// Tensors that it has in addition to those of its graph.
    pub(super) fn read_tensors(&self) -> Vec<&'static str> {
        let markov = self.markov_rank.iter().flat_map(|_| MARKOV);
        markov.chain(CONFIDENCE).collect()
    }
}

/// A Markov head: what is added to the logit of a token after another is the product of a row of each table.
///
/// Elements are rounded to BF16, whatever file they come from: what is drafted is verified.
#[derive(Clone, Debug)]
pub struct MarkovTables {
    /// Elements of a row.
    pub rank: usize,
    /// `[V, rank]`, by the token before.
    pub previous: Vec<u16>,
    /// `[rows of the head, rank]`, by the row of the token's logit.
    pub next: Vec<u16>,
    /// The tokens of the head's rows, if these are some of the vocabulary.
    pub tokens: Option<HeadTokens>,
}

impl MarkovTables {
    /// The tables of a checked head; `bytes` lends those of a tensor.
    pub(super) fn read<'b>(
        head: &BlockHead,
        vocabulary: usize,
        tensors: &TensorTable,
        bytes: impl Fn(&super::TensorInfo) -> &'b [u8],
    ) -> Result<Option<Self>, ModelError> {
        let Some(rank) = head.markov_rank else { return Ok(None) };
        let (order, tokens) = head.vocabulary.in_order(vocabulary)?.unzip();
        let table = |name: &str, order: Option<&[u32]>| {
            let info = &tensors[name];
            let row_bytes = info.format.row_bytes(rank).expect("dense rows");
            let rows: Vec<&[u8]> = bytes(info).chunks_exact(row_bytes).collect();
            let mut values = vec![0.0; rank];
            let mut table = Vec::with_capacity(rows.len() * rank);
            for place in 0..rows.len() {
                let row = order.map_or(place, |order| order[place] as usize);
                info.format.dequantise_row(rows[row], &mut values);
                table.extend(values.iter().map(|value| half::bf16::from_f32(*value).to_bits()));
            }
            table
        };
        let [previous, next] = MARKOV;
        let (previous, next) = (table(previous, None), table(next, order.as_deref()));
        Ok(Some(Self { rank, previous, next, tokens }))
    }
}
