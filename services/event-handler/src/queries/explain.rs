//! Why an event waits, in words.

use tollgate_core::handle::{EventState, Explanation, Holder, Reason, Refusal};
use tollgate_core::model::{EventRef, Pause, SECOND_US, Sent};
use tollgate_core::trouble::Said;
use tollgate_proto::convert::{self, names};
use tollgate_proto::v1;
use tollgate_store::attempts::AttemptRow;
use tonic::Status;

use crate::Shared;
use crate::addresses::Addressed;
use crate::routes::{Input, Question};

impl Shared {
    /// Everything that is known of why an event is where it is. `name` is the caller's own text.
    pub(crate) async fn explain(&self, name: &str, at: &Addressed) -> Result<v1::Explanation, Status> {
        if let Some(explanation) = self.explain_here(name, at).await? {
            return Ok(explanation);
        }
        let event = at.event;
        let shown = self.find_event_row(name, at).await?;
        if let Some(explanation) = self.peers.explain(event.shard, &shown.name).await {
            return Ok(explanation);
        }
        if ended(&shown) {
            let attempts = self.attempts(event).await.into_iter().map(attempt).collect();
            return Ok(v1::Explanation { attempts, ..without_memory(shown) });
        }
        let message =
            format!("the owner of queue shard {:02x} does not answer, or there is none", event.shard);
        Ok(v1::Explanation {
            event: Some(shown),
            summary: format!("It is not known now: {message}."),
            reasons: vec![reason(v1::ReasonCode::NoOwner, message)],
            holders: Vec::new(),
            place_in_line: -1,
            freed_by: "Wait until a handler owns the shard.".to_owned(),
            attempts: self.attempts(event).await.into_iter().map(attempt).collect(),
        })
    }

    /// By the owner in this process; none where it has none.
    pub(crate) async fn explain_here(
        &self,
        name: &str,
        at: &Addressed,
    ) -> Result<Option<v1::Explanation>, Status> {
        let event = at.event;
        let mut shown = self.find_event_row(name, at).await?;
        let ask = |reply| Input::Ask(Question::Explain { run: event.run, index: event.index, reply });
        let mut told = match self.peers.routes().ask(event.shard, ask).await {
            Some(Some(explained)) => {
                shown.state = state(explained.state).into();
                let now_us = self.clock.wall_us();
                v1::Explanation { event: Some(shown), ..self.why(&explained, now_us) }
            }
            Some(None) => without_memory(shown),
            None => return Ok(None),
        };
        told.attempts = self.attempts(event).await.into_iter().map(attempt).collect();
        Ok(Some(told))
    }

    /// What the owner knows of an event, in words, without the event itself.
    pub(super) fn why(&self, explained: &Explanation, now_us: i64) -> v1::Explanation {
        let mut reasons: Vec<v1::Reason> =
            explained.reasons.iter().map(|r| self.in_words(r, now_us)).collect();
        if reasons.is_empty() {
            reasons.push(in_flight(explained.state, explained));
        }
        let holders = explained.holders.iter().map(|h| self.holder(h, now_us)).collect();
        let place_in_line = explained.ahead.map_or(-1, |ahead| i64::try_from(ahead).unwrap_or(i64::MAX));
        let freed_by = freed_by(explained);
        let first = reasons.first().map(|r| r.message.clone()).unwrap_or_default();
        let summary = match (explained.state, place_in_line) {
            (EventState::Waiting | EventState::Retrying, ahead) if ahead > 0 => {
                let before =
                    if ahead == 1 { "1 event goes".to_owned() } else { format!("{ahead} events go") };
                format!("It waits: {first}. {before} before it.")
            }
            (EventState::Waiting | EventState::Retrying | EventState::Scheduled, _) => {
                format!("It waits: {first}.")
            }
            _ => format!("It is in flight: {first}."),
        };
        v1::Explanation { summary, reasons, holders, place_in_line, freed_by, ..v1::Explanation::default() }
    }

