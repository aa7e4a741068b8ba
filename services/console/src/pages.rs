//! The pages, one a file: what each reads, shows and does. Pages import parts, requests and words; nothing imports pages
//! but the routes.

pub(crate) mod audit;
pub(crate) mod calendar;
pub(crate) mod edit;
pub(crate) mod event;
pub(crate) mod go;
pub(crate) mod live;
pub(crate) mod login;
pub(crate) mod now;
pub(crate) mod policies;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod schedules;
