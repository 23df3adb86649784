//! The suite `sluice bench monitor`.
