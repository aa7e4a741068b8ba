//! Tells who must know: decides for each alert every few seconds, and sends its messages.
//!
//! In: alerts, the list of troubles of all processes, runs that have finished. Out: messages to the alerts' receivers. One
//! process decides at a time, the one with the first id of those that own queue shards; where two believe to be it, what
//! is remembered of an alert lets one of them write. Invariants: what is remembered is written before a message is sent
//! and after it was answered; a message that was tried by a process that died is tried again under the same id; each
//! receiver is spoken to by a task of its own, through connections that no event has. Not here: when something is told,
//! which the core decides; texts.

mod finished;
mod labels;
mod mail;
mod message;

pub(crate) use mail::Mail;

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tollgate_core::alert::{Look, Message, OVERLAP_EVERY_US, Selection, State};
use tollgate_core::model::{Alert, AlertRuns, Sent};
use tollgate_core::trouble::Trouble;
use tollgate_metrics::{AlertMessage, Role};
use tollgate_proto::convert::names;
use tollgate_store::StoreError;
use tollgate_store::alert::Remembered;
use uuid::Uuid;

use crate::Shared;
use crate::queries::Seen;
use finished::Finished;

/// How often is decided.
const EVERY: Duration = Duration::from_secs(2);
/// How long a stop waits for answers.
const GRACE: Duration = Duration::from_secs(2);
/// Alerts that are read at once.
const PAGE: u32 = 500;
/// The most bytes of what went wrong that are kept.
const ERROR_CHARS: usize = 500;

/// What became of an attempt.
struct Answer {
    alert: Uuid,
    number: u64,
    sent: Sent,
}

/// What is remembered of an alert, and how far it has been told of runs since that was read.
struct Known {
    remembered: Remembered,
    looked: Option<Looked>,
}

/// What was read of runs.
#[derive(Clone, Copy)]
struct Looked {
    /// What finished before.
    until_us: i64,
    /// When what had been read before was read again.
    again_us: i64,
}

/// What all alerts are decided from.
struct Found {
    troubles: Vec<Trouble>,
    is_sure: bool,
    runs: Vec<Finished>,
    /// Now, and before which moment all runs that finished are among these.
    until_us: i64,
    reached_us: i64,
}

impl Known {
    /// From when on ends of runs are to be read: what was read before is read again now and then.
    fn runs_from_us(&self, now_us: i64) -> Option<i64> {
        match self.looked {
            Some(looked) if !looked.is_due(now_us) => Some(looked.until_us),
            _ => self.remembered.state.runs_from_us(now_us),
        }
    }

    /// What finished up to a moment has been taken in.
    fn looked(&mut self, until_us: i64, now_us: i64) {
        let again_us = self.looked.filter(|before| !before.is_due(now_us)).map(|before| before.again_us);
        let until_us = self.looked.map_or(until_us, |before| before.until_us.max(until_us));
        self.looked = Some(Looked { until_us, again_us: again_us.unwrap_or(now_us) });
    }
}

impl From<Remembered> for Known {
    fn from(remembered: Remembered) -> Self {
        Self { remembered, looked: None }
    }
}

impl Looked {
    fn is_due(self, now_us: i64) -> bool {
        !(0..OVERLAP_EVERY_US).contains(&(now_us - self.again_us))
    }
}

/// What decides and sends.
struct Teller {
    shared: Shared,
    mail: Mail,
    tasks: TaskTracker,
    answers: (mpsc::UnboundedSender<Answer>, mpsc::UnboundedReceiver<Answer>),
    /// What the alerts were marked with when they were read.
    mark: Option<i64>,
    /// Those that are not disabled.
    alerts: Vec<Alert>,
    /// As it is stored, as far as is known.
    known: HashMap<Uuid, Known>,
    /// Those that could not be decided for.
    failing: BTreeSet<Uuid>,
    /// Alerts with a message under way.
    under_way: BTreeSet<Uuid>,
}

/// Decides and sends until told to stop.
pub(crate) async fn run(shared: Shared, mail: Mail, stop: CancellationToken) {
    let mut teller = Teller {
        shared,
        mail,
        tasks: TaskTracker::new(),
        answers: mpsc::unbounded_channel(),
        mark: None,
        alerts: Vec::new(),
        known: HashMap::new(),
        failing: BTreeSet::new(),
        under_way: BTreeSet::new(),
    };
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            answer = teller.answers.1.recv() => teller.answered(answer).await,
            _ = ticks.tick() => teller.tick().await,
        }
    }
    teller.tasks.close();
    let _late = tokio::time::timeout(GRACE, teller.tasks.wait()).await;
    while let Ok(answer) = teller.answers.1.try_recv() {
        teller.answered(Some(answer)).await;
    }
}

