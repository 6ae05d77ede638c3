//! The byte-level alphabet, in which vocabularies spell the 256 bytes as printable characters.
//!
//! Printable ASCII and most of Latin-1 stand for themselves; the remaining 68 bytes are numbered upwards from U+0100
//! in byte order (GPT-2, `bytes_to_unicode` in <https://github.com/openai/gpt-2/blob/master/src/encoder.py>).

/// The first code point past the alphabet: 256 + the 68 bytes that do not stand for themselves.
const END: usize = 256 + 68;

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Byte by code point; `None` where the code point is not in the alphabet.
const BYTES: [Option<u8>; END] = {
    let mut bytes = [None; END];
    let (mut byte, mut next) = (0, 256);
    while byte < 256 {
        if stands_for_itself(byte as u8) {
            bytes[byte] = Some(byte as u8);
        } else {
            bytes[next] = Some(byte as u8);
            next += 1;
        }
        byte += 1;
    }
    bytes
};

/// The byte that `character` stands for, if it is in the alphabet.
fn byte_of(character: char) -> Option<u8> {
    BYTES.get(character as usize).copied().flatten()
}

/// The character that stands for `byte`, as a text.
pub(super) fn spelling(byte: u8) -> String {
    let place = BYTES.iter().position(|&spelled| spelled == Some(byte)).expect("every byte has a spelling");
    char::from_u32(place as u32).expect("the alphabet ends below the surrogates").to_string()
}

/// The bytes that `text` spells, or `None` if a character of it is not in the alphabet.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    text.chars().map(byte_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_spelling() {
        for byte in 0..=255 {
            assert_eq!(bytes_of(&spelling(byte)), Some(vec![byte]));
        }
        let mut bytes: Vec<u8> = BYTES.iter().copied().flatten().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn agrees_with_the_known_spellings() {
        assert_eq!(bytes_of("ĠhiĊ").as_deref(), Some(&b" hi\n"[..]));
        assert_eq!(bytes_of("Ã©").as_deref(), Some("é".as_bytes()));
        assert_eq!(byte_of('Ń'), Some(0xAD));
        assert_eq!(byte_of(' '), None);
        assert_eq!(byte_of('\u{144}'), None);
    }
}
