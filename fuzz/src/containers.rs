//! Model containers: GGUF files, and folders in the form that `yggc::model::check_bytes` documents.

/// Reads a model but for its weights.
pub fn check(bytes: &[u8]) -> bool {
    let Ok(config) = yggc::model::check_bytes(bytes) else { return false };
    assert!(config.heads.is_multiple_of(config.kv_heads) && config.head_dim.is_multiple_of(2), "{config:?}");
    true
}
