//! Removes what is old, step by step, so that no transaction grows with it.

use futures::FutureExt as _;

use super::{Ask, Driver, Statement, Whom};
use crate::StoreError;
use crate::history::PRUNE_AT_ONCE;

/// Deletes what is older than `before_us`, of one shard or (tables without shards) of all, a batch a transaction.
pub(crate) async fn prune_table<D: Driver>(
    driver: D,
    name: &'static str,
    statement: Statement,
    shard: Option<i32>,
    before_us: i64,
) -> Result<u64, StoreError> {
    let mut all = 0;
    loop {
        let gone = driver
            .run_tx(Whom::Roles, name, move |mut tx| {
                let ask = Ask::new(statement).anew();
                let ask = if let Some(shard) = shard { ask.bind(shard) } else { ask };
                let ask = ask.bind(before_us).bind(i64::from(PRUNE_AT_ONCE));
                async move { tx.execute(ask).await }.boxed()
            })
            .await?;
        all += gone;
        if gone < u64::from(PRUNE_AT_ONCE) {
            return Ok(all);
        }
    }
}
