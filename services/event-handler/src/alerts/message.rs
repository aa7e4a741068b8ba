//! What a message looks like: a CloudEvent for machines, a text for people.

use serde_json::{Map, Value, json};
use tollgate_core::alert::{Ended, Item, Message};
use tollgate_core::model::{Alert, AlertTarget};
use tollgate_core::trouble::Severity;
use tollgate_proto::convert::names;
use tollgate_target::{CONTENT_TYPE, Parcel, rfc3339};
use uuid::Uuid;

const TYPE: &str = "dev.tollgate.alert.v1";
const JSON: &str = "application/json; charset=utf-8";
/// Slack takes 3,000 characters in a block of text, and 50 blocks.
const BLOCK_CHARS: usize = 2_800;
const BLOCKS_MAX: usize = 40;

/// A message as its receiver gets it.
pub(super) fn parcel(alert: &Alert, message: &Message) -> Parcel {
    let id = format!("{}-{}", alert.uid.simple(), message.number);
    let headline = headline(alert, message);
    match alert.target {
        AlertTarget::Slack { .. } => of_text(alert, id, &headline, lines(message)),
        _ => of_event(alert, id, message.made_us, data(alert, message, &headline)),
    }
}

/// A message that says it is a test.
pub(super) fn test(alert: &Alert, now_us: i64) -> Parcel {
    let id = format!("{}-test-{}", alert.uid.simple(), Uuid::now_v7().simple());
    let headline =
        format!("Tollgate, {}: a test of the alert {}. Nothing is wrong.", alert.namespace, alert.id);
    match alert.target {
        AlertTarget::Slack { .. } => of_text(alert, id, &headline, Vec::new()),
        _ => {
            let mut data = data(alert, &Message::default(), &headline);
            data["test"] = Value::Bool(true);
            of_event(alert, id, now_us, data)
        }
    }
}

fn name(alert: &Alert) -> String {
    names::of_alert(&alert.namespace, &alert.id)
}

fn of_event(alert: &Alert, id: String, time_us: i64, data: Value) -> Parcel {
    let event = json!({
        "specversion": "1.0",
        "id": id,
        "source": format!("/{}", name(alert)),
        "type": TYPE,
        "subject": name(alert),
        "time": rfc3339(time_us),
        "datacontenttype": "application/json",
        "data": data,
    });
    of(alert, id, CONTENT_TYPE, event.to_string())
}

fn of_text(alert: &Alert, id: String, headline: &str, lines: Vec<String>) -> Parcel {
    let mut blocks: Vec<String> = vec![format!("*{}*", escaped(headline))];
    for line in lines {
        let line = cut(&escaped(&line));
        match blocks.last_mut() {
            Some(last) if last.chars().count() + line.chars().count() < BLOCK_CHARS => {
                last.push('\n');
                last.push_str(&line);
            }
            _ => blocks.push(line),
        }
    }
    blocks.truncate(BLOCKS_MAX);
    let blocks: Vec<Value> = blocks
        .into_iter()
        .map(|text| json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } }))
        .collect();
    of(alert, id, JSON, json!({ "text": escaped(headline), "blocks": blocks }).to_string())
}

fn of(alert: &Alert, id: String, content_type: &'static str, body: String) -> Parcel {
    Parcel {
        namespace: alert.namespace.clone(),
        sender: alert.uid,
        id,
        group: name(alert),
        content_type,
        body,
    }
}

/// What Slack reads as text and not as a link or a tag.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(BLOCK_CHARS - 100) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// One sentence that says what the message is about.
fn headline(alert: &Alert, message: &Message) -> String {
    let counted = |listed: usize, more: u64, one: &str, many: &str| match listed as u64 + more {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {many}")),
    };
    let raised = counted(message.raised.len(), message.raised_more, "trouble", "troubles");
    let resolved =
        counted(message.resolved.len(), message.resolved_more, "trouble is over", "troubles are over");
    let ended = counted(message.ended.len(), message.ended_more, "run has finished", "runs have finished");
    let parts: Vec<String> = [raised, resolved, ended].into_iter().flatten().collect();
    format!("Tollgate, {}: {} (alert {})", alert.namespace, parts.join(", "), alert.id)
}

fn lines(message: &Message) -> Vec<String> {
    let more = |count: u64| (count > 0).then(|| format!("and {count} more"));
    let raised = message.raised.iter().map(|item| {
        let again = match (item.is_worse, item.is_repeated) {
            (true, _) => "now ",
            (false, true) => "still ",
            (false, false) => "",
        };
        let since = item.since_us.map(|us| format!(", since {}", rfc3339(us))).unwrap_or_default();
        format!("{again}{}: {}{since}. {}", severity(item.severity), item.summary, item.what_to_do)
    });
    let resolved = message.resolved.iter().map(|item| format!("over: {}", item.summary));
    let ended = message.ended.iter().map(run);
    raised
        .chain(more(message.raised_more))
        .chain(resolved)
        .chain(more(message.resolved_more))
        .chain(ended)
        .chain(more(message.ended_more))
        .collect()
}

fn run(ended: &Ended) -> String {
    let Ended { schedule, events, succeeded, failed, expired, .. } = ended;
    let launch = rfc3339(ended.launch_us);
    format!(
        "the run of {schedule} at {launch} has finished: {succeeded} of {events} events succeeded, {failed} \
         failed, {expired} did not start in time"
    )
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical => "CRITICAL",
        Severity::Warning => "WARNING",
    }
}

