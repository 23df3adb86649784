//! What is known of every secure channel, in bounded memory.
//!
//! # Definitions
//!
//! Numbers are extended to 64 bits by taking the value nearest to the highest seen (for ESN and XPN that agrees with
//! RFC 4303 appendix A and 802.1AE 10.6 as long as fewer than half of all numbers are lost in a row).
//!
//! - **Lost**: a number below the highest that has not come. It is provisional: a late packet gives it back, however
//!   late, while its gap is remembered (RFC 7680: a packet that arrives is not lost).
//! - **Late**: a packet below the highest whose number has not come before (RFC 4737 3: reordered). Its *depth* is
//!   `highest - number`; a receiver with replay window W drops it when `depth >= W` (RFC 4303 3.4.3, 802.1AE 10.6.2).
//! - **Seen again**: a number that has come before. Another content (ICV and length) means **counter reuse**. The same
//!   content, or content no longer remembered, is a **duplicate** while the number is less than [`WINDOW`] below the
//!   highest and the original at most [`DUPLICATE_HORIZON_NS`] old, else a **replay** (RFC 5560 for duplicates).
//! - **Restart**: numbers that have been used come again *in sequence* while the highest stands still: the counter
//!   started anew. Where the same MACsec sender had moved on to another AN in between, it is a new key instead if it starts
//!   within 64 numbers from 1 with other contents, or if the key that took its place is silent: MACsec has only four ANs.
//!   Other numbers of a key that was replaced are seen again.
//! - **Leap**: [`LEAP`] numbers or more are skipped at once. It counts when a second packet confirms it; a single one
//!   is **stray**. A confirmed leap is loss if the channel's rate could have sent so many in the time, else a jump.
//! - **Too old**: below the first number seen, or below the oldest gap that is still remembered.
//! - **No counter**: numbers that do not count packets (constant, little-endian, times, a sample); nothing is lost there.

/// Numbers below the highest whose arrival is remembered one by one.
pub const WINDOW: u64 = 512;
/// A copy within this time of its original is a duplicate.
pub const DUPLICATE_HORIZON_NS: u64 = 1_000_000_000;
/// A gap is reported when it has been open for so long.
pub const SETTLE_NS: u64 = 3_000_000_000;
/// Skipping so many numbers needs a second packet to be believed.
pub const LEAP: u64 = 512;

pub(crate) mod alarms;
mod gaps;
mod index;
mod late;
mod memory;
mod plausible;
mod rekey;
mod reports;
mod sequence;
mod shared;
mod state;
mod suspicion;
mod table;

pub use memory::Words;
pub use rekey::LONG_PAUSE_NS;
pub use reports::{Directions, Sums, keep_worst};
pub use table::{Arrival, Channels, Event, Watch, What, hash_of};
