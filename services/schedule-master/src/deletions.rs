//! Decides how a resource of any kind is deleted: exactly what was read, and once more where somebody else was faster.

use tollgate_proto::convert::{self, Name};
use tollgate_service::actor::Caller;
use tollgate_service::status::status;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::Deed;
use crate::change::{Change, again, check_etag};
use crate::revisions::{Numbered, Revised};

/// A deletion that is asked for.
#[derive(Debug)]
pub(crate) struct Deletion {
    of: Numbered,
    name: Name,
    /// As it was given.
    given: String,
    etag: Option<i64>,
    actor: Caller,
}

impl Deletion {
    /// Of the resource that is called `given`, which has been read to `name`.
    pub(crate) fn new(
        of: Revised,
        (name, given): (&Name, &str),
        (etag, revision): (&str, i64),
        actor: Caller,
    ) -> Result<Self, Status> {
        Ok(Self {
            of: Numbered::deletion(of, name, revision)?,
            name: name.clone(),
            given: given.to_owned(),
            etag: convert::etag("etag", etag)?,
            actor,
        })
    }
}

impl ScheduleMaster {
    /// Deletes what `stored` finds: `state` is its generation and when it was last changed, `dropped` the change.
    pub(crate) async fn delete<T, F: Future<Output = Result<T, Status>>>(
        &self,
        deletion: Deletion,
        stored: impl Fn() -> F,
        state: impl Fn(&T) -> (i64, i64),
        dropped: impl Fn(T, Deed) -> Change,
    ) -> Result<(), Status> {
        let Deletion { of, name, given, etag, actor } = deletion;
        let mut try_number = 1;
        loop {
            let revisions = self.not_outdated(&of).await?;
            let done = match stored().await {
                Err(missing) if of.may_miss(&missing) => self.note_deletion(&of, revisions).await,
                Err(refused) => return Err(refused),
                Ok(found) => {
                    let (generation, updated_us) = state(&found);
                    check_etag(&given, etag, generation)?;
                    let deed =
                        Deed { at_us: self.change_us(updated_us), actor: actor.clone(), action: "delete" };
                    self.admit_writes(&name.namespace, 1)?;
                    self.commit_as(&[&dropped(found, deed)], revisions).await.map_err(status)
                }
            };
            match done {
                Err(failed) if again(try_number, &failed) => try_number += 1,
                done => return done,
            }
        }
    }
}
