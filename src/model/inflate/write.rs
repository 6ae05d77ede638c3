//! Writes a model inflated.

use std::{collections::BTreeMap, fs, path::Path};

use super::{InflatedShape, sizes::Sizes, tensors::inflated};
use crate::model::{
    Container, Model, ModelError,
    gguf::{NewTensor, Value, parse, write_file},
    lend,
};

/// Keys that say how a file lies in parts and bytes, which is another way now.
const OF_THE_FILE: [&str; 4] = ["general.alignment", "split.count", "split.no", "split.tensors.count"];

impl Model {
    /// Writes the model inflated to `shape` as a GGUF file, under another name first, so that `path` is whole or as it
    /// was. Little memory is needed, whatever the shape.
    ///
    /// ```
    /// # use yggc::model::{Model, synthetic::SyntheticSpec};
    /// let folder = tempfile::tempdir()?;
    /// let (small, large) = (folder.path().join("small.gguf"), folder.path().join("large.gguf"));
    /// SyntheticSpec::default().write_gguf(&small)?;
    /// Model::open(&small)?.write_inflated(&"layers=5,width=256,mlp=640".parse()?, &large)?;
    /// assert_eq!(Model::open(&large)?.config.layers, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ModelError`] for a folder, another family, a shape below the model's or that its formats or heads do not fit,
    /// and for what keeps the file from being written.
    pub fn write_inflated(&self, shape: &InflatedShape, path: &Path) -> Result<(), ModelError> {
        if self.container == Container::Folder {
            return Err(ModelError::unsupported("inflation", "a model in a folder", "GGUF files"));
        }
        if let Some((name, _)) = self.tensors.iter().find(|(_, info)| info.scales.is_some()) {
            return Err(ModelError::unsupported(
                format_args!("inflation of tensor `{name}`"),
                "NVFP4",
                "formats whose scales lie with their codes",
            ));
        }
        let place = fs::canonicalize(path).ok();
        let own = self.files().iter().map(|file| fs::canonicalize(file.path()).ok());
        if place.is_some() && own.into_iter().any(|own| own == place) {
            return Err(ModelError::invalid(
                "the file to write",
                "another than the model's own",
                path.display(),
            ));
        }
        let sizes = Sizes::new(&self.config, shape)?;
        let tensors = inflated(&sizes, &self.tensors, &self.unused_tensors)?;
        let table: Vec<NewTensor> = tensors.iter().map(|tensor| tensor.new.clone()).collect();
        let metadata = self.metadata_of(&sizes)?;
        write_file(path, &metadata, &table, |number, out| {
            let tensor = &tensors[number];
            tensor.write(&sizes, lend(self.files(), tensor.source), out)
        })?;
        self.check_unchanged()
    }

    /// The file's metadata with other sizes.
    fn metadata_of(&self, sizes: &Sizes<'_>) -> Result<BTreeMap<String, Value>, ModelError> {
        let first = self.files().first().expect("a model has a file");
        let mut metadata = parse(first.bytes())?.metadata;
        for key in OF_THE_FILE {
            metadata.remove(key);
        }
        let large = &sizes.large;
        let count = |n: usize| Value::U32(u32::try_from(n).expect("sizes are checked"));
        for (key, value) in [
            ("attention.head_count", count(large.heads)),
            ("attention.head_count_kv", count(large.kv_heads)),
            ("attention.key_length", count(large.head_dim)),
            ("attention.layer_norm_rms_epsilon", Value::F32(large.rms_eps)),
            ("attention.value_length", count(large.head_dim)),
            ("block_count", count(large.layers)),
            ("embedding_length", count(large.hidden_size)),
            ("feed_forward_length", count(large.feed_forward)),
        ] {
            metadata.insert(format!("{}.{key}", large.family.name), value);
        }
        metadata.insert("general.name".to_owned(), Value::String(large.name.clone()));
        Ok(metadata)
    }
}
