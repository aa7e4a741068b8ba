//! Decides on which line of a document a field stands. Only asked when something is wrong.
//!
//! In: a document and a path such as `triggers[0].interval.every`. Out: the line of the deepest part of the path that
//! the document has.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use super::yaml_options;

/// Where the fields of a document are; none where it cannot be read.
pub(super) fn read(document: &str) -> Option<Node> {
    serde_saphyr::from_str_with_options(document, yaml_options()).ok()
}

/// The line of a field, from 1, counted from the document's first; none where nothing of the path is in it.
pub(super) fn line(document: &Node, path: &str) -> Option<u64> {
    let (mut node, mut line) = (document, None);
    for part in path.split(['.', '[']).filter(|part| !part.is_empty()) {
        let found = match &node.tree {
            Tree::Map(members) => members.iter().find(|(key, _)| is_same(key, part)).map(|(_, node)| node),
            Tree::List(items) => {
                let index = part.trim_end_matches(']').parse::<usize>().ok();
                index.and_then(|index| items.get(index))
            }
            Tree::Leaf => None,
        };
        let Some(found) = found else { break };
        line = Some(found.line);
        node = found;
    }
    line
}

/// Whether a key is the name of a field, in either spelling.
fn is_same(key: &str, field: &str) -> bool {
    let plain = |text: &str| text.replace('_', "").to_lowercase();
    key == field || plain(key) == plain(field)
}

/// A value and the line on which it begins.
#[derive(Debug)]
pub(super) struct Node {
    line: u64,
    tree: Tree,
}

#[derive(Debug)]
enum Tree {
    Map(Vec<(String, Node)>),
    List(Vec<Node>),
    Leaf,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Tree>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), tree: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry::<String, Node>()? {
            members.push(member);
        }
        Ok(Tree::Map(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Node>()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Tree::Leaf)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_part_that_exists_is_found() {
        let text = "---\nid: a\ntriggers:\n  - cron: '* * * * *'\n  - interval:\n      every: 5\nretry:\n  maxAttempts: 0\n";
        let line = |text: &str, path: &str| line(&read(text)?, path);
        assert_eq!(line(text, "id"), Some(2));
        assert_eq!(line(text, "triggers[0].cron"), Some(4));
        assert_eq!(line(text, "triggers[1].interval.every"), Some(6));
        assert_eq!(line(text, "triggers[1].interval.anchor"), Some(6));
        assert_eq!(line(text, "retry.max_attempts"), Some(8));
        assert_eq!(line(text, "triggers[7].cron"), Some(4));
        assert_eq!(line(text, "target"), None);
        assert_eq!(line("[", "a"), None);
    }
}
