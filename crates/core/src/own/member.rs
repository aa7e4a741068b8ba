//! What processes say of themselves to each other, in the member list; and whose a shard is.

use uuid::Uuid;

/// Added to the roles of a process that is about to end: its leases hold, and it is given no more.
const LEAVING: &str = "leaving";
/// Among the roles of a process, before its lease's TTL in milliseconds: it trusts its leases for as long.
const TTL: &str = "ttl-";
/// Among the roles of a process whose machine's clock is wrong: it makes way for those whose clock is right.
const CLOCK_OFF: &str = "clock-off";

/// Among the roles of a process whose version knows that something may have moved to another queue shard: their number may be
/// changed while only such processes are at work.
const MOVES: &str = "moves";

/// Who owns a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The shard.
    pub shard: u16,
    /// The owner's process id; empty where it has none.
    pub owner: String,
    /// Made anew at every takeover.
    pub lease_id: Uuid,
    /// Grows by one at every takeover.
    pub epoch: i64,
}

/// A process that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Made anew at every start.
    pub process: String,
    /// Its roles, comma separated.
    pub roles: String,
    /// Where others reach it by gRPC; empty if nowhere.
    pub address: String,
    /// Changes with every heartbeat; others judge by their own monotonic clocks whether it does.
    pub heartbeat: i64,
}

impl Member {
    /// The roles of a process, with what else others are to know of it.
    pub(super) fn roles(roles: &str, ttl_ms: i64, is_off: bool, leaves: bool) -> String {
        let clock = if is_off { format!(",{CLOCK_OFF}") } else { String::new() };
        let leaving = if leaves { format!(",{LEAVING}") } else { String::new() };
        format!("{roles},{TTL}{ttl_ms},{MOVES}{clock}{leaving}")
    }

    /// For how long it trusts its leases, in milliseconds; 0 where its version does not say so.
    pub(super) fn ttl_ms(&self) -> i64 {
        self.roles.split(',').find_map(|role| role.strip_prefix(TTL)?.parse().ok()).unwrap_or(0)
    }

    /// Whether it is to own shards: a handler that does not intend to leave.
    pub(super) fn stays(&self) -> bool {
        self.says("handler") && !self.says(LEAVING)
    }

    /// Whether its machine's clock is wrong.
    pub(super) fn is_off(&self) -> bool {
        self.says(CLOCK_OFF)
    }

    /// Whether its version knows that something may have moved to another queue shard.
    pub fn knows_of_moves(&self) -> bool {
        self.says(MOVES)
    }

    fn says(&self, word: &str) -> bool {
        self.roles.split(',').any(|role| role == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_says_how_long_it_trusts_its_leases() {
        let of = |roles: &str| Member {
            process: String::new(),
            roles: roles.to_owned(),
            address: String::new(),
            heartbeat: 0,
        };
        let said = of(&Member::roles("master,handler", 60_000, true, true));
        assert_eq!(said.roles, "master,handler,ttl-60000,moves,clock-off,leaving");
        assert_eq!((said.ttl_ms(), said.is_off(), said.stays()), (60_000, true, false));
        let said = of(&Member::roles("handler", 500, false, false));
        assert_eq!((said.ttl_ms(), said.is_off(), said.stays()), (500, false, true));
        assert!(said.knows_of_moves() && !of("handler,ttl-500").knows_of_moves());
        // As versions before say it, and nothing that means anything.
        assert_eq!((of("handler,leaving").ttl_ms(), of("handler,ttl-soon").ttl_ms()), (0, 0));
    }
}
