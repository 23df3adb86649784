//! Captures with known faults, and the truth about them.
