//! The generator: a call of prog-run with live frames and very many repetitions, ended by a signal or made again. A call
//! costs 20 ms and more, so rates are kept inside the program: frames that are not due are dropped and made anew.
#![allow(unsafe_code)] // a signal handler that does nothing

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Once};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use sluice_dataplane::prog_run::XdpRun;
use sluice_lab::netns::Netns;
use sluice_lab::stream::{REPEAT, run_live};

use super::frame::{self, Addresses, Size};
use super::{Device, Programs};
use crate::generator::layouts::{WIRE_GAP_SHIFT, WIRE_LONGEST, WIRE_ROOM, WireOrder, WireRecord};
use crate::generator::mapping::Mapping;
use crate::method::affinity::{bench_cpu, pin};

/// Frames of one kernel batch when nothing waits for the next: what a batch costs is spread over them. Half of what a veth's
/// ring holds.
const BATCH: u32 = 128;
/// A paced frame leaves at the end of its batch: 8 keep that below a microsecond.
const PACED_BATCH: u32 = 8;

/// What to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// From where to where.
    pub addresses: Addresses,
    /// Frames of all flows alternate.
    pub flows: u32,
    /// Of the frames.
    pub size: Size,
    /// Frames a second; None = as fast as it goes.
    pub rate: Option<f64>,
    /// Frames altogether; None = until it is stopped.
    pub limit: Option<u64>,
    /// The time into every frame.
    pub stamped: bool,
    /// One frame, over and over, that nobody writes: what the kernel alone takes. It proves nothing about a device.
    pub repeated: bool,
    /// The one that the generator runs on.
    pub cpu: usize,
}

impl Order {
    /// 64-byte frames as fast as they go.
    pub fn new(addresses: Addresses, flows: u32) -> Order {
        Order {
            addresses,
            flows,
            size: Size::Bytes(64),
            rate: None,
            limit: None,
            stamped: false,
            repeated: false,
            cpu: bench_cpu(),
        }
    }

    /// With frames of this size.
    pub fn size(self, size: Size) -> Order {
        Order { size, ..self }
    }

    /// With this rate instead of as fast as it goes.
    pub fn rate(self, frames_per_second: f64) -> Order {
        Order { rate: Some(frames_per_second), ..self }
    }

    /// With so many frames altogether.
    pub fn limit(self, frames: u64) -> Order {
        Order { limit: Some(frames), ..self }
    }

    /// With one frame over and over.
    pub fn repeated(self) -> Order {
        Order { repeated: true, ..self }
    }

    /// With the time in every frame.
    pub fn stamped(self) -> Order {
        Order { stamped: true, ..self }
    }

    fn layout(&self) -> Result<WireOrder> {
        ensure!(self.flows > 0 && self.flows < 1 << 31, "1 to 2^31 flows, not {}", self.flows);
        let lengths = self.size.lengths();
        ensure!(lengths.iter().all(|len| (60..=1514).contains(len)), "frames of 64 to 1518 bytes");
        let gap = match self.rate {
            Some(rate) if rate > 0.0 => (1e9 / rate * f64::from(1u32 << WIRE_GAP_SHIFT)) as u64,
            Some(rate) => bail!("a rate of {rate} frames a second"),
            None => 0,
        };
        let mut order = zeroed();
        (order.limit, order.gap, order.flows) = (self.limit.unwrap_or(u64::MAX), gap, self.flows);
        order.stride = frame::stride(self.flows);
        let net = |net: [u8; 2]| u32::from_be_bytes([net[0], net[1], 0, 0]);
        order.client_net = net(self.addresses.client_net);
        order.server_net = net(self.addresses.server_net);
        order.reply = self.addresses.reply.into();
        order.stamped = self.stamped.into();
        order.shape_count = lengths.len() as u32;
        order.ethernet[..6].copy_from_slice(&self.addresses.dmac);
        order.ethernet[6..12].copy_from_slice(&self.addresses.smac);
        for (shape, len) in order.shapes.iter_mut().zip(&lengths) {
            *shape = frame::shape(*len);
        }
        Ok(order)
    }

