//! A simulated link: frames that carry their observation, with losses, reordering, copies and rekeys planted.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::Path;

use sluice_monitor::analysis::{Control, Options, analyze_with};
use sluice_monitor::capture::{CaptureError, Source};
use sluice_monitor::frame::{Batch, Frame, LinkType, Record};
use sluice_monitor::observation::{ChannelKey, Flags, Location, Observation, Protocol, Unknown, Vlans};
use sluice_monitor::results::{Database, Detail, RunInfo};
use sluice_monitor::summary::{Sink, Summary};

pub const SECOND: u64 = 1_000_000_000;
/// 2024-03-01 12:00:00 UTC, a whole second.
pub const START: u64 = 1_709_294_400 * SECOND;
const BATCH: u64 = 4096;

/// A link that sends a packet every `spacing_ns`, from its senders by turns or at random.
pub struct Link {
    pub senders: u64,
    pub packets: u64,
    pub spacing_ns: u64,
    /// Plants trouble; without it every number is sent once and in order.
    pub troubled: bool,
    /// Every sender loses one packet in ten.
    pub suffering: bool,
    sent: u64,
    random: u64,
    numbers: Vec<u32>,
    keys: Vec<u32>,
    last: Vec<Option<Sent>>,
}

#[derive(Clone, Copy)]
struct Sent {
    sender: u32,
    key: u32,
    number: u32,
}

impl Link {
    pub fn new(senders: u64, packets: u64, spacing_ns: u64) -> Self {
        Link {
            senders,
            packets,
            spacing_ns,
            troubled: false,
            suffering: false,
            sent: 0,
            random: 88_172_645_463_325_252,
            numbers: vec![0; senders as usize],
            keys: vec![0; senders as usize],
            last: vec![None; 4],
        }
    }

    pub fn troubled(mut self) -> Self {
        self.troubled = true;
        self
    }

    pub fn suffering(mut self) -> Self {
        self.suffering = true;
        self
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn next(&mut self) -> Option<Sent> {
        let random = self.random();
        if !self.troubled {
            let sender = (self.sent % self.senders) as u32;
            let number = &mut self.numbers[sender as usize];
            *number += if self.suffering && *number % 10 == 8 { 2 } else { 1 };
            return Some(Sent { sender, key: 0, number: self.numbers[sender as usize] });
        }
        // The first senders carry most of the traffic.
        let share = (random % 1000) as f64 / 1000.0;
        let sender = (share * share * self.senders as f64) as usize;
        let at_s = self.sent * self.spacing_ns / SECOND;
        let burst = (20..23).contains(&at_s) || at_s == 41;
        match random >> 32 & 0xffff {
            0..40 => return None,
            40..70 => return self.last[(random >> 10 & 3) as usize],
            70..130 if sender.is_multiple_of(3) => self.numbers[sender] += 1,
            130..4000 if burst && sender < 4 => self.numbers[sender] += 2,
            4000..4040 if sender.is_multiple_of(5) => {
                self.keys[sender] += 1;
                self.numbers[sender] = u32::from(sender.is_multiple_of(2)) * 2;
            }
            _ => {}
        }
        self.numbers[sender] += 1;
        let sent = Sent { sender: sender as u32, key: self.keys[sender], number: self.numbers[sender] };
        let slot = (random >> 20 & 3) as usize;
        // Some packets wait and come later in another one's place.
        let waits = (random >> 48 & 0x3f) == 0;
        if waits {
            self.last[slot].replace(sent).filter(|other| other.number != sent.number)
        } else {
            Some(sent)
        }
    }
}

/// Reads what [`Link`] wrote.
pub fn observe(frame: &Frame<'_>) -> Result<Observation, Unknown> {
    let word = |at: usize| u32::from_le_bytes(frame.data[at..at + 4].try_into().unwrap());
    let (sender, key, number) = (word(0), word(4), word(8));
    if number == 0 {
        return Err(Unknown::Ethertype(0x88cc));
    }
    let location = Location::new(0, Vlans { outer: 0, inner: if sender % 7 == 1 { 42 } else { 0 } });
    let [a, b, c, d] = sender.to_be_bytes();
    let key = match sender % 3 {
        0 => ChannelKey::macsec(0x0200_0000_0000_0001 | u64::from(sender) << 16, (key % 4) as u8, location),
        1 => ChannelKey::ipv4(
            Protocol::Esp,
            [10, b, c, d],
            [192, 0, 2, 1],
            0x1000 + sender * 1000 + key,
            location,
        ),
        _ => {
            let source = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d];
            let destination = [0x20, 0x01, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
            ChannelKey::ipv6(Protocol::Esp, source, destination, 0x2000 + sender * 1000 + key, location)
        }
    };
    let fingerprint = number.wrapping_mul(0x9e37_79b1) | 1;
    Ok(Observation {
        key,
        sequence: number.into(),
        fingerprint,
        payload_len: 80,
        bits: 32,
        flags: Flags::ENCRYPTED,
    })
}

impl Source for Link {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.sent + 1);
        batch.buffer().clear();
        for _ in 0..BATCH.min(self.packets - self.sent) {
            let sent = self.next();
            let Sent { sender, key, number } = sent.unwrap_or(Sent { sender: 0, key: 0, number: 0 });
            let mut data = [0; 64];
            data[..4].copy_from_slice(&sender.to_le_bytes());
            data[4..8].copy_from_slice(&key.to_le_bytes());
            data[8..12].copy_from_slice(&number.to_le_bytes());
            let time_ns = START + self.sent * self.spacing_ns;
            let wire_len = data.len() as u32;
            batch.push_copy(
                Record { time_ns, wire_len, interface: 0, link: LinkType::Ethernet, ..Record::default() },
                &data,
            );
            self.sent += 1;
        }
        Ok(self.sent < self.packets)
    }

    fn name(&self) -> &str {
        "simulated.pcap"
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.sent, Some(self.packets))
    }
}

pub fn run(link: &mut Link, sink: &mut dyn Sink) -> Summary {
    analyze_with(observe, link, &Options::default(), sink, &Control::default()).unwrap()
}

/// Analyses a link into a run of a database.
pub fn store(link: &mut Link, path: &Path, detail: Detail) -> Summary {
    let info = RunInfo { source: "simulated.pcap".to_owned(), interval_ns: SECOND, detail };
    run(link, &mut Database::create(path, &info).unwrap())
}
