//! What the events of a run carry of their own: items, put together into pages where they were submitted, and in lines of the
//! schedule's payload where each of its runs has them.
//!
//! In: items in the order of their indexes. Out: pages, whose texts are stored, and a digest of all that has come; out of a
//! page, the item of an index. Invariants: where a page ends hangs on its items alone, so that the same items make the same
//! pages and the same digests, however they came; a page has at most [`PAGE_BYTES`], or one item. Not here: what JSON is, where
//! pages are kept, how they are sealed.

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::model::{PAYLOAD_MAX_BYTES, Payload};

/// The most bytes of an item's data.
pub const ITEM_MAX_BYTES: usize = PAYLOAD_MAX_BYTES;
/// The most bytes of a key.
pub const KEY_MAX_BYTES: usize = 128;
/// The most tokens that an event takes.
pub const UNITS_MAX: u32 = 1_000;
/// The most items of a schedule.
pub const LISTED_MAX: usize = 1_000;
/// The most bytes of a page that holds more than one item.
const PAGE_BYTES: usize = 128 * 1024;

/// What one event carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Whose it is; may be empty.
    pub key: String,
    /// How many tokens its event takes, at most [`UNITS_MAX`]; 0 for as many as its schedule says.
    pub units: u32,
    /// JSON text in one line.
    pub data: String,
}

/// An item as it stands in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemLine<'a> {
    /// As [`Item::key`].
    pub key: &'a str,
    /// As [`Item::units`].
    pub units: u32,
    /// As [`Item::data`].
    pub data: &'a str,
}

impl<'a> ItemLine<'a> {
    /// Reads a line; none where it is no item's.
    fn of(line: &'a str) -> Option<Self> {
        let (key, rest) = line.split_once('\t')?;
        // No tab is in JSON in one line.
        let Some((units, data)) = rest.split_once('\t') else {
            return Some(Self { key, units: 0, data: rest });
        };
        Some(Self { key, units: units.parse().ok().filter(|units| *units <= UNITS_MAX)?, data })
    }
}

/// A digest of the pages of a run so far; all zeros before the first.
pub type ItemsDigest = [u8; 32];

/// Items of a run that follow one another, as they are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPage {
    /// The index of the first.
    pub first_index: u32,
    /// How many there are.
    pub events: u32,
    /// The hashes of their keys, ascending, four bytes each: where a key's is missing, no item has it.
    pub keys: Vec<u8>,
    /// A line an item: its key, a tab, its units and another tab where it says them, its data.
    pub body: String,
}

/// Puts items together into pages.
#[derive(Clone, Debug, Default)]
pub struct Pager {
    page: ItemPage,
    keys: BTreeSet<u32>,
    digest: ItemsDigest,
    units_max: u32,
}

impl Pager {
    /// Goes on after so many items, of which this is the digest.
    pub fn resume(items: u32, digest: ItemsDigest) -> Self {
        Self { page: ItemPage { first_index: items, ..ItemPage::default() }, digest, ..Self::default() }
    }

    /// How many items have come.
    pub fn items(&self) -> u32 {
        self.page.first_index + self.page.events
    }

    /// Of the pages that are whole.
    pub fn digest(&self) -> ItemsDigest {
        self.digest
    }

    /// The most [`Item::units`] of what has been pushed.
    pub fn units_max(&self) -> u32 {
        self.units_max
    }

    /// Takes the next item. The page before it, where that is whole.
    pub fn push(&mut self, item: &Item) -> Option<ItemPage> {
        let units_bytes = item.units.checked_ilog10().map_or(0, |tens| tens as usize + 2);
        let line_bytes = item.key.len() + item.data.len() + 2 + units_bytes;
        self.units_max = self.units_max.max(item.units);
        let whole = if self.page.events > 0 && self.page.body.len() + line_bytes > PAGE_BYTES {
            Some(self.cut())
        } else {
            None
        };
        if !item.key.is_empty() {
            self.keys.insert(key_hash(&item.key));
        }
        self.page.body.reserve(line_bytes);
        push_line(&mut self.page.body, item);
        self.page.events += 1;
        whole
    }

    /// The last page, where there is something in it.
    pub fn finish(&mut self) -> Option<ItemPage> {
        (self.page.events > 0).then(|| self.cut())
    }