impl Teller {
    async fn tick(&mut self) {
        if let Err(error) = self.decide().await {
            self.shared.options.metrics.store_failed(Role::Handler);
            tracing::debug!(%error, "nothing is decided for alerts");
            self.known.clear();
            self.mark = None;
        }
    }

    async fn decide(&mut self) -> Result<(), StoreError> {
        self.read_alerts().await?;
        if self.alerts.is_empty() || !self.is_its_turn().await? {
            self.known.clear();
            return Ok(());
        }
        let wants_troubles = self.alerts.iter().any(|alert| alert.troubles.is_some());
        let seen = if wants_troubles { self.shared.troubles().await } else { Seen::default() };
        let (troubles, is_blind) = (seen.troubles, seen.incomplete || seen.settling);
        let is_sure = !is_blind && Look::is_whole(&troubles);
        self.recall().await?;
        let until_us = self.shared.clock.wall_us();
        let (runs, reached_us) = self.runs(until_us).await?;
        let found = Found { troubles, is_sure, runs, until_us, reached_us };
        let labelled = self.labelled(&found).await;
        for alert in std::mem::take(&mut self.alerts) {
            if !self.under_way.contains(&alert.uid) {
                let decided = match labelled.of(&alert) {
                    Ok(selection) => self.decide_for(&alert, &selection, &found).await,
                    Err(error) => Err(error),
                };
                self.note_decided(&alert, decided);
            }
            self.alerts.push(alert);
        }
        Ok(())
    }

    /// One alert that cannot be decided for keeps no other waiting.
    fn note_decided(&mut self, alert: &Alert, decided: Result<(), StoreError>) {
        let Err(error) = decided else {
            self.failing.remove(&alert.uid);
            return;
        };
        self.shared.options.metrics.store_failed(Role::Handler);
        if self.failing.insert(alert.uid) {
            let alert = names::of_alert(&alert.namespace, &alert.id);
            tracing::warn!(alert, %error, "nothing can be decided for an alert; the others go on");
        }
    }

