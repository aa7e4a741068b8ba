//! Decides which edits are asked once more, and what they come to: a policy's new limits; a schedule's new triggers, target or
//! policy, or more events; a calendar's dates; an alert that tells others, or nobody.
//!
//! Not here: that what is edited can be kept at all, which the service has said before.

use std::borrow::Cow;

use maud::{Markup, html};
use serde_json::{Map, Value};
use tollgate_proto::json::to_json;
use tollgate_proto::v1;

use crate::pages::policy_acts::{Limits, edited_limits};
use crate::parts::confirm::Deed;
use crate::parts::draft::{Stored, What, would_be};
use crate::parts::forms::Texts;
use crate::parts::rules;
use crate::requests::links::to;
use crate::requests::problem::{Problem, read};
use crate::requests::visit::Visit;
use crate::words::sentence::sentence;
use crate::words::show::{counted, events_of, short};

/// How many dates a question names.
const DATES_NAMED: usize = 12;

/// An edit that is asked once more.
#[derive(Debug, PartialEq)]
pub(crate) enum Asks {
    /// A policy gets these limits.
    Limits(Limits),
    /// A schedule as it is, and as it would be.
    Schedule(Box<[v1::Schedule; 2]>),
    /// A calendar as it is, and as it would be.
    Calendar(Box<[v1::Calendar; 2]>),
    /// An alert as it is, and as it would be.
    Alert(Box<[v1::Alert; 2]>),
}

/// What is to be asked of an edit; nothing where it does no harm, or where something is made.
pub(crate) fn asks(what: What, stored: &Stored, texts: &Texts) -> Result<Option<Asks>, Problem> {
    if stored.id.is_empty() {
        return Ok(None);
    }
    let (members, _) = would_be(what, stored, texts)?;
    match (what, &stored.schedule) {
        (What::Schedule, Some(old)) => {
            let new: v1::Schedule = read(members.into())?;
            let more = events_of(&new) > events_of(old);
            let same = triggers(old) == triggers(&new) && old.target == new.target;
            let same = same && short(&old.policy) == short(&new.policy) && !more;
            Ok((!same).then(|| Asks::Schedule(Box::new([old.clone(), new]))))
        }
        (What::Calendar, _) => {
            let (old, new): (v1::Calendar, v1::Calendar) =
                (read(stored.members.clone().into())?, read(members.into())?);
            Ok((old.dates != new.dates).then(|| Asks::Calendar(Box::new([old, new]))))
        }
        (What::Alert, _) => {
            let (old, new): (v1::Alert, v1::Alert) =
                (read(stored.members.clone().into())?, read(members.into())?);
            let same = old.target == new.target && (old.disabled || !new.disabled);
            Ok((!same).then(|| Asks::Alert(Box::new([old, new]))))
        }
        _ => {
            let new = limits(members)?;
            Ok((new != limits(stored.members.clone())?).then_some(Asks::Limits(new)))
        }
    }
}

fn limits(members: Map<String, Value>) -> Result<Limits, Problem> {
    let policy: v1::Policy = read(members.into())?;
    Ok(Limits { max_in_flight: policy.max_in_flight, rate_per_second: policy.rate_per_second })
}

/// When it fires, however that is written.
fn triggers(schedule: &v1::Schedule) -> (Texts, &str) {
    let Value::Object(members) = to_json(schedule) else { return Default::default() };
    (rules::texts(schedule, &members), schedule.time_zone.as_str())
}

impl Asks {
    /// The question; its form says again what the form of the edit has said.
    pub(crate) async fn deed(&self, visit: &Visit, name: &str, texts: &Texts) -> Result<Deed, Problem> {
        let fields = texts.iter().filter(|(name, _)| !["confirmed", "reason"].contains(&name.as_str()));
        let fields = fields.map(|(name, text)| (name.clone(), text.clone())).collect();
        let path = format!("{}/edit", to(name));
        match self {
            Self::Limits(limits) => edited_limits(visit, name, limits, path, fields).await,
            Self::Schedule(pair) => Ok(Deed {
                question: format!("Change {}?", short(name)),
                effects: effects(&pair[0], &pair[1]),
                path,
                fields,
                button: "Save all changes",
                is_dangerous: true,
            }),
            Self::Calendar(pair) => Ok(Deed {
                question: format!("Change the dates of {}?", short(name)),
                effects: calendar_effects(visit, name, &pair[0], &pair[1]).await?,
                path,
                fields,
                button: "Save all changes",
                is_dangerous: true,
            }),
            Self::Alert(pair) => Ok(Deed {
                question: format!("Change {}?", short(name)),
                effects: alert_effects(&pair[0], &pair[1]),
                path,
                fields,
                button: "Save all changes",
                is_dangerous: true,
            }),
        }
    }
}

