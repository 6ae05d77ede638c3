//! API keys that requests must send, and the owner that a key makes its requests belong to.

use yggc::prefix::Owner;

/// A key, kept as its hash: comparing hashes takes the same time wherever keys differ and whatever their length.
#[derive(Clone)]
pub(crate) struct ApiKey(blake3::Hash);

impl ApiKey {
    /// The key without surrounding white space; `None` if nothing is left.
    pub(crate) fn new(key: &str) -> Option<Self> {
        let key = key.trim();
        (!key.is_empty()).then(|| Self(blake3::hash(key.as_bytes())))
    }

    /// The keys of a file: one a line, without empty lines and those that begin with `#`.
    pub(crate) fn of_lines(text: &str) -> impl Iterator<Item = Self> {
        text.lines().filter(|line| !line.trim_start().starts_with('#')).filter_map(Self::new)
    }

    /// The owner of a request whose `Authorization` header has one of `keys` as its bearer token.
    pub(super) fn owner(keys: &[Self], header: Option<&[u8]>) -> Option<Owner> {
        let (scheme, token) = header.and_then(|value| value.split_at_checked(BEARER.len()))?;
        if !scheme.eq_ignore_ascii_case(BEARER) {
            return None;
        }
        let token = token.trim_ascii();
        let given = blake3::hash(token);
        // `blake3::Hash` compares in constant time, and every key is compared: the time says neither which key is
        // right nor how much of one.
        let opens = keys.iter().fold(false, |opens, key| opens | (key.0 == given));
        opens.then(|| Owner::of_secret(token))
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
    fn keys_open_to_themselves_only() {
        let keys: Vec<ApiKey> =
            ApiKey::of_lines("# two\n\n sesame\r\n  # no key\nlinseed \nsesame").collect();
        assert_eq!(keys.len(), 3, "a key may be there twice");
        let owner = |header: &[u8]| ApiKey::owner(&keys, Some(header));
        let sesame = owner(b"Bearer sesame").unwrap();
        assert_eq!(owner(b"bearer  sesame "), Some(sesame));
        assert!(owner(b"Bearer linseed").is_some_and(|linseed| linseed != sesame));
        for header in [
            &b"Bearer sesam"[..],
            b"Bearer sesame2",
            b"Bearer sesame linseed",
            b"Bearer # no key",
            b"Bearer ",
            b"Bearer",
            b"Basic sesame",
            b"\xff",
            b"",
        ] {
            assert_eq!(owner(header), None, "{header:?}");
        }
        assert_eq!((ApiKey::owner(&keys, None), ApiKey::owner(&[], Some(b"Bearer sesame"))), (None, None));
        assert!(ApiKey::new(" \n").is_none() && ApiKey::of_lines("\n# none\n").next().is_none());
        assert!(!format!("{keys:?}").contains("sesame"));
    }
}