    fn program(&self) -> &'static str {
        if self.repeated {
            return "wire_floor";
        }
        match (self.rate, self.size, self.stamped) {
            (None, Size::Bytes(64), false) => "wire_send",
            (None, Size::Bytes(64), true) => "wire_send_stamped",
            _ => "wire_send_timed",
        }
    }
}

fn zeroed() -> WireOrder {
    zerocopy::FromZeros::new_zeroed()
}

/// How a capture is played.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tempo {
    /// Each frame behind the one before.
    AsFastAsItGoes,
    /// At the times of the capture.
    Recorded,
}

/// XDP programs that make frames in test runs and redirect them to a device.
pub struct Generator {
    programs: Programs,
    order: Mapping<WireOrder>,
}

/// What went out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sent {
    /// Frames that the programs made.
    pub frames: u64,
    /// Of these frames in memory, without FCS.
    pub bytes: u64,
    /// From the first frame to the last, by the program's own clock where it reads one, else by ours.
    pub seconds: f64,
    /// Time by which the schedule had to be moved on because the generator did not get the CPU.
    pub late_seconds: f64,
    /// Frames that were made too early and made anew: how much the generator had in hand.
    pub withheld: u64,
}

impl Sent {
    /// Frames a second; NaN where no time passed.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { (self.frames.max(1) - 1) as f64 / self.seconds } else { f64::NAN }
    }
}

impl Generator {
    /// Loads the programs; nothing is sent yet.
    pub fn load() -> Result<Generator> {
        Generator::with(&[])
    }

    fn with(room: &[(&str, u32)]) -> Result<Generator> {
        let programs = Programs::load(room)?;
        let order = Mapping::new(programs.map(".data.order")?.as_fd(), 1)?;
        let mut tail: Mapping<[u8; WIRE_ROOM as usize]> =
            Mapping::new(programs.map(".data.tail")?.as_fd(), 1)?;
        tail.write(0, frame::tail());
        Ok(Generator { programs, order })
    }

    /// Begins to send out of a device.
    pub fn start(&mut self, device: Device<'_>, order: &Order) -> Result<Running<'_>> {
        self.order.write(0, order.layout()?);
        let batch = if order.rate.is_some() { PACED_BATCH } else { BATCH };
        let longest = order.size.lengths().into_iter().max().unwrap_or(60);
        let first = frame::build(&order.addresses, longest, 0, 0, 0);
        self.begin(device, order.program(), first, batch, order.cpu)
    }

    /// Sends all of an order that has a limit.
    pub fn send(&mut self, device: Device<'_>, order: &Order) -> Result<Sent> {
        let patience = match (order.limit, order.rate) {
            (Some(limit), rate) => 10.0 + 1.5 * limit as f64 / rate.unwrap_or(100_000.0),
            (None, _) => bail!("this would never end"),
        };
        self.start(device, order)?.finish(Duration::from_secs_f64(patience))
    }

    /// A generator that holds a capture, every record once.
    pub fn of_capture(records: &[(Duration, Vec<u8>)]) -> Result<Generator> {
        ensure!(!records.is_empty(), "the capture holds no packets");
        let generator = Generator::with(&[("capture", records.len() as u32)])?;
        let mut capture: Mapping<WireRecord> =
            Mapping::new(generator.programs.map("capture")?.as_fd(), records.len())?;
        let first = records[0].0;
        for (i, (time, frame)) in records.iter().enumerate() {
            ensure!(
                (14..=WIRE_LONGEST as usize).contains(&frame.len()),
                "record {} of the capture has {} bytes; frames of 14 to 1514 bytes can be sent",
                i + 1,
                frame.len()
            );
            let mut record: WireRecord = zerocopy::FromZeros::new_zeroed();
            (record.due_ns, record.len) = (time.saturating_sub(first).as_nanos() as u64, frame.len() as u32);
            record.bytes[..frame.len()].copy_from_slice(frame);
            capture.write(i, record);
        }
        Ok(generator)
    }

    /// Plays `records` of the capture, each once.
    pub fn replay(&mut self, device: Device<'_>, records: usize, tempo: Tempo) -> Result<Running<'_>> {
        let mut order = zeroed();
        (order.limit, order.from_pass) = (records as u64, (tempo == Tempo::Recorded).into());
        self.order.write(0, order);
        let batch = if tempo == Tempo::Recorded { PACED_BATCH } else { BATCH };
        self.begin(device, "wire_replay", vec![0; WIRE_LONGEST as usize], batch, bench_cpu())
    }

    fn begin(
        &mut self,
        device: Device<'_>,
        program: &str,
        first: Vec<u8>,
        batch: u32,
        cpu: usize,
    ) -> Result<Running<'_>> {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(ignore_but_wake);
        let program = self.programs.program(program)?;
        let netns = device.netns.map(Netns::descriptor).transpose()?;
        let ifindex = device.ifindex;
        let (tell, told) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || -> Result<()> {
            if let Some(netns) = netns {
                netns.enter_for_good()?;
            }
            pin(cpu)?;
            // A receiver that is gone has lost interest.
            let _ = tell.send(pthread_self());
            // XDP_TX leaves by the device named here.
            let run = XdpRun { repeat: REPEAT, live: Some(batch), ..XdpRun::new(&first, ifindex) };
            run_live(program.as_fd(), &run, &stopped).context("the kernel refused to send live frames")
        });
        let pthread = told.recv().ok();
        Ok(Running { generator: self, thread: Some(thread), stop, pthread, began: Instant::now() })
    }

