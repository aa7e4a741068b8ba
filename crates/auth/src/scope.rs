//! What a key may do, in four words.

use std::fmt;
use std::str::FromStr;

/// One thing that a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Look at everything, but at no event's token.
    Read,
    /// Make, change and delete schedules and policies, and steer their runs.
    ScheduleWrite,
    /// Give tokens back without having been given the event, and see event ids with their tokens.
    TokenRelease,
    /// Everything, and what concerns all namespaces.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::ScheduleWrite, Self::TokenRelease, Self::Admin];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ScheduleWrite => "schedule:write",
            Self::TokenRelease => "token:release",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A text that names no scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeError(String);

impl fmt::Display for ScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not allowed, expected a comma list of ", self.0)?;
        f.write_str(&Scope::ALL.map(Scope::word).join(", "))
    }
}

impl std::error::Error for ScopeError {}

/// Some scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// All that there is.
    pub fn all() -> Self {
        Self::from_iter([Scope::Admin])
    }

    /// Whether a scope is among them; `admin` brings the others.
    pub fn allow(self, scope: Scope) -> bool {
        self.0 & (bit(scope) | bit(Scope::Admin)) != 0
    }

    /// Those that were given, in order.
    pub fn words(self) -> Vec<String> {
        let given = Scope::ALL.into_iter().filter(|scope| self.0 & bit(*scope) != 0);
        given.map(|scope| scope.word().to_owned()).collect()
    }
}

fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().map(bit).fold(0, |all, one| all | one))
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let found = Self::ALL.into_iter().find(|scope| scope.word() == text.trim());
        found.ok_or_else(|| ScopeError(text.to_owned()))
    }
}

impl FromStr for Scopes {
    type Err = ScopeError;

    /// A comma list with at least one scope.
    fn from_str(text: &str) -> Result<Self, ScopeError> {
        text.split(',').map(str::parse::<Scope>).collect()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn admin_brings_the_others_and_nothing_else_does() {
        for given in Scope::ALL {
            let scopes: Scopes = given.word().parse().unwrap();
            assert_eq!(scopes.words(), [given.word()]);
            for asked in Scope::ALL {
                assert_eq!(scopes.allow(asked), given == Scope::Admin || given == asked, "{given} {asked}");
            }
        }
        let two: Scopes = "token:release, read".parse().unwrap();
        assert_eq!(two.words(), ["read", "token:release"]);
        assert!(!two.allow(Scope::ScheduleWrite));
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "read,", "Read", "write", "*"] {
            let error = text.parse::<Scopes>().unwrap_err().to_string();
            assert!(error.contains("read, schedule:write, token:release, admin"), "{error}");
        }
        assert!(!Scopes::default().allow(Scope::Read));
    }
}
