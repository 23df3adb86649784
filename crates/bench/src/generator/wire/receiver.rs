//! The receiver: an XDP program that knows of every flow which frames have come.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use sluice_libbpf::Link;

use super::frame;
use super::latency::Latency;
use super::{Device, Programs};
use crate::generator::layouts::{WIRE_CPUS, WireCounters, WireFlow, WireInbox, WireLatency};
use crate::generator::link::Target;
use crate::generator::mapping::Mapping;

/// Nothing more comes when nothing came for this long.
const SILENCE: Duration = Duration::from_millis(30);

/// An XDP program on a device that judges every frame of the bench, and takes it.
pub struct Receiver {
    programs: Programs,
    inbox: Mapping<WireInbox>,
    flows: Mapping<WireFlow>,
    latency: Mapping<WireLatency>,
    links: Vec<Link>,
}

/// What came, of what was sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// As the sender says.
    pub sent: u64,
    /// Frames of the bench, whatever their state.
    pub received: u64,
    /// Of the frames received, in memory, without FCS.
    pub bytes: u64,
    /// Whole frames, each counted once.
    pub distinct: u64,
    /// Whole frames that had come before.
    pub duplicates: u64,
    /// RFC 4737 section 3: behind one of its flow that was sent later.
    pub reordered: u64,
    /// How many later frames of its flow the latest of those found before it.
    pub extent: u64,
    /// So late that nobody knows whether it came before: more than 64 frames of its flow.
    pub stale: u64,
    /// IPv4 header or its checksum is wrong.
    pub bad_ip: u64,
    /// UDP checksum is wrong.
    pub bad_udp: u64,
    /// Payload changed under a checksum that is right.
    pub bad_tail: u64,
    /// Longer or shorter than its headers say.
    pub bad_length: u64,
    /// With a lower TTL than they left with: they passed a router.
    pub forwarded: u64,
    /// Frames of others.
    pub foreign: u64,
    /// First to last frame, where the receiver reads the clock.
    pub seconds: f64,
    /// One-way times, of frames with the time in them.
    #[serde(skip)]
    pub latency: Latency,
}

impl Received {
    /// Frames that came changed.
    pub fn corrupt(&self) -> u64 {
        self.bad_ip + self.bad_udp + self.bad_tail + self.bad_length
    }

    /// Neither whole nor corrupt: they did not come.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.distinct + self.corrupt() + self.stale)
    }

    /// Lost of sent, 0 to 1.
    pub fn loss_ratio(&self) -> f64 {
        self.lost() as f64 / self.sent.max(1) as f64
    }

    /// Everything that was sent came once, whole and in order.
    pub fn is_perfect(&self) -> bool {
        self.received == self.sent && self.distinct == self.sent && self.reordered == 0
    }
}

/// What a receiver does with frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Judge every frame.
    Judge,
    /// Count and drop: the least a sink can do.
    Drop,
    /// Nothing; a veth needs a program for frames to be redirected to its peer.
    Pass,
}

impl Role {
    fn program(self) -> &'static str {
        match self {
            Role::Judge => "wire_receive",
            Role::Drop => "wire_drop",
            Role::Pass => "wire_pass",
        }
    }
}

impl Receiver {
    /// For at most so many flows; 16 bytes each.
    pub fn load(most_flows: u32) -> Result<Receiver> {
        let programs = Programs::load(&[("flows", most_flows), ("latency", WIRE_CPUS)])?;
        let mut inbox: Mapping<WireInbox> = Mapping::new(programs.map(".data.inbox")?.as_fd(), 1)?;
        inbox.update(0, |inbox| {
            for (len, sum) in inbox.tail_sum.iter_mut().enumerate() {
                *sum = frame::tail_sum(len);
            }
        });
        let flows = Mapping::new(programs.map("flows")?.as_fd(), most_flows as usize)?;
        let latency = Mapping::new(programs.map("latency")?.as_fd(), WIRE_CPUS as usize)?;
        Ok(Receiver { programs, inbox, flows, latency, links: vec![] })
    }

    /// Stands on a device until the receiver is dropped.
    pub fn attach(&mut self, device: Device<'_>, role: Role, target: Target) -> Result<()> {
        self.links.push(self.programs.attach(role.program(), device, target)?);
        Ok(())
    }

    /// Leaves all devices.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Forgets everything. `timed`: read the clock for every frame.
    pub fn expect(&mut self, flows: u32, timed: bool) -> Result<()> {
        let most = self.flows.entries();
        ensure!(flows as usize <= most, "the receiver was made for {most} flows, not {flows}");
        for flow in 0..flows as usize {
            self.flows.write(flow, WireFlow { window: 0, next: 0, zero: 0 });
        }
        for cpu in 0..WIRE_CPUS as usize {
            self.latency.write(cpu, zerocopy::FromZeros::new_zeroed());
        }
        self.inbox.update(0, |inbox| {
            (inbox.flows, inbox.timed) = (flows, timed.into());
            inbox.cpu = zerocopy::FromZeros::new_zeroed();
        });
        Ok(())
    }

    /// Bench frames so far.
    pub fn received(&self) -> u64 {
        self.inbox.read(0).cpu.iter().map(|cpu| cpu.received).sum()
    }

    /// Waits for `sent` frames, or until no more come.
    pub fn settle(&self, sent: u64) {
        let (mut seen, mut since) = (self.received(), Instant::now());
        while seen < sent && since.elapsed() < SILENCE {
            thread::sleep(Duration::from_millis(2));
            let now = self.received();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }

    /// What came since the counters were emptied, beside what was sent.
    pub fn report(&self, sent: u64) -> Received {
        let inbox = self.inbox.read(0);
        let sum = |field: fn(&WireCounters) -> u64| inbox.cpu.iter().map(field).sum::<u64>();
        let clocked = inbox.cpu.iter().filter(|cpu| cpu.first_ns > 0);
        let first = clocked.clone().map(|cpu| cpu.first_ns).min().unwrap_or(0);
        let last = clocked.map(|cpu| cpu.last_ns).max().unwrap_or(0);
        Received {
            sent,
            received: sum(|cpu| cpu.received),
            bytes: sum(|cpu| cpu.bytes),
            distinct: sum(|cpu| cpu.distinct),
            duplicates: sum(|cpu| cpu.duplicates),
            reordered: sum(|cpu| cpu.reordered),
            extent: inbox.cpu.iter().map(|cpu| cpu.extent).max().unwrap_or(0),
            stale: sum(|cpu| cpu.stale),
            bad_ip: sum(|cpu| cpu.bad_ip),
            bad_udp: sum(|cpu| cpu.bad_udp),
            bad_tail: sum(|cpu| cpu.bad_tail),
            bad_length: sum(|cpu| cpu.bad_length),
            forwarded: sum(|cpu| cpu.forwarded),
            foreign: sum(|cpu| cpu.foreign),
            seconds: (last - first) as f64 / 1e9,
            latency: self.latencies(),
        }
    }

    fn latencies(&self) -> Latency {
        let mut all = Latency::new();
        for cpu in 0..WIRE_CPUS as usize {
            for (bucket, count) in self.latency.read(cpu).bucket.iter().enumerate() {
                all.add(bucket, u64::from(*count));
            }
        }
        all
    }
}
