//! Bugs of events that workers pull: tokens without room, and room that is kept or lost.

use crate::edit::{Planted, edit};

pub(crate) const BUGS: &[Planted] = &[
    Planted {
        name: "RoomIgnored",
        breaks: "An event takes its token though no worker has room.",
        edits: &[edit(
            "handle/rounds.rs",
            "match «run.pool().filter(|pool| rooms.room(*pool) == 0)» {",
            "None::<u128>",
        )],
    },
    Planted {
        name: "RoomKept",
        breaks: "Room of which no use is made does not go back.",
        edits: &[edit("handle/rooms.rs", "let room = «std::mem::take(&mut pool.room)»;", "0")],
    },
    Planted {
        name: "RoomAskedForOnce",
        breaks: "When all room that was asked for is used, no more is asked for, though tokens are free.",
        edits: &[edit("handle/rooms.rs", "given.remove(&id); «asks.insert(id);»", "();")],
    },
    Planted {
        name: "AgainWithoutRoom",
        breaks: "An event that holds its token is sent again though no worker has room.",
        edits: &[edit("handle/again.rs", "if «!self.waits_for_room(key)» {", "true")],
    },
    Planted {
        name: "AgainUnlooked",
        breaks: "An event that gave its token back while it waited for room is sent without one.",
        edits: &[edit(
            "handle/rooms.rs",
            "«self.ledger.tokens.get(&key).is_some_and(|token| token.again_us().is_some())»",
            "true",
        )],
    },
    Planted {
        name: "RoomOfOnePolicy",
        breaks: "Room that one policy makes no use of goes back, though another one waits for it.",
        edits: &[edit("handle/shard.rs", "while «self.offer_further(now)» {", "false")],
    },
    Planted {
        name: "TokensBackUnasked",
        breaks: "Tokens that come back after room was there in vain ask for none.",
        edits: &[edit("handle/rounds.rs", "«self.rooms.revive(policy);»", "();")],
    },
    Planted {
        name: "UnwantedRoomLost",
        breaks: "The room of an event that is not sent after all is lost.",
        edits: &[
            edit("handle/shard.rs", "«self.put_back_room(&send);»", "();"),
            edit("handle/early.rs", "«self.put_back_room(&send);»", "();"),
        ],
    },
];
