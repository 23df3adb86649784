//! What happened to packets: received = sent + dropped by reason, exactly, while none is being handled.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! drops {
    ($($id:ident $name:literal $help:literal,)*) => {
        /// Why a packet went nowhere.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Drop { $(#[doc = $help] $id,)* }

        impl Drop {
            /// In the order reports list them.
            pub const ALL: [Drop; [$($name),*].len()] = [$(Drop::$id),*];

            /// The name in counters.
            pub fn name(self) -> &'static str {
                match self { $(Drop::$id => $name,)* }
            }

            /// One line for an operator.
            pub fn help(self) -> &'static str {
                match self { $(Drop::$id => $help,)* }
            }
        }
    };
}

drops! {
    NoReceiver "no_receiver" "no receiver of the listener is up",
    TooLarge "too_large" "datagram larger than max-packet-size",
    Empty "empty" "an empty datagram, for which the framing has no message",
    SendFailed "send_failed" "the kernel refused to send it",
    SendBufferFull "send_buffer_full" "the socket towards the receiver stayed full",
    QueueFull "queue_full" "the receiver's queue of messages is full",
    Shutdown "shutdown" "it waited for a receiver when the fan-out ended",
    Malformed "malformed" "an IP header with a wrong length or checksum",
    Length "fanout_length" "UDP length below 8 or beyond the packet",
    TtlExceeded "ttl_exceeded" "TTL or hop limit used up",
    TooBig "too_big" "larger than the MTU towards the receiver",
    NoRoute "no_route" "no route towards the receiver, or no ring on its interface",
    NoNextHop "no_next_hop" "the next hop towards the receiver is not resolved",
    RingFull "tx_ring_full" "the tx ring towards the receiver stayed full",
    Refused "device_refused" "the device towards the receiver dropped it",
    RxRing "rx_ring" "no room in the rx ring, or no frame to receive into",
    FrameTooLarge "frame_too_large" "larger than a frame of the rings, or in several buffers",
    Unserved "queue_unserved" "it came by a queue that has no socket",
}

/// How many packets were dropped, by reason.
#[derive(Debug, Default)]
pub struct Drops([AtomicU64; Drop::ALL.len()]);

impl Drops {
    /// Safe from any thread; `packets` are added to what is counted.
    pub fn add(&self, reason: Drop, packets: u64) {
        self.0[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    /// How many were dropped for one reason.
    pub fn get(&self, reason: Drop) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// How many were dropped, whatever for.
    pub fn total(&self) -> u64 {
        Drop::ALL.iter().map(|reason| self.get(*reason)).sum()
    }
}

/// Of one socket or ring.
#[derive(Debug, Default)]
pub struct Queue {
    /// Received from the kernel.
    pub packets: AtomicU64,
    /// Bytes of UDP payload received.
    pub bytes: AtomicU64,
    /// What the kernel lost before it could be received (SO_RXQ_OVFL).
    pub overflow: AtomicU64,
    /// Received and not sent on, for what is no one receiver's fault.
    pub drops: Drops,
}

/// Of one receiver.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Sent to it.
    pub packets: AtomicU64,
    /// Bytes of UDP payload sent to it.
    pub bytes: AtomicU64,
    /// Meant for it and not sent.
    pub drops: Drops,
    /// Messages that wait for a connection.
    pub waiting: AtomicU64,
}

/// Relaxed: counters order nothing else.
pub fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// Relaxed, as [`add`].
pub fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
