//! What answers mean, and how commands travel.

use tollgate_proto::FieldError;
use tonic_types::{ErrorDetails, PreconditionViolation};

use super::*;

fn kind(status: &Status) -> &'static str {
    match judged(status) {
        Ok(Outcome::Done(_)) => "done",
        Ok(Outcome::Outdated) => "outdated",
        Ok(Outcome::Refused(_)) => "refused",
        Ok(Outcome::Early(_)) => "early",
        Ok(Outcome::Later(_)) => "later",
        Err(_) => "away",
    }
}

#[test]
fn what_an_answer_means_follows_its_code() {
    let quota = Status::resource_exhausted("100 alerts");
    let mut rate = Status::resource_exhausted("writes");
    rate.metadata_mut().insert("retry-after", MetadataValue::from(7_u64));
    assert_eq!(judged(&rate).err().and_then(|away| away.wait), Some(Duration::from_secs(7)));
    let violation = PreconditionViolation::new(OUTDATED, "x", "older");
    let outdated = Status::with_error_details(
        Code::FailedPrecondition,
        "revision",
        ErrorDetails::with_precondition_failure(vec![violation]),
    );
    let missing = FieldError::new(
        "7: s: schedule.policy",
        "x",
        "a policy of the same namespace that exists: apply it first",
    );
    let bad = FieldError::new("7: s: schedule.events", 0, "1 or more");
    let both = tollgate_proto::field::invalid_argument(&[missing.clone(), bad.clone()]);
    for (status, expected) in [
        (Status::unavailable(""), "away"),
        (Status::deadline_exceeded(""), "away"),
        (Status::unauthenticated(""), "away"),
        (Status::unknown("transport error"), "away"),
        (Status::internal("h2 protocol error"), "away"),
        (rate, "away"),
        (quota, "later"),
        (Status::aborted(""), "later"),
        (Status::internal("broken"), "later"),
        (outdated, "outdated"),
        (Status::failed_precondition("paused"), "refused"),
        (Status::not_found(""), "early"),
        (missing.into(), "early"),
        (bad.into(), "refused"),
        (both, "refused"),
        (Status::permission_denied(""), "refused"),
        (Status::already_exists(""), "refused"),
        (Status::out_of_range(""), "refused"),
    ] {
        assert_eq!(kind(&status), expected, "{status}");
    }
}

#[test]
fn what_was_not_written_comes_again() {
    let result = |source: &str, action: v1::ApplyAction| v1::ApplyResult {
        source: source.to_owned(),
        action: action.into(),
        ..v1::ApplyResult::default()
    };
    let error = v1::ApplyError {
        source: "7".to_owned(),
        message: "another change; apply it again".to_owned(),
        ..v1::ApplyError::default()
    };
    let mut answer = v1::ApplyResourcesResponse {
        failed_count: 1,
        errors: vec![error],
        results: vec![result("1", v1::ApplyAction::Created), result("2", v1::ApplyAction::Outdated)],
        ..v1::ApplyResourcesResponse::default()
    };
    let fault = Fault::new(Code::Aborted, "another change; apply it again");
    assert_eq!(applied(&answer, "7"), Outcome::Later(fault));
    let created = Done { answer: Some("CREATED".to_owned()), ..Done::default() };
    assert_eq!(applied(&answer, "1"), Outcome::Done(created));
    assert_eq!(applied(&answer, "2"), Outcome::Outdated);
    assert_eq!(applied(&answer, "3"), Outcome::Done(Done { unchanged: true, ..Done::default() }));
    answer.unlisted_results_count = 1;
    assert_eq!(applied(&answer, "3"), Outcome::Done(Done::default()), "it may have been changed");
    answer.failed_count = 2;
    assert!(matches!(applied(&answer, "3"), Outcome::Later(_)), "it may be the one that failed");
}

#[test]
fn items_travel_in_pieces() {
    let item = |bytes: usize| v1::Item { data: "1".repeat(bytes), ..v1::Item::default() };
    let items: Vec<v1::Item> = (0..2_500).map(|_| item(1)).chain([item(200_000), item(1)]).collect();
    let parts = parts(&v1::SubmissionHeader::default(), &items);
    let sent: usize = parts
        .iter()
        .filter_map(|part| match &part.part {
            Some(Part::Items(items)) => Some(items.items.len()),
            _ => None,
        })
        .sum();
    assert_eq!((parts.len(), sent), (5, items.len()));
}

#[test]
fn fields_of_an_apply_are_those_of_the_command() {
    assert_eq!(in_resource("7: namespaces/a/schedules/b: schedule.events"), "resource.schedule.events");
    assert_eq!(in_resource(""), "resource");
}
