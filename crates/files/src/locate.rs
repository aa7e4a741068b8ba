//! Decides on which line of a document a field stands. Only asked when something is wrong.
//!
//! In: a document and a path such as `triggers[0].interval.every`. Out: the line of the deepest part of the path that
//! the document has; the path as the document spells it.

use std::collections::HashSet;
use std::fmt;
use std::sync::LazyLock;

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
    for part in parts(path) {
        let Some((_, found)) = step(node, part) else { break };
        line = Some(found.line);
        node = found;
    }
    line
}

/// `field` of what is at `path`, as the document spells it; what is not in it, as it spells most.
pub(super) fn written(document: &Node, path: &str, field: &str, is_snake: bool) -> String {
    let mut node = Some(document);
    for part in parts(path) {
        node = node.and_then(|node| step(node, part)).map(|(_, found)| found);
    }
    let mut text = String::new();
    // "triggers[0].cron: minute": which part of a value is no field.
    let (field, rest) = field.split_once(": ").map_or((field, None), |(field, rest)| (field, Some(rest)));
    for part in parts(field) {
        let found = node.and_then(|node| step(node, part));
        if let Some(index) = part.strip_suffix(']') {
            text.push_str(&format!("[{index}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            match &found {
                Some((key, _)) => text.push_str(key),
                None if is_snake => text.push_str(part),
                None => text.push_str(&camel(part)),
            }
        }
        node = found.map(|(_, node)| node);
    }
    rest.map_or(text.clone(), |rest| format!("{text}: {rest}"))
}

/// Whether most names of the document whose spelling can be seen have `_` in them.
pub(super) fn is_snake(document: &Node) -> bool {
    let (snake, camel) = spellings(document);
    snake > camel
}

/// How many keys have `_` between letters, and how many a capital letter within. Free contents do not count.
fn spellings(node: &Node) -> (usize, usize) {
    let (mut snake, mut camel) = (0, 0);
    let mut add = |(one, other): (usize, usize)| {
        snake += one;
        camel += other;
    };
    match &node.tree {
        Tree::Map(members) => {
            for (key, member) in members {
                let lower = key.starts_with(|c: char| c.is_ascii_lowercase());
                add((
                    usize::from(lower && key.contains('_')),
                    usize::from(lower && key.contains(|c: char| c.is_ascii_uppercase())),
                ));
                if !["payload", "data", "labels", "headers"].contains(&key.as_str()) {
                    add(spellings(member));
                }
            }
        }
        Tree::List(items) => items.iter().map(spellings).for_each(add),
        Tree::Leaf => {}
    }
    (snake, camel)
}

/// `max_in_flight` to `maxInFlight`.
fn camel(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut upper = false;
    for character in name.chars() {
        if character == '_' && !camel.is_empty() {
            upper = true;
        } else if upper {
            camel.push(character.to_ascii_uppercase());
            upper = false;
        } else {
            camel.push(character);
        }
    }
    camel
}

/// The names of all fields whose spelling can be seen.
static FIELDS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let messages = tollgate_proto::descriptor_pool().all_messages();
    let names = messages
        .flat_map(|message| message.fields().map(|field| field.name().to_owned()).collect::<Vec<_>>());
    names.filter(|name| name.contains('_')).collect()
});

/// A text with the names of fields in it spelled as JSON does; what stands in quotes stays.
pub(super) fn camel_text(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    for (at, part) in text.split('"').enumerate() {
        if at > 0 {
            spelled.push('"');
        }
        if at % 2 == 1 {
            spelled.push_str(part);
            continue;
        }
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let mut rest = part;
        while let Some(start) = rest.find(is_word) {
            let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |length| start + length);
            spelled.push_str(&rest[..start]);
            let word = &rest[start..end];
            if FIELDS.contains(word) {
                spelled.push_str(&camel(word))
            } else {
                spelled.push_str(word)
            }
            rest = &rest[end..];
        }
        spelled.push_str(rest);
    }
    spelled
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    let path = path.split_once(": ").map_or(path, |(path, _)| path);
    path.split(['.', '[']).filter(|part| !part.is_empty())
}

/// What a part of a path leads to, and how it is spelled.
fn step<'n>(node: &'n Node, part: &str) -> Option<(&'n str, &'n Node)> {
    match &node.tree {
        Tree::Map(members) => {
            members.iter().find(|(key, _)| is_same(key, part)).map(|(key, node)| (key.as_str(), node))
        }
        Tree::List(items) => {
            let index = part.trim_end_matches(']').parse::<usize>().ok();
            index.and_then(|index| items.get(index)).map(|node| ("", node))
        }
        Tree::Leaf => None,
    }
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
    #![expect(clippy::unwrap_used, reason = "tests")]

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
        assert_eq!(line(text, "triggers[1].interval.every: more"), Some(6));
        assert_eq!(line("[", "a"), None);
    }

    #[test]
    fn paths_and_texts_are_spelled_as_the_document_is() {
        let camel = read("policy: p\ncatchUp: {mode: x}\nretry: {}\npayload: {a_b: 1, c_d: 2}\nitems: [{data: {e_f: 1, g_h: 2, i_j: 3}}]\n").unwrap();
        let snake = read("time_zone: UTC\npolicies:\n  - maxInFlight: 3\n    token_ttl: 1\n").unwrap();
        assert_eq!(written(&camel, "", "catch_up.mode", is_snake(&camel)), "catchUp.mode");
        assert_eq!(written(&camel, "", "retry.max_attempts", is_snake(&camel)), "retry.maxAttempts");
        assert_eq!(
            written(&camel, "", "triggers[0].cron: minute", is_snake(&camel)),
            "triggers[0].cron: minute"
        );
        assert_eq!(written(&snake, "policies[0]", "max_in_flight", is_snake(&snake)), "maxInFlight");
        assert_eq!(written(&snake, "policies[0]", "rate_per_second", is_snake(&snake)), "rate_per_second");
        assert_eq!(
            camel_text("a limit: max_in_flight, \"not_this\" or rate_per_second"),
            "a limit: maxInFlight, \"not_this\" or ratePerSecond"
        );
        assert_eq!(
            camel_text("whsec_ and base64, FIRST_HEARTBEAT, namespaces/a_b"),
            "whsec_ and base64, FIRST_HEARTBEAT, namespaces/a_b"
        );
    }
}
