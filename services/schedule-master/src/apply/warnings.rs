//! Gathers what whoever applies many resources is warned of.
//!
//! In: each resource as it is judged. Out: warnings with where each resource was written. Invariants: at most
//! [`WARNINGS_MAX`]; what has to be looked up is looked up after everything is written, for a bounded number of resources, and
//! addresses all at once within [`PATIENCE`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tollgate_core::model::{Alert, OverlapRule, Policy};
use tollgate_core::plan::units::PolicyLimits;
use tollgate_proto::convert::names;
use tollgate_proto::v1;
use tollgate_store::plan::Filter;

use super::{Gathered, Key, ResourceRef, key};
use crate::ScheduleMaster;
use crate::draft::Draft;
use crate::warnings::{self, Address, AddressFault};

/// The most warnings in an answer.
const WARNINGS_MAX: usize = 1_000;
/// The most resources of a kind for which the store is asked.
const ASKED_MAX: usize = 100;
/// How many stored policies of a namespace are looked at for those that stand above them.
const STORED_SEEN: u32 = 1_000;
/// The most addresses that are looked at.
const ADDRESSES_MAX: usize = 200;
/// For how long all addresses are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A resource, as a warning names it.
#[derive(Clone, Debug)]
struct Named {
    source: String,
    name: String,
}

