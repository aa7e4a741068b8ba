//! Where shards go, and who takes which.

use uuid::Uuid;

use super::*;

const TTL_MS: i64 = 3_000;
const SECOND_US: i64 = 1_000_000;

fn placement(process: &str) -> Placement {
    let (roles, address) = ("handler".to_owned(), String::new());
    let process = process.to_owned();
    Placement::new(Settings { process, roles, address, lease_ttl_ms: TTL_MS, exclusive: false })
}

fn member(process: &str, heartbeat: i64, ttl_ms: i64) -> Member {
    let roles = Member::roles("handler", ttl_ms, false, false);
    Member { process: process.to_owned(), roles, address: String::new(), heartbeat }
}

fn lease(shard: u16, owner: &str) -> Lease {
    Lease { shard, owner: owner.to_owned(), lease_id: Uuid::nil(), epoch: 1 }
}

/// A shard that is this process's among these.
fn shard_of(process: &str, all: &[&str]) -> u16 {
    (0..1_000).find(|s| all.iter().max_by_key(|p| weight(p, *s)) == Some(&process)).unwrap_or(u16::MAX)
}

fn takes(steps: &[PlacementStep]) -> usize {
    steps.iter().filter(|step| matches!(step, PlacementStep::Take(_))).count()
}

/// Looks from `began_us` to `now_us` at itself and another, whose heartbeat stands at `beats` and which owns the shard.
fn look(of: &mut Placement, shard: u16, beats: i64, ttl_ms: i64, (began_us, now_us): (i64, i64)) -> usize {
    let members = vec![member("me", 1, TTL_MS), member("it", beats, ttl_ms)];
    takes(&of.looked(Look { began_us, leases: vec![lease(shard, "it")], members }, now_us))
}

#[test]
fn a_silent_owner_loses_its_shard_by_the_observers_own_clock() {
    let (mut of, shard) = (placement("me"), shard_of("me", &["me", "it"]));
    assert_eq!(look(&mut of, shard, 7, TTL_MS, (0, 0)), 0);
    let dead_us = (TTL_MS + MARGIN_MS) * 1_000;
    assert_eq!(look(&mut of, shard, 8, TTL_MS, (10, 10)), 0);
    assert_eq!(look(&mut of, shard, 8, TTL_MS, (dead_us + 9, dead_us + 9)), 0);
    assert_eq!(look(&mut of, shard, 8, TTL_MS, (dead_us + 10, dead_us + 10)), 1);
    assert_eq!(look(&mut of, shard, 8, TTL_MS, (dead_us + 11, dead_us + 11)), 0, "it is being taken");
    of.taken(shard, false);
    assert_eq!(look(&mut of, shard, 8, TTL_MS, (dead_us + 12, dead_us + 12)), 1);
}

#[test]
fn the_longer_of_two_ttls_counts() {
    let (mut of, shard) = (placement("me"), shard_of("me", &["me", "it"]));
    look(&mut of, shard, 7, 60_000, (0, 0));
    assert_eq!(look(&mut of, shard, 7, 60_000, (60 * SECOND_US, 60 * SECOND_US)), 0);
    assert_eq!(look(&mut of, shard, 7, 60_000, (61 * SECOND_US, 61 * SECOND_US)), 1);
    // Nor is it forgotten by a process that trusts its own for a shorter time.
    let members = vec![member("it", 7, 60_000)];
    let at_us = |s: i64| Look { began_us: s * SECOND_US, leases: Vec::new(), members: members.clone() };
    assert_eq!(of.looked(at_us(1_200), 1_200 * SECOND_US), []);
    assert_eq!(of.looked(at_us(1_201), 1_201 * SECOND_US), [PlacementStep::Forget("it".to_owned())]);
}

#[test]
fn who_was_frozen_between_its_read_and_its_judgement_takes_nobody_for_dead() {
    let (mut of, shard) = (placement("me"), shard_of("me", &["me", "it"]));
    look(&mut of, shard, 7, TTL_MS, (0, 0));
    assert_eq!(look(&mut of, shard, 7, TTL_MS, (SECOND_US, 3 * SECOND_US)), 0);
    assert_eq!(look(&mut of, shard, 7, TTL_MS, (2 * SECOND_US, 90 * SECOND_US)), 0);
    // However long the silence, what was read long ago is not acted upon.
    assert_eq!(look(&mut of, shard, 7, TTL_MS, (50 * SECOND_US, 90 * SECOND_US)), 0);
    assert_eq!(look(&mut of, shard, 7, TTL_MS, (50 * SECOND_US, 51 * SECOND_US)), 1);
}

