//! Decides what a field may hold beyond its kind, where a JSON Schema can say it.
//!
//! In: a field. Out: keywords for its schema. Invariants: what is forbidden here is refused by the services, and what they refuse
//! because of one value alone is forbidden here, but for texts with a grammar of their own (cron, URLs, filters, zones) and for
//! sizes in bytes. Not here: what depends on another field. The protos' comments say the same for people.

use prost_reflect::FieldDescriptor;
use serde_json::{Value, json};

/// A remark or a cursor: at most 4 KiB.
const TEXT_CHARS_MAX: u32 = 4096;
const DAY_S: u64 = 86_400;

/// What a resource's generation looks like, as its etag; or nothing.
const ETAG: &str = "^(0|-?[1-9][0-9]{0,17})?$";

/// The largest revision that is sure to be read, of 18 digits.
const REVISION_MAX: i64 = 999_999_999_999_999_999;

/// Keywords for a field's schema.
pub(super) fn of(field: &FieldDescriptor) -> Option<Value> {
    let name = field.full_name().strip_prefix("tollgate.v1.")?;
    let text = || Some(json!({"maxLength": TEXT_CHARS_MAX}));
    match field.name() {
        "page_size" => return Some(json!({"minimum": 0})),
        "etag" => return Some(json!({"pattern": ETAG})),
        // A number is taken, too.
        "revision" => {
            let number = json!({
                "type": ["string", "integer"], "pattern": "^[0-9]{1,18}$", "minimum": 0, "maximum": REVISION_MAX
            });
            return Some(number);
        }
        "labels" => return Some(json!({"maxProperties": 64})),
        "reason" | "description" => return text(),
        _ => {}
    }
    Some(match name {
        "ReleaseTokenRequest.message" | "ReleaseTokenRequest.cursor" => return text(),
        "ReleaseTokenRequest.attempt" | "ExtendTokenRequest.attempt" => json!({"minimum": 1}),
        "BatchReleaseTokensRequest.releases" => json!({"minItems": 1, "maxItems": 1000}),
        "RetryDeadEventsRequest.events" => json!({"maxItems": 1000}),
        "ExtendTokenRequest.ttl" => whole_ms(1, 30 * DAY_S),
        "GetPolicyQueueRequest.holders_max"
        | "GetPolicyQueueRequest.waiters_max"
        | "GetPolicyQueueRequest.keys_max" => json!({"minimum": 0}),
        "GetHandlerStatusRequest.parent" | "ListTroublesRequest.parent" => {
            json!({"pattern": format!("^(namespaces/{})?$", id())})
        }
        "ListHistoryRequest.parent" => {
            json!({"pattern": format!("^(namespaces/{}(/policies/{})?)?$", id(), id())})
        }
        "ListHistoryRequest.step" => json!({"pattern": format!("^({})s$", up_to(1, DAY_S))}),
        "ForecastDemandRequest.policy" | "Policy.parent" => {
            json!({"pattern": format!("^((namespaces/{}/policies/)?{})?$", id(), id())})
        }
        "ForecastDemandRequest.slot" => {
            // Whole minutes cannot be said of a number in a text; the longest can.
            json!({"pattern": format!("^({})s$", up_to(1, DAY_S))})
        }
        "ListRunsRequest.order_by" => json!({"pattern": "^\\s*(launch_time(\\s+desc)?)?\\s*$"}),
        "PreviewScheduleRequest.count" => json!({"minimum": 0, "maximum": 1000}),
        "TriggerScheduleRequest.events" | "TriggerSchedulesRequest.events" | "Schedule.events" => {
            json!({"minimum": 1, "maximum": 10_000_000})
        }
        "BackfillScheduleRequest.priority" | "TriggerScheduleRequest.priority" | "Schedule.priority" => {
            json!({"minimum": 0, "maximum": 9})
        }
        "PauseSchedulesRequest.filter"
        | "ResumeSchedulesRequest.filter"
        | "DeleteSchedulesRequest.filter"
        | "TriggerSchedulesRequest.filter" => json!({"minLength": 1}),
        "TriggerScheduleRequest.request_id"
        | "TriggerSchedulesRequest.request_id"
        | "BackfillScheduleRequest.request_id" => {
            json!({"pattern": "^([A-Za-z0-9._:-]{1,128})?$"})
        }
        "CreateScheduleRequest.schedule_id"
        | "CreatePolicyRequest.policy_id"
        | "CreateCalendarRequest.calendar_id"
        | "CreateAlertRequest.alert_id" => {
            json!({"pattern": format!("^({})?$", id())})
        }
        name => return of_resource(name),
    })
}

