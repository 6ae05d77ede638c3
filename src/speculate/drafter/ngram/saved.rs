//! Dictionaries as bytes that a later process goes on from: a [sealed file](Seal), bound to the model.
//!
//! The payload: length and bytes of the model's digest, order, parts held (0 or 1), then of the forward and of the backward dictionary the
//! number of n-grams, and of each its tokens after their number; all numbers u32 little-endian.
use super::Ngram;
use crate::{
    plan::MOST_ORDER,
    speculate::SpeculateError,
    storage::{Seal, SealError},
};

const SEAL: Seal = Seal { magic: b"YGGRAMS\0", format: 1, most_payload_bytes: 1 << 32 };

impl Ngram {
    /// The dictionaries as bytes, for a drafter of the same settings over the model of this digest.
    ///
    /// # Panics
    /// If the digest is longer than 32 bits can say.
    pub fn save(&self, model_digest: &str) -> Vec<u8> {
        let mut payload = Vec::new();
        let count = |n: usize| u32::try_from(n).expect("lengths fit 32 bits").to_le_bytes();
        payload.extend(count(model_digest.len()));
        payload.extend(model_digest.as_bytes());
        payload.extend(self.settings.order.to_le_bytes());
        payload.extend(u32::from(self.settings.parts).to_le_bytes());
        for dictionary in [&self.dictionaries.forward, &self.dictionaries.backward] {
            payload.extend(count(dictionary.oldest_first().count()));
            for gram in dictionary.oldest_first() {
                payload.extend(count(gram.len()));
                payload.extend(gram.iter().flat_map(|token| token.to_le_bytes()));
            }
        }
        SEAL.close(&payload)
    }

    /// Adds what [`save`](Self::save) wrote to the dictionaries; nothing of it if it is refused.
    ///
    /// # Errors
    /// [`SpeculateError::SavedNgrams`] if the bytes are not a whole, unchanged save of this version, of a drafter of this order over
    /// the model of this digest, whose vocabulary has `vocabulary` tokens.
    pub fn restore(
        &mut self,
        bytes: &[u8],
        model_digest: &str,
        vocabulary: usize,
    ) -> Result<(), SpeculateError> {
        let mut reader = Reader(SEAL.open(bytes)?);
        let digest_bytes = reader.number()? as usize;
        let digest = String::from_utf8_lossy(reader.take(digest_bytes)?).into_owned();
        if digest != model_digest {
            return Err(refused(format!("those of the model {model_digest}"), format!("those of {digest}")));
        }
        let settings = [self.settings.order, u32::from(self.settings.parts)];
        let found = [reader.number()?, reader.number()?];
        if found != settings {
            return Err(refused(format!("order and parts {settings:?}"), format!("{found:?}")));
        }
        let grams = |reader: &mut Reader<'_>| {
            let count = reader.number()?;
            (0..count).map(|_| reader.gram(vocabulary)).collect::<Result<Vec<_>, _>>()
        };
        let (forward, backward) = (grams(&mut reader)?, grams(&mut reader)?);
        if !reader.0.is_empty() {
            return Err(refused("nothing after the n-grams".to_owned(), format!("{} bytes", reader.0.len())));
        }
        forward.iter().for_each(|gram| self.dictionaries.forward.record(gram));
        backward.iter().for_each(|gram| self.dictionaries.backward.record(gram));
        Ok(())
    }
}

/// What of the payload is not yet read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], SpeculateError> {
        let Some((taken, rest)) = self.0.split_at_checked(bytes) else {
            return Err(refused(format!("{bytes} more bytes"), self.0.len().to_string()));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, SpeculateError> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn gram(&mut self, vocabulary: usize) -> Result<Vec<u32>, SpeculateError> {
        let len = self.number()? as usize;
        if !(2..=MOST_ORDER).contains(&len) {
            return Err(refused(format!("n-grams of 2 to {MOST_ORDER} tokens"), len.to_string()));
        }
        let gram = (0..len).map(|_| self.number()).collect::<Result<Vec<_>, _>>()?;
        match gram.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => Err(refused(format!("tokens below {vocabulary}"), token.to_string())),
            None => Ok(gram),
        }
    }
}

fn refused(expected: String, found: String) -> SpeculateError {
    SealError { expected, found }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        plan::NgramSettings,
        speculate::{Drafter, StepShape},
    };

    const SHAPE: StepShape =
        StepShape { depth: 4, draft_width: 2, verify_width: 8, top_k: 0, draft_temperature: 1.0 };
    const SETTINGS: NgramSettings = NgramSettings { entries: 64, ..NgramSettings::DEFAULT };

    fn taught() -> Ngram {
        let mut drafter = Ngram::new(SETTINGS, &SHAPE).unwrap();
        let text: Vec<u32> = (0..400).map(|i| i * i % 37).collect();
        drafter.begin(&text);
        drafter
    }

    #[test]
    fn what_was_saved_goes_on_where_it_was() {
        let drafter = taught();
        let bytes = drafter.save("digest");
        let mut restored = Ngram::new(SETTINGS, &SHAPE).unwrap();
        restored.restore(&bytes, "digest", 37).unwrap();
        assert_eq!(restored.save("digest"), bytes);
        assert!(bytes.len() > 1_000);
        for token in 0..37 {
            let after =
                |d: &Ngram| d.dictionaries.forward.after(&[token]).map(<[u32]>::to_vec).collect::<Vec<_>>();
            assert_eq!(after(&restored), after(&drafter));
        }
    }

    #[test]
    fn other_models_settings_and_damage_are_refused_and_change_nothing() {
        let bytes = taught().save("digest");
        let mut drafter = Ngram::new(SETTINGS, &SHAPE).unwrap();
        let empty = drafter.save("digest");
        let mut check = |bytes: &[u8], digest, vocabulary, says: &str| {
            let error = drafter.restore(bytes, digest, vocabulary).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(drafter.save("digest"), empty);
        };
        check(&bytes, "other", 37, "the model other");
        check(&bytes, "digest", 36, "tokens below 36");
        check(&[], "digest", 37, "an empty file");
        check(&bytes[..bytes.len() - 1], "digest", 37, "bytes, found");
        check(&[&bytes[..], &[0]].concat(), "digest", 37, "bytes, found");
        for place in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            check(&damaged, "digest", 37, "saved n-grams: expected");
        }
        let other = NgramSettings { order: 5, ..SETTINGS };
        let error = Ngram::new(other, &SHAPE).unwrap().restore(&bytes, "digest", 37).unwrap_err().to_string();
        assert!(error.contains("order and parts [5, 1]"), "{error}");
    }
}
