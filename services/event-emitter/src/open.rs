//! Opens windows and gives each its scan tasks.
//!
//! In: the frontier, the registry of launch expressions. Out: windows with their tasks.
//! Invariant: the registry is read after the window has been announced. The writer of a schedule reads afterwards how
//! far windows are announced, and puts right what lies before; so a new launch expression is seen by the writer, by
//! this reader, or by both, and both is harmless. A window whose emitter died in between is planned by the emitter that finds it.
//! Not here: which window is next ([`tollgate_core::emit::to_open`]), scanning.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use tollgate_core::emit::{self, Window};
use tollgate_store::StoreError;

use crate::{Emitter, RoundReport};

impl Emitter {
    /// Plans the windows that have no plan, and opens those that must be open. Returns how many were touched.
    pub(crate) async fn open(&self, report: &mut RoundReport) -> Result<u32, StoreError> {
        let mut touched = 0;
        let incomplete = self.store.windows(0).await?;
        let frontier = self.store.frontier().await?;
        // Before the work: an emitter that cannot keep up never comes to the end of a round.
        self.note_lag(&frontier, &incomplete);
        for row in incomplete.iter().filter(|row| !row.planned) {
            touched += u32::from(self.plan(row.window).await?);
        }
        let mut incomplete = incomplete.len();
        let mut frontier = frontier.opened_until_us;
        loop {
            let now_us = self.clock.wall_us();
            let Some(window) = emit::to_open(frontier, incomplete, now_us, &self.options) else { break };
            let before = frontier;
            if self.store.announce_window(window, now_us).await? {
                frontier = Some(window.end_us);
                report.windows_opened += 1;
                self.stats.windows.fetch_add(1, Ordering::Relaxed);
                self.plan(window).await?;
                touched += 1;
                incomplete += 1;
            } else {
                // Another emitter was faster, perhaps with another length.
                frontier = self.store.frontier().await?.opened_until_us;
                if frontier == before {
                    break;
                }
            }
        }
        Ok(touched)
    }

    /// Gives an announced window its tasks. Returns whether it had none.
    async fn plan(&self, window: Window) -> Result<bool, StoreError> {
        let zones = self.store.zones().await?;
        let eligible: BTreeSet<String> = zones.iter().flat_map(|zone| emit::eligible(zone, window)).collect();
        let eligible: Vec<String> = eligible.into_iter().collect();
        let registry = self.store.registry(&eligible).await?;
        let tasks = emit::tasks(window, registry);
        self.store.open_window(window, &tasks, self.clock.wall_us()).await
    }
}