    /// A reason without the tokens that somebody may have quoted, with what is known of workers.
    fn in_words(&self, given: &Reason, now_us: i64) -> v1::Reason {
        if let Reason::NoRoom { pool, .. } = given
            && let Some(words) = self.desk.nobody_is_able(*pool)
        {
            return reason(v1::ReasonCode::NoRoom, words);
        }
        let Reason::TargetRefuses(refusal) = given else { return in_words(given, now_us) };
        let words = self.without_seal(refusal.event, refusal.words.clone());
        in_words(&Reason::TargetRefuses(Refusal { words, ..refusal.clone() }), now_us)
    }

    pub(super) fn holder(&self, holder: &Holder, now_us: i64) -> v1::Holder {
        let event = EventRef { shard: holder.named_shard, run: holder.run, index: holder.index };
        let id = self.keyring.id(event);
        let (namespace, schedule) = &holder.schedule;
        v1::Holder {
            event: names::of_event(namespace, id.as_str()),
            schedule: names::of_schedule(namespace, schedule),
            state: state(holder.state).into(),
            age: Some(convert::duration_of_ms(holder.age_us / 1000)),
            expire_time: holder.timer_us.map(|t| convert::timestamp(now_us + t)),
            units: holder.units,
        }
    }
}

fn state(state: EventState) -> v1::EventState {
    match state {
        EventState::Scheduled => v1::EventState::Scheduled,
        EventState::Waiting => v1::EventState::Waiting,
        EventState::Retrying => v1::EventState::Retrying,
        EventState::Acquired => v1::EventState::Acquired,
        EventState::Held => v1::EventState::Held,
        EventState::Suspect => v1::EventState::Suspect,
    }
}

fn ended(event: &v1::Event) -> bool {
    event.finish_time.is_some()
}

