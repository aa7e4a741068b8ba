//! What a key may do, in five words.

use std::fmt;
use std::str::FromStr;

use tollgate_proto::convert::names;

/// One thing that a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Look at everything, but at no event's token.
    Read,
    /// Make, change and delete schedules and policies, and steer their runs.
    ScheduleWrite,
    /// Give tokens back without having been given the event, and see event ids with their tokens.
    TokenRelease,
    /// Take events of queues as a worker.
    Work,
    /// Everything, and what concerns all namespaces.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::ScheduleWrite, Self::TokenRelease, Self::Work, Self::Admin];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ScheduleWrite => "schedule:write",
            Self::TokenRelease => "token:release",
            Self::Work => "work",
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
        f.write_str(&Scope::ALL.map(Scope::word).join(", "))?;
        f.write_str("; work=QUEUE is for one queue")
    }
}

impl std::error::Error for ScopeError {}

/// Stands between the scope of workers and the one queue that it is for: `work=render`.
const OF_QUEUE: char = '=';

/// Some scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    bits: u8,
    /// The only queues of which events may be taken; none for all.
    queues: Vec<String>,
}

impl Scopes {
    /// All that there is.
    pub fn all() -> Self {
        Self::from_iter([Scope::Admin])
    }

    /// Those words that name scopes: what a newer version may have named gives nothing.
    pub fn known<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let known = words.into_iter().filter_map(|word| Self::of_word(word).ok());
        known.fold(Self::default(), Self::and)
    }

    /// One word: a scope, or that of workers for one queue.
    fn of_word(word: &str) -> Result<Self, ScopeError> {
        match word.trim().split_once(OF_QUEUE) {
            Some((of, queue)) if of == Scope::Work.word() && names::is_id(queue) => {
                Ok(Self { bits: bit(Scope::Work), queues: vec![queue.to_owned()] })
            }
            _ => Ok(Self::from_iter([word.parse::<Scope>()?])),
        }
    }

    /// These and those.
    fn and(mut self, other: Self) -> Self {
        // Of all queues is more than of one.
        let of_all = |scopes: &Self| scopes.bits & bit(Scope::Work) != 0 && scopes.queues.is_empty();
        if of_all(&self) || of_all(&other) {
            self.queues.clear();
        } else {
            self.queues.extend(other.queues);
        }
        self.bits |= other.bits;
        self
    }

    /// Whether a scope is among them; `admin` brings the others.
    pub fn allow(&self, scope: Scope) -> bool {
        self.bits & (bit(scope) | bit(Scope::Admin)) != 0
    }

    /// Whether events of a queue may be taken.
    pub fn allow_queue(&self, queue: &str) -> bool {
        let is_named = self.queues.is_empty() || self.queues.iter().any(|named| named == queue);
        self.allow(Scope::Admin) || self.allow(Scope::Work) && is_named
    }

    /// Those that were given, in order.
    pub fn words(&self) -> Vec<String> {
        let given = Scope::ALL.into_iter().filter(|scope| self.bits & bit(*scope) != 0);
        let words = given.flat_map(|scope| match scope {
            Scope::Work if !self.queues.is_empty() => {
                self.queues.iter().map(|queue| format!("{}{OF_QUEUE}{queue}", scope.word())).collect()
            }
            _ => vec![scope.word().to_owned()],
        });
        words.collect()
    }
}

fn bit(scope: Scope) -> u8 {
    1 << scope as u8
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        let bits = scopes.into_iter().map(bit).fold(0, |all, one| all | one);
        Self { bits, queues: Vec::new() }
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
        text.split(',').try_fold(Self::default(), |scopes, word| Ok(scopes.and(Self::of_word(word)?)))
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
    fn a_worker_s_key_may_be_for_some_queues_only() {
        let some: Scopes = "read,work=render,work=audio".parse().unwrap();
        assert_eq!(some.words(), ["read", "work=render", "work=audio"]);
        assert!(some.allow_queue("render") && some.allow_queue("audio") && !some.allow_queue("mail"));
        let all: Scopes = "work=render,work".parse().unwrap();
        assert_eq!(all.words(), ["work"]);
        assert!(all.allow_queue("mail") && Scopes::all().allow_queue("mail"));
        let kept = Scopes::known(["read", "fly", "work=render", "work=Audio"]);
        assert_eq!(kept.words(), ["read", "work=render"], "as it is stored, and what is not known");
        let none: Scopes = "read,token:release".parse().unwrap();
        assert!(!none.allow_queue("render"));
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "read,", "Read", "write", "*", "work=", "work=A", "read=x"] {
            let error = text.parse::<Scopes>().unwrap_err().to_string();
            assert!(error.contains("read, schedule:write, token:release, work, admin"), "{error}");
        }
        assert!(!Scopes::default().allow(Scope::Read));
    }
}
