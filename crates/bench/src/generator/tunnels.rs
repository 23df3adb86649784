//! Packets into tunnels and out of them, in test runs on the XDP hook. See `bpf/bench/gtpu.bpf.c`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context as _, Result, bail, ensure};
use libbpf_rs::{MapCore as _, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use sluice_dataplane::abi::{GTPU_FOREVER, GtpuLine};

use crate::generator::harness::{Hook, context};
use crate::generator::layouts::{
    GTPU_DOWNLINK_LEN, GTPU_INNER, GTPU_OUTER, GTPU_UPLINK_LEN, GtpuEntry, GtpuFloorLine, GtpuState,
};
use crate::generator::mapping::Mapping;
use crate::generator::packets::SERVER_PORTS;
use crate::generator::site::Side;
use crate::method::stats::Rng;

#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

static OBJECT: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/gtpu.bpf.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/gtpu.bpf.o")));

const ETHERNET: usize = 14;
const GTPU_PORT: u16 = 2152;
/// The first session's TEID; the others follow.
pub const FIRST_TEID: u32 = 0x0001_0000;
/// The first session's subscriber, 10.64.0.0; the others follow.
pub const FIRST_SUBSCRIBER: u32 = 0x0a40_0000;
/// The first host that is no subscriber, 10.96.0.0; it sends what the first session would.
const FIRST_HOST: u32 = 0x0a60_0000;
/// What they talk to: 4,096 servers from 10.128.0.0 on.
const FIRST_SERVER: u32 = 0x0a80_0000;
const SERVERS: u64 = 4096;
/// Of all of them; among those that the bench's policies know.
pub const SERVER_PORT: u16 = SERVER_PORTS + 9;
/// By which the base station knows a session, above [`FIRST_TEID`].
pub const TEID_THERE: u32 = 0x4000_0000;
/// Of the QoS flow in every container.
pub const QFI: u8 = 9;
/// Address of the base station, the host on the lan side.
pub const STATION: [u8; 4] = [192, 0, 2, 100];
/// Address of the gateway there.
pub const GATEWAY: [u8; 4] = [192, 0, 2, 1];

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Out of a tunnel.
    Uplink,
    /// Into one.
    Downlink,
    /// In none: a host beside the base station talks to the data network.
    Past,
}

impl Way {
    /// As rows and programs are called.
    pub fn word(self) -> &'static str {
        match self {
            Way::Uplink => "uplink",
            Way::Downlink => "downlink",
            Way::Past => "past",
        }
    }

    fn length(self) -> usize {
        match self {
            Way::Uplink => GTPU_UPLINK_LEN as usize,
            Way::Downlink | Way::Past => GTPU_DOWNLINK_LEN as usize,
        }
    }

    /// Makes its packets.
    fn wrapper(self) -> &'static str {
        match self {
            Way::Uplink => "wrap_uplink",
            Way::Downlink | Way::Past => "wrap_downlink",
        }
    }
}

/// Where the tunnels run.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// The base station's side of the gateway, and the data network's.
    pub ran: Side,
    /// See there.
    pub internet: Side,
}

/// Programs that give a target one packet after the other.
pub struct Tunnels {
    object: Object,
    state: Mapping<GtpuState>,
    ring: Mapping<GtpuEntry>,
    lines: Mapping<GtpuLine>,
    ends: Ends,
    way: Way,
}

/// What a session's packets have: its inner addresses, and port of the subscriber.
fn inner(session: u32, way: Way) -> GtpuEntry {
    let server = FIRST_SERVER + (Rng::new(session.into()).next_u64() % SERVERS) as u32;
    let (subscriber, port) = (FIRST_SUBSCRIBER + session, 20_000u16);
    let (from, to, ports) = match way {
        Way::Uplink => (subscriber, server, (port, SERVER_PORT)),
        Way::Downlink => (server, subscriber, (SERVER_PORT, port)),
        Way::Past => (FIRST_HOST + session, server, (port, SERVER_PORT)),
    };
    let mut entry = GtpuEntry {
        be_teid: (FIRST_TEID + session).to_be(),
        be_saddr: from.to_be(),
        be_daddr: to.to_be(),
        be_sport: ports.0.to_be(),
        be_dport: ports.1.to_be(),
        be_ip_check: 0,
        zero: [0; 3],
    };
    let header = inner_packet(&entry);
    entry.be_ip_check = sum(&header[..20]).to_be();
    entry
}

