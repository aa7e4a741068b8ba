//! Decides how one calendar is made, changed and deleted, and what that makes of the schedules that go by it.
//!
//! Invariants: the dates of a calendar and those that its schedules have change in one transaction, each schedule by a generation
//! and a notice of its own; a change that one of them could not be stored with is refused, and names it.

use tollgate_core::model::{Calendar, Schedule, Timing};
use tollgate_core::plan::{self, Plan};
use tollgate_proto::convert::{self, Name, calendar, names};
use tollgate_proto::page::{self, Token};
use tollgate_proto::v1::WarningKind;
use tollgate_proto::{FieldError, field, mask, v1};
use tollgate_service::actor::Caller;
use tollgate_service::status::{status, status_of_create};
use tollgate_store::plan::PlanWrite;
use tonic::Status;

use crate::ScheduleMaster;
use crate::audit::{self, Deed};
use crate::change::{Change, again, check_etag};
use crate::deletions::Deletion;
use crate::lists::{cut, limit, to_filter};
use crate::revisions::Revised;
use crate::warnings::{namespace_new, told};

/// How many schedules an answer names.
const SHOWN: u32 = 100;
/// How many schedules a refusal names, and how many warnings there are.
const NAMED_MAX: usize = 3;
/// Ids of schedules that are read at once, and schedules.
const IDS: u32 = 1_000;
const PAGE: usize = 100;
/// The most bytes of schedules that one change writes again.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// A change of a calendar that was worked out.
#[derive(Debug)]
pub(crate) struct Made {
    /// As it shall be.
    pub(crate) calendar: Calendar,
    /// What is to be written.
    pub(crate) change: Change,
    pub(crate) warnings: Vec<v1::Warning>,
}

/// What a change of dates makes of the schedules that go by a calendar.
#[derive(Debug, Default)]
struct Users {
    changes: Vec<plan::Change>,
    /// Why some of them could not be stored.
    refused: Vec<String>,
    /// Those that never fire any more.
    ended: Vec<String>,
    bytes: usize,
}

impl Users {
    fn add(&mut self, before: Schedule, wanted: &Calendar, at_us: i64, now_us: i64, base: u16) {
        let mut after = before.clone();
        after.timing.take_dates(|id| Some(wanted).filter(|calendar| calendar.id == id));
        let dates = after.timing.exclude.len();
        if dates > Timing::DATES_MAX {
            let most = Timing::DATES_MAX;
            let why = format!(
                "schedule {}: {dates} dates and ranges of dates, at most {most} are allowed",
                after.id
            );
            self.refused.push(why);
            return;
        }
        let compile = |schedule: &Schedule| Plan::forecast(&schedule.timing, schedule.uid.as_bytes());
        let plan = match compile(&after) {
            Ok(plan) => plan,
            Err(error) => {
                let error = convert::plan_refusal("schedule", error);
                self.refused.push(format!("schedule {}: {error}", after.id));
                return;
            }
        };
        let fires = |plan: &Plan| plan.fires_after(now_us).next().is_some();
        if !fires(&plan) && compile(&before).is_ok_and(|before| fires(&before)) {
            self.ended.push(after.id.clone());
        }
        self.bytes += after.payload.bytes() + DATE_BYTES * dates;
        let at_us = at_us.max(before.updated_us + 1);
        self.changes.push(plan::Change::to(Some(before), after, plan, at_us, base));
    }

    /// Why the dates may not be changed so.
    fn refusal(&self) -> Option<String> {
        if self.bytes > BYTES_MAX {
            return Some(format!(
                "the schedules that go by it have more than {BYTES_MAX} bytes together: too much for one transaction; let some \
                 of them go by another calendar"
            ));
        }
        let named: Vec<&str> = self.refused.iter().take(NAMED_MAX).map(String::as_str).collect();
        let more = self.refused.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        (!named.is_empty()).then(|| {
            format!("schedules that go by it would not be accepted any more: {}{more}", named.join("; "))
        })
    }

    fn warnings(&self) -> Vec<v1::Warning> {
        let warn = |id: &String| {
            let message = format!("schedule {id} never fires any more: its last launch times are excluded");
            told(WarningKind::TimeInPast, "calendar.dates", message)
        };
        self.ended.iter().take(NAMED_MAX).map(warn).collect()
    }
}

/// A stored date, in the schedule and in its notice.
const DATE_BYTES: usize = 50;

