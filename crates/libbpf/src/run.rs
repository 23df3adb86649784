//! Runs programs on packets without a device: `BPF_PROG_TEST_RUN` for XDP, tc and syscall programs.
#![allow(unsafe_code, reason = "the kernel fills buffers of ours")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libbpf_sys as c;

use crate::call::check;

/// Of linux/bpf.h since 6.16.
const TEST_SKB_CHECKSUM_COMPLETE: u32 = 1 << 2;
const EINVAL: i32 = 22;

/// Room for what a program prepends and appends.
const HEADROOM: usize = 512;

/// Input of an XDP run.
#[derive(Debug, Clone)]
pub struct XdpRun<'a> {
    /// Metadata and frame.
    pub data: &'a [u8],
    /// A device of the calling thread's network namespace; 0 = loopback.
    pub ingress_ifindex: u32,
    /// The queue that it came from.
    pub rx_queue: u32,
    /// `data` begins with this many bytes of metadata.
    pub meta_len: u32,
    /// How many times it is run.
    pub repeat: u32,
    /// Packets really take the verdict's way, this many in a batch (0 = the kernel's choice). No output then.
    pub live: Option<u32>,
}

impl<'a> XdpRun<'a> {
    /// Once, from queue 0, without metadata.
    pub fn new(data: &'a [u8], ingress_ifindex: u32) -> Self {
        XdpRun { data, ingress_ifindex, rx_queue: 0, meta_len: 0, repeat: 1, live: None }
    }
}

/// Input of a tc run. The kernel takes `data` as an Ethernet frame.
#[derive(Debug, Clone)]
pub struct TcRun<'a> {
    /// The frame.
    pub data: &'a [u8],
    /// A device of the calling thread's network namespace; 0 = loopback.
    pub ifindex: u32,
    /// `skb->mark`.
    pub mark: u32,
    /// `skb->priority`.
    pub priority: u32,
    /// `skb->cb`, five words.
    pub cb: [u32; 5],
    /// Segments of a GSO packet; 0 = it is none.
    pub gso_segs: u32,
    /// Bytes of payload in a segment.
    pub gso_size: u32,
    /// How many times it is run.
    pub repeat: u32,
    /// As from a device that has summed up the packet (CHECKSUM_COMPLETE). A run whose program leaves another sum than
    /// the packet has is an error. Kernels before 6.16 cannot do it, and nothing is checked there.
    pub summed: bool,
}

impl<'a> TcRun<'a> {
    /// Once, with nothing set.
    pub fn new(data: &'a [u8], ifindex: u32) -> Self {
        TcRun {
            data,
            ifindex,
            mark: 0,
            priority: 0,
            cb: [0; 5],
            gso_segs: 0,
            gso_size: 0,
            repeat: 1,
            summed: false,
        }
    }
}

/// What a run gave.
#[derive(Debug, Clone)]
pub struct Outcome<C> {
    /// What the program returned.
    pub retval: u32,
    /// The frame afterwards; for XDP including metadata (`context.data` bytes of it).
    pub data: Vec<u8>,
    /// As the program left it.
    pub context: C,
    /// Of one repetition, on average.
    pub duration: Duration,
}

/// `struct xdp_md` after the run: `data` = length of metadata, `data_end` = length of metadata and frame.
pub type XdpContext = c::xdp_md;

