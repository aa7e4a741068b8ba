//! `tollgate config`: the table of settings, with the values that hold here and where they come from.

use serde_json::{Value, json};

use super::settings::{SETTINGS, Setting};
use super::{Loaded, ServeConfig, ValueSource};
use crate::client::output::Printer;
use crate::client::table::Table;

/// Prints the table.
///
/// # Errors
/// Those of writing.
pub(crate) fn print(loaded: &Loaded, printer: &Printer) -> anyhow::Result<()> {
    if printer.is_json() {
        let rows: Vec<Value> = SETTINGS.iter().map(|setting| row(setting, loaded)).collect();
        return printer.json(&Value::Array(rows));
    }
    let mut table = Table::new(["SETTING", "VALUE", "FROM", "DEFAULT", "FLAG", "VARIABLE"]);
    let defaults = ServeConfig::default();
    for setting in &SETTINGS {
        table.row([
            setting.key.to_owned(),
            setting.show(&loaded.config),
            source(setting, loaded).to_string(),
            setting.show(&defaults),
            setting.flag(),
            setting.variable(),
        ]);
    }
    printer.text(&table.to_string())?;
    printer
        .text("\nKeys of the file are the settings' names. `tollgate serve --help` says what each means.\n")
}

/// Prints the table as it stands in `docs/configuration.md`: without values.
///
/// # Errors
/// Those of writing.
pub(crate) fn print_markdown(printer: &Printer) -> anyhow::Result<()> {
    let defaults = ServeConfig::default();
    let mut text = "| setting (file key) | flag | variable | default | meaning |\n".to_owned();
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for setting in &SETTINGS {
        let default = match setting.show(&defaults) {
            default if default.is_empty() => String::new(),
            default => format!("`{default}`"),
        };
        text.push_str(&format!(
            "| `{}` | `{}` | `{}` | {default} | {} Allowed: {}. |\n",
            setting.key,
            setting.flag(),
            setting.variable(),
            setting.meaning,
            setting.expected,
        ));
    }
    printer.text(&text)
}

fn row(setting: &Setting, loaded: &Loaded) -> Value {
    json!({
        "setting": setting.key,
        "flag": setting.flag(),
        "variable": setting.variable(),
        "default": setting.show(&ServeConfig::default()),
        "meaning": setting.meaning,
        "allowed": setting.expected,
        "value": setting.show(&loaded.config),
        "from": source(setting, loaded).to_string(),
    })
}

fn source<'a>(setting: &Setting, loaded: &'a Loaded) -> &'a ValueSource {
    loaded.sources.get(setting.key).unwrap_or(&ValueSource::Default)
}