impl ScheduleMaster {
    pub(crate) async fn create_calendar(
        &self,
        request: v1::CreateCalendarRequest,
        actor: Caller,
    ) -> Result<v1::Calendar, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let message = request.calendar.ok_or_else(|| FieldError::new("calendar", "", "a calendar"))?;
        let given = (("calendar_id", request.calendar_id.as_str()), ("calendar.name", message.name.as_str()));
        let name = names::to_create(&namespace, "calendars", given.0, given.1)?;
        let wanted =
            calendar::to_core(&message, &name, None).map_err(|errors| field::invalid_argument(&errors))?;
        if self.store().calendar(&name.namespace, &name.id).await.map_err(status)?.is_some() {
            let taken = names::of_calendar(&name.namespace, &name.id);
            return Err(Status::already_exists(format!("{taken} exists already")));
        }
        let is_new = self.is_new(&name.namespace).await;
        let deed = Deed { at_us: self.now_us(), actor, action: "create" };
        let made = self.put_calendar(None, wanted, &deed).await?;
        if !request.validate_only {
            self.admit_writes(&name.namespace, 1)?;
            self.commit(&[&made.change]).await.map_err(status_of_create)?;
        }
        let mut warnings = made.warnings;
        warnings.extend(is_new.then(|| namespace_new(&name.namespace)));
        Ok(v1::Calendar { warnings, ..calendar::to_message(&made.calendar) })
    }

    pub(crate) async fn get_calendar(&self, request: v1::GetCalendarRequest) -> Result<v1::Calendar, Status> {
        let stored = self.stored_calendar(&names::calendar("name", &request.name)?).await?;
        self.show_calendar(&stored).await
    }

    pub(crate) async fn list_calendars(
        &self,
        request: v1::ListCalendarsRequest,
    ) -> Result<v1::ListCalendarsResponse, Status> {
        let namespace = names::namespace("parent", &request.parent)?;
        let size = page::size(request.page_size)?;
        let filter = to_filter(&request.filter, &["name", "label.*"], &namespace)?;
        let query = ["ListCalendars", &request.parent, &request.filter];
        let after = Token::<String>::decode(&request.page_token, &query)?;
        let rows = self.store().list_calendars(&namespace, &filter, after.as_deref(), limit(size)).await;
        let page = cut(rows.map_err(status)?, size, &query, |row| row.id.clone());
        let uids: Vec<_> = page.rows.iter().map(|row| row.uid).collect();
        let used = self.store().calendars_used(&uids).await.map_err(status)?;
        let shown = |row: &Calendar| v1::Calendar {
            used_by_count: count(used.get(&row.uid).copied().unwrap_or_default()),
            ..calendar::to_message(row)
        };
        let calendars = page.rows.iter().map(shown).collect();
        Ok(v1::ListCalendarsResponse { calendars, next_page_token: page.next })
    }

    pub(crate) async fn update_calendar(
        &self,
        request: v1::UpdateCalendarRequest,
        actor: Caller,
    ) -> Result<v1::Calendar, Status> {
        let message = request.calendar.ok_or_else(|| FieldError::new("calendar", "", "a calendar"))?;
        let name = names::calendar("calendar.name", &message.name)?;
        let etag = convert::etag("calendar.etag", &message.etag)?;
        let mut try_number = 1;
        loop {
            let stored = self.stored_calendar(&name).await?;
            check_etag(&message.name, etag, stored.generation)?;
            let current = calendar::to_message(&stored);
            let masked = mask::apply_mask(&current, &message, request.update_mask.as_ref())?;
            let wanted = calendar::to_core(&masked, &name, Some(&stored))
                .map_err(|errors| field::invalid_argument(&errors))?;
            if wanted == stored {
                return self.show_calendar(&stored).await;
            }
            let at_us = self.change_us(stored.updated_us);
            let deed = Deed { at_us, actor: actor.clone(), action: "update" };
            let changed = match self.put_calendar(Some(&stored), wanted, &deed).await {
                Ok(made) if request.validate_only => Ok(made),
                Ok(made) => {
                    self.admit_writes(&name.namespace, 1 + made.change.made().len())?;
                    self.commit(&[&made.change]).await.map_err(status).map(|()| made)
                }
                Err(failed) => Err(failed),
            };
            match changed {
                // Where the calendar has changed, the etag says so in the next try; schedules may have.
                Err(failed) if again(try_number, &failed) => try_number += 1,
                Err(failed) => return Err(failed),
                Ok(made) => {
                    let shown = self.show_calendar(&made.calendar).await?;
                    return Ok(v1::Calendar { warnings: made.warnings, ..shown });
                }
            }
        }
    }

    pub(crate) async fn delete_calendar(
        &self,
        request: v1::DeleteCalendarRequest,
        actor: Caller,
    ) -> Result<(), Status> {
        let name = names::calendar("name", &request.name)?;
        let asked = (request.etag.as_str(), request.revision);
        let deletion = Deletion::new(Revised::Calendar, (&name, &request.name), asked, actor)?;
        let state = |stored: &Calendar| (stored.generation, stored.updated_us);
        self.delete(
            deletion,
            || self.stored_calendar(&name),
            state,
            |stored, deed| self.drop_calendar(&stored, &deed),
        )
        .await
    }

    /// The calendar with its new generation, and the change that makes it, and gives its dates to its schedules.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where a schedule could not be stored with the new dates.
    pub(crate) async fn put_calendar(
        &self,
        stored: Option<&Calendar>,
        wanted: Calendar,
        deed: &Deed,
    ) -> Result<Made, Status> {
        let mut calendar = wanted;
        if stored.is_none() {
            calendar.uid = self.new_id(deed.at_us);
            calendar.created_us = deed.at_us;
        }
        calendar.generation = stored.map_or(1, |stored| stored.generation + 1);
        calendar.updated_us = deed.at_us;
        let mut users = Users::default();
        if stored.is_none_or(|stored| stored.dates != calendar.dates) {
            calendar.dates_generation = calendar.generation;
            if stored.is_some() {
                users = self.users_of(&calendar, deed.at_us).await?;
            }
        }
        if let Some(refusal) = users.refusal() {
            return Err(Status::failed_precondition(format!("calendar.dates: {refusal}")));
        }
        let named = (calendar.namespace.as_str(), calendar.id.as_str());
        let audit = audit::of_calendar(self.new_id(deed.at_us), deed, stored, Some(&calendar), named);
        let write = PlanWrite::PutCalendar {
            calendar: Box::new(calendar.clone()),
            expected_generation: stored.map(|stored| stored.generation),
            users: Vec::new(),
            audit,
        };
        let warnings = users.warnings();
        let change = Change::Calendar {
            namespace: calendar.namespace.clone(),
            write: Box::new(write),
            users: users.changes,
            deed: deed.clone(),
        };
        Ok(Made { calendar, change, warnings })
    }

    /// What new dates make of the schedules that go by a calendar.
    async fn users_of(&self, wanted: &Calendar, at_us: i64) -> Result<Users, Status> {
        let mut users = Users::default();
        let mut after: Option<String> = None;
        loop {
            let ids = self.store().calendar_users(wanted.uid, after.as_deref(), IDS).await.map_err(status)?;
            for page in ids.chunks(PAGE) {
                let schedules = self.store().schedules(&wanted.namespace, page).await.map_err(status)?;
                for schedule in schedules {
                    users.add(schedule, wanted, at_us, self.now_us(), self.inner.base);
                    if users.bytes > BYTES_MAX {
                        return Ok(users);
                    }
                }
                // Working out fires does not wait for anything: let others have their turn.
                tokio::task::yield_now().await;
            }
            match ids.last() {
                Some(last) if ids.len() >= IDS as usize => after = Some(last.clone()),
                _ => return Ok(users),
            }
        }
    }

    fn drop_calendar(&self, stored: &Calendar, deed: &Deed) -> Change {
        let named = (stored.namespace.as_str(), stored.id.as_str());
        let write = PlanWrite::DeleteCalendar {
            uid: stored.uid,
            name: stored.id.clone(),
            expected_generation: stored.generation,
            audit: audit::of_calendar(self.new_id(deed.at_us), deed, Some(stored), None, named),
        };
        Change::Calendar {
            namespace: stored.namespace.clone(),
            write: Box::new(write),
            users: Vec::new(),
            deed: deed.clone(),
        }
    }

    /// As callers see it, with the schedules that go by it.
    async fn show_calendar(&self, stored: &Calendar) -> Result<v1::Calendar, Status> {
        let used = self.store().calendars_used(&[stored.uid]).await.map_err(status)?;
        let ids = self.store().calendar_users(stored.uid, None, SHOWN).await.map_err(status)?;
        Ok(v1::Calendar {
            used_by_count: count(used.get(&stored.uid).copied().unwrap_or_default()),
            used_by: ids.iter().map(|id| names::of_schedule(&stored.namespace, id)).collect(),
            ..calendar::to_message(stored)
        })
    }

    async fn stored_calendar(&self, name: &Name) -> Result<Calendar, Status> {
        let found = self.store().calendar(&name.namespace, &name.id).await.map_err(status)?;
        found.ok_or_else(|| {
            let name = names::of_calendar(&name.namespace, &name.id);
            Status::not_found(format!("{name} does not exist"))
        })
    }
}

fn count(users: u64) -> u32 {
    u32::try_from(users).unwrap_or(u32::MAX)
}
