//! Decides how it is said what was done to which resource, and what that comes to.

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tollgate_proto::convert::payload;
use tollgate_proto::v1;

use super::super::gauges::{self, Gauges};
use super::super::names::{kind_and_id, namespace_of, parent};
use super::super::style::Tone;
use super::super::{Session, when};

/// The most characters of a value.
const VALUE_CHARS_MAX: usize = 60;
/// Fields below which keys are the user's own, and stay as they are.
const FREE: [&str; 4] = ["labels", "payload", "items", "headers"];

/// A line for each resource that was made or changed, with what changed; with its effects where `dry_run`.
pub(super) async fn text(session: &Session, answer: &v1::ApplyResourcesResponse, dry_run: bool) -> String {
    let mut text = String::new();
    let mut known = Known::default();
    for result in &answer.results {
        let name = match namespace_of(&result.name) {
            own if own == session.namespace => kind_and_id(&result.name),
            other => format!("{} in {other}", kind_and_id(&result.name)),
        };
        text.push_str(&match (result.action(), dry_run) {
            (v1::ApplyAction::Created, false) => format!("{name} {}\n", Tone::Good.paint("created")),
            (v1::ApplyAction::Created, true) => {
                format!("{name} {}\n", Tone::Good.paint("would be created"))
            }
            (_, false) => {
                let fields =
                    changes(result.difference.as_ref()).map(|(path, change)| format!("{path} {change}"));
                let fields = fields.collect::<Vec<_>>().join(", ");
                format!("{name} {} ({fields})\n", Tone::Warning.paint("updated"))
            }
            (_, true) => format!("{name} {}\n", Tone::Warning.paint("would be updated")),
        });
        if dry_run && result.action() == v1::ApplyAction::Updated {
            for (path, change) in changes(result.difference.as_ref()) {
                text.push_str(&format!("    {path}: {change}\n"));
            }
            for effect in effects(result, known.gauge(session, &result.name).await) {
                text.push_str(&format!("    {}\n", Tone::Quiet.paint(&effect)));
            }
        }
    }
    if answer.unlisted_results_count > 0 {
        text.push_str(&format!("… and {} more\n", answer.unlisted_results_count));
    }
    text
}

/// The buckets of the namespaces that were asked about.
#[derive(Default)]
struct Known(Vec<(String, Gauges)>);

impl Known {
    async fn gauge(&mut self, session: &Session, name: &str) -> Option<&v1::PolicyGauge> {
        if !name.contains("/policies/") {
            return None;
        }
        let namespace = namespace_of(name);
        if !self.0.iter().any(|(known, _)| known == namespace) {
            self.0.push((namespace.to_owned(), gauges::of(session, parent(namespace)).await));
        }
        self.0.iter().find(|(known, _)| known == namespace)?.1.get(name)
    }
}

/// Each field with what it was and what it is, by path in the spelling of files.
pub(super) fn changes(difference: Option<&Struct>) -> impl Iterator<Item = (String, String)> {
    difference.into_iter().flat_map(|difference| &difference.fields).map(|(path, sides)| {
        let side = |name: &str| match &sides.kind {
            Some(Kind::StructValue(sides)) => sides.fields.get(name).map(value),
            _ => None,
        };
        let change = match (side("old"), side("new")) {
            (Some(old), Some(new)) => format!("{old} -> {new}"),
            (None, Some(new)) => format!("none -> {new}"),
            (Some(old), None) => format!("{old} -> none"),
            (None, None) => String::new(),
        };
        (in_files(path), change)
    })
}

/// `retry.min_backoff` as `retry.minBackoff`.
fn in_files(path: &str) -> String {
    let mut is_free = false;
    let parts = path.split('.').map(|part| {
        let shown = if is_free { part.to_owned() } else { camel(part) };
        is_free |= FREE.contains(&part);
        shown
    });
    parts.collect::<Vec<_>>().join(".")
}

