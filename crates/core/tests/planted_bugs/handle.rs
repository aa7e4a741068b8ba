//! Bugs of the machine of a queue shard.

use crate::edit::{Planted, edit};

pub(crate) const BUGS: &[Planted] = &[
    Planted {
        name: "FreedTwice",
        breaks: "A freed token is counted as two.",
        edits: &[edit(
            "handle/ledger/counts.rs",
            "self.held -= units;",
            "self.held -= units + u32::from(self.held > units);",
        )],
    },
    Planted {
        name: "KeyOneTooMany",
        breaks: "A key has one token more than it may have.",
        edits: &[edit(
            "handle/keys.rs",
            "let held = «self.counts.held_of(sharer.key())»; if held.saturating_add(units) > limit",
            "self.counts.held_of(sharer.key()).saturating_sub(1)",
        )],
    },
    Planted {
        name: "KeyPauseIgnored",
        breaks: "A key that is paused goes on.",
        edits: &[edit(
            "handle/keys.rs",
            "if rules.pause_of(key).is_some() {
            return Some(KeyHolds::Paused);
        }",
            "",
        )],
    },
    Planted {
        name: "TreeOneTooMany",
        breaks: "All policies below one hold one token more than it may have.",
        edits: &[edit(
            "handle/bucket.rs",
            "limit.saturating_sub(«in_flight»)",
            "in_flight.saturating_sub(u32::from(self.branch.as_ref().is_some_and(|branch| branch.below > 0)))",
        )],
    },
    Planted {
        name: "TreeNotFreed",
        breaks: "A token that comes back below a policy still counts there.",
        edits: &[edit(
            "handle/ledger.rs",
            "let parent = bucket.parent();
                self.moved_below(parent, -i64::from(units));",
            "",
        )],
    },
    Planted {
        name: "TreeNotWoken",
        breaks: "Who waits for a token of a policy above is not told that one has come back.",
        edits: &[edit(
            "handle/hand_out.rs",
            "self.take_turns(policy, now);
                    roots.insert(root);",
            "roots.insert(root);",
        )],
    },
    Planted {
        name: "TreeForgottenAtTakeover",
        breaks: "A new owner does not know which policies are above.",
        edits: &[edit(
            "handle/restore.rs",
            "self.ledger.learn(policy, now);",
            "self.ledger.learn(crate::model::Policy { parent: None, ..policy }, now);",
        )],
    },
    Planted {
        name: "KeyNotFreed",
        breaks: "Who waits for its key is not told that something of it has come back.",
        edits: &[edit("handle/keys.rs", "self.freed.insert(key);", "")],
    },
    Planted {
        name: "ItemKeysNotWaitedFor",
        breaks: "Something starts before it is known what each key holds.",
        edits: &[edit("handle/keys.rs", "self.counts.unread() > 0 && self.rules().is_some()", "false")],
    },
    Planted {
        name: "StartedStaysUnstarted",
        breaks: "An event that has started is stored as one that has not.",
        edits: &[edit(
            "handle/key_reads.rs",
            "self.pending.unstarted.insert((id, stretch_of(taken.index)));",
            "",
        )],
    },
    Planted {
        name: "ItemCountsAsItsSchedule",
        breaks: "A token of an event with an item counts as its schedule's key.",
        edits: &[edit(
            "handle/places.rs",
            "KeyOf::Item(item) => Self { key: «item.stand_in», ..*self },",
            "{ let _ = item; self.key }",
        )],
    },
    Planted {
        name: "UnclearFrees",
        breaks: "An unclear delivery frees its token.",
        edits: &[edit(
            "handle/settle.rs",
            "self.unclear(key, message, retry_after_ms, now)",
            "self.failed(key, message, retry_after_ms, Outcome::Dead, now)",
        )],
    },
    Planted {
        name: "WallClockTtl",
        breaks: "Silence is counted by the wall clock.",
        edits: &[
            edit(
                "handle/settle.rs",
                "let suspect_us = «token.sign_us.saturating_add(ttl_ms.saturating_mul(1000))»;",
                "{
                let delivered_us = token.row.delivered_us;
                let sign_us = delivered_us.map_or(token.sign_us, |us| now.mono_us - (now.wall_us - us));
                sign_us.saturating_add(ttl_ms.saturating_mul(1000))
            }",
            ),
            // Or it looks at the same token for ever.
            edit(
                "handle/settle.rs",
                "if now.mono_us < suspect_us {
            «self.arm_silence(key, now)»;",
                "self.arm(key, Some(suspect_us))",
            ),
        ],
    },
    Planted {
        name: "TtlRunsWhileDown",
        breaks: "Silence goes on while nothing runs.",
        edits: &[edit(
            "handle/restore.rs",
            "(token.stored, token.batch) = (true, batch);",
            "(token.stored, token.batch) = (true, batch);
            if let Some(delivered_us) = token.row.delivered_us {
                token.sign_us -= now.wall_us - delivered_us;
            }",
        )],
    },
    Planted {
        name: "LateReleaseFrees",
        breaks: "A release frees whatever attempt is in flight.",
        edits: &[edit(
            "handle/settle.rs",
            "release.attempt.is_some_and(|a| a != token.row.attempt)",
            "false",
        )],
    },
    Planted {
        name: "GivenBackTwice",
        breaks: "What was recorded as given back is taken from the later attempt, too.",
        edits: &[edit("handle/settle.rs", "if «is_of_earlier» && (release.next_check_us.is_some()", "false")],
    },
    Planted {
        name: "RefusalEndsDoubt",
        breaks: "A refusal frees the token though an earlier delivery is unclear.",
        edits: &[edit(
            "handle/settle.rs",
            "self.ledger.tokens.get(&key).is_some_and(|t| t.doubtful)",
            "false",
        )],
    },
    Planted {
        name: "GivenUpIsUnsent",
        breaks: "A delivery whose answer a former owner no longer waits for counts as not sent.",
        edits: &[edit("handle/handover.rs", "grace_ms < 0", "grace_ms <= 0")],
    },
    Planted {
        name: "UnsentEndsDoubt",
        breaks: "A delivery that did not leave frees the token though an earlier one is unclear.",
        edits: &[edit("handle/unsent.rs", "(«token.doubtful», token.unsent)", "false")],
    },
    Planted {
        name: "AttemptNotRaised",
        breaks: "A resend has the number of the delivery before.",
        edits: &[edit("handle/again.rs", "token.row.attempt += 1;", "")],
    },
    Planted {
        name: "MovedEarly",
        breaks: "The next shard on a schedule's way is told before it is durable that nothing starts here.",
        edits: &[edit("handle/steer.rs", "let durable = «self.commits()»;", "u64::MAX - 1")],
    },
    Planted {
        name: "CursorSetBack",
        breaks: "The cursor that comes last counts, whenever it was left.",
        edits: &[edit("handle/change.rs", "let is_later = «left_us >= self.cursor_us»;", "true")],
    },
    Planted {
        name: "CursorByTheClock",
        breaks: "A cursor that is left after the clock was set back does not count.",
        edits: &[edit("handle/cursor.rs", "now.wall_us.max(row.cursor_us + 1)", "now.wall_us")],
    },
    Planted {
        name: "CursorWithoutScheduleDropped",
        breaks: "A cursor that comes before the change that brings its schedule is dropped.",
        edits: &[edit(
            "handle/cursor.rs",
            "schedule.row.get_or_insert_with(|| ShardSchedule::unknown(uid))",
            "{
                if schedule.row.is_none() && left_us.is_some() {
                    return;
                }
                schedule.row.get_or_insert_with(|| ShardSchedule::unknown(uid))
            }",
        )],
    },
    Planted {
        name: "BufferedForgotten",
        breaks: "A buffered run stays when the run before it ends.",
        edits: &[edit("handle/finish.rs", "schedule.buffered.take()", "None")],
    },
    Planted {
        name: "CancelKeepsRetries",
        breaks: "A cancel leaves what waits for another attempt.",
        edits: &[edit("handle/steer.rs", "self.finish(key, Outcome::Cancelled, message.clone(), now);", "")],
    },
    Planted {
        name: "WindowCountedTwice",
        breaks: "The end of a window is counted twice.",
        edits: &[edit(
            "handle/dispatch.rs",
            "self.count(id, outcome, count);",
            "self.count(id, outcome, count); self.count(id, outcome, count);",
        )],
    },
    Planted {
        name: "WindowIgnored",
        breaks: "The end of a window is not looked for.",
        edits: &[edit("handle/dispatch.rs", "fn window_ended(&mut self, id: RunId, now: Now) {", "return;")],
    },
    Planted {
        name: "FenceIgnored",
        breaks: "Emissions of older generations are taken in.",
        edits: &[edit("handle/change.rs", "«run.kind == RunKind::Scheduled» && run.launch_us", "false")],
    },
    Planted {
        name: "MessageTwice",
        breaks: "A message that was taken in is taken in again.",
        edits: &[edit("handle/steer.rs", "let known = «self.messages.contains(&message.id)»;", "false")],
    },
    Planted {
        name: "GoneForgotten",
        breaks: "Runs that have ended meanwhile are adopted from a read that began before.",
        edits: &[edit("handle/shard.rs", "self.gone.contains(&run.id)", "false")],
    },
    Planted {
        name: "PauseIgnored",
        breaks: "Events start though their shard is paused.",
        edits: &[edit("handle/hand_out.rs", "self.pause.pause.is_some()", "false")],
    },
    Planted {
        name: "HeartbeatIgnored",
        breaks: "A heartbeat is answered and forgotten.",
        edits: &[edit(
            "handle/settle.rs",
            "«token.sign_us = now.mono_us;» if token.row.heartbeat_ttl_ms",
            "",
        )],
    },
    Planted {
        name: "SentEarly",
        breaks: "What is acquired before its launch time is sent at once.",
        edits: &[edit(
            "handle/shard.rs",
            "matches!(effect, Effect::Send(send) if send.launch_us > now.wall_us)",
            "false",
        )],
    },
    Planted {
        name: "AnswerBeforeDurable",
        breaks: "An answer says what is pending as if it were durable.",
        edits: &[edit(
            "handle/settle.rs",
            "if «self.durable_after().is_none()» { return Some(answer);",
            "true",
        )],
    },
    Planted {
        name: "BatchKept",
        breaks: "An event that gets a row of its own stays in its batch.",
        edits: &[edit(
            "handle/pending.rs",
            "«batches.get_mut(&(key.0, first))» { batch.leave(key.1);",
            "None",
        )],
    },
    Planted {
        name: "BatchHoldForgotten",
        breaks: "That a consumer has an event is not written into its batch.",
        edits: &[edit(
            "handle/pending.rs",
            "«batches.get_mut(&(key.0, first))» { batch.hold(key.1, row.delivered_us);",
            "None",
        )],
    },
    Planted {
        name: "PlaceKept",
        breaks: "An unclear event keeps its place while it waits to be sent again, and for good.",
        edits: &[
            edit(
                "handle/settle.rs",
                "«self.ledger.turn(key, Phase::Acquired);» match sent",
                "if !matches!(sent, Sent::Unclear { .. }) {
                    self.ledger.turn(key, Phase::Acquired);
                }",
            ),
            edit(
                "handle/ledger.rs",
                "bucket.counts.leave(«before», &sharer, units); bucket.counts.enter(phase, &sharer, units);",
                "if matches!(phase, Phase::Again { .. }) { Phase::Acquired } else { before }",
            ),
        ],
    },
    Planted {
        name: "RecordedReleaseDropped",
        breaks: "A release that was recorded in the inbox is dropped if the event has been sent again since.",
        edits: &[
            edit(
                "handle/settle.rs",
                "in_flight && «release.attempt.is_some_and(|a| a < token.row.attempt)»",
                "false",
            ),
            edit(
                "handle/settle.rs",
                "in_flight && «release.attempt.is_some_and(|a| a <= token.row.attempt)»",
                "false",
            ),
        ],
    },
    Planted {
        name: "EndsInMemoryOnly",
        breaks: "The end of a run that another one follows is not written: it goes with its owner.",
        edits: &[edit("handle/follow.rs", "self.pending.changes.inbox_new.push(message.clone());", "")],
    },
    Planted {
        name: "EndsDoneWhenRead",
        breaks: "The next owner takes the end of a run for followed as soon as it has read it.",
        edits: &[edit("handle/steer.rs", "Control::RunEnded { .. } => «true»", "false")],
    },
    Planted {
        name: "NextOfEachEnd",
        breaks: "A run that ends twice is followed by two runs.",
        edits: &[edit(
            "model/follow.rs",
            "let before = «self.of.run.0»;",
            "Uuid::from_u128(self.ended_us.unsigned_abs().into())",
        )],
    },
    Planted {
        name: "ChainWithoutEnd",
        breaks: "A chain that comes back to its beginning goes on for ever.",
        edits: &[edit(
            "model/follow.rs",
            "on_finish.when.holds(run) && «place < Predecessor::PLACES_MAX»",
            "true",
        )],
    },
    Planted {
        name: "ConditionIgnored",
        breaks: "A run follows whatever end of the one before.",
        edits: &[edit("model/follow.rs", "«on_finish.when.holds(run)» && place", "true")],
    },
    Planted {
        name: "ChainNotWaitedFor",
        breaks: "The next run of a schedule starts while the chain of the one before goes on.",
        edits: &[edit("handle/live.rs", "self.active.is_empty() && «self.chain_but(own).is_none()»", "true")],
    },
    Planted {
        name: "ChainEndUntold",
        breaks: "A chain of which the last run has no schedule that follows is waited for for ever.",
        edits: &[edit("model/follow.rs", "next.is_some() || «root.is_some()»", "false")],
    },
];
