//! Lists of ascending tokens in plan files: the gaps between them in LEB128, most of them a byte.
//!
//! For fields of type `Option<Vec<u32>>`: `#[serde(with = "token_list")]`. Formats that people read keep the numbers.
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

const PAYLOAD_BITS: u32 = 7;
const GOES_ON: u8 = 1 << PAYLOAD_BITS;

pub(super) fn serialize<S: Serializer>(tokens: &Option<Vec<u32>>, to: S) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() {
        return tokens.serialize(to);
    }
    let packed = tokens.as_deref().map(|tokens| pack(tokens).ok_or("tokens that do not ascend"));
    packed.transpose().map_err(ser::Error::custom)?.serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u32>>, D::Error> {
    if from.is_human_readable() {
        return Deserialize::deserialize(from);
    }
    let packed: Option<Vec<u8>> = Deserialize::deserialize(from)?;
    packed.as_deref().map(unpack).transpose().map_err(de::Error::custom)
}

/// The first token, then what each adds to the one before; `None` unless they ascend.
fn pack(tokens: &[u32]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(tokens.len());
    let mut before = None;
    for &token in tokens {
        let mut gap = match before {
            None => token,
            Some(before) => token.checked_sub(before).filter(|gap| *gap > 0)?,
        };
        before = Some(token);
        loop {
            let low = gap as u8 & (GOES_ON - 1);
            gap >>= PAYLOAD_BITS;
            if gap == 0 {
                bytes.push(low);
                break;
            }
            bytes.push(low | GOES_ON);
        }
    }
    Some(bytes)
}

fn unpack(bytes: &[u8]) -> Result<Vec<u32>, &'static str> {
    const TOO_LARGE: &str = "a list of tokens with a number beyond 32 bits";
    let mut tokens = Vec::with_capacity(bytes.len());
    let mut before = None;
    let (mut gap, mut shift) = (0_u64, 0);
    for &byte in bytes {
        gap |= u64::from(byte & (GOES_ON - 1)) << shift;
        shift += PAYLOAD_BITS;
        let gap_so_far = u32::try_from(gap).map_err(|_| TOO_LARGE)?;
        if byte & GOES_ON != 0 {
            if shift > u32::BITS {
                return Err(TOO_LARGE);
            }
            continue;
        }
        let token = match before {
            None => gap_so_far,
            Some(_) if gap_so_far == 0 => return Err("a list of tokens with one twice"),
            Some(before) => gap_so_far.checked_add(before).ok_or(TOO_LARGE)?,
        };
        tokens.push(token);
        before = Some(token);
        (gap, shift) = (0, 0);
    }
    if shift > 0 { Err("a list of tokens that ends inside a number") } else { Ok(tokens) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{pack, unpack};

    proptest! {
        #[test]
        fn lists_come_back(tokens in prop::collection::btree_set(any::<u32>(), 0..40)) {
            let tokens: Vec<u32> = tokens.into_iter().collect();
            prop_assert_eq!(unpack(&pack(&tokens).expect("they ascend")), Ok(tokens));
        }

        #[test]
        fn what_is_read_would_be_written_or_is_longer(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(tokens) = unpack(&bytes) {
                let written = pack(&tokens).expect("what is read ascends");
                prop_assert!(written.len() <= bytes.len());
                prop_assert_eq!(unpack(&written), Ok(tokens));
            }
        }
    }

    #[test]
    fn neighbours_take_a_byte() {
        assert_eq!(pack(&[300, 301, 428]), Some(vec![0xac, 0x02, 1, 127]));
    }

    #[test]
    fn what_does_not_ascend_is_not_packed() {
        assert_eq!([pack(&[2, 2]), pack(&[3, 1])], [None, None]);
    }

    #[test]
    fn damage_is_refused() {
        let large = "a list of tokens with a number beyond 32 bits";
        assert_eq!(unpack(&[0, 0]), Err("a list of tokens with one twice"));
        assert_eq!(unpack(&[3, 0x80]), Err("a list of tokens that ends inside a number"));
        assert_eq!(unpack(&[0xff, 0xff, 0xff, 0xff, 0x10]), Err(large));
        assert_eq!(unpack(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]), Err(large));
        assert_eq!(unpack(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]), Err(large));
    }
}
