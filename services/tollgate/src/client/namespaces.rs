//! Decides which namespaces `-A` means: those in which there is something, and the caller's own.

use std::collections::BTreeSet;

use clap::Args;
use tollgate_proto::v1;
use tonic::Code;

use super::{Session, names, pages};

/// The flag of commands that show resources.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Everywhere {
    /// Show all namespaces, with a column for them
    #[arg(short = 'A', long, short_alias = 'a')]
    pub(crate) all_namespaces: bool,
}

impl Everywhere {
    /// `namespaces/{namespace}`, or nothing for all, where the API takes that.
    pub(super) fn parent(self, session: &Session) -> String {
        if self.all_namespaces { String::new() } else { session.parent() }
    }

    /// The namespaces to look into, one after the other.
    ///
    /// # Errors
    /// What the service says.
    pub(super) async fn parents(self, session: &Session) -> anyhow::Result<Vec<String>> {
        if !self.all_namespaces {
            return Ok(vec![session.parent()]);
        }
        Ok(known(session).await?.iter().map(|namespace| names::parent(namespace)).collect())
    }
}

/// The namespaces in which there is something, and the caller's own, by name.
async fn known(session: &Session) -> anyhow::Result<BTreeSet<String>> {
    let own = session.namespace.clone();
    let found = pages::collect(0, async |page_size, page_token| {
        match session.master().list_namespaces(v1::ListNamespacesRequest { page_size, page_token }).await {
            Ok(page) => {
                let page = page.into_inner();
                Ok((page.namespaces, page.next_page_token))
            }
            // A key of one namespace: it is told of no other.
            Err(status) if status.code() == Code::PermissionDenied => Ok((Vec::new(), String::new())),
            Err(status) => Err(session.failure("list namespaces", status)),
        }
    });
    let (found, _) = found.await?;
    let found = found.iter().map(|namespace| names::namespace_of(&namespace.name).to_owned());
    Ok(found.chain([own]).filter(|namespace| !namespace.is_empty()).collect())
}
