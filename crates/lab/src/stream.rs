//! A stream of numbered packets at full rate, and its exact accounting (`bpf/lab/stream.bpf.c`).
//!
//! Live-frames prog-run makes the packets inside the kernel; every call costs 20 ms, so one call with a huge repeat
//! runs until a signal ends it, and is made again where a long run used its repetitions up.
// Volatile reads of counters that the kernel writes, and signals to threads, have no safe interface.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;
use sluice_libbpf::run::{self, XdpRun};
use sluice_libbpf::{Link, Target};

use crate::helpers::stream::{StreamSkel, StreamSkelBuilder};
use crate::netns::Netns;
use crate::niceness;
use crate::patience::until;

/// Frames given to the driver at one time.
const BATCH: u32 = 64;
/// Of one call of [`run_live`]; frames that were not due are some of them.
pub const REPEAT: u32 = i32::MAX as u32;
/// As in stream.bpf.c.
const FRAME_BYTES: usize = 64;
const TICK_NS: u64 = 1_000_000;
const TIMELINE: u64 = 65_536;

/// What the packets look like. Flow n has source port 10000 + n; every `denied_every`-th packet goes to port 9
/// instead of 7777, which the gateway under test must not pass.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many; packet n belongs to flow n modulo this.
    pub flows: u32,
    /// 0 = never
    pub denied_every: u32,
    /// Device of the sending host, by its index there.
    pub ifindex: u32,
    /// The sending host's.
    pub source_mac: [u8; 6],
    /// The gateway's
    pub destination_mac: [u8; 6],
    /// The sending host's.
    pub source: Ipv4Addr,
    /// The receiving host's.
    pub destination: Ipv4Addr,
}

/// A generator and a sink that know each packet by flow and sequence number (`bpf/lab/stream.bpf.c`).
pub struct Stream<'obj> {
    skel: StreamSkel<'obj>,
    flows: u32,
}

/// What was sent and what arrived, all flows together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Packets to port 7777.
    pub sent: u64,
    /// Packets to port 9.
    pub sent_denied: u64,
    /// Of those to port 7777.
    pub arrived: u64,
    /// Of those to port 9: each is one that the gateway should have dropped.
    pub arrived_denied: u64,
    /// Numbers that came twice or after a higher one of their flow.
    pub twice_or_late: u64,
    /// Packets that carry our mark but no flow of ours.
    pub foreign: u64,
    /// Flows whose packets did not all arrive.
    pub flows_with_loss: u32,
}

/// When packets arrived, seen from the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrivals {
    /// Between two arrivals that follow each other.
    pub longest_gap: Duration,
    /// Packets in every millisecond up to the last arrival.
    pub per_millisecond: Vec<u64>,
}

