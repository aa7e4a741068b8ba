//! Decides where a schedule's secret parts are in clear, and brings what is stored under the first key.
//!
//! A [`Schedule`] that comes from the store is as it is stored: sealed where there are keys. It is opened to be compared
//! with what a caller gives, and to be shown; what is written is sealed again. Pauses, triggers, deletions and notices
//! need no key. What cannot be opened is shown sealed, and not changed.

use tollgate_core::items::of_lines;
use tollgate_core::model::{RunId, Schedule, Target};
use tollgate_proto::FieldError;
use tollgate_proto::convert::names;
use tollgate_secrets::{
    ENVELOPE, Keys, Resealed, SecretError, has_sealed, is_sealed, item_field, result_field,
};
use tollgate_store::seal::StoredItemRun;
use tollgate_store::{Store, StoreError};
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;

/// How many rows are brought under another key in one transaction.
const PAGE: u32 = 200;
/// Passes over everything after which rows that others keep changing are left to the next rotation.
const PASSES_MAX: u32 = 5;

/// What [`reseal`] has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resealing {
    /// Rows that were looked at.
    pub rows: u64,
    /// Of those, rows that were brought under the first key.
    pub resealed: u64,
    /// Of those, rows that somebody else changed meanwhile, and that are as they were made then.
    pub overtaken: u64,
    /// Whether nothing is left of what was replaced: not so with a database that others have open, or on a server.
    pub rewritten: bool,
    /// Rows that could not be, each with its reason. They are as they were.
    pub failed: Vec<String>,
}

impl Resealing {
    fn failed(&mut self, what: String, why: &dyn std::fmt::Display) {
        self.failed.push(format!("{what}: {why}"));
    }
}

/// Brings every secret that is stored under the first of `keys`. Can be broken off at any time and begun again, and may
/// go on beside running processes that have these keys.
///
/// # Errors
/// Those of the store. Rows that cannot be opened or read are named in the answer, and the others are done.
pub async fn reseal(store: &dyn Store, keys: &Keys) -> Result<Resealing, StoreError> {
    let mut resealed = 0;
    let mut passes = 0;
    // Who had read a schedule before it was resealed may have written it as it was. So once more, until all is well.
    let mut done = loop {
        let done = pass(store, keys).await?;
        (resealed, passes) = (resealed + done.resealed, passes + 1);
        if passes == PASSES_MAX || (done.resealed == 0 && done.overtaken == 0) {
            break done;
        }
    };
    done.resealed = resealed;
    // Where a key is missing, these may not be the keys of the processes that are to start with it.
    if done.failed.is_empty() {
        reseal_installation(store, keys, &mut done).await?;
    }
    done.rewritten = store.scrub().await?;
    Ok(done)
}

async fn pass(store: &dyn Store, keys: &Keys) -> Result<Resealing, StoreError> {
    let mut done = Resealing::default();
    let mut after = None;
    loop {
        let page = store.stored_schedules(after, PAGE).await?;
        let mut changed = Vec::new();
        for row in &page {
            let what = || format!("schedule {}", row.uid);
            match row.with(|target, payload| keys.reseal_parts(row.uid, target, payload)) {
                Ok((new, Ok(Resealed::Changed))) => changed.push((row.clone(), new)),
                Ok((_, Ok(Resealed::Unchanged))) => {}
                Ok((_, Err(error))) => done.failed(what(), &error),
                Err(error) => done.failed(what(), &error),
            }
        }
        let wanted = changed.len() as u64;
        let replaced = if changed.is_empty() { 0 } else { store.replace_schedules(changed).await? };
        done.rows += page.len() as u64;
        done.resealed += replaced;
        done.overtaken += wanted - replaced;
        match page.last() {
            Some(last) if page.len() >= PAGE as usize => after = Some(last.uid),
            _ => break,
        }
    }
    reseal_alerts(store, keys, &mut done).await?;
    for shard in 0..store.read_shards().await? {
        reseal_shard(store, keys, shard, &mut done).await?;
        reseal_items(store, keys, shard, &mut done).await?;
        reseal_results(store, keys, shard, &mut done).await?;
    }
    Ok(done)
}

