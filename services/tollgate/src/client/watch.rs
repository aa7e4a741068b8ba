//! `--watch`: shows an answer again and again, as it changes.
//!
//! A terminal is drawn anew each time. Elsewhere what has changed is appended, with the time. A service that goes away is
//! said, and asked again; only the first answer must come.

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::Args;
use tollgate_proto::convert::timestamp;

use super::Session;
use super::output::Printer;
use super::style::Tone;
use super::when::exact;

/// Clears a terminal, and what has been scrolled away, and goes to its beginning.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// Flags of commands that can be repeated.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WatchArgs {
    /// Show it again and again. On a terminal it is drawn anew; elsewhere what has changed is appended
    #[arg(short, long)]
    watch: bool,

    /// With --watch: the time between two looks
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    interval: Duration,
}

/// Prints what `once` prints, once or again and again.
///
/// # Errors
/// What `once` says the first time; those of writing.
pub(super) async fn run(
    mut session: Session,
    args: WatchArgs,
    once: impl AsyncFn(&Session) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if !args.watch {
        return once(&session).await;
    }
    let format = session.printer.format();
    let out = std::mem::replace(&mut session.printer, Printer::holding(format));
    let is_terminal = std::io::stdout().is_terminal() && session.printer.is_text();
    let mut shown = Shown::default();
    loop {
        session.look_at_the_clock();
        let answer = once(&session).await;
        let text = session.printer.take();
        match answer {
            Ok(()) => shown.took(text),
            Err(error) if shown.text.is_none() => return Err(error),
            Err(error) => shown.lost(session.now_us, &format!("{error:#}")),
        }
        if is_terminal {
            raw(&(CLEAR.to_owned() + &shown.drawn(session.now_us)), &out)?;
        } else if let Some(text) = shown.appended(session.now_us, out.is_text()) {
            out.text(&text)?;
        }
        tokio::time::sleep(args.interval.max(Duration::from_millis(100))).await;
    }
}

/// Clearing is no colour, and stays where colours are taken out.
fn raw(text: &str, out: &Printer) -> anyhow::Result<()> {
    use std::io::Write as _;
    let (clear, rest) = text.split_at(CLEAR.len());
    let mut terminal = std::io::stdout();
    terminal.write_all(clear.as_bytes())?;
    out.text(rest)
}

/// What has been seen, and what the reader knows of it.
#[derive(Debug, Default)]
struct Shown {
    /// The latest answer.
    text: Option<String>,
    /// Since when there is none, and why.
    lost: Option<(i64, String)>,
    /// What was appended last.
    appended: Option<String>,
}

impl Shown {
    fn took(&mut self, text: String) {
        (self.text, self.lost) = (Some(text), None);
    }

    fn lost(&mut self, now_us: i64, why: &str) {
        let since_us = self.lost.as_ref().map_or(now_us, |(since_us, _)| *since_us);
        self.lost = Some((since_us, why.lines().next().unwrap_or_default().to_owned()));
    }

    /// All of it, for a terminal: with what is wrong above the old answer.
    fn drawn(&self, now_us: i64) -> String {
        let at = exact(Some(&timestamp(now_us / 1_000_000 * 1_000_000)));
        let head = match &self.lost {
            Some((since_us, why)) => {
                let age = super::when::span((now_us - since_us).unsigned_abs() / 1_000);
                Tone::Bad.paint(&format!("{at}  no answer for {age}, what follows is old: {why}"))
            }
            None => Tone::Quiet.paint(&at),
        };
        format!("{head}\n{}", self.text.as_deref().unwrap_or_default())
    }

    /// What is new, with the time before it where people read it.
    fn appended(&mut self, now_us: i64, is_text: bool) -> Option<String> {
        let fresh = match &self.lost {
            Some((_, why)) => format!("no answer: {why}\n"),
            None => self.text.clone().unwrap_or_default(),
        };
        if self.appended.as_ref() == Some(&fresh) || self.lost.is_some() && !is_text {
            return None;
        }
        let at = exact(Some(&timestamp(now_us / 1_000_000 * 1_000_000)));
        let text = if is_text { format!("{}\n{fresh}", Tone::Quiet.paint(&at)) } else { fresh.clone() };
        self.appended = Some(fresh);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::style::plain;
    use super::*;

    #[test]
    fn only_what_is_new_is_appended() {
        let mut shown = Shown::default();
        shown.took("a\n".to_owned());
        assert_eq!(
            shown.appended(0, true).map(|text| plain(&text)),
            Some("1970-01-01T00:00:00Z\na\n".to_owned())
        );
        shown.took("a\n".to_owned());
        assert_eq!(shown.appended(1, true), None);
        shown.lost(2, "gone\nhint: x");
        assert!(shown.appended(2, true).is_some_and(|text| text.contains("no answer: gone\n")));
        assert_eq!(shown.appended(3, true), None);
        shown.took("a\n".to_owned());
        let back = shown.appended(4_000_000, false);
        assert_eq!(back.as_deref(), Some("a\n"), "it is back, and as it was");
    }

    #[test]
    fn an_old_answer_says_how_old_it_is() {
        let mut shown = Shown::default();
        shown.took("a\n".to_owned());
        shown.lost(1_000_000, "gone");
        shown.lost(9_000_000, "gone");
        assert!(shown.drawn(13_000_000).contains("no answer for 12s, what follows is old: gone"));
        assert!(shown.drawn(13_000_000).ends_with("\na\n"));
    }
}
