//! What to do about each kind of anomaly.

use crate::anomaly::Kind;

/// What an operator does about an anomaly.
pub fn advice(kind: Kind) -> &'static str {
    match kind {
        Kind::Loss => {
            "Look at drop counters and queue lengths between the sender and this tap; compare two taps to find the place."
        }
        Kind::LateBeyondWindow => {
            "Widen the receivers' replay window, or find the load sharing that reorders packets."
        }
        Kind::Duplicate => {
            "Look for a loop, for a mirror port that copies both directions, or for redundant paths."
        }
        Kind::Replay => "Find out who sends the copies; a receiver with replay protection drops them.",
        Kind::CounterReuse => {
            "Change the keys at once and stop the sender: with GCM, what both packets said can be computed."
        }
        Kind::CounterRestart => {
            "Change the keys: packets after the restart reuse numbers. Let the sender ask for new keys when it starts."
        }
        Kind::SequenceJump => {
            "Ask whether the sender failed over at that time; otherwise have its counter checked."
        }
        Kind::Stray => "Look at the frame: a damaged one points to the link, a sound one to a forger.",
        Kind::TooOld => {
            "Look whether an old recording is played into the link, or a path delays packets by seconds."
        }
        Kind::NoCounter => {
            "Nothing, where the receiver does not use the numbers; else have the sender count them in network byte order."
        }
        Kind::RekeyLoss => {
            "Let receivers install the new key before senders use it, and keep the old one a little longer."
        }
        Kind::RekeyPause => "Look into the log of the key exchange: the new key came late.",
        Kind::Exhaustion => "Shorten the key's lifetime in packets, or use ESN or XPN.",
        Kind::Wrapped => {
            "Check that ESN or XPN is agreed on both sides; without them the key had to change before."
        }
        Kind::OneWay => "Check that the peer is up and sends, and that the tap sees both directions.",
        Kind::IntegrityOnly => "Turn on confidentiality (encryption) at the sender, if it is wanted.",
        Kind::MixedProtection => "Check the sender: one key should either encrypt or only authenticate.",
        Kind::ClearText => "Find the sender and add it to the policy; what it sent was readable.",
        Kind::LengthMismatch => {
            "Look at the frame: the sender's lengths are wrong, or a device on the way changed it."
        }
        Kind::OverMtu => "Lower the senders' MTU by what the protocol adds, or raise the link's.",
        Kind::Malformed => "Look at the frame: a broken sender, a damaged frame or a forger.",
        Kind::CaptureDrops => {
            "Capture with more memory, fewer bytes a frame or a filter; then judge losses again."
        }
        Kind::Evicted => "Allow more channels with --max-channels.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_sentence_of_its_own() {
        let mut all: Vec<_> = Kind::ALL.iter().map(|kind| advice(*kind)).collect();
        assert!(all.iter().all(|words| words.ends_with('.')));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Kind::ALL.len());
    }
}
