//! Bugs of events that take several tokens, and of who waits for them.

use crate::edit::{Planted, edit};

pub(crate) const BUGS: &[Planted] = &[
    Planted {
        name: "UnitsIgnored",
        breaks: "Each event takes one token, whatever is said.",
        edits: &[edit(
            "handle/live.rs",
            "units: if self.row.policy_uid.is_some() { «said.max(1)» } else { 1 }",
            "1",
        )],
    },
    Planted {
        name: "TreeGivesBackOne",
        breaks: "Of the tokens of an event that waits for its next attempt, the policies above get one back.",
        edits: &[edit(
            "handle/ledger.rs",
            "self.moved_below(parent, if phase.in_flight() { units.into() } else { «-i64::from(units)» });",
            "-1",
        )],
    },
    Planted {
        name: "ShortPassedOver",
        breaks: "While who is next waits for many tokens, those that take fewer go before it.",
        edits: &[edit(
            "handle/queue.rs",
            "Look::Takes(units) => «(None, units)»,",
            "if units > tokens { (Some(Group::Places(0)), 0) } else { (None, units) }",
        )],
    },
    Planted {
        name: "KeptOfKeyGivenAway",
        breaks: "What is left of a key goes to those that take fewer tokens than who waits for it.",
        edits: &[edit(
            "handle/queue.rs",
            "«(is_behind.then_some(Group::Key(id.1)), units)»",
            "(None, units)",
        )],
    },
    Planted {
        name: "AboveNotLookedAtAgain",
        breaks: "Who takes more than the limit of a policy above does not go on when that is raised.",
        edits: &[edit("handle/ledger/tree.rs", "bucket.keys.free_all();", "")],
    },
    Planted {
        name: "UnreadCountsAsOne",
        breaks: "After a takeover an event counts as one token until its item has been read.",
        edits: &[edit("handle/live.rs", "Load { key: KeyOf::Unread, units: «self.units_max()» }", "1")],
    },
    Planted {
        name: "UnitsOfTheOneBefore",
        breaks: "An event takes as many tokens as the one of its key before it.",
        edits: &[edit(
            "handle/sorted.rs",
            "«last.indexes.end == index && last.units == load.units»",
            "last.indexes.end == index",
        )],
    },
];