/// The owner has nothing of it in memory: it has ended, or its run lies beyond what has been loaded.
fn without_memory(event: v1::Event) -> v1::Explanation {
    let (code, message) = if ended(&event) {
        (v1::ReasonCode::Ended, has_ended(&event))
    } else {
        (v1::ReasonCode::NotDue, "its run is not loaded yet".to_owned())
    };
    let summary = format!("It does not wait: {message}.");
    let reasons = vec![reason(code, message)];
    let freed_by = if event.state() == v1::EventState::Dead {
        let (run, namespace) = (last_part(&event.run), event.run.split('/').nth(1).unwrap_or_default());
        let n = if namespace == "default" { String::new() } else { format!(" -n {namespace}") };
        let id = last_part(&event.name);
        format!(
            "When the cause is gone: `tollgate retry {run} {id}{n}` tries it again, `tollgate retry {run}{n}` all \
             dead ones of its run."
        )
    } else {
        String::new()
    };
    v1::Explanation {
        event: Some(event),
        summary,
        reasons,
        holders: Vec::new(),
        place_in_line: -1,
        freed_by,
        attempts: Vec::new(),
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

/// How an event ended, after how many attempts, and in whose words.
fn has_ended(event: &v1::Event) -> String {
    let name = event.state().as_str_name().trim_start_matches("EVENT_STATE_");
    let after = match event.attempt {
        0 => String::new(),
        1 => " after 1 attempt".to_owned(),
        attempts => format!(" after {attempts} attempts"),
    };
    let words = event.message.trim_end_matches('.');
    let said = if words.is_empty() { String::new() } else { format!(": {words}") };
    format!("it has ended as {name}{after}{said}")
}

fn attempt(made: AttemptRow) -> v1::Attempt {
    let (answer, message) = match made.sent {
        Sent::Accepted => (v1::AttemptAnswer::Accepted, String::new()),
        Sent::Refused { message, .. }
        | Sent::RefusedAlone { message, .. }
        | Sent::NotSent { message, .. } => (v1::AttemptAnswer::Refused, message),
        Sent::Unclear { message, .. } => (v1::AttemptAnswer::Unclear, message),
    };
    v1::Attempt {
        attempt: made.attempt,
        start_time: Some(convert::timestamp(made.start_us)),
        duration: Some(convert::duration_of_ms(made.took_us / 1_000)),
        answer: answer.into(),
        message,
    }
}

fn reason(code: v1::ReasonCode, message: String) -> v1::Reason {
    v1::Reason { code: code.into(), message }
}

fn seconds(us: i64) -> String {
    let all = us / SECOND_US;
    match all {
        ..=119 => format!("{:.1} s", us as f64 / SECOND_US as f64),
        120..=7_199 => format!("{} min {} s", all / 60, all % 60),
        _ => format!("{} h {} min", all / 3_600, all % 3_600 / 60),
    }
}

fn paused(what: &str, pause: &Pause) -> String {
    let why = if pause.reason.is_empty() { "no reason given" } else { &pause.reason };
    format!("{what} is paused by {} ({why})", pause.actor)
}

fn in_words(given: &Reason, now_us: i64) -> v1::Reason {
    use v1::ReasonCode as Code;
    match given {
        Reason::NotDue { launch_us } => {
            reason(Code::NotDue, format!("its launch time is {} ahead", seconds(launch_us - now_us)))
        }
        Reason::Buffered { behind } => {
            reason(Code::Overlap, format!("an earlier run of its schedule, {behind}, is unfinished"))
        }
        Reason::BehindChain { first } => reason(
            Code::Overlap,
            format!("the chain goes on that an earlier run of its schedule, {first}, has begun"),
        ),
        Reason::Resting { until_us } => reason(
            Code::Overlap,
            format!("its schedule rests after its last run, for another {}", seconds(until_us - now_us)),
        ),
        Reason::SchedulePaused(pause) => reason(Code::SchedulePaused, paused("its schedule", pause)),
        Reason::PolicyPaused(pause) => reason(Code::PolicyPaused, paused("its policy", pause)),
        Reason::AllPaused(pause) => reason(Code::DispatchPaused, paused("dispatch", pause)),
        Reason::PolicyFull { .. }
        | Reason::KeyFull { .. }
        | Reason::AboveLimit { .. }
        | Reason::TokensKept { .. } => of_tokens(given),
        Reason::KeyRateLimited { key, wait_us } => reason(
            Code::KeyRateExhausted,
            format!("the rate of {} lets the next one start in {}", of_key(key), seconds(*wait_us)),
        ),
        Reason::KeyPaused { key, reason: why } => {
            let why = if why.is_empty() { "no reason given" } else { why };
            reason(Code::KeyPaused, format!("{} are paused ({why})", of_key(key)))
        }
        Reason::KeysUnread => reason(
            Code::KeysUnread,
            "the keys of its run's items have not been read as far as it, or its policy's holders are not all known".to_owned(),
        ),
        Reason::RateLimited { wait_us } => reason(
            Code::RateExhausted,
            format!("its policy's rate lets the next event start in {}", seconds(*wait_us)),
        ),
        Reason::SendsFull { sending } => reason(
            Code::TargetSlowed,
            format!(
                "{sending} deliveries are under way without a limit of their own, and its schedule, target or \
                 namespace has its share of them"
            ),
        ),
        Reason::NoRoom { queue, requires, .. } => {
            reason(Code::NoRoom, format!("no worker of the queue {queue}{} has room", that_has(requires)))
        }
        Reason::TargetAskedToWait { wait_us } => reason(
            Code::TargetSlowed,
            format!("its target asked to be left alone for {} more", seconds(*wait_us)),
        ),
        Reason::BackOff { due_us, attempt, message } => {
            reason(Code::BackingOff, backs_off(*attempt, message, due_us - now_us))
        }
        Reason::RunRetrying { retrying } => reason(Code::BackingOff, retries(*retrying)),
        Reason::TargetRefuses(refusal) => reason(Code::TargetRefuses, refuses(refusal, now_us)),
        Reason::PolicyUnknown => {
            reason(Code::NoOwner, "its queue shard has not been told of its policy".to_owned())
        }
        Reason::Above { policy, holds } => {
            let v1::Reason { code, message } = in_words(holds, now_us);
            v1::Reason { code, message: format!("by {policy}, a policy above its own: {message}") }
        }
        Reason::Turn => reason(Code::InLine, "its turn has not come".to_owned()),
    }
}

/// Why an event does not have the tokens that it takes.
fn of_tokens(given: &Reason) -> v1::Reason {
    use v1::ReasonCode as Code;
    match given {
        Reason::PolicyFull { held, limit, .. } if held >= limit => {
            reason(Code::LimitReached, format!("all tokens of its policy are held ({held} of {limit})"))
        }
        Reason::PolicyFull { held, limit, units } => reason(
            Code::LimitReached,
            format!("it takes {units} tokens of its policy, and {held} of {limit} are held"),
        ),
        Reason::KeyFull { key, held, limit, .. } if held >= limit => reason(
            Code::KeyLimitReached,
            format!("{} hold all tokens that they may have ({held} of {limit})", of_key(key)),
        ),
        Reason::KeyFull { key, held, limit, units } => reason(
            Code::KeyLimitReached,
            format!("it takes {units} tokens, and {} hold {held} of {limit} that they may have", of_key(key)),
        ),
        Reason::AboveLimit { units, limit, key } => {
            let whose = match key {
                Some(key) => format!("{} may have", of_key(key)),
                None => "its policy has".to_owned(),
            };
            let message = format!(
                "it takes {units} tokens, and {whose} {limit}: raise that max_in_flight, or cancel its run"
            );
            reason(Code::AboveLimit, message)
        }
        Reason::TokensKept { run, units } => {
            let message = format!(
                "tokens that come back are kept for an event of the run {run} before it, which takes {units}"
            );
            reason(Code::TokensKept, message)
        }
        _ => reason(Code::InLine, "its turn has not come".to_owned()),
    }
}

fn backs_off(attempt: u32, message: &str, wait_us: i64) -> String {
    let why = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("attempt {attempt} did not end it{why}; the next is due in {}", seconds(wait_us))
}

fn retries(retrying: u32) -> String {
    let events = if retrying == 1 { "event of its run waits" } else { "events of its run wait" };
    format!("{retrying} {events} for another attempt")
}

fn of_key(key: &str) -> String {
    if key.is_empty() {
        "the events without a key".to_owned()
    } else {
        format!("the events of the key {key:?}")
    }
}

/// What a target that takes nothing says, and when it is asked next.
fn refuses(refusal: &Refusal, now_us: i64) -> String {
    let Refusal { said, words, target, next_us, .. } = refusal;
    let what = match said {
        Said::Unclear => format!("its target {target} does not answer"),
        Said::NotSent => format!("nothing can be sent to its target {target}"),
        Said::Refused | Said::GivenBack => format!("its target {target} refuses"),
    };
    let said = if words.is_empty() { String::new() } else { format!(": {words}") };
    let next = if *next_us > now_us { format!("in {}", seconds(next_us - now_us)) } else { "now".to_owned() };
    format!("{what}{said}; the next attempt is due {next}")
}

fn in_flight(state: EventState, explained: &Explanation) -> v1::Reason {
    let age = explained.holders.first().map_or(0, |h| h.age_us);
    let age = seconds(age);
    let attempt = explained.attempt;
    match state {
        EventState::Held => reason(
            v1::ReasonCode::AtConsumer,
            format!("its consumer has had it for {age} (attempt {attempt})"),
        ),
        EventState::Suspect => reason(
            v1::ReasonCode::ConsumerSilent,
            format!(
                "its consumer has been silent for longer than allowed; acquired {age} ago (attempt {attempt})"
            ),
        ),
        _ => reason(
            v1::ReasonCode::DeliveryUnclear,
            format!("it is being delivered (attempt {attempt}); whether its consumer has it is not known"),
        ),
    }
}

fn freed_by(explained: &Explanation) -> String {
    let first = explained.holders.iter().filter_map(|h| h.timer_us).min();
    let mut behind_its_own = explained.reasons.iter().skip_while(|r| matches!(r, Reason::BackOff { .. }));
    if let Some(Reason::TargetRefuses(refusal)) = behind_its_own.next() {
        return format!(
            "{}, as soon as it takes events: they are sent again by themselves. Look at it, and at url, headers and secret \
             of the schedule.",
            refusal.target
        );
    }
    let (of, reason) = match explained.reasons.first() {
        Some(Reason::Above { policy, holds }) => (format!(" of {policy}"), Some(&**holds)),
        reason => (String::new(), reason),
    };
    match (explained.state, reason) {
        (EventState::Held | EventState::Suspect | EventState::Acquired, _) => {
            let what = match explained.state {
                EventState::Held => "its token counts as suspect",
                EventState::Suspect => "its token is taken back",
                _ => "it is sent again",
            };
            let by_itself =
                first.map_or(String::new(), |t| format!(" Without it, {what} in {}.", seconds(t)));
            format!("Its consumer's ReleaseToken.{by_itself}")
        }
        (_, Some(Reason::PolicyFull { .. })) => {
            let by_itself = first.map_or(String::new(), |t| {
                format!(" Without a release, the first token is looked at in {}.", seconds(t))
            });
            format!("A release by one of the holders, or a higher max_in_flight{of}.{by_itself}")
        }
        (_, Some(Reason::KeyFull { key, .. })) => {
            format!("A release by one of {}, or a higher limit of that key.", of_key(key))
        }
        (_, Some(Reason::AboveLimit { key, .. })) => {
            let whose = key.as_ref().map_or(of, |key| format!(" of {}", of_key(key)));
            format!("A higher max_in_flight{whose}, or its cancellation.")
        }
        (_, Some(Reason::TokensKept { .. })) => {
            "Releases, until the event before it has its tokens; or the cancellation of that one's run."
                .to_owned()
        }
        (_, Some(Reason::KeyPaused { key, .. })) => {
            format!("An end of the pause of {}, in `keys` of the policy.", of_key(key))
        }
        (_, Some(Reason::KeyRateLimited { .. })) => "Time, or a higher rate of its key.".to_owned(),
        (_, Some(Reason::SchedulePaused(_) | Reason::PolicyPaused(_) | Reason::AllPaused(_))) => {
            "Resuming what is paused.".to_owned()
        }
        (_, Some(Reason::BehindChain { .. })) => {
            "The end of the last run of that chain, or its cancellation.".to_owned()
        }
        (_, Some(Reason::Buffered { .. })) => "The end of the earlier run, or its cancellation.".to_owned(),
        (_, Some(Reason::RateLimited { .. })) => format!("Time, or a higher rate{of}."),
        (_, Some(Reason::NoRoom { queue, requires, .. })) => {
            format!(
                "One more worker of the queue {queue}{}, or a release by one that is there.",
                that_has(requires)
            )
        }
        (_, Some(Reason::TargetAskedToWait { .. })) => "Time, or another target of its schedule.".to_owned(),
        _ => "Time.".to_owned(),
    }
}

/// What is required of a worker, for the end of a sentence.
fn that_has(requires: &[String]) -> String {
    if requires.is_empty() { String::new() } else { format!(" that has {}", requires.join(", ")) }
}

#[cfg(test)]
mod tests {
    use tollgate_core::model::RunId;

    use super::*;

    #[test]
    fn what_an_event_takes_is_told_where_that_is_what_keeps_it() {
        let key = || "acme".to_owned();
        let run = RunId::default();
        for (given, code, told) in [
            (
                Reason::PolicyFull { held: 10, limit: 10, units: 5 },
                v1::ReasonCode::LimitReached,
                "all tokens of its policy are held (10 of 10)".to_owned(),
            ),
            (
                Reason::PolicyFull { held: 8, limit: 10, units: 5 },
                v1::ReasonCode::LimitReached,
                "it takes 5 tokens of its policy, and 8 of 10 are held".to_owned(),
            ),
            (
                Reason::KeyFull { key: key(), held: 8, limit: 10, units: 5 },
                v1::ReasonCode::KeyLimitReached,
                "it takes 5 tokens, and the events of the key \"acme\" hold 8 of 10 that they may have"
                    .to_owned(),
            ),
            (
                Reason::AboveLimit { units: 20, limit: 10, key: None },
                v1::ReasonCode::AboveLimit,
                "it takes 20 tokens, and its policy has 10: raise that max_in_flight, or cancel its run"
                    .to_owned(),
            ),
            (
                Reason::AboveLimit { units: 20, limit: 10, key: Some(String::new()) },
                v1::ReasonCode::AboveLimit,
                "it takes 20 tokens, and the events without a key may have 10: raise that max_in_flight, or \
                 cancel its run"
                    .to_owned(),
            ),
            (
                Reason::TokensKept { run, units: 7 },
                v1::ReasonCode::TokensKept,
                format!(
                    "tokens that come back are kept for an event of the run {run} before it, which takes 7"
                ),
            ),
        ] {
            let v1::Reason { code: given_code, message } = in_words(&given, 0);
            assert_eq!((given_code, message), (code.into(), told));
        }
    }
}