/// Who goes to an address, and the field that says so.
type Places = Vec<(Named, &'static str)>;

/// A schedule whose latest runs say more.
#[derive(Debug)]
struct Later {
    named: Named,
    draft: Draft,
    zone_given: bool,
    limits: Option<PolicyLimits>,
}

/// What has been seen of the resources.
#[derive(Debug, Default)]
pub(super) struct Notes {
    warnings: Vec<v1::ResourceWarning>,
    later: Vec<Later>,
    addresses: BTreeMap<Address, Places>,
    /// Policies that are given, with whether a schedule that is given uses them.
    policies: BTreeMap<Key, Named>,
    used: BTreeSet<Key>,
    /// Policies below others.
    placed: Vec<Policy>,
    alerts: Vec<(Named, Alert)>,
    /// The full names of what is given, where alerts are given, too: in a dry run it is not stored.
    given: BTreeSet<String>,
}

impl Named {
    fn of(reference: &ResourceRef, name: String) -> Self {
        Self { source: reference.source.clone(), name }
    }

    fn warned(&self, warning: v1::Warning) -> v1::ResourceWarning {
        v1::ResourceWarning { source: self.source.clone(), name: self.name.clone(), warning: Some(warning) }
    }
}

impl Notes {
    /// A schedule, as it shall be.
    pub(super) fn schedule(
        &mut self,
        reference: &ResourceRef,
        draft: &Draft,
        (zone_given, limits): (bool, Option<&PolicyLimits>),
        now_us: i64,
    ) {
        let schedule = &draft.schedule;
        let named = Named::of(reference, names::of_schedule(&schedule.namespace, &schedule.id));
        if let Some(policy) = &schedule.policy {
            self.used.insert((schedule.namespace.clone(), policy.clone()));
        }
        for (field, address) in warnings::addresses_of(schedule) {
            self.address(field, address, &named);
        }
        let stored = schedule.generation > 0;
        let runs_matter = schedule.overlap == OverlapRule::Allow || schedule.finish_by_s.is_some();
        if stored && runs_matter && self.later.len() < ASKED_MAX {
            let draft = Draft { schedule: schedule.clone(), plan: draft.plan.clone() };
            return self.later.push(Later { named, draft, zone_given, limits: limits.cloned() });
        }
        let found = warnings::of_draft(draft, (zone_given, limits), &[], now_us);
        self.add(&named, found);
    }

    /// A policy that is given. One that others stand below, or that adopts new ones, is of use without schedules.
    pub(super) fn policy(&mut self, reference: &ResourceRef, given: &v1::Policy) {
        if given.adopts {
            self.used.insert(key(reference));
        }
        let parent = names::policy_within("policy.parent", &reference.name.namespace, given.parent());
        self.used.extend(parent.map(|parent| (parent.namespace, parent.id)).ok());
        if self.policies.len() < ASKED_MAX {
            let named = Named::of(reference, names::of_policy(&reference.name.namespace, &reference.name.id));
            self.policies.insert(key(reference), named);
        }
    }

    /// A calendar that is given, with what it is worth a warning for.
    pub(super) fn calendar(&mut self, reference: &ResourceRef, found: Vec<v1::Warning>) {
        let name = names::of_calendar(&reference.name.namespace, &reference.name.id);
        self.add(&Named::of(reference, name), found);
    }

    /// A policy, as it shall be.
    pub(super) fn placed(&mut self, policy: &Policy) {
        if policy.parent.is_some() && self.placed.len() < ASKED_MAX {
            self.placed.push(policy.clone());
        }
    }

    /// An alert, as it shall be.
    pub(super) fn alert(&mut self, reference: &ResourceRef, alert: &Alert) {
        let named = Named::of(reference, names::of_alert(&alert.namespace, &alert.id));
        if let Some((field, address)) = warnings::address_of_alert(alert) {
            self.address(field, address, &named);
        }
        if self.alerts.len() < ASKED_MAX {
            self.alerts.push((named, alert.clone()));
        }
    }

    /// Names that alerts may know before they are stored.
    pub(super) fn remember(&mut self, given: &Gathered) {
        if !given.alerts.is_empty() {
            let schedules = given.schedules.iter().map(|one| &one.reference.name);
            let policies = given.policies.iter().map(|one| &one.reference.name);
            self.given = schedules.map(|name| names::of_schedule(&name.namespace, &name.id)).collect();
            self.given.extend(policies.map(|name| names::of_policy(&name.namespace, &name.id)));
        }
    }

    fn address(&mut self, field: &'static str, address: Address, named: &Named) {
        if self.addresses.len() < ADDRESSES_MAX || self.addresses.contains_key(&address) {
            let places = self.addresses.entry(address).or_default();
            if places.len() < WARNINGS_MAX {
                places.push((named.clone(), field));
            }
        }
    }

    fn add(&mut self, named: &Named, found: Vec<v1::Warning>) {
        let room = WARNINGS_MAX.saturating_sub(self.warnings.len());
        self.warnings.extend(found.into_iter().take(room).map(|warning| named.warned(warning)));
    }
}

impl ScheduleMaster {
    /// The namespaces among those of the resources in which nothing has ever been, with the first resource of each.
    pub(super) async fn new_namespaces(&self, given: &Gathered) -> Vec<v1::ResourceWarning> {
        let policies =
            given.policies.iter().map(|one| (&one.reference, names::of_policy as fn(&str, &str) -> String));
        let schedules = given
            .schedules
            .iter()
            .map(|one| (&one.reference, names::of_schedule as fn(&str, &str) -> String));
        let calendars = given
            .calendars
            .iter()
            .map(|one| (&one.reference, names::of_calendar as fn(&str, &str) -> String));
        let alerts =
            given.alerts.iter().map(|one| (&one.reference, names::of_alert as fn(&str, &str) -> String));
        let mut first: BTreeMap<&str, Named> = BTreeMap::new();
        for (reference, of) in policies.chain(calendars).chain(schedules).chain(alerts) {
            let namespace = reference.name.namespace.as_str();
            if !first.contains_key(namespace) {
                first.insert(namespace, Named::of(reference, of(namespace, &reference.name.id)));
            }
        }
        let mut new = Vec::new();
        for (namespace, named) in first.into_iter().take(ASKED_MAX) {
            if self.is_new(namespace).await {
                new.push(named.warned(warnings::namespace_new(namespace)));
            }
        }
        new
    }

    /// All warnings, once everything is written.
    pub(super) async fn warned(&self, mut notes: Notes) -> Vec<v1::ResourceWarning> {
        for later in std::mem::take(&mut notes.later) {
            let Later { named, draft, zone_given, limits } = later;
            let latest = self.latest_runs(&draft.schedule).await;
            let found = warnings::of_draft(&draft, (zone_given, limits.as_ref()), &latest, self.now_us());
            notes.add(&named, found);
        }
        for policy in std::mem::take(&mut notes.placed) {
            let named = notes.policies.get(&(policy.namespace.clone(), policy.id.clone())).cloned();
            if let Some(named) = named {
                let found = self.policy_warnings(&policy).await;
                notes.add(&named, found);
            }
        }
        self.unused(&mut notes).await;
        for (named, alert) in std::mem::take(&mut notes.alerts) {
            let found = self.names_unknown(&alert, &notes.given).await;
            notes.add(&named, found);
        }
        self.look_at(&mut notes).await;
        notes.warnings
    }

    /// Notes the policies that no schedule uses, and below which none stands.
    async fn unused(&self, notes: &mut Notes) {
        let mut policies = std::mem::take(&mut notes.policies);
        policies.retain(|key, _| !notes.used.contains(key));
        let namespaces: BTreeSet<&String> = policies.keys().map(|(namespace, _)| namespace).collect();
        for namespace in namespaces {
            let stored = self.store().list_policies(namespace, &Filter::default(), None, STORED_SEEN).await;
            let parents = stored.unwrap_or_default().into_iter().filter_map(|policy| policy.parent);
            notes.used.extend(parents.map(|parent| (parent.namespace, parent.id)));
        }
        for ((namespace, id), named) in policies {
            if notes.used.contains(&(namespace.clone(), id.clone())) {
                continue;
            }
            let filter = Filter { policy: Some(id.clone()), ..Filter::default() };
            let users = self.store().list_schedules(&namespace, &filter, None, 1).await;
            if users.is_ok_and(|found| found.is_empty()) {
                notes.add(&named, vec![warnings::policy_unused(&id)]);
            }
        }
    }

    /// Looks at all addresses at once; those that are not known in time are not warned of.
    async fn look_at(&self, notes: &mut Notes) {
        let mut looks: FuturesUnordered<BoxFuture<'_, (Option<AddressFault>, Places)>> =
            FuturesUnordered::new();
        for (address, places) in std::mem::take(&mut notes.addresses) {
            let look = self.options().addresses.at(address);
            looks.push(Box::pin(async move { (look.await, places) }));
        }
        let until = tokio::time::sleep(PATIENCE);
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                looked = looks.next() => match looked {
                    Some((Some(fault), places)) => {
                        for (named, field) in places {
                            notes.add(&named, vec![warnings::address(field, fault.clone())]);
                        }
                    }
                    Some((None, _)) => {}
                    None => return,
                },
                () = &mut until => return,
            }
        }
    }
}