fn camel(snake: &str) -> String {
    let mut parts = snake.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// A value on one line: text without quotes where it stands alone.
fn value(value: &Value) -> String {
    let text = match &value.kind {
        Some(Kind::StringValue(text)) => text.clone(),
        // A value that JSON cannot express is no value.
        _ => payload::to_core("", Some(value)).map(|payload| payload.json.to_string()).unwrap_or_default(),
    };
    let mut shown: String = text
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(VALUE_CHARS_MAX)
        .collect();
    if text.chars().nth(VALUE_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

fn number(difference: &Struct, path: &str, side: &str) -> Option<f64> {
    let Some(Kind::StructValue(sides)) = &difference.fields.get(path)?.kind else { return None };
    match sides.fields.get(side)?.kind {
        Some(Kind::NumberValue(number)) => Some(number),
        _ => None,
    }
}

/// What a change comes to, in sentences.
fn effects(result: &v1::ApplyResult, gauge: Option<&v1::PolicyGauge>) -> Vec<String> {
    let Some(difference) = &result.difference else { return Vec::new() };
    let changes = |path: &str| difference.fields.contains_key(path);
    if result.name.contains("/schedules/") {
        let corrected = ["triggers", "time_zone", "events", "policy", "spread", "start_within", "exclude"]
            .into_iter()
            .any(changes);
        let said = "Runs that are not due yet are corrected; what is due already stays as it was.";
        return corrected.then(|| said.to_owned()).into_iter().collect();
    }
    let mut effects = Vec::new();
    let Some(gauge) = gauge else {
        let limits = ["max_in_flight", "rate_per_second"].into_iter().any(changes);
        let said = "How much waits for it and is in flight cannot be said now.";
        return (limits && result.name.contains("/policies/")).then(|| said.to_owned()).into_iter().collect();
    };
    if changes("max_in_flight") {
        effects.push(starting(gauge, number(difference, "max_in_flight", "new")));
    }
    if let Some(rate) = number(difference, "rate_per_second", "new").filter(|rate| *rate > 0.0)
        && gauge.waiting_count > 0
    {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "for people"
        )]
        let ms = (gauge.waiting_count as f64 / rate * 1_000.0) as u64;
        effects.push(format!(
            "At that rate, the {} start within {}.",
            events(gauge.waiting_count),
            when::span(ms)
        ));
    }
    effects
}

/// What may start under a new limit, and what may not.
fn starting(gauge: &v1::PolicyGauge, limit: Option<f64>) -> String {
    let (held, waiting) = (gauge.held_count, gauge.waiting_count);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a u32 as a double")]
    let free = limit.map_or(u64::MAX, |limit| (limit as u64).saturating_sub(held));
    match (free.min(waiting), waiting) {
        (_, 0) => format!("No event waits for it now; {held} are in flight."),
        (0, _) => format!("{held} tokens are held: nothing starts until enough of them have come back."),
        (starts, _) if gauge.paused => format!("{} may start at once when it is resumed.", events(starts)),
        (starts, _) => format!("{} may start at once, of {waiting} that wait.", events(starts)),
    }
}

fn events(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result(name: &str, difference: serde_json::Value) -> v1::ApplyResult {
        v1::ApplyResult {
            name: name.to_owned(),
            action: v1::ApplyAction::Updated.into(),
            difference: difference.as_object().map(payload::struct_from_json),
            ..v1::ApplyResult::default()
        }
    }

    #[test]
    fn changes_are_told_in_the_spelling_of_files() {
        let of = result(
            "namespaces/default/schedules/s",
            json!({
                "retry.min_backoff": {"old": "1s", "new": "2s"},
                "labels.my_key": {"new": "a"},
                "triggers": {"old": [{"cron": "0 3 * * *"}], "new": [{"cron": "0 4 * * *"}]},
                "finish_by": {"old": "3600s"},
            }),
        );
        let told: Vec<String> =
            changes(of.difference.as_ref()).map(|(path, change)| format!("{path} {change}")).collect();
        assert_eq!(
            told,
            [
                "finishBy 3600s -> none",
                "labels.my_key none -> a",
                "retry.minBackoff 1s -> 2s",
                r#"triggers [{"cron":"0 3 * * *"}] -> [{"cron":"0 4 * * *"}]"#,
            ]
        );
        assert_eq!(effects(&of, None).len(), 1);
    }

    #[test]
    fn a_limit_says_how_much_may_start() {
        let limit = |old: u32, new: u32| {
            result("namespaces/a/policies/p", json!({"max_in_flight": {"old": old, "new": new}}))
        };
        let gauge = |held_count, waiting_count| v1::PolicyGauge {
            held_count,
            waiting_count,
            ..v1::PolicyGauge::default()
        };
        let said = |of: &v1::ApplyResult, held, waiting| effects(of, Some(&gauge(held, waiting))).join(" ");
        let raised = limit(50, 5_000);
        assert_eq!(said(&raised, 50, 14_431), "4950 events may start at once, of 14431 that wait.");
        assert_eq!(said(&raised, 50, 1), "1 event may start at once, of 1 that wait.");
        assert_eq!(said(&raised, 50, 0), "No event waits for it now; 50 are in flight.");
        assert!(said(&limit(50, 5), 50, 9).starts_with("50 tokens are held: nothing starts until"));
        assert!(effects(&raised, None)[0].contains("cannot be said now"));
        let rate = result("namespaces/a/policies/p", json!({"rate_per_second": {"old": 1, "new": 10}}));
        assert_eq!(said(&rate, 0, 600), "At that rate, the 600 events start within 1m.");
    }
}
