//! Live frames through a gateway: generator, gateway and sink share one core, so a rate is the inverse of all their
//! work together. Inline veth is a closed loop: nothing is lost, and this is capacity, not a no-drop rate.

use sluice_libbpf::Link;
use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use sluice_dataplane::Sizes;
use sluice_lab::devices;

use crate::generator::endpoints::Endpoints;
use crate::generator::frames::Frames;
use crate::generator::harness::Hook;
use crate::generator::layouts::FRAME4_LEN;
use crate::generator::link::Target;
use crate::generator::packets::Direction;
use crate::generator::site::{LAN, Site, WAN};
use crate::method::findings::Findings;
use crate::method::result::Check;
use crate::method::rounds::interleave;
use crate::method::stats::{Estimate, estimate, paired_ratio};
use crate::testbed::forwarder::STATEFUL;
use crate::testbed::forwarding::forwarded;
use crate::testbed::gateway::{Sluice, Tally};
use crate::testbed::verify;

/// Times that a window is repeated with more frames.
const ATTEMPTS: usize = 6;
/// Before a run that was no measurement is done again.
const PAUSE: Duration = Duration::from_millis(250);

/// Who forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "clap would take them for help")]
pub enum Contestant {
    Sluice,
    Nftables,
    Linux,
    /// The sink stands on the gateway's own ingress device: what generator and sink cost alone.
    Nobody,
}

struct Lane {
    forwarder: Contestant,
    site: Site,
    frames: Frames,
    sluice: Option<Sluice>,
    expected_pps: f64,
    _links: Vec<Link>,
}

impl Lane {
    fn new(forwarder: Contestant, flows: usize) -> Result<Lane> {
        let site = Site::create("wire")?;
        let frames = Frames::load()?;
        let mut links = vec![
            frames.attach("frames_sink", &site.wan_host, site.wan.host_ifindex, Target::XdpNative)?,
            frames.attach("frames_sink", &site.lan_host, site.lan.host_ifindex, Target::XdpNative)?,
        ];
        let mut sluice = None;
        match forwarder {
            Contestant::Sluice => {
                let start = || Sluice::start(&site, Hook::Xdp, Sizes::default(), true);
                sluice = Some(site.gateway.enter(start)??);
            }
            Contestant::Nobody => {
                links.push(frames.attach(
                    "frames_sink",
                    &site.gateway,
                    site.lan.ifindex,
                    Target::XdpNative,
                )?);
            }
            Contestant::Linux => take_frames(&site)?,
            Contestant::Nftables => {
                take_frames(&site)?;
                site.gateway.run("nft", [STATEFUL])?;
            }
        }
        let mut lane = Lane { forwarder, site, frames, sluice, expected_pps: 0.0, _links: links };
        lane.establish(flows)?;
        Ok(lane)
    }

    /// Two packets of every flow, a reply between them, then a first guess of the rate.
    fn establish(&mut self, flows: usize) -> Result<()> {
        let count = flows as u32;
        self.frames.aim(&self.site.lan, flows, Direction::Initiator)?;
        self.frames.send(&self.site.lan_host, count)?;
        if self.forwarder != Contestant::Nobody {
            self.frames.aim(&self.site.wan, flows, Direction::Responder)?;
            self.frames.send(&self.site.wan_host, count)?;
            self.frames.aim(&self.site.lan, flows, Direction::Initiator)?;
        }
        self.closed_loop(|lane| {
            let (sent, arrived) = (lane.frames.sent(), lane.frames.total_arrived());
            // At least a fraction of a second, so that the guess holds for the whole window.
            let trial = 400_000;
            let each = lane.frames.send(&lane.site.lan_host, trial)?;
            lane.frames.account(sent, arrived, trial)?;
            lane.expected_pps = 1.15 / each.as_secs_f64().max(20e-9);
            Ok(())
        })
    }

    fn measure(&mut self) -> Result<f64> {
        self.closed_loop(Lane::measure_once)
    }

    /// Another CPU that happens to be polling the gateway's device as the generator starts goes on doing so; then the
    /// device's ring overruns, and the loop is not closed. Such a run is no measurement and is done again.
    fn closed_loop<T>(&mut self, mut work: impl FnMut(&mut Lane) -> Result<T>) -> Result<T> {
        for _ in 1..ATTEMPTS {
            let overruns = self.overruns()?;
            let done = work(self);
            if done.is_ok() || self.overruns()? == overruns {
                return done;
            }
            thread::sleep(PAUSE);
        }
        work(self)
    }

