//! What happened when, step by step.

use maud::{Markup, html};

use crate::words::show::{exact, fine, seen, span_us};

/// One step of a timeline.
pub(crate) struct TimelineStep {
    pub(crate) label: &'static str,
    pub(crate) at_us: i64,
    pub(crate) note: String,
}

/// What happened when, and how long after the step before.
pub(crate) fn timeline(now_us: i64, steps: &[TimelineStep]) -> Markup {
    let before = std::iter::once(None).chain(steps.iter().map(|step| Some(step.at_us)));
    html! {
        section aria-labelledby="h-timeline" {
            h2 #h-timeline { "Timeline" }
            ol.timeline {
                @for (step, before) in steps.iter().zip(before) {
                    li {
                        span.step { (step.label) }
                        span.after.num {
                            @if let Some(before) = before { "+" (span_us(step.at_us - before)) }
                        }
                        time.num datetime=(exact(step.at_us)) { (fine(step.at_us)) }
                        span.mute { (seen(now_us, step.at_us)) @if !step.note.is_empty() { " · " (step.note) } }
                    }
                }
            }
        }
    }
}
