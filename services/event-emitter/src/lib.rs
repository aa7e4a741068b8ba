//! event-emitter
