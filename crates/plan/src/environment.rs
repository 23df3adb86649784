//! What the plan must know about the machine, read once by whoever calls it.

use std::collections::BTreeMap;

use sluice_language::config::Prefix;

use crate::devices::VETH;

/// Netdevs of the daemon's namespace, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// By name.
    pub netdevs: BTreeMap<String, NetDev>,
    /// Source and destination of what IPsec policies of this host would send through tunnels.
    pub tunnels: Vec<(Prefix, Prefix)>,
}

/// A network device, as netlink and ethtool describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetDev {
    /// In the daemon's network namespace.
    pub ifindex: u32,
    /// Ethernet address that its frames carry.
    pub mac: [u8; 6],
    /// In bytes, without the Ethernet header.
    pub mtu: u32,
    /// Driver as ethtool names it (`veth`, `virtio_net`, `ixgbe`, `tun`, `bridge`); empty when it has none.
    pub driver: String,
    /// Smallest and largest MTU the driver takes, where it says so.
    pub mtu_range: Option<(u32, u32)>,
    /// Name and kind of the device whose port this one is.
    pub master: Option<(String, String)>,
    /// Name and kind of a device that takes its frames from this one.
    pub carries: Option<(String, String)>,
    /// Why it has refused native XDP as it is now; `mode auto` asks for it no more.
    pub xdp_refused: Option<String>,
    /// The other end of a veth pair, where it matters and can be seen.
    pub sender: Option<Sender>,
    /// It takes frames that XDP programs of other devices redirect to it; of veth where the other end has NAPI.
    pub takes_redirected: bool,
    /// Addresses of a family of which the configuration gives it none (by DHCP, say), none of them link-local.
    pub learned: Vec<Prefix>,
    /// Its packets have no Ethernet header, which the data plane reads (PPP, TUN, WireGuard, GRE, XFRM interfaces).
    pub headerless: bool,
    /// It was configured before and is not here now. Its number is no device's: nothing arrives or leaves by it.
    pub absent: bool,
}

impl Environment {
    /// Whether what is configured for a device has to wait until it comes.
    pub fn is_absent(&self, device: &str) -> bool {
        self.netdevs.get(device).is_some_and(|netdev| netdev.absent)
    }
}

/// What a sender leaves to whoever receives its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Checksums of TCP and UDP are left to the NIC, which veth is none of.
    pub checksums_left: bool,
    /// The VLAN tag stands in the packet's metadata and not in the frame.
    pub tags_beside: bool,
}

/// Drivers with native XDP that also accept frames redirected to them, and for which it is the better hook. veth has
/// native XDP too, but carries 64 KB GSO packets that XDP would split; it runs XDP only when asked.
const XDP_DRIVERS: [&str; 21] = [
    "virtio_net",
    "ixgbe",
    "ixgbevf",
    "i40e",
    "ice",
    "igb",
    "igc",
    "mlx5_core",
    "mlx4_en",
    "bnxt_en",
    "ena",
    "gve",
    "hv_netvsc",
    "mvneta",
    "mvpp2",
    "nfp",
    "qede",
    "sfc",
    "stmmac",
    "tsnep",
    "vmxnet3",
];

impl NetDev {
    /// Whether `mode auto` may choose native XDP here.
    pub fn xdp_preferred(&self) -> bool {
        self.xdp_refused.is_none() && self.has_good_xdp()
    }

    fn has_good_xdp(&self) -> bool {
        XDP_DRIVERS.contains(&self.driver.as_str())
    }

    /// Whether it is so, whatever XDP programs are anywhere, that it takes frames that XDP redirects to it, or does not.
    pub fn has_lasting_reach(&self) -> bool {
        !self.has_good_xdp() && !matches!(self.driver.as_str(), VETH | "bond")
    }

    /// Whether frames that XDP redirects to it would be lost while it has no XDP program itself. Drivers of hardware may say that
    /// they take them, and do so only behind a program. Whether a veth pair does shows when its other end has been told to poll.
    pub fn loses_redirected(&self) -> bool {
        self.driver != VETH && (self.has_good_xdp() || !self.takes_redirected)
    }

    /// Whether native XDP works at all. That of a bond runs on its ports, and sees frames of theirs that the bond would not take.
    pub fn xdp_native(&self) -> bool {
        self.has_good_xdp() || matches!(self.driver.as_str(), "veth" | "tun" | "netdevsim")
    }
}
