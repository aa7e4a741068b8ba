//! The parts that pages are made of. Parts import requests and words, and no page.

pub(crate) mod alert_fields;
pub(crate) mod assets;
pub(crate) mod bucket;
pub(crate) mod busy;
pub(crate) mod changes;
pub(crate) mod chart;
pub(crate) mod confirm;
pub(crate) mod copy;
pub(crate) mod draft;
pub(crate) mod due;
pub(crate) mod failures;
pub(crate) mod fields;
pub(crate) mod filters;
pub(crate) mod flow;
pub(crate) mod forms;
pub(crate) mod heat;
pub(crate) mod meanwhile;
pub(crate) mod past;
pub(crate) mod picture;
pub(crate) mod release;
pub(crate) mod rules;
pub(crate) mod shell;
pub(crate) mod timeline;
pub(crate) mod troubles;
pub(crate) mod waiting;
pub(crate) mod warnings;
