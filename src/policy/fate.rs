//! What the tokens of a step tell of the nodes drafted for it, verified or not.
use crate::tree::TokenTree;

/// What a step tells of a drafted node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The text went through it.
    Accepted,
    /// The text went on otherwise, there or before.
    Rejected,
    /// The step ended above it.
    Unknown,
}

/// The fates of all nodes of `tree` by id, where the text went on with `said` behind the root, which is accepted.
pub fn fates(tree: &TokenTree, said: &[u32], fates: &mut Vec<Fate>) {
    fates.clear();
    for node in tree.nodes() {
        let Some(parent) = tree.parent(node) else {
            fates.push(Fate::Accepted);
            continue;
        };
        fates.push(match (fates[parent.index()], said.get(tree.depth(parent) as usize)) {
            (Fate::Accepted, Some(token)) if *token == tree.token(node) => Fate::Accepted,
            (Fate::Accepted, Some(_)) | (Fate::Rejected, _) => Fate::Rejected,
            (Fate::Accepted, None) | (Fate::Unknown, _) => Fate::Unknown,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{NodeId, Source};

    #[test]
    fn the_text_tells_of_every_node_but_those_behind_its_end() {
        // 1 > 2 > 3 and 1 > 4, 5 > 2.
        let mut tree = TokenTree::with_capacity(7);
        tree.reset(0);
        for (parent, token) in [(0, 1), (1, 2), (2, 3), (1, 4), (0, 5), (5, 2)] {
            let _added = tree.insert(NodeId::from_index(parent), token, 0.5, 0, Source::NONE);
        }
        let told = |said: &[u32]| {
            let mut all = vec![Fate::Unknown; 3];
            fates(&tree, said, &mut all);
            let sign = |fate: &Fate| match fate {
                Fate::Accepted => '+',
                Fate::Rejected => '-',
                Fate::Unknown => '?',
            };
            all.iter().map(sign).collect::<String>()
        };
        assert_eq!(told(&[1, 2, 3, 9]), "++++---");
        assert_eq!(told(&[1, 2]), "+++?---");
        assert_eq!(told(&[1]), "++???--");
        assert_eq!(told(&[7]), "+------");
        assert_eq!(told(&[]), "+??????");
    }
}
