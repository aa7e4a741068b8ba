//! Decides which flags `tollgate serve` and `tollgate config` have: one for each row of the settings' table.
//!
//! Flags are kept as texts, because a wrong one is reported like a wrong variable or line of the file, together with
//! them.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Command};

use super::settings::SETTINGS;
use super::{ServeConfig, settings::Setting};

/// The settings given as flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServeArgs {
    /// `--config`.
    pub(crate) file: Option<String>,
    /// From a setting's key to its text.
    pub(crate) flags: BTreeMap<&'static str, String>,
}

impl clap::Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new("config_file")
            .long("config")
            .value_name("FILE")
            .help("A YAML file with any of these settings [env: TOLLGATE_CONFIG]");
        let defaults = ServeConfig::default();
        let flags = SETTINGS.iter().map(|setting| {
            Arg::new(setting.key)
                .long(setting.flag)
                .value_name(setting.placeholder)
                .allow_hyphen_values(true)
                .help(help(setting, &defaults))
        });
        command.arg(file).args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn help(setting: &Setting, defaults: &ServeConfig) -> String {
    let (meaning, expected, variable) = (setting.meaning, setting.expected, setting.variable());
    match setting.show(defaults) {
        default if default.is_empty() => format!("{meaning} Allowed: {expected} [env: {variable}]"),
        default => format!("{meaning} Allowed: {expected} [env: {variable}] [default: {default}]"),
    }
}

impl clap::FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let text = |id: &str| matches.get_one::<String>(id).cloned();
        let flags = SETTINGS.iter().filter_map(|setting| Some((setting.key, text(setting.key)?)));
        Ok(Self { file: text("config_file"), flags: flags.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
