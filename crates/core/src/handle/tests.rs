//! The machine, seen from outside.