/// The generator at work.
pub struct Running {
    thread: Option<JoinHandle<io::Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl<'obj> Stream<'obj> {
    /// Puts the shape into the programs and loads them; nothing is sent yet.
    pub fn load(storage: &'obj mut MaybeUninit<OpenObject>, shape: Shape) -> Result<Stream<'obj>> {
        let mut open = StreamSkelBuilder::default().open(storage)?;
        let rodata = open.maps.rodata_data.as_deref_mut().context("stream.bpf.c has no rodata")?;
        rodata.flows = shape.flows;
        rodata.denied_every = shape.denied_every;
        rodata.out_ifindex = shape.ifindex;
        rodata.frame_smac = shape.source_mac;
        rodata.frame_dmac = shape.destination_mac;
        rodata.frame_saddr = u32::from_ne_bytes(shape.source.octets());
        rodata.frame_daddr = u32::from_ne_bytes(shape.destination.octets());
        Ok(Stream { skel: open.load()?, flows: shape.flows })
    }

    /// Counts and takes the stream's packets on a device; everything else goes on to the host's stack.
    pub fn sink(&self, netns: &Netns, device: &str) -> Result<Link> {
        attach_xdp(netns, device, self.skel.progs.stream_sink.as_fd())
    }

    /// Starts the generator in the sending host's namespace on one CPU. `gap` None means as fast as it goes.
    pub fn start(&mut self, netns: &Netns, cpu: usize, gap: Option<Duration>) -> Result<Running> {
        self.set_gap(gap);
        self.write_stop(0);
        let program = self.skel.progs.stream_send.as_fd().try_clone_to_owned()?;
        let running = Running::start(program, netns, cpu, FRAME_BYTES)?;
        self.wait_until_sending()?;
        Ok(running)
    }

    /// Time from one packet to the next, also while it runs; None = as fast as it goes.
    pub fn set_gap(&mut self, gap: Option<Duration>) {
        let nanoseconds = gap.map_or(0, |gap| gap.as_nanos() as u64);
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // SAFETY: an aligned field of the mapped section; the program reads it with a volatile load.
            unsafe { (&raw mut bss.gap_ns).write_volatile(nanoseconds) };
        }
    }

    /// Stops sending, lets the last packets arrive, and reads both ends.
    pub fn finish(&mut self, running: Running) -> Result<Account> {
        self.write_stop(1);
        thread::sleep(Duration::from_millis(100));
        running.end()?;
        self.account()
    }

    /// When packets arrived; for a stream that has ended.
    pub fn arrivals(&self) -> Result<Arrivals> {
        let bss = self.skel.maps.bss_data.as_deref().context("stream.bpf.c has no bss")?;
        // SAFETY: as in `sent_total`; the generator has ended.
        let read = |field: *const u64| unsafe { field.read_volatile() };
        let elapsed = read(&raw const bss.last_arrival).saturating_sub(read(&raw const bss.first_arrival));
        let ticks = (elapsed / TICK_NS).min(TIMELINE - 1) as u32;
        let per_millisecond =
            (0..=ticks).map(|tick| counter(&self.skel.maps.timeline, tick)).collect::<Result<Vec<_>>>()?;
        Ok(Arrivals { longest_gap: Duration::from_nanos(read(&raw const bss.longest_gap)), per_millisecond })
    }

    /// Frames made up to now, denied ones included.
    pub fn sent_total(&self) -> u64 {
        // SAFETY: an aligned field of the mapped section that the kernel writes.
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |bss| unsafe { (&raw const bss.sent_total).read_volatile() })
    }

    fn account(&self) -> Result<Account> {
        let bss = self.skel.maps.bss_data.as_deref().context("stream.bpf.c has no bss")?;
        // SAFETY: as in `sent_total`; the generator has ended.
        let read = |field: *const u64| unsafe { field.read_volatile() };
        let mut account = Account {
            sent: 0,
            sent_denied: read(&raw const bss.sent_denied),
            arrived: read(&raw const bss.arrived),
            arrived_denied: read(&raw const bss.arrived_denied),
            twice_or_late: read(&raw const bss.arrived_twice_or_late),
            foreign: read(&raw const bss.foreign),
            flows_with_loss: 0,
        };
        for flow in 0..self.flows {
            let sent = counter(&self.skel.maps.sent, flow)?;
            account.sent += sent;
            account.flows_with_loss += u32::from(sent != counter(&self.skel.maps.received, flow)?);
        }
        Ok(account)
    }

    fn write_stop(&mut self, value: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // SAFETY: as in `set_gap`.
            unsafe { (&raw mut bss.stop).write_volatile(value) };
        }
    }

    fn wait_until_sending(&self) -> Result<()> {
        let before = self.sent_total();
        let unsent = "the generator sends nothing (does the kernel know BPF_F_TEST_XDP_LIVE_FRAMES?)";
        until(Duration::from_secs(5), || Ok(self.sent_total() != before), || unsent.to_owned())
    }
}

impl Arrivals {
    /// Time without any packet, in whole milliseconds of which each had none.
    pub fn blocked(&self) -> Duration {
        Duration::from_millis(self.per_millisecond.iter().filter(|count| **count == 0).count() as u64)
    }
}

impl Account {
    /// Everything that was sent arrived once and in order, nothing else did.
    pub fn is_exact(&self) -> bool {
        self.sent == self.arrived
            && self.flows_with_loss == 0
            && self.arrived_denied == 0
            && self.twice_or_late == 0
            && self.foreign == 0
    }
}

impl Running {
    /// Runs a program on empty frames of a length in a namespace, one CPU busy with it, until it is ended.
    pub fn start(program: OwnedFd, netns: &Netns, cpu: usize, frame_bytes: usize) -> Result<Running> {
        Running::start_with(program, netns, cpu, frame_bytes, BATCH)
    }

