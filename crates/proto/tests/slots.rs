//! Moments that are rounded up to slots.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::json;
use tollgate_proto::convert::{Name, schedule};
use tollgate_proto::json::from_json;
use tollgate_proto::{FieldError, v1};

#[test]
fn single_moments_are_rounded_up_to_the_slots_of_checks() {
    let at = |text: &str, slot: Option<&str>| {
        let check_again = slot.map_or(json!({}), |slot| json!({"slot": slot}));
        let given: v1::Schedule = from_json(json!({
            "triggers": [{"at": text}, {"cron": "5 * * * *"}],
            "check_again": check_again,
            "target": {"http": {"url": "https://example.com/hook"}},
        }))
        .unwrap();
        let name = Name { namespace: "a".to_owned(), id: "b".to_owned() };
        let taken = schedule::to_core(&given, &name, None)?;
        let written = schedule::to_message(&taken).triggers;
        assert_eq!(
            written[1],
            v1::Trigger { trigger: Some(v1::trigger::Trigger::Cron("5 * * * *".to_owned())) }
        );
        Ok::<_, Vec<FieldError>>(match &written[0].trigger {
            Some(v1::trigger::Trigger::At(at)) => at.to_string(),
            other => panic!("{other:?}"),
        })
    };
    for (given, slot, rounded) in [
        ("2026-12-01T10:05:07Z", None, "2026-12-01T10:05:07Z"),
        ("2026-12-01T10:05:07Z", Some("900s"), "2026-12-01T10:15:00Z"),
        ("2026-12-01T10:15:00Z", Some("900s"), "2026-12-01T10:15:00Z"),
        ("2026-12-01T10:15:01Z", Some("86400s"), "2026-12-02T00:00:00Z"),
    ] {
        assert_eq!(at(given, slot).unwrap(), rounded, "{given} {slot:?}");
    }
    // The slot itself is refused, and once; so is a moment that would come to lie after the last that there is.
    for (given, slot, field) in [
        ("2026-12-01T10:05:07Z", "86401s", "schedule.check_again.slot"),
        ("9999-12-31T23:59:59Z", "900s", "schedule.triggers[0].at"),
    ] {
        let errors = at(given, Some(slot)).unwrap_err();
        assert_eq!(
            errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(),
            [field],
            "{errors:?}"
        );
    }
}
