//! Which resources a request names: what its namespace is found from.

use tollgate_proto::v1;

/// A request that names resources.
pub trait Named {
    /// Shows each name, as it was given.
    fn named(&self, each: &mut dyn FnMut(&str));
}

/// Requests with one field that is a name.
macro_rules! named_by {
    ($($field:ident: $($request:ident)+;)+) => {
        $($(impl Named for v1::$request {
            fn named(&self, each: &mut dyn FnMut(&str)) {
                each(&self.$field);
            }
        })+)+
    };
}

named_by! {
    name: GetScheduleRequest DeleteScheduleRequest PauseScheduleRequest ResumeScheduleRequest GetPolicyRequest
        DeletePolicyRequest PausePolicyRequest ResumePolicyRequest TriggerScheduleRequest BackfillScheduleRequest
        GetSubmissionRequest GetEventRequest GetRunRequest CancelRunRequest ExplainEventRequest GetPolicyQueueRequest
        AcquireEventsRequest GetAlertRequest DeleteAlertRequest SendTestAlertRequest GetCalendarRequest DeleteCalendarRequest;
    parent: ListSchedulesRequest ListPoliciesRequest ListScheduleChildrenRequest ListSkippedTriggersRequest
        ListAuditEntriesRequest ListEventsRequest ListRunsRequest GetHandlerStatusRequest
        ListTroublesRequest ListHistoryRequest ListAlertsRequest ListFailuresRequest RetryFailuresRequest
        CloseFailuresRequest PauseSchedulesRequest ResumeSchedulesRequest DeleteSchedulesRequest TriggerSchedulesRequest
        ListCalendarsRequest ListWorkersRequest;
    queue: WorkerHello;
}

impl Named for v1::Schedule {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.name);
        each(&self.policy);
        self.exclude_calendars.iter().for_each(|calendar| each(calendar));
        if let Some(on_finish) = &self.on_finish {
            each(&on_finish.schedule);
        }
    }
}

impl Named for v1::Calendar {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.name);
        self.used_by.iter().for_each(|schedule| each(schedule));
    }
}

impl Named for v1::Policy {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.name);
        self.parent.iter().for_each(|parent| each(parent));
    }
}

impl Named for v1::Alert {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.name);
        self.schedules.iter().chain(&self.policies).for_each(|name| each(name));
    }
}

impl Named for v1::WorkRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        if let Some(v1::work_request::Message::Hello(hello)) = &self.message {
            hello.named(each);
        }
    }
}

impl<T: Named> Named for Option<T> {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        if let Some(some) = self {
            some.named(each);
        }
    }
}

impl Named for v1::SubmitItemsRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        if let Some(v1::submit_items_request::Part::Header(header)) = &self.part {
            each(&header.name);
        }
    }
}

impl Named for v1::CreateScheduleRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.parent);
        self.schedule.named(each);
    }
}

impl Named for v1::UpdateScheduleRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        self.schedule.named(each);
    }
}

impl Named for v1::CreatePolicyRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.parent);
        self.policy.named(each);
    }
}

impl Named for v1::UpdatePolicyRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        self.policy.named(each);
    }
}

impl Named for v1::CreateCalendarRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.parent);
        self.calendar.named(each);
    }
}

impl Named for v1::UpdateCalendarRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        self.calendar.named(each);
    }
}

impl Named for v1::CreateAlertRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.parent);
        self.alert.named(each);
    }
}

impl Named for v1::UpdateAlertRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        self.alert.named(each);
    }
}

impl Named for v1::PreviewScheduleRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        match &self.source {
            Some(v1::preview_schedule_request::Source::Name(name)) => each(name),
            Some(v1::preview_schedule_request::Source::Schedule(schedule)) => schedule.named(each),
            None => {}
        }
    }
}

impl Named for v1::ForecastDemandRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.parent);
        each(&self.policy);
    }
}

impl Named for v1::RetryDeadEventsRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.parent);
        self.events.iter().for_each(|event| each(event));
    }
}

