//! Weights of a graph: looked up in the tensor table by the names of the container, with checked shapes.

use crate::{
    ir::{WeightId, WeightSpec},
    model::{Container, ModelError, TensorTable},
};
use ygg_kernels::WeightFormat;

/// How a container names the tensors of layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) container: Container,
    /// What stands before a layer's index.
    pub(super) layers: &'static str,
    /// Names that are others here: those asked for, and what files have.
    pub(super) renamed: &'static [(&'static str, &'static str)],
}

impl Naming {
    /// The naming of models in `container`.
    pub(super) fn of(container: Container) -> Self {
        let layers = match container {
            Container::Gguf => "blk.",
            Container::Folder => "model.layers.",
        };
        Self { container, layers, renamed: &[] }
    }

    /// The weight that GGUF files and Hugging Face folders call by these names.
    pub(super) fn weight(self, gguf: &str, folder: &str) -> String {
        let asked = if self.container == Container::Gguf { gguf } else { folder };
        let renamed = self.renamed.iter().find(|(usual, _)| *usual == asked);
        format!("{}.weight", renamed.map_or(asked, |(_, own)| own))
    }

    /// The name of the bias that belongs to a weight of one layer.
    pub(super) fn layer_bias(self, layer: usize, gguf: &str, folder: &str) -> String {
        let name = if self.container == Container::Gguf { gguf } else { folder };
        format!("{}{layer}.{name}.bias", self.layers)
    }

    /// As [`weight`](Self::weight), of one layer.
    pub(super) fn layer_weight(self, layer: usize, gguf: &str, folder: &str) -> String {
        format!("{}{layer}.{}", self.layers, self.weight(gguf, folder))
    }
}

/// The weights of a graph, numbered in the order in which they are looked up.
pub(super) struct WeightList<'a> {
    pub(super) tensors: &'a TensorTable,
    pub(super) specs: Vec<WeightSpec>,
}

impl WeightList<'_> {
    /// The weight of this name.
    ///
    /// # Errors
    /// [`ModelError`] if the tensor is missing or has another shape.
    pub(super) fn find(&mut self, name: String, shape: &[usize]) -> Result<WeightId, ModelError> {
        let format = self.format_of(&name, shape)?;
        let (columns, rows) = (shape[shape.len() - 1], if shape.len() == 2 { shape[0] } else { 1 });
        Ok(self.push(WeightSpec::new(name, rows, columns, format)))
    }

    /// Matrices of so many rows, which lie in one tensor of this name, one after the other.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn parts<const N: usize>(
        &mut self,
        name: String,
        rows: [usize; N],
        columns: usize,
    ) -> Result<[WeightId; N], ModelError> {
        let format = self.format_of(&name, &[rows.iter().sum(), columns])?;
        let mut first_row = 0;
        Ok(rows.map(|rows| {
            let whole = WeightSpec::new(name.clone(), rows, columns, format);
            let part = WeightSpec { first_row, ..whole };
            first_row += rows;
            self.push(part)
        }))
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

    /// A vector, `[len]`; errors say `what` it is.
    ///
    /// # Errors
    /// As [`find`](Self::find), and for a quantised tensor.
    pub(super) fn vector(&mut self, name: String, len: usize, what: &str) -> Result<WeightId, ModelError> {
        let format = self.format_of(&name, &[len])?;
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
