//! Reads a kind of resource, alone or with a name: `schedule`, `schedule/nightly`, or a full name.

use std::ffi::OsStr;
use std::marker::PhantomData;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, ValueEnum};

use crate::usage::Usage;

/// A kind, and the name that was given with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target<K> {
    kind: K,
    name: Option<String>,
}

impl<K: Copy> Target<K> {
    /// The kind, and the name that stands with it or behind it.
    ///
    /// # Errors
    /// Two names.
    pub(crate) fn and(&self, name: Option<String>) -> Result<(K, Option<String>), Usage> {
        match (&self.name, name) {
            (Some(with), Some(behind)) => {
                Err(Usage(format!("{with:?} and {behind:?}: two names are given, expected one")))
            }
            (with, behind) => Ok((self.kind, behind.or_else(|| with.clone()))),
        }
    }

    /// As [`Target::and`], where there must be a name; `example` shows one.
    ///
    /// # Errors
    /// None, or two.
    pub(crate) fn named(&self, name: Option<String>, example: &str) -> Result<(K, String), Usage> {
        let (kind, name) = self.and(name)?;
        let name = name.ok_or_else(|| Usage(format!("expected a name, as in `{example}`")))?;
        Ok((kind, name))
    }
}

/// Reads a [`Target`].
#[derive(Clone, Debug)]
pub(crate) struct TargetParser<K>(PhantomData<K>);

impl<K> TargetParser<K> {
    /// For the kinds that `K` has.
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

/// The word for the kind, and the name.
fn split(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix("namespaces/")
        && let Some(collection) = rest.split('/').nth(1)
    {
        return (collection, Some(text));
    }
    match text.split_once('/') {
        Some((kind, name)) if !name.is_empty() => (kind, Some(name)),
        _ => (text, None),
    }
}

impl<K: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for TargetParser<K> {
    type Value = Target<K>;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Target<K>, clap::Error> {
        let text = value.to_string_lossy();
        let (word, name) = split(&text);
        let kind = EnumValueParser::<K>::new().parse_ref(command, arg, OsStr::new(word))?;
        Ok(Target { kind, name: name.map(str::to_owned) })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(K::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_stands_alone_or_before_a_name() {
        assert_eq!(split("schedules"), ("schedules", None));
        assert_eq!(split("schedule/nightly"), ("schedule", Some("nightly")));
        let full = "namespaces/a/schedules/nightly";
        assert_eq!(split(full), ("schedules", Some(full)));
        assert_eq!(split("schedule/"), ("schedule/", None));
    }

    #[test]
    fn one_name_is_enough_and_two_are_too_many() {
        let target = |name: Option<&str>| Target { kind: 'k', name: name.map(str::to_owned) };
        assert_eq!(target(Some("a")).and(None), Ok(('k', Some("a".to_owned()))));
        assert_eq!(target(None).named(Some("b".to_owned()), "x"), Ok(('k', "b".to_owned())));
        assert!(target(Some("a")).and(Some("b".to_owned())).is_err());
        assert!(target(None).named(None, "x").is_err_and(|usage| usage.0.ends_with("`x`")));
    }
}
