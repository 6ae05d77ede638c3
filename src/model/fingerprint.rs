//! What binds a plan to a model: a digest of headers, tensor table and sampled bytes, made without reading the file.

use std::fmt;

use super::{TensorInfo, TensorTable};

/// Bytes hashed at the start, middle and end of every tensor.
const SAMPLE_BYTES: usize = 1024;

/// Digest of a model: equal for equal files, different if a header, a tensor's place in the table or a sampled block
/// differs. A change of weights between the samples goes unnoticed: it guards against mix-ups, not against malice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelFingerprint([u8; 32]);

impl ModelFingerprint {
    /// The digest's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for ModelFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ModelFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelFingerprint({self})")
    }
}

/// A digest in the making. Segments carry their length, so that moving bytes between them changes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity(blake3::Hasher);

impl Identity {
    /// With one more segment: a header or a side file.
    pub(super) fn with(mut self, segment: &[u8]) -> Self {
        self.segment(segment);
        self
    }

    fn segment(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The digest, with the tensor table and samples of the bytes that `pieces` gives for each tensor.
    pub(super) fn finish<'a, Bytes: Iterator<Item = &'a [u8]>>(
        &self,
        tensors: &TensorTable,
        pieces: impl Fn(&TensorInfo) -> Bytes,
    ) -> ModelFingerprint {
        let mut identity = self.clone();
        for (name, info) in tensors {
            identity.segment(name.as_bytes());
            identity.segment(format!("{} {:?} {}", info.format, info.shape, info.bytes.len()).as_bytes());
            for bytes in pieces(info) {
                if bytes.len() <= 3 * SAMPLE_BYTES {
                    identity.segment(bytes);
                    continue;
                }
                for start in [0, (bytes.len() - SAMPLE_BYTES) / 2, bytes.len() - SAMPLE_BYTES] {
                    identity.segment(&bytes[start..start + SAMPLE_BYTES]);
                }
            }
        }
        ModelFingerprint(*identity.0.finalize().as_bytes())
    }
}
