//! Decides what whoever gives a resource is warned of: what was accepted, and will probably not do what was meant.
//!
//! In: the resource as it shall be. Out: warnings. Invariants: a warning refuses nothing; what cannot be found out in a moment,
//! or not at all, is not warned of; addresses are judged as deliveries judge them ([`AddressLook`]). What the resource alone
//! tells is decided in [`tollgate_core::plan::warnings`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use tollgate_core::model::{Alert, AlertTarget, Parent, Policy, RunState, Schedule, Target};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_core::plan::warnings::{About, PastRun, Seen, Warning, warnings};
use tollgate_proto::convert::names;
use tollgate_proto::v1::{self, WarningKind};
use tollgate_store::history::RunFilter;
use tollgate_store::plan::AuditFilter;

use crate::draft::Draft;
use crate::{ScheduleMaster, parents};

/// How many of a schedule's latest runs are looked at.
const RUNS_SEEN: u32 = 3;
/// The namespace that everybody begins with.
const FIRST_NAMESPACE: &str = "default";

/// Where something is to be sent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The URL; `host:port` of a Kafka broker.
    pub url: String,
    /// What it is.
    pub kind: AddressKind,
    /// Who pays for the look-up.
    pub namespace: String,
}

/// What an address is that a target names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressKind {
    /// The URL of an HTTP server.
    Url,
    /// An SQS endpoint.
    SqsEndpoint,
    /// A Kafka broker.
    KafkaServer,
}

/// Why nothing would be sent there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressFault {
    /// Deliveries may not go there.
    Refused(String),
    /// There is no such name.
    Unknown(String),
}

type Looked = BoxFuture<'static, Option<AddressFault>>;

/// Asks whether deliveries to an address would be refused for good; answers within a moment.
#[derive(Clone)]
pub struct AddressLook(Arc<dyn Fn(Address) -> Looked + Send + Sync>);

impl AddressLook {
    /// By this function.
    pub fn by(look: impl Fn(Address) -> Looked + Send + Sync + 'static) -> Self {
        Self(Arc::new(look))
    }

    /// Why nothing would be sent there; nothing where that is not known.
    pub(crate) fn at(&self, address: Address) -> Looked {
        (self.0)(address)
    }
}

impl Default for AddressLook {
    /// Knows nothing.
    fn default() -> Self {
        Self::by(|_| Box::pin(std::future::ready(None)))
    }
}

impl fmt::Debug for AddressLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressLook")
    }
}

/// A warning for callers.
pub(crate) fn told(kind: WarningKind, field: impl Into<String>, message: impl Into<String>) -> v1::Warning {
    v1::Warning { kind: kind.into(), field: field.into(), message: message.into() }
}

fn of_schedule(warning: Warning) -> v1::Warning {
    let kind = match warning.about {
        About::TimeInPast => WarningKind::TimeInPast,
        About::NoTimeZone => WarningKind::NoTimeZone,
        About::FinishByShort => WarningKind::FinishByShort,
        About::RunsOverlap => WarningKind::RunsOverlap,
        About::UnitsAboveLimit => WarningKind::UnitsAboveLimit,
    };
    told(kind, format!("schedule.{}", warning.field), warning.message)
}

pub(crate) fn namespace_new(namespace: &str) -> v1::Warning {
    let message =
        format!("nothing has ever been in the namespace {namespace}: it is new, or its name is misspelt");
    told(WarningKind::NamespaceNew, "namespace", message)
}

pub(crate) fn policy_unused(id: &str) -> v1::Warning {
    let message = format!("no schedule uses it; those that shall say policy: {id}");
    told(WarningKind::PolicyUnused, "", message)
}

/// Limits of a policy that are higher than those of one above it.
pub(crate) fn limits_above(policy: &Policy, above: &Policy) -> Vec<v1::Warning> {
    let warned = |field: &str, own: String, most: String, thing: &str| {
        let message = format!(
            "{own} is never reached: {}, which stands above this policy, lets through {most} {thing} at most",
            above.id
        );
        told(WarningKind::LimitAboveParent, format!("policy.{field}"), message)
    };
    let (own, most) = (&policy.limits, &above.limits);
    let in_flight = own.max_in_flight.zip(most.max_in_flight).filter(|(own, most)| own > most);
    let rate = own.rate_per_s.zip(most.rate_per_s).filter(|(own, most)| own > most);
    let in_flight = in_flight
        .map(|(own, most)| warned("max_in_flight", own.to_string(), most.to_string(), "events in flight"));
    let rate = rate
        .map(|(own, most)| warned("rate_per_second", own.to_string(), most.to_string(), "events per second"));
    in_flight.into_iter().chain(rate).collect()
}

