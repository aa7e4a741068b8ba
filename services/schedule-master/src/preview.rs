//! Decides what a preview of launch times shows.

use chrono::{DateTime, Offset as _};
use chrono_tz::Tz;
use tollgate_core::model::{Stagger, Timing};
use tollgate_core::plan::Plan;
use tollgate_proto::convert::{self, names};
use tollgate_proto::{FieldError, field, v1};
use tonic::Status;
use uuid::Uuid;

use crate::ScheduleMaster;
use crate::dates::{self, Calendars};
use tollgate_service::status::status;

const COUNT_DEFAULT: usize = 10;
const COUNT_MAX: i32 = 1000;

impl ScheduleMaster {
    pub(crate) async fn preview_schedule(
        &self,
        request: v1::PreviewScheduleRequest,
    ) -> Result<v1::PreviewScheduleResponse, Status> {
        let count = match request.count {
            0 => COUNT_DEFAULT,
            count @ 1..=COUNT_MAX => usize::try_from(count).unwrap_or(COUNT_DEFAULT),
            other => return Err(FieldError::new("count", other, "1 to 1000, or 0 for 10").into()),
        };
        let from_us = convert::optional_time_us("from_time", request.from_time.as_ref())?;
        let (timing, stagger, known) = self.timing(request.source).await?;
        let uid = known.unwrap_or(Uuid::nil());
        let plan = Plan::forecast(&timing, uid.as_bytes())
            .map_err(|error| convert::plan_refusal("schedule", error))?;
        let fires = plan.fires_after(from_us.unwrap_or_else(|| self.now_us()));
        let zone: Tz = timing.time_zone.parse().unwrap_or(Tz::UTC);
        let delay_us = known.map_or(0, |uid| stagger.delay_us(uid));
        Ok(v1::PreviewScheduleResponse {
            launch_times: fires.take(count).filter_map(|us| launch_time(us, delay_us, zone)).collect(),
            launch_classes: plan.classes().iter().map(ToString::to_string).collect(),
            children_count: u32::try_from(plan.children_count()).unwrap_or(u32::MAX),
        })
    }

    /// The timing to show, what sets its starts off, and the uid from which intervals without an anchor and delays follow:
    /// that of the stored schedule of the same name, where there is one.
    async fn timing(
        &self,
        source: Option<v1::preview_schedule_request::Source>,
    ) -> Result<(Timing, Stagger, Option<Uuid>), Status> {
        use v1::preview_schedule_request::Source;
        match source {
            None => Err(FieldError::new("name", "", "name or schedule").into()),
            Some(Source::Name(name)) => {
                let stored = self.stored_schedule(&names::schedule("name", &name)?).await?;
                Ok((stored.timing.clone(), stored.stagger(), Some(stored.uid)))
            }
            Some(Source::Schedule(message)) => {
                let (mut timing, stagger) = convert::schedule::starts_to_core(&message)
                    .map_err(|errors| field::invalid_argument(&errors))?;
                if let Some(namespace) = convert::schedule::namespace(&message) {
                    let mut calendars = Calendars::default();
                    let named = dates::named(&message, &namespace);
                    self.look_up_calendars(&mut calendars, &namespace, &named).await?;
                    calendars
                        .give(&mut timing, &namespace, None)
                        .map_err(|errors| field::invalid_argument(&errors))?;
                }
                let stored = match names::schedule("schedule.name", &message.name) {
                    Ok(name) => self.store().schedule(&name.namespace, &name.id).await.map_err(status)?,
                    Err(_) => None,
                };
                Ok((timing, stagger, stored.map(|stored| stored.uid)))
            }
        }
    }
}

fn launch_time(us: i64, delay_us: i64, zone: Tz) -> Option<v1::LaunchTime> {
    let local = DateTime::from_timestamp_micros(us)?.with_timezone(&zone);
    Some(v1::LaunchTime {
        time: Some(convert::timestamp(us)),
        local_time: local.format("%Y-%m-%d %H:%M:%S").to_string(),
        utc_offset: local.offset().fix().to_string(),
        start_time: (delay_us > 0).then(|| convert::timestamp(us + delay_us)),
    })
}
