//! Decides what a stream of resources changes: all of them are read and checked before the first is written.
//!
//! In: policies, calendars, schedules and alerts as they shall be. Out: chunks of changes, policies first and calendars next,
//! each chunk one transaction.
//! Invariants: one refusal, and nothing is written (where nothing was to be written anyway, all
//! refusals are reported); what is the same already is left alone, so that applying twice
//! changes nothing the second time; a transaction that fails because others wrote meanwhile is made again one by
//! one, so that it costs only the resources that are to blame.

mod calendars;
mod changing;
mod judge;
mod policies;
mod results;
mod revised;
mod warnings;
mod write;

use std::collections::{BTreeMap, HashMap, HashSet};

use prost::Message as _;
use tokio_stream::{Stream, StreamExt as _};
use tollgate_proto::convert::{Name, names};
use tollgate_proto::v1::CallStage;
use tollgate_proto::v1::apply_resources_request::Resource;
use tollgate_proto::{FieldError, field, v1};
use tollgate_service::actor::Caller;
use tonic::Status;

use crate::ScheduleMaster;
use crate::progress::Progress;
use crate::revisions::{Revised, number};
use judge::Planned;

/// The most errors in an answer.
const ERRORS_MAX: usize = 1000;

/// The most bytes of resources in one call: all of them are in memory before the first is written.
const GATHERED_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Where a resource comes from, and what it is called there.
#[derive(Clone, Debug)]
struct ResourceRef {
    source: String,
    of: Revised,
    name: Name,
    /// The number of this change of it, and that of the one before, as it was read before the resource.
    revision: Option<(i64, i64)>,
}

/// Namespace and id.
type Key = (String, String);

fn key(reference: &ResourceRef) -> Key {
    (reference.name.namespace.clone(), reference.name.id.clone())
}

/// One resource that was given.
#[derive(Debug)]
struct Given<M> {
    reference: ResourceRef,
    message: M,
}

/// All that was given.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    policies: Vec<Given<v1::Policy>>,
    schedules: Vec<Given<v1::Schedule>>,
    calendars: Vec<Given<v1::Calendar>>,
    alerts: Vec<Given<v1::Alert>>,
    refusals: Vec<Refusal>,
    validate_only: bool,
}

/// What is wrong with one resource.
#[derive(Debug)]
struct Refusal {
    source: String,
    /// As given.
    name: String,
    error: FieldError,
}

impl Refusal {
    fn new(source: &str, name: &str, error: FieldError) -> Self {
        Self { source: source.to_owned(), name: name.to_owned(), error }
    }

    /// With the place in the field's path.
    fn into_field_error(self) -> FieldError {
        let Self { source, name, error } = self;
        let place = [&source, &name, &error.field].into_iter().filter(|part| !part.is_empty());
        let field = place.map(String::as_str).collect::<Vec<_>>().join(": ");
        FieldError { field, ..error }
    }
}

fn borrowed(counts: &BTreeMap<String, usize>) -> BTreeMap<&str, usize> {
    counts.iter().map(|(namespace, count)| (namespace.as_str(), *count)).collect()
}

/// The items in their order, in chunks of `most`. Each item is moved once: to split a chunk off would move all the others.
fn chunks<T>(items: Vec<T>, most: usize) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let chunk: Vec<T> = items.by_ref().take(most.max(1)).collect();
        Some(chunk).filter(|chunk| !chunk.is_empty())
    })
}

/// What is planned, which is in the order of its levels, level by level.
fn levels(planned: Vec<Planned>) -> impl Iterator<Item = Vec<Planned>> {
    let ends = planned.chunk_by(|one, next| one.level == next.level).map(<[_]>::len);
    let ends: Vec<usize> = ends.collect();
    let mut planned = planned.into_iter();
    ends.into_iter().map(move |end| planned.by_ref().take(end).collect())
}

/// Reports refusals in an answer.
fn report(refusals: Vec<Refusal>, response: &mut v1::ApplyResourcesResponse) {
    let wrong: HashSet<(&str, &str)> =
        refusals.iter().map(|refusal| (refusal.source.as_str(), refusal.name.as_str())).collect();
    response.failed_count = u32::try_from(wrong.len()).unwrap_or(u32::MAX);
    response.errors = refusals
        .into_iter()
        .take(ERRORS_MAX)
        .map(|Refusal { source, name, error }| {
            let message = error.description();
            v1::ApplyError { source, name, field: error.field, message }
        })
        .collect();
}

impl Gathered {
    /// How many resources there are.
    fn count(&self) -> usize {
        self.policies.len() + self.calendars.len() + self.schedules.len() + self.alerts.len()
    }

