//! Decides where an element of a JSON array ends, by brackets and quotes alone.
//!
//! Not here: whether an element is JSON.

use crate::lines::MARK;
use crate::problem::{Problem, too_blank, too_large};
use crate::{BLANK_MAX_BYTES, RECORD_MAX_BYTES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the bracket that opens it.
    Start,
    /// Behind that bracket.
    Opened,
    /// In an element.
    Element,
    /// In a text of an element.
    Text,
    /// Behind a backslash in a text.
    Escape,
    /// Behind a comma.
    Comma,
    /// Behind the bracket that closes it.
    Closed,
}

/// The element that is being read.
pub(crate) struct Array {
    at: At,
    /// Brackets and braces that are open in the element.
    depth: usize,
    record: Vec<u8>,
    is_whole: bool,
    /// Bytes of a byte order mark that have been passed.
    mark: usize,
    line: u64,
    first_line: u64,
    blank: usize,
}

impl Array {
    pub(crate) fn new() -> Self {
        Self {
            at: At::Start,
            depth: 0,
            record: Vec::new(),
            is_whole: false,
            mark: 0,
            line: 1,
            first_line: 1,
            blank: 0,
        }
    }

    /// Takes bytes up to the end of an element; says how many, and whether the element is whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Problem> {
        if std::mem::take(&mut self.is_whole) {
            self.record.clear();
        }
        let mut read = 0;
        while let Some(byte) = bytes.get(read) {
            match self.at {
                At::Element => read += self.element(&bytes[read..])?,
                At::Text => read += self.text(&bytes[read..])?,
                At::Escape => {
                    self.keep(&[*byte])?;
                    self.at = At::Text;
                    read += 1;
                }
                At::Start | At::Opened | At::Comma | At::Closed => read += self.between(*byte)?,
            }
            if self.is_whole {
                break;
            }
        }
        Ok((read, self.is_whole))
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Problem> {
        if self.record.len() + part.len() > RECORD_MAX_BYTES {
            return Err(too_large());
        }
        self.record.extend_from_slice(part);
        Ok(())
    }

    /// In an element outside of texts: up to a quote, or to the end of the element, which is read, too.
    fn element(&mut self, bytes: &[u8]) -> Result<usize, Problem> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' => self.line += 1,
                b'"' => {
                    self.at = At::Text;
                    self.keep(&bytes[..=at])?;
                    return Ok(at + 1);
                }
                b'{' | b'[' => self.depth += 1,
                b',' | b']' if self.depth == 0 => {
                    self.keep(&bytes[..at])?;
                    self.at = if *byte == b',' { At::Comma } else { At::Closed };
                    self.is_whole = true;
                    return Ok(at + 1);
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        self.keep(bytes)?;
        Ok(bytes.len())
    }

    /// In a text: up to its end, or to a backslash.
    fn text(&mut self, bytes: &[u8]) -> Result<usize, Problem> {
        let Some(at) = memchr::memchr2(b'"', b'\\', bytes) else {
            self.keep(bytes)?;
            return Ok(bytes.len());
        };
        self.at = if bytes[at] == b'"' { At::Element } else { At::Escape };
        self.keep(&bytes[..=at])?;
        Ok(at + 1)
    }

    /// Outside of elements: how many bytes are passed.
    fn between(&mut self, byte: u8) -> Result<usize, Problem> {
        if byte.is_ascii_whitespace() {
            self.line += u64::from(byte == b'\n');
            self.blank += 1;
            return if self.blank > BLANK_MAX_BYTES { Err(too_blank()) } else { Ok(1) };
        }
        self.first_line = self.line;
        let is_mark = self.at == At::Start && self.blank == 0 && MARK.get(self.mark) == Some(&byte);
        match (self.at, byte) {
            (At::Start, b'[') if matches!(self.mark, 0 | 3) => self.at = At::Opened,
            (At::Start, _) if is_mark => self.mark += 1,
            (At::Start, b'{') => {
                return Err(Problem::said(
                    "expected [, with which an array begins; objects one a line are NDJSON",
                ));
            }
            (At::Start, _) => return Err(Problem::said("expected [, with which an array begins")),
            (At::Opened, b']') => self.at = At::Closed,
            (At::Comma, b']') => return Err(Problem::said("expected another element behind the comma")),
            (At::Opened | At::Comma, _) => {
                (self.at, self.depth, self.blank) = (At::Element, 0, 0);
                return Ok(0);
            }
            _ => return Err(Problem::said("something follows the array, expected nothing")),
        }
        Ok(1)
    }

    /// That the array is complete.
    pub(crate) fn end(&mut self) -> Result<(), Problem> {
        match self.at {
            At::Closed => Ok(()),
            // Nothing at all has no items, which is said elsewhere.
            At::Start => Ok(()),
            At::Element | At::Text | At::Escape => {
                Err(Problem::said("the array ends in the middle of an element, expected its rest and ]"))
            }
            At::Opened | At::Comma => Err(Problem::said("the array is not closed, expected ]")),
        }
    }

    pub(crate) fn record(&self) -> &[u8] {
        &self.record
    }

    /// The line on which the element begins.
    pub(crate) fn begins_on(&self) -> u64 {
        self.first_line
    }
}