/// `struct __sk_buff` of linux/bpf.h, as far as test runs use it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the fields of the kernel's struct, by its names")]
pub struct TcContext {
    pub len: u32,
    pub pkt_type: u32,
    pub mark: u32,
    pub queue_mapping: u32,
    pub protocol: u32,
    pub vlan_present: u32,
    pub vlan_tci: u32,
    pub vlan_proto: u32,
    pub priority: u32,
    pub ingress_ifindex: u32,
    pub ifindex: u32,
    pub tc_index: u32,
    pub cb: [u32; 5],
    pub hash: u32,
    pub tc_classid: u32,
    pub data: u32,
    pub data_end: u32,
    pub napi_id: u32,
    pub family: u32,
    pub remote_ip4: u32,
    pub local_ip4: u32,
    pub remote_ip6: [u32; 4],
    pub local_ip6: [u32; 4],
    pub remote_port: u32,
    pub local_port: u32,
    pub data_meta: u32,
    pub flow_keys: u64,
    pub tstamp: u64,
    pub wire_len: u32,
    pub gso_segs: u32,
    pub socket: u64,
    pub gso_size: u32,
    pub tstamp_type: u32,
    pub hwtstamp: u64,
}
const _: () = assert!(size_of::<TcContext>() == 192);

/// Runs an XDP program.
pub fn xdp(program: impl AsFd, run: &XdpRun<'_>) -> io::Result<Outcome<XdpContext>> {
    let context = c::xdp_md {
        data: run.meta_len,
        data_end: run.data.len() as u32,
        ingress_ifindex: run.ingress_ifindex,
        rx_queue_index: run.rx_queue,
        ..Default::default()
    };
    let (flags, batch) = match run.live {
        Some(batch) => (c::BPF_F_TEST_XDP_LIVE_FRAMES, batch),
        None => (0, 0),
    };
    test_run(&program, run.data, context, run.repeat, flags, batch)
}

/// Runs a tc program.
pub fn tc(program: impl AsFd, run: &TcRun<'_>) -> io::Result<Outcome<TcContext>> {
    let context = TcContext {
        ifindex: run.ifindex,
        mark: run.mark,
        priority: run.priority,
        cb: run.cb,
        gso_segs: run.gso_segs,
        gso_size: run.gso_size,
        ..Default::default()
    };
    let flags = if run.summed { TEST_SKB_CHECKSUM_COMPLETE } else { 0 };
    match test_run(&program, run.data, context, run.repeat, flags, 0) {
        Err(error) if run.summed && error.raw_os_error() == Some(EINVAL) => {
            test_run(&program, run.data, context, run.repeat, 0, 0)
        }
        outcome => outcome,
    }
}

/// Runs a program of type `syscall` once, without arguments, and returns its result.
pub fn syscall(program: impl AsFd) -> io::Result<u32> {
    let mut options =
        c::bpf_test_run_opts { sz: size_of::<c::bpf_test_run_opts>() as c::size_t, ..Default::default() };
    call(&program, &mut options)?;
    Ok(options.retval)
}

fn test_run<C: Default + Copy>(
    program: &impl AsFd,
    data: &[u8],
    context: C,
    repeat: u32,
    flags: u32,
    batch_size: u32,
) -> io::Result<Outcome<C>> {
    let live = flags == c::BPF_F_TEST_XDP_LIVE_FRAMES;
    let mut out = if live { Vec::new() } else { vec![0; data.len() + HEADROOM] };
    let mut context_out = C::default();
    let mut options = c::bpf_test_run_opts {
        sz: size_of::<c::bpf_test_run_opts>() as c::size_t,
        data_in: data.as_ptr().cast(),
        data_size_in: data.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<C>() as u32,
        repeat: repeat as i32,
        flags,
        batch_size,
        ..Default::default()
    };
    if !live {
        options.data_out = out.as_mut_ptr().cast();
        options.data_size_out = out.len() as u32;
        options.ctx_out = (&raw mut context_out).cast();
        options.ctx_size_out = size_of::<C>() as u32;
    }
    call(program, &mut options)?;
    out.truncate(options.data_size_out as usize);
    let duration = Duration::from_nanos(options.duration.into());
    Ok(Outcome { retval: options.retval, data: out, context: context_out, duration })
}

fn call(program: &impl AsFd, options: &mut c::bpf_test_run_opts) -> io::Result<()> {
    // SAFETY: `options` carries its own size, and every buffer it names outlives the call with the size it names.
    check(unsafe { c::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), options) }).map(drop)
}
