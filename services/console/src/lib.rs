//! The web console: server-rendered pages that read and act through the same API as any client.
//!
//! In: HTTP requests of browsers, and a channel to the API. Out: pages, a stream of events for the page that shows what
//! happens now, and calls in the name of the user of the browser.
//! Invariants: nothing is fetched from elsewhere, and no script stands in a page; a request that changes something
//! comes from a page of this console; no list is read in full, and what has been cut is said.
//! Not here: the store, which the console does not know.

mod pages;
mod parts;
mod requests;
mod words;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use tokio_util::sync::CancellationToken;
use tollgate_clock::Clock;
use tollgate_metrics::Metrics;
use tonic::transport::Channel;

pub use requests::session::{Admit, Login, Visitor};

use pages::{
    alert, alerts, audit, backfill, calendar, calendars, edit, event, failures, go, history, live, login,
    namespaces, now, one_calendar, policies, policy, policy_acts, run, run_acts, runs, schedule,
    schedule_acts, schedules, schedules_acts, search, submit, workers,
};
use parts::assets;
use requests::console::Console;
use requests::places::Places;
use requests::{guard, session};

/// The largest form that is taken, in bytes: a schedule with the largest payload, encoded, fits.
const FORM_MAX_BYTES: usize = 1024 * 1024;

/// Files of one visitor that are read at once: of everybody where nobody logs in.
const UPLOADS_OF_ONE_MAX: usize = 4;
/// Files that are read at once.
const UPLOADS_MAX: usize = 16;

/// How a console is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the pages call now.
    pub clock: Clock,
    /// Ends the streams of open pages, which would otherwise keep the server from stopping.
    pub stop: CancellationToken,
    /// Whether the port speaks TLS: browsers are told to stay with it.
    pub secure: bool,
    /// Where refusals are counted.
    pub metrics: Metrics,
    /// How visitors log in; none where they need not.
    pub login: Option<Login>,
}

/// The console's routes: `/`, and everything below `/n/` and `/console/`. What they show comes over `channel`.
pub fn router(channel: Channel, options: Options) -> Router {
    let Options { clock, stop, secure, metrics, login } = options;
    let console = Console {
        channel,
        clock,
        stop,
        metrics,
        feeds: Default::default(),
        uploads: Places::new(UPLOADS_OF_ONE_MAX, UPLOADS_MAX),
        forecasts: Default::default(),
        histories: Default::default(),
        login,
    };
    Router::new()
        .route("/", get(now::page))
        .route("/n/{ns}", get(now::page).post(now::act))
        .route("/n/{ns}/live", get(live::stream))
        .route("/n/{ns}/go", get(search::page))
        .route("/n/{ns}/history", get(history::page))
        .route("/n/{ns}/namespaces", get(namespaces::page))
        .route("/n/{ns}/you", get(go::you).post(go::name))
        .route("/n/{ns}/policies", get(policies::page))
        .route("/n/{ns}/policies/{id}", get(policy::page).post(policy_acts::act))
        .route("/n/{ns}/policies/{id}/edit", get(edit::policy_page).post(edit::policy_act))
        .route("/n/{ns}/new/policy", get(edit::new_policy).post(edit::make_policy))
        .route("/n/{ns}/new/schedule", get(edit::new_schedule).post(edit::make_schedule))
        .route("/n/{ns}/schedules", get(schedules::page).post(schedules_acts::act))
        .route("/n/{ns}/schedules/{id}", get(schedule::page).post(schedule_acts::act))
        .route("/n/{ns}/schedules/{id}/edit", get(edit::schedule_page).post(edit::schedule_act))
        .route("/n/{ns}/schedules/{id}/backfill", get(backfill::page).post(backfill::act))
        .route("/n/{ns}/schedules/{id}/submit", get(submit::page).post(submit::act))
        .route("/n/{ns}/runs", get(runs::page))
        .route("/n/{ns}/runs/{id}", get(run::page).post(run_acts::act))
        .route("/n/{ns}/events/{id}", get(event::page).post(event::act))
        .route("/n/{ns}/alerts", get(alerts::page))
        .route("/n/{ns}/alerts/{id}", get(alert::page).post(alert::act))
        .route("/n/{ns}/alerts/{id}/edit", get(edit::alert_page).post(edit::alert_act))
        .route("/n/{ns}/new/alert", get(edit::new_alert).post(edit::make_alert))
        .route("/n/{ns}/calendars", get(calendars::page))
        .route("/n/{ns}/calendars/{id}", get(one_calendar::page).post(one_calendar::act))
        .route("/n/{ns}/calendars/{id}/edit", get(edit::calendar_page).post(edit::calendar_act))
        .route("/n/{ns}/new/calendar", get(edit::new_calendar).post(edit::make_calendar))
        .route("/n/{ns}/failures", get(failures::page).post(failures::act))
        .route("/n/{ns}/workers", get(workers::page))
        .route("/n/{ns}/calendar", get(calendar::page))
        .route("/n/{ns}/audit", get(audit::page))
        .route("/console/{file}", get(assets::file))
        .route("/console/login", get(login::page).post(login::enter))
        .route("/console/logout", post(login::leave))
        .with_state(console.clone())
        .layer(axum::middleware::from_fn_with_state(console, session::guard))
        .layer(DefaultBodyLimit::max(FORM_MAX_BYTES))
        .layer(axum::middleware::from_fn_with_state(guard::Secure(secure), guard::guard))
}
