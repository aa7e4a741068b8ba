//! Decides how answers are printed: as text for people, as data, or as names for other commands.
//!
//! Invariants: data is what the REST API gives, field by field; colours reach terminals only; writing never panics; a
//! reader that goes away (`| head`) is an error of kind `BrokenPipe`, which ends the program quietly.

use std::cell::RefCell;
use std::io::{Stdout, Write};

use anstream::AutoStream;
use prost::{Message, Name};
use serde_json::Value;
use tollgate_proto::json::to_rest_json;

use crate::usage::Usage;

/// How answers look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// Aligned columns, and more of them.
    Wide,
    /// JSON, as in the REST API.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names that other commands take, one a line.
    Name,
}

/// Where answers go.
pub(crate) struct Printer {
    format: Format,
    sink: RefCell<Sink>,
}

enum Sink {
    Stdout(AutoStream<Stdout>),
    Held(Vec<u8>),
}

impl Printer {
    /// Prints to standard output, with colours where it is a terminal.
    pub(crate) fn stdout(format: Format) -> Self {
        Self { format, sink: RefCell::new(Sink::Stdout(AutoStream::auto(std::io::stdout()))) }
    }

    /// Keeps what is printed until it is taken.
    pub(crate) fn holding(format: Format) -> Self {
        Self { format, sink: RefCell::new(Sink::Held(Vec::new())) }
    }

    /// What has been kept.
    pub(crate) fn take(&self) -> String {
        match &mut *self.sink.borrow_mut() {
            Sink::Stdout(_) => String::new(),
            Sink::Held(bytes) => String::from_utf8_lossy(&std::mem::take(bytes)).into_owned(),
        }
    }

    /// How answers look.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Whether answers are printed as data: JSON, or the same as YAML.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self.format, Format::Json | Format::Yaml)
    }

    /// Whether only names are printed.
    pub(crate) fn is_name(&self) -> bool {
        self.format == Format::Name
    }

    /// Whether people read it.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// Refuses `-o name` where there are no resources to name.
    ///
    /// # Errors
    /// What is allowed.
    pub(crate) fn refuse_names(&self) -> Result<(), Usage> {
        if self.is_name() {
            let allowed = "expected table, wide, json or yaml";
            return Err(Usage(format!(
                "-o name: it names resources, and this command shows none; {allowed}"
            )));
        }
        Ok(())
    }

    /// Prints text as it is.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn text(&self, text: &str) -> anyhow::Result<()> {
        match &mut *self.sink.borrow_mut() {
            Sink::Stdout(sink) => {
                sink.write_all(text.as_bytes())?;
                Ok(sink.flush()?)
            }
            Sink::Held(bytes) => {
                bytes.extend_from_slice(text.as_bytes());
                Ok(())
            }
        }
    }

    /// Prints one line.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn line(&self, line: &str) -> anyhow::Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// Prints a JSON value over several lines, or the same as YAML.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn json(&self, value: &Value) -> anyhow::Result<()> {
        match self.format {
            Format::Yaml => self.line(serde_saphyr::to_string(value)?.trim_end()),
            _ => self.line(&serde_json::to_string_pretty(value)?),
        }
    }

    /// Prints a message that is no resource as data, or what `text` makes of it.
    ///
    /// # Errors
    /// Those of writing; `-o name`.
    pub(crate) fn message<M: Message + Name>(
        &self,
        message: &M,
        text: impl FnOnce(&M) -> String,
    ) -> anyhow::Result<()> {
        self.refuse_names()?;
        if self.is_json() { self.json(&to_rest_json(message)) } else { self.text(&text(message)) }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tollgate_proto::v1;

    use super::*;

    fn printed(format: Format) -> anyhow::Result<String> {
        let policy = v1::Policy {
            name: "namespaces/default/policies/no".to_owned(),
            description: "no".to_owned(),
            max_in_flight: Some(4),
            ..v1::Policy::default()
        };
        let printer = Printer::holding(format);
        printer.message(&policy, |policy| format!("{}\n", policy.name))?;
        Ok(printer.take())
    }

    #[test]
    fn data_is_what_rest_gives_in_both_forms() {
        let json: Value = serde_json::from_str(&printed(Format::Json).unwrap()).unwrap();
        assert_eq!((&json["maxInFlight"], &json["labels"]), (&Value::from(4), &serde_json::json!({})));
        // What YAML would take for something else is quoted.
        let yaml: Value = serde_saphyr::from_str(&printed(Format::Yaml).unwrap()).unwrap();
        assert_eq!(yaml, json);
        assert_eq!(yaml["description"], "no");
    }

    #[test]
    fn names_are_of_resources() {
        assert_eq!(printed(Format::Wide).unwrap(), "namespaces/default/policies/no\n");
        assert!(printed(Format::Name).unwrap_err().is::<Usage>());
    }
}
