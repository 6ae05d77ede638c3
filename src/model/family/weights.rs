//! Weights of a graph: looked up in the tensor table by the names of the container, with checked shapes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    ir::{Elements, HeadTokens, Residence, WeightId, WeightSpec},
    model::{Container, ModelError, TensorTable, draft_vocabulary::DraftVocabulary, lent::ONES},
};
use ygg_kernels::WeightFormat;

/// How a container names the tensors of layers.
#[derive(Clone, Copy, Debug)]
pub(in crate::model) struct Naming {
    pub(in crate::model) container: Container,
    /// What stands before a layer's index.
    pub(in crate::model) layers: &'static str,
    /// Whether the name of a layer has its index.
    pub(in crate::model) has_index: bool,
    /// The index of the first layer.
    pub(in crate::model) first: usize,
    /// Names that are others here: those asked for, and what files have.
    pub(in crate::model) renamed: &'static [(&'static str, &'static str)],
}

impl Naming {
    /// The naming of models in `container`.
    pub(in crate::model) fn of(container: Container) -> Self {
        let layers = match container {
            Container::Gguf => "blk.",
            Container::Folder => "model.layers.",
        };
        Self { container, layers, has_index: true, first: 0, renamed: &[] }
    }

    /// What the names of weights of one layer begin with.
    fn layer(self, layer: usize) -> String {
        if self.has_index {
            format!("{}{}.", self.layers, self.first + layer)
        } else {
            self.layers.to_owned()
        }
    }

    /// The weight that GGUF files and Hugging Face folders call by these names.
    pub(super) fn weight(self, gguf: &str, folder: &str) -> String {
        let asked = if self.container == Container::Gguf { gguf } else { folder };
        let renamed = self.renamed.iter().find(|(usual, _)| *usual == asked);
        format!("{}.weight", renamed.map_or(asked, |(_, own)| own))
    }

    /// The name of the bias that belongs to a weight of one layer.
    pub(super) fn layer_bias(self, layer: usize, gguf: &str, folder: &str) -> String {
        self.layer_vector(layer, &format!("{gguf}.bias"), &format!("{folder}.bias"))
    }

    /// The name of a vector of one layer, as it stands.
    pub(super) fn layer_vector(self, layer: usize, gguf: &str, folder: &str) -> String {
        let name = if self.container == Container::Gguf { gguf } else { folder };
        format!("{}{name}", self.layer(layer))
    }

    /// As [`weight`](Self::weight), of one layer.
    pub(super) fn layer_weight(self, layer: usize, gguf: &str, folder: &str) -> String {
        format!("{}{}", self.layer(layer), self.weight(gguf, folder))
    }
}

/// The weights of a graph, numbered in the order in which they are looked up.
pub(super) struct WeightList<'a> {
    pub(super) tensors: &'a TensorTable,
    pub(super) specs: Vec<WeightSpec>,
    /// Weights whose rows are in another order than their tensors': which row of the tensor each is.
    pub(super) orders: BTreeMap<WeightId, Vec<u32>>,
}

impl<'a> WeightList<'a> {
    /// A list of weights of these tensors, after others.
    pub(super) fn after(tensors: &'a TensorTable, specs: Vec<WeightSpec>) -> Self {
        Self { tensors, specs, orders: BTreeMap::new() }
    }

    /// The number of the next weight.
    pub(super) fn next(&self) -> WeightId {
        WeightId(u32::try_from(self.specs.len()).expect("layers are limited"))
    }

    /// Matrices of as many rows as the tensor, which lie side by side in it, of so many columns.
    ///
    /// # Errors
    /// As [`find`](Self::find), and for columns that are no whole blocks of the tensor's format.
    pub(super) fn columns(
        &mut self,
        name: &str,
        rows: usize,
        parts: &[usize],
    ) -> Result<Vec<WeightId>, ModelError> {
        let row_step = parts.iter().sum();
        let format = self.format_of(name, &[rows, row_step])?;
        let mut first = 0;
        let mut part = |len: &usize| {
            if format.row_bytes(first).is_none() || format.row_bytes(*len).is_none() {
                let found = format!("parts of {len} columns in {format:?}");
                return Err(ModelError::unsupported(
                    format_args!("tensor `{name}`"),
                    found,
                    "F32, F16, BF16",
                ));
            }
            let elements = Elements { first, row_step, column_step: 1 };
            first += len;
            Ok(self.push(WeightSpec { elements, ..WeightSpec::new(name, rows, *len, format) }))
        };
        parts.iter().map(&mut part).collect()
    }

