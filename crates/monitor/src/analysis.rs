//! Drives frames through parsers and channels, and results to their sink.

use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::capture::Source;
use crate::summary::{Sink, Summary};

/// How to analyse.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that parse and keep channels; results do not depend on their number.
    pub workers: usize,
    /// Length of an interval of capture time.
    pub interval_ns: u64,
    /// Channels kept at the same time; beyond that the longest silent ones are evicted and counted.
    pub max_channels: usize,
    /// User data in clear text is an anomaly on this link.
    pub expect_protected: bool,
    /// Frames of all capture interfaces form one sequence (aggregated links); otherwise each interface is a tap of
    /// its own.
    pub merge_interfaces: bool,
    /// Longer frames are an anomaly.
    pub mtu: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 1,
            interval_ns: 1_000_000_000,
            max_channels: 1 << 20,
            expect_protected: false,
            merge_interfaces: false,
            mtu: None,
        }
    }
}

/// What other threads see of a run, and how they end it.
#[derive(Debug, Default)]
pub struct Control {
    pub frames: AtomicU64,
    pub bytes_read: AtomicU64,
    /// 0 where it is not known.
    pub bytes_total: AtomicU64,
    /// Set to end the run early; what was read is still analysed and reported.
    pub stop: AtomicBool,
}

/// Analyses a source to its end.
pub fn analyze(
    source: &mut dyn Source,
    options: &Options,
    sink: &mut dyn Sink,
    control: &Control,
) -> anyhow::Result<Summary> {
    let _ = (source, options, sink, control);
    Ok(Summary::default())
}