#[test]
fn of_those_who_see_the_same_exactly_one_takes_a_shard_and_the_others_give_it_up() {
    let names = ["a", "b", "c"];
    let members: Vec<Member> = names.iter().map(|name| member(name, 1, TTL_MS)).collect();
    for shard in 0..200 {
        let look = |owner| Look { began_us: 0, leases: vec![lease(shard, owner)], members: members.clone() };
        let takers: Vec<&str> =
            names.into_iter().filter(|name| takes(&placement(name).looked(look(""), 0)) == 1).collect();
        assert_eq!(takers.len(), 1);
        for name in names {
            let mut of = placement(name);
            of.taken(shard, true);
            let steps = of.looked(look(name), 0);
            let expected = if takers == [name] { vec![] } else { vec![PlacementStep::GiveUp(shard)] };
            assert_eq!(steps, expected);
        }
    }
}

#[test]
fn whose_clock_is_wrong_makes_way_where_somebody_else_can_own() {
    let mut of = placement("me");
    assert!(of.beat(WallClock::Off, false).stays(), "nobody else is there");
    assert!(!of.beat(WallClock::Unknown, false).stays());
    let members = vec![member("me", 1, TTL_MS), member("it", 1, TTL_MS)];
    of.looked(Look { began_us: 0, leases: Vec::new(), members }, 0);
    assert!(!of.beat(WallClock::Off, false).stays());
    assert!(of.beat(WallClock::Right, false).stays() && !of.beat(WallClock::Right, true).stays());
}

#[test]
fn what_others_give_up_waits_for_no_member_that_had_died_before_this_process_came() {
    let mut of = placement("me");
    // The dead one's among all, and this process's among those that live.
    let is_wanted = |s: &u16| {
        let [me, it, dead] = ["me", "it", "dead"].map(|name| weight(name, *s));
        dead > me && me > it
    };
    let shard = (0..1_000).find(is_wanted).unwrap_or(u16::MAX);
    let look = |of: &mut Placement, beats: i64, owner: &str, at_us: i64| {
        let members = vec![member("me", 1, TTL_MS), member("it", beats, TTL_MS), member("dead", 7, TTL_MS)];
        of.looked(Look { began_us: at_us, leases: vec![lease(shard, owner)], members }, at_us)
    };
    // It may be alive, and take the shard itself.
    assert_eq!(look(&mut of, 1, "", 0), []);
    let beat_us = of.beat_every_ms() * 1_000;
    assert_eq!(takes(&look(&mut of, 2, "", beat_us)), 1);
    of.taken(shard, true);
    assert_eq!(look(&mut of, 3, "me", 2 * beat_us), [], "nor is it given up for the dead one");
    // Its own leases are left alone as long as anybody's.
    of.ended(shard);
    assert_eq!(look(&mut of, 4, "dead", 3 * beat_us), []);
    let dead_us = (TTL_MS + MARGIN_MS) * 1_000;
    assert_eq!(takes(&look(&mut of, 5, "dead", dead_us)), 1);
}

#[test]
fn who_has_come_after_this_process_or_beats_again_is_expected_to_take_its_shards() {
    let (mut of, shard) = (placement("me"), shard_of("it", &["me", "it"]));
    let beat_us = of.beat_every_ms() * 1_000;
    let look = |of: &mut Placement, it: Option<i64>, owner: &str, at_us: i64| {
        let mut members = vec![member("me", 1, TTL_MS)];
        members.extend(it.map(|beats| member("it", beats, TTL_MS)));
        of.looked(Look { began_us: at_us, leases: vec![lease(shard, owner)], members }, at_us)
    };
    assert_eq!(takes(&look(&mut of, None, "", 0)), 1, "nobody else is there");
    of.taken(shard, true);
    // However slow its first beats are: its row came just now.
    for at_us in [beat_us, 2 * beat_us, 4 * beat_us] {
        assert_eq!(look(&mut of, Some(1), "me", at_us), [PlacementStep::GiveUp(shard)]);
    }
    // The same of one that was there, from when it beats.
    let mut of = placement("me");
    assert_eq!(look(&mut of, Some(1), "", 0), []);
    assert_eq!(takes(&look(&mut of, Some(1), "", beat_us)), 1);
    of.taken(shard, true);
    assert_eq!(look(&mut of, Some(2), "me", 2 * beat_us), [PlacementStep::GiveUp(shard)]);
}
