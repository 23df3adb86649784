//! Live frames from a host into the gateway, and the sink that counts what comes out of it.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libbpf_rs::{MapCore, Object, ObjectBuilder};
use sluice_dataplane::prog_run::{XdpRun, is_interrupted, xdp};
use sluice_lab::interrupt;
use sluice_lab::netns::Netns;
use sluice_lab::stream::Running;
use sluice_libbpf::Link;

use crate::generator::layouts::{
    BareState, FRAME4_LEN, FanoutFloor, FramesState, GTPU_OUTER, KeptFrame, RingEntry4, SINK_CPUS, SinkState,
};
use crate::generator::link::{Target, attach};
use crate::generator::mapping::Mapping;
use crate::generator::packets::{Direction, Family, Protocol, Template, Tuple, sequence};
use crate::generator::site::Side;
use crate::generator::tunnels::{FIRST_SUBSCRIBER, FIRST_TEID, n3_headers};
use crate::method::affinity::{RaisedPriority, bench_cpu, pin};

#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

static OBJECT: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/frames.bpf.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/frames.bpf.o")));

/// Makes plain frames.
const SEND: &str = "frames_send";
/// Makes frames of tunnels.
const SEND_N3: &str = "frames_send_n3";
const MOST_FLOWS: u32 = 1 << 17;
/// So many tuples have a client of their own each.
const MOST_SUBSCRIBERS: usize = 1 << 16;
/// Frames of one kernel batch.
const BATCH: u32 = 64;
/// Before the window: caches, the page pool and the NAPI loop settle.
const SETTLE: Duration = Duration::from_millis(250);
const WINDOW: Duration = Duration::from_millis(700);
/// The call goes on after the window at least this long.
const TAIL: Duration = Duration::from_millis(250);

/// What came of offering more than can be taken: counts of the whole call, rates of the window.
#[derive(Debug, Clone, Copy)]
pub struct Overload {
    pub sent: u64,
    pub arrived: u64,
    pub offered_pps: f64,
    pub arrived_pps: f64,
    pub probed: f64,
    pub seconds: f64,
}

/// Generator, sink and bare redirect, one instance a site.
pub struct Frames {
    object: Object,
    state: Mapping<FramesState>,
    sink: Mapping<SinkState>,
    pub bare: Mapping<BareState>,
    pub floor: Mapping<FanoutFloor>,
    flows: Mapping<RingEntry4>,
    kept: Mapping<KeptFrame>,
    most_flows: u32,
    /// Makes what it was aimed with last.
    program: &'static str,
}

impl Frames {
    pub fn load() -> Result<Frames> {
        Frames::of_flows(MOST_FLOWS)
    }

