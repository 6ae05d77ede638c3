//! A cursor over untrusted bytes: little-endian numbers and strings, every read checked against the end.

use std::fmt::Arguments;

use crate::model::ModelError;

/// Longest key or tensor name, in bytes; the format's own limit for keys.
const MAX_NAME_BYTES: usize = 65_535;

#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    pub(super) fn take(&mut self, count: u64, what: Arguments<'_>) -> Result<&'a [u8], ModelError> {
        if count > self.left() {
            return Err(ModelError::Truncated { what: what.to_string(), needed: count, left: self.left() });
        }
        let start = self.at;
        self.at += usize::try_from(count).expect("count is at most the bytes left");
        Ok(&self.bytes[start..self.at])
    }

    pub(super) fn array<const N: usize>(&mut self, what: Arguments<'_>) -> Result<[u8; N], ModelError> {
        let bytes = self.take(N as u64, what)?;
        Ok(bytes.try_into().expect("took N bytes"))
    }

    pub(super) fn u32(&mut self, what: Arguments<'_>) -> Result<u32, ModelError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: Arguments<'_>) -> Result<u64, ModelError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A count of items of at least `item_bytes` each; more than the bytes left could hold is an error, so the result
    /// is safe to reserve for.
    pub(super) fn count(&mut self, item_bytes: u64, what: Arguments<'_>) -> Result<usize, ModelError> {
        let count = self.u64(what)?;
        self.check_count(count, item_bytes, what)
    }

    pub(super) fn check_count(
        &self,
        count: u64,
        item_bytes: u64,
        what: Arguments<'_>,
    ) -> Result<usize, ModelError> {
        let most = self.left() / item_bytes;
        if count > most {
            let expected = format!("at most {most} items in the {} bytes left", self.left());
            return Err(ModelError::invalid(what, expected, count));
        }
        Ok(usize::try_from(count).expect("count is at most the bytes left"))
    }

    pub(super) fn string(&mut self, what: Arguments<'_>) -> Result<String, ModelError> {
        let len = self.u64(what)?;
        let bytes = self.take(len, what)?;
        let text = std::str::from_utf8(bytes).map_err(|e| {
            ModelError::invalid(what, "UTF-8", format!("an invalid byte at {} of {len}", e.valid_up_to()))
        })?;
        Ok(text.to_owned())
    }

    /// A key or tensor name: a string that is neither empty nor absurdly long.
    pub(super) fn name(&mut self, what: Arguments<'_>) -> Result<String, ModelError> {
        let name = self.string(what)?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            let expected = format!("a name of 1 to {MAX_NAME_BYTES} bytes");
            return Err(ModelError::invalid(what, expected, format!("{} bytes", name.len())));
        }
        Ok(name)
    }
}
