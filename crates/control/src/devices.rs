//! What devices count by themselves. The second equation needs it: frames that XDP sends pass no egress program, and
//! a device may drop.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_plan::Plan;

use crate::kernel::{Link, ethtool};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceCounts {
    /// Dropped on the way out, by the device or its driver.
    pub dropped: u64,
    /// Sent for XDP programs of other devices.
    pub xdp_sent: u64,
}

impl DeviceCounts {
    pub fn read(link: &Link) -> Self {
        // A driver without such statistics sends nothing for XDP, or hides it; then the equation shows the gap.
        let xdp_sent = ethtool::xdp_sent(&link.name).unwrap_or(0);
        Self { dropped: link.tx_dropped, xdp_sent }
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            dropped: self.dropped.saturating_sub(before.dropped),
            xdp_sent: self.xdp_sent.saturating_sub(before.xdp_sent),
        }
    }
}

/// Counts by ifindex, read before Sluice touches the devices.
pub type Baseline = BTreeMap<u32, DeviceCounts>;

pub fn read_all(links: &[Link]) -> Baseline {
    links.iter().map(|link| (link.index, DeviceCounts::read(link))).collect()
}

/// Baselines of the devices a plan manages: the one already known, else what was read before this commit. Devices that
/// the commit made start at nothing.
pub fn baseline(plan: &Plan, known: Option<&Baseline>, before: &Baseline) -> Baseline {
    let counts = |index: u32| known.and_then(|k| k.get(&index)).or_else(|| before.get(&index));
    plan.attachments.iter().map(|a| (a.ifindex, counts(a.ifindex).copied().unwrap_or_default())).collect()
}
