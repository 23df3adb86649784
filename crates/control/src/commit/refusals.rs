//! Devices that have refused native XDP, and why: `mode auto` does not ask them for it again as long as they are as they were.

use std::collections::BTreeMap;

use sluice_plan::Environment;

use crate::kernel::Link;

#[derive(Debug, Default)]
pub struct Refusals(BTreeMap<String, Refusal>);

#[derive(Debug)]
struct Refusal {
    ifindex: u32,
    mtu: u32,
    why: String,
}

impl Refusals {
    pub fn note(&mut self, links: &[Link], device: &str, why: String) {
        tracing::warn!(device, why, "it refuses native XDP; mode auto takes tc");
        // One that has gone meanwhile is never as it was.
        let (ifindex, mtu) =
            links.iter().find(|link| link.name == device).map_or((0, 0), |link| (link.index, link.mtu));
        self.0.insert(device.to_owned(), Refusal { ifindex, mtu, why });
    }

    pub fn is_known(&self, device: &str) -> bool {
        self.0.contains_key(device)
    }

    /// Forgets those of devices that have become others. Before a commit and not within: what it does to a device itself
    /// must not have the device asked again and again.
    pub fn forget_others(&mut self, links: &[Link]) {
        self.0.retain(|device, refusal| {
            let mut now = links.iter().filter(|link| link.name == *device);
            now.any(|link| (link.index, link.mtu) == (refusal.ifindex, refusal.mtu))
        });
    }

    pub fn put_into(&self, environment: &mut Environment) {
        for (device, refusal) in &self.0 {
            if let Some(netdev) = environment.netdevs.get_mut(device) {
                netdev.xdp_refused = Some(refusal.why.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_plan::NetDev;

    use super::*;

    #[test]
    fn a_device_that_has_become_another_is_asked_again() {
        let link = |mtu| Link { index: 3, name: "e0".to_owned(), mtu, ..Default::default() };
        let mut refusals = Refusals::default();
        refusals.note(&[link(9001)], "e0", "too large".to_owned());
        for (ifindex, mtu, refused) in [(3, 9001, true), (3, 9001, true), (3, 1500, false), (3, 9001, false)]
        {
            let mut environment = Environment::default();
            let netdev = NetDev { ifindex, mtu, ..Default::default() };
            environment.netdevs.insert("e0".to_owned(), netdev);
            refusals.forget_others(&[Link { index: ifindex, ..link(mtu) }]);
            refusals.put_into(&mut environment);
            assert_eq!(environment.netdevs["e0"].xdp_refused.is_some(), refused, "{ifindex} {mtu}");
        }
    }

    /// A commit that changes the MTU itself asks once, and then takes tc.
    #[test]
    fn what_a_commit_changes_does_not_have_a_device_asked_again() {
        let mut refusals = Refusals::default();
        refusals.note(
            &[Link { index: 3, name: "e0".to_owned(), mtu: 1500, ..Default::default() }],
            "e0",
            String::new(),
        );
        let mut environment = Environment::default();
        environment.netdevs.insert("e0".to_owned(), NetDev { ifindex: 3, mtu: 1400, ..Default::default() });
        refusals.put_into(&mut environment);
        assert!(environment.netdevs["e0"].xdp_refused.is_some() && refusals.is_known("e0"));
    }
}