async fn reseal_alerts(store: &dyn Store, keys: &Keys, done: &mut Resealing) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let (page, next) = store.every_alert(after, PAGE).await?;
        for old in &page {
            done.rows += 1;
            let mut new = old.clone();
            match keys.reseal_alert(old.uid, &mut new.target) {
                Ok(Resealed::Unchanged) => {}
                Ok(Resealed::Changed) if store.replace_alert(old, &new).await? => done.resealed += 1,
                Ok(Resealed::Changed) => done.overtaken += 1,
                Err(error) => done.failed(format!("alert {}", old.uid), &error),
            }
        }
        match next {
            Some(last) => after = Some(last),
            None => return Ok(()),
        }
    }
}

/// The installation's own secret. Nobody but this changes how it is stored.
async fn reseal_installation(store: &dyn Store, keys: &Keys, done: &mut Resealing) -> Result<(), StoreError> {
    let (id, stored) = store.stored_installation().await?;
    done.rows += 1;
    match keys.reseal_installation(id, &stored) {
        Ok(None) => {}
        Ok(Some(sealed)) => {
            if store.replace_installation_secret(&stored, &sealed).await? {
                done.resealed += 1;
            } else {
                done.overtaken += 1;
            }
        }
        Err(error) => done.failed("installation".to_owned(), &error),
    }
    Ok(())
}

async fn reseal_shard(
    store: &dyn Store,
    keys: &Keys,
    shard: u16,
    done: &mut Resealing,
) -> Result<(), StoreError> {
    let mut after: Option<(Uuid, i64)> = None;
    loop {
        let page = store.stored_specs(shard, after, PAGE).await?;
        let mut changed = Vec::new();
        for row in &page {
            let what =
                || format!("generation {} of schedule {}, shard {shard}", row.generation, row.schedule_uid);
            match row.with(|target, payload| keys.reseal_parts(row.schedule_uid, target, payload)) {
                Ok((new, Ok(Resealed::Changed))) => changed.push((row.clone(), new)),
                Ok((_, Ok(Resealed::Unchanged))) => {}
                Ok((_, Err(error))) => done.failed(what(), &error),
                Err(error) => done.failed(what(), &error),
            }
        }
        let wanted = changed.len() as u64;
        let replaced = if changed.is_empty() { 0 } else { store.replace_specs(shard, changed).await? };
        done.rows += page.len() as u64;
        done.resealed += replaced;
        done.overtaken += wanted - replaced;
        match page.last() {
            Some(last) if page.len() >= PAGE as usize => after = Some((last.schedule_uid, last.generation)),
            _ => return Ok(()),
        }
    }
}

/// How many pages of items are brought under another key in one transaction: they are large.
const ITEM_PAGES: u32 = 16;

/// What the events of submitted runs carry.
async fn reseal_items(
    store: &dyn Store,
    keys: &Keys,
    shard: u16,
    done: &mut Resealing,
) -> Result<(), StoreError> {
    let mut after = RunId::default();
    loop {
        let runs = store.stored_item_runs(shard, after, PAGE).await?;
        for of in &runs {
            let own = vec![(None, of.payload.clone())];
            reseal_texts(store, keys, (shard, of), own, done).await?;
            let mut after = None;
            loop {
                let pages = store.stored_item_pages(shard, of.run, after, ITEM_PAGES).await?;
                let Some((last, _)) = pages.last() else { break };
                after = Some(*last);
                let texts = pages.into_iter().map(|(first, text)| (Some(first), text)).collect();
                reseal_texts(store, keys, (shard, of), texts, done).await?;
            }
        }
        match runs.last() {
            Some(last) if runs.len() >= PAGE as usize => after = last.run,
            _ => return Ok(()),
        }
    }
}