impl Named for v1::ApplyResourcesRequest {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        use v1::apply_resources_request::Resource;
        // It completes names that are none; absent, all names must be complete.
        if !self.namespace.is_empty() {
            each(&format!("namespaces/{}", self.namespace));
        }
        match &self.resource {
            Some(Resource::Policy(policy)) => policy.named(each),
            Some(Resource::Schedule(schedule)) => schedule.named(each),
            Some(Resource::Calendar(calendar)) => calendar.named(each),
            Some(Resource::Alert(alert)) => alert.named(each),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use prost_reflect::{
        DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value,
    };

    use super::*;
    use crate::table::{Needs, needs};

    /// Texts of requests that name no resource outside of what the request names otherwise. Filters may; what they name is
    /// looked for in the request's own namespace only.
    const NO_NAMES: [&str; 48] = [
        "alert_id",
        "bootstrap_servers",
        "calendar_id",
        "cron",
        "cursor",
        "data",
        "dates",
        "day_of_month",
        "day_of_week",
        "description",
        "endpoint_url",
        "etag",
        "exclude",
        "filter",
        "headers",
        "hour",
        "items_field",
        "key",
        "key_field",
        "key_label",
        "keys",
        "labels",
        "launch_class",
        "launch_expression",
        "message",
        "message_group_id",
        "minute",
        "month",
        "next_field",
        "next_parameter",
        "order_by",
        "page_token",
        "policy_id",
        "queue_url",
        "reason",
        "region",
        "request_id",
        "requires",
        "schedule_id",
        "schedule_labels",
        "secret",
        "source",
        "time_zone",
        "topic",
        "uid",
        "units_field",
        "url",
        "worker",
    ];
    /// Nor do these, which only answers have.
    const OF_ANSWERS: [&str; 6] = ["actor", "field", "follows", "last_error", "launch_classes", "time_zones"];

    macro_rules! shown {
        ($($request:ident)+) => {
            fn shown(message: &DynamicMessage) -> Vec<String> {
                let mut names = Vec::new();
                let mut each = |name: &str| names.push(name.to_owned());
                match message.descriptor().name() {
                    $(stringify!($request) => {
                        message.transcode_to::<v1::$request>().unwrap().named(&mut each);
                    })+
                    other => panic!("{other}: nobody has said what it names"),
                }
                names
            }
        };
    }

    shown! {
        CreateScheduleRequest GetScheduleRequest ListSchedulesRequest UpdateScheduleRequest DeleteScheduleRequest
        PauseScheduleRequest ResumeScheduleRequest CreatePolicyRequest GetPolicyRequest ListPoliciesRequest
        UpdatePolicyRequest DeletePolicyRequest PausePolicyRequest ResumePolicyRequest TriggerScheduleRequest
        BackfillScheduleRequest SubmitItemsRequest GetSubmissionRequest PreviewScheduleRequest
        ForecastDemandRequest ListScheduleChildrenRequest ListSkippedTriggersRequest ListAuditEntriesRequest
        ApplyResourcesRequest GetEventRequest ListEventsRequest
        GetRunRequest ListRunsRequest CancelRunRequest RetryDeadEventsRequest ExplainEventRequest
        GetPolicyQueueRequest GetHandlerStatusRequest ListTroublesRequest ListHistoryRequest
        CreateAlertRequest GetAlertRequest ListAlertsRequest UpdateAlertRequest DeleteAlertRequest SendTestAlertRequest
        CreateCalendarRequest GetCalendarRequest ListCalendarsRequest UpdateCalendarRequest DeleteCalendarRequest
        ListFailuresRequest RetryFailuresRequest CloseFailuresRequest
        PauseSchedulesRequest ResumeSchedulesRequest DeleteSchedulesRequest TriggerSchedulesRequest
        AcquireEventsRequest ListWorkersRequest WorkRequest
    }

    /// The paths to all texts of a message.
    fn texts(of: &MessageDescriptor, before: &[FieldDescriptor], found: &mut Vec<Vec<FieldDescriptor>>) {
        for field in of.fields() {
            let path = [before, std::slice::from_ref(&field)].concat();
            match field.kind() {
                Kind::String => found.push(path),
                _ if field.is_map() => found.push(path),
                Kind::Message(inner) if !inner.full_name().starts_with("google.") && path.len() < 6 => {
                    texts(&inner, &path, found);
                }
                _ => {}
            }
        }
    }

    /// A message with this text alone.
    fn with(of: &MessageDescriptor, path: &[FieldDescriptor], text: &str) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        let Some((field, rest)) = path.split_first() else { return message };
        let value = match field.kind() {
            Kind::Message(inner) => Value::Message(with(&inner, rest, text)),
            _ => Value::String(text.to_owned()),
        };
        let value = if field.is_list() { Value::List(vec![value]) } else { value };
        message.set_field(field, value);
        message
    }

    #[test]
    fn every_name_of_every_request_is_shown() {
        let mut count = 0;
        for service in tollgate_proto::descriptor_pool().services() {
            for method in service.methods() {
                let path = format!("/{}/{}", service.full_name(), method.name());
                // Where a token counts, `Access::event` decides; the others are about no namespace.
                let Some(Needs::Key(_)) = needs(&path) else { continue };
                let mut found = Vec::new();
                texts(&method.input(), &[], &mut found);
                for text in found {
                    let names: Vec<&str> = text.iter().map(FieldDescriptor::name).collect();
                    let last = *names.last().unwrap();
                    if NO_NAMES.contains(&last) || OF_ANSWERS.contains(&last) {
                        continue;
                    }
                    // A queue by its id, within the schedule's namespace; events of a stream, of which the token counts.
                    let of = names.iter().rev().nth(1).copied().unwrap_or_default();
                    if ["pull", "accept", "extend", "release"].contains(&of) {
                        continue;
                    }
                    let given = if last == "namespace" { "other" } else { "namespaces/other/things/x" };
                    let message = with(&method.input(), &text, given);
                    let shown = shown(&message);
                    let expected = if last == "namespace" { "namespaces/other" } else { given };
                    assert_eq!(shown.iter().filter(|name| *name == expected).count(), 1, "{path} {names:?}");
                    count += 1;
                }
            }
        }
        assert!(count >= 40, "{count}");
    }
}
