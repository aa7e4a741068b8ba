//! The pages, one a file: what each reads, shows and does. Pages import parts, requests and words; nothing imports pages
//! but the routes.

pub(crate) mod alert;
pub(crate) mod alerts;
pub(crate) mod audit;
pub(crate) mod backfill;
pub(crate) mod calendar;
pub(crate) mod calendars;
pub(crate) mod edit;
pub(crate) mod edit_asks;
pub(crate) mod edit_put;
pub(crate) mod event;
pub(crate) mod failures;
pub(crate) mod go;
pub(crate) mod history;
pub(crate) mod live;
pub(crate) mod login;
pub(crate) mod namespaces;
pub(crate) mod now;
pub(crate) mod one_calendar;
pub(crate) mod policies;
pub(crate) mod policy;
pub(crate) mod policy_acts;
pub(crate) mod run;
pub(crate) mod run_acts;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod schedule_acts;
pub(crate) mod schedules;
pub(crate) mod schedules_acts;
pub(crate) mod search;
pub(crate) mod submit;
pub(crate) mod workers;
