//! Weights of a graph: looked up in the tensor table by the names of the container, with checked shapes.

use crate::{
    ir::{WeightId, WeightSpec},
    model::{Container, ModelError, TensorTable},
};

/// How a container names the tensors of layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    pub(super) container: Container,
    /// What stands before a layer's index.
    pub(super) layers: &'static str,
}

impl Naming {
    /// The naming of models in `container`.
    pub(super) fn of(container: Container) -> Self {
        let layers = match container {
            Container::Gguf => "blk.",
            Container::Folder => "model.layers.",
        };
        Self { container, layers }
    }

    /// The weight that GGUF files and Hugging Face folders call by these names.
    pub(super) fn weight(self, gguf: &str, folder: &str) -> String {
        match self.container {
            Container::Gguf => format!("{gguf}.weight"),
            Container::Folder => format!("{folder}.weight"),
        }
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
        let Some(info) = self.tensors.get(&name) else {
            return Err(ModelError::MissingTensor { name, shape: shape.to_vec() });
        };
        if info.shape != shape {
            return Err(ModelError::invalid(
                format_args!("tensor `{name}`"),
                format_args!("shape {shape:?}"),
                format_args!("{:?}", info.shape),
            ));
        }
        let id = WeightId(u32::try_from(self.specs.len()).expect("layers are limited"));
        let (columns, rows) = (shape[shape.len() - 1], if shape.len() == 2 { shape[0] } else { 1 });
        self.specs.push(WeightSpec { name, rows, columns, format: info.format });
        Ok(id)
    }

    /// The gain of a norm, `[len]`.
    ///
    /// # Errors
    /// As [`find`](Self::find), and for a quantised tensor.
    pub(super) fn gain(&mut self, name: String, len: usize) -> Result<WeightId, ModelError> {
        let id = self.find(name, &[len])?;
        let spec = &self.specs[id.0 as usize];
        if spec.format.is_dense() {
            return Ok(id);
        }
        Err(ModelError::unsupported(
            format_args!("tensor `{}`", spec.name),
            format_args!("a norm gain in {:?}", spec.format),
            "F32, F16, BF16",
        ))
    }
}
