//! The same to many schedules: those of `-l` and `--filter`.
//!
//! In: which schedules, and what is done. Out: steps, each of which says how far it is. Invariants: nothing is changed before the
//! caller has said yes; whatever ends the steps, the caller is told how to go on; a step that is repeated triggers nothing twice.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Args;
use tollgate_proto::v1;
use uuid::Uuid;

use super::{Session, names};
use crate::usage::Usage;

/// The most refusals that are printed.
const REFUSALS_MAX: usize = 20;

/// Which schedules, and how.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ManyArgs {
    /// All schedules with this label, such as team=billing, instead of one; several are joined by AND
    #[arg(short, long = "label", value_name = "KEY=VALUE")]
    label: Vec<String>,

    /// All schedules that match, as in `get schedules --filter`, instead of one
    #[arg(long, value_name = "TERMS", default_value = "")]
    filter: String,

    /// With --label or --filter: count them, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// With --label or --filter: do it, without a count and a question first
    #[arg(short, long)]
    yes: bool,

    /// Go on where steps with the same terms have ended
    #[arg(long, value_name = "TOKEN", default_value = "")]
    page_token: String,
}

impl ManyArgs {
    /// Whether schedules are meant that match, and not one by its name.
    pub(super) fn are_given(&self) -> bool {
        !(self.label.is_empty() && self.filter.trim().is_empty())
    }

    /// Refuses flags that only many have, where one is meant.
    ///
    /// # Errors
    /// The flag.
    pub(super) fn refuse(&self) -> Result<(), Usage> {
        let flags =
            [("--dry-run", self.dry_run), ("--yes", self.yes), ("--page-token", !self.page_token.is_empty())];
        match flags.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Usage(format!("{flag} is for many schedules: add --label or --filter"))),
            None => Ok(()),
        }
    }

    fn terms(&self) -> Result<String, Usage> {
        let mut terms = Vec::new();
        for label in &self.label {
            let (key, value) = label.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                Usage(format!("--label {label:?} is not allowed, expected KEY=VALUE such as team=billing"))
            })?;
            terms.push(format!("label.{key}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")));
        }
        if !self.filter.trim().is_empty() {
            terms.push(self.filter.trim().to_owned());
        }
        Ok(terms.join(" AND "))
    }
}

/// What is done to them.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Pause,
    Resume,
    Delete,
    Trigger { events: Option<u32>, request_id: Option<String> },
}

/// What a step came to.
struct Step {
    matched: u32,
    done: u32,
    refusals: Vec<v1::ScheduleRefusal>,
    refused: u32,
    next: String,
}

/// What some steps came to.
#[derive(Default)]
struct Sum {
    matched: u64,
    done: u64,
    refused: u64,
    refusals: Vec<v1::ScheduleRefusal>,
}

macro_rules! answered {
    ($answer:expr, $done:ident) => {{
        let answer = $answer.into_inner();
        Step {
            matched: answer.matched_count,
            done: answer.$done,
            refusals: answer.refusals,
            refused: answer.refused_count,
            next: answer.next_page_token,
        }
    }};
}

impl Act {
    fn command(&self) -> String {
        match self {
            Self::Pause => "pause schedules".to_owned(),
            Self::Resume => "resume schedules".to_owned(),
            Self::Delete => "delete schedules".to_owned(),
            Self::Trigger { events, request_id } => {
                let events = events.map(|events| format!(" --events {events}")).unwrap_or_default();
                let id = request_id.as_ref().map(|id| format!(" --request-id {id}")).unwrap_or_default();
                format!("trigger{events}{id}")
            }
        }
    }

    /// What has been done to so many.
    fn done(&self, n: u64) -> String {
        let what = schedules(n);
        match self {
            Self::Pause => format!("paused {what}"),
            Self::Resume => format!("resumed {what}"),
            Self::Delete => format!("deleted {what}"),
            Self::Trigger { .. } => format!("triggered {what}"),
        }
    }

    async fn step(&self, session: &Session, filter: &str, token: &str, dry: bool) -> anyhow::Result<Step> {
        let (parent, filter, page_token) = (session.parent(), filter.to_owned(), token.to_owned());
        let (validate_only, mut master) = (dry, session.master());
        let tried = |status| session.failure(self.command(), status);
        Ok(match self {
            Self::Pause => {
                let reason = session.reason.clone();
                let request = v1::PauseSchedulesRequest { parent, filter, page_token, validate_only, reason };
                answered!(master.pause_schedules(request).await.map_err(tried)?, paused_count)
            }
            Self::Resume => {
                let request = v1::ResumeSchedulesRequest { parent, filter, page_token, validate_only };
                answered!(master.resume_schedules(request).await.map_err(tried)?, resumed_count)
            }
            Self::Delete => {
                let request = v1::DeleteSchedulesRequest { parent, filter, page_token, validate_only };
                answered!(master.delete_schedules(request).await.map_err(tried)?, deleted_count)
            }
            Self::Trigger { events, request_id } => {
                let (events, request_id) = (*events, request_id.clone().unwrap_or_default());
                let request = v1::TriggerSchedulesRequest {
                    parent,
                    filter,
                    page_token,
                    validate_only,
                    request_id,
                    events,
                };
                answered!(master.trigger_schedules(request).await.map_err(tried)?, triggered_count)
            }
        })
    }
}

fn schedules(n: u64) -> String {
    if n == 1 { "1 schedule".to_owned() } else { format!("{n} schedules") }
}

