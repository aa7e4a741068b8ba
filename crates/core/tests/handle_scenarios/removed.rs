//! Policies that are removed while runs under them are on their way, and news of policies that have been forgotten.

use tollgate_core::handle::Reason;
use tollgate_core::handle::control::Control;
use tollgate_core::model::*;

use crate::handle_world::*;
use crate::world::*;

fn by_hand(spec: &RunSpec, launch_us: i64) -> Run {
    Run { kind: RunKind::Manual, ..run(spec, launch_us, 5) }
}

/// Whoever made it held the policy: its removal was committed after the run, and the shard hears of both in any order.
#[test]
fn a_run_made_by_hand_while_its_policy_is_removed_ends_under_the_last_limits() {
    for dies in [false, true] {
        let p = policy(1, at_most(2));
        let mut world = World::with_policy(&p);
        let s = spec(10, Some(&p));
        let by_hand = by_hand(&s, START_US);
        world.store.emit(by_hand.clone(), &s);
        world.tell(Control::PolicyDeleted { uid: p.uid });
        if dies {
            world.restart_after_s(1);
        }
        world.read_runs();
        world.sleep_us(1);
        assert_eq!((world.sends.len(), world.held(&p)), (2, 2), "its limits hold");
        assert_eq!(world.work_off(), 5);
        assert_eq!(world.row(by_hand.id).state, RunState::Finished);
        world.sleep_s(2 * 86_400);
        assert!(world.store.policies.is_empty() && world.store.policies_deleted.is_empty());
        assert_eq!(world.shard.remembered().policies, 0);
    }
}

/// News of it may come twice: whoever delivers them may die before it has noted that.
#[test]
fn a_removal_that_is_told_again_to_a_shard_that_has_forgotten_the_policy_changes_nothing() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    world.tell(Control::PolicyDeleted { uid: p.uid });
    world.tell(Control::PolicyDeleted { uid: p.uid });
    assert_eq!(world.store.policies_deleted.len(), 1);
    world.sleep_s(2 * 86_400);
    assert!(world.store.policies.is_empty());
    // The store has no row of it any more, and would say so.
    world.tell(Control::PolicyDeleted { uid: p.uid });
    world.restart_after_s(1);
    world.tell(Control::PolicyDeleted { uid: p.uid });
    assert!(world.store.inbox.is_empty() && world.store.policies_deleted.is_empty());
    assert_eq!(world.shard.remembered().policies, 0);
    world.sleep_s(2 * 86_400);
    assert!(world.store.policies.is_empty());
}

/// A process of a version before may make a run under a policy that has gone. It waits, says why, and can be cancelled.
#[test]
fn a_run_under_a_forgotten_policy_waits_and_can_be_cancelled() {
    let p = policy(1, at_most(2));
    let mut world = World::with_policy(&p);
    world.tell(Control::PolicyDeleted { uid: p.uid });
    world.sleep_s(2 * 86_400);
    let s = spec(10, Some(&p));
    let id = world.emit(by_hand(&s, world.now.wall_us), &s);
    world.tell(Control::PolicyDeleted { uid: p.uid });
    world.sleep_s(2 * 86_400);
    assert_eq!(world.sends.len(), 0, "nobody knows how many may be in flight");
    let explanation = world.shard.explain(id, 0, world.now).unwrap();
    assert!(explanation.reasons.iter().any(|r| matches!(r, Reason::PolicyUnknown)), "{explanation:?}");
    world.tell(Control::CancelRun { run: id, reason: "its policy has gone".into() });
    assert_eq!(world.row(id).state, RunState::Cancelled);
    assert!(world.store.inbox.is_empty() && world.store.policies.is_empty());
}
