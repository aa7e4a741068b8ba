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
        GetEventRequest GetRunRequest CancelRunRequest ExplainEventRequest GetPolicyQueueRequest;
    parent: ListSchedulesRequest ListPoliciesRequest ListScheduleChildrenRequest ListSkippedTriggersRequest
        ListAuditEntriesRequest ListEventsRequest ListRunsRequest GetHandlerStatusRequest;
}

impl Named for v1::Schedule {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.name);
        each(&self.policy);
    }
}

impl Named for v1::Policy {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        each(&self.name);
    }
}

impl<T: Named> Named for Option<T> {
    fn named(&self, each: &mut dyn FnMut(&str)) {
        if let Some(some) = self {
            some.named(each);
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
            None => {}
        }
    }
}
