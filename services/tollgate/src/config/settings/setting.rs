//! What there is to know of one setting: its names, its meaning, and how it is set and shown.
//!
//! In: a text. Out: a field that is set, or what is allowed. Invariant: the flag and the variable follow from its key.

use super::super::ServeConfig;

/// One row of the table.
pub(crate) struct Setting {
    /// Its name, and its key in the file.
    pub(crate) key: &'static str,
    /// The flag without its dashes in front.
    pub(crate) flag: &'static str,
    /// Stands for the value in help texts.
    pub(crate) placeholder: &'static str,
    /// What it decides.
    pub(crate) meaning: &'static str,
    /// What is allowed.
    pub(crate) expected: &'static str,
    /// Whether it may be a map in the file; its text is JSON.
    pub(crate) is_map: bool,
    pub(super) set: fn(&mut ServeConfig, &str) -> Option<()>,
    pub(super) show: fn(&ServeConfig) -> String,
}

impl Setting {
    /// `--store-connections`.
    pub(crate) fn flag(&self) -> String {
        format!("--{}", self.flag)
    }

    /// `TOLLGATE_STORE_CONNECTIONS`.
    pub(crate) fn variable(&self) -> String {
        format!("TOLLGATE_{}", self.key.to_ascii_uppercase())
    }

    /// Takes a text as the value.
    ///
    /// # Errors
    /// What is allowed.
    pub(crate) fn set(&self, config: &mut ServeConfig, text: &str) -> Result<(), &'static str> {
        (self.set)(config, text.trim()).ok_or(self.expected)
    }

    /// The value as a text that [`Setting::set`] takes, and that holds no password.
    pub(crate) fn show(&self, config: &ServeConfig) -> String {
        (self.show)(config)
    }
}
