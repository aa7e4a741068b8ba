//! Every metric there is: its name, what it says, and where its value comes from; and the two text forms.
//!
//! In: the instruments and the samples of a scrape. Out: OpenMetrics 1.0, or the text format 0.0.4 made from it.
//! Invariant: a metric of this process's roles is there from the first scrape on, at zero if nothing has happened.

use std::collections::HashMap;
use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use tollgate_core::trouble::Kind;

use crate::Metrics;
use crate::histogram::Histogram;
use crate::labels::{Counters, Label};
use crate::process::Process;
use crate::sample::{EmitterSample, HandlerSample, PolicySample, TargetSample};

/// Everything that one scrape shows.
#[derive(Debug)]
pub(crate) struct Scrape {
    pub(crate) metrics: Metrics,
    pub(crate) version: String,
    pub(crate) now_us: i64,
    pub(crate) ready: bool,
    pub(crate) handler: Option<HandlerSample>,
    pub(crate) policies_left_out: u64,
    pub(crate) targets_left_out: u64,
    pub(crate) emitter: Option<EmitterSample>,
    pub(crate) process: Option<Process>,
}

/// The text of a scrape, in OpenMetrics 1.0.
pub(crate) fn openmetrics(scrape: Scrape) -> Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    let mut out = String::with_capacity(16 * 1024);
    text::encode(&mut out, &registry)?;
    Ok(out)
}

/// The same in the text format 0.0.4, in which a counter's family bears the name of its samples.
pub(crate) fn classic(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ').map(|(_, text)| text);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            out.push_str(&format!("# HELP {name}{total} {}\n", help.take().unwrap_or_default()));
            out.push_str(&format!("# TYPE {name}{total} {kind}\n"));
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Writes families.
struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
}

type Labels<'a> = [(&'static str, &'a str)];

