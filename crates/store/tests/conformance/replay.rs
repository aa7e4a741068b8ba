//! What a machine with large batches commits, as it is: after each commit the store holds what a model of it does.

use tollgate_core::handle::change::{Changes, HistoryRow};
use tollgate_core::model::{Run, RunId};

use crate::handle_world::Store as Model;
use crate::place::Place;
use crate::samples::take;

/// Worlds to choose from.
const SEEDS: std::ops::Range<u64> = 0..100;

pub(crate) async fn what_a_machine_commits_is_what_is_loaded(place: &Place) {
    // With everything in it: batches that are full, events that leave them, dead ones that come again.
    let has_all = |played: &crate::fuzz::Played| played.commits.iter().any(|c| !c.history_gone.is_empty());
    let played = SEEDS.map(crate::fuzz::play).find(has_all).unwrap();
    let store = place.open().await;
    let lease = take(&*store, 0).await;
    let emitted = Changes { runs_new: played.runs.clone(), ..Changes::default() };
    store.commit(&lease, &emitted).await.unwrap();
    let mut model = Model::default();
    model.runs.extend(played.runs.iter().map(|run| (run.id, run.clone())));
    let ids: Vec<RunId> = model.runs.keys().copied().collect();
    for (number, changes) in played.commits.iter().enumerate() {
        store.commit(&lease, changes).await.unwrap();
        model.apply(changes);
        let (loaded, wanted) = (store.load_shard(0).await.unwrap(), model.state());
        assert_eq!(loaded.batches, wanted.batches, "after commit {number}");
        assert_eq!(loaded.tokens, wanted.tokens, "after commit {number}");
    }
    let mut runs = store.runs(0, &ids).await.unwrap();
    runs.sort_by_key(|run| run.id);
    assert_eq!(runs, model.runs.into_values().collect::<Vec<Run>>());
    for id in ids {
        let ended = store.history(0, id, 0, None, 10_000).await.unwrap();
        let wanted = model.history.range((id, 0)..=(id, u32::MAX)).map(|(_, row)| row.clone());
        assert_eq!(ended, wanted.collect::<Vec<HistoryRow>>());
    }
}