/// Internet checksum of a header whose own is 0 (RFC 1071).
fn sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let total = words.sum::<u32>();
    let folded = (total & 0xffff) + (total >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn ipv4(total: usize, ttl: u8, from: [u8; 4], to: [u8; 4]) -> [u8; 20] {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    header[6] = 0x40; // don't fragment
    header[8..10].copy_from_slice(&[ttl, 17]);
    header[12..16].copy_from_slice(&from);
    header[16..].copy_from_slice(&to);
    header
}

fn udp(from: u16, to: u16, length: usize) -> [u8; 8] {
    let mut header = [0; 8];
    header[..2].copy_from_slice(&from.to_be_bytes());
    header[2..4].copy_from_slice(&to.to_be_bytes());
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header
}

const INNER_TTL: u8 = 64;
const INNER: usize = GTPU_INNER as usize;

/// An IPv4 datagram without a checksum of its payload.
fn inner_packet(entry: &GtpuEntry) -> Vec<u8> {
    let length = INNER;
    let mut packet =
        ipv4(length, INNER_TTL, entry.be_saddr.to_ne_bytes(), entry.be_daddr.to_ne_bytes()).to_vec();
    packet[10..12].copy_from_slice(&entry.be_ip_check.to_ne_bytes());
    packet.extend(udp(u16::from_be(entry.be_sport), u16::from_be(entry.be_dport), length - 20));
    packet.resize(length, 0);
    packet
}

/// PDU types of the container (TS 38.415 5.5.2).
const DOWNLINK_PDU: u8 = 0;
const UPLINK_PDU: u8 = 1;

/// Outer headers (TS 29.281 5.1, 5.2.1; TS 38.415 5.5.2) of messages from one end to the other, around so many bytes.
fn outer(from: [u8; 4], to: [u8; 4], be_teid: u32, kind: u8, inner: usize) -> Vec<u8> {
    let length = GTPU_OUTER as usize;
    let mut headers = ipv4(length + inner, 64, from, to).to_vec();
    let check = sum(&headers);
    headers[10..12].copy_from_slice(&check.to_be_bytes());
    headers.extend(udp(GTPU_PORT, GTPU_PORT, length - 20 + inner));
    headers.extend([0x34, 255]);
    headers.extend(((8 + inner) as u16).to_be_bytes());
    headers.extend(be_teid.to_ne_bytes());
    headers.extend([0, 0, 0, 0x85, 1, kind << 4, QFI, 0]);
    headers
}

/// What stands before an inner packet of so many bytes on its way from the base station: the first session's.
pub fn n3_headers(ran: &Side, inner: usize) -> Vec<u8> {
    let mut headers = [ran.mac, ran.host_mac].concat();
    headers.extend([8, 0]);
    headers.extend(outer(STATION, GATEWAY, FIRST_TEID.to_be(), UPLINK_PDU, inner));
    headers
}

impl Tunnels {
    /// For so many sessions, which the floor knows all.
    pub fn load(ends: Ends, sessions: u32) -> Result<Tunnels> {
        let mut open =
            ObjectBuilder::default().open_memory(&OBJECT.0).context("cannot open the tunnels' object")?;
        for mut map in open.maps_mut() {
            if ["tunnel_ring", "tunnel_floor", "tunnel_lines"].iter().any(|name| map.name() == *name) {
                map.set_max_entries(sessions).context("cannot size the tunnels' maps")?;
            }
        }
        let object = open.load().context("cannot load the tunnels' programs")?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            found.with_context(|| format!("the tunnels' object has no map {name}"))
        };
        let state = Mapping::new(map(".data.tunnels")?.as_fd(), 1)?;
        let ring = Mapping::new(map("tunnel_ring")?.as_fd(), sessions as usize)?;
        let mut floor: Mapping<GtpuFloorLine> =
            Mapping::new(map("tunnel_floor")?.as_fd(), sessions as usize)?;
        for session in 0..sessions {
            let mut line = GtpuFloorLine { headers: [0; 14 + GTPU_OUTER as usize], zero: [0; 6] };
            line.headers[..6].copy_from_slice(&ends.internet.host_mac);
            line.headers[6..12].copy_from_slice(&ends.internet.mac);
            line.headers[12] = 8;
            let teid = (TEID_THERE + session).to_be();
            line.headers[ETHERNET..].copy_from_slice(&outer(GATEWAY, STATION, teid, DOWNLINK_PDU, INNER));
            floor.write(session as usize, line);
        }
        drop(floor);
        let mut lines: Mapping<GtpuLine> = Mapping::new(map("tunnel_lines")?.as_fd(), sessions as usize)?;
        for session in 0..sessions {
            let line = GtpuLine { teid: FIRST_TEID + session, quota: GTPU_FOREVER, ..GtpuLine::default() };
            lines.write(session as usize, line);
        }
        Ok(Tunnels { state, ring, lines, object, ends, way: Way::Uplink })
    }

    /// One packet of each session from now on, in random order.
    pub fn set_packets(&mut self, way: Way, sessions: u32) -> Result<()> {
        self.way = way;
        let mut order: Vec<u32> = (0..sessions).collect();
        Rng::new(0x5eed).shuffle(&mut order);
        let entries: Vec<GtpuEntry> = order.iter().map(|session| inner(*session, way)).collect();
        self.ring.fill(&entries)?;
        let frame = self.frame(&entries[0]);
        let out = self.leaving();
        self.state.update(0, |state| {
            state.frame[..frame.len()].copy_from_slice(&frame);
            (state.cursor, state.ring_size) = (0, sessions);
            (state.first_teid, state.first_subscriber) = (FIRST_TEID, FIRST_SUBSCRIBER);
            state.out_ifindex = out.ifindex;
            state.link[..6].copy_from_slice(&out.host_mac);
            state.link[6..12].copy_from_slice(&out.mac);
            state.link[12] = 8;
        });
        Ok(())
    }

    /// Packets in the ring.
    pub fn distinct_packets(&self) -> u32 {
        self.state.read(0).ring_size
    }

    /// A frame as it arrives; the wrapper writes the TEID.
    fn frame(&self, entry: &GtpuEntry) -> Vec<u8> {
        let side = self.arriving();
        let mut frame = n3_headers(&side, INNER);
        if self.way != Way::Uplink {
            frame.truncate(ETHERNET);
        }
        frame.extend(inner_packet(entry));
        frame
    }

    fn arriving(&self) -> Side {
        if self.way == Way::Downlink { self.ends.internet } else { self.ends.ran }
    }

    fn leaving(&self) -> Side {
        if self.way == Way::Downlink { self.ends.ran } else { self.ends.internet }
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        found.with_context(|| format!("the tunnels' object has no program {name}"))
    }

    /// Packets that [`Tunnels::aim`] at `counted` has counted on the harness's own lines.
    pub fn counted(&self) -> u64 {
        (0..self.lines.entries()).map(|session| self.lines.read(session).packets).sum()
    }

    /// One of the harness's own programs is the target: `empty` or `clock`, or `resize`, `floor`, `counted` or
    /// `uncounted` of this way.
    pub fn aim(&self, name: &str) -> Result<()> {
        let is_of_way = !matches!(name, "empty" | "clock");
        let name = if is_of_way { format!("{name}_{}", self.way.word()) } else { name.to_owned() };
        self.aim_at(self.program(&name)?.as_fd())
    }

    /// Another program is.
    pub fn aim_at(&self, program: BorrowedFd<'_>) -> Result<()> {
        let target = self.object.maps().find(|map| map.name() == "target").context("no map target")?;
        let fd = program.as_raw_fd().to_ne_bytes();
        target.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY).context("the target does not fit the wrapper")
    }

    /// Nanoseconds a packet, 0 of a single one, and what the last one returned.
    pub fn run(&mut self, repeat: u32) -> Result<(f64, u32)> {
        self.state.update(0, |state| {
            (state.count, state.last, state.failures) = (0, u64::from(repeat.max(2)) - 1, 0);
            (state.first_ns, state.last_ns) = (0, 0);
        });
        let returned = self.test_run(repeat, None)?.0;
        let state = self.state.read(0);
        ensure!(state.failures == 0, "{} of {repeat} packets did not reach the target", state.failures);
        ensure!(state.count == u64::from(repeat), "the wrapper made {} packets, not {repeat}", state.count);
        if repeat < 2 {
            return Ok((0.0, returned));
        }
        ensure!(state.last_ns > state.first_ns, "the wrapper has not timed its packets");
        Ok(((state.last_ns - state.first_ns) as f64 / state.last as f64, returned))
    }

    fn test_run(&self, repeat: u32, out: Option<&mut [u8]>) -> Result<(u32, usize)> {
        let mut context = context(Hook::Xdp, self.way.length(), self.arriving().ifindex);
        let blank = vec![0; self.way.length()];
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(&blank),
            data_out: out,
            repeat,
            ..Default::default()
        };
        let output = self.program(self.way.wrapper())?.test_run(input).context("prog-run failed")?;
        Ok((output.return_value, output.data.map_or(0, |data| data.len())))
    }

    /// So many packets one by one, each against what must become of it; with source NAT to this address.
    pub fn prove(&mut self, packets: u32, translated: Option<[u8; 4]>) -> Result<()> {
        for _ in 0..packets {
            let entry = self.ring.read(self.state.read(0).cursor as usize);
            let mut frame = vec![0; 256];
            let (returned, length) = self.test_run(1, Some(&mut frame))?;
            frame.truncate(length);
            ensure!(returned == Hook::Xdp.redirected(), "a packet returned {returned}");
            self.judge(&entry, &frame, translated)?;
        }
        Ok(())
    }

    /// A hop less to live, the next hop's addresses, and outer headers only where they belong; their source port is free,
    /// and so is that of NAT.
    fn judge(&self, entry: &GtpuEntry, frame: &[u8], translated: Option<[u8; 4]>) -> Result<()> {
        let mut inner = inner_packet(entry);
        inner[8] -= 1;
        if let (Some(source), Some(port)) = (translated, frame.get(ETHERNET + 20..ETHERNET + 22)) {
            inner[12..16].copy_from_slice(&source);
            inner[20..22].copy_from_slice(port);
        }
        inner[10..12].copy_from_slice(&[0, 0]);
        let check = sum(&inner[..20]).to_be_bytes();
        inner[10..12].copy_from_slice(&check);
        let side = self.leaving();
        let mut wanted = [side.host_mac, side.mac].concat();
        wanted.extend([8, 0]);
        if self.way == Way::Downlink {
            let session = u32::from_be(entry.be_teid) - FIRST_TEID;
            let teid = (TEID_THERE + session).to_be();
            wanted.extend(outer(GATEWAY, STATION, teid, DOWNLINK_PDU, INNER));
            if frame.len() > 36 {
                wanted[34..36].copy_from_slice(&frame[34..36]);
            }
        }
        wanted.extend(inner);
        if frame != wanted {
            bail!("a packet became\n{frame:02x?}, not\n{wanted:02x?}");
        }
        Ok(())
    }
}
