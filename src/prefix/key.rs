//! What blocks are found by: a chain of digests over what they are bound to, who owns them, and their tokens.

use std::fmt;

/// Everything that the bytes of blocks depend on but their tokens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    digest: [u8; 32],
    name: String,
}

impl Binding {
    /// A binding of these parts, in order. `name` says to people what the blocks are of.
    pub fn new<'p>(name: impl Into<String>, parts: impl IntoIterator<Item = &'p str>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("yggc kept prefixes: binding");
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        Self { digest: *hasher.finalize().as_bytes(), name: name.into() }
    }

    pub(super) fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binding({}, {})", self.name, blake3::Hash::from_bytes(self.digest).to_hex())
    }
}

/// Whose prefixes they are: nobody is served what another kept, since the time of an answer would tell what others
/// asked. The default is of requests that name nobody.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner(Option<[u8; 32]>);

impl Owner {
    /// The owner that proves itself by a secret, of which a digest is kept.
    pub fn of_secret(secret: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("yggc kept prefixes: owner");
        Self(Some(*hasher.update(secret).finalize().as_bytes()))
    }
}

impl Owner {
    /// What tells owners apart, in characters of file names; `None` for nobody. It does not tell the secret.
    pub fn label(&self) -> Option<String> {
        self.0.map(|digest| blake3::Hash::from_bytes(digest).to_hex().to_string())
    }
}

impl fmt::Debug for Owner {
    /// Says whether there is one, and no more: logs are read by others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Owner(named)" } else { "Owner(nobody)" })
    }
}

/// A text of which blocks are kept, or looked for.
#[derive(Clone, Copy, Debug)]
pub struct KeptText<'t> {
    /// Whose it is.
    pub owner: Owner,
    /// What is before the first block, and decides the bytes of all.
    pub lead: &'t [u32],
    /// The tokens from the first block on.
    pub tokens: &'t [u32],
}

/// Names a block: a digest of binding, owner and all tokens up to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockKey(pub(super) [u8; 32]);

impl BlockKey {
    /// What the first block of a text follows.
    pub(super) fn root(binding: &Binding, owner: &Owner) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("yggc kept prefixes: root");
        hasher.update(binding.digest());
        if let Some(secret) = &owner.0 {
            hasher.update(secret);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The block of these tokens after this one.
    pub(super) fn after(&self, tokens: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        tokens.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
        Self(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockKey({})", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

/// A block's place in a text: the keys of it and of the one before it, its number and its tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link<'t> {
    pub(super) key: BlockKey,
    pub(super) parent: BlockKey,
    /// 0 of the first block of a text.
    pub(super) number: u32,
    pub(super) tokens: &'t [u32],
}

/// The whole blocks of a text, from the first on.
pub(super) fn chain<'t>(binding: &Binding, text: &KeptText<'t>, block_tokens: usize) -> Vec<Link<'t>> {
    let KeptText { owner, lead, tokens } = *text;
    let root = BlockKey::root(binding, &owner);
    let mut parent = if lead.is_empty() { root } else { root.after(lead) };
    let of_block = |(number, tokens)| {
        let key = parent.after(tokens);
        let link = Link { key, parent, number, tokens };
        parent = key;
        link
    };
    (0..).zip(tokens.chunks_exact(block_tokens)).map(of_block).collect()
}
