//! event-handler
