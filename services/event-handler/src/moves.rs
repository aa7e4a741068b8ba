//! Has moved what lives in this process's queue shards and belongs into other ones, since the number of shards was changed.
//!
//! In: what the store says belongs elsewhere. Out: shards that are given up for a moment, with what is to go; the owner has it
//! moved when it hands over ([`crate::owner`]), and any process takes the shard again. Invariants: one shard of a process after
//! the other; where nothing could go, the shard is left alone for a while. Not here: what may go (the store).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tollgate_clock::instant_now;
use tollgate_store::moves::Resident;

use crate::Shared;

/// How many residents a shard gives away at once, at most: as long as they go, nothing of the shard starts.
const RESIDENTS_MAX: usize = 1_000;
/// How often it is looked whether the number has been changed.
const LOOK: Duration = Duration::from_secs(2);
/// When it is looked again for what somebody has put into a shard from which it belongs elsewhere.
const LOOK_AGAIN: Duration = Duration::from_secs(600);
/// When it is looked again for what could not go, here or in another process.
const LOOK_FOR_REST: Duration = Duration::from_secs(30);
/// How long a shard may take to have an owner again.
const TAKEN_AGAIN: Duration = Duration::from_secs(10);
/// Between two shards.
const BETWEEN: Duration = Duration::from_millis(50);
/// How long a shard is left alone of which nothing could go, at first and at most.
const VAIN: Duration = Duration::from_secs(15);
const VAIN_MAX: Duration = Duration::from_secs(600);

/// What the owners of this process are to give away. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    wanted: Arc<DashMap<u16, Vec<Resident>>>,
    /// How many residents went with the last handover of a shard.
    gone: Arc<DashMap<u16, usize>>,
    asked: Arc<Notify>,
}

impl Moves {
    /// Returns when a shard is to be given up.
    pub(crate) async fn asked(&self) {
        self.asked.notified().await;
    }

    /// The shards that are to be given up.
    pub(crate) fn shards(&self) -> Vec<u16> {
        self.wanted.iter().map(|entry| *entry.key()).collect()
    }

    /// What a shard is to give away; it is asked for once.
    pub(crate) fn take(&self, shard: u16) -> Vec<Resident> {
        self.wanted.remove(&shard).map(|(_, residents)| residents).unwrap_or_default()
    }

    /// What a shard was to give away stays for now.
    pub(crate) fn put_off(&self, shard: u16) {
        if self.wanted.remove(&shard).is_some() {
            self.went(shard, 0);
        }
    }

    /// So many residents of a shard have gone.
    pub(crate) fn went(&self, shard: u16, residents: usize) {
        self.gone.insert(shard, residents);
    }
}

/// Looks, and has moved, until told to stop.
pub(crate) async fn keep(shared: Shared, stop: CancellationToken) {
    let mut rests: BTreeMap<u16, (Instant, Duration)> = BTreeMap::new();
    let (mut settled, mut next): (Option<(u16, u16)>, Option<Instant>) = (None, None);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        let layout = (shared.shards.now(), shared.shards.used());
        if settled == Some(layout) && next.is_some_and(|next| instant_now() < next) {
            continue;
        }
        let residents = match shared.store.residents_to_move(RESIDENTS_MAX).await {
            Ok(residents) => residents,
            Err(error) => {
                tracing::debug!(%error, "what belongs into other queue shards cannot be read");
                continue;
            }
        };
        let (mut went, are_left) = (0, !residents.is_empty());
        for (shard, residents) in residents {
            let rests_until = rests.get(&shard).map(|(until, _)| *until);
            if !shared.peers.routes().owns(shard) || rests_until.is_some_and(|until| instant_now() < until) {
                continue;
            }
            if stop.is_cancelled() {
                return;
            }
            let gone = give_away(&shared, shard, residents).await;
            went += gone;
            if gone > 0 {
                rests.remove(&shard);
            } else {
                let rest = rests.get(&shard).map_or(VAIN, |(_, rest)| (*rest * 2).min(VAIN_MAX));
                rests.insert(shard, (instant_now() + rest, rest));
            }
            tokio::time::sleep(BETWEEN).await;
        }
        // A look reads where all policies and schedules live: while nothing goes, it is rare.
        settled = (went == 0).then_some(layout);
        let rested = rests.values().map(|(until, _)| *until).filter(|until| *until > instant_now()).min();
        let again = instant_now() + if are_left { LOOK_FOR_REST } else { LOOK_AGAIN };
        next = Some(rested.map_or(again, |rested| rested.min(again)));
    }
}

/// Has a shard given up, and waits until it has an owner again. How many residents have gone.
async fn give_away(shared: &Shared, shard: u16, residents: Vec<Resident>) -> usize {
    let moves = &shared.moves;
    moves.gone.remove(&shard);
    moves.wanted.insert(shard, residents);
    moves.asked.notify_one();
    let until = instant_now() + TAKEN_AGAIN;
    let is_over = |shared: &Shared| {
        let is_owned = shared.peers.routes().owns(shard) || shared.peers.owner(shard).is_some();
        moves.gone.contains_key(&shard) && is_owned
    };
    while !is_over(shared) && instant_now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // One that has been lost meanwhile is another's to move.
    moves.wanted.remove(&shard);
    moves.gone.remove(&shard).map(|(_, gone)| gone).unwrap_or_default()
}
