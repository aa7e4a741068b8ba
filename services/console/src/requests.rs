//! The code between a browser, the pages and the API: visitors, calls, what is remembered between requests.
//! Requests import words, and neither pages nor parts.

pub(crate) mod api;
pub(crate) mod console;
pub(crate) mod feeds;
pub(crate) mod forecasts;
pub(crate) mod guard;
pub(crate) mod histories;
pub(crate) mod links;
pub(crate) mod places;
pub(crate) mod problem;
pub(crate) mod session;
pub(crate) mod visit;
