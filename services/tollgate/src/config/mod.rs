//! Decides how `tollgate serve` is set up: by flags, environment variables, a file and defaults, in that order.
//!
//! In: the command line, the environment as a map, a file. Out: a [`ServeConfig`] in which every value has been checked,
//! or every wrong setting at once, each with where it came from. Invariant: one table, [`settings::SETTINGS`], says what
//! can be set; flags, variables, file keys, help texts and `tollgate config` all come from it. Not here: what the
//! settings do.

pub(crate) mod flags;
pub(crate) mod logging;
mod read;
mod serve;
pub(crate) mod settings;
pub(crate) mod show;

pub(crate) use flags::ServeArgs;
pub(crate) use read::{ConfigError, Loaded, SECRET_KEYS_VARIABLE, ValueSource, load};
pub(crate) use serve::{Auth, LogFormat, Role, ServeConfig};
pub(crate) use settings::without_password;