    /// The same with room for so many flows.
    pub fn of_flows(most_flows: u32) -> Result<Frames> {
        let mut open =
            ObjectBuilder::default().open_memory(&OBJECT.0).context("cannot open the generator's object")?;
        for mut map in open.maps_mut() {
            if map.name() == "flows" {
                map.set_max_entries(most_flows)?;
            } else if map.name() == "kept_frames" {
                map.set_max_entries(MOST_FLOWS)?;
            }
        }
        let object = open.load().context("cannot load the generator (root and Linux 6.8 are needed)")?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            found.with_context(|| format!("the generator's object has no map {name}"))
        };
        Ok(Frames {
            state: Mapping::new(map(".data.frames")?.as_fd(), 1)?,
            sink: Mapping::new(map(".data.sink")?.as_fd(), 1)?,
            bare: Mapping::new(map(".data.bare")?.as_fd(), 1)?,
            floor: Mapping::new(map(".data.floor")?.as_fd(), 1)?,
            flows: Mapping::new(map("flows")?.as_fd(), most_flows as usize)?,
            kept: Mapping::new(map("kept_frames")?.as_fd(), MOST_FLOWS as usize)?,
            object,
            most_flows,
            program: SEND,
        })
    }

    /// Puts one of the object's programs on a device of a namespace.
    pub fn attach(&self, program: &str, netns: &Netns, ifindex: u32, target: Target) -> Result<Link> {
        let found = self.object.progs().find(|candidate| candidate.name() == program);
        let found = found.with_context(|| format!("the generator's object has no program {program}"))?;
        let fd = found.as_fd().try_clone_to_owned()?;
        netns.enter(|| attach(fd.as_fd(), ifindex, target))?
    }

    fn sender(&self) -> Result<OwnedFd> {
        let found = self.object.progs().find(|candidate| candidate.name() == self.program);
        let found =
            found.with_context(|| format!("the generator's object has no program {}", self.program))?;
        Ok(found.as_fd().try_clone_to_owned()?)
    }

    /// What the generator makes from now on: 64-byte UDP frames of `flows` flows, out of a host towards the gateway.
    pub fn aim(&mut self, from: &Side, flows: usize, direction: Direction) -> Result<()> {
        ensure!(flows <= self.most_flows as usize, "at most {} flows", self.most_flows);
        let template = Template::new(Family::V4, Protocol::Udp, from.mac, from.host_mac, 0);
        for (i, (session, reply)) in sequence(0, flows, direction, 7).into_iter().enumerate() {
            self.flows.write(i, template.entry4(Tuple::of_session(session), reply));
        }
        self.program = SEND;
        let out_ifindex = from.host_ifindex;
        self.state.update(0, |state| {
            (state.flows, state.cursor, state.out_ifindex) = (flows as u32, 0, out_ifindex);
            state.frame = template.bytes;
        });
        Ok(())
    }

    /// The same with frames of one's own making.
    pub fn aim_entries(
        &mut self,
        from: &Side,
        count: usize,
        entry: impl Fn(&Template, usize) -> RingEntry4,
    ) -> Result<()> {
        self.aim(from, count, Direction::Initiator)?;
        let template = Template::new(Family::V4, Protocol::Udp, from.mac, from.host_mac, 0);
        (0..count).for_each(|i| self.flows.write(i, entry(&template, i)));
        Ok(())
    }

    /// The same with frames of any length up to a full one, UDP checksum left out (RFC 768).
    pub fn aim_sized(&mut self, from: &Side, flows: usize, frame_bytes: usize) -> Result<()> {
        self.aim(from, flows, Direction::Initiator)?;
        ensure!((60..=1514).contains(&frame_bytes), "frames have 60 to 1514 bytes, not {frame_bytes}");
        let mut template = Template::new(Family::V4, Protocol::Udp, from.mac, from.host_mac, 0);
        template.bytes[16..18].copy_from_slice(&(frame_bytes as u16 - 14).to_be_bytes());
        template.bytes[38..40].copy_from_slice(&(frame_bytes as u16 - 34).to_be_bytes());
        for (i, (session, _)) in sequence(0, flows, Direction::Initiator, 7).into_iter().enumerate() {
            let entry = template.entry4(Tuple::of_session(session), false);
            self.flows.write(i, RingEntry4 { be_l4_check: 0, ..entry });
        }
        self.state.update(0, |state| state.frame = template.bytes);
        Ok(())
    }

    /// The same with N3 frames of this length: one subscriber a flow, in a tunnel of its own.
    pub fn aim_tunnels(&mut self, from: &Side, subscribers: usize, frame_bytes: usize) -> Result<()> {
        ensure!(subscribers <= MOST_SUBSCRIBERS, "at most {MOST_SUBSCRIBERS} subscribers");
        let packet_bytes = frame_bytes.saturating_sub(GTPU_OUTER as usize);
        self.aim_sized(from, subscribers, packet_bytes)?;
        let headers = n3_headers(from, packet_bytes - 14);
        self.state.update(0, |state| {
            state.outer[..headers.len()].copy_from_slice(&headers);
            state.teid_less_address = FIRST_TEID.wrapping_sub(FIRST_SUBSCRIBER);
        });
        self.program = SEND_N3;
        Ok(())
    }

    /// The same with frames of one's own making, of any length up to a full one, UDP checksum left out (RFC 768).
    pub fn aim_entries_sized(
        &mut self,
        from: &Side,
        count: usize,
        frame_bytes: usize,
        entry: impl Fn(&Template, usize) -> RingEntry4,
    ) -> Result<()> {
        self.aim_sized(from, count, frame_bytes)?;
        let mut template = Template::new(Family::V4, Protocol::Udp, from.mac, from.host_mac, 0);
        template.bytes = self.state.read(0).frame;
        for number in 0..count {
            let own = entry(&template, number);
            self.flows.write(number, RingEntry4 { be_l4_check: 0, ..own });
        }
        Ok(())
    }

    /// Until the generator has begun.
    fn wait_for_first(&self, before: u64, pause: fn()) {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.sent() == before && Instant::now() < deadline {
            pause();
        }
    }

    /// Ends the generator; the next one goes as fast as it can.
    fn stop(&mut self, running: Running) -> Result<()> {
        // The program counts meanwhile.
        self.state.write_word(0, offset_of!(FramesState, stop), 1);
        running.end().context("live frames")?;
        self.state.update(0, |state| (state.stop, state.gap_ns, state.burst, state.left) = (0, 0, 0, 0));
        Ok(())
    }

    /// Sends at a rate (None: as fast as it goes) for a time: frames sent, and the seconds it really took.
    pub fn run_for(
        &mut self,
        host: &Netns,
        frame_bytes: usize,
        pps: Option<f64>,
        length: Duration,
    ) -> Result<(u64, f64)> {
        let gap_ns = pps.map_or(0, |pps| (1e9 / pps).round() as u64);
        self.state.update(0, |state| (state.stop, state.gap_ns) = (0, gap_ns));
        let _directing = RaisedPriority::new()?;
        let before = self.sent();
        let running = Running::start(self.sender()?, host, bench_cpu(), frame_bytes)?;
        self.wait_for_first(before, std::hint::spin_loop);
        let (began, first) = (Instant::now(), self.sent());
        sleep(length)?;
        let (sent, seconds) = (self.sent() - first, began.elapsed().as_secs_f64());
        self.stop(running)?;
        ensure!(sent > 0, "the generator sent nothing");
        // What was sent until it stopped counts for losses, the window for the rate.
        Ok((self.sent() - before, seconds * (self.sent() - before) as f64 / sent as f64))
    }

    /// Sends at a rate while something else is done: what came of it, the frames sent and the seconds it took. Frames go in
    /// bursts, as a network card tells of them: a wake-up of another CPU for each frame would be the limit.
    pub fn run_while<T>(
        &mut self,
        host: &Netns,
        frame_bytes: usize,
        pps: f64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, u64, f64)> {
        const MOST_AT_ONCE: u32 = 256;
        let gap_ns = (1e9 / pps * f64::from(BATCH)).round() as u64;
        self.state.update(0, |state| (state.stop, state.gap_ns, state.burst) = (0, gap_ns, BATCH - 1));
        let before = self.sent();
        let running = Running::start_with(self.sender()?, host, bench_cpu(), frame_bytes, MOST_AT_ONCE)?;
        self.wait_for_first(before, || thread::sleep(Duration::from_millis(1)));
        let (began, first) = (Instant::now(), self.sent());
        let outcome = work();
        let (sent, seconds) = (self.sent() - first, began.elapsed().as_secs_f64());
        self.stop(running)?;
        ensure!(sent > 0, "the generator sent nothing");
        Ok((outcome?, sent, seconds))
    }

    /// At a rate (None: as fast as it goes, which is more than a relay can take). `probe` is read at both ends of the window.
    pub fn overload(
        &mut self,
        host: &Netns,
        frame_bytes: usize,
        pps: Option<f64>,
        length: Duration,
        probe: &dyn Fn() -> f64,
    ) -> Result<Overload> {
        let gap_ns = pps.map_or(0, |pps| (1e9 / pps).round() as u64);
        self.state.update(0, |state| (state.stop, state.gap_ns) = (0, gap_ns));
        let _directing = RaisedPriority::new()?;
        let (sent, arrived) = (self.sent(), self.total_arrived());
        let running = Running::start(self.sender()?, host, bench_cpu(), frame_bytes)?;
        thread::sleep(SETTLE);
        let read = || (Instant::now(), self.sent(), self.total_arrived(), probe());
        let before = read();
        thread::sleep(length);
        let after = read();
        self.stop(running)?;
        self.wait_for_quiet();
        let seconds = (after.0 - before.0).as_secs_f64();
        Ok(Overload {
            sent: self.sent() - sent,
            arrived: self.total_arrived() - arrived,
            offered_pps: (after.1 - before.1) as f64 / seconds,
            arrived_pps: (after.2 - before.2) as f64 / seconds,
            probed: after.3 - before.3,
            seconds,
        })
    }

    /// Until nothing arrives for a moment.
    pub fn wait_for_quiet(&self) {
        let mut before = self.total_arrived();
        for _ in 0..100 {
            thread::sleep(Duration::from_millis(30));
            let now = self.total_arrived();
            if now == before {
                return;
            }
            before = now;
        }
    }

    /// Flows whose frames it makes.
    pub fn flows(&self) -> u32 {
        self.state.read(0).flows
    }

    pub fn sent(&self) -> u64 {
        self.state.read(0).sent
    }

    /// Bench frames that arrived: (changed by a gateway, unchanged).
    pub fn arrived(&self) -> (u64, u64) {
        let sink = self.sink.read(0);
        let cpus = sink.cpu[..SINK_CPUS as usize].iter();
        cpus.fold((0, 0), |(forwarded, untouched), cpu| {
            (forwarded + cpu.forwarded, untouched + cpu.untouched)
        })
    }

    /// Sends `count` frames and waits for them.
    pub fn send(&self, host: &Netns, count: u32) -> Result<Duration> {
        self.send_sized(host, count, FRAME4_LEN as usize)
    }

    /// The same with frames of the length that the generator was aimed with.
    pub fn send_sized(&self, host: &Netns, count: u32, frame_bytes: usize) -> Result<Duration> {
        let sender = self.sender()?;
        let before = self.sent();
        host.enter(|| {
            pin(bench_cpu())?;
            loop {
                let left = count - (self.sent() - before) as u32;
                if left == 0 {
                    return Ok(Duration::ZERO);
                }
                match send(sender.as_fd(), left, frame_bytes) {
                    // some signal was for another thread's matters: what is left follows
                    Err(error) if is_interrupted(&error) => {}
                    done => return done.context("the kernel refused to send live frames"),
                }
            }
        })?
    }

    /// Frames a second that reached the sink while everything ran at full rate. `expected_pps` decides how many frames
    /// are ordered; None when they were too few to outlast the window.
    pub fn rate(&self, host: &Netns, expected_pps: f64) -> Result<Option<f64>> {
        let count = (expected_pps * (SETTLE + WINDOW + TAIL).as_secs_f64()).min(f64::from(u32::MAX)) as u32;
        let (sent, arrived) = (self.sent(), self.total_arrived());
        let mut measured = (0, Duration::ZERO);
        let mut running = false;
        thread::scope(|scope| -> Result<()> {
            let call = scope.spawn(|| self.send(host, count));
            // The call's own preparations take up to 25 ms.
            while self.sent() == sent && !call.is_finished() {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(SETTLE);
            let (began, before) = (Instant::now(), self.total_arrived());
            thread::sleep(WINDOW);
            measured = (self.total_arrived() - before, began.elapsed());
            running = self.sent() - sent < u64::from(count);
            match call.join() {
                Ok(result) => result?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            Ok(())
        })?;
        self.account(sent, arrived, count)?;
        Ok(running.then(|| measured.0 as f64 / measured.1.as_secs_f64()))
    }

    pub fn total_arrived(&self) -> u64 {
        let (forwarded, untouched) = self.arrived();
        forwarded + untouched
    }

    /// One frame of every flow, and what of them reached the sink, in the order of arrival.
    pub fn keep(&mut self, host: &Netns, flows: usize, frame_bytes: usize) -> Result<Vec<Vec<u8>>> {
        self.sink.update(0, |sink| (sink.keep, sink.kept) = (1, 0));
        let (sent, arrived) = (self.sent(), self.total_arrived());
        let outcome = self.send_sized(host, flows as u32, frame_bytes);
        let outcome = outcome.and_then(|_| self.account(sent, arrived, flows as u32));
        self.sink.update(0, |sink| sink.keep = 0);
        outcome?;
        let kept = self.sink.read(0).kept.min(MOST_FLOWS) as usize;
        let frame = |at: usize| {
            let KeptFrame { length, bytes } = self.kept.read(at);
            // what is longer than its place is told by its length
            let mut frame = bytes.to_vec();
            frame.resize(length as usize, 0);
            frame
        };
        Ok((0..kept).map(frame).collect())
    }

    /// Frames as the generator makes them, one a flow, as far as they are not the same in all; without tunnels.
    pub fn frames(&self, flows: usize) -> Vec<Vec<u8>> {
        let mut template = Template::new(Family::V4, Protocol::Udp, [0; 6], [0; 6], 0);
        template.bytes = self.state.read(0).frame;
        (0..flows).map(|flow| template.frame4(&self.flows.read(flow), 0)).collect()
    }

    /// sent = received: in a closed loop nothing may be missing.
    pub fn account(&self, sent: u64, arrived: u64, count: u32) -> Result<()> {
        let deadline = Instant::now() + Duration::from_millis(500);
        while self.total_arrived() - arrived < u64::from(count) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let (sent, arrived) = (self.sent() - sent, self.total_arrived() - arrived);
        ensure!(
            sent == u64::from(count) && arrived == sent,
            "{count} frames were ordered, {sent} sent and {arrived} received: lost frames make no rate"
        );
        Ok(())
    }
}

/// As long as nobody interrupts a run of minutes.
fn sleep(length: Duration) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    let until = Instant::now() + length;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        interrupt::check()?;
        thread::sleep(left.min(LOOK));
    }
    Ok(())
}

fn send(
    program: BorrowedFd<'_>,
    count: u32,
    frame_bytes: usize,
) -> Result<Duration, sluice_dataplane::Error> {
    // The page must hold a frame; the program writes all of it.
    let frame = vec![0; frame_bytes];
    let run = XdpRun { repeat: count, live: Some(BATCH), ..XdpRun::new(&frame, 0) };
    Ok(xdp(program, &run)?.duration)
}
