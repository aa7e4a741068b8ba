//! Decides which trace and which spans belong to an event: ids that follow from run, index and attempt.
//!
//! In: run and index. Out: W3C trace contexts (<https://www.w3.org/TR/trace-context/>). Invariant: the same event has the
//! same trace in every process and at every attempt.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use tollgate_core::model::RunId;

/// What a span is about; part of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanSubject {
    Event,
    Emit,
    Wait,
    Acquire,
    Fire,
    Release,
}

/// The trace of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTrace {
    pub(crate) trace_id: u128,
    /// From which the ids of its spans follow.
    seed: u64,
    /// The trace and span of the run's emission.
    pub(crate) run: RunId,
    pub(crate) index: u32,
    sampled: bool,
}

impl EventTrace {
    pub(crate) fn of(run: RunId, index: u32, below: Option<u64>) -> Self {
        let (trace_id, seed) = digest(
            Sha256::new().chain_update(b"event").chain_update(run.0).chain_update(index.to_be_bytes()),
        );
        let sampled = below.is_none_or(|below| (trace_id as u64) < below);
        Self { trace_id, seed, run, index, sampled }
    }

    /// Whether its spans are exported.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// What the consumer of a delivery is given: the span of that delivery.
    pub fn traceparent(&self, attempt: u32) -> Traceparent {
        Traceparent {
            trace_id: self.trace_id,
            span_id: self.span(SpanSubject::Fire, attempt.into()),
            sampled: self.sampled,
        }
    }

    /// The id of one of its spans. `number`: the attempt, or what else tells apart spans of one subject.
    pub(crate) fn span(&self, subject: SpanSubject, number: u64) -> u64 {
        mixed(self.seed, subject, number)
    }
}

/// The trace and the span of a run's emission.
pub(crate) fn of_run(run: RunId) -> (u128, u64) {
    let (trace_id, seed) = digest(Sha256::new().chain_update(b"run").chain_update(run.0));
    (trace_id, mixed(seed, SpanSubject::Emit, 0))
}

/// Neither is zero, which would be no id.
fn digest(hash: Sha256) -> (u128, u64) {
    let hash: [u8; 32] = hash.finalize().into();
    let part = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash[from..from + 8]);
        u64::from_be_bytes(bytes)
    };
    ((u128::from(part(0)) << 64 | u128::from(part(8))).max(1), part(16))
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): different numbers give different ids.
fn mixed(seed: u64, subject: SpanSubject, number: u64) -> u64 {
    let mut z = seed.wrapping_add((number << 3 | subject as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

/// One span, as the header `traceparent` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// Not zero.
    pub trace_id: u128,
    /// Not zero.
    pub span_id: u64,
    /// Whether its spans are exported.
    pub sampled: bool,
}

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it does not have the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>")]
pub struct NotATraceparent;

impl FromStr for Traceparent {
    type Err = NotATraceparent;

    /// Later versions may say more behind a dash; what they say of this part holds.
    fn from_str(text: &str) -> Result<Self, NotATraceparent> {
        let mut parts = text.split('-');
        let mut hex = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits).ok_or(NotATraceparent)?;
            let plain = part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if plain {
                u128::from_str_radix(part, 16).map_err(|_| NotATraceparent)
            } else {
                Err(NotATraceparent)
            }
        };
        let (version, trace_id, span_id, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
        if version == 0xff || (version == 0 && parts.next().is_some()) || trace_id == 0 || span_id == 0 {
            return Err(NotATraceparent);
        }
        let span_id = u64::try_from(span_id).map_err(|_| NotATraceparent)?;
        Ok(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeSet;

    use uuid::Uuid;

    use super::*;

    fn run(number: u128) -> RunId {
        RunId::derive(Uuid::from_u128(number), 1_780_000_000_000_000)
    }

    #[test]
    fn an_event_has_one_trace_and_each_span_an_id_of_its_own() {
        let trace = EventTrace::of(run(1), 7, None);
        assert_eq!(trace, EventTrace::of(run(1), 7, None));
        assert_ne!(trace.trace_id, EventTrace::of(run(1), 8, None).trace_id);
        assert_ne!(trace.trace_id, EventTrace::of(run(2), 7, None).trace_id);
        assert_ne!(trace.trace_id, of_run(run(1)).0);
        let first = trace.traceparent(1);
        assert_eq!(first.trace_id, trace.traceparent(2).trace_id);
        let subjects = [
            SpanSubject::Event,
            SpanSubject::Wait,
            SpanSubject::Acquire,
            SpanSubject::Fire,
            SpanSubject::Release,
        ];
        let ids: BTreeSet<u64> = subjects
            .into_iter()
            .flat_map(|subject| (0..50).map(move |attempt| trace.span(subject, attempt)))
            .collect();
        assert_eq!(ids.len(), 250);
        assert!(ids.contains(&first.span_id));
    }

    #[test]
    fn as_many_are_sampled_as_wanted_and_every_process_samples_the_same() {
        for (ratio, least, most) in
            [(0.0, 0, 0), (0.1, 800, 1_200), (0.5, 4_700, 5_300), (1.0, 10_000, 10_000)]
        {
            let below = crate::below(ratio);
            let sampled = |index| EventTrace::of(run(3), index, below).is_sampled();
            let count = (0..10_000).filter(|index| sampled(*index)).count();
            assert!((least..=most).contains(&count), "{count} at {ratio}");
            assert_eq!((0..100).map(sampled).collect::<Vec<_>>(), (0..100).map(sampled).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_traceparent_is_read_as_it_was_written() {
        let trace = EventTrace::of(run(1), 0, Some(0));
        let parent = trace.traceparent(3);
        assert_eq!(parent.to_string().parse(), Ok(parent));
        assert!(parent.to_string().ends_with("-00") && parent.to_string().len() == 55, "{parent}");
        let published: Traceparent =
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
        assert_eq!(published.span_id, 0xb7ad_6b71_6920_3331);
        assert!(published.sampled);
        assert!(
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more".parse::<Traceparent>().is_ok()
        );
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(wrong.parse::<Traceparent>(), Err(NotATraceparent), "{wrong}");
        }
    }
}
