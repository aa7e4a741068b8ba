//! Fetches the items of runs that wait for them, ahead of their launches, or takes them out of the results of the run before, and
//! hands the runs over to their owners.
//!
//! In: runs in the state LISTING of the queue shards that this process owns. Out: their items in pages, and the runs handed over;
//! or why not, which is noted at the run, told as a trouble and tried again, until the run is given up: then it is skipped.
//! Invariants: no run is handed over without all of its items; whatever is written is written under the shard's lease; one
//! fetch of a run at a time, [`AT_ONCE`] in all and [`EACH`] of a namespace, so that lists that hang hold up those of their own
//! namespace alone; what is in memory does not grow with a list. A run whose schedule has changed meanwhile goes to its owner as
//! it is, who knows what becomes of it. Not here: what a page holds ([`read`]), when is tried again ([`pace`]).

mod book;
mod fetch;
mod pace;
mod read;
mod results;
mod write;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tollgate_core::handle::change::ShardSchedule;
use tollgate_core::handle::control::Message;
use tollgate_core::model::{ItemsFrom, Run, RunEnd, RunSpec, RunState, SECOND_US, SkipReason, Skipped};
use tollgate_metrics::{ListFetched, Role};
use tollgate_proto::convert::{moment, names};
use tollgate_store::listing::{ListingFilter, Written};
use tollgate_store::{StoreError, handle::Lease};
use tollgate_target::{ListClient, NoPage};

use crate::{Shared, outage};
pub(crate) use book::Lists;
use book::Waits;
use pace::Next;
use write::{Broken, Fetched};

/// Fetches at once, of all namespaces.
const AT_ONCE: usize = 16;
/// Of one namespace.
const EACH: usize = 2;
/// How often is looked for runs.
const EVERY: Duration = Duration::from_secs(1);
/// Runs that are read at once, and of one namespace.
const READ_MAX: u32 = 500;
const READ_EACH: u32 = 20;
/// When a run is looked at again of which the store did not say enough.
const STORE_AGAIN_US: i64 = 2 * SECOND_US;

/// What became of a run that waited.
enum Outcome {
    /// It has been handed over with so many events.
    Listed(u32),
    /// It is no longer for this process, or goes to its owner as it is.
    Elsewhere,
    /// It is too early.
    Early(i64),
    /// Its items could not be fetched.
    Failed { no_page: NoPage, spec: Box<RunSpec>, from: Box<ItemsFrom>, give_up_us: i64, lease: Lease },
}

/// Fetches until told to stop.
pub(crate) async fn run(shared: Shared, client: ListClient, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    loop {
        look(&shared, &client, &mut tasks).await;
        tokio::select! {
            () = stop.cancelled() => break,
            // There is room for another.
            Some(_) = tasks.join_next() => {}
            () = tokio::time::sleep(EVERY) => {}
            // A run waits for the results of another one.
            () = shared.lists.hurried() => {}
        }
    }
    // What is broken off is begun anew by the next owner.
    tasks.shutdown().await;
}

/// Begins with as many runs as there is room for.
async fn look(shared: &Shared, client: &ListClient, tasks: &mut JoinSet<()>) {
    let shards = shared.peers.routes().shards();
    let now_us = shared.clock.wall_us();
    let Some(except) = shared.lists.to_look_for(&shards, now_us, AT_ONCE) else { return };
    let filter = ListingFilter {
        shards: shards.clone(),
        until_us: now_us.saturating_add(ItemsFrom::FETCH_AHEAD_MAX_S * SECOND_US),
        except,
        each_max: READ_EACH,
        limit: READ_MAX,
    };
    let runs = match shared.store.listing_runs(filter).await {
        Ok(runs) => runs,
        Err(error) => {
            shared.options.metrics.store_failed(Role::Handler);
            tracing::debug!(%error, "which runs wait for their items is not known");
            return;
        }
    };
    if runs.len() < READ_EACH as usize {
        shared.lists.forget_others(&runs, now_us);
    }
    for run in runs {
        let Some(turn) = shared.lists.begin(&run, AT_ONCE, EACH) else { continue };
        let (shared, client) = (shared.clone(), client.clone());
        tasks.spawn(async move {
            let outcome = attempt(&shared, &client, &run).await;
            settle(&shared, &run, outcome).await;
            drop(turn);
        });
    }
}

