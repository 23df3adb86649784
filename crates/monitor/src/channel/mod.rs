//! What is known of every secure channel, in bounded memory.

pub mod anomaly;
