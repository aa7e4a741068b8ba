//! Bugs of changes: where a schedule lives, what its shards are told, and in which order.

use crate::edit::{Planted, edit};

pub(crate) const BUGS: &[Planted] = &[
    Planted {
        name: "FormerHomesNotTold",
        breaks: "The shards in which a schedule lived are not told of a change.",
        edits: &[edit("plan/placement.rs", "let mut told = «schedule.former_homes.clone()»;", "Vec::new()")],
    },
    Planted {
        name: "ToldToTheWrongShard",
        breaks: "A change is told to the shard first that must hear of it last.",
        edits: &[edit("plan/notice.rs", "«self.way.first().copied()»", "self.way.last().copied()")],
    },
    Planted {
        name: "ToldInTheWrongOrder",
        breaks: "Of two notices the later one is told first.",
        edits: &[edit(
            "plan/telling.rs",
            "notices.sort_by_key(key);",
            "notices.sort_by_key(|notice| (notice.uid, -notice.generation));",
        )],
    },
    Planted {
        name: "FrontierReadOnce",
        breaks: "How far windows are open is read once for several generations.",
        edits: &[edit("plan/telling.rs", "map_or(0, |(_, wave)| «wave + 1»)", "wave")],
    },
    Planted {
        name: "ToldThoughHeldBack",
        breaks: "A change is told though the one before it has not been.",
        edits: &[edit(
            "plan/telling.rs",
            "self.held_back.extend(told.iter().map(|one| one.uid));",
            "drop(told);",
        )],
    },
    Planted {
        name: "CreationNotTold",
        breaks: "Of a new schedule nothing is told.",
        edits: &[edit(
            "plan/telling.rs",
            "let nothing = «notice.is_new && fires.is_empty()»;",
            "notice.is_new",
        )],
    },
    Planted {
        name: "PolicyChangeNotTold",
        breaks: "A policy's shard hears of it when it is made, and never again.",
        edits: &[edit(
            "plan/telling.rs",
            "message: «Some(message(notice, control.clone()))»,",
            "notice.is_new.then(|| message(notice, control.clone()))",
        )],
    },
    Planted {
        name: "PolicyToldElsewhere",
        breaks: "Of a policy a shard is told in which it does not live.",
        edits: &[edit("plan/notice.rs", "way: vec![«policy.shard»],", "(policy.shard + 1) % 2")],
    },
    Planted {
        name: "BoundTooShort",
        breaks: "Windows that are opened while a change is written are not thought of.",
        edits: &[edit("plan/telling.rs", "«opened_until_us + OPENED_MEANWHILE_US»", "opened_until_us")],
    },
];
