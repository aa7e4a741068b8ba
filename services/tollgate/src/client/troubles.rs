//! `tollgate troubles`: what is wrong, worst first, and what to do.

use clap::Args;
use tollgate_proto::v1;

use super::namespaces::Everywhere;
use super::rows::word;
use super::style::Tone;
use super::watch::{self, WatchArgs};
use super::when::relative;
use super::{Session, pages};

/// How many stand at the head of `tollgate status`.
const IN_STATUS_MAX: i32 = 10;

/// Arguments of `troubles`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TroublesArgs {
    #[command(flatten)]
    everywhere: Everywhere,

    /// Terms joined by AND, such as severity=CRITICAL, kind=TARGET_REFUSES, policy=imports, schedule=nightly
    #[arg(long, default_value = "")]
    filter: String,

    /// The most troubles that are shown; 0 means all
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,

    #[command(flatten)]
    watch: WatchArgs,
}

/// Prints what is wrong.
///
/// # Errors
/// What the service says, or those of writing.
pub(crate) async fn run(session: Session, args: TroublesArgs) -> anyhow::Result<()> {
    watch::run(session, args.watch, async |session| once(session, &args).await).await
}

async fn once(session: &Session, args: &TroublesArgs) -> anyhow::Result<()> {
    let parent = args.everywhere.parent(session);
    let (mut total_size, mut incomplete) = (0, false);
    let (troubles, next_page_token) = pages::collect(args.limit, async |page_size, page_token| {
        let (parent, filter) = (parent.clone(), args.filter.clone());
        let request = v1::ListTroublesRequest { parent, page_size, page_token, filter };
        let answer = session.handler().list_troubles(request).await;
        let page = answer.map_err(|status| session.failure("list troubles", status))?.into_inner();
        (total_size, incomplete) = (page.total_size, page.incomplete || incomplete);
        Ok((page.troubles, page.next_page_token))
    })
    .await?;
    let answer = v1::ListTroublesResponse { troubles, next_page_token, total_size, incomplete };
    session.printer.message(&answer, |answer| text(session.now_us, answer, true))
}

/// What stands at the head of `tollgate status`.
pub(super) fn request(parent: String) -> v1::ListTroublesRequest {
    v1::ListTroublesRequest { parent, page_size: IN_STATUS_MAX, ..v1::ListTroublesRequest::default() }
}

/// The troubles, one below the other; `to_do`: with what to do.
pub(super) fn text(now_us: i64, answer: &v1::ListTroublesResponse, to_do: bool) -> String {
    let mut text = String::new();
    for trouble in &answer.troubles {
        let severity = word(trouble.severity().as_str_name(), "TROUBLE_SEVERITY_");
        let since = relative(now_us, trouble.since_time.as_ref());
        let since = if since.is_empty() { String::new() } else { format!(", began {since}") };
        let head = Tone::of(&severity).paint(&format!("{severity}:"));
        text.push_str(&format!("{head} {}{since}\n", one_line(&trouble.summary)));
        if to_do {
            text.push_str(&format!("    {}\n", one_line(&trouble.what_to_do)));
        }
    }
    let more = answer.total_size.saturating_sub(u32::try_from(answer.troubles.len()).unwrap_or(u32::MAX));
    if more > 0 {
        text.push_str(&format!("and {more} more: tollgate troubles --limit 0\n"));
    }
    if answer.total_size == 0 {
        let none = match answer.incomplete {
            true => "no troubles are known".to_owned(),
            false => Tone::Good.paint("no troubles"),
        };
        text.push_str(&format!("{none}\n"));
    }
    if answer.incomplete {
        text.push_str("some may be missing: not everything could be looked at\n");
    }
    text
}

/// What targets say may have any characters.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use tollgate_core::trouble::{Kind, Subject, Trouble};
    use tollgate_proto::convert::timestamp;

    use super::super::style::plain;
    use super::*;
    use crate::cli::Cli;

    /// Somebody who copies a command gets no usage error.
    #[test]
    fn what_to_do_names_commands_that_there_are() {
        let mut commands = 0;
        for (kind, namespace) in Kind::ALL.into_iter().zip(["default", "team"].into_iter().cycle()) {
            let id = |text: &str| text.to_owned();
            let (policy, schedule) = (id("imports"), id("nightly"));
            let subject = Subject { namespace: id(namespace), policy, schedule, ..Subject::default() };
            let to_do = Trouble::new(kind, subject).what_to_do();
            for command in to_do.split('`').skip(1).step_by(2) {
                let parsed = Cli::try_parse_from(command.split_whitespace());
                assert!(parsed.is_ok(), "{kind:?}: {command}: {:?}", parsed.err());
                commands += 1;
            }
        }
        assert!(commands > 8, "only {commands}");
    }

    #[test]
    fn troubles_are_told_with_since_when_and_what_to_do() {
        let now_us = 1_774_746_000_000_000;
        let refuses = v1::Trouble {
            severity: v1::TroubleSeverity::Critical.into(),
            summary: "http://b7:80 refuses the events of nightly (300 events wait): no\nroute".to_owned(),
            what_to_do: "Look at the consumer.".to_owned(),
            since_time: Some(timestamp(now_us - 720_000_000)),
            ..v1::Trouble::default()
        };
        let answer = v1::ListTroublesResponse {
            troubles: vec![refuses],
            total_size: 3,
            incomplete: true,
            ..v1::ListTroublesResponse::default()
        };
        assert_eq!(
            plain(&text(now_us, &answer, true)),
            "CRITICAL: http://b7:80 refuses the events of nightly (300 events wait): no route, began 12m ago\n    \
             Look at the consumer.\nand 2 more: tollgate troubles --limit 0\nsome may be missing: not everything \
             could be looked at\n"
        );
        assert!(!text(now_us, &answer, false).contains("Look"));
        assert_eq!(plain(&text(now_us, &v1::ListTroublesResponse::default(), true)), "no troubles\n");
    }
}