    /// The matrix of this name with its rows in another order.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn reordered(
        &mut self,
        name: &str,
        columns: usize,
        rows: Vec<u32>,
    ) -> Result<WeightId, ModelError> {
        let format = self.format_of(name, &[rows.len(), columns])?;
        let id = self.push(WeightSpec::new(name, rows.len(), columns, format));
        self.orders.insert(id, rows);
        Ok(id)
    }

    /// The matrix that makes a published head's logits from rows of `width` elements, with the tokens that they are of
    /// if these are some of the verifier's; `None` for the verifier's own matrix.
    ///
    /// # Errors
    /// As [`find`](Self::find), and for a token twice.
    pub(super) fn draft_head(
        &mut self,
        naming: Naming,
        own: &DraftVocabulary,
        [vocabulary, width]: [usize; 2],
    ) -> Result<Option<(WeightId, Option<HeadTokens>)>, ModelError> {
        let name = naming.weight("output", "lm_head");
        if !self.tensors.contains_key(&name) && own.rows == vocabulary && own.tokens.is_none() {
            return Ok(None);
        }
        let Some((order, kept)) = own.in_order(vocabulary)? else {
            return Ok(Some((self.find(name, &[own.rows, width])?, None)));
        };
        let matrix = if order.is_sorted() {
            self.find(name, &[own.rows, width])?
        } else {
            self.reordered(&name, width, order)?
        };
        Ok(Some((matrix, Some(kept))))
    }

    /// Refuses tensors that nothing reads: without them a model would be another.
    ///
    /// # Errors
    /// [`ModelError`], which names the first.
    pub(super) fn refuse_others(&self, read: &[&str]) -> Result<(), ModelError> {
        let own = self.specs.iter().map(|spec| spec.name.as_str());
        let read: BTreeSet<&str> = own.chain(read.iter().copied()).collect();
        match self.tensors.keys().find(|name| !read.contains(name.as_str())) {
            Some(name) => Err(ModelError::unsupported(
                format_args!("tensor `{name}`"),
                "what no head has that is known here",
                "heads without it",
            )),
            None => Ok(()),
        }
    }

    /// The weight of this name.
    ///
    /// # Errors
    /// [`ModelError`] if the tensor is missing or has another shape.
    pub(super) fn find(&mut self, name: String, shape: &[usize]) -> Result<WeightId, ModelError> {
        let format = self.format_of(&name, shape)?;
        let (columns, rows) = (shape[shape.len() - 1], if shape.len() == 2 { shape[0] } else { 1 });
        Ok(self.push(WeightSpec::new(name, rows, columns, format)))
    }

    /// Matrices of so many rows, which lie in one tensor of this name and shape, one after the other.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn parts(
        &mut self,
        name: String,
        shape: &[usize],
        rows: &[usize],
    ) -> Result<Vec<WeightId>, ModelError> {
        let format = self.format_of(&name, shape)?;
        let columns = shape[shape.len() - 1];
        let mut first = 0;
        let mut part = |rows: &usize| {
            let elements = Elements { first, ..Elements::in_order(columns) };
            first += rows * columns;
            self.push(WeightSpec { elements, ..WeightSpec::new(name.clone(), *rows, columns, format) })
        };
        Ok(rows.iter().map(&mut part).collect())
    }

    /// Weights of so many rows and columns, whose elements are where `elements` say in one tensor of this name and
    /// shape. Vectors, of one row, must be numbers.
    ///
    /// # Errors
    /// As [`find`](Self::find) and, of vectors, [`vector`](Self::vector).
    pub(super) fn spread(
        &mut self,
        name: &str,
        shape: &[usize],
        [rows, columns]: [usize; 2],
        elements: impl IntoIterator<Item = Elements>,
    ) -> Result<Vec<WeightId>, ModelError> {
        let format = self.format_of(name, shape)?;
        let of = |elements| {
            let spec = WeightSpec { elements, ..WeightSpec::new(name, rows, columns, format) };
            if rows == 1 { self.dense(spec, "vectors") } else { Ok(self.push(spec)) }
        };
        elements.into_iter().map(of).collect()
    }

    /// Whether there is a tensor of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Whether a tensor is of single numbers; of one that is not there, too.
    pub(super) fn is_dense(&self, name: &str) -> bool {
        self.tensors.get(name).is_none_or(|info| info.format.is_dense())
    }

    /// The gain of a norm, `[len]`, and what is added to its elements.
    ///
    /// # Errors
    /// As [`vector`](Self::vector).
    pub(super) fn gain(&mut self, name: String, len: usize, offset: f32) -> Result<WeightId, ModelError> {
        let id = self.vector(name, len, "a norm gain")?;
        self.specs[id.0 as usize].offset = offset;
        Ok(id)
    }

    /// A gain of ones, which no file has.
    pub(super) fn ones(&mut self, len: usize) -> WeightId {
        let spec = WeightSpec::new(ONES, 1, len, WeightFormat::F32);
        match self.specs.iter().position(|found| *found == spec) {
            Some(number) => WeightId(u32::try_from(number).expect("layers are limited")),
            None => self.push(spec),
        }
    }

    /// A matrix whose rows are read where the file has them.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn mapped(&mut self, name: String, shape: [usize; 2]) -> Result<WeightId, ModelError> {
        let id = self.find(name, &shape)?;
        self.specs[id.0 as usize].residence = Residence::Mapped;
        Ok(id)
    }

    /// A vector, `[len]`; errors say `what` it is.
    ///
    /// # Errors
    /// As [`find`](Self::find), and for a quantised tensor.
    pub(super) fn vector(&mut self, name: String, len: usize, what: &str) -> Result<WeightId, ModelError> {
        let format = self.format_of(&name, &[len])?;
        self.dense(WeightSpec::new(name, 1, len, format), what)
    }

    /// A vector, `[len]`, `[1, len]` or `[len, 1]`; errors say `what` it is.
    ///
    /// # Errors
    /// As [`vector`](Self::vector).
    pub(super) fn row(&mut self, name: String, len: usize, what: &str) -> Result<WeightId, ModelError> {
        let format = match self.tensors.get(&name).map(|info| &info.shape[..]) {
            Some([_, 1]) => self.format_of(&name, &[len, 1])?,
            Some([_, _]) => self.format_of(&name, &[1, len])?,
            Some(_) | None => self.format_of(&name, &[len])?,
        };
        self.dense(WeightSpec::new(name, 1, len, format), what)
    }

    /// The taps of a convolution of so many channels, those of a channel together.
    ///
    /// # Errors
    /// As [`vector`](Self::vector).
    pub(super) fn taps(
        &mut self,
        naming: Naming,
        name: String,
        [channels, taps]: [usize; 2],
    ) -> Result<WeightId, ModelError> {
        let shape: &[usize] = match naming.container {
            Container::Gguf => &[channels, taps],
            Container::Folder => &[channels, 1, taps],
        };
        let format = self.format_of(&name, shape)?;
        self.dense(WeightSpec::new(name, 1, channels * taps, format), "taps")
    }

    /// A weight that is to be numbers.
    fn dense(&mut self, spec: WeightSpec, what: &str) -> Result<WeightId, ModelError> {
        if spec.format.is_dense() {
            return Ok(self.push(spec));
        }
        Err(ModelError::unsupported(
            format_args!("tensor `{}`", spec.name),
            format_args!("{what} in {:?}", spec.format),
            "F32, F16, BF16",
        ))
    }

    fn push(&mut self, spec: WeightSpec) -> WeightId {
        self.specs.push(spec);
        WeightId(u32::try_from(self.specs.len() - 1).expect("layers are limited"))
    }

    /// The format of a tensor, whose shape is checked.
    fn format_of(&self, name: &str, shape: &[usize]) -> Result<WeightFormat, ModelError> {
        let Some(info) = self.tensors.get(name) else {
            return Err(ModelError::MissingTensor { name: name.to_owned(), shape: shape.to_vec() });
        };
        if info.shape == shape {
            return Ok(info.format);
        }
        Err(ModelError::invalid(
            format_args!("tensor `{name}`"),
            format_args!("shape {shape:?}"),
            format_args!("{:?}", info.shape),
        ))
    }
}
