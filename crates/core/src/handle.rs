//! handle
