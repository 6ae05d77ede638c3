//! Checks SentencePiece's table of characters (`precompiled_charsmap`) before the crate that applies it indexes with
//! it.
//!
//! The table is the length of a trie in bytes, the trie as a double array of 32-bit units, and the replacements, each
//! ended by a zero byte (`Normalizer::EncodePrecompiledCharsMap` in SentencePiece's `normalizer.cc`; the units in
//! Darts-clone's `darts.h`).

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::TextError;

/// The error of a damaged table.
pub(super) fn damaged(found: &str) -> TextError {
    TextError::Unsupported {
        part: "the tokenizer's precompiled_charsmap".into(),
        found: found.into(),
        supported: "a whole table of SentencePiece".into(),
    }
}

/// The bytes of a table as tokenizer.json spells them.
///
/// # Errors
/// [`TextError::Unsupported`] for anything but base64.
pub(super) fn decode_base64(text: &str) -> Result<Vec<u8>, TextError> {
    STANDARD.decode(text).map_err(|error| damaged(&format!("not base64: {error}")))
}

/// Checks that no text can lead out of the table.
///
/// # Errors
/// [`TextError::Unsupported`] for one that is damaged.
pub(super) fn check(table: &[u8]) -> Result<(), TextError> {
    let word = |at: usize| -> Option<usize> {
        let bytes = table.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let units = word(0).ok_or_else(|| damaged("shorter than its header"))? / 4;
    let replacements = units.checked_mul(4).and_then(|bytes| table.get(4 + bytes..));
    let replacements = replacements.ok_or_else(|| damaged("shorter than its trie"))?;
    let replacements = std::str::from_utf8(replacements).map_err(|_| damaged("not UTF-8 after its trie"))?;
    if units == 0 {
        return Err(damaged("without a trie"));
    }
    for at in 0..units {
        let unit = word(4 + 4 * at).expect("the trie is as long as it says");
        // A unit with the highest bit is a value: no byte of a text leads to it.
        if unit >> 31 == 1 {
            continue;
        }
        let children = at ^ ((unit >> 10) << ((unit & (1 << 9)) >> 6));
        if (children | 0xFF) >= units {
            return Err(damaged("a trie that leads out of itself"));
        }
        if unit >> 8 & 1 == 1 {
            let value = word(4 + 4 * children).expect("it is inside the trie") & (usize::MAX >> 33);
            if !replacements.is_char_boundary(value) {
                return Err(damaged("a trie that points outside its replacements"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(units: &[u32], replacements: &str) -> Vec<u8> {
        let bytes = u32::try_from(4 * units.len()).unwrap().to_le_bytes().into_iter();
        bytes.chain(units.iter().flat_map(|unit| unit.to_le_bytes())).chain(replacements.bytes()).collect()
    }

    #[test]
    fn a_table_must_lead_nowhere_outside() {
        let mut units = vec![0x8000_0000_u32; 256];
        units[0] = 0;
        assert_eq!(check(&table(&units, "a\0")), Ok(()));
        units[1] = (1 << 8) | (1 << 10);
        units[0] = 0x8000_0001;
        assert_eq!(check(&table(&units, "a\0")), Ok(()));
        units[0] = 0x8000_0009;
        let outside = [
            table(&units, "a\0"),
            table(&[0; 255], ""),
            table(&[1 << 30; 256], ""),
            table(&[], ""),
            vec![0, 0, 0],
            vec![9, 0, 0, 0],
            [table(&[0x8000_0000; 256], ""), vec![0xFF]].concat(),
        ];
        for bytes in outside {
            let error = check(&bytes).unwrap_err().to_string();
            assert!(error.contains("precompiled_charsmap"), "{error}");
        }
    }
}
