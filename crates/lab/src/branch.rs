//! The branch topology: a gateway with five managed networks and a management network it leaves alone.
//!
//! ```text
//!   trust    10.0.1.100   fd00:1::100    ---- trust0   \
//!   untrust  10.0.2.100   fd00:2::100    ---- untrust0  |
//!   dmz      10.0.30.100  fd00:30::100   ---- dmz0      |  gateway: .1 and ::1
//!   tunnel   10.0.40.100  fd00:40::100   ---- tunnel0   |
//!   wan      203.0.113.100 fd00:113::100 ---- wan0      |  VLAN 100
//!   mgmt     10.0.100.100 fd00:100::100  ---- mgmt0    /   no default route, never attached
//! ```
//!
//! The gateway's own addresses come from its configuration; only mgmt0 is set here, as an operator would.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::helpers;
use crate::netns::{self, Netns, VethEnd};

/// Tag of frames between the gateway and the wan host.
pub const VLAN: u16 = 100;

/// Device of every host, in its own namespace.
pub const HOST_DEVICE: &str = "eth0";

/// Addresses on the wan host's loopback: what lies behind the provider, reached by the gateway's default routes.
pub const INTERNET4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// As [`INTERNET4`].
pub const INTERNET6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// A network of the branch, with one host in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Site {
    /// The office: 10.0.1.0/24.
    Trust,
    /// 10.0.2.0/24
    Untrust,
    /// Servers: 10.0.30.0/24.
    Dmz,
    /// 10.0.40.0/24
    Tunnel,
    /// The provider: 203.0.113.0/24, in [`VLAN`].
    Wan,
    /// 10.0.100.0/24, whose device is never managed.
    Mgmt,
}

impl Site {
    /// In the order of the picture above, and of `Branch`'s hosts.
    pub const ALL: [Site; 6] = [Site::Trust, Site::Untrust, Site::Dmz, Site::Tunnel, Site::Wan, Site::Mgmt];

    /// As zones and devices are named after it.
    pub fn name(self) -> &'static str {
        match self {
            Site::Trust => "trust",
            Site::Untrust => "untrust",
            Site::Dmz => "dmz",
            Site::Tunnel => "tunnel",
            Site::Wan => "wan",
            Site::Mgmt => "mgmt",
        }
    }

    /// Network device on the gateway.
    pub fn device(self) -> String {
        format!("{}0", self.name())
    }

    fn network4(self) -> [u8; 3] {
        match self {
            Site::Trust => [10, 0, 1],
            Site::Untrust => [10, 0, 2],
            Site::Dmz => [10, 0, 30],
            Site::Tunnel => [10, 0, 40],
            Site::Wan => [203, 0, 113],
            Site::Mgmt => [10, 0, 100],
        }
    }

    /// fd00:N::/64, N written in decimal digits as in the IPv4 network.
    fn network6(self) -> u16 {
        match self {
            Site::Trust => 0x1,
            Site::Untrust => 0x2,
            Site::Dmz => 0x30,
            Site::Tunnel => 0x40,
            Site::Wan => 0x113,
            Site::Mgmt => 0x100,
        }
    }

    /// The gateway's address there, from the examples' configurations.
    pub fn gateway4(self) -> Ipv4Addr {
        let [a, b, c] = self.network4();
        Ipv4Addr::new(a, b, c, 1)
    }

    /// The gateway's address there, from the examples' configurations.
    pub fn gateway6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, self.network6(), 0, 0, 0, 0, 0, 1)
    }

    /// Of the host in it.
    pub fn host4(self) -> Ipv4Addr {
        let [a, b, c] = self.network4();
        Ipv4Addr::new(a, b, c, 100)
    }

    /// Of the host in it.
    pub fn host6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, self.network6(), 0, 0, 0, 0, 0, 0x100)
    }

    /// Of the host in it, IPv6 or IPv4.
    pub fn host(self, v6: bool) -> IpAddr {
        if v6 { self.host6().into() } else { self.host4().into() }
    }

    /// The gateway's address there, IPv6 or IPv4.
    pub fn gateway(self, v6: bool) -> IpAddr {
        if v6 { self.gateway6().into() } else { self.gateway4().into() }
    }

    /// Of the gateway's device, locally administered.
    pub fn gateway_mac(self) -> [u8; 6] {
        [2, 0, 0, 0, self as u8 + 1, 1]
    }

    /// Of the host's device, locally administered.
    pub fn host_mac(self) -> [u8; 6] {
        [2, 0, 0, 0, self as u8 + 1, 100]
    }
}

/// What the gateway will do with the packets; the hosts are prepared for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "clap would take them for help")]
pub enum Hook {
    Tc,
    Xdp,
}

impl Hook {
    /// As the configuration's `mode` has it.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Tc => "tc",
            Hook::Xdp => "xdp",
        }
    }
}

