//! The hosts that traffic runs between, and the gateway's place in their middle: namespaces, links, routes, neighbours.

use anyhow::Result;
use sluice_lab::netns::{Netns, VethEnd, veth_of_queues};

/// One side of the gateway: its own device and the host's at the other end.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    pub device: &'static str,
    pub mac: [u8; 6],
    pub host_mac: [u8; 6],
    pub ifindex: u32,
    pub host_ifindex: u32,
}

/// Three namespaces in a row: lan host, gateway, wan host.
pub struct Site {
    pub lan_host: Netns,
    pub gateway: Netns,
    pub wan_host: Netns,
    pub lan: Side,
    pub wan: Side,
    /// A third host, if there is one.
    pub outside: Option<(Netns, Side)>,
    /// Both ends of a mobile interface, if there is one: name, index and MAC address.
    pub mobile: Vec<(String, u32, [u8; 6])>,
    /// Devices of routing instances, likewise.
    pub tenants: Vec<(String, u32, [u8; 6])>,
}

/// The mobile interface.
pub const MOBILE: &str = "mif.0";
const MOBILE_MACS: [&str; 2] = ["02:be:00:00:04:01", "02:be:00:00:04:02"];

pub const LAN: &str = "lan0";
pub const WAN: &str = "wan0";
/// Names of the hosts' ends.
pub const LAN_HOST: &str = "lan";
pub const WAN_HOST: &str = "wan";
const LAN_MAC: &str = "02:be:00:00:01:01";
const LAN_HOST_MAC: &str = "02:be:00:00:01:64";
const WAN_MAC: &str = "02:be:00:00:02:01";
const WAN_HOST_MAC: &str = "02:be:00:00:02:64";
/// The gateway's device towards the third host, and that host's own.
pub const OUTSIDE: &str = "out0";
pub const OUTSIDE_HOST: &str = "out";
const OUTSIDE_MAC: &str = "02:be:00:00:03:01";
const OUTSIDE_HOST_MAC: &str = "02:be:00:00:03:64";
pub const WAN_HOST_ADDRESS: &str = "198.51.100.100";

impl Site {
    /// `label` tells the namespaces of one bench apart; at most five letters.
    pub fn create(label: &str) -> Result<Site> {
        Site::with_queues(label, None)
    }

    /// The same with so many queues at both ends of the lan link; None: the kernel's usual one.
    pub fn with_queues(label: &str, queues: Option<u32>) -> Result<Site> {
        let lan_host = Netns::create(&format!("{label}-lan"))?;
        let gateway = Netns::create(&format!("{label}-gw"))?;
        let wan_host = Netns::create(&format!("{label}-wan"))?;
        link(
            &gateway,
            LAN,
            LAN_MAC,
            &["192.0.2.1/24", "fd00:1::1/64"],
            &lan_host,
            LAN_HOST,
            LAN_HOST_MAC,
            &["192.0.2.100/24", "fd00:1::100/64"],
            queues,
        )?;
        link(
            &gateway,
            WAN,
            WAN_MAC,
            &["198.51.100.1/24", "fd00:2::1/64"],
            &wan_host,
            WAN_HOST,
            WAN_HOST_MAC,
            &["198.51.100.100/24", "fd00:2::100/64"],
            None,
        )?;
        lan_host.ip_batch("route add default via 192.0.2.1\nroute add ::/0 via fd00:1::1\n")?;
        wan_host.ip_batch("route add default via 198.51.100.1\nroute add ::/0 via fd00:2::1\n")?;
        gateway.enable_forwarding()?;
        gateway.ip_batch(&routes())?;
        lan_host.ip_batch(&neighbours(LAN_HOST, "192.0.2.1", "fd00:1::1", LAN_MAC))?;
        wan_host.ip_batch(&neighbours(WAN_HOST, "198.51.100.1", "fd00:2::1", WAN_MAC))?;
        let lan = side(&gateway, LAN, LAN_MAC, &lan_host, LAN_HOST, LAN_HOST_MAC)?;
        let wan = side(&gateway, WAN, WAN_MAC, &wan_host, WAN_HOST, WAN_HOST_MAC)?;
        Ok(Site { lan_host, gateway, wan_host, lan, wan, outside: None, mobile: vec![], tenants: vec![] })
    }

