//! Questions to the owner of a queue shard, or to all of them.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

use tollgate_core::model::RunId;
use tollgate_proto::v1;
use uuid::Uuid;

use super::{DEADLINE, Peers};

/// What came of asking another process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Asked<T> {
    /// Its answer.
    Answer(T),
    /// Nobody that can be reached owns the shard; nothing happened.
    Nobody,
    /// No answer: it may have happened.
    Unclear,
}

impl<T> Asked<T> {
    fn answer(self) -> Option<T> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Nobody | Self::Unclear => None,
        }
    }
}

impl Peers {
    /// Forwards a release to the owner of its shard.
    pub(crate) async fn release(
        &self,
        shard: u16,
        release: &v1::ReleaseTokenRequest,
    ) -> Asked<v1::ForwardedRelease> {
        match self.owner_of(shard) {
            Some((peer, _)) => peer.release(release.clone()).await,
            None => Asked::Nobody,
        }
    }

    /// Forwards a heartbeat to the owner of its shard.
    pub(crate) async fn extend(
        &self,
        shard: u16,
        extend: &v1::ExtendTokenRequest,
    ) -> Asked<v1::ForwardExtendResponse> {
        let Some((peer, _)) = self.owner_of(shard) else { return Asked::Nobody };
        let request = v1::ForwardExtendRequest { extend: Some(extend.clone()) };
        peer.link().call(|mut client| async move { client.forward_extend(request).await }).await
    }

    /// Whether the owner of a shard may be another one than it was thought to be. Reads it from the store.
    pub(crate) async fn has_moved(&self, shard: u16) -> bool {
        let before = self.owner(shard);
        let _read = self.refresh().await;
        let after = self.owner(shard);
        self.routes().owns(shard) || (after.is_some() && after != before)
    }

    /// The explanation of an event's owner.
    pub(crate) async fn explain(&self, shard: u16, name: &str) -> Option<v1::Explanation> {
        let (peer, _) = self.owner_of(shard)?;
        let request = v1::ForwardExplainRequest { name: name.to_owned() };
        let asked = peer.link().call(|mut client| async move { client.forward_explain(request).await }).await;
        asked.answer()?.explanation
    }

    /// What the events of each key of a policy hold and wait for, as its owner knows it.
    pub(crate) async fn keys(&self, shard: u16, policy: Uuid) -> Option<v1::CountKeysResponse> {
        let (peer, _) = self.owner_of(shard)?;
        let request = v1::CountKeysRequest { shard: shard.into(), policy_uid: policy.as_bytes().to_vec() };
        let asked = peer.link().call(|mut client| async move { client.count_keys(request).await }).await;
        asked.answer().filter(|answer| answer.known)
    }

    /// Tokens in flight, events that wait for another attempt, and what is expected, of runs in shards that others own; none
    /// where nobody answers.
    pub(crate) async fn outstanding(&self, runs: &[(u16, RunId)]) -> Vec<Option<v1::Outstanding>> {
        let mut by_owner: BTreeMap<String, (_, Vec<usize>)> = BTreeMap::new();
        for (place, (shard, _)) in runs.iter().enumerate() {
            if let Some((peer, process)) = self.owner_of(*shard) {
                by_owner.entry(process).or_insert_with(|| (peer.link(), Vec::new())).1.push(place);
            }
        }
        let mut counts = vec![None; runs.len()];
        let calls = by_owner.into_values().map(|(link, places)| async move {
            let key = |place: &usize| {
                let (shard, run) = runs[*place];
                v1::RunKey { shard: shard.into(), run: run.0.as_bytes().to_vec() }
            };
            let request = v1::CountOutstandingRequest { runs: places.iter().map(key).collect() };
            let asked = link.call(|mut client| async move { client.count_outstanding(request).await }).await;
            (places, asked.answer().map(|answer| answer.runs).unwrap_or_default())
        });
        for (places, answers) in futures::future::join_all(calls).await {
            for (place, answer) in places.into_iter().zip(answers) {
                counts[place] = answer.known.then_some(answer);
            }
        }
        counts
    }