/// Does it to all schedules that match.
///
/// # Errors
/// What the service says, or those of writing.
pub(super) async fn act(session: &Session, act: Act, args: &ManyArgs) -> anyhow::Result<()> {
    // Of an act that is not harmless when it is repeated, each step has an id.
    let act = match act {
        Act::Trigger { events, request_id: None } => {
            Act::Trigger { events, request_id: Some(format!("cli-{}", Uuid::new_v4().simple())) }
        }
        act => act,
    };
    let filter = args.terms()?;
    if args.dry_run || !args.yes {
        let counted = steps(session, &act, &filter, &args.page_token, true).await?;
        if args.dry_run || counted.matched == 0 || !is_wanted(&counted, &act)? {
            return said(session, &counted, None, args.dry_run);
        }
    }
    let sum = steps(session, &act, &filter, &args.page_token, false).await?;
    said(session, &sum, Some(&act), false)
}

fn said(session: &Session, sum: &Sum, act: Option<&Act>, dry: bool) -> anyhow::Result<()> {
    if session.printer.is_json() {
        let refusals = sum.refusals.iter();
        let refusals: Vec<_> = refusals
            .map(|one| serde_json::json!({ "schedule": one.schedule, "message": one.message }))
            .collect();
        return session.printer.json(&serde_json::json!({
            "matched": sum.matched, "done": sum.done, "refused": sum.refused, "refusals": refusals,
        }));
    }
    let Some(act) = act else {
        let verb = if sum.matched == 1 { "matches" } else { "match" };
        let rest = if dry || sum.matched == 0 { "" } else { "; nothing is changed without --yes" };
        return session.printer.line(&format!("{} {verb}{rest}", schedules(sum.matched)));
    };
    for one in &sum.refusals {
        session.printer.line(&format!("{}: {}", names::short(&one.schedule), one.message))?;
    }
    let others = if sum.refused == 0 { String::new() } else { format!("; {} refused", sum.refused) };
    session.printer.line(&format!("{} of {} that matched{others}", act.done(sum.done), sum.matched))
}

/// Asks on a terminal; elsewhere nobody says yes.
fn is_wanted(counted: &Sum, act: &Act) -> anyhow::Result<bool> {
    let (input, mut output) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !output.is_terminal() {
        return Ok(false);
    }
    let verb = act.command();
    let verb = verb.split(' ').next().unwrap_or_default();
    write!(output, "{verb} {}? [y/N] ", schedules(counted.matched))?;
    output.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// All steps from a token on.
async fn steps(session: &Session, act: &Act, filter: &str, from: &str, dry: bool) -> anyhow::Result<Sum> {
    let (mut sum, mut token) = (Sum::default(), from.to_owned());
    loop {
        let step = tokio::select! {
            step = act.step(session, filter, &token, dry) => step,
            stopped = tokio::signal::ctrl_c() => match stopped {
                Ok(()) => Err(anyhow::anyhow!("stopped")),
                Err(error) => Err(error.into()),
            },
        };
        let step = match step {
            Ok(step) => step,
            Err(error) if dry => return Err(error),
            Err(error) => return Err(error.context(how_to_go_on(act, filter, &token, sum.done))),
        };
        sum.matched += u64::from(step.matched);
        sum.done += u64::from(step.done);
        sum.refused += u64::from(step.refused);
        let room = REFUSALS_MAX.saturating_sub(sum.refusals.len());
        sum.refusals.extend(step.refusals.into_iter().take(room));
        token = step.next;
        if token.is_empty() {
            return Ok(sum);
        }
    }
}

fn how_to_go_on(act: &Act, filter: &str, token: &str, done: u64) -> String {
    let quoted = filter.replace('\'', "'\\''");
    let token = if token.is_empty() { String::new() } else { format!(" --page-token {token}") };
    format!("{}; to go on: tollgate {} --yes --filter '{quoted}'{token}", act.done(done), act.command())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_terms_are_joined_and_quoted() {
        let args = ManyArgs {
            label: vec!["team=billing".to_owned(), "note=a \"b\"=c".to_owned()],
            filter: " state=ACTIVE ".to_owned(),
            ..ManyArgs::default()
        };
        assert!(args.are_given() && !ManyArgs::default().are_given());
        let terms = args.terms();
        let expected = r#"label.team="billing" AND label.note="a \"b\"=c" AND state=ACTIVE"#;
        assert_eq!(terms.ok().as_deref(), Some(expected));
        let wrong = ManyArgs { label: vec!["team".to_owned()], ..ManyArgs::default() };
        assert!(wrong.terms().is_err_and(|usage| usage.0.contains("KEY=VALUE")));
    }

    #[test]
    fn flags_of_many_are_refused_for_one() {
        let args = ManyArgs { yes: true, ..ManyArgs::default() };
        assert!(args.refuse().is_err_and(|usage| usage.0.starts_with("--yes is for many")));
        assert!(ManyArgs::default().refuse().is_ok());
    }

    #[test]
    fn who_was_stopped_is_told_how_to_go_on() {
        let trigger = Act::Trigger { events: Some(3), request_id: Some("x".to_owned()) };
        assert_eq!(
            how_to_go_on(&trigger, "label.a=\"it's\"", "t0", 1),
            "triggered 1 schedule; to go on: tollgate trigger --events 3 --request-id x --yes --filter \
             'label.a=\"it'\\''s\"' --page-token t0"
        );
    }
}
