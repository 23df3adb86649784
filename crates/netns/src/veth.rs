//! Veth pairs between namespaces.

use crate::{Netns, Result};

/// One end of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// Where it stands.
    pub netns: &'a Netns,
    /// Name of the device, at most 15 bytes.
    pub name: &'a str,
    /// `02:00:00:00:00:01`; None lets the kernel choose.
    pub mac: Option<&'a str>,
    /// `10.0.1.100/24`, `fd00:1::100/64`
    pub addresses: &'a [&'a str],
}

/// Makes a veth pair with one end in each namespace, sets addresses and brings both ends up.
pub fn veth(left: VethEnd, right: VethEnd) -> Result<()> {
    veth_of_queues(left, right, None)
}

/// The same with so many queues a direction at both ends; None: as many as the kernel opens by itself.
pub fn veth_of_queues(left: VethEnd, right: VethEnd, queues: Option<u32>) -> Result<()> {
    let places = queues.map(|n| format!("numrxqueues {n} numtxqueues {n}")).unwrap_or_default();
    let words = |end: &VethEnd| format!("name {} {} {places}", end.name, mac_words(end.mac));
    let (own, peer) = (words(&left), words(&right));
    left.netns.ip(&format!("link add {own} type veth peer {peer} netns {}", right.netns.name()))?;
    for end in [&left, &right] {
        if let Some(n) = queues.map(|n| n.to_string()) {
            end.netns.run("ethtool", ["-L", end.name, "rx", &n, "tx", &n])?;
        }
    }
    for end in [left, right] {
        let mut lines = String::new();
        for address in end.addresses {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            lines += &format!("address add {address} dev {} {nodad}\n", end.name);
        }
        lines += &format!("link set {} up\n", end.name);
        end.netns.ip_batch(&lines)?;
    }
    Ok(())
}

fn mac_words(mac: Option<&str>) -> String {
    mac.map(|mac| format!("address {mac}")).unwrap_or_default()
}
