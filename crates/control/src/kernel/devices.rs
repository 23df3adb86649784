//! What devices count by themselves. The second equation needs it: frames that XDP sends pass no egress program, and
//! a device may drop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sluice_plan::Plan;

use crate::kernel::{Link, ethtool};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceCounts {
    /// Dropped on the way out, by the device or its driver.
    pub dropped: u64,
    /// Sent for XDP programs of other devices.
    pub xdp_sent: u64,
    /// Of `dropped`, what XDP programs of other devices gave it: what else it drops an egress program has counted as sent.
    #[serde(default)]
    pub xdp_refused: u64,
}

impl DeviceCounts {
    pub fn read(link: &Link) -> Self {
        // A driver without such statistics sends nothing for XDP, or hides it; then the equation shows the gap.
        let statistics = ethtool::statistics(&link.name).unwrap_or_default();
        Self {
            dropped: link.tx_dropped,
            xdp_sent: ethtool::xdp_count(&statistics, &ethtool::XDP_SENT),
            xdp_refused: ethtool::xdp_count(&statistics, &ethtool::XDP_REFUSED),
        }
    }

    pub fn and(self, other: Self) -> Self {
        Self {
            dropped: self.dropped + other.dropped,
            xdp_sent: self.xdp_sent + other.xdp_sent,
            xdp_refused: self.xdp_refused + other.xdp_refused,
        }
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            dropped: self.dropped.saturating_sub(before.dropped),
            xdp_sent: self.xdp_sent.saturating_sub(before.xdp_sent),
            xdp_refused: self.xdp_refused.saturating_sub(before.xdp_refused),
        }
    }
}

/// Counts by ifindex, read before Sluice touches the devices.
pub type Baseline = BTreeMap<u32, DeviceCounts>;

pub fn read_all(links: &[Link]) -> Baseline {
    links.iter().map(|link| (link.index, DeviceCounts::read(link))).collect()
}

/// What devices had counted when somebody last looked: all that is left of one that was deleted.
pub type Latest = Arc<Mutex<Baseline>>;

/// Counts of the devices that the configuration in force manages.
#[derive(Debug, Clone)]
pub struct Managed {
    /// What each had counted before Sluice came.
    pub before: Baseline,
    pub latest: Latest,
    /// What those had counted that are managed no more.
    pub gone: DeviceCounts,
}

impl Managed {
    pub fn look(&self, links: &[Link]) {
        look(&self.before, links, &self.latest);
    }

    /// What a device counted since Sluice manages it.
    pub fn since(&self, link: &Link) -> DeviceCounts {
        DeviceCounts::read(link).since(self.before.get(&link.index).copied().unwrap_or_default())
    }

    /// Of all that are managed, and of those that were.
    pub fn total(&self) -> DeviceCounts {
        self.gone.and(counted(self.before.iter(), &self.latest))
    }
}

/// Reads devices as long as they are there.
pub fn look(managed: &Baseline, links: &[Link], latest: &Latest) {
    let there = links.iter().filter(|link| managed.contains_key(&link.index));
    let read: Baseline = there.map(|link| (link.index, DeviceCounts::read(link))).collect();
    latest.lock().unwrap_or_else(PoisonError::into_inner).extend(read);
}

/// What devices have counted since Sluice manages them, by their baselines.
fn counted<'a>(devices: impl Iterator<Item = (&'a u32, &'a DeviceCounts)>, latest: &Latest) -> DeviceCounts {
    let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
    let since = |(index, before): (&u32, &DeviceCounts)| latest.get(index).unwrap_or(before).since(*before);
    devices.map(since).fold(DeviceCounts::default(), DeviceCounts::and)
}

/// With what those have counted that a commit manages no more.
pub fn with_gone(gone: DeviceCounts, known: &Baseline, next: &Baseline, latest: &Latest) -> DeviceCounts {
    gone.and(counted(known.iter().filter(|(index, _)| !next.contains_key(index)), latest))
}

/// Baselines of the devices a plan manages: the one already known, else what was read before this commit. Devices that
/// the commit made start at nothing.
pub fn baseline(plan: &Plan, known: Option<&Baseline>, before: &Baseline) -> Baseline {
    let counts = |index: u32| known.and_then(|k| k.get(&index)).or_else(|| before.get(&index));
    // what goes into the far end of a pair is delivered to this host, and not sent
    let is_far = |device: &String| plan.kernel.vlan_pairs.iter().any(|pair| pair.peer == *device);
    let managed = plan.attachments.iter().filter(|attachment| !is_far(&attachment.device));
    managed.map(|a| (a.ifindex, counts(a.ifindex).copied().unwrap_or_default())).collect()
}