/// Tries once to fetch the items of a run.
async fn attempt(shared: &Shared, client: &ListClient, run: &Run) -> Result<Outcome, StoreError> {
    let store = &shared.store;
    let lease = store.lease(run.shard).await?.filter(|lease| lease.owner == shared.process);
    let Some(lease) = lease else { return Ok(Outcome::Elsewhere) };
    let known = store.shard_schedule(run.shard, run.schedule_uid).await?;
    let specs = store.specs(run.shard, &[(run.schedule_uid, run.generation)]).await;
    let spec = match specs {
        Ok(specs) => specs.into_iter().next(),
        Err(StoreError::Corrupt { .. }) => None,
        Err(error) => return Err(error),
    };
    let of = |spec: RunSpec| {
        let from = results::list_of(run).map(Arc::new).or_else(|| spec.payload.from.clone());
        from.map(|from| (spec, from))
    };
    let Some((spec, from)) = spec.and_then(of) else {
        return to_owner(shared, &lease, run).await;
    };
    if is_outdated(known.as_ref(), run) {
        return to_owner(shared, &lease, run).await;
    }
    let begin_us = run.list_begin_us(&from);
    if begin_us > shared.clock.wall_us() {
        return Ok(Outcome::Early(begin_us));
    }
    let fetched = tokio::select! {
        fetched = fetch::fetch(shared, client, (&lease, run), &spec, &from) => fetched,
        // Its place is another's.
        () = no_longer_wanted(shared, run) => return Ok(Outcome::Elsewhere),
    };
    match fetched {
        Ok(fetched) => hand_over(shared, &lease, run, fetched).await,
        Err(Broken::ElsewhereNow) => Ok(Outcome::Elsewhere),
        Err(Broken::Store(error)) => Err(error),
        Err(Broken::NoPage(no_page)) => {
            let give_up_us = run.list_give_up_us(&from, spec.finish_by_s);
            let (from, spec) = (Box::new(from.as_ref().clone()), Box::new(spec));
            Ok(Outcome::Failed { no_page, spec, from, give_up_us, lease })
        }
    }
}

/// Comes to an end when a run does not wait for its items any more, or its schedule has changed.
async fn no_longer_wanted(shared: &Shared, run: &Run) {
    loop {
        tokio::time::sleep(EVERY).await;
        let rows = shared.store.runs(run.shard, &[run.id]).await;
        let known = shared.store.shard_schedule(run.shard, run.schedule_uid).await;
        let waits = |row: &Run| row.state == RunState::Listing && row.generation == run.generation;
        // What cannot be read says nothing.
        let is_gone = rows.is_ok_and(|rows| !rows.first().is_some_and(waits));
        if is_gone || known.is_ok_and(|known| is_outdated(known.as_ref(), run)) {
            return;
        }
    }
}

/// Whether a run's schedule has been deleted, or has another generation by the time at which the run falls due.
fn is_outdated(known: Option<&ShardSchedule>, run: &Run) -> bool {
    known.is_some_and(|schedule| schedule.deleted || schedule.is_stale(run))
}

/// Its schedule has changed, or its spec cannot be read: the owner knows what that means for the run.
async fn to_owner(shared: &Shared, lease: &Lease, run: &Run) -> Result<Outcome, StoreError> {
    if shared.store.hand_over_listed(lease, run, 0, 0).await? == Written::Done {
        shared.peers.routes().wake(run.shard);
    }
    Ok(Outcome::Elsewhere)
}

/// All items are in pages.
async fn hand_over(
    shared: &Shared,
    lease: &Lease,
    run: &Run,
    Fetched { events, units_max }: Fetched,
) -> Result<Outcome, StoreError> {
    tollgate_fault_points::pass("handler.list.fetched");
    match shared.store.hand_over_listed(lease, run, events, units_max).await? {
        Written::Done => {
            shared.peers.routes().wake(run.shard);
            Ok(Outcome::Listed(events))
        }
        Written::NotWaiting => {
            // It was cancelled, or its schedule has changed.
            shared.store.drop_list(lease, run).await?;
            Ok(Outcome::Elsewhere)
        }
        Written::ElsewhereNow => Ok(Outcome::Elsewhere),
    }
}