/// As [`of`], for the fields of resources.
fn of_resource(name: &str) -> Option<Value> {
    Some(match name {
        "Schedule.exclude" => json!({"maxItems": 500}),
        "Schedule.exclude_calendars" => json!({"maxItems": 16}),
        "Calendar.dates" => json!({"maxItems": 1000}),
        "Schedule.triggers" => json!({"maxItems": 100}),
        "Schedule.finish_by"
        | "Schedule.spread"
        | "Schedule.delay_after_finish"
        | "Schedule.delete_after"
        | "CatchUp.horizon"
        | "CheckAgain.horizon" => {
            json!({"pattern": format!("^({})s$", up_to(1, 366 * DAY_S))})
        }
        "Schedule.start_within" | "CheckAgain.slot" => {
            json!({"pattern": format!("^({})s$", up_to(1, DAY_S))})
        }
        "OnFinish.events" => json!({"minimum": 1, "maximum": 10_000_000}),
        "Schedule.units" => json!({"minimum": 1, "maximum": 1000}),
        "ScheduleItem.units" | "Item.units" => json!({"minimum": 0, "maximum": 1000}),
        "Schedule.start_within_percent" => json!({"minimum": 1, "maximum": 100}),
        "CheckAgain.max_checks" => json!({"maximum": 1_000_000}),
        "RetryPolicy.max_attempts" => json!({"minimum": 1, "maximum": 1000}),
        "Policy.max_in_flight" => json!({"minimum": 1}),
        "Policy.rate_per_second" => json!({"exclusiveMinimum": 0, "maximum": 1_000_000}),
        "Policy.weight" | "KeyRule.weight" => json!({"minimum": 1, "maximum": 1000}),
        "Policy.burst" => json!({"minimum": 1, "maximum": 10_000_000}),
        "Policy.token_ttl" | "Policy.unstarted_ttl" => whole_ms(1, 30 * DAY_S),
        "Policy.suspect_period" => whole_ms(0, 30 * DAY_S),
        "HttpTarget.url" | "SlackTarget.url" | "HttpItems.url" => json!({"maxLength": 2048}),
        "Alert.schedules" | "Alert.policies" => json!({"maxItems": 100}),
        "Alert.schedule_labels" => json!({"maxProperties": 100}),
        "Alert.group_wait" => whole_ms(0, 3_600),
        "ItemsFrom.fetch_ahead" => json!({"pattern": format!("^({})s$", up_to(0, 3_600))}),
        "ItemsFrom.give_up_after" => json!({"pattern": format!("^({})s$", up_to(1, DAY_S))}),
        "HttpTarget.headers" | "HttpItems.headers" => json!({"maxProperties": 64}),
        _ => return None,
    })
}

/// A resource's id, as a group.
fn id() -> String {
    format!("({})", super::ID.trim_start_matches('^').trim_end_matches('$'))
}

/// Durations in whole milliseconds, both ends included.
fn whole_ms(from_s: u64, to_s: u64) -> Value {
    json!({"pattern": format!("^(({})(\\.[0-9]{{1,3}})?|{to_s}(\\.0{{1,3}})?)s$", up_to(from_s, to_s - 1))})
}

/// What matches the whole numbers of a range that begins with 0 or 1, without leading zeros.
fn up_to(from: u64, to: u64) -> String {
    let mut parts = Vec::new();
    if from == 0 {
        parts.push("0".to_owned());
    }
    let digits = to.to_string();
    // Those with fewer digits.
    match digits.len() {
        1 => {}
        2 => parts.push("[1-9]".to_owned()),
        more => parts.push(format!("[1-9][0-9]{{0,{}}}", more - 2)),
    }
    // Those that are as long: the same up to a place, a smaller digit there, any after it.
    for (place, digit) in digits.bytes().enumerate() {
        let lowest = if place == 0 { b'1' } else { b'0' };
        let Some(below) = digit.checked_sub(1).filter(|below| *below >= lowest) else { continue };
        let after = digits.len() - place - 1;
        let any = if after == 0 { String::new() } else { format!("[0-9]{{{after}}}") };
        parts.push(format!("{}[{}-{}]{any}", &digits[..place], char::from(lowest), char::from(below)));
    }
    parts.push(digits);
    parts.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_said_digit_by_digit() {
        assert_eq!(up_to(0, 9), "0|[1-8]|9");
        assert_eq!(up_to(1, 10), "[1-9]|10");
        assert_eq!(up_to(1, 366), "[1-9][0-9]{0,1}|[1-2][0-9]{2}|3[0-5][0-9]{1}|36[0-5]|366");
        assert_eq!(up_to(0, 2_000), "0|[1-9][0-9]{0,2}|[1-1][0-9]{3}|2000");
    }

    #[test]
    fn every_bound_is_of_a_field_that_there_is() {
        let pool = tollgate_proto::descriptor_pool();
        let found = pool
            .all_messages()
            .flat_map(|message| message.fields().collect::<Vec<_>>())
            .filter(|field| of(field).is_some())
            .map(|field| field.full_name().to_owned())
            .collect::<Vec<_>>();
        for named in [
            "ReleaseTokenRequest.attempt",
            "BatchReleaseTokensRequest.releases",
            "RetryDeadEventsRequest.events",
            "ExtendTokenRequest.ttl",
            "GetPolicyQueueRequest.holders_max",
            "GetPolicyQueueRequest.keys_max",
            "GetHandlerStatusRequest.parent",
            "ForecastDemandRequest.slot",
            "PreviewScheduleRequest.count",
            "TriggerScheduleRequest.events",
            "BackfillScheduleRequest.priority",
            "BackfillScheduleRequest.request_id",
            "TriggerScheduleRequest.request_id",
            "CreateScheduleRequest.schedule_id",
            "CreatePolicyRequest.policy_id",
            "Schedule.triggers",
            "Schedule.finish_by",
            "CatchUp.horizon",
            "CheckAgain.slot",
            "CheckAgain.max_checks",
            "RetryPolicy.max_attempts",
            "Policy.max_in_flight",
            "Policy.rate_per_second",
            "Policy.suspect_period",
            "Policy.parent",
            "Policy.weight",
            "HttpTarget.url",
            "ListRunsRequest.page_size",
            "ListRunsRequest.order_by",
            "DeleteScheduleRequest.etag",
            "PauseDispatchRequest.reason",
        ] {
            assert!(found.contains(&format!("tollgate.v1.{named}")), "{named}");
        }
    }
}
