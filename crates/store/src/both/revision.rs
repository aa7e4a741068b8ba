//! Revisions of resources.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::{Ask, Driver, Engine, Tx, Whom, sql};
use crate::StoreError;
use crate::failure::Failure;
use crate::revision::{Revision, RevisionStore};
use crate::rows::RevisionRow;

#[async_trait]
impl<D: Driver> RevisionStore for D {
    async fn revisions(
        &self,
        namespace: &str,
        kind: &str,
        ids: &[String],
    ) -> Result<Vec<Revision>, StoreError> {
        let ask = Ask::new(sql!("revisions_get")).bind(namespace).bind(kind.to_owned()).set(ids)?;
        let rows: Vec<RevisionRow> = self.rows(Whom::People, ask).await?;
        Ok(rows.into_iter().map(Revision::from).collect())
    }
}

/// Brings resources to later revisions, all of them or none: where one is not at the revision that was read, that is a conflict.
pub(crate) async fn revise<DB: Engine>(tx: &mut Tx<'_, DB>, rows: &[RevisionRow]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let brought: Vec<(String, String, String)> = tx.rows(Ask::new(sql!("revisions_put")).set(rows)?).await?;
    let brought: BTreeSet<_> = brought.into_iter().collect();
    let is_stale = |row: &&RevisionRow| {
        !brought.contains(&(row.namespace.clone(), row.kind.clone(), row.resource_id.clone()))
    };
    match rows.iter().find(is_stale) {
        None => Ok(()),
        Some(row) => Err(StoreError::Conflict { what: row.stale() }.into()),
    }
}
