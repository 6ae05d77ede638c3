//! The API key that requests must send.

/// A key, kept as its hash: comparing hashes takes the same time wherever keys differ and whatever their length.
#[derive(Clone)]
pub(crate) struct ApiKey(blake3::Hash);

impl ApiKey {
    /// The key without surrounding white space; `None` if nothing is left.
    pub(crate) fn new(key: &str) -> Option<Self> {
        let key = key.trim();
        (!key.is_empty()).then(|| Self(blake3::hash(key.as_bytes())))
    }

    /// Whether an `Authorization` header has it as its bearer token.
    pub(super) fn opens(&self, header: Option<&[u8]>) -> bool {
        let Some((scheme, token)) = header.and_then(|value| value.split_at_checked(BEARER.len())) else {
            return false;
        };
        // `blake3::Hash` compares in constant time.
        scheme.eq_ignore_ascii_case(BEARER) && blake3::hash(token.trim_ascii()) == self.0
    }
}

const BEARER: &[u8] = b"Bearer ";

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_to_itself_only() {
        let key = ApiKey::new(" sesame\n").unwrap();
        assert!(key.opens(Some(b"Bearer sesame")) && key.opens(Some(b"bearer sesame")));
        for header in
            [&b"Bearer sesam"[..], b"Bearer sesame2", b"Bearer ", b"Bearer", b"Basic sesame", b"\xff", b""]
        {
            assert!(!key.opens(Some(header)), "{header:?}");
        }
        assert!(!key.opens(None));
        assert!(ApiKey::new(" \n").is_none());
        assert!(!format!("{key:?}").contains("sesame"));
    }
}