/// Notes what became of an attempt.
async fn settle(shared: &Shared, run: &Run, outcome: Result<Outcome, StoreError>) {
    let now_us = shared.clock.wall_us();
    match outcome {
        Ok(Outcome::Listed(events)) => {
            shared.options.metrics.list_fetched(ListFetched::Fetched);
            let attempts = shared.lists.forget(run.id);
            if attempts > 0 {
                let name = names::of_schedule(&run.namespace, &run.schedule_id);
                tracing::info!(schedule = name, attempts, events, "the list of a run is fetched after all");
            }
        }
        // Where it waits all the same, it is looked at again.
        Ok(Outcome::Elsewhere) => {
            shared.lists.wait(run, Waits { until_us: now_us + STORE_AGAIN_US, failing: None });
        }
        Ok(Outcome::Early(until_us)) => shared.lists.wait(run, Waits { until_us, failing: None }),
        Ok(Outcome::Failed { no_page, spec, from, give_up_us, lease }) => {
            let failure = Failure { no_page, spec: &spec, from: &from, give_up_us };
            if let Err(error) = failed(shared, (&lease, run), failure, now_us).await {
                store_failed(shared, run, &error, now_us);
            }
        }
        Err(error) => store_failed(shared, run, &error, now_us),
    }
}

fn store_failed(shared: &Shared, run: &Run, error: &StoreError, now_us: i64) {
    shared.options.metrics.store_failed(Role::Handler);
    outage::note(run.shard, error, "the list of a run waits for the store; trying again");
    shared.lists.wait_for_store(run, now_us + STORE_AGAIN_US);
}

/// An attempt that failed, not for the store.
struct Failure<'f> {
    no_page: NoPage,
    spec: &'f RunSpec,
    from: &'f ItemsFrom,
    give_up_us: i64,
}

async fn failed(
    shared: &Shared,
    (lease, run): (&Lease, &Run),
    failure: Failure<'_>,
    now_us: i64,
) -> Result<(), StoreError> {
    let Failure { no_page, spec, from, give_up_us } = failure;
    let attempts = shared.lists.attempts(run.id) + 1;
    let name = names::of_schedule(&run.namespace, &run.schedule_id);
    let next = pace::after(&no_page, (attempts, rand::random()), now_us, give_up_us);
    shared.options.metrics.list_fetched(ListFetched::Failed);
    if let Next::Again { at_us } = next {
        let words = format!("{} (attempt {attempts}; again at {})", no_page.message, moment(at_us));
        if attempts == 1 {
            tracing::warn!(schedule = name, error = no_page.message, "the list of a run cannot be fetched");
        }
        let unlisted = book::unlisted(run, (from, spec.policy_id.clone()), now_us, words.clone());
        shared.lists.wait(run, Waits { until_us: at_us, failing: Some((attempts, unlisted)) });
        let reason = format!("its items cannot be fetched: {words}");
        if shared.store.list_failed(lease, run, &reason).await? != Written::Done {
            shared.lists.forget(run.id);
        }
        return Ok(());
    }
    let reason = format!("its items could not be fetched in {}: {}", pace::times(attempts), no_page.message);
    let skipped = Skipped {
        schedule_uid: run.schedule_uid,
        launch_us: run.launch_us,
        reason: SkipReason::NotListed,
        recorded_us: now_us,
    };
    let ended = Run { state: RunState::Skipped, finished_us: Some(now_us), ..run.clone() };
    let end = RunEnd::of(&ended, Some(spec)).map(Message::run_ended);
    if shared.store.give_up_list(lease, run, &skipped, &reason, end).await? == Written::Done {
        shared.peers.routes().wake(run.shard);
        tracing::error!(schedule = name, attempts, error = no_page.message, "the list of a run is given up");
        shared.options.metrics.list_fetched(ListFetched::GivenUp);
        shared.options.metrics.skipped(SkipReason::NotListed, 1);
        shared.store.drop_list(lease, run).await?;
    }
    shared.lists.forget(run.id);
    Ok(())
}
