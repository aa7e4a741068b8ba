//! Decides which source of a setting wins: flags, then the environment, then the file, then the default.
//!
//! In: flags, the environment as a map, the file's text. Out: the configuration with the source of every value. Every
//! value that is given is checked, those that do not win as well, and everything wrong is reported at once.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_saphyr::{Location, Spanned};
use tollgate_core::nearest::{nearest, same};
use tollgate_secrets::Keys;

use super::settings::{SETTINGS, Setting, without_password};
use super::{Role, ServeArgs, ServeConfig};

/// The variable that names the file where no flag does.
const FILE_VARIABLE: &str = "TOLLGATE_CONFIG";
/// Variables that mean the same everywhere, by setting; Tollgate's own win.
const STANDARD_VARIABLES: [(&str, &str); 2] =
    [("otlp_endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT"), ("trace_ratio", "OTEL_TRACES_SAMPLER_ARG")];

/// The variable that holds secret keys themselves. Not a setting: flags and files of settings are read by others, too.
pub(crate) const SECRET_KEYS_VARIABLE: &str = "TOLLGATE_SECRET_KEYS";

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueSource {
    /// Nobody gave one.
    Default,
    /// The file, at this line.
    File {
        /// Its name as given.
        file: String,
        /// The line, from 1.
        line: u64,
    },
    /// The variable of this name.
    Variable(String),
    /// The flag of this name.
    Flag(String),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A configuration, and where each value came from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// The checked values.
    pub(crate) config: ServeConfig,
    /// From a setting's key to the source of its value.
    pub(crate) sources: BTreeMap<&'static str, ValueSource>,
}

/// What is wrong, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for ConfigError {}

/// The configuration for these flags and this environment. Reads the file that they name, if any.
///
/// # Errors
/// Everything that is wrong, each with its source, the value and what is allowed.
pub(crate) fn load(args: &ServeArgs, environment: &BTreeMap<String, String>) -> Result<Loaded, ConfigError> {
    let named = args.file.as_ref().map(|file| (file, "flag --config".to_owned())).or_else(|| {
        let file = environment.get(FILE_VARIABLE).filter(|file| !file.is_empty())?;
        Some((file, format!("environment variable {FILE_VARIABLE}")))
    });
    let mut wrong = Vec::new();
    let file = match named {
        None => Vec::new(),
        Some((file, source)) => match std::fs::read_to_string(file) {
            Ok(text) => file_values(file, &text, &mut wrong),
            Err(error) => {
                return Err(ConfigError(vec![format!("{source}: cannot read {file:?}: {error}")]));
            }
        },
    };
    let mut loaded = Loaded { config: ServeConfig::default(), sources: BTreeMap::new() };
    for setting in &SETTINGS {
        loaded.sources.insert(setting.key, ValueSource::Default);
        for (source, text) in given(setting, args, environment, &file) {
            match setting.set(&mut loaded.config, &text) {
                Ok(()) => {
                    loaded.sources.insert(setting.key, source);
                }
                Err(expected) => {
                    let text = without_password(&text);
                    // A flag or a variable has the setting's name already.
                    let named = match &source {
                        ValueSource::Flag(name) | ValueSource::Variable(name) => name.clone(),
                        ValueSource::File { .. } | ValueSource::Default => {
                            format!("{source}: {}", setting.key)
                        }
                    };
                    wrong.push(format!("{named}: {text:?} is not allowed, expected {expected}"));
                }
            }
        }
    }
    match environment.get(SECRET_KEYS_VARIABLE).map(|text| Keys::parse(text)).transpose() {
        Ok(keys) => loaded.config.secret_keys = keys.unwrap_or_default(),
        Err(error) => wrong.push(format!("environment variable {SECRET_KEYS_VARIABLE}: {error}")),
    }
    // The console has no keys of its own: where others can reach it, somebody must have asked for it.
    if loaded.sources.get("roles") == Some(&ValueSource::Default) && !loaded.config.listen.ip().is_loopback()
    {
        loaded.config.roles.remove(&Role::Console);
    }
    if wrong.is_empty() { Ok(loaded) } else { Err(ConfigError(wrong)) }
}

