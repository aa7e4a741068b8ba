//! An owner's answers, as one process tells another.

use tollgate_core::handle::release::Answer;
use tollgate_proto::v1;

use crate::routes::Replied;

/// What an owner said of a release, as one process tells another.
pub(crate) fn released_to_wire(replied: Option<Replied>) -> v1::ForwardedRelease {
    let mut wire = v1::ForwardedRelease::default();
    wire.set_answer(answer_to_wire(replied.as_ref()));
    match replied {
        Some(Replied::Answer(Answer::ComesAgain { at_us })) => wire.next_check_us = at_us,
        Some(Replied::Answer(Answer::Refused { message })) => wire.message = message,
        _ => {}
    }
    wire
}

/// None where the callee does not own the event's shard.
pub(crate) fn released_from_wire(wire: v1::ForwardedRelease) -> Option<Replied> {
    use v1::OwnerAnswer as Wire;
    Some(match wire.answer() {
        Wire::TryAgain => Replied::TryAgain,
        Wire::Foreign => Replied::Foreign,
        Wire::Released => Replied::Answer(Answer::Released),
        Wire::ComesAgain => Replied::Answer(Answer::ComesAgain { at_us: wire.next_check_us }),
        Wire::NotHeld => Replied::Answer(Answer::NotHeld),
        Wire::Late => Replied::Answer(Answer::Late),
        Wire::Refused => Replied::Answer(Answer::Refused { message: wire.message }),
        Wire::NotOwner | Wire::Extended | Wire::Unspecified => return None,
    })
}

/// What an owner said of a heartbeat, as one process tells another.
pub(crate) fn extended_to_wire(replied: Option<Replied>) -> v1::ForwardExtendResponse {
    let mut wire = v1::ForwardExtendResponse::default();
    wire.set_answer(answer_to_wire(replied.as_ref()));
    if let Some(Replied::Answer(Answer::Extended { remaining_ms })) = replied {
        wire.remaining_ms = remaining_ms;
    }
    wire
}

/// None where the callee does not own the event's shard.
pub(crate) fn extended_from_wire(wire: v1::ForwardExtendResponse) -> Option<Replied> {
    use v1::OwnerAnswer as Wire;
    Some(match wire.answer() {
        Wire::TryAgain => Replied::TryAgain,
        Wire::Foreign => Replied::Foreign,
        Wire::Extended => Replied::Answer(Answer::Extended { remaining_ms: wire.remaining_ms }),
        Wire::NotHeld => Replied::Answer(Answer::NotHeld),
        Wire::Late => Replied::Answer(Answer::Late),
        _ => return None,
    })
}

fn answer_to_wire(replied: Option<&Replied>) -> v1::OwnerAnswer {
    use v1::OwnerAnswer as Wire;
    match replied {
        None => Wire::NotOwner,
        Some(Replied::TryAgain) => Wire::TryAgain,
        Some(Replied::Foreign) => Wire::Foreign,
        Some(Replied::Answer(answer)) => match answer {
            Answer::Released => Wire::Released,
            Answer::ComesAgain { .. } => Wire::ComesAgain,
            Answer::Extended { .. } => Wire::Extended,
            Answer::NotHeld => Wire::NotHeld,
            Answer::Late => Wire::Late,
            Answer::Refused { .. } => Wire::Refused,
        },
    }
}