pub(crate) fn name_unknown(field: String, what: &str, id: &str) -> v1::Warning {
    let message =
        format!("there is no {what} {id} in this namespace: nothing is told of it until there is one");
    told(WarningKind::NameUnknown, field, message)
}

pub(crate) fn address(field: &str, fault: AddressFault) -> v1::Warning {
    match fault {
        AddressFault::Refused(why) => {
            let message = format!(
                "{why}; nothing will be sent there, unless the setting allow_private_addresses of the service lets it"
            );
            told(WarningKind::AddressRefused, field, message)
        }
        AddressFault::Unknown(why) => {
            told(WarningKind::AddressUnknown, field, format!("{why}; nothing can be sent there until it has"))
        }
    }
}

/// Where a schedule's events go and its lists are, with the fields that say so.
pub(crate) fn addresses_of(schedule: &Schedule) -> Vec<(&'static str, Address)> {
    let address = |url: &str, kind: AddressKind| Address {
        url: url.to_owned(),
        kind,
        namespace: schedule.namespace.clone(),
    };
    let target: Vec<(&'static str, Address)> = match &schedule.target {
        Target::Http { http, .. } => {
            vec![("schedule.target.http.url", address(&http.url, AddressKind::Url))]
        }
        Target::Sqs { sqs, .. } => {
            let endpoint = sqs.endpoint_url.iter();
            let named = |url: &String| address(url, AddressKind::SqsEndpoint);
            endpoint.map(|url| ("schedule.target.sqs.endpoint_url", named(url))).collect()
        }
        Target::Kafka { kafka, .. } => {
            let named = |server| address(server, AddressKind::KafkaServer);
            let servers = kafka.servers();
            servers.map(|server| ("schedule.target.kafka.bootstrap_servers", named(server))).collect()
        }
        Target::Pull { .. } => Vec::new(),
    };
    let list = schedule.payload.from.as_ref();
    let list = list.map(|from| ("schedule.items_from.http.url", address(&from.http.url, AddressKind::Url)));
    target.into_iter().chain(list).collect()
}

/// Where an alert's messages go, and the field that says so.
pub(crate) fn address_of_alert(alert: &Alert) -> Option<(&'static str, Address)> {
    let address = |url: &str, kind: AddressKind| Address {
        url: url.to_owned(),
        kind,
        namespace: alert.namespace.clone(),
    };
    match &alert.target {
        AlertTarget::Http { http } => Some(("alert.target.http.url", address(&http.url, AddressKind::Url))),
        AlertTarget::Slack { slack } => {
            Some(("alert.target.slack.url", address(&slack.url, AddressKind::Url)))
        }
        AlertTarget::Sqs { sqs } => {
            let endpoint = sqs.endpoint_url.as_ref()?;
            Some(("alert.target.sqs.endpoint_url", address(endpoint, AddressKind::SqsEndpoint)))
        }
    }
}

/// What a schedule alone tells, and its latest runs.
pub(crate) fn of_draft(
    draft: &Draft,
    (zone_given, limits): (bool, Option<&PolicyLimits>),
    latest: &[PastRun],
    now_us: i64,
) -> Vec<v1::Warning> {
    let Draft { schedule, plan } = draft;
    let seen = Seen { schedule, plan, zone_given, limits, latest, now_us };
    warnings(&seen).into_iter().map(of_schedule).collect()
}

