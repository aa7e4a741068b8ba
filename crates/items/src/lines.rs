//! Decides where an item of NDJSON ends: with its line.

use crate::problem::{Problem, too_blank, too_large};
use crate::{BLANK_MAX_BYTES, RECORD_MAX_BYTES};

/// A byte order mark, which some editors write.
pub(crate) const MARK: &[u8] = b"\xef\xbb\xbf";

/// The line that is being read.
#[derive(Default)]
pub(crate) struct Lines {
    record: Vec<u8>,
    is_whole: bool,
    /// Lines that have ended.
    ended: u64,
    blank: usize,
}

impl Lines {
    /// Takes bytes up to the end of a line; says how many, and whether the line is whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Problem> {
        self.next_line();
        let end = memchr::memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        if self.record.len() + part.len() > RECORD_MAX_BYTES {
            return Err(too_large());
        }
        self.record.extend_from_slice(part);
        self.is_whole = end.is_some();
        self.check_blank()?;
        Ok((part.len() + usize::from(self.is_whole), self.is_whole))
    }

    fn next_line(&mut self) {
        if std::mem::take(&mut self.is_whole) {
            self.record.clear();
            self.ended += 1;
        }
    }

    fn check_blank(&mut self) -> Result<(), Problem> {
        if !self.is_whole {
            return Ok(());
        }
        self.blank = if self.is_blank() { self.blank + self.record.len() + 1 } else { 0 };
        if self.blank > BLANK_MAX_BYTES { Err(too_blank()) } else { Ok(()) }
    }

    /// Whether something is left at the end, whose line feed is missing.
    pub(crate) fn end(&mut self) -> bool {
        self.next_line();
        self.is_whole = !self.record.is_empty();
        self.is_whole
    }

    /// The line.
    pub(crate) fn record(&self) -> &[u8] {
        match self.ended {
            0 => self.record.strip_prefix(MARK).unwrap_or(&self.record),
            _ => &self.record,
        }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.record().trim_ascii().is_empty()
    }

    /// Its number, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.ended + 1
    }
}
