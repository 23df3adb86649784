//! Next hops that routes have left, or whose device went down: sessions that still go there are judged again at their next
//! packet, before the many others that a change of routes only might concern.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_abi::{NEXTHOP_RESOLVED, NEXTHOP_TUNNEL};
use sluice_dataplane::{Dataplane, NexthopEntry};

use crate::kernel::{Kernel, KernelError, Link};

/// Sessions that have sent nothing for so long after their next hop died wait their turn like all others.
const MARKED_FOR: Duration = Duration::from_secs(2);

/// All sessions are read to know what they use; it is not done again before this many times as long as it took.
const READ_PAUSE: u32 = 50;

/// So many of each next hop are looked at: one that has died is no way to any of them.
const DESTINATIONS: usize = 4;

/// So many next hops are asked about after a change at most, the next time others.
const MOST: usize = 256;

/// A next hop that sessions use.
struct Known {
    hop: NexthopEntry,
    /// Of some of its sessions, and whether a route led to each by this next hop.
    destinations: BTreeMap<IpAddr, bool>,
}

/// What was known of next hops when they were looked at last.
pub struct Departures {
    kernel: Kernel,
    known: BTreeMap<u32, Known>,
    /// When sessions may be read again.
    readable: Instant,
    /// The last one that was asked about.
    last: u32,
    marked: Vec<(Instant, u32)>,
}

impl Departures {
    /// `kernel` is a connection of its own: what others list meanwhile must not delay this.
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, known: BTreeMap::new(), readable: Instant::now(), last: 0, marked: vec![] }
    }

    /// Before sessions are judged again: marks what has died since the last look; true if anything has.
    pub fn mark(&mut self, dataplane: &Dataplane) -> bool {
        self.forget_marks(dataplane);
        if self.known.is_empty() {
            return false;
        }
        let devices = match self.devices() {
            Ok(devices) => devices,
            Err(error) => {
                tracing::error!(%error, "next hops were not looked at");
                return false;
            }
        };
        let behind = self.known.range(self.last + 1..).chain(self.known.range(..=self.last));
        let asked: Vec<(u32, BTreeMap<IpAddr, bool>)> = behind
            .take(MOST)
            .map(|(index, known)| (*index, lead(&self.kernel, dataplane, &devices, known)))
            .collect();
        let mut died = false;
        for (index, lead) in asked {
            self.last = index;
            died |= self.judge(dataplane, index, lead);
        }
        died
    }

    /// After it: what sessions use now, if that was not read lately, and of new ones whether they are dead already.
    pub fn read(&mut self, dataplane: &Dataplane) {
        let began = Instant::now();
        if began < self.readable {
            return;
        }
        let entries = match dataplane.nexthops() {
            Ok(entries) => entries,
            Err(error) => return tracing::error!(%error, "the next-hop table cannot be read"),
        };
        let mut destinations = dataplane.nexthop_destinations(&entries, DESTINATIONS);
        self.readable = Instant::now() + began.elapsed() * READ_PAUSE;
        let mut before = std::mem::take(&mut self.known);
        let mut is_new = false;
        for hop in entries {
            let old = before.remove(&hop.index).filter(|old| old.hop == hop).map(|old| old.destinations);
            // one that has not answered yet is not dead
            if old.is_none() && !is_marked(dataplane, hop.index, NEXTHOP_RESOLVED) {
                continue;
            }
            let (now, old) = (destinations.remove(&hop.index).unwrap_or_default(), old.unwrap_or_default());
            is_new |= now.iter().any(|to| !old.contains_key(to));
            let all = match now.is_empty() {
                true => old,
                false => now.into_iter().map(|to| (to, old.get(&to).copied().unwrap_or(true))).collect(),
            };
            self.known.insert(hop.index, Known { hop, destinations: all });
        }
        if is_new {
            // their sessions are of an older stamp already where it was a change that has led here
            self.mark(dataplane);
        }
    }

    /// True when it has died, for one destination at least.
    fn judge(&mut self, dataplane: &Dataplane, index: u32, lead: BTreeMap<IpAddr, bool>) -> bool {
        let Some(known) = self.known.get_mut(&index) else { return false };
        let before = std::mem::replace(&mut known.destinations, lead);
        let is_left = known.destinations.iter().any(|(to, leads)| !leads && before.get(to) == Some(&true));
        if is_left {
            let address = known.hop.address;
            tracing::info!(%address, "the next hop is dead, or a route has left it");
            if let Err(error) = dataplane.leave_nexthop(index, true) {
                tracing::error!(%error, %address, "a next hop was not marked");
            }
            self.marked.push((Instant::now(), index));
        }
        is_left
    }

    fn forget_marks(&mut self, dataplane: &Dataplane) {
        let old = |(marked, _): &mut (Instant, u32)| marked.elapsed() > MARKED_FOR;
        for (_, index) in self.marked.extract_if(.., old) {
            if let Err(error) = dataplane.leave_nexthop(index, false) {
                tracing::error!(%error, "a next hop stays marked");
            }
        }
    }

    fn devices(&self) -> Result<HashMap<u32, Device>, KernelError> {
        let links = self.kernel.links()?;
        let instances: Vec<u32> =
            links.iter().filter(|link| link.is_instance()).map(|link| link.index).collect();
        let device = |link: &Link| Device {
            is_running: link.up && link.running,
            instance: link.master.filter(|master| instances.contains(master)),
        };
        Ok(links.iter().map(|link| (link.index, device(link))).collect())
    }
}

/// A device that next hops are on.
struct Device {
    is_running: bool,
    /// VRF device whose table leads to them: where packets come to by leaks, too.
    instance: Option<u32>,
}

/// Whether packets for the destinations may still go by this next hop. What the kernel does not say is no reason to mark one.
fn lead(
    kernel: &Kernel,
    dataplane: &Dataplane,
    devices: &HashMap<u32, Device>,
    known: &Known,
) -> BTreeMap<IpAddr, bool> {
    let Known { hop, destinations } = known;
    let device = devices.get(&hop.host_ifindex);
    let (is_up, instance) = device.map_or((false, None), |device| (device.is_running, device.instance));
    let is_tunnel = is_marked(dataplane, hop.index, NEXTHOP_TUNNEL);
    let answers = is_marked(dataplane, hop.index, NEXTHOP_RESOLVED);
    let leads = |to: &IpAddr| {
        let routed = || answers && kernel.leads(*to, instance, (hop.host_ifindex, hop.address));
        is_up && (is_tunnel || hop.address == *to || routed())
    };
    destinations.keys().map(|to| (*to, leads(to))).collect()
}

fn is_marked(dataplane: &Dataplane, index: u32, mark: u8) -> bool {
    dataplane.nexthop(index).is_ok_and(|entry| entry.flags & mark != 0)
}
