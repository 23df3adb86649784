//! Every anomaly the monitor reports: the one list of names, severities and explanations.

use serde::{Deserialize, Serialize};

/// How soon somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; nothing is at risk.
    Info,
    /// Service suffers, or soon will.
    Warning,
    /// Protection is at risk.
    Critical,
}

macro_rules! anomalies {
    ($($kind:ident $name:literal $severity:ident $help:literal;)*) => {
        /// What an anomaly is. Names are stored in databases and part of the REST interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $help] #[serde(rename = $name)] $kind,)*
        }

        impl Kind {
            /// In the order of the list, which is that of reports.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),*];

            /// As databases and the REST interface have it.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// Fixed for each kind.
            pub fn severity(self) -> Severity {
                match self { $(Kind::$kind => Severity::$severity,)* }
            }

            /// One sentence for operators: what was seen and what it usually means.
            pub fn help(self) -> &'static str {
                match self { $(Kind::$kind => $help,)* }
            }
        }
    };
}

anomalies! {
    Loss "loss" Warning
        "Numbers were skipped and did not come: packets were lost before this tap.";
    LateBeyondWindow "late_beyond_window" Warning
        "Packets came so late that a receiver with a replay window of 64 drops them.";
    Duplicate "duplicate" Info
        "The same packet came twice within a second: a loop, a doubled mirror or redundant paths.";
    Replay "replay" Critical
        "A recorded packet came again long after its original: an attack, or a loop with a long way round.";
    CounterReuse "counter_reuse" Critical
        "Two different packets carried the same number under one key: GCM keys are compromised by that.";
    CounterRestart "counter_restart" Critical
        "The sender's counter started anew without a new key, usually after a reboot or failover.";
    SequenceJump "sequence_jump" Warning
        "The counter leapt further than the link could have carried: failover of the sender, or a counter set by hand.";
    Stray "stray" Info
        "A single number far off the sequence that nothing followed: a damaged or forged packet.";
    TooOld "too_old" Info
        "Packets below what is remembered: late or replayed, it can no longer be told.";
    NoCounter "no_counter" Info
        "The numbers do not count the packets (constant, little-endian, irregular): losses cannot be told here and are not counted.";
    RekeyLoss "rekey_loss" Warning
        "Packets were lost while the key changed.";
    RekeyPause "rekey_pause" Warning
        "A busy sender was silent for long between the old key's last packet and the new key's first.";
    Exhaustion "exhaustion" Critical
        "The numbers of this key will run out soon, or passed the limit by which a new key is due.";
    Wrapped "wrapped" Info
        "The number wrapped under one key: right with ESN or XPN, forbidden without.";
    OneWay "one_way" Warning
        "Traffic in one direction only: the peer is down, filtered or takes another path.";
    IntegrityOnly "integrity_only" Warning
        "Frames are authenticated but readable: confidentiality is off.";
    MixedProtection "mixed_protection" Warning
        "Encrypted and merely authenticated frames under one key.";
    ClearText "clear_text" Critical
        "User data in clear text on a link whose policy demands protection.";
    LengthMismatch "length_mismatch" Warning
        "Lengths in the packet contradict each other: a broken sender or a damaged frame.";
    OverMtu "over_mtu" Warning
        "Frames longer than the MTU that was given for the link.";
    Malformed "malformed" Warning
        "Headers that contradict their standard.";
    CaptureDrops "capture_drops" Warning
        "The capture itself lost frames: losses in that time may not be the link's.";
    Evicted "evicted" Info
        "More channels than memory for them: the longest silent ones were dropped.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_survive_json() {
        let mut names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        for kind in Kind::ALL {
            let json = serde_json::to_string(kind).unwrap();
            assert_eq!(json, format!("\"{}\"", kind.name()));
            assert_eq!(serde_json::from_str::<Kind>(&json).unwrap(), *kind);
            assert!(kind.help().ends_with('.'), "{} has no sentence", kind.name());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }
}
