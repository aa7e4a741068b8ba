//! Decides how many items travel together.

use crate::item::Item;

/// The bytes with which a batch is full: few enough to stay in flight, enough to be worth a message.
const FULL_BYTES: usize = 128 * 1024;
/// The items with which it is full.
const FULL_ITEMS: usize = 4_096;
/// What an item has beside its data and key where it travels; its units are in it.
const AROUND_BYTES: usize = 16;

/// Gathers items.
#[derive(Debug, Default)]
pub struct Batch {
    items: Vec<Item>,
    bytes: usize,
}

impl Batch {
    /// Adds an item; gives what goes now, if it is time. No batch has more than [`FULL_BYTES`] and one item.
    pub fn add(&mut self, item: Item) -> Option<Vec<Item>> {
        self.bytes += item.data.len() + item.key.len() + AROUND_BYTES;
        self.items.push(item);
        (self.bytes >= FULL_BYTES || self.items.len() >= FULL_ITEMS).then(|| self.take())
    }

    /// What is left, if anything is.
    pub fn rest(&mut self) -> Option<Vec<Item>> {
        (!self.items.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> Vec<Item> {
        self.bytes = 0;
        std::mem::take(&mut self.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(bytes: usize) -> Item {
        Item { data: "1".repeat(bytes), key: String::new(), units: 0 }
    }

    #[test]
    fn a_batch_ends_with_its_bytes_or_its_items() {
        let mut batch = Batch::default();
        assert_eq!(batch.rest(), None);
        assert_eq!(batch.add(item(FULL_BYTES - AROUND_BYTES - 1)), None);
        assert_eq!(batch.add(item(7)).map(|items| items.len()), Some(2));
        assert_eq!(batch.add(item(FULL_BYTES)).map(|items| items.len()), Some(1));
        let full = (1..).find_map(|_| batch.add(item(1)));
        assert_eq!(full.map(|items| items.len()), Some(FULL_ITEMS));
        assert_eq!(batch.add(item(1)), None);
        assert_eq!((batch.rest().map(|items| items.len()), batch.rest()), (Some(1), None));
    }
}