fn data(alert: &Alert, message: &Message, headline: &str) -> Value {
    let ended = |ended: &Ended| {
        json!({
            "run": ended.run,
            "schedule": names::of_schedule(&alert.namespace, &ended.schedule),
            "launchTime": rfc3339(ended.launch_us),
            "finishTime": rfc3339(ended.finished_us),
            "events": ended.events,
            "succeededCount": ended.succeeded,
            "failedCount": ended.failed,
            "expiredCount": ended.expired,
        })
    };
    json!({
        "alert": name(alert),
        "summary": headline,
        "raised": message.raised.iter().map(item).collect::<Vec<_>>(),
        "raisedMoreCount": message.raised_more,
        "resolved": message.resolved.iter().map(item).collect::<Vec<_>>(),
        "resolvedMoreCount": message.resolved_more,
        "runs": message.ended.iter().map(ended).collect::<Vec<_>>(),
        "runsMoreCount": message.ended_more,
    })
}

/// A trouble; what does not apply is left out.
fn item(item: &Item) -> Value {
    let subject = &item.subject;
    let named = |id: &str, name: fn(&str, &str) -> String| {
        if id.is_empty() { String::new() } else { name(&subject.namespace, id) }
    };
    let texts = [
        ("kind", item.kind.to_ascii_uppercase()),
        ("severity", severity(item.severity).to_owned()),
        ("summary", item.summary.clone()),
        ("whatToDo", item.what_to_do.clone()),
        ("policy", named(&subject.policy, names::of_policy)),
        ("schedule", named(&subject.schedule, names::of_schedule)),
        ("target", subject.target.clone()),
        ("process", subject.process.clone()),
        ("sinceTime", item.since_us.map(rfc3339).unwrap_or_default()),
    ];
    let given = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let mut members: Map<String, Value> =
        given.map(|(key, text)| (key.to_owned(), Value::String(text))).collect();
    for (key, is) in [("repeated", item.is_repeated), ("worse", item.is_worse)] {
        if is {
            members.insert(key.to_owned(), Value::Bool(true));
        }
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::{AlertRuns, HttpTarget, SlackTarget};
    use tollgate_core::trouble::Subject;

    use super::*;

    fn alert(target: AlertTarget) -> Alert {
        Alert {
            uid: Uuid::from_u128(7),
            namespace: "default".to_owned(),
            id: "on-call".to_owned(),
            description: String::new(),
            troubles: None,
            runs: AlertRuns::None,
            schedules: Vec::new(),
            policies: Vec::new(),
            schedule_labels: [].into(),
            target,
            group_wait_ms: 0,
            repeat_ms: 0,
            send_resolved: true,
            disabled: false,
            enabled_us: 0,
            labels: [].into(),
            generation: 1,
            created_us: 0,
            updated_us: 0,
        }
    }

    fn message(words: &str, listed: usize) -> Message {
        let subject =
            Subject { namespace: "default".to_owned(), schedule: "nightly".to_owned(), ..Subject::default() };
        let item = Item {
            kind: "events_failed".to_owned(),
            severity: Severity::Warning,
            subject,
            summary: words.to_owned(),
            what_to_do: "Look.".to_owned(),
            since_us: Some(1_780_000_000_000_000),
            is_repeated: true,
            is_worse: words == "it got worse",
        };
        Message { number: 3, raised: vec![item; listed], raised_more: 5, ..Message::default() }
    }

    #[test]
    fn a_machine_gets_a_cloud_event() {
        let http = HttpTarget::plain("http://a/".to_owned(), 1);
        let parcel = parcel(&alert(AlertTarget::Http { http }), &message("it failed", 1));
        let event: Value = serde_json::from_str(&parcel.body).unwrap_or_default();
        assert_eq!(parcel.id, "00000000000000000000000000000007-3");
        assert_eq!((&event["id"], &event["type"]), (&json!(parcel.id), &json!(TYPE)));
        assert_eq!(event["source"], "/namespaces/default/alerts/on-call");
        let raised = &event["data"]["raised"][0];
        assert_eq!(raised["kind"], "EVENTS_FAILED");
        assert_eq!(raised["schedule"], "namespaces/default/schedules/nightly");
        assert_eq!((&raised["repeated"], &raised["policy"]), (&json!(true), &Value::Null));
        assert_eq!(event["data"]["raisedMoreCount"], 5);
        assert_eq!(event["data"]["summary"], "Tollgate, default: 6 troubles (alert on-call)");
    }

    #[test]
    fn people_get_blocks_that_slack_takes() {
        let slack = SlackTarget { url: "https://a/x".to_owned(), deadline_ms: 1 };
        let worse = parcel(&alert(AlertTarget::Slack { slack: slack.clone() }), &message("it got worse", 1));
        assert!(worse.body.contains("now WARNING: it got worse"), "{}", worse.body);
        let words = format!("<@all> & {}", "é".repeat(3_000));
        let parcel = parcel(&alert(AlertTarget::Slack { slack }), &message(&words, 20));
        let body: Value = serde_json::from_str(&parcel.body).unwrap_or_default();
        let blocks = body["blocks"].as_array().cloned().unwrap_or_default();
        assert!((2..=50).contains(&blocks.len()), "{}", blocks.len());
        for block in &blocks {
            let text = block["text"]["text"].as_str().unwrap_or_default();
            assert!((1..=3_000).contains(&text.chars().count()));
            assert!(!text.contains('<') && !text.contains("& "), "{text}");
        }
        assert_eq!(body["text"], "Tollgate, default: 25 troubles (alert on-call)");
        assert!(blocks.last().is_some_and(|last| last.to_string().contains("and 5 more")));
    }
}