async fn reseal_texts(
    store: &dyn Store,
    keys: &Keys,
    (shard, of): (u16, &StoredItemRun),
    texts: Vec<(Option<u32>, String)>,
    done: &mut Resealing,
) -> Result<(), StoreError> {
    let mut changed = Vec::new();
    for (first, old) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        done.rows += 1;
        if keys.is_current(&old) {
            continue;
        }
        let field = item_field(of.run.0, first);
        let sealed = keys
            .open(of.schedule_uid, &field, &old)
            .and_then(|clear| keys.seal(of.schedule_uid, &field, &clear));
        match sealed {
            Ok(new) => changed.push((first, old, new)),
            Err(error) => done.failed(format!("items of run {}, shard {shard}", of.run), &error),
        }
    }
    let wanted = changed.len() as u64;
    let replaced = if changed.is_empty() { 0 } else { store.replace_items(shard, of.run, changed).await? };
    done.resealed += replaced;
    done.overtaken += wanted - replaced;
    Ok(())
}

/// What the work of events has come to.
async fn reseal_results(
    store: &dyn Store,
    keys: &Keys,
    shard: u16,
    done: &mut Resealing,
) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let page = store.stored_results(shard, after, ITEM_PAGES).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some((last.run, last.index));
        let mut changed = Vec::new();
        for row in page {
            done.rows += 1;
            if keys.is_current(&row.body) {
                continue;
            }
            let field = result_field(row.index);
            let sealed = keys
                .open(row.run.0, &field, &row.body)
                .and_then(|clear| keys.seal(row.run.0, &field, &clear));
            match sealed {
                Ok(new) => changed.push((row, new)),
                Err(error) => {
                    done.failed(format!("result {} of run {}, shard {shard}", row.index, row.run), &error);
                }
            }
        }
        let wanted = changed.len() as u64;
        let replaced = if changed.is_empty() { 0 } else { store.replace_results(shard, changed).await? };
        done.resealed += replaced;
        done.overtaken += wanted - replaced;
    }
}

/// Refuses what a caller gives in clear and would be taken for an envelope.
pub(crate) fn refuse_envelopes(schedule: &Schedule) -> Result<(), Vec<FieldError>> {
    let keys = of_lines(&schedule.payload.items).enumerate();
    let keys =
        keys.filter(|(_, item)| is_sealed(item.key)).map(|(at, _)| format!("schedule.items[{at}].key"));
    let headers = match &schedule.target {
        Target::Http { http, .. } => Some(("http", &http.headers)),
        Target::Kafka { kafka, .. } => Some(("kafka", &kafka.headers)),
        Target::Sqs { .. } | Target::Pull { .. } => None,
    };
    let headers =
        headers.into_iter().flat_map(|(kind, headers)| headers.iter().map(move |header| (kind, header)));
    let headers = headers.filter(|(_, (_, value))| is_sealed(value));
    let headers = headers.map(|(kind, (name, _))| format!("schedule.target.{kind}.headers.{name}"));
    let expected = format!("a value that does not begin with {ENVELOPE}, which stands for a sealed one");
    let errors: Vec<FieldError> =
        headers.chain(keys).map(|field| FieldError::new(field, "", expected.clone())).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

impl ScheduleMaster {
    /// A stored schedule with its secret parts in clear.
    pub(crate) fn opened(&self, stored: &Schedule) -> Result<Schedule, SecretError> {
        let mut opened = stored.clone();
        self.options().keys.open_parts(stored.uid, &mut opened.target, &mut opened.payload)?;
        Ok(opened)
    }

    /// A stored schedule as far as it can be shown: what cannot be opened stays sealed.
    pub(crate) fn opened_to_show(&self, stored: &Schedule) -> Option<Schedule> {
        has_sealed(&stored.target, &stored.payload).then(|| self.opened(stored).ok()).flatten()
    }

    /// Seals the secret parts of a schedule, all of which are in clear; what is as it is in `stored` keeps its envelope.
    pub(crate) fn seal(&self, schedule: &mut Schedule, stored: Option<&Schedule>) -> Result<(), SecretError> {
        let before = stored.map(|stored| (&stored.target, &stored.payload));
        let uid = schedule.uid;
        self.options().keys.seal_parts(uid, &mut schedule.target, &mut schedule.payload, before)
    }
}

/// The answer where a schedule cannot be changed for want of a key.
pub(crate) fn sealed_status(schedule: &Schedule, error: &SecretError) -> Status {
    let name = names::of_schedule(&schedule.namespace, &schedule.id);
    tracing::error!(schedule = name, %error, "a secret can be neither opened nor sealed");
    Status::failed_precondition(format!("{name}: {error}"))
}