    /// Adds a third host on a link of its own.
    pub fn add_outside(&mut self, label: &str) -> Result<()> {
        let host = Netns::create(&format!("{label}-out"))?;
        let (own, other) = (["203.0.113.1/24"], ["203.0.113.100/24"]);
        let (mac, host_mac) = (OUTSIDE_MAC, OUTSIDE_HOST_MAC);
        link(&self.gateway, OUTSIDE, mac, &own, &host, OUTSIDE_HOST, host_mac, &other, None)?;
        let side = side(&self.gateway, OUTSIDE, mac, &host, OUTSIDE_HOST, host_mac)?;
        self.outside = Some((host, side));
        Ok(())
    }

    /// Adds a mobile interface with this address, whose subnet are the subscribers.
    pub fn add_mobile(&mut self, address: &str) -> Result<()> {
        let ends = [MOBILE.to_owned(), format!("{MOBILE}-peer")];
        let [mac, far_mac] = MOBILE_MACS;
        self.gateway.ip_batch(&format!(
            "link add {} address {mac} type veth peer name {} address {far_mac}\nlink set {} up\nlink set {} up\n\
             addr add {address} dev {}\n",
            ends[0], ends[1], ends[0], ends[1], ends[0]
        ))?;
        let found = ends.into_iter().zip(MOBILE_MACS).map(|(name, mac)| {
            let ifindex = self.gateway.ifindex(&name)?;
            Ok((name, ifindex, mac_bytes(mac)))
        });
        self.mobile = found.collect::<Result<_>>()?;
        Ok(())
    }

    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        [&self.lan, &self.wan].into_iter().chain(self.outside.as_ref().map(|(_, side)| side))
    }
}

#[allow(clippy::too_many_arguments)] // two ends with four words each
fn link(
    gateway: &Netns,
    device: &str,
    mac: &str,
    addresses: &[&str],
    host: &Netns,
    host_device: &str,
    host_mac: &str,
    host_addresses: &[&str],
    queues: Option<u32>,
) -> Result<()> {
    let left = VethEnd { netns: gateway, name: device, mac: Some(mac), addresses };
    let right = VethEnd { netns: host, name: host_device, mac: Some(host_mac), addresses: host_addresses };
    Ok(veth_of_queues(left, right, queues)?)
}

fn side(
    gateway: &Netns,
    device: &'static str,
    mac: &str,
    host: &Netns,
    host_device: &str,
    host_mac: &str,
) -> Result<Side> {
    Ok(Side {
        device,
        mac: mac_bytes(mac),
        host_mac: mac_bytes(host_mac),
        ifindex: gateway.ifindex(device)?,
        host_ifindex: host.ifindex(host_device)?,
    })
}

/// The hosts stand for the networks the tuples come from. Resolved neighbours: this bench measures forwarding.
fn routes() -> String {
    let lan = neighbours(LAN, "192.0.2.100", "fd00:1::100", LAN_HOST_MAC);
    let wan = neighbours(WAN, WAN_HOST_ADDRESS, "fd00:2::100", WAN_HOST_MAC);
    format!(
        "{lan}{wan}route add 10.64.0.0/16 via 192.0.2.100\nroute add 10.128.0.0/16 via {WAN_HOST_ADDRESS}\n\
         route add fd00:64::/64 via fd00:1::100\nroute add fd00:128::/64 via fd00:2::100\n"
    )
}

fn neighbours(device: &str, v4: &str, v6: &str, mac: &str) -> String {
    format!(
        "neigh replace {v4} lladdr {mac} dev {device} nud permanent\n\
         neigh replace {v6} lladdr {mac} dev {device} nud permanent\n"
    )
}

fn mac_bytes(text: &str) -> [u8; 6] {
    let mut mac = [0; 6];
    for (byte, word) in mac.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(word, 16).expect("a MAC address of this file");
    }
    mac
}
