//! schedule-master
