//! How runs look to callers, and which states a filter may name.

use tollgate_core::model::{Counts, Predecessor, Run, RunId, RunKind, RunState};
use uuid::Uuid;

use super::{names, timestamp};
use crate::field::FieldError;
use crate::v1;

/// A run as callers see it. `policy_id` is the id of its policy, where it has one.
pub fn to_message(run: &Run, policy_id: Option<&str>) -> v1::Run {
    v1::Run {
        name: names::of_run(&run.namespace, run.named_shard(), run.id),
        schedule: names::of_schedule(&run.namespace, &run.schedule_id),
        schedule_generation: run.generation.max(0),
        policy: policy_id.map(|id| names::of_policy(&run.namespace, id)).unwrap_or_default(),
        launch_time: Some(timestamp(run.launch_us)),
        events: run.events,
        priority: u32::from(run.priority),
        kind: match run.kind {
            RunKind::Scheduled => v1::RunKind::Scheduled,
            RunKind::Manual => v1::RunKind::Manual,
            RunKind::Backfill => v1::RunKind::Backfill,
            RunKind::Submitted => v1::RunKind::Submitted,
            RunKind::Followed => v1::RunKind::Followed,
        }
        .into(),
        state: state(run.state, run.counts.badly() > 0).into(),
        reason: run.reason.clone(),
        counts: Some(counts(&run.counts)),
        started_count: run.next_index,
        waiting_count: run.events.saturating_sub(run.next_index),
        in_flight_count: run.next_index.saturating_sub(run.counts.total()),
        cursor_in: run.cursor_in.clone().unwrap_or_default(),
        cursor_out: run.cursor_out.clone().unwrap_or_default(),
        emit_time: Some(timestamp(run.emitted_us)),
        start_time: run.started_us.map(timestamp),
        finish_time: run.finished_us.map(timestamp),
        shard: u32::from(run.shard),
        predecessor: run.predecessor.as_deref().map(|before| predecessor(before, &run.namespace)),
        ..v1::Run::default()
    }
}

/// The run before another one of a namespace, as callers see it.
fn predecessor(before: &Predecessor, namespace: &str) -> v1::Predecessor {
    v1::Predecessor {
        run: names::of_run(namespace, before.shard, before.run),
        schedule: names::of_schedule(namespace, &before.schedule_id),
        state: state(before.state, before.counts.badly() > 0).into(),
        counts: Some(counts(&before.counts)),
        place: u32::from(before.place),
    }
}

fn counts(counts: &Counts) -> v1::RunCounts {
    v1::RunCounts {
        succeeded: counts.succeeded,
        failed: counts.failed,
        dead: counts.dead,
        expired: counts.expired,
        cancelled: counts.cancelled,
        lost: counts.lost,
    }
}

/// `badly`: some events ended so.
fn state(state: RunState, badly: bool) -> v1::RunState {
    match state {
        RunState::Emitted => v1::RunState::Emitted,
        RunState::Listing => v1::RunState::Listing,
        RunState::Waiting => v1::RunState::Waiting,
        RunState::Running => v1::RunState::Running,
        RunState::Finished if badly => v1::RunState::FinishedWithFailures,
        RunState::Finished => v1::RunState::Finished,
        RunState::Cancelled => v1::RunState::Cancelled,
        RunState::Skipped => v1::RunState::Skipped,
        RunState::Unreadable => v1::RunState::Unreadable,
    }
}

/// The ids that `name={start}*` in a filter stands for: the queue shard where it is named, the first and the last of them.
///
/// # Errors
/// Any other text, in `filter`.
pub fn ids_in_filter(text: &str) -> Result<(Option<u16>, RunId, RunId), FieldError> {
    let refused = || {
        let expected =
            "name={start}*, the beginning of a run's id: {shard}-{run}, or of {run} alone, of 0-9a-f";
        FieldError::new("filter", text, expected)
    };
    let start = text.strip_suffix('*').ok_or_else(refused)?.to_ascii_lowercase();
    let (shard, start) = match start.split_once('-') {
        Some((shard, start)) => (Some(names::shard(shard).ok_or_else(refused)?), start),
        None => (None, start.as_str()),
    };
    let is_hex = start.len() <= 32 && start.bytes().all(|byte| byte.is_ascii_hexdigit());
    let end = |fill: &str| {
        let text = start.to_owned() + &fill.repeat(32 - start.len());
        Uuid::try_parse(&text).ok().map(RunId)
    };
    let ends = is_hex.then(|| Some((end("0")?, end("f")?))).flatten().ok_or_else(refused)?;
    Ok((shard, ends.0, ends.1))
}

/// The states that `state=…` in a filter names, separated by commas; and whether, of runs that are FINISHED, some events must
/// have ended badly, or none, where that makes a difference.
///
/// # Errors
/// Any other text, in `filter`.
pub fn states_in_filter(text: &str) -> Result<(Vec<RunState>, Option<bool>), FieldError> {
    let named = text.split(',').map(|one| state_in_filter(one.trim())).collect::<Result<Vec<_>, _>>()?;
    let mut states: Vec<RunState> = Vec::new();
    for (state, _) in &named {
        if !states.contains(state) {
            states.push(*state);
        }
    }
    let of_finished = |badly: bool| named.iter().any(|(_, failures)| *failures == Some(badly));
    let failures = match (of_finished(false), of_finished(true)) {
        (false, true) => Some(true),
        (true, false) => Some(false),
        _ => None,
    };
    Ok((states, failures))
}

/// The state that one word in a filter names, with or without its prefix, in any case; and whether some events must have
/// ended badly, where that makes a difference.
///
/// # Errors
/// Any other text, in `filter`.
fn state_in_filter(text: &str) -> Result<(RunState, Option<bool>), FieldError> {
    const ALL: [(RunState, Option<bool>); 9] = [
        (RunState::Emitted, None),
        (RunState::Listing, None),
        (RunState::Waiting, None),
        (RunState::Running, None),
        (RunState::Finished, Some(false)),
        (RunState::Finished, Some(true)),
        (RunState::Cancelled, None),
        (RunState::Skipped, None),
        (RunState::Unreadable, None),
    ];
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("RUN_STATE_").unwrap_or(&name);
    let named = |(found, badly): &(RunState, Option<bool>)| {
        state(*found, *badly == Some(true)).as_str_name().strip_prefix("RUN_STATE_") == Some(name)
    };
    ALL.into_iter().find(named).ok_or_else(|| {
        let expected = "state=EMITTED, LISTING, WAITING, RUNNING, FINISHED, FINISHED_WITH_FAILURES, CANCELLED, SKIPPED \
                        or UNREADABLE";
        FieldError::new("filter", text, expected)
    })
}