impl ScheduleMaster {
    /// What whoever gives one schedule is warned of.
    pub(crate) async fn schedule_warnings(&self, draft: &Draft, zone_given: bool) -> Vec<v1::Warning> {
        let Draft { schedule, .. } = draft;
        let limits = match &schedule.policy {
            Some(policy) => self.store().policy(&schedule.namespace, policy).await.ok().flatten(),
            None => None,
        };
        let limits = match &limits {
            Some(policy) => self.limits_of(policy, &mut parents::Known::new()).await.ok(),
            None => None,
        };
        let latest = self.latest_runs(schedule).await;
        let mut warnings = of_draft(draft, (zone_given, limits.as_ref()), &latest, self.now_us());
        for named in addresses_of(schedule) {
            warnings.extend(self.address_warning(Some(named)).await);
        }
        warnings
    }

    /// What whoever gives one policy is warned of, by the nearest policy above it that has such a limit.
    pub(crate) async fn policy_warnings(&self, policy: &Policy) -> Vec<v1::Warning> {
        let mut warnings: Vec<v1::Warning> = Vec::new();
        let mut next = policy.parent.clone();
        for _ in 1..Parent::LEVELS_MAX {
            let Some(parent) = next else { break };
            let Ok(Some(above)) = self.store().policy(&parent.namespace, &parent.id).await else { break };
            let is_new = |found: &v1::Warning| warnings.iter().all(|known| known.field != found.field);
            let found: Vec<v1::Warning> = limits_above(policy, &above).into_iter().filter(is_new).collect();
            warnings.extend(found);
            next = above.parent;
        }
        warnings
    }

    /// What whoever gives one alert is warned of.
    pub(crate) async fn alert_warnings(&self, alert: &Alert) -> Vec<v1::Warning> {
        let mut warnings = self.names_unknown(alert, &BTreeSet::new()).await;
        warnings.extend(self.address_warning(address_of_alert(alert)).await);
        warnings
    }

    async fn address_warning(&self, named: Option<(&'static str, Address)>) -> Option<v1::Warning> {
        let (field, at) = named?;
        let fault = self.options().addresses.at(at).await?;
        Some(address(field, fault))
    }

    /// The schedules and policies that an alert names and that are neither stored nor `given` at the same time, by full name.
    pub(crate) async fn names_unknown(&self, alert: &Alert, given: &BTreeSet<String>) -> Vec<v1::Warning> {
        let schedules = self.store().schedules(&alert.namespace, &alert.schedules).await;
        let policies = self.store().policies(&alert.namespace, &alert.policies).await;
        let (Ok(schedules), Ok(policies)) = (schedules, policies) else { return Vec::new() };
        let of_schedules = alert.schedules.iter().enumerate().filter(|(_, id)| {
            !schedules.iter().any(|schedule| schedule.id == **id)
                && !given.contains(&names::of_schedule(&alert.namespace, id))
        });
        let of_policies = alert.policies.iter().enumerate().filter(|(_, id)| {
            !policies.iter().any(|policy| policy.id == **id)
                && !given.contains(&names::of_policy(&alert.namespace, id))
        });
        of_schedules
            .map(|(at, id)| name_unknown(format!("alert.schedules[{at}]"), "schedule", id))
            .chain(of_policies.map(|(at, id)| name_unknown(format!("alert.policies[{at}]"), "policy", id)))
            .collect()
    }

    /// Whether nothing has ever been in a namespace.
    pub(crate) async fn is_new(&self, namespace: &str) -> bool {
        if namespace == FIRST_NAMESPACE || !names::is_id(namespace) {
            return false;
        }
        let entries = self.store().audit(namespace, &AuditFilter::default(), None, 1).await;
        entries.is_ok_and(|entries| entries.is_empty())
    }

    /// The latest runs of a stored schedule that ended by themselves; none where they cannot be read.
    pub(crate) async fn latest_runs(&self, schedule: &Schedule) -> Vec<PastRun> {
        if schedule.generation == 0 {
            return Vec::new();
        }
        let filter = RunFilter {
            schedule_uid: Some(schedule.uid),
            states: vec![RunState::Finished],
            ..RunFilter::default()
        };
        let runs = self.store().list_runs(&schedule.namespace, &filter, None, RUNS_SEEN).await;
        let past = runs.unwrap_or_default().into_iter().filter_map(|run| {
            let took_us = run.finished_us? - run.launch_us;
            Some(PastRun { events: run.events, took_us })
        });
        past.collect()
    }
}