    /// After the last window: a frame of every flow arrives once, byte by byte as it must.
    fn prove(&mut self, flows: usize) -> Result<Check> {
        let kept =
            self.closed_loop(|lane| lane.frames.keep(&lane.site.lan_host, flows, FRAME4_LEN as usize))?;
        let sent = self.frames.frames(flows);
        let mut wanted: HashSet<Vec<u8>> = match self.forwarder {
            Contestant::Nobody => sent.into_iter().collect(),
            _ => sent.iter().map(|frame| forwarded(frame, &self.site.wan, Endpoints::of(frame))).collect(),
        };
        let mut findings = Findings::default();
        for frame in kept {
            let right = wanted.remove(&frame);
            findings.note(if right { Ok(()) } else { Err(format!("{frame:02x?} must not arrive")) });
        }
        let missing = wanted.into_iter().next();
        findings.note(missing.map_or(Ok(()), |frame| Err(format!("{frame:02x?} did not arrive"))));
        Ok(findings.check("output byte by byte", "frames"))
    }

    /// Frames that found the ring of the gateway's device full.
    fn overruns(&self) -> Result<u64> {
        devices::count(&self.site.gateway, LAN, "rx/dropped")
    }

    fn measure_once(&mut self) -> Result<f64> {
        let before = self.sluice.as_ref().map(|sluice| Tally::read(&sluice.dataplane)).transpose()?;
        let (sent, (forwarded, untouched)) = (self.frames.sent(), self.frames.arrived());
        let mut pps = self.frames.rate(&self.site.lan_host, self.expected_pps)?;
        // The first guess came from a busier moment.
        for _ in 0..ATTEMPTS {
            if pps.is_none() {
                self.expected_pps *= 1.5;
                pps = self.frames.rate(&self.site.lan_host, self.expected_pps)?;
            }
        }
        let pps =
            pps.context("the generator ended before the window did, however many frames it was to send")?;
        let sent = self.frames.sent() - sent;
        let arrived = self.frames.arrived();
        let (forwarded, untouched) = (arrived.0 - forwarded, arrived.1 - untouched);
        let expected = if self.forwarder == Contestant::Nobody { (0, sent) } else { (sent, 0) };
        ensure!(
            (forwarded, untouched) == expected,
            "of {sent} frames {forwarded} came with a lower TTL and {untouched} with the one they left with"
        );
        if let (Some(sluice), Some(before)) = (&self.sluice, before) {
            Tally::read(&sluice.dataplane)?.since(before).all_replayed(sent)?;
        }
        Ok(pps)
    }
}

/// NAPI on both devices without an XDP program, so that redirected frames are taken at all.
fn take_frames(site: &Site) -> Result<()> {
    for device in [LAN, WAN] {
        site.gateway.run("ethtool", ["-K", device, "gro", "on"])?;
    }
    Ok(())
}

/// What one forwarder did.
#[derive(Debug, Clone, Serialize)]
pub struct FramesRow {
    /// Who it was.
    pub forwarder: Contestant,
    /// Established flows.
    pub flows: usize,
    /// On the wire, with FCS.
    pub frame_bytes: u32,
    /// Million frames a second.
    pub mpps: Estimate,
    /// Against nftables, when it ran in the same rounds.
    pub ratio_to_nftables: Option<Estimate>,
    /// One value a round, in round order.
    pub samples: Vec<f64>,
}

/// 64-byte UDP frames of `flows` established flows through every forwarder, in interleaved rounds.
pub fn run(forwarders: &[Contestant], flows: usize, rounds: usize) -> Result<Vec<FramesRow>> {
    let lane = |forwarder: &Contestant| {
        Lane::new(*forwarder, flows)
            .with_context(|| format!("cannot set up live frames through {forwarder:?}"))
    };
    let mut lanes = forwarders.iter().map(lane).collect::<Result<Vec<_>>>()?;
    let samples = interleave(lanes.len(), rounds, |contestant, _| {
        let lane = &mut lanes[contestant];
        lane.measure().with_context(|| format!("live frames through {:?}", lane.forwarder))
    })?;
    for lane in &mut lanes {
        let check = lane.prove(flows)?;
        verify::all_passed(&[check]).with_context(|| format!("live frames through {:?}", lane.forwarder))?;
    }
    let peer = forwarders.iter().position(|forwarder| *forwarder == Contestant::Nftables);
    let row = |(i, forwarder): (usize, &Contestant)| {
        let mpps: Vec<f64> = samples[i].iter().map(|pps| pps / 1e6).collect();
        FramesRow {
            forwarder: *forwarder,
            flows,
            frame_bytes: 64,
            mpps: estimate(&mpps),
            ratio_to_nftables: peer.map(|peer| paired_ratio(&samples[i], &samples[peer])),
            samples: mpps,
        }
    };
    Ok(forwarders.iter().enumerate().map(row).collect())
}
