//! Neighbours: what the data plane's next hops are resolved by.

use std::collections::BTreeSet;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use netlink_packet_route::neighbour::{NeighbourFlags, NeighbourMessage, NeighbourState};
use sluice_netlink::{Neighbour, parse_neighbour};

use super::connection::{Kernel, Result};

impl Kernel {
    pub fn neighbours(&self) -> Result<Vec<Neighbour>> {
        let dump = async { self.netlink.neighbours().get().execute().try_collect().await };
        let messages: Vec<NeighbourMessage> =
            self.wait(dump, || "list the neighbours".to_owned(), "this is a defect; report it")?;
        Ok(messages.iter().filter_map(parse_neighbour).collect())
    }

    /// Tells the kernel that neighbours are in use, so that it keeps probing them: redirected packets do not. Not of those
    /// that somebody has entered, which the kernel would forget by it (NTF_USE takes NUD_PERMANENT away).
    pub fn use_neighbours(&self, wanted: impl Iterator<Item = (u32, IpAddr)>) -> Result<()> {
        let known = self.neighbours()?;
        let fixed: BTreeSet<_> = known.iter().filter(|n| n.fixed).map(|n| (n.ifindex, n.addr)).collect();
        for (ifindex, addr) in wanted.filter(|neighbour| !fixed.contains(neighbour)) {
            if let Err(error) = self.use_neighbour(ifindex, addr) {
                tracing::debug!(%error, "a neighbour was not refreshed");
            }
        }
        Ok(())
    }

    /// Asks anew for neighbours of a device that have not answered: while its MAC address changed their answers were for
    /// another host, and the kernel would wait a second before it asks again.
    pub fn ask_again(&self, ifindex: u32) -> Result<()> {
        let silent = |n: &&Neighbour| n.ifindex == ifindex && n.mac.is_none() && !n.fixed;
        for neighbour in self.neighbours()?.iter().filter(silent) {
            let known = self.netlink.neighbours().add(ifindex, neighbour.addr).message_mut().clone();
            let action = || format!("forget neighbour {}", neighbour.addr);
            let forgotten =
                self.wait(self.netlink.neighbours().del(known).execute(), action, "check the device");
            if let Err(error) = forgotten.and_then(|()| self.use_neighbour(ifindex, neighbour.addr)) {
                tracing::debug!(%error, "a neighbour was not asked again");
            }
        }
        Ok(())
    }

    fn use_neighbour(&self, ifindex: u32, addr: IpAddr) -> Result<()> {
        let request = self.netlink.neighbours().add(ifindex, addr);
        let request = request.state(NeighbourState::None).flags(NeighbourFlags::Use).replace();
        let action = || format!("refresh neighbour {addr} on ifindex {ifindex}");
        self.wait(request.execute(), action, "check the device")
    }
}

#[cfg(test)]
mod tests {
    use sluice_netns::Netns;

    use super::*;

    /// What somebody has entered stays as it is; what the kernel has learned is probed.
    #[test]
    fn entries_of_somebody_stay_his() {
        let netns = Netns::create("fixed").unwrap();
        let batch = "link add v0 type veth peer name v1\nlink set v0 up\nlink set v1 up\n\
            addr add 10.0.1.1/24 dev v0\naddr add fd00:1::1/64 dev v0 nodad\n";
        netns.ip_batch(batch).unwrap();
        let entries = [
            ("10.0.1.2", "permanent"),
            ("10.0.1.3", "noarp"),
            ("10.0.1.4", "stale"),
            ("fd00:1::2", "permanent"),
            ("fd00:1::4", "stale"),
        ];
        for (address, state) in entries {
            netns.ip(&format!("neigh add {address} lladdr 02:00:00:00:00:09 dev v0 nud {state}")).unwrap();
        }
        let ifindex = netns.ifindex("v0").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let known = netns
            .enter(|| {
                let kernel = Kernel::connect(runtime.handle()).unwrap();
                let wanted = entries.map(|(address, _)| (ifindex, address.parse::<IpAddr>().unwrap()));
                kernel.use_neighbours(wanted.into_iter()).unwrap();
                kernel.neighbours().unwrap()
            })
            .unwrap();
        for (address, state) in entries {
            let shown = netns.ip(&format!("neigh show to {address} dev v0 nud all")).unwrap().to_lowercase();
            assert_eq!(shown.contains(state), state != "stale", "{shown}");
            let entry = known.iter().find(|n| n.addr.to_string() == address).unwrap();
            assert_eq!((entry.fixed, entry.mac.is_some()), (state != "stale", true), "{entry:?}");
        }
    }
}
