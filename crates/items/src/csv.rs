//! Decides where a row of CSV ends, and what it is as JSON (RFC 4180: commas, quotes doubled within quotes; a row ends with
//! LF, CR LF or CR; an empty line is no row).
//!
//! Stricter than most readers: what is quoted by half is an error and no guess, because a guess would become data.

use crate::item::Item;
use crate::lines::MARK;
use crate::options::Options;
use crate::problem::{Problem, shortened, text, too_blank, too_large};
use crate::{BLANK_MAX_BYTES, RECORD_MAX_BYTES, member};

/// The most columns.
const COLUMNS_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before a row.
    Start,
    /// Before a field.
    Field,
    /// In a field without quotes.
    Bare,
    /// In a quoted field.
    Quoted,
    /// Behind a quote in a quoted field: its end, or one half of a quote that belongs to it.
    Quote,
}

/// The row that is being read, and the header.
pub(crate) struct Csv {
    at: At,
    /// The fields one after the other, and where each ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    is_whole: bool,
    /// Whether a line feed belongs to the carriage return before it.
    after_return: bool,
    line: u64,
    first_line: u64,
    /// Where the latest quoted field begins.
    quote_line: u64,
    blank: usize,
    header: Option<Header>,
}

struct Header {
    /// Each column's name as JSON, with the colon behind it.
    names: Vec<String>,
    /// The key's column.
    key: Option<usize>,
    /// The column of the units.
    units: Option<usize>,
}

impl Csv {
    pub(crate) fn new() -> Self {
        Self {
            at: At::Start,
            fields: Vec::new(),
            ends: Vec::new(),
            is_whole: false,
            after_return: false,
            line: 1,
            first_line: 1,
            quote_line: 1,
            blank: 0,
            header: None,
        }
    }

    /// Takes bytes up to the end of a row; says how many, and whether the row is whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Problem> {
        if std::mem::take(&mut self.is_whole) {
            self.fields.clear();
            self.ends.clear();
        }
        let mut read = 0;
        while let Some(byte) = bytes.get(read) {
            match self.at {
                At::Start => read += self.start(*byte)?,
                At::Field if *byte == b'"' => {
                    (self.at, self.quote_line) = (At::Quoted, self.line);
                    read += 1;
                }
                At::Field => read += self.delimiter(*byte)?.unwrap_or_default(),
                At::Bare => read += self.bare(&bytes[read..])?,
                At::Quoted => read += self.quoted(&bytes[read..])?,
                At::Quote if *byte == b'"' => {
                    self.keep(b"\"")?;
                    self.at = At::Quoted;
                    read += 1;
                }
                At::Quote => match self.delimiter(*byte)? {
                    Some(passed) => read += passed,
                    None => {
                        return Err(Problem::said(
                            "something follows a closing quote, expected a comma or the end of the row; \
                             a quote within quotes is written twice",
                        ));
                    }
                },
            }
            if self.is_whole {
                break;
            }
        }
        Ok((read, self.is_whole))
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Problem> {
        if self.fields.len() + part.len() > RECORD_MAX_BYTES {
            return Err(too_large());
        }
        self.fields.extend_from_slice(part);
        Ok(())
    }

    /// Before a row: how many bytes are passed.
    fn start(&mut self, byte: u8) -> Result<usize, Problem> {
        if byte == b'\n' && std::mem::take(&mut self.after_return) {
            return Ok(1);
        }
        self.after_return = byte == b'\r';
        if matches!(byte, b'\n' | b'\r') {
            self.line += 1;
            self.blank += 1;
            return if self.blank > BLANK_MAX_BYTES { Err(too_blank()) } else { Ok(1) };
        }
        (self.at, self.first_line, self.blank) = (At::Field, self.line, 0);
        Ok(0)
    }

    /// Ends a field, or the row, where a byte does that; else the field goes on without quotes, or what follows is for the
    /// caller to judge.
    fn delimiter(&mut self, byte: u8) -> Result<Option<usize>, Problem> {
        match byte {
            b',' => self.end_field()?,
            b'\n' | b'\r' => {
                self.end_field()?;
                self.line += 1;
                self.after_return = byte == b'\r';
                self.end_row();
            }
            _ if self.at == At::Field => {
                self.at = At::Bare;
                return Ok(None);
            }
            _ => return Ok(None),
        }
        Ok(Some(1))
    }

    fn bare(&mut self, bytes: &[u8]) -> Result<usize, Problem> {
        let ends = |byte: &u8| matches!(byte, b',' | b'\n' | b'\r' | b'"');
        let Some(at) = bytes.iter().position(ends) else {
            self.keep(bytes)?;
            return Ok(bytes.len());
        };
        self.keep(&bytes[..at])?;
        if bytes[at] == b'"' && self.is_mark_only() {
            (self.at, self.quote_line) = (At::Quoted, self.line);
            return Ok(at + 1);
        }
        match self.delimiter(bytes[at])? {
            Some(passed) => Ok(at + passed),
            None => Err(Problem::said(
                "a quote in a field that does not begin with one, expected the whole field in quotes, and this one twice",
            )),
        }
    }

