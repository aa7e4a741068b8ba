//! Bugs of a process's trust and placement, and of the life of a shard's owner.

use crate::edit::{Planted, edit};

pub(crate) const BUGS: &[Planted] = &[
    Planted {
        name: "TakenEarly",
        breaks: "A shard is taken before its owner's trust has ended.",
        edits: &[edit(
            "own/placement.rs",
            "(self.settings.lease_ttl_ms.max(member.ttl_ms()) + MARGIN_MS) * 1000",
            "self.settings.lease_ttl_ms * 300",
        )],
    },
    Planted {
        name: "OwnTtlCounts",
        breaks: "Who trusts its lease for longer than others do loses it to them.",
        edits: &[edit(
            "own/placement.rs",
            "(self.settings.lease_ttl_ms.max(member.ttl_ms()) + MARGIN_MS) * 1000",
            "(self.settings.lease_ttl_ms + MARGIN_MS) * 1000",
        )],
    },
    Planted {
        name: "TwoWin",
        breaks: "A shard is to be everybody's.",
        edits: &[edit(
            "own/placement.rs",
            "candidates.iter().max_by_key(|process| weight(process, shard)) == Some(me)",
            "candidates.contains(me)",
        )],
    },
    Planted {
        name: "NoTrust",
        breaks: "An owner that no longer trusts its lease goes on.",
        edits: &[edit("own/trust.rs", "self.is_old(stops) || now_us > self.until_us.load(SeqCst)", "false")],
    },
    Planted {
        name: "LapseUnnoticed",
        breaks: "Once trust is renewed, what was decided before it had ended is carried out.",
        edits: &[edit("own/trust.rs", "self.lapses() != lapses", "false")],
    },
    Planted {
        name: "StandstillUnnoticed",
        breaks: "A machine that stood still goes on where it was.",
        edits: &[edit("own/trust.rs", "self.stops.load(SeqCst) < stops", "false")],
    },
    Planted {
        name: "StandstillIsNoLapse",
        breaks: "A lease that was taken anew before the first heartbeat since the machine stood still is trusted.",
        edits: &[edit("own/trust.rs", "let had_ended = now_us > until_us || «self.is_old(stops)»;", "false")],
    },
    Planted {
        name: "TrustFromTheEnd",
        breaks: "Trust counts from the end of the heartbeat.",
        edits: &[edit("own/trust.rs", "«began_us».saturating_add(self.term_us)", "now_us")],
    },
    Planted {
        name: "GatherNeverEnds",
        breaks: "Answers wait for others without an end.",
        edits: &[edit("own/gather.rs", "Some(since_us + wait_us.min(most_us))", "Some(i64::MAX)")],
    },
    Planted {
        name: "NoteForgetsOne",
        breaks: "The note of a hand-over leaves out a delivery.",
        edits: &[edit(
            "own/owner.rs",
            "self.machine.under_way(wait_ms, now)",
            "self.machine.under_way(wait_ms, now).into_iter().skip(1).collect()",
        )],
    },
    Planted {
        name: "ReloadForgetsUnderWay",
        breaks: "The next machine is not told what its owner has under way.",
        edits: &[edit("own/owner.rs", "«kept.under_way.clone()», now", "Vec::new()")],
    },
    Planted {
        name: "HandedOverUncommitted",
        breaks: "A shard is given up before its last changes are durable.",
        edits: &[edit("own/owner.rs", "self.machine.durable_after().is_none()", "true")],
    },
    Planted {
        name: "HeardForgotten",
        breaks: "The next machine is not told of answers that no commit has recorded.",
        edits: &[edit("own/owner.rs", "self.kept.unrecorded.all()", "Vec::new()")],
    },
    Planted {
        name: "SyncedEarly",
        breaks: "Who waits for the inbox is answered before the commit.",
        edits: &[edit("own/syncs.rs", "*after <= commits", "true")],
    },
    Planted {
        name: "SyncedByAnOldRead",
        breaks: "Who waits for the inbox is answered by a read that began before it asked.",
        edits: &[edit("own/syncs.rs", "self.new.push(caller);", "self.reading.push(caller);")],
    },
    Planted {
        name: "CaughtUpBlindly",
        breaks: "An owner takes the inbox for read, whenever that was.",
        edits: &[edit("own/owner.rs", "self.machine.caught_up(«self.read_began_us»)", "i64::MAX")],
    },
    Planted {
        name: "NoteReadLate",
        breaks: "A new owner acts before it has read its inbox.",
        edits: &[edit("own/owner.rs", "is_ready: «false»", "true")],
    },
    Planted {
        name: "FireBeforeCommit",
        breaks: "Effects are performed before the commit is durable.",
        edits: &[edit(
            "own/owner.rs",
            "let due = «self.machine.due(now)»;",
            "{
                let mut due = self.machine.due(now);
                due.extend(self.machine.committed(now));
                due
            }",
        )],
    },
    Planted {
        name: "OutlivedCommitPerformed",
        breaks: "What a commit allows is done though the lease ran out meanwhile.",
        edits: &[edit("own/owner.rs", "matches!(effect, Effect::Reply { .. })", "true")],
    },
    Planted {
        name: "RevokeForgotten",
        breaks: "A delivery that waits for its turn goes out though its event has been released.",
        edits: &[edit("own/owner.rs", "under_way(&self.machine) != before", "false")],
    },
    Planted {
        name: "AnyAttemptReported",
        breaks: "The answer of an earlier attempt ends the wait for the one that was noted.",
        edits: &[edit("own/closing.rs", "self.waiting.get(&(run, index))?.attempt != attempt", "false")],
    },
];