    /// Frames so far.
    pub fn sent(&self) -> u64 {
        self.order.read(0).sent
    }
}

/// SIGUSR1 interrupts the call; without a handler it would end the process.
fn ignore_but_wake() {
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, so it may interrupt anything.
    let set = unsafe { sigaction(Signal::SIGUSR1, &action) };
    debug_assert!(set.is_ok());
}

/// A generator at work. Dropping it stops it.
pub struct Running<'g> {
    generator: &'g Generator,
    thread: Option<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
    pthread: Option<Pthread>,
    began: Instant,
}

impl Running<'_> {
    /// Frames so far.
    pub fn sent(&self) -> u64 {
        self.generator.sent()
    }

    /// Waits until frames leave: the call's own preparations take up to 25 ms.
    pub fn wait_for_first(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.sent() == 0 {
            ensure!(!self.is_over() && Instant::now() < deadline, "the generator does not send");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the limit of the order is reached.
    pub fn finish(self, patience: Duration) -> Result<Sent> {
        let limit = self.generator.order.read(0).limit;
        let deadline = Instant::now() + patience;
        while self.sent() < limit && !self.is_over() {
            ensure!(
                Instant::now() < deadline,
                "the generator sent {} of {limit} frames in {:.1} s",
                self.sent(),
                patience.as_secs_f64()
            );
            thread::sleep(Duration::from_millis(1));
        }
        let sent = self.stop()?;
        ensure!(sent.frames == limit, "the generator ended after {} of {limit} frames", sent.frames);
        Ok(sent)
    }

    /// Ends the run and waits for its thread.
    pub fn stop(mut self) -> Result<Sent> {
        let elapsed = self.began.elapsed();
        self.end()?;
        let order = self.generator.order.read(0);
        ensure!(order.failures == 0, "the generator failed to make {} frames", order.failures);
        let clocked = order.start_ns > 0 && order.last_ns > order.start_ns;
        let seconds =
            if clocked { (order.last_ns - order.start_ns) as f64 / 1e9 } else { elapsed.as_secs_f64() };
        let shape = order.shapes[0].len;
        Ok(Sent {
            frames: order.sent,
            bytes: if order.bytes > 0 { order.bytes } else { order.sent * u64::from(shape) },
            seconds,
            late_seconds: order.late_ns as f64 / 1e9,
            withheld: order.withheld,
        })
    }

    /// A signal that comes before the call begins is lost, so it is repeated.
    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.stop.store(true, Ordering::Relaxed);
        while !thread.is_finished() {
            if let Some(pthread) = self.pthread {
                // A thread that has just ended needs no signal.
                let _ = pthread_kill(pthread, Signal::SIGUSR1);
            }
            thread::sleep(Duration::from_millis(2));
        }
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("sluice bench: {error:#}");
        }
    }
}