fn effects(old: &v1::Schedule, new: &v1::Schedule) -> Vec<Markup> {
    let mut effects = Vec::new();
    if triggers(old) != triggers(new) || events_of(old) != events_of(new) {
        let events = |schedule: &v1::Schedule| counted(events_of(schedule), "event");
        effects.push(html! {
            "It fires: " del { (events(old)) " " (sentence(old)) } " → "
            strong { (events(new)) " " (sentence(new)) } "."
        });
    }
    if old.target != new.target {
        let (before, after) = (goes_to(old), goes_to(new));
        effects.push(html! {
            @if before == after { "How its events go to " code { (after) } " changes: headers, secret, deadlines or release." }
            @else { "Its events go to: " del { (before) } " → " strong { (after) } "." }
        });
    }
    if short(&old.policy) != short(&new.policy) {
        let under =
            |policy: &str| if policy.is_empty() { "no policy".to_owned() } else { short(policy).to_owned() };
        effects.push(html! {
            "Its events start under: " del { (under(&old.policy)) } " → " strong { (under(&new.policy)) } "."
            @if new.policy.is_empty() { " Nothing limits how many are in flight at once." }
        });
    }
    effects.push(html! { "Runs that are not due yet are corrected; what is due already stays as it was." });
    effects.push(html! { "Whatever else was changed in the form is saved with it." });
    effects
}

async fn calendar_effects(
    visit: &Visit,
    name: &str,
    old: &v1::Calendar,
    new: &v1::Calendar,
) -> Result<Vec<Markup>, Problem> {
    let request = v1::GetCalendarRequest { name: name.to_owned() };
    let used_by = visit.api.master().get_calendar(request).await?.into_inner().used_by_count;
    let mut effects = Vec::new();
    let (gone, come) = (missing(&old.dates, &new.dates), missing(&new.dates, &old.dates));
    if !come.is_empty() {
        effects.push(html! { "From now on nothing fires on: " strong { (come) } "." });
    }
    if !gone.is_empty() {
        effects.push(html! { "It fires again on: " strong { (gone) } "." });
    }
    effects.push(
        html! { (counted(used_by, "schedule")) " named it when this page was made: all of them change." },
    );
    effects.push(html! { "Runs that are not due yet are corrected; what is due already stays as it was." });
    Ok(effects)
}

/// The first of these dates that are not among the others.
fn missing(dates: &[String], others: &[String]) -> String {
    let found: Vec<&str> = dates.iter().filter(|date| !others.contains(date)).map(String::as_str).collect();
    let more = if found.len() > DATES_NAMED { ", …" } else { "" };
    format!("{}{more}", found[..found.len().min(DATES_NAMED)].join(", "))
}

fn alert_effects(old: &v1::Alert, new: &v1::Alert) -> Vec<Markup> {
    let mut effects = Vec::new();
    if new.disabled && !old.disabled {
        effects.push(html! { strong { "Nobody is told by it any more" } ", nor afterwards of the time until it is enabled." });
    }
    if old.target != new.target {
        let (before, after) = (tells(old), tells(new));
        effects.push(html! {
            @if before == after { "How it tells " code { (after) } " changes: headers, secret or deadline." }
            @else { "It tells: " del { (before) } " → " strong { (after) } "." }
        });
    }
    effects.push(html! { "Whatever else was changed in the form is saved with it." });
    effects
}

/// Whom an alert tells.
pub(crate) fn tells(alert: &v1::Alert) -> &str {
    match alert.target.as_ref().and_then(|target| target.target.as_ref()) {
        Some(v1::alert_target::Target::Http(http)) => &http.url,
        Some(v1::alert_target::Target::Slack(slack)) => &slack.url,
        Some(v1::alert_target::Target::Sqs(sqs)) => &sqs.queue_url,
        None => "nobody",
    }
}