    fn cut(&mut self) -> ItemPage {
        let next = ItemPage { first_index: self.items(), ..ItemPage::default() };
        let mut page = std::mem::replace(&mut self.page, next);
        page.keys = std::mem::take(&mut self.keys).into_iter().flat_map(u32::to_be_bytes).collect();
        self.digest = Sha256::new().chain_update(self.digest).chain_update(&page.body).finalize().into();
        page
    }
}

impl ItemPage {
    /// Whether some item may have this key.
    pub fn may_have(&self, key: &str) -> bool {
        let hash = key_hash(key).to_be_bytes();
        self.keys.as_chunks::<4>().0.binary_search(&hash).is_ok()
    }
}

fn push_line(body: &mut String, item: &Item) {
    body.push_str(&item.key);
    body.push('\t');
    if item.units > 0 {
        body.push_str(&item.units.to_string());
        body.push('\t');
    }
    body.push_str(&item.data);
    body.push('\n');
}

/// Items as the lines that [`ItemPage::body`] has.
pub fn to_lines<'i>(items: impl IntoIterator<Item = &'i Item>) -> String {
    let mut body = String::new();
    items.into_iter().for_each(|item| push_line(&mut body, item));
    body
}

/// The items of some lines; those that are no items are left out.
pub fn of_lines(body: &str) -> impl Iterator<Item = ItemLine<'_>> {
    body.lines().filter_map(ItemLine::of)
}

/// The most [`Item::units`] of some lines.
pub fn units_max(body: &str) -> u32 {
    of_lines(body).map(|item| item.units).max().unwrap_or_default()
}

impl Payload {
    /// With these items.
    #[must_use]
    pub fn with_items(self, items: impl Into<Arc<str>>) -> Self {
        let items = items.into();
        Self { units_max: units_max(&items), items, ..self }
    }
}

/// The first 32 bits of a key's SHA-256.
fn key_hash(key: &str) -> u32 {
    let digest = Sha256::digest(key.as_bytes());
    digest.iter().take(4).fold(0, |hash, byte| (hash << 8) | u32::from(*byte))
}

/// A page whose items are at hand.
#[derive(Clone, Debug)]
pub struct ReadPage {
    first_index: u32,
    body: String,
    /// Where each line ends.
    ends: Vec<u32>,
}

impl ReadPage {
    /// Reads a page.
    ///
    /// # Errors
    /// What does not fit.
    pub fn of(page: ItemPage) -> Result<Self, String> {
        let ItemPage { first_index, events, body, .. } = page;
        let line_ends = body.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let ends: Vec<u32> = line_ends.filter_map(|(at, _)| u32::try_from(at).ok()).collect();
        if ends.len() != events as usize || !body.ends_with('\n') {
            return Err(format!("{} lines, where {events} items are", ends.len()));
        }
        if let Some(at) = body.lines().position(|line| ItemLine::of(line).is_none()) {
            return Err(format!("line {} is no item's", at + 1));
        }
        Ok(Self { first_index, body, ends })
    }

    /// The index of its first item, and that after its last.
    pub fn range(&self) -> std::ops::Range<u32> {
        self.first_index..self.first_index + u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// How much memory it takes.
    pub fn bytes(&self) -> usize {
        self.body.len() + self.ends.len() * size_of::<u32>()
    }

    /// An item.
    pub fn item(&self, index: u32) -> Option<ItemLine<'_>> {
        let place = index.checked_sub(self.first_index)? as usize;
        let end = *self.ends.get(place)? as usize;
        let start = if place == 0 { 0 } else { *self.ends.get(place - 1)? as usize + 1 };
        ItemLine::of(self.body.get(start..end)?)
    }
}

