//! Files of `--skip-state` and `--ngram-state`, which `--drafter-state` replaced. Read for one version, as the two
//! options are accepted: both go together.

use super::{DrafterState, NgramState};
use crate::{
    plan::ModelFingerprint,
    storage::{Seal, SealError},
};

const SKIP: Seal = Seal { magic: b"YGGSKIP\0", format: 1, most_payload_bytes: 1 << 20 };
const NGRAMS: Seal = Seal { magic: b"YGGRAMS\0", format: 1, most_payload_bytes: 1 << 32 };

type Decoded = (ModelFingerprint, Vec<DrafterState>);

/// The state in a former file; `None` if the bytes do not begin as one.
pub(super) fn decode(bytes: &[u8]) -> Option<Result<Decoded, SealError>> {
    if bytes.starts_with(SKIP.magic) {
        let decoded = SKIP.decode(bytes);
        return Some(decoded.map(|(model, state)| (model, vec![DrafterState::Swift(state)])));
    }
    let refused = || SealError::new("n-grams of version 0.1", "another payload");
    let decoded = || NGRAMS.open(bytes).and_then(|payload| ngrams(payload).ok_or_else(refused));
    bytes.starts_with(NGRAMS.magic).then(decoded)
}

/// Length and bytes of the model's digest, order, parts (0 or 1), then of the forward and of the backward dictionary
/// the number of n-grams, and of each its tokens after their number; all numbers u32 little-endian.
fn ngrams(payload: &[u8]) -> Option<Decoded> {
    let (digest_bytes, rest) = payload.split_first_chunk()?;
    let (digest, rest) = rest.split_at_checked(u32::from_le_bytes(*digest_bytes) as usize)?;
    let digest = String::from_utf8_lossy(digest).into_owned();
    let mut words = rest.chunks(4).map_while(|word| Some(u32::from_le_bytes(word.try_into().ok()?)));
    let (order, parts) = (words.next()?, words.next()? != 0);
    let mut grams = || {
        let count = words.next()?;
        let gram = |_| (0..words.next()?).map(|_| words.next()).collect::<Option<Vec<u32>>>();
        (0..count).map(gram).collect::<Option<Vec<_>>>()
    };
    let (forward, backward) = (grams()?, grams()?);
    let is_whole = words.next().is_none() && rest.len().is_multiple_of(4);
    let model = ModelFingerprint { name: "of the n-grams".to_owned(), digest };
    is_whole.then(|| (model, vec![DrafterState::Ngram(NgramState { order, parts, forward, backward })]))
}
