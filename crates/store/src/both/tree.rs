//! Whether a policy may stand where it is put in a tree: reads those around it, and holds what the answer hangs on.
//!
//! In: a policy that is about to be written. Out: what is wrong with its place. Invariants: the policy above stays as it was read
//! until the commit; a policy gets another parent only while nothing of it can start or holds a token, so that no limit is passed.
//! Not here: the rules of a tree ([`tollgate_core::plan::tree`]).

use tollgate_core::model::{Parent, Policy};
use tollgate_core::plan::tree::{Around, faults};
use uuid::Uuid;

use super::{Ask, Engine, Tx, sql};
use crate::StoreError;
use crate::batch::USERS_NAMED;
use crate::failure::Failure;
use crate::rows::{PolicyRow, ShardPolicyRow};

/// What is wrong with a policy's place, if anything is.
pub(super) async fn judge<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    policy: &Policy,
    is_stored: bool,
) -> Result<(), Failure> {
    if policy.adopts {
        let ask = Ask::new(sql!("policies_adopting")).bind(policy.namespace.clone());
        let others: Vec<PolicyRow> = tx.rows(ask).await?;
        if let Some(other) = others.iter().find(|other| other.uid != policy.uid) {
            return Err(refused(
                "adopts",
                "true",
                &format!("false, as {:?} adopts new policies already", other.id),
            ));
        }
    }
    if !is_stored && policy.parent.is_none() {
        return Ok(());
    }
    let parent = policy.parent.as_deref();
    if let Some(parent) = parent {
        let held: Vec<(Uuid, i64)> = tx.rows(Ask::new(sql!("policies_lock")).bind(parent.uid)).await?;
        if held.is_empty() {
            return Err(refused("parent", &parent.id, "a policy that exists"));
        }
    }
    let before = if is_stored { by_uid(tx, policy.uid).await? } else { None };
    let around = around(tx, policy).await?;
    if let Some(fault) = faults(policy, &around).into_iter().next() {
        return Err(refused(fault.field, &fault.value, &fault.expected));
    }
    let of = |policy: &Policy| policy.parent.as_ref().map(|parent| parent.uid);
    if before.as_ref().is_some_and(|before| of(before) != of(policy)) {
        may_move(tx, policy, &around).await?;
    }
    if around.above.last().is_some_and(|root| root.shard != policy.shard) {
        let id = parent.map(|parent| parent.id.as_str()).unwrap_or_default();
        let expected = "a policy that lives in the same queue shard; make a new policy below it, and have schedules use that one";
        return Err(refused("parent", id, expected));
    }
    Ok(())
}

/// The ids of the first policies right below one, one more than an error names.
pub(super) async fn ids_below<DB: Engine>(tx: &mut Tx<'_, DB>, uid: Uuid) -> Result<Vec<String>, Failure> {
    let ids = below(tx, uid).await?.into_iter().map(|policy| policy.id);
    Ok(ids.take(USERS_NAMED + 1).collect())
}

/// Whether a policy may get another parent now: it is paused, its shard knows so, and nothing of it holds a token.
async fn may_move<DB: Engine>(tx: &mut Tx<'_, DB>, policy: &Policy, around: &Around) -> Result<(), Failure> {
    let refuse = |what: String| Err(StoreError::InUse { what }.into());
    let id = &policy.id;
    if let Some(child) = around.children.first() {
        return refuse(format!("policy {id:?} gets no other parent while it is one: of {:?}", child.id));
    }
    if policy.pause.is_none() {
        return refuse(format!("policy {id:?} gets no other parent while it is not paused: pause it first"));
    }
    let shard = i32::from(policy.shard);
    let ask = Ask::new(sql!("shard_policy")).bind(shard).bind(policy.uid);
    let rows: Vec<ShardPolicyRow> = tx.rows(ask).await?;
    let known = rows.into_iter().next().map(Policy::try_from).transpose()?;
    let is_told =
        known.is_some_and(|known| known.generation + 1 == policy.generation && known.pause.is_some());
    if !is_told {
        return refuse(format!(
            "policy {id:?} gets no other parent before its queue shard has heard of its pause"
        ));
    }
    let holds: Vec<(Uuid,)> = tx.rows(Ask::new(sql!("policy_holds")).bind(shard).bind(policy.uid)).await?;
    if !holds.is_empty() {
        return refuse(format!(
            "policy {id:?} gets no other parent while its events hold tokens: wait for their release"
        ));
    }
    Ok(())
}

fn refused(field: &str, value: &str, expected: &str) -> Failure {
    let message = format!("{value:?} is not allowed, expected {expected}");
    StoreError::Invalid { field: format!("policy.{field}"), message }.into()
}

async fn around<DB: Engine>(tx: &mut Tx<'_, DB>, policy: &Policy) -> Result<Around, Failure> {
    let mut around = Around { children: below(tx, policy.uid).await?, ..Around::default() };
    let mut level = around.children.iter().map(|child| child.uid).collect::<Vec<_>>();
    while !level.is_empty() && around.levels_below < Parent::LEVELS_MAX {
        around.levels_below += 1;
        let mut next = Vec::new();
        for uid in level {
            next.extend(below(tx, uid).await?.into_iter().map(|child| child.uid));
        }
        level = next;
    }
    let mut next = policy.parent.as_ref().map(|parent| parent.uid);
    while let Some(uid) = next.filter(|_| around.above.len() <= Parent::LEVELS_MAX) {
        let Some(above) = by_uid(tx, uid).await? else { break };
        next = above.parent.as_ref().map(|parent| parent.uid);
        around.above.push(above);
    }
    if let Some(parent) = &policy.parent {
        around.siblings = below(tx, parent.uid).await?;
        around.siblings.retain(|sibling| sibling.uid != policy.uid);
    }
    Ok(around)
}

async fn by_uid<DB: Engine>(tx: &mut Tx<'_, DB>, uid: Uuid) -> Result<Option<Policy>, Failure> {
    let rows: Vec<PolicyRow> = tx.rows(Ask::new(sql!("policies_by_uids")).set(&[uid])?).await?;
    Ok(rows.into_iter().next().map(Policy::try_from).transpose()?)
}

async fn below<DB: Engine>(tx: &mut Tx<'_, DB>, uid: Uuid) -> Result<Vec<Policy>, Failure> {
    let rows: Vec<PolicyRow> = tx.rows(Ask::new(sql!("policies_below")).bind(uid)).await?;
    Ok(rows.into_iter().map(Policy::try_from).collect::<Result<_, _>>()?)
}
