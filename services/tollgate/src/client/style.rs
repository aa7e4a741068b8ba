//! Decides what is coloured or bold, and how: by meaning, as in the console.
//!
//! Styles are written into texts as escape sequences. Who writes a text to a terminal keeps them, and else takes them out.

use anstyle::{AnsiColor, Style};

/// What a text means to its reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// Somebody must look.
    Bad,
    /// Somebody may have to look.
    Warning,
    /// It is well, and done.
    Good,
    /// Nobody has to look.
    Quiet,
    /// The head of what follows.
    Head,
}

impl Tone {
    fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Quiet => Style::new().dimmed(),
            Self::Head => Style::new().bold(),
        }
    }

    /// A text in this tone.
    pub(crate) fn paint(self, text: &str) -> String {
        let style = self.style();
        format!("{style}{text}{style:#}")
    }

    /// The tone of a state, severity or outcome.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "CRITICAL" | "DEAD" | "FAILED" | "LOST" | "FINISHED_WITH_FAILURES" | "UNREADABLE" => Self::Bad,
            "WARNING" | "PAUSED" | "SUSPECT" | "RETRYING" | "EXPIRED" | "CANCELLED" | "SKIPPED"
            | "NOT RUN" | "DISABLED" => Self::Warning,
            "FINISHED" | "SUCCEEDED" => Self::Good,
            "EMITTED" | "SCHEDULED" => Self::Quiet,
            _ => Self::Plain,
        }
    }

    /// This tone where there are any, else none.
    pub(crate) fn if_any(self, count: u64) -> Self {
        if count > 0 { self } else { Self::Plain }
    }
}

/// A text without its styles.
#[cfg(test)]
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_has_no_escapes_and_the_rest_ends_its_own() {
        assert_eq!(Tone::of("RUNNING").paint("x"), "x");
        let bad = Tone::of("DEAD").paint("x");
        assert!(bad.starts_with('\u{1b}') && bad.ends_with("\u{1b}[0m"), "{bad:?}");
        assert_eq!(plain(&bad), "x");
    }
}