    /// The same with so many frames given to the driver at one time, which are also those whose pages the kernel keeps for
    /// the next ones when another CPU frees them.
    pub fn start_with(
        program: OwnedFd,
        netns: &Netns,
        cpu: usize,
        frame_bytes: usize,
        batch: u32,
    ) -> Result<Running> {
        Running::repeating(program, netns, cpu, frame_bytes, batch, REPEAT)
    }

    /// The same with so many repetitions of each call.
    fn repeating(
        program: OwnedFd,
        netns: &Netns,
        cpu: usize,
        frame_bytes: usize,
        batch: u32,
        repeat: u32,
    ) -> Result<Running> {
        install_wake_up()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let namespace = netns.descriptor()?;
        let thread = thread::Builder::new().name("generator".to_owned()).spawn(move || {
            namespace.enter_for_good().map_err(io::Error::other)?;
            let mut cpus = CpuSet::new();
            cpus.set(cpu)?;
            sched_setaffinity(Pid::from_raw(0), &cpus)?;
            // a generator that is put aside in favour of others does not keep its rate
            niceness::set(Pid::from_raw(0), niceness::HIGHEST)?;
            let frame = vec![0u8; frame_bytes];
            let run = XdpRun { repeat, live: Some(batch), ..XdpRun::new(&frame, 0) };
            run_live(program.as_fd(), &run, &stopped)
        })?;
        Ok(Running { thread: Some(thread), stop })
    }

    /// Interrupts the run and waits for its thread; fails if the run had failed.
    pub fn end(mut self) -> Result<()> {
        self.wake_and_join()
            .ok_or_else(|| anyhow!("the generator panicked"))?
            .context("live-frames prog-run failed")
    }

    /// The signal may come before the call sleeps in the kernel, so it is repeated.
    fn wake_and_join(&mut self) -> Option<io::Result<()>> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Relaxed);
        while !thread.is_finished() {
            // One that has ended meanwhile is what we want.
            // SAFETY: the thread is not joined yet, so its handle is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) };
            thread::sleep(Duration::from_millis(2));
        }
        thread.join().ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.wake_and_join();
    }
}

/// Attaches a program to a device in its driver.
fn attach_xdp(netns: &Netns, device: &str, program: BorrowedFd) -> Result<Link> {
    let ifindex = netns.ifindex(device)?;
    netns
        .enter(|| Link::attach(program, ifindex, Target::XdpNative))?
        .with_context(|| format!("cannot attach XDP to {device} in {}", netns.name()))
}

/// Runs until it is stopped, which a signal tells the call in the kernel. Frames that are made anew because they were too
/// early are repetitions as well, so a slow rate uses them up within minutes: the call is made again then.
pub fn run_live(program: BorrowedFd<'_>, run: &XdpRun<'_>, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        match run::xdp(program, run) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn counter(map: &impl MapCore, index: u32) -> Result<u64> {
    let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY)?.context("index out of range")?;
    Ok(u64::from_ne_bytes(value.as_slice().try_into()?))
}

/// SIGUSR1 must interrupt the call without ending the process.
fn install_wake_up() -> Result<()> {
    extern "C" fn nothing(_signal: i32) {}
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler does nothing.
        result = unsafe { sigaction(Signal::SIGUSR1, &action) }.map(drop);
    });
    Ok(result?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{VethEnd, veth};

    /// Too early frames are repetitions: a call that has used them up is made again.
    #[test]
    fn a_run_outlasts_the_repetitions_of_a_call() {
        let (sender, receiver) = (Netns::create("send").unwrap(), Netns::create("sink").unwrap());
        let end = |netns, name| VethEnd { netns, name, mac: None, addresses: &[] };
        veth(end(&sender, "out0"), end(&receiver, "in0")).unwrap();
        let shape = Shape {
            flows: 1,
            denied_every: 0,
            ifindex: sender.ifindex("out0").unwrap(),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
        };
        let mut storage = MaybeUninit::uninit();
        let stream = Stream::load(&mut storage, shape).unwrap();
        let _sink = stream.sink(&receiver, "in0").unwrap();
        let program = stream.skel.progs.stream_send.as_fd().try_clone_to_owned().unwrap();
        let running = Running::repeating(program, &sender, 0, FRAME_BYTES, BATCH, 100).unwrap();
        until(Duration::from_secs(5), || Ok(stream.sent_total() > 250), || "one call".to_owned()).unwrap();
        running.end().unwrap();
    }
}