impl Writer<'_> {
    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        write: impl FnOnce(&mut MetricEncoder<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        write(&mut self.encoder.encode_descriptor(name, help, None, kind)?)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        self.family(name, help, MetricType::Counter, |family| count(family, &[], value))
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        self.family(name, help, MetricType::Gauge, |family| family.encode_gauge(&value))
    }

    /// A gauge without a series where there is nothing to say.
    fn gauge_if(&mut self, name: &str, help: &str, value: Option<f64>) -> Result<(), Error> {
        self.family(name, help, MetricType::Gauge, |family| {
            value.map_or(Ok(()), |value| family.encode_gauge(&value))
        })
    }

    /// A counter for each value of one label.
    fn counters<L: Label>(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        counters: &Counters<L>,
    ) -> Result<(), Error> {
        self.family(name, help, MetricType::Counter, |family| {
            counters.read().try_for_each(|(text, value)| count(family, &[(label, text)], value))
        })
    }

    fn histograms(&mut self, name: &str, help: &str, all: &[(&Labels<'_>, &Histogram)]) -> Result<(), Error> {
        const NONE: Option<&HashMap<usize, Exemplar<NoLabelSet, f64>>> = None;
        self.family(name, help, MetricType::Histogram, |family| {
            for (labels, histogram) in all {
                let (buckets, sum_s) = histogram.read();
                let total = buckets.iter().map(|(_, own)| own).sum();
                if labels.is_empty() {
                    family.encode_histogram(sum_s, total, &buckets, NONE)?;
                } else {
                    family.encode_family(labels)?.encode_histogram(sum_s, total, &buckets, NONE)?;
                }
            }
            Ok(())
        })
    }

    /// A gauge for each policy that has a value.
    fn policies(
        &mut self,
        name: &str,
        help: &str,
        all: &[PolicySample],
        value: impl Fn(&PolicySample) -> Option<f64>,
    ) -> Result<(), Error> {
        self.family(name, help, MetricType::Gauge, |family| {
            for policy in all {
                let Some(value) = value(policy) else { continue };
                let labels: &Labels<'_> = &[("namespace", &policy.namespace), ("policy", &policy.policy)];
                family.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        })
    }

    /// A gauge for each target.
    fn targets(
        &mut self,
        name: &str,
        help: &str,
        all: &[TargetSample],
        value: impl Fn(&TargetSample) -> f64,
    ) -> Result<(), Error> {
        self.family(name, help, MetricType::Gauge, |family| {
            all.iter().try_for_each(|target| {
                let labels: &Labels<'_> = &[("namespace", &target.namespace), ("target", &target.target)];
                family.encode_family(&labels)?.encode_gauge(&value(target))
            })
        })
    }
}

/// Totals: queues are the users' to name, and there may be any number of them.
fn of_workers(handler: &HandlerSample, to: &mut Writer<'_>) -> Result<(), Error> {
    to.gauge("tollgate_workers", "Workers that are connected to take events", handler.workers as f64)?;
    let room = "How many more events connected workers would be given";
    to.gauge("tollgate_workers_room", room, handler.workers_room as f64)?;
    let events = "Events that connected workers have, or are being given";
    to.gauge("tollgate_workers_events", events, handler.workers_events as f64)
}

fn count(family: &mut MetricEncoder<'_>, labels: &Labels<'_>, value: u64) -> Result<(), Error> {
    if labels.is_empty() {
        return family.encode_counter::<NoLabelSet, u64, f64>(&value, None);
    }
    family.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut writer = Writer { encoder };
        self.of_process(&mut writer)?;
        self.of_deliveries(&mut writer)?;
        self.of_tokens(&mut writer)?;
        self.of_store(&mut writer)?;
        self.of_emitter(&mut writer)?;
        match &self.handler {
            Some(handler) => self.of_shards(handler, &mut writer),
            None => Ok(()),
        }
    }
}

impl Scrape {
    fn of_process(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let gauge = MetricType::Gauge;
        to.family("tollgate_build_info", "Always 1; the version as a label", gauge, |family| {
            let labels: &Labels<'_> = &[("version", &self.version)];
            family.encode_family(&labels)?.encode_gauge(&1_i64)
        })?;
        let ready = f64::from(u8::from(self.ready));
        to.gauge("tollgate_ready", "1 where /readyz answers 200, else 0", ready)?;
        let made = self.metrics.instruments();
        let offset = "By how much the machine's clock is ahead of the database's or, on SQLite, of the time that is held";
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let offset_s = made.clock_offset_us.load(relaxed) as f64 / 1e6;
        to.gauge("tollgate_clock_offset_seconds", offset, offset_s)?;
        let outbox = "Changes that queue shards have not been told yet, as this process saw them last";
        to.gauge("tollgate_outbox_waiting", outbox, made.outbox_waiting.load(relaxed) as f64)?;
        let refused = "Callers that were turned away for want of room, by the bound that they met";
        to.counters("tollgate_refused", refused, "bound", &made.refused)?;
        let alerts = "Attempts to deliver messages of alerts, by what became of them";
        to.counters("tollgate_alert_messages", alerts, "result", &made.alert_messages)?;
        let lists =
            "Attempts to fetch the list of a run, by what became of them, and runs whose list was given up";
        to.counters("tollgate_list_fetches", lists, "result", &made.lists)?;
        let steps = "Ends of runs that another one follows, by what became of them";
        to.counters("tollgate_chain_steps", steps, "result", &made.steps)?;
        let end_s = made.certificate_end_s().map(|end_s| end_s as f64);
        let ends = "When the port's certificate ends, since the Unix epoch; nothing without TLS";
        to.gauge_if("tollgate_certificate_end_seconds", ends, end_s)?;
        let is_stale = f64::from(u8::from(made.certificate_stale.load(relaxed)));
        let stale = "1 while the certificate's files hold another one that cannot be used, else 0";
        to.gauge_if("tollgate_certificate_stale", stale, end_s.map(|_| is_stale))?;
        let spans = "Spans of traces: taken by the collector, or dropped as it did not take them in time";
        to.family("tollgate_trace_spans", spans, MetricType::Counter, |family| {
            let counts = self.metrics.traces().counts();
            for (outcome, value) in [("exported", counts.exported), ("dropped", counts.dropped)] {
                count(family, &[("outcome", outcome)], value)?;
            }
            Ok(())
        })?;
        let Some(process) = &self.process else { return Ok(()) };
        let cpu = "Processor time used, user and system";
        to.family("process_cpu_seconds", cpu, MetricType::Counter, |family| {
            family.encode_counter::<NoLabelSet, f64, f64>(&process.cpu_s, None)
        })?;
        let resident = process.resident_bytes as f64;
        to.gauge("process_resident_memory_bytes", "Memory that is resident", resident)?;
        to.gauge("process_open_fds", "Open files and connections", process.open_fds as f64)?;
        to.gauge("process_max_fds", "As many may be open", process.max_fds as f64)?;
        to.gauge("process_start_time_seconds", "Start, since the Unix epoch", process.start_s)
    }

    fn of_deliveries(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let made = self.metrics.instruments();
        let [free, throttled] = &made.lateness;
        to.histograms(
            "tollgate_lateness_seconds",
            "From an event's launch time to the start of its first delivery, without and with a policy",
            &[(&[("throttled", "false")], free), (&[("throttled", "true")], throttled)],
        )?;
        let handed_on = "From the input that frees a token, through its commit, to the start of the delivery that takes it";
        to.histograms("tollgate_answer_to_fire_seconds", handed_on, &[(&[], &made.answer_to_fire)])?;
        let deliveries = "Deliveries that have been answered, by what the answer says";
        to.family("tollgate_deliveries", deliveries, MetricType::Counter, |family| {
            let kinds = [
                ("http", &made.deliveries_http),
                ("sqs", &made.deliveries_sqs),
                ("kafka", &made.deliveries_kafka),
                ("pull", &made.deliveries_pull),
            ];
            for (kind, counters) in kinds {
                for (outcome, value) in counters.read() {
                    count(family, &[("target", kind), ("outcome", outcome)], value)?;
                }
            }
            Ok(())
        })?;
        to.histograms(
            "tollgate_delivery_duration_seconds",
            "From the start of a delivery to its answer",
            &[
                (&[("target", "http")], &made.delivery_http),
                (&[("target", "sqs")], &made.delivery_sqs),
                (&[("target", "kafka")], &made.delivery_kafka),
                (&[("target", "pull")], &made.delivery_pull),
            ],
        )
    }

    fn of_tokens(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let made = self.metrics.instruments();
        let ended = "Events that have ended, by how";
        to.counters("tollgate_events_ended", ended, "outcome", &made.events_ended)?;
        let releases = "Releases, by what their callers were told; counted where they came in";
        to.counters("tollgate_releases", releases, "answer", &made.releases)?;
        let release = "From a release's arrival to its answer, which comes after the commit";
        to.histograms("tollgate_release_duration_seconds", release, &[(&[], &made.release)])?;
        let reclaimed = made.reclaimed.load(std::sync::atomic::Ordering::Relaxed);
        to.counter("tollgate_tokens_reclaimed", "Tokens taken back from silent consumers", reclaimed)?;
        let skipped = "Triggers recorded as making no run, by reason";
        to.family("tollgate_triggers_skipped", skipped, MetricType::Counter, |family| {
            for (reason, value) in made.skipped.read() {
                let emitter = self.emitter.as_ref().map_or(0, |emitter| match reason {
                    "missed" => emitter.missed,
                    "paused" => emitter.paused,
                    _ => 0,
                });
                count(family, &[("reason", reason)], value + emitter)?;
            }
            Ok(())
        })
    }

    fn of_store(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let made = self.metrics.instruments();
        let commit = "Commits of queue shards' owners, from begin to end";
        to.histograms("tollgate_commit_duration_seconds", commit, &[(&[], &made.commit)])?;
        let failures = "Commits that were none: the shard had another owner, they failed, or nobody knows";
        to.counters("tollgate_commit_failures", failures, "kind", &made.commit_failures)?;
        let store = "Calls that the store failed, other than commits, by role";
        to.family("tollgate_store_failures", store, MetricType::Counter, |family| {
            for (role, value) in made.store_failures.read() {
                let rounds = self.emitter.as_ref().filter(|_| role == "emitter").map_or(0, |e| e.failures);
                count(family, &[("role", role)], value + rounds)?;
            }
            Ok(())
        })?;
        let taken = "Queue shards that this process has taken, by whose they were";
        to.counters("tollgate_shards_taken", taken, "from", &made.shards_taken)?;
        let heartbeats = "Signs of life of this process in the store";
        to.counter("tollgate_heartbeats", heartbeats, self.metrics.heartbeats())
    }

    fn of_emitter(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let Some(emitter) = &self.emitter else { return Ok(()) };
        if let Some(until_us) = emitter.emitted_until_us {
            let lag_s = (self.now_us - until_us) as f64 / 1e6;
            let help = "From the end of what has been emitted to now; negative while that lies ahead";
            to.gauge("tollgate_emitter_lag_seconds", help, lag_s)?;
        }
        to.counter("tollgate_windows_opened", "Scan windows that this emitter has opened", emitter.windows)?;
        to.counter("tollgate_scan_tasks", "Parts of windows that this emitter has scanned", emitter.tasks)?;
        to.counter("tollgate_children_read", "Children of schedules read by scans", emitter.children)?;
        to.counter("tollgate_runs_emitted", "Runs handed over to queue shards", emitter.runs)?;
        to.counter("tollgate_emitter_corrupt", "Rows that scans passed over as corrupt", emitter.corrupt)
    }

    fn of_shards(&self, handler: &HandlerSample, to: &mut Writer<'_>) -> Result<(), Error> {
        let owned = "Queue shards that this process owns";
        to.gauge("tollgate_shards_owned", owned, handler.shards_owned as f64)?;
        let silent = "Owned shards that did not answer the scrape: they are being loaded";
        to.gauge("tollgate_shards_silent", silent, handler.shards_silent as f64)?;
        let paused = "Owned shards in which everything is paused";
        to.gauge("tollgate_shards_paused", paused, handler.shards_paused as f64)?;
        let launched = "Unfinished runs of owned shards that have launched";
        to.gauge("tollgate_runs_launched", launched, handler.runs_launched as f64)?;
        let upcoming = "Loaded runs of owned shards whose launch time lies ahead";
        to.gauge("tollgate_runs_upcoming", upcoming, handler.runs_upcoming as f64)?;
        let corrupt = "Rows of owned shards that cannot be read";
        to.gauge("tollgate_corrupt_rows", corrupt, handler.corrupt_rows as f64)?;
        let unreadable = "Runs of owned shards that are passed over, as they or their specs cannot be read";
        to.gauge("tollgate_runs_unreadable", unreadable, handler.runs_unreadable as f64)?;
        let unreadable = "Messages to owned shards that are passed over, as they cannot be read";
        to.gauge("tollgate_messages_unreadable", unreadable, handler.messages_unreadable as f64)?;
        let schedules =
            "Schedules that owned shards remember: runs, a pause, a cursor, or a change of the last day";
        to.gauge("tollgate_schedules_remembered", schedules, handler.schedules_remembered as f64)?;
        let specs = "Run specs, with their payloads, that owned shards keep in memory";
        to.gauge("tollgate_specs_remembered", specs, handler.specs_remembered as f64)?;
        let policies = "Policies that owned shards keep in memory";
        to.gauge("tollgate_policies_remembered", policies, handler.policies_remembered as f64)?;
        let troubles = "What is wrong with owned shards, or with the whole installation, by kind";
        to.family("tollgate_troubles", troubles, MetricType::Gauge, |family| {
            Kind::ALL.iter().try_for_each(|kind| {
                let labels: &Labels<'_> = &[("kind", kind.word())];
                let count = handler.troubles.get(kind).copied().unwrap_or_default();
                family.encode_family(&labels)?.encode_gauge(&(count as f64))
            })
        })?;
        of_workers(handler, to)?;
        self.of_policies(handler, to)?;
        self.of_targets(&handler.targets, to)
    }

    fn of_policies(&self, handler: &HandlerSample, to: &mut Writer<'_>) -> Result<(), Error> {
        let left_out = "Policies of owned shards without series of their own";
        to.gauge("tollgate_policies_left_out", left_out, self.policies_left_out as f64)?;
        let all = &handler.policies;
        let held = "Tokens held; policy (none): events in flight that no policy bounds";
        to.policies("tollgate_policy_in_flight", held, all, |policy| Some(policy.in_flight as f64))?;
        let limit = "The most tokens that may be held; none where only a rate bounds";
        to.policies("tollgate_policy_limit", limit, all, |policy| policy.limit.map(|limit| limit as f64))?;
        let waiting = "Events that are due and have not started, or wait for another attempt";
        to.policies("tollgate_policy_waiting", waiting, all, |policy| Some(policy.waiting as f64))?;
        let oldest = "For how long the oldest event that has not started, or has failed, has been due";
        to.policies("tollgate_policy_oldest_wait_seconds", oldest, all, |policy| {
            Some(policy.oldest_wait_us as f64 / 1e6)
        })?;
        let retrying = "Events that wait for another attempt";
        to.policies("tollgate_policy_retrying", retrying, all, |policy| Some(policy.retrying as f64))?;
        let started = "Events per second that targets took, or may have taken, over the last minute";
        to.policies("tollgate_policy_started_per_second", started, all, |policy| Some(policy.started_per_s))?;
        let refused = "Deliveries per second that were refused, or did not leave, over the last minute";
        to.policies("tollgate_policy_refused_per_second", refused, all, |policy| Some(policy.refused_per_s))?;
        let unclear = "Deliveries per second of which nobody knows, over the last minute";
        to.policies("tollgate_policy_unclear_per_second", unclear, all, |policy| Some(policy.unclear_per_s))?;
        let at_risk = "Runs of which events are not expected to start within finish_by";
        to.policies("tollgate_policy_runs_at_risk", at_risk, all, |policy| Some(policy.runs_at_risk as f64))?;
        let suspect = "Held tokens whose consumers have been silent for too long";
        to.policies("tollgate_policy_suspect", suspect, all, |policy| Some(policy.suspect as f64))?;
        let paused = "1 where the policy is paused, else 0";
        to.policies("tollgate_policy_paused", paused, all, |policy| Some(f64::from(u8::from(policy.paused))))
    }

    fn of_targets(&self, all: &[TargetSample], to: &mut Writer<'_>) -> Result<(), Error> {
        let left_out = "Targets of owned shards without series of their own";
        to.gauge("tollgate_targets_left_out", left_out, self.targets_left_out as f64)?;
        let held = "Events in flight to a target, of one namespace; target (others): those not told apart";
        to.targets("tollgate_target_in_flight", held, all, |target| target.in_flight as f64)?;
        let waiting = "Events for a target that are due and have not started, or wait for another attempt";
        to.targets("tollgate_target_waiting", waiting, all, |target| target.waiting as f64)?;
        let oldest = "For how long the oldest event that has not started, or has failed, has been due";
        to.targets("tollgate_target_oldest_wait_seconds", oldest, all, |target| {
            target.oldest_wait_us as f64 / 1e6
        })?;
        let retrying = "Events for a target that wait for another attempt";
        to.targets("tollgate_target_retrying", retrying, all, |target| target.retrying as f64)?;
        let started = "Events per second that a target took, or may have taken, over the last minute";
        to.targets("tollgate_target_started_per_second", started, all, |target| target.started_per_s)?;
        let accepted = "Deliveries per second that a target took, over the last minute";
        to.targets("tollgate_target_accepted_per_second", accepted, all, |target| target.accepted_per_s)?;
        let refused = "Deliveries per second that it refused, or that did not leave, over the last minute";
        to.targets("tollgate_target_refused_per_second", refused, all, |target| target.refused_per_s)?;
        let unclear = "Deliveries per second of which nobody knows, over the last minute";
        to.targets("tollgate_target_unclear_per_second", unclear, all, |target| target.unclear_per_s)
    }
}

#[cfg(test)]
#[path = "exposition_tests.rs"]
mod tests;
