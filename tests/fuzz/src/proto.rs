//! Requests from the wire: decoded, checked, brought into the core's types and back.
//!
//! The first byte of an input chooses the message, the rest is its bytes.

use prost::{Message, Name as MessageName};
use tollgate_core::model::RunId;
use tollgate_core::plan::Plan;
use tollgate_proto::convert::{self, Name, event, names, policy, run, schedule, work};
use tollgate_proto::field::invalid_argument;
use tollgate_proto::json::{from_json, to_json};
use tollgate_proto::mask::apply_mask;
use tollgate_proto::page::{self, Token};
use tollgate_proto::{FieldError, filter, v1};
use tonic::Code;
use uuid::Uuid;

use super::quick;

/// A status beyond this does not fit into the headers that common clients take, with the rest of these.
const STATUS_MAX_BYTES: usize = 6_000;

pub(crate) fn target(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    quick("reading a request", || match choice % 18 {
        0 => decoded(bytes, |m: v1::CreateScheduleRequest| create_schedule(&m)),
        1 => decoded(bytes, |m: v1::CreatePolicyRequest| create_policy(&m)),
        2 => decoded(bytes, |m: v1::ReleaseTokenRequest| release("", &m)),
        3 => decoded(bytes, |m: v1::BatchReleaseTokensRequest| releases(&m)),
        4 => decoded(bytes, |m: v1::ExtendTokenRequest| {
            let ttl = convert::heartbeat_ttl_ms(&m);
            assert!(
                ttl.as_ref()
                    .map_or(true, |ttl| ttl.is_none_or(|ttl| (1_000..=30 * 86_400_000).contains(&ttl)))
            );
            all([ttl.map(|_| ()), names::event("name", &m.name).map(|_| ())])
        }),
        5 => decoded(bytes, |m: v1::UpdateScheduleRequest| {
            all([masked(m.schedule.as_ref(), m.update_mask.as_ref())])
        }),
        6 => decoded(bytes, |m: v1::UpdatePolicyRequest| {
            all([masked(m.policy.as_ref(), m.update_mask.as_ref())])
        }),
        7 => decoded(bytes, |m: v1::ListSchedulesRequest| {
            list(&m.parent, m.page_size, &m.page_token, &m.filter)
        }),
        8 => decoded(bytes, |m: v1::ListRunsRequest| list(&m.parent, m.page_size, &m.page_token, &m.filter)),
        9 => decoded(bytes, |m: v1::ListEventsRequest| {
            all([names::run("parent", &m.parent).map(|(namespace, shard, run)| {
                assert_eq!(names::of_run(&namespace, shard, run), m.parent, "a run with two names");
            })])
            .and(list("namespaces/a", m.page_size, &m.page_token, &m.filter))
        }),
        10 => decoded(bytes, |m: v1::BackfillScheduleRequest| {
            let moments = [m.start_time.as_ref(), m.end_time.as_ref()];
            all(moments.map(|moment| convert::required_time_us("time", moment).map(moment_again)))
        }),
        11 => decoded(bytes, |m: v1::PreviewScheduleRequest| {
            let Some(v1::preview_schedule_request::Source::Schedule(message)) = &m.source else {
                return Ok(());
            };
            schedule::timing_to_core(message, "a").and_then(|timing| {
                Plan::forecast(&timing, b"")
                    .map(|_| ())
                    .map_err(|e| vec![convert::plan_refusal("schedule", e)])
            })
        }),
        12 => decoded(bytes, |m: v1::ApplyResourcesRequest| match &m.resource {
            Some(v1::apply_resources_request::Resource::Schedule(message)) => schedule_survives(message),
            Some(v1::apply_resources_request::Resource::Policy(message)) => policy_survives(message),
            Some(v1::apply_resources_request::Resource::Calendar(message)) => calendar_survives(message),
            Some(v1::apply_resources_request::Resource::Alert(message)) => alert_survives(message),
            None => Ok(()),
        }),
        13 => decoded(bytes, |m: v1::DeletePolicyRequest| {
            all([convert::etag("etag", &m.etag).map(|_| ()), names::policy("name", &m.name).map(|_| ())])
        }),
        14 => decoded(bytes, |m: v1::PauseScheduleRequest| {
            all([convert::remark("reason", &m.reason).map(|_| ())])
        }),
        15 => decoded(bytes, |m: v1::TriggerScheduleRequest| {
            all([names::schedule("name", &m.name).map(|_| ())])
        }),
        16 => decoded(bytes, |m: v1::WorkRequest| said_by_worker(&m)),
        _ => decoded(bytes, |m: v1::AcquireEventsRequest| asked_by_worker(&m)),
    });
}

