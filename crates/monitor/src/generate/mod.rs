//! Captures made to order, with the truth about every fault in them: `sluice pcap generate`.

mod args;
mod flow;
mod memory;
mod packet;
pub(crate) mod random;
mod schedule;
pub mod truth;
pub(crate) mod writer;

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use args::{GenerateArgs, Generated, generate};
pub use memory::Synthetic;
pub use schedule::Generator;
pub use truth::Truth;

/// Protocols of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Mix {
    /// MACsec with explicit SCI.
    Macsec,
    /// ESP over IPv4 and IPv6, ESP in UDP.
    Ipsec,
    /// MACsec with and without SCI, ESP, AH, ESP in UDP, GTP-U, VLAN and QinQ, IKE, keepalives, some clear text.
    Mixed,
    /// GTP-U with sequence numbers.
    Gtpu,
}

/// Frame lengths, without FCS. Where headers leave no room the shortest valid frame is made; ESP rounds to words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All of one length, in bytes.
    Fixed(usize),
    /// 64, 594 and 1518 bytes in the proportion 7:4:1.
    Imix,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "imix" => Ok(Size::Imix),
            _ => match text.parse() {
                Ok(size @ 64..=packet::MAX_SIZE) => Ok(Size::Fixed(size)),
                _ => Err(format!("expected imix or a length from 64 to {}", packet::MAX_SIZE)),
            },
        }
    }
}

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Frames in the capture.
    pub packets: u64,
    /// Senders; every two of them talk to each other.
    pub flows: u32,
    /// Which protocols, in which proportion.
    pub protocol: Mix,
    /// Of each frame.
    pub size: Size,
    /// Shares of all packets, 0 to 1.
    pub loss: f64,
    /// Share of packets that come after later ones, 0 to 1.
    pub reorder: f64,
    /// Share of packets that come twice within a fifth of a second, 0 to 1.
    pub duplicate: f64,
    /// Share of packets that come again as replays, 0 to 1.
    pub replay: f64,
    /// Packets of a flow under one key; 0: keys never change.
    pub rekey: u32,
    /// One or two VLAN identifiers, the outer one first.
    pub vlans: Vec<u16>,
    /// The same seed makes the same bytes.
    pub seed: u64,
    /// Packets per second of capture time. Left open, the capture spans ten seconds, or more above 1,000,000.
    pub rate: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            packets: 1_000_000,
            flows: 100,
            protocol: Mix::Mixed,
            size: Size::Imix,
            loss: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            replay: 0.0,
            rekey: 0,
            vlans: Vec::new(),
            seed: 1,
            rate: None,
        }
    }
}

const MAX_FLOWS: u32 = 8_000_000;
const MIN_REKEY: u32 = 64;

/// Which option is out of its range; messages name it as the command does.
#[derive(Debug, Error, PartialEq)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum OptionsError {
    #[error("--flows {0}: expected 1 to 8000000")]
    Flows(u32),
    #[error("--packets 0: a capture needs at least one packet")]
    NoPackets,
    #[error("--{0} {1}: expected a share from 0 to 0.2")]
    Share(&'static str, f64),
    #[error("--rekey {0}: a key needs at least 64 packets; 0 means that keys never change")]
    Rekey(u32),
    #[error("--rekey: GTP-U has no keys; use --rekey 0 or another --protocol")]
    NoKeys,
    #[error("--vlan: expected one or two identifiers from 1 to 4094")]
    Vlans,
    #[error("--rate {0}: expected 1 to 1000000000 packets per second")]
    Rate(u64),
    #[error(
        "--replay: at {rate} packets/s a replay needs a capture of at least {packets} packets, to come later than a \
         duplicate; lower --rate or --flows, or raise --packets"
    )]
    TooShortForReplay { rate: u64, packets: u64 },
}

impl Options {
    /// Packets per second of capture time.
    pub fn rate(&self) -> u64 {
        self.rate.unwrap_or((self.packets / 10).clamp(1, 1_000_000))
    }

    fn check(&self) -> Result<(), OptionsError> {
        if !(1..=MAX_FLOWS).contains(&self.flows) {
            return Err(OptionsError::Flows(self.flows));
        }
        if self.packets == 0 {
            return Err(OptionsError::NoPackets);
        }
        let shares = [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("replay", self.replay),
        ];
        if let Some((name, share)) = shares.into_iter().find(|(_, share)| !(0.0..=0.2).contains(share)) {
            return Err(OptionsError::Share(name, share));
        }
        if self.rekey > 0 && self.protocol == Mix::Gtpu {
            return Err(OptionsError::NoKeys);
        }
        if (1..MIN_REKEY).contains(&self.rekey) {
            return Err(OptionsError::Rekey(self.rekey));
        }
        if self.vlans.len() > 2 || self.vlans.iter().any(|vlan| !(1..=4094).contains(vlan)) {
            return Err(OptionsError::Vlans);
        }
        match self.rate {
            Some(rate) if !(1..=1_000_000_000).contains(&rate) => Err(OptionsError::Rate(rate)),
            _ => Ok(()),
        }
    }
}
