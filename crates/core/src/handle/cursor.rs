//! Cursors that runs leave for the next one of their schedule.
//!
//! In: a cursor, left here or elsewhere. Out: it is kept for the next run, or is on its way to the shard in which the schedule
//! lives. Invariant: of two, the one that was left later counts, in whatever order they come. Not here: which run gets it.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::change::ShardSchedule;
use super::control::{Control, Message};
use super::shard::Shard;
use crate::model::Now;

impl Shard {
    /// A run of the schedule has left a cursor for the next one, at that moment or now. Should the schedule live in
    /// another shard, it goes there. `by`: the id of the message that has brought it; empty for a run of this shard.
    pub(super) fn cursor_left(
        &mut self,
        uid: Uuid,
        (cursor, left_us): (String, Option<i64>),
        by: &[u8],
        now: Now,
    ) {
        let schedule = self.schedules.entry(uid).or_default();
        let row = schedule.row.get_or_insert_with(|| ShardSchedule::unknown(uid));
        let left_us = left_us.unwrap_or_else(|| now.wall_us.max(row.cursor_us + 1));
        if row.deleted {
            // It has no next run.
            return;
        }
        let Some(home) = row.home else {
            if row.take_cursor(cursor, left_us) {
                self.pending.schedules.insert(uid);
            }
            return;
        };
        if row.cursor.is_none() {
            row.cursor_us = row.cursor_us.max(left_us);
        }
        let left = cursor_message(uid, (cursor, left_us), (self.number, by));
        self.pending.changes.forwards.push((home, left));
    }
}

/// What carries a cursor to another shard. Its id follows from the cursor and from its way: told twice by the same shard for the
/// same reason it is one message; one that comes back to a shard is another one than that which it has not yet done with.
pub(super) fn cursor_message(
    uid: Uuid,
    (cursor, left_us): (String, i64),
    (shard, by): (u16, &[u8]),
) -> Message {
    let digest = Sha256::new()
        .chain_update(b"cursor")
        .chain_update(uid.as_bytes())
        .chain_update(left_us.to_be_bytes())
        .chain_update(shard.to_be_bytes())
        .chain_update(by)
        .finalize();
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    let control = Control::CursorLeft { schedule_uid: uid, cursor, left_us: Some(left_us) };
    Message { id: Uuid::from_bytes(bytes), control }
}
