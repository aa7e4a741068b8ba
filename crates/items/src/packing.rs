//! Decides whether bytes are gzip, and unpacks them a part at a time.
//!
//! In: bytes as they come. Out: a part of what they unpack to, no more than [`PART_BYTES`] of which is in memory.

use std::io::{self, BufRead, ErrorKind, Read};

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::bufread::MultiGzDecoder;

use crate::options::Packing;
use crate::problem::Problem;

/// How much is unpacked at once.
const PART_BYTES: usize = 64 * 1024;
/// What gzip begins with.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether there is something to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// There is.
    Bytes,
    /// Not before more bytes have come.
    Hungry,
    /// Nor will there be.
    End,
}

/// Bytes that have come, unpacked.
pub(crate) struct Unpacker {
    packing: Packed,
    /// What has been unpacked and not read.
    part: Vec<u8>,
    read: usize,
}

enum Packed {
    /// Not known: the first bytes have not come.
    Unknown(Packing, Input),
    Plain(Input),
    Gzip(Box<MultiGzDecoder<Input>>),
}

impl Unpacker {
    pub(crate) fn new(packing: Packing) -> Self {
        let input = Input { bytes: Bytes::new(), has_ended: false };
        Self { packing: Packed::Unknown(packing, input), part: Vec::new(), read: 0 }
    }

    fn input(&mut self) -> &mut Input {
        match &mut self.packing {
            Packed::Unknown(_, input) | Packed::Plain(input) => input,
            Packed::Gzip(decoder) => decoder.get_mut(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: Bytes) {
        let input = self.input();
        input.bytes = if input.bytes.is_empty() {
            bytes
        } else {
            // A reader that is hungry leaves a byte at most.
            let mut both = BytesMut::from(&input.bytes[..]);
            both.extend_from_slice(&bytes);
            both.freeze()
        };
    }

    pub(crate) fn end(&mut self) {
        self.input().has_ended = true;
    }

    /// Makes what can be read be there.
    pub(crate) fn fill(&mut self) -> Result<Filled, Problem> {
        if !self.is_decided()? {
            return Ok(Filled::Hungry);
        }
        match &mut self.packing {
            Packed::Unknown(..) => Ok(Filled::Hungry),
            Packed::Plain(input) if !input.bytes.is_empty() => Ok(Filled::Bytes),
            Packed::Plain(input) => Ok(if input.has_ended { Filled::End } else { Filled::Hungry }),
            Packed::Gzip(_) if self.read < self.part.len() => Ok(Filled::Bytes),
            Packed::Gzip(decoder) => {
                self.part.resize(PART_BYTES, 0);
                self.read = 0;
                let unpacked = decoder.read(&mut self.part);
                self.part.truncate(*unpacked.as_ref().unwrap_or(&0));
                match unpacked {
                    Ok(0) => Ok(Filled::End),
                    Ok(_) => Ok(Filled::Bytes),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Filled::Hungry),
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        Err(Problem::of_all("the gzip stream is cut off, expected its end"))
                    }
                    Err(error) => Err(Problem::of_all(format!("the gzip stream is broken: {error}"))),
                }
            }
        }
    }

    /// Whether it is known how the bytes are packed.
    fn is_decided(&mut self) -> Result<bool, Problem> {
        let Packed::Unknown(packing, input) = &mut self.packing else { return Ok(true) };
        let first = &input.bytes[..input.bytes.len().min(MAGIC.len())];
        let may_be = MAGIC.starts_with(first);
        if may_be && first.len() < MAGIC.len() && !input.has_ended {
            return Ok(false);
        }
        let is_gzip = may_be && first.len() == MAGIC.len();
        let gzip = match (*packing, is_gzip) {
            (Packing::Gzip, false) => {
                return Err(Problem::of_all(
                    "not gzip, expected what is said to be gzip to begin as that does",
                ));
            }
            (Packing::Plain, true) => {
                return Err(Problem::of_all("packed as gzip, which has to be said; expected text"));
            }
            (_, gzip) => gzip,
        };
        let input = Input { bytes: std::mem::take(&mut input.bytes), has_ended: input.has_ended };
        self.packing = match gzip {
            true => Packed::Gzip(Box::new(MultiGzDecoder::new(input))),
            false => Packed::Plain(input),
        };
        Ok(true)
    }

    /// What can be read.
    pub(crate) fn available(&self) -> &[u8] {
        match &self.packing {
            Packed::Unknown(..) => &[],
            Packed::Plain(input) => &input.bytes,
            Packed::Gzip(_) => &self.part[self.read..],
        }
    }

    /// So much of it has been read.
    pub(crate) fn consume(&mut self, count: usize) {
        match &mut self.packing {
            Packed::Unknown(..) => {}
            Packed::Plain(input) => input.bytes.advance(count),
            Packed::Gzip(_) => self.read += count,
        }
    }
}

/// Bytes as they have come: whoever reads past them is told to come again, unless nothing follows.
struct Input {
    bytes: Bytes,
    has_ended: bool,
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bytes.is_empty() && !self.has_ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(&self.bytes)
    }

    fn consume(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl Read for Input {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(to.len());
        to[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}
