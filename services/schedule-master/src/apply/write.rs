//! Writes what was worked out, in chunks.

use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use tollgate_proto::v1;
use tollgate_service::status::status;
use tonic::Status;

use super::judge::Planned;
use super::results::failed;
use super::{ERRORS_MAX, chunks, revised};
use crate::change::{Change, is_own_fault};
use crate::progress::Progress;
use crate::{ScheduleMaster, TURNS_EACH};

impl Planned {
    /// Counts it, and lists it where there is room.
    pub(super) fn done(self, response: &mut v1::ApplyResourcesResponse) {
        if self.is_new {
            response.created_count += 1;
        } else {
            response.updated_count += 1;
        }
        response.results.extend(self.result);
    }
}

fn add(response: &mut v1::ApplyResourcesResponse, chunk: v1::ApplyResourcesResponse) {
    response.created_count += chunk.created_count;
    response.updated_count += chunk.updated_count;
    response.failed_count += chunk.failed_count;
    response.outdated_count += chunk.outdated_count;
    response.results.extend(chunk.results);
    let room = ERRORS_MAX.saturating_sub(response.errors.len());
    response.errors.extend(chunk.errors.into_iter().take(room));
}

impl ScheduleMaster {
    /// Chunks of at most `most`. Two are under way at once: one is worked out while the other is written.
    pub(super) async fn write(
        &self,
        planned: Vec<Planned>,
        most: usize,
        response: &mut v1::ApplyResourcesResponse,
        progress: &Progress,
    ) -> Result<(), Status> {
        let mut chunks = chunks(planned, most);
        let mut under_way = FuturesOrdered::new();
        let mut outcome = Ok(());
        loop {
            while outcome.is_ok() && under_way.len() < TURNS_EACH {
                let Some(chunk) = chunks.next() else { break };
                let count = chunk.len();
                under_way.push_back(self.write_chunk(chunk).map(move |written| (count, written)));
            }
            // What was begun is carried to its end, even if the chunk before it failed.
            let Some((count, written)) = under_way.next().await else { return outcome };
            progress.add(count);
            match written {
                Ok(written) => add(response, written),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
    }

    async fn write_chunk(&self, chunk: Vec<Planned>) -> Result<v1::ApplyResourcesResponse, Status> {
        let mut written = v1::ApplyResourcesResponse::default();
        let changes: Vec<&Change> = chunk.iter().map(|planned| &planned.change).collect();
        let now_us = self.now_us();
        let revisions = chunk.iter().filter_map(|planned| planned.reference.note(now_us)).collect();
        match self.commit_as(&changes, revisions).await {
            Ok(()) => chunk.into_iter().for_each(|planned| planned.done(&mut written)),
            Err(error) if !is_own_fault(&error) => return Err(status(error)),
            Err(_) => {
                for one in chunk {
                    let revisions = one.reference.note(now_us).into_iter().collect();
                    match self.commit_as(&[&one.change], revisions).await {
                        Ok(()) => one.done(&mut written),
                        Err(error) if !is_own_fault(&error) => return Err(status(error)),
                        Err(_) if self.is_outdated(&one.reference).await? => {
                            revised::outdated(one.reference, &mut written);
                        }
                        Err(error) => {
                            let name = one.name();
                            failed(&mut written, one.reference, name, &error);
                        }
                    }
                }
            }
        }
        Ok(written)
    }
}