    /// Takes one message in. Names that are given twice are refused with both places.
    fn take(&mut self, request: v1::ApplyResourcesRequest, seen: &mut HashMap<String, String>) {
        let v1::ApplyResourcesRequest { namespace, resource, source, validate_only, revision } = request;
        self.validate_only |= validate_only;
        let (given, found) = match &resource {
            None => ("", Err(FieldError::new("resource", "", "policy, calendar, schedule or alert"))),
            Some(Resource::Policy(policy)) => {
                (policy.name.as_str(), name(&namespace, &policy.name, &POLICIES))
            }
            Some(Resource::Schedule(schedule)) => {
                (schedule.name.as_str(), name(&namespace, &schedule.name, &SCHEDULES))
            }
            Some(Resource::Calendar(calendar)) => {
                (calendar.name.as_str(), name(&namespace, &calendar.name, &CALENDARS))
            }
            Some(Resource::Alert(alert)) => (alert.name.as_str(), name(&namespace, &alert.name, &ALERTS)),
        };
        let name = match found {
            Ok(name) => name,
            Err(error) => return self.refusals.push(Refusal::new(&source, given, error)),
        };
        let (of, path) = match &resource {
            Some(Resource::Policy(_)) => (Revised::Policy, POLICIES.path),
            Some(Resource::Calendar(_)) => (Revised::Calendar, CALENDARS.path),
            Some(Resource::Alert(_)) => (Revised::Alert, ALERTS.path),
            _ => (Revised::Schedule, SCHEDULES.path),
        };
        let full = of.full_name(&name);
        if let Some(first) = seen.insert(full.clone(), source.clone()) {
            let first = if first.is_empty() { "earlier in the same stream".to_owned() } else { first };
            let error = FieldError::new(path, full, format!("each name once; it was given at {first}"));
            return self.refusals.push(Refusal::new(&source, given, error));
        }
        let revision = match number("revision", revision) {
            Ok(revision) => revision.map(|number| (0, number)),
            Err(error) => return self.refusals.push(Refusal::new(&source, given, error)),
        };
        let reference = ResourceRef { source, of, name, revision };
        match resource {
            Some(Resource::Policy(message)) => self.policies.push(Given { reference, message }),
            Some(Resource::Schedule(message)) => self.schedules.push(Given { reference, message }),
            Some(Resource::Calendar(message)) => self.calendars.push(Given { reference, message }),
            Some(Resource::Alert(message)) => self.alerts.push(Given { reference, message }),
            None => {}
        }
    }
}

/// How the names of a kind of resource are read.
struct Naming {
    path: &'static str,
    full: fn(&str, &str) -> Result<Name, FieldError>,
    within: fn(&str, &str, &str) -> Result<Name, FieldError>,
}

const POLICIES: Naming = Naming { path: "policy.name", full: names::policy, within: names::policy_within };
const SCHEDULES: Naming =
    Naming { path: "schedule.name", full: names::schedule, within: names::schedule_within };
const CALENDARS: Naming =
    Naming { path: "calendar.name", full: names::calendar, within: names::calendar_within };
const ALERTS: Naming = Naming { path: "alert.name", full: names::alert, within: names::alert_within };

/// A full name, or an id in `namespace`.
fn name(namespace: &str, given: &str, naming: &Naming) -> Result<Name, FieldError> {
    if given.starts_with("namespaces/") && namespace.is_empty() {
        return (naming.full)(naming.path, given);
    }
    let namespace = names::id("namespace", namespace)?;
    (naming.within)(naming.path, &namespace, given)
}

impl ScheduleMaster {
    /// Reads a stream to its end.
    pub(crate) async fn gather(
        &self,
        mut requests: impl Stream<Item = Result<v1::ApplyResourcesRequest, Status>> + Unpin,
    ) -> Result<Gathered, Status> {
        let most = self.options().apply_max;
        let mut gathered = Gathered::default();
        let mut seen = HashMap::new();
        let (mut count, mut bytes) = (0, 0);
        while let Some(request) = requests.next().await {
            let request = request?;
            bytes += request.encoded_len();
            if bytes > GATHERED_MAX_BYTES {
                let expected = format!("at most {GATHERED_MAX_BYTES} bytes in one call");
                return Err(FieldError::new("resource", format!("{bytes} bytes"), expected).into());
            }
            count += 1;
            if count > most {
                let expected = format!("at most {most} in one call");
                return Err(FieldError::new("resource", format!("{count} resources"), expected).into());
            }
            gathered.take(request, &mut seen);
        }
        Ok(gathered)
    }

    /// Brings everything to what was given.
    pub(crate) async fn apply(
        &self,
        mut given: Gathered,
        actor: Caller,
        progress: &Progress,
    ) -> Result<v1::ApplyResourcesResponse, Status> {
        let validate_only = given.validate_only;
        let mut refusals = std::mem::take(&mut given.refusals);
        let outdated = self.without_outdated(&mut given).await?;
        let new_namespaces = self.new_namespaces(&given).await;
        let mut plan = self.judge(given, &actor, &mut refusals, progress).await?;
        let notes = std::mem::take(&mut plan.notes);
        plan.note_results(self.inner.base);
        let mut response =
            v1::ApplyResourcesResponse { unchanged_count: plan.unchanged(), ..Default::default() };
        outdated.into_iter().for_each(|reference| revised::outdated(reference, &mut response));
        if validate_only {
            plan.count(&mut response);
            report(refusals, &mut response);
        } else if !refusals.is_empty() {
            let errors: Vec<FieldError> = refusals.into_iter().map(Refusal::into_field_error).collect();
            return Err(field::invalid_argument(&errors));
        } else {
            let (changed, new) = plan.by_namespace();
            let _turn = self.admit_schedules(&borrowed(&new)).await?;
            for (namespace, count) in borrowed(&plan.new_alerts()) {
                self.admit_alerts(namespace, count).await?;
            }
            for (namespace, count) in borrowed(&changed) {
                self.admit_writes(namespace, count)?;
            }
            progress.begin(CallStage::Write, plan.changes());
            let most = self.options().apply_chunk;
            self.note_unchanged(std::mem::take(&mut plan.unchanged), &mut response).await?;
            // Those above stand before those below are written.
            for level in levels(plan.policies) {
                self.write(level, most, &mut response, progress).await?;
            }
            // Each is a transaction over all schedules that go by it.
            self.write(plan.calendars, 1, &mut response, progress).await?;
            let schedules = self.judged_again(plan.schedules, &actor, &mut response).await?;
            // What follows is there before what it follows.
            for level in levels(schedules).chain([plan.alerts]) {
                self.write(level, most, &mut response, progress).await?;
            }
        }
        results::count_unlisted(&mut response);
        response.warnings = new_namespaces;
        response.warnings.extend(self.warned(notes).await);
        Ok(response)
    }
}