/// Decodes the message; what is refused must fit into an answer.
fn decoded<M: Message + MessageName + Default + PartialEq>(
    bytes: &[u8],
    check: impl FnOnce(M) -> Result<(), Vec<FieldError>>,
) {
    let Ok(message) = M::decode(bytes) else { return };
    assert!(M::decode(message.encode_to_vec().as_slice()).is_ok());
    let Err(errors) = check(message) else { return };
    let status = invalid_argument(&errors);
    assert_eq!(status.code(), Code::InvalidArgument);
    let size = status.message().len() + status.details().len();
    assert!(size < STATUS_MAX_BYTES, "a refusal of {size} bytes is lost on its way: {status:?}");
}

fn all<const N: usize>(results: [Result<(), FieldError>; N]) -> Result<(), Vec<FieldError>> {
    let errors: Vec<FieldError> = results.into_iter().filter_map(Result::err).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn own_name() -> Name {
    Name { namespace: "a".to_owned(), id: "b".to_owned() }
}

fn create_schedule(request: &v1::CreateScheduleRequest) -> Result<(), Vec<FieldError>> {
    let message = request.schedule.clone().unwrap_or_default();
    let (id, name) =
        (("schedule_id", request.schedule_id.as_str()), ("schedule.name", message.name.as_str()));
    all([names::to_create("a", "schedules", id, name).map(|_| ())]).and(schedule_survives(&message))
}

fn create_policy(request: &v1::CreatePolicyRequest) -> Result<(), Vec<FieldError>> {
    let message = request.policy.clone().unwrap_or_default();
    let (id, name) = (("policy_id", request.policy_id.as_str()), ("policy.name", message.name.as_str()));
    all([names::to_create("a", "policies", id, name).map(|_| ())]).and(policy_survives(&message))
}

/// What is accepted can be shown, and what is shown is accepted as the same.
fn schedule_survives(message: &v1::Schedule) -> Result<(), Vec<FieldError>> {
    let core = schedule::to_core(message, &own_name(), None)?;
    let shown = schedule::to_message(&core);
    assert_eq!(from_json::<v1::Schedule>(to_json(&shown)).as_ref(), Ok(&shown), "JSON changes a schedule");
    match schedule::to_core(&shown, &own_name(), Some(&core)) {
        Ok(again) => assert_eq!(again, core, "what is shown means something else"),
        Err(errors) => panic!("what is shown is refused: {errors:?}"),
    }
    match Plan::compile(&core.timing, core.uid.as_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => Err(vec![convert::plan_refusal("schedule", error)]),
    }
}

fn policy_survives(message: &v1::Policy) -> Result<(), Vec<FieldError>> {
    let core = policy::to_core(message, &own_name(), None)?;
    let shown = policy::to_message(&core);
    assert_eq!(from_json::<v1::Policy>(to_json(&shown)).as_ref(), Ok(&shown), "JSON changes a policy");
    match policy::to_core(&shown, &own_name(), Some(&core)) {
        Ok(again) => assert_eq!(again, core, "what is shown means something else"),
        Err(errors) => panic!("what is shown is refused: {errors:?}"),
    }
    Ok(())
}

fn alert_survives(message: &v1::Alert) -> Result<(), Vec<FieldError>> {
    let core = convert::alert::to_core(message, &own_name(), None)?;
    let shown = convert::alert::to_message(&core, None);
    assert_eq!(from_json::<v1::Alert>(to_json(&shown)).as_ref(), Ok(&shown), "JSON changes an alert");
    match convert::alert::to_core(&shown, &own_name(), Some(&core)) {
        Ok(again) => assert_eq!(again, core, "what is shown means something else"),
        Err(errors) => panic!("what is shown is refused: {errors:?}"),
    }
    Ok(())
}

fn calendar_survives(message: &v1::Calendar) -> Result<(), Vec<FieldError>> {
    let core = convert::calendar::to_core(message, &own_name(), None)?;
    let shown = convert::calendar::to_message(&core);
    assert_eq!(from_json::<v1::Calendar>(to_json(&shown)).as_ref(), Ok(&shown), "JSON changes a calendar");
    match convert::calendar::to_core(&shown, &own_name(), Some(&core)) {
        Ok(again) => assert_eq!(again, core, "what is shown means something else"),
        Err(errors) => panic!("what is shown is refused: {errors:?}"),
    }
    Ok(())
}

fn release(prefix: &str, message: &v1::ReleaseTokenRequest) -> Result<(), Vec<FieldError>> {
    all([names::event("name", &message.name).map(|_| ())])?;
    let release = event::release_to_core(prefix, message, (RunId(Uuid::nil()), 3))?;
    assert_eq!((release.index, release.attempt), (3, message.attempt));
    assert_eq!(release.cursor, message.cursor);
    Ok(())
}

/// What a worker says on its stream.
fn said_by_worker(message: &v1::WorkRequest) -> Result<(), Vec<FieldError>> {
    use v1::work_request::Message as Said;
    match &message.message {
        Some(Said::Hello(hello)) => all([
            work::queue("hello.queue", &hello.queue).map(|queue| {
                let name = format!("namespaces/{}/queues/{}", queue.namespace, queue.id);
                assert_eq!(name, hello.queue, "a queue with two names");
            }),
            is_able("hello.labels", &hello.labels),
            work::worker("hello.worker", &hello.worker).map(|_| ()),
            work::capacity("hello.capacity", hello.capacity).map(|_| ()),
        ]),
        Some(Said::Capacity(room)) => all([work::capacity("capacity.capacity", room.capacity).map(|_| ())]),
        Some(Said::Accept(accept)) => all([names::event("accept.name", &accept.name).map(|_| ())]),
        Some(Said::Extend(extend)) => all([
            convert::heartbeat_ttl_ms(extend).map(|_| ()),
            names::event("extend.name", &extend.name).map(|_| ()),
        ]),
        Some(Said::Release(message)) => release("release", message),
        None => Ok(()),
    }
}

/// What a worker asks for that polls.
fn asked_by_worker(message: &v1::AcquireEventsRequest) -> Result<(), Vec<FieldError>> {
    all([
        work::queue("name", &message.name).map(|_| ()),
        work::acquire(message).map(|(events, wait_ms)| {
            assert!((1..=100).contains(&events) && (0..=60_000).contains(&wait_ms));
        }),
        is_able("labels", &message.labels),
        work::worker("worker", &message.worker).map(|_| ()),
    ])
}

/// Labels are put in order, each once; and so they stay.
fn is_able(field: &str, given: &[String]) -> Result<(), FieldError> {
    let labels = work::labels(field, given)?;
    assert!(labels.windows(2).all(|pair| pair[0] < pair[1]), "{labels:?}");
    assert_eq!(work::labels(field, &labels).as_ref(), Ok(&labels));
    Ok(())
}

fn releases(message: &v1::BatchReleaseTokensRequest) -> Result<(), Vec<FieldError>> {
    let mut entries = message.releases.iter().enumerate();
    entries.try_for_each(|(at, entry)| release(&format!("releases[{at}]"), entry))
}

fn masked<M: Message + MessageName + Default + Clone + PartialEq>(
    update: Option<&M>,
    mask: Option<&prost_types::FieldMask>,
) -> Result<(), FieldError> {
    let update = update.cloned().unwrap_or_default();
    let changed = apply_mask(&M::default(), &update, mask)?;
    let again = apply_mask(&changed, &update, mask)?;
    // An empty message inside `changed` may be absent in one of them: compare what is set.
    assert_eq!(again.encode_to_vec(), changed.encode_to_vec(), "an update twice is not an update once");
    Ok(())
}

fn list(parent: &str, size: i32, token: &str, text: &str) -> Result<(), Vec<FieldError>> {
    let keys = ["state", "policy", "schedule", "label.*"];
    let terms = filter::parse(text, &keys).map(|terms| {
        let quoted = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"");
        let printed: Vec<String> =
            terms.iter().map(|term| format!("{}=\"{}\"", term.key, quoted(&term.value))).collect();
        assert_eq!(filter::parse(&printed.join(" AND "), &keys).as_ref(), Ok(&terms), "{text:?}");
        for term in &terms {
            let _ = (run::states_in_filter(&term.value), event::state_in_filter(&term.value));
        }
    });
    let query = ["List", parent, text];
    all([
        names::namespace("parent", parent).map(|_| ()),
        page::size(size).map(|size| assert!((1..=page::SIZE_MAX).contains(&size))),
        Token::<(i64, String)>::decode(token, &query).map(|_| ()),
        terms,
    ])
}

fn moment_again(us: i64) {
    assert_eq!(convert::required_time_us("time", Some(&convert::timestamp(us))), Ok(us));
}
