//! A tiny model, which can run for every input.

use std::sync::{Arc, OnceLock};

use yggc::{
    engine::{Activations, LoadOptions, Loaded, Tier},
    model::synthetic::SyntheticSpec,
};

/// Longest sequence.
pub(super) const CONTEXT: usize = 64;
/// Widest verification.
pub(super) const WIDEST: usize = 4;

/// The model, loaded once for one thread and portable kernels.
pub(super) fn loaded() -> &'static Arc<Loaded> {
    static LOADED: OnceLock<Arc<Loaded>> = OnceLock::new();
    LOADED.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("tiny.gguf");
        let spec = SyntheticSpec {
            layers: 1,
            width: 16,
            heads: 2,
            kv_heads: 1,
            head_dim: 8,
            feed_forward: 16,
            vocabulary: 300,
            context: CONTEXT,
            ..SyntheticSpec::default()
        };
        spec.write_gguf(&path).expect("the model is written");
        let options = LoadOptions {
            tier: Some(Tier::Portable),
            activations: Activations::Native,
            cache: yggc::engine::KvFormat::F16,
            threads: Some(1),
            widths: vec![2, WIDEST, 16],
            resident: None,
        };
        Arc::new(Loaded::open(&path, &options).expect("a generated model loads"))
    })
}