    /// What all other owners do: (process, its answer).
    pub(crate) async fn statuses(
        &self,
        parent: &str,
        busy_only: bool,
    ) -> Vec<(String, Option<v1::ReadHandlerStatusResponse>)> {
        let _read = self.refresh().await;
        let calls = self.owners().into_iter().map(|(process, peer)| async move {
            let Some(peer) = peer else { return (process, None) };
            let request = v1::ReadHandlerStatusRequest { parent: parent.to_owned(), busy_only };
            let asked =
                peer.link().call(|mut client| async move { client.read_handler_status(request).await }).await;
            (process, asked.answer())
        });
        futures::future::join_all(calls).await
    }

    /// What is wrong with all other owners and their shards: (process, its answer).
    pub(crate) async fn troubles(&self) -> Vec<(String, Option<v1::ReadTroublesResponse>)> {
        // A database that does not answer is a trouble, and keeps nobody from telling the others.
        let _known_before = tokio::time::timeout(DEADLINE, self.refresh()).await;
        let calls = self.owners().into_iter().map(|(process, peer)| async move {
            let Some(peer) = peer else { return (process, None) };
            let request = v1::ReadTroublesRequest {};
            let asked =
                peer.link().call(|mut client| async move { client.read_troubles(request).await }).await;
            (process, asked.answer())
        });
        futures::future::join_all(calls).await
    }

    /// The other processes that can be reached.
    pub(crate) fn others(&self) -> Vec<String> {
        let known = self.shared.known.read().unwrap_or_else(PoisonError::into_inner);
        known.peers.keys().cloned().collect()
    }

    /// Whether another process can be reached, as far as is known.
    pub(crate) fn knows(&self, process: &str) -> bool {
        self.peer(process).is_some()
    }

    /// Takes room at the workers of another process, and waits for it.
    pub(crate) async fn take_room(
        &self,
        process: &str,
        request: v1::TakeRoomRequest,
    ) -> Asked<v1::TakeRoomResponse> {
        let Some(peer) = self.peer(process) else { return Asked::Nobody };
        peer.link().call(|mut client| async move { client.take_room(request).await }).await
    }

    /// Gives room back to another process.
    pub(crate) async fn return_room(&self, process: &str, rooms: Vec<u64>) {
        if let Some(peer) = self.peer(process) {
            let request = v1::ReturnRoomRequest { rooms };
            let _best_effort =
                peer.link().call(|mut client| async move { client.return_room(request).await }).await;
        }
    }

    /// Gives an event to a worker of another process, and waits for what becomes of it.
    pub(crate) async fn give_event(
        &self,
        process: &str,
        request: v1::GiveEventRequest,
        within: Duration,
    ) -> Asked<v1::GiveEventResponse> {
        let Some(peer) = self.peer(process) else { return Asked::Nobody };
        let link = peer.link();
        link.call_within(within, |mut client| async move { client.give_event(request).await }).await
    }

    /// The workers of all other processes: (process, its answer).
    pub(crate) async fn workers(
        &self,
        namespace: &str,
        queue: Option<&str>,
    ) -> Vec<(String, Option<v1::ReadWorkersResponse>)> {
        let calls = self.others().into_iter().map(|process| async move {
            let Some(peer) = self.peer(&process) else { return (process, None) };
            let (namespace, queue) = (namespace.to_owned(), queue.unwrap_or_default().to_owned());
            let request = v1::ReadWorkersRequest { namespace, queue };
            let asked =
                peer.link().call(|mut client| async move { client.read_workers(request).await }).await;
            (process, asked.answer())
        });
        futures::future::join_all(calls).await
    }

    /// Has the owners of these shards take in what was put into the store before; the shards of which they said so in
    /// time.
    pub(crate) async fn sync(&self, shards: &[u16]) -> Vec<u16> {
        let mut by_owner: BTreeMap<String, (_, Vec<u32>)> = BTreeMap::new();
        for shard in shards {
            if let Some((peer, process)) = self.owner_of(*shard) {
                by_owner.entry(process).or_insert_with(|| (peer.link(), Vec::new())).1.push((*shard).into());
            }
        }
        let calls = by_owner.into_values().map(|(link, shards)| async move {
            let request = v1::WakeShardsRequest { shards, wait: true, placement: false };
            let asked = link.call(|mut client| async move { client.wake_shards(request).await }).await;
            asked.answer().map(|answer| answer.shards).unwrap_or_default()
        });
        let told = futures::future::join_all(calls).await;
        told.into_iter().flatten().filter_map(|shard| u16::try_from(shard).ok()).collect()
    }
}
