//! The Schedule Master behind a real gRPC server, over SQLite. One binary for all subjects: it is linked once.

mod alerts;
mod apply;
mod calendars;
mod done;
mod horizon;
mod layout;
mod many;
mod policies;
mod quotas;
mod refusals;
mod revisions;
mod runs;
mod schedules;
mod secrets;
mod starts;
mod submissions;
mod trees;
mod units;
mod views;
mod warnings;
mod world;
