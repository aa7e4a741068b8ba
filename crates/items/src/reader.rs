//! Decides the way from bytes to items.

use bytes::Bytes;

use crate::array::Array;
use crate::csv::Csv;
use crate::item::Item;
use crate::lines::Lines;
use crate::options::{Format, Options};
use crate::packing::{Filled, Unpacker};
use crate::problem::{ItemsError, Problem, text, too_large};
use crate::{DATA_MAX_BYTES, ITEMS_MAX, member};

/// The most bytes that one call looks at without finding an item.
const STEP_BYTES: usize = 64 * 1024;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// An item.
    Item(Item),
    /// Nothing before more bytes are fed, or it is said that none follow.
    Hungry,
    /// Ask again: so much has been looked at that others may want their turn.
    Busy,
    /// All items have come, and there was at least one, where there must be.
    End,
}

/// Reads items out of bytes.
pub struct Reader {
    options: Options,
    unpacker: Unpacker,
    split: Split,
    count: u64,
    is_over: bool,
    failed: Option<ItemsError>,
}

enum Split {
    Lines(Lines),
    Array(Array),
    Csv(Csv),
}

impl Reader {
    /// Reads what `options` say.
    ///
    /// # Errors
    /// Options that exclude one another.
    pub fn new(options: Options) -> Result<Self, ItemsError> {
        options.check()?;
        let unpacker = Unpacker::new(options.packing);
        let split = match options.format {
            Format::Ndjson => Split::Lines(Lines::default()),
            Format::Json => Split::Array(Array::new()),
            Format::Csv => Split::Csv(Csv::new()),
        };
        Ok(Self { options, unpacker, split, count: 0, is_over: false, failed: None })
    }

    /// Takes the bytes that follow. To be called when [`Next::Hungry`] has been said: what comes before is kept as well.
    pub fn feed(&mut self, bytes: Bytes) {
        self.unpacker.feed(bytes);
    }

    /// Nothing follows.
    pub fn end(&mut self) {
        self.unpacker.end();
    }

    /// How many items have come.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What comes next.
    ///
    /// # Errors
    /// What is wrong, and where. There is nothing further behind it: the same is said again.
    pub fn advance(&mut self) -> Result<Next, ItemsError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.go_on().map_err(|problem| {
            let failed = self.placed(problem);
            self.failed = Some(failed.clone());
            failed
        })
    }

    fn go_on(&mut self) -> Result<Next, Problem> {
        let mut looked_at = 0;
        while looked_at < STEP_BYTES {
            if self.is_over {
                return Ok(Next::End);
            }
            let is_whole = match self.unpacker.fill()? {
                Filled::Hungry => return Ok(Next::Hungry),
                Filled::End => self.finish()?,
                Filled::Bytes => {
                    let bytes = self.unpacker.available();
                    let bytes = &bytes[..bytes.len().min(STEP_BYTES)];
                    let (read, is_whole) = self.split.take(bytes)?;
                    self.unpacker.consume(read);
                    looked_at += read;
                    is_whole
                }
            };
            if is_whole && let Some(item) = self.item()? {
                return Ok(Next::Item(item));
            }
            if self.is_over && self.count == 0 && !self.options.may_be_empty {
                return Err(Problem::of_all("there are no items, expected at least one"));
            }
        }
        Ok(Next::Busy)
    }

    /// Ends the reading; says whether one more item is whole by that.
    fn finish(&mut self) -> Result<bool, Problem> {
        let is_whole = match &mut self.split {
            Split::Lines(lines) => lines.end(),
            Split::Array(array) => array.end().map(|()| false)?,
            Split::Csv(csv) => csv.end()?,
        };
        self.is_over = true;
        Ok(is_whole)
    }

    /// The item that is whole; none where it is no item.
    fn item(&mut self) -> Result<Option<Item>, Problem> {
        let record = match &mut self.split {
            Split::Csv(csv) => {
                let Some(item) = csv.item(&self.options)? else { return Ok(None) };
                return self.counted(item).map(Some);
            }
            Split::Lines(lines) if lines.is_blank() => return Ok(None),
            Split::Lines(lines) => lines.record(),
            Split::Array(array) => array.record(),
        };
        let record = text(record)?.trim_matches([' ', '\t', '\r', '\n']);
        let is_bracket = self.count == 0 && self.options.format == Format::Ndjson && record == "[";
        if is_bracket {
            return Err(Problem::said(
                "not JSON by itself, expected a value a line; an array is the format JSON",
            ));
        }
        let item = member::read(record, &self.options)?;
        self.counted(item).map(Some)
    }

    fn counted(&mut self, item: Item) -> Result<Item, Problem> {
        if item.data.len() > DATA_MAX_BYTES {
            return Err(too_large());
        }
        if self.count == ITEMS_MAX {
            return Err(Problem::said(format!("too many items, expected at most {ITEMS_MAX}")));
        }
        self.count += 1;
        Ok(item)
    }

    /// A problem with the place of the item that was being read.
    fn placed(&self, problem: Problem) -> ItemsError {
        let place = match &self.split {
            _ if !problem.has_place => String::new(),
            Split::Lines(lines) => format!("line {}", lines.line()),
            Split::Csv(csv) => format!("line {}", csv.begins_on()),
            Split::Array(array) => format!("item {} (line {})", self.count + 1, array.begins_on()),
        };
        ItemsError { place, field: problem.field, said: problem.said }
    }
}

impl Split {
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Problem> {
        match self {
            Self::Lines(lines) => lines.take(bytes),
            Self::Array(array) => array.take(bytes),
            Self::Csv(csv) => csv.take(bytes),
        }
    }
}
