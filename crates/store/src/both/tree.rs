//! Whether a policy may stand where it is put in a tree: reads those around it, and holds what the answer hangs on.
//!
//! In: a policy that is about to be written. Out: what is wrong with its place. Invariants: the policy above stays as it was read
//! until the commit; a policy gets another parent only while nothing of it can start or holds a token: no limit is passed.
//! Not here: the rules of a tree ([`tollgate_core::plan::tree`]).

use tollgate_core::model::{Parent, Policy};
use tollgate_core::plan::tree::{Around, faults};
use uuid::Uuid;

use super::{Ask, Engine, Tx, sql};
use crate::StoreError;
use crate::batch::{USERS_NAMED, has_moved};
use crate::failure::Failure;
use crate::rows::{PolicyRow, ShardPolicyRow};

/// Where a policy is put.
#[derive(Debug)]
pub(super) struct Place<'p> {
    pub(super) policy: &'p Policy,
    /// What keeps it from another parent, where it gets one.
    stays: Option<StoreError>,
    /// Another policy of its namespace adopts new ones, as it would: it is not written.
    pub(super) is_second: Option<StoreError>,
}

/// What a policy's place hangs on that its change changes: to be asked before it. The policy above is held.
pub(super) async fn place_of<'p, DB: Engine>(
    tx: &mut Tx<'_, DB>,
    policy: &'p Policy,
    is_stored: bool,
) -> Result<Place<'p>, Failure> {
    let above = policy.parent.as_deref();
    if let Some(parent) = above {
        let held: Vec<(Uuid, i64, i32)> = tx.rows(Ask::new(sql!("policies_lock")).bind(parent.uid)).await?;
        let Some((_, _, shard)) = held.first() else {
            return Err(refused("parent", &parent.id, "a policy that exists").into());
        };
        // A new one is made to live where the one above did when it was read.
        if !is_stored && *shard != i32::from(policy.shard) {
            return Err(has_moved(&format!("policy {:?}", parent.id)).into());
        }
    }
    let before = if is_stored { by_uid(tx, policy.uid).await? } else { None };
    let parent = above.map(|above| above.uid);
    let moves = before.is_some_and(|before| before.parent.as_ref().map(|above| above.uid) != parent);
    let stays = if moves { stays(tx, policy).await? } else { None };
    Ok(Place { policy, stays, is_second: is_second(tx, policy).await? })
}

async fn is_second<DB: Engine>(tx: &mut Tx<'_, DB>, policy: &Policy) -> Result<Option<StoreError>, Failure> {
    if !policy.adopts {
        return Ok(None);
    }
    let ask = Ask::new(sql!("policies_adopting")).bind(policy.namespace.clone());
    let others: Vec<PolicyRow> = tx.rows(ask).await?;
    let other = others.iter().find(|other| other.uid != policy.uid);
    Ok(other.map(|other| {
        let expected = format!("false, as {:?} adopts new policies already", other.id);
        refused("adopts", "true", &expected)
    }))
}

/// What is wrong with a place, once all that is written with it stands.
pub(super) async fn fault_of<DB: Engine>(
    tx: &mut Tx<'_, DB>,
    place: &Place<'_>,
) -> Result<Option<StoreError>, Failure> {
    let policy = place.policy;
    let around = around(tx, policy).await?;
    if let Some(fault) = faults(policy, &around).into_iter().next() {
        return Ok(Some(refused(fault.field, &fault.value, &fault.expected)));
    }
    let elsewhere = around.above.last().is_some_and(|root| root.shard != policy.shard);
    if let Some(parent) = policy.parent.as_deref().filter(|_| elsewhere) {
        let expected = "a policy that lives in the same queue shard; \
                        make a new policy below it, and have schedules use that one";
        return Ok(Some(refused("parent", &parent.id, expected)));
    }
    Ok(match &place.stays {
        Some(StoreError::InUse { what }) => Some(StoreError::InUse { what: what.clone() }),
        _ => None,
    })
}

/// The ids of the first policies right below one, one more than an error names.
pub(super) async fn ids_below<DB: Engine>(tx: &mut Tx<'_, DB>, uid: Uuid) -> Result<Vec<String>, Failure> {
    let ids = below(tx, uid).await?.into_iter().map(|policy| policy.id);
    Ok(ids.take(USERS_NAMED + 1).collect())
}

/// Why a policy gets no other parent now; none where it is paused, its shard knows so, and nothing of it holds a token.
async fn stays<DB: Engine>(tx: &mut Tx<'_, DB>, policy: &Policy) -> Result<Option<StoreError>, Failure> {
    let kept = |why: &str| {
        let what = format!("policy {:?} gets no other parent {why}", policy.id);
        Ok(Some(StoreError::InUse { what }))
    };
    if let Some(child) = ids_below(tx, policy.uid).await?.first() {
        return kept(&format!("while it is the parent of {child:?}"));
    }
    if policy.pause.is_none() {
        return kept("while it is not paused: pause it first");
    }
    let shard = i32::from(policy.shard);
    let ask = Ask::new(sql!("shard_policy")).bind(shard).bind(policy.uid);
    let rows: Vec<ShardPolicyRow> = tx.rows(ask).await?;
    let known = rows.into_iter().next().map(Policy::try_from).transpose()?;
    if known.is_none_or(|known| known.generation + 1 != policy.generation || known.pause.is_none()) {
        return kept("before its queue shard has heard of its pause: try again in a moment");
    }
    let holds: Vec<(Uuid,)> = tx.rows(Ask::new(sql!("policy_holds")).bind(shard).bind(policy.uid)).await?;
    if !holds.is_empty() {
        return kept("while its events hold tokens: wait until they are released");
    }
    Ok(None)
}

fn refused(field: &str, value: &str, expected: &str) -> StoreError {
    let message = format!("{value:?} is not allowed, expected {expected}");
    StoreError::Invalid { field: format!("policy.{field}"), message }
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