/// The namespaces of one laid-out branch; dropping it removes them.
#[derive(Debug)]
pub struct Branch {
    /// Where the daemon under test runs.
    pub gateway: Netns,
    hosts: Vec<Netns>,
}

impl Branch {
    /// Lays it out under names of this process, for as long as the value lives. `hook` None means a plain Linux
    /// gateway: it gets its addresses here and no VLAN.
    pub fn create(hook: Option<Hook>) -> Result<Branch> {
        Branch::build(Netns::create, hook)
    }

    /// Lays it out as `branch-gw`, `branch-trust` ... for a person to work with.
    pub fn create_named(hook: Option<Hook>) -> Result<Branch> {
        Branch::build(|label| Netns::create_named(&format!("branch-{label}")), hook)
    }

    /// Keeps the namespaces when this value goes.
    pub fn keep(self) {
        self.gateway.keep();
        self.hosts.into_iter().for_each(Netns::keep);
    }

    /// The host of a network.
    pub fn host(&self, site: Site) -> &Netns {
        &self.hosts[site as usize]
    }

    /// Gives every host's device a receive queue a CPU. A veth counts the frames that XDP sends it without a lock, a
    /// queue at a time: with one queue and senders on two CPUs it loses counts (seen: 13 of 3.7 million), and the
    /// second equation with them. Frames of one flow may then overtake each other when its CPU changes.
    pub fn queue_per_cpu(&self) -> Result<()> {
        let queues = cpus()?.to_string();
        for host in &self.hosts {
            host.run("ethtool", ["-L", HOST_DEVICE, "rx", &queues])?;
        }
        Ok(())
    }

    fn build(make: impl Fn(&str) -> netns::Result<Netns>, hook: Option<Hook>) -> Result<Branch> {
        let gateway = make("gw")?;
        let hosts = Site::ALL.iter().map(|site| make(site.name())).collect::<netns::Result<Vec<_>>>()?;
        let branch = Branch { gateway, hosts };
        for site in Site::ALL {
            branch.connect(site, hook)?;
        }
        if hook.is_none() {
            branch.gateway.enable_forwarding()?;
            branch.gateway.ip(&format!("route add default via {}", Site::Wan.host4()))?;
            branch.gateway.ip(&format!("route add default via {}", Site::Wan.host6()))?;
        }
        Ok(branch)
    }

    fn connect(&self, site: Site, hook: Option<Hook>) -> Result<()> {
        let host = self.host(site);
        let gateway_addresses = [format!("{}/24", site.gateway4()), format!("{}/64", site.gateway6())];
        let host_addresses = [format!("{}/24", site.host4()), format!("{}/64", site.host6())];
        // Sluice sets the addresses of what it manages.
        let set_here = site == Site::Mgmt || hook.is_none();
        let gateway_addresses: Vec<&str> =
            gateway_addresses.iter().filter(|_| set_here).map(String::as_str).collect();
        let host_addresses = host_addresses.each_ref().map(String::as_str);
        netns::veth(
            VethEnd {
                netns: &self.gateway,
                name: &site.device(),
                mac: Some(&mac_text(site.gateway_mac())),
                addresses: &gateway_addresses,
            },
            VethEnd {
                netns: host,
                name: HOST_DEVICE,
                mac: Some(&mac_text(site.host_mac())),
                addresses: &host_addresses,
            },
        )?;
        // The management host tries the gateway, too: it must not be a way around the zones.
        host.ip(&format!("route add default via {}", site.gateway4()))?;
        host.ip(&format!("route add default via {}", site.gateway6()))?;
        // Several probes wait for an ICMP error of the same host at one time.
        host.sysctl("net.ipv4.icmp_ratelimit", "0")?;
        host.sysctl("net.ipv6.icmp.ratelimit", "0")?;
        if site == Site::Wan {
            host.ip_batch(&format!(
                "address add {INTERNET4}/32 dev lo\naddress add {INTERNET6}/128 dev lo nodad\n"
            ))?;
            if hook.is_some() {
                helpers::tag_with_vlan(host, HOST_DEVICE, VLAN)?;
            }
        }
        if hook == Some(Hook::Xdp) { prepare_for_xdp(host) } else { Ok(()) }
    }
}

/// One more than the highest online CPU: `0-3` in the file means 4.
fn cpus() -> Result<u32> {
    let file = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let last = text.trim().rsplit(['-', ',']).next().unwrap_or_default();
    Ok(last.parse::<u32>().with_context(|| format!("{file} says {text}"))? + 1)
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// An XDP program on the gateway's end of a veth sees frames as the host's stack left them. Checksums must therefore
/// be complete and tags in the frame; and a veth takes redirected frames only when its peer polls (GRO does that).
fn prepare_for_xdp(host: &Netns) -> Result<()> {
    let tags = ["txvlan", "off", "tx-vlan-stag-hw-insert", "off"];
    host.run("ethtool", [&["-K", HOST_DEVICE, "tx", "off", "gro", "on"][..], &tags].concat())?;
    Ok(())
}