/// JSON text in one line: without the white space between its parts. The text is well-formed.
pub fn in_one_line(json: &str) -> std::borrow::Cow<'_, str> {
    let is_free = |character: char| matches!(character, '\n' | '\r' | '\t' | ' ');
    let json = json.trim_matches(is_free);
    if !json.contains(['\n', '\r', '\t']) {
        return json.into();
    }
    let (mut line, mut in_text, mut escaped) = (String::with_capacity(json.len()), false, false);
    for character in json.chars() {
        if in_text || !is_free(character) {
            line.push(character);
        }
        (in_text, escaped) = match (in_text, character) {
            (true, '"') if !escaped => (false, false),
            (true, '\\') if !escaped => (true, true),
            (true, _) => (true, false),
            (false, character) => (character == '"', false),
        };
    }
    line.into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn items() -> impl Strategy<Value = Vec<Item>> {
        let length = prop_oneof![9 => 0_usize..60, 1 => 20_000_usize..150_000];
        let units = prop_oneof![Just(0), 1..=UNITS_MAX];
        let item = ("[a-z]{0,3}", units, length);
        let item = item.prop_map(|(key, units, length)| Item {
            key,
            units,
            data: format!("\"{}\"", "x".repeat(length)),
        });
        prop::collection::vec(item, 0..60)
    }

    fn paged(pager: &mut Pager, items: &[Item]) -> Vec<ItemPage> {
        let mut pages: Vec<ItemPage> = items.iter().filter_map(|item| pager.push(item)).collect();
        pages.extend(pager.finish());
        pages
    }

    proptest! {
        #[test]
        fn every_item_is_found_again(items in items()) {
            let mut pager = Pager::default();
            let pages = paged(&mut pager, &items);
            prop_assert_eq!(pager.items() as usize, items.len());
            let lines = to_lines(&items);
            prop_assert_eq!(pager.units_max(), units_max(&lines));
            prop_assert_eq!(pages.iter().map(|page| page.body.as_str()).collect::<String>(), lines);
            let mut next = 0;
            for page in pages {
                prop_assert!(page.events == 1 || page.body.len() <= PAGE_BYTES);
                prop_assert_eq!(page.first_index, next);
                for item in &items[next as usize..(next + page.events) as usize] {
                    prop_assert!(item.key.is_empty() || page.may_have(&item.key));
                }
                prop_assert!(!page.may_have("ABSENT"));
                let read = ReadPage::of(page).unwrap();
                for index in read.range() {
                    let Item { key, units, data } = &items[index as usize];
                    prop_assert_eq!(read.item(index), Some(ItemLine { key, units: *units, data }));
                }
                prop_assert_eq!(read.item(read.range().end), None);
                next = read.range().end;
            }
            prop_assert_eq!(next as usize, items.len());
        }

        #[test]
        fn what_goes_on_after_a_page_makes_the_same_pages(items in items(), cut in 0_usize..8) {
            let mut whole = Pager::default();
            let pages = paged(&mut whole, &items);
            let (mut pager, mut digest) = (Pager::default(), ItemsDigest::default());
            let mut first: Vec<ItemPage> = Vec::new();
            for item in &items {
                if first.len() == cut.min(pages.len().saturating_sub(1)) {
                    break;
                }
                if let Some(page) = pager.push(item) {
                    digest = pager.digest();
                    first.push(page);
                }
            }
            let come = first.last().map_or(0, |page| page.first_index + page.events);
            let mut rest = Pager::resume(come, digest);
            first.extend(paged(&mut rest, &items[come as usize..]));
            prop_assert_eq!((first, rest.digest()), (pages, whole.digest()));
        }

        #[test]
        fn a_line_says_the_same(value in "[a-z\\\\\"]{0,12}", space in "[ \n\t\r]{0,3}") {
            let text = serde_json::to_string(&value).unwrap();
            let json = format!("{space}{{{space}{text}{space}:{space}[1{space},{space}{text}]}}{space}");
            let line = in_one_line(&json);
            prop_assert!(!line.contains(['\n', '\r', '\t']));
            let [before, after] = [&*json, &*line].map(serde_json::from_str::<serde_json::Value>);
            prop_assert_eq!(before.unwrap(), after.unwrap());
        }
    }

    #[test]
    fn a_page_that_was_damaged_is_told() {
        let mut pager = Pager::default();
        let second = Item { key: "k".to_owned(), units: 12, data: "7".to_owned() };
        let page = paged(&mut pager, &[Item::default(), second]);
        let [page] = &page[..] else { panic!("{page:?}") };
        assert_eq!(page.body, "\t\nk\t12\t7\n");
        let damaged = |body: &str| ReadPage::of(ItemPage { body: body.to_owned(), ..page.clone() });
        assert_eq!(damaged("\t\n").unwrap_err(), "1 lines, where 2 items are");
        assert_eq!(damaged("\t\nk7\n").unwrap_err(), "line 2 is no item's");
        assert_eq!(damaged("\t\nk\tx\t7\n").unwrap_err(), "line 2 is no item's");
        assert_eq!(damaged("\t\nk\t1001\t7\n").unwrap_err(), "line 2 is no item's");
        assert!(damaged("\t\nk\t7").is_err() && damaged("\t\nk\t7\n").is_ok());
    }
}