/// What the sources say about a setting, the winner last.
fn given(
    setting: &Setting,
    args: &ServeArgs,
    environment: &BTreeMap<String, String>,
    file: &[(&'static str, ValueSource, String)],
) -> Vec<(ValueSource, String)> {
    let in_file = file.iter().filter(|(key, _, _)| *key == setting.key);
    let mut given: Vec<(ValueSource, String)> =
        in_file.map(|(_, source, text)| (source.clone(), text.clone())).collect();
    let standard =
        STANDARD_VARIABLES.iter().filter(|(key, _)| *key == setting.key).map(|(_, v)| (*v).to_owned());
    for variable in standard.chain([setting.variable()]) {
        // An empty variable counts as none: that is how deployment files unset one.
        if let Some(text) = environment.get(&variable).filter(|text| !text.is_empty()) {
            given.push((ValueSource::Variable(variable), text.clone()));
        }
    }
    if let Some(text) = args.flags.get(setting.key) {
        given.push((ValueSource::Flag(setting.flag()), text.clone()));
    }
    given
}

/// The settings in a file's text.
fn file_values(file: &str, text: &str, wrong: &mut Vec<String>) -> Vec<(&'static str, ValueSource, String)> {
    type Keys = Option<BTreeMap<String, Spanned<Value>>>;
    let options = serde_saphyr::options! { with_snippet: false };
    let keys: Keys = match serde_saphyr::from_str_with_options(text, options) {
        Ok(keys) => keys,
        Err(error) => {
            let line = error.location().map_or(1, |location: Location| location.line());
            wrong.push(format!("{file}:{line}: {error}"));
            return Vec::new();
        }
    };
    let mut values = Vec::new();
    for (key, value) in keys.unwrap_or_default() {
        let line = value.referenced.line();
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
            let meant =
                match same(&key, known.iter().copied()).or_else(|| nearest(&key, known.iter().copied())) {
                    Some(near) => format!("; did you mean {near}?"),
                    None => format!(", expected {}", known.join(", ")),
                };
            wrong.push(format!("{file}:{line}: {key}: no such setting{meant}"));
            continue;
        };
        let map = || Some(value.value.to_string()).filter(|_| setting.is_map && value.value.is_object());
        match scalar(&value.value).or_else(map) {
            Some(text) => values.push((setting.key, ValueSource::File { file: file.to_owned(), line }, text)),
            None => wrong.push(format!(
                "{file}:{line}: {key}: {} is not allowed, expected {}",
                value.value, setting.expected
            )),
        }
    }
    values
}

/// A scalar as text; a list of scalars with commas between them.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(items) => Some(items.iter().map(scalar).collect::<Option<Vec<_>>>()?.join(",")),
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::io::Write;

    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn flags(pairs: &[(&'static str, &str)]) -> ServeArgs {
        let flags = pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        ServeArgs { file: None, flags }
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        let loaded = load(&ServeArgs::default(), &environment(&[])).unwrap();
        assert_eq!(loaded.config, ServeConfig::default());
        assert!(loaded.sources.values().all(|source| *source == ValueSource::Default));
        assert_eq!(loaded.sources.len(), SETTINGS.len());
    }

    #[test]
    fn the_console_is_not_open_to_others_unasked() {
        let roles = |pairs: &[(&'static str, &str)]| {
            load(&flags(pairs), &environment(&[])).unwrap().config.roles.contains(&Role::Console)
        };
        assert!(roles(&[]));
        assert!(roles(&[("listen", "[::1]:7411")]));
        assert!(!roles(&[("listen", "0.0.0.0:7411")]));
        assert!(roles(&[("listen", "0.0.0.0:7411"), ("roles", "handler,console")]));
        assert!(!roles(&[("roles", "master,emitter,handler")]));
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file() {
        let file =
            file("# settings\nstore: sqlite:file.db\nwindow: 10s\nroles: [master, emitter]\nsends_max: 3\n");
        let path = file.path().to_str().unwrap();
        let environment = environment(&[
            ("TOLLGATE_CONFIG", path),
            ("TOLLGATE_STORE", "sqlite:variable.db"),
            ("TOLLGATE_WINDOW", "20s"),
            ("TOLLGATE_SENDS_MAX", ""),
        ]);
        let loaded = load(&flags(&[("store", "sqlite:flag.db")]), &environment).unwrap();
        assert_eq!(loaded.config.store, "sqlite:flag.db");
        assert_eq!(loaded.config.window_s, 20);
        assert_eq!(loaded.config.sends_max, 3);
        assert_eq!(loaded.config.roles, [Role::Master, Role::Emitter].into());
        assert_eq!(loaded.sources["store"], ValueSource::Flag("--store".to_owned()));
        assert_eq!(loaded.sources["window"], ValueSource::Variable("TOLLGATE_WINDOW".to_owned()));
        assert_eq!(loaded.sources["roles"], ValueSource::File { file: path.to_owned(), line: 4 });
        assert_eq!(loaded.sources["ahead"], ValueSource::Default);
    }

    #[test]
    fn standard_variables_count_and_own_ones_win() {
        let standard =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://here:4317"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")];
        let loaded = load(&ServeArgs::default(), &environment(&standard)).unwrap();
        assert_eq!(loaded.config.otlp_endpoint.as_deref(), Some("http://here:4317"));
        assert_eq!(loaded.config.trace_ppm, 250_000);
        assert_eq!(
            loaded.sources["trace_ratio"],
            ValueSource::Variable("OTEL_TRACES_SAMPLER_ARG".to_owned())
        );
        let both = [standard.as_slice(), &[("TOLLGATE_OTLP_ENDPOINT", "http://there:4317")]].concat();
        let loaded = load(&ServeArgs::default(), &environment(&both)).unwrap();
        assert_eq!(loaded.config.otlp_endpoint.as_deref(), Some("http://there:4317"));
    }

    #[test]
    fn everything_wrong_is_reported_with_its_origin() {
        let file = file("\nwindow: soon\nwindows: 3\nlog: {a: b}\n");
        let path = file.path().to_str().unwrap().to_owned();
        let args = ServeArgs { file: Some(path.clone()), ..flags(&[("listen", "here")]) };
        let error =
            load(&args, &environment(&[("TOLLGATE_AHEAD", "5"), ("TOLLGATE_WINDOW", "9s")])).unwrap_err();
        let text = error.to_string();
        for part in [
            &format!("{path}:2: window: \"soon\" is not allowed, expected whole seconds from 1s to 1h"),
            &format!("{path}:3: windows: no such setting; did you mean window?"),
            &format!("{path}:4: log: {{\"a\":\"b\"}} is not allowed, expected a level"),
            "TOLLGATE_AHEAD: \"5\" is not allowed",
            "--listen: \"here\" is not allowed, expected an IP address and a port",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(error.0.len(), 5, "{text}");
    }

    #[test]
    fn quotas_of_namespaces_are_a_map_in_the_file() {
        let file = file(
            "quota_schedules: 100\nquota_writes: 0\nquota_overrides:\n  team-a: {schedules: 5, writes: 2}\n  b: {}\n",
        );
        let args = ServeArgs { file: Some(file.path().to_str().unwrap().to_owned()), ..flags(&[]) };
        let quotas = load(&args, &environment(&[])).unwrap().config.quotas;
        let waiting = quotas.each.waiting_events;
        let of = |namespace: &str| {
            let quota = quotas.of(namespace);
            (quota.schedules, quota.writes, quota.waiting_events)
        };
        assert_eq!((of("team-a"), of("b"), of("c")), ((5, 2, waiting), (100, 0, waiting), (100, 0, waiting)));
        let each = load(&ServeArgs::default(), &environment(&[])).unwrap().config.quotas.each;
        assert!(
            each.schedules > 0 && each.waiting_events > 0 && each.writes > 0,
            "none is unlimited: {each:?}"
        );
    }

    #[test]
    fn secret_keys_are_read_and_never_shown() {
        let key = tollgate_secrets::generate_line("k1").unwrap();
        let load = |text: &str| load(&ServeArgs::default(), &environment(&[("TOLLGATE_SECRET_KEYS", text)]));
        let config = load(&key).unwrap().config;
        assert_eq!(config.secret_keys.ids().collect::<Vec<_>>(), ["k1"]);
        assert!(!format!("{config:?}").contains(&key[3..]));
        let error = load(&key[..20]).unwrap_err().to_string();
        assert!(error.starts_with("environment variable TOLLGATE_SECRET_KEYS: line 1: "), "{error}");
        assert!(!error.contains(&key[3..20]), "{error}");
    }

    #[test]
    fn a_file_that_is_not_yaml_or_not_there_is_named() {
        let broken = file("store: sqlite:a\nroles: [master\nlog: info\n");
        let path = broken.path().to_str().unwrap().to_owned();
        let args = ServeArgs { file: Some(path.clone()), flags: BTreeMap::new() };
        let error = load(&args, &environment(&[])).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{path}:")), "{error}");
        let error =
            load(&ServeArgs::default(), &environment(&[("TOLLGATE_CONFIG", "/nowhere")])).unwrap_err();
        assert!(error.to_string().contains("environment variable TOLLGATE_CONFIG: cannot read \"/nowhere\""));
        let empty = file("# nothing\n");
        let args = ServeArgs { file: empty.path().to_str().map(str::to_owned), flags: BTreeMap::new() };
        assert_eq!(load(&args, &environment(&[])).unwrap().config, ServeConfig::default());
    }
}
