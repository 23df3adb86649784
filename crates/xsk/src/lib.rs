//! AF_XDP (Documentation/networking/af_xdp.rst): memory shared with the kernel, four rings, and the frames in them.
//!
//! A frame is in exactly one place: in the user's hands as a [`Frame`], which cannot be copied, or in a ring. Who has no
//! `Frame` cannot reach its bytes, and putting one into a ring gives it away. The user's free list is a `Vec<Frame>`.
//!
//! ```text
//! free ── FillRing::put ──► fill ──(kernel)──► rx ── RxRing::receive ──► user
//!   ▲                                                                     │ TxRing::put
//!   └── CompletionRing::take ── completion ◄──(kernel)── tx ◄─────────────┘
//! ```
#![warn(missing_docs)]

mod device;
mod frame;
pub mod program;
mod ring;
mod rings;
mod socket;
mod sys;

pub use device::{Queues, queues};
pub use frame::{Frame, Umem};
pub use rings::{CompletionRing, FillRing, RxRing, TxRing};
pub use socket::{Copy, Opened, Options, QueueId, Sizes, Socket, Statistics, open, wait_to_receive};
