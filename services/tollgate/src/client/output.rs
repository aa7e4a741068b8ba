//! Decides how answers are printed: as text for people, or as the messages' JSON form.
//!
//! Invariant: writing never panics; a reader that goes away (`| head`) is an error of kind `BrokenPipe`, which ends
//! the program quietly.

use std::cell::RefCell;
use std::io::{Stdout, Write};

use prost::{Message, Name};
use serde_json::Value;

/// How answers look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// JSON, with the API's field names.
    Json,
}

/// Where answers go.
pub(crate) struct Printer {
    format: Format,
    sink: RefCell<Stdout>,
}

impl Printer {
    /// Prints to standard output.
    pub(crate) fn stdout(format: Format) -> Self {
        Self { format, sink: RefCell::new(std::io::stdout()) }
    }

    /// Whether answers are printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Prints text as it is.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn text(&self, text: &str) -> anyhow::Result<()> {
        let mut sink = self.sink.borrow_mut();
        sink.write_all(text.as_bytes())?;
        Ok(sink.flush()?)
    }

    /// Prints one line.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn line(&self, line: &str) -> anyhow::Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// Prints a JSON value over several lines.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn json(&self, value: &Value) -> anyhow::Result<()> {
        self.line(&serde_json::to_string_pretty(value)?)
    }

    /// Prints a message as JSON, or what `text` makes of it.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn message<M: Message + Name>(
        &self,
        message: &M,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        match self.format {
            Format::Json => self.json(&tollgate_proto::json::to_json(message)),
            Format::Table => self.text(&text(message)),
        }
    }
}