fn goes_to(schedule: &v1::Schedule) -> Cow<'_, str> {
    match schedule.target.as_ref().and_then(|target| target.target.as_ref()) {
        Some(v1::target::Target::Http(http)) => http.url.as_str().into(),
        Some(v1::target::Target::Sqs(sqs)) => sqs.queue_url.as_str().into(),
        Some(v1::target::Target::Kafka(kafka)) => kafka.shown().into(),
        Some(v1::target::Target::Pull(pull)) => pull.address().into(),
        None => "nowhere".into(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;
    use tollgate_proto::json::from_json;

    use super::*;
    use crate::parts::draft::{editable, filled};

    fn asked(what: What, stored: &Stored, texts: &[(&str, &str)]) -> Option<Asks> {
        let mut all = filled(what, stored);
        all.extend(texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())));
        asks(what, stored, &all).unwrap()
    }

    #[test]
    fn new_limits_are_told_from_other_changes() {
        let members = editable(json!({"max_in_flight": 8, "description": "x"}));
        let stored = Stored { id: "p".to_owned(), members, ..Stored::default() };
        let with = |texts: &[(&str, &str)]| asked(What::Policy, &stored, texts);
        let limits =
            |max_in_flight, rate_per_second| Some(Asks::Limits(Limits { max_in_flight, rate_per_second }));
        assert_eq!(with(&[("description", "y")]), None);
        assert_eq!(with(&[("max_in_flight", "5000")]), limits(Some(5_000), None));
        assert_eq!(with(&[("max_in_flight", ""), ("rate_per_second", "0.5")]), limits(None, Some(0.5)));
        assert_eq!(with(&[("form", "json"), ("json", "{\"max_in_flight\": 9}")]), limits(Some(9), None));
        assert_eq!(with(&[("form", "json"), ("json", "{\"max_in_flight\": 8}")]), None);
        let new = Stored { id: String::new(), ..stored.clone() };
        assert_eq!(asked(What::Policy, &new, &[("max_in_flight", "9")]), None, "it is made, not changed");
    }

    #[test]
    fn an_alert_that_tells_nobody_is_asked_once_more() {
        let members = editable(json!({
            "name": "namespaces/a/alerts/b", "status": {"sent_count": 3}, "troubles": {},
            "target": {"http": {"url": "http://x/y", "has_secret": true}},
        }));
        let stored = Stored { id: "b".to_owned(), members, ..Stored::default() };
        let with = |texts: &[(&str, &str)]| asked(What::Alert, &stored, texts);
        for same in
            [("group_wait", "10s"), ("disabled", "false"), ("troubles.kinds:TROUBLE_KIND_NOT_SENT", "yes")]
        {
            assert_eq!(with(&[same]), None, "{same:?}");
        }
        let said = |texts: &[(&str, &str)]| {
            let Some(Asks::Alert(pair)) = with(texts) else { panic!("{texts:?} is not asked") };
            alert_effects(&pair[0], &pair[1]).into_iter().map(Markup::into_string).collect::<String>()
        };
        assert!(said(&[("disabled", "true")]).contains("Nobody is told"));
        let moved = said(&[("target.http.url", ""), ("target.slack.url", "https://s/1")]);
        assert!(moved.contains("<strong>https://s/1</strong>"), "{moved}");
    }

    #[test]
    fn new_triggers_and_targets_are_told_from_other_changes() {
        let schedule: v1::Schedule = from_json(json!({
            "triggers": [{"fields": {"minute": "0", "hour": "3"}}, {"interval": {"every": "15m"}}], "events": 5,
            "target": {"http": {"url": "http://x/y", "has_secret": true, "headers": {"a": "***"}}},
        }))
        .unwrap();
        let members = editable(to_json(&schedule));
        let schedule = Some(schedule);
        let stored = Stored { id: "s".to_owned(), members, schedule, ..Stored::default() };
        let with = |texts: &[(&str, &str)]| asked(What::Schedule, &stored, texts);
        for same in [("events", "4"), ("intervals", "900s"), ("description", "a\r\nb"), ("form", "json")] {
            assert_eq!(with(&[same]), None, "{same:?}");
        }
        let said = |texts: &[(&str, &str)]| {
            let Some(Asks::Schedule(pair)) = with(texts) else { panic!("{texts:?} is not asked") };
            effects(&pair[0], &pair[1]).into_iter().map(Markup::into_string).collect::<String>()
        };
        let fires = said(&[("intervals", "6h")]);
        assert!(fires.contains("It fires") && !fires.contains("events go"), "{fires}");
        let target = said(&[("target.http.url", "http://x/z")]);
        assert!(target.contains("<strong>http://x/z</strong>") && !target.contains("It fires"), "{target}");
        let secret = said(&[("target.http.secret", "whsec_abc")]);
        assert!(secret.contains("secret") && !secret.contains("whsec_abc"), "{secret}");
        assert!(with(&[("time_zone", "Europe/Berlin")]).is_some());
        let more = said(&[("events", "20000")]);
        assert!(more.contains("<strong>20,000 events") && !more.contains("events go"), "{more}");
        let items = r#"[{"data":1},{"data":2},{"data":3},{"data":4},{"data":5}]"#;
        assert_eq!(with(&[("events", ""), ("items", items)]), None, "as many as before");
        let more = said(&[("events", ""), ("items", &items.replace(']', r#",{"data":6}]"#))]);
        assert!(more.contains("<strong>6 events"), "{more}");
        assert!(said(&[("policy", "p")]).contains("<del>no policy</del> → <strong>p</strong>"));
    }
}