    async fn read_alerts(&mut self) -> Result<(), StoreError> {
        let people = &self.shared.people;
        let mark = people.alerts_mark().await?;
        if self.mark == Some(mark) {
            return Ok(());
        }
        self.alerts.clear();
        self.mark = None;
        let mut after = None;
        loop {
            let (page, next) = people.every_alert(after, PAGE).await?;
            self.alerts.extend(page.into_iter().filter(|alert| !alert.disabled));
            match next {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        self.mark = Some(mark);
        let uids: BTreeSet<Uuid> = self.alerts.iter().map(|alert| alert.uid).collect();
        self.known.retain(|uid, _| uids.contains(uid));
        self.failing.retain(|uid| uids.contains(uid));
        Ok(())
    }

    /// Whether this process is the first of those that own queue shards.
    async fn is_its_turn(&self) -> Result<bool, StoreError> {
        let leases = self.shared.people.leases().await?;
        let owners = leases.iter().map(|lease| lease.owner.as_str()).filter(|owner| !owner.is_empty());
        Ok(owners.min() == Some(self.shared.process.as_str()))
    }

    /// Reads what is remembered of those of which nothing is known here.
    async fn recall(&mut self) -> Result<(), StoreError> {
        let unknown: Vec<Uuid> = self
            .alerts
            .iter()
            .map(|alert| alert.uid)
            .filter(|uid| !self.known.contains_key(uid) && !self.under_way.contains(uid))
            .collect();
        for uids in unknown.chunks(PAGE as usize) {
            let read = self.shared.people.alert_states(uids).await?;
            let nothing = |alert| Remembered { alert, version: 0, state: State::default() };
            let nothing = uids.iter().map(|uid| nothing(*uid));
            // What was read comes last, and holds.
            self.known.extend(nothing.chain(read).map(|remembered| (remembered.alert, remembered.into())));
        }
        Ok(())
    }

    /// Runs that have finished since the alerts that ask for them looked last, and how far they have been read.
    async fn runs(&self, now_us: i64) -> Result<(Vec<Finished>, i64), StoreError> {
        let is_asking =
            |alert: &&Alert| alert.runs != AlertRuns::None && !self.under_way.contains(&alert.uid);
        let asking: Vec<&Alert> = self.alerts.iter().filter(is_asking).collect();
        let from = asking.iter().filter_map(|alert| self.known.get(&alert.uid)?.runs_from_us(now_us));
        match from.min() {
            Some(from_us) => self.shared.finished_since(from_us, now_us, &asking).await,
            None => Ok((Vec::new(), now_us)),
        }
    }

    async fn decide_for(
        &mut self,
        alert: &Alert,
        selection: &Selection<'_>,
        found: &Found,
    ) -> Result<(), StoreError> {
        let Some(mut known) = self.known.remove(&alert.uid) else { return Ok(()) };
        let wanted = found.troubles.iter().filter(|trouble| alert.wants(trouble, selection));
        let wanted: Vec<Trouble> = wanted.cloned().collect();
        let mut state = known.remembered.state.clone();
        let (rules, now_us) = (alert.rules(), self.shared.clock.wall_us());
        state.renew(&rules, &found.troubles, &wanted);
        if alert.runs == AlertRuns::None {
            state.forget_runs();
            known.looked = None;
        } else {
            // The first look is at nothing.
            let until_us = if state.read_us.is_some() { found.reached_us } else { found.until_us };
            let ended = found.runs.iter().filter(|run| run.is_wanted_by(alert, selection));
            state.finished(ended.map(|run| run.ended.clone()), until_us, now_us);
            known.looked(until_us, found.until_us);
        }
        let (dropped, is_failing) = (state.dropped, state.is_failing());
        let message = state.step(&rules, Look { troubles: &wanted, is_sure: found.is_sure }, now_us);
        let is_dropped = state.dropped > dropped;
        if state != known.remembered.state {
            known.remembered.state = state;
            if !self.shared.people.write_alert_state(&known.remembered).await? {
                // Somebody else has written: what that was is read next time.
                return Ok(());
            }
            known.remembered.version += 1;
        }
        if is_dropped {
            self.note_dropped(alert);
        }
        self.known.insert(alert.uid, known);
        if let Some(message) = message {
            self.send(alert, message, is_failing);
        }
        Ok(())
    }

    /// Sends a message in a task of its own.
    fn send(&mut self, alert: &Alert, message: Message, is_failing: bool) {
        self.under_way.insert(alert.uid);
        let (answers, mail, alert) = (self.answers.0.clone(), self.mail.clone(), alert.clone());
        self.tasks.spawn(async move {
            let parcel = message::parcel(&alert, &message);
            let sent = mail.send(&alert, &parcel, is_failing).await;
            // Where nobody waits any more, the message is tried again.
            let _ended = answers.send(Answer { alert: alert.uid, number: message.number, sent });
        });
    }

    async fn answered(&mut self, answer: Option<Answer>) {
        let Some(Answer { alert, number, sent }) = answer else { return };
        self.under_way.remove(&alert);
        let (metrics, now_us) = (&self.shared.options.metrics, self.shared.clock.wall_us());
        let failure = failure_of(sent);
        let result = if failure.is_none() { AlertMessage::Sent } else { AlertMessage::Failed };
        metrics.alert_messages(result, 1);
        let Some(mut known) = self.known(alert).await else { return };
        let remembered = &mut known.remembered;
        let metrics = &self.shared.options.metrics;
        match failure {
            None => remembered.state.taken(number, now_us),
            Some((words, asked_us)) => {
                let attempts = remembered.state.pending.as_ref().map_or(0, |pending| pending.attempts);
                if attempts.is_power_of_two() {
                    tracing::warn!(
                        alert = self.name_of(alert),
                        attempts,
                        error = words,
                        "a message of an alert was not taken; it is tried again"
                    );
                }
                remembered.state.failed(number, words, asked_us, now_us);
            }
        }
        match self.shared.people.write_alert_state(remembered).await {
            Ok(true) => {
                remembered.version += 1;
                self.known.insert(alert, known);
            }
            // What is stored now is read next time.
            Ok(false) => {}
            Err(error) => {
                metrics.store_failed(Role::Handler);
                tracing::debug!(%error, "what became of a message of an alert is not written");
            }
        }
    }

    /// What is remembered of an alert, read where it is not known here.
    async fn known(&mut self, alert: Uuid) -> Option<Known> {
        match self.known.remove(&alert) {
            Some(known) => Some(known),
            None => self.shared.people.alert_states(&[alert]).await.ok()?.pop().map(Known::from),
        }
    }

    fn note_dropped(&self, alert: &Alert) {
        self.shared.options.metrics.alert_messages(AlertMessage::Dropped, 1);
        let alert = names::of_alert(&alert.namespace, &alert.id);
        tracing::error!(alert, "nobody took a message of an alert for 24 hours; it is not tried again");
    }

    fn name_of(&self, uid: Uuid) -> String {
        let alert = self.alerts.iter().find(|alert| alert.uid == uid);
        alert.map(|alert| names::of_alert(&alert.namespace, &alert.id)).unwrap_or_default()
    }
}

/// What went wrong, and the pause that the receiver asked for; none where it has taken the message.
fn failure_of(sent: Sent) -> Option<(String, Option<i64>)> {
    let (message, retry_after_ms) = match sent {
        Sent::Accepted => return None,
        Sent::Refused { message, retry_after_ms, .. }
        | Sent::RefusedAlone { message, retry_after_ms }
        | Sent::NotSent { message, retry_after_ms }
        | Sent::Unclear { message, retry_after_ms } => (message, retry_after_ms),
    };
    Some((message.chars().take(ERROR_CHARS).collect(), retry_after_ms.map(|ms| ms.saturating_mul(1_000))))
}
