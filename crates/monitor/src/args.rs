//! Command line of the monitor.