    /// Whether all that has been read is a byte order mark, behind which the first name may be quoted.
    fn is_mark_only(&self) -> bool {
        self.header.is_none() && self.ends.is_empty() && self.fields == MARK
    }

    fn quoted(&mut self, bytes: &[u8]) -> Result<usize, Problem> {
        let end = memchr::memchr(b'"', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        self.line += memchr::memchr_iter(b'\n', part).count() as u64;
        self.keep(part)?;
        if end.is_some() {
            self.at = At::Quote;
        }
        Ok(part.len() + usize::from(end.is_some()))
    }

    fn end_field(&mut self) -> Result<(), Problem> {
        if self.ends.len() == COLUMNS_MAX {
            return Err(Problem::said(format!("too many columns, expected at most {COLUMNS_MAX}")));
        }
        self.ends.push(self.fields.len());
        self.at = At::Field;
        Ok(())
    }

    fn end_row(&mut self) {
        self.at = At::Start;
        self.is_whole = true;
    }

    /// Whether a row is left at the end, whose line feed is missing.
    pub(crate) fn end(&mut self) -> Result<bool, Problem> {
        match self.at {
            At::Start => Ok(false),
            At::Quoted => {
                let line = self.quote_line;
                Err(Problem::said(format!(
                    "the quote that opens on line {line} is not closed, expected another"
                )))
            }
            At::Field | At::Bare | At::Quote => {
                self.end_field()?;
                self.end_row();
                Ok(true)
            }
        }
    }

    fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(from, to)| &self.fields[from..*to])
    }

    /// The row as an item, whose data is an object; none where it is the header.
    pub(crate) fn item(&mut self, options: &Options) -> Result<Option<Item>, Problem> {
        let Some(header) = &self.header else {
            self.header = Some(self.read_header(options)?);
            return Ok(None);
        };
        let (given, expected) = (self.ends.len(), header.names.len());
        if given != expected {
            return Err(Problem::said(format!(
                "the row has {given} fields, expected {expected}, as many as the header"
            )));
        }
        let (mut data, mut key) = (String::with_capacity(self.fields.len() * 2), String::new());
        let mut units = 0;
        for (at, (name, field)) in header.names.iter().zip(self.fields()).enumerate() {
            data.push(if at == 0 { '{' } else { ',' });
            let field = text(field).map_err(|problem| Problem { field: plain(name), ..problem })?;
            data.push_str(name);
            data.push_str(&quoted(field));
            if header.key == Some(at) {
                member::check_key(options.key_field.as_deref().unwrap_or_default(), field)?;
                field.clone_into(&mut key);
            }
            if header.units == Some(at) && !field.is_empty() {
                units = member::units_of(field)
                    .ok_or_else(|| member::no_units(&plain(name), &format!("{field:?}")))?;
            }
        }
        data.push('}');
        Ok(Some(Item { data, key, units }))
    }

    fn read_header(&self, options: &Options) -> Result<Header, Problem> {
        let mut names: Vec<&str> = Vec::with_capacity(self.ends.len());
        for (at, field) in self.fields().enumerate() {
            let field = if at == 0 { field.strip_prefix(MARK).unwrap_or(field) } else { field };
            let name = text(field)?;
            if name.is_empty() {
                return Err(Problem::said(format!(
                    "column {} of the header has no name, expected one",
                    at + 1
                )));
            }
            if names.contains(&name) {
                return Err(Problem::new(name, "the header names this column twice, expected once"));
            }
            names.push(name);
        }
        if let [name] = names[..]
            && name.contains([';', '\t'])
        {
            return Err(Problem::new(name, "the header has one column, expected commas between the columns"));
        }
        let column = |field: &Option<String>, whose: &str| match field {
            None => Ok(None),
            Some(field) => names.iter().position(|name| name == field).map(Some).ok_or_else(|| {
                let known = shortened(&names.join(", "));
                let said = format!("no column of the header has the {whose} name, expected one of {known}");
                Problem::new(field, said)
            }),
        };
        let (key, units) = (column(&options.key_field, "key's")?, column(&options.units_field, "units'")?);
        let names = names.into_iter().map(|name| quoted(name) + ":").collect();
        Ok(Header { names, key, units })
    }

    /// The line on which the row begins.
    pub(crate) fn begins_on(&self) -> u64 {
        self.first_line
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A column's name out of what stands in objects.
fn plain(name: &str) -> String {
    serde_json::from_str(name.trim_end_matches(':')).unwrap_or_default()
}
