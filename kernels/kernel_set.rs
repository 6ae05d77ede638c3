//! The name of a set of kernels: a digest of their sources and of how they are compiled. Part of the build script, and
//! tested with the crate.

/// What is hashed of a source: its path below the crate, and its bytes.
pub(crate) type Source = (String, Vec<u8>);

/// The name of kernels of these `sources`, compiled with these `settings`: 16 hexadecimal digits. Everything is hashed
/// with its length, so moving bytes from one part to the next changes the name.
pub(crate) fn kernel_set(sources: &[Source], settings: &[String]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    };
    for (path, text) in sources {
        part(path.as_bytes());
        part(text);
    }
    settings.iter().for_each(|setting| part(setting.as_bytes()));
    hasher.finalize().to_hex()[..16].to_owned()
}
