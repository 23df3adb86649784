//! Who forwards between the two hosts of a site: Sluice on each of its hooks, and the peers it is compared with.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use sluice_dataplane::Sizes;
use sluice_dataplane::abi::stages::Reason;
use sluice_libbpf::Link;

use crate::generator::frames::Frames;
use crate::generator::layouts::BarePort;
use crate::generator::link::Target;
use crate::generator::site::{LAN, LAN_HOST, Side, Site, WAN, WAN_HOST};
use crate::generator::tunnels::Way;
use crate::method::checks;
use crate::method::result::Check;
use crate::testbed::gateway::{Action, Mode, Sluice, configuration, translating_configuration};
use crate::testbed::user_plane::{self, Subscribers, Surroundings};

/// Of the traffic that goes through it.
pub const FLOWS: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarder {
    Tc,
    Xdp,
    Generic,
    /// Sluice on tc and on XDP with the source address replaced by that of the interface it leaves by.
    TcNat,
    XdpNat,
    /// The kernel's forwarding without any rule.
    Linux,
    /// Established and related accepted, invalid dropped, new accepted from lan to wan.
    Nftables,
    /// The same, and established flows go past it: `flow add` of nft(8), where the kernel has flow tables.
    Flowtable,
    /// As `Nftables`, and the source address replaced.
    Masquerade,
    /// A tc program that rewrites the addresses of the link and redirects, nothing else.
    BareRedirect,
    /// The same on XDP, with N3 frames, which stay in their tunnels.
    Redirect,
    /// Sluice on XDP at the end of GTP-U tunnels: zones, and a policy that permits everything.
    Gtpu,
    /// The same with flows in tunnels spread to all CPUs.
    GtpuSpread,
    /// Not spread, with all that the user plane does: policies, source NAT, rates, flows, quotas.
    UserPlane,
}

impl Forwarder {
    pub fn name(self) -> &'static str {
        match self {
            Forwarder::Tc => "sluice tc",
            Forwarder::Xdp => "sluice xdp",
            Forwarder::Generic => "sluice generic",
            Forwarder::TcNat => "sluice tc source nat",
            Forwarder::XdpNat => "sluice xdp source nat",
            Forwarder::Linux => "linux",
            Forwarder::Nftables => "nftables",
            Forwarder::Flowtable => "nft flowtable",
            Forwarder::Masquerade => "masquerade",
            Forwarder::BareRedirect => "bare redirect",
            Forwarder::Redirect => "xdp redirect",
            Forwarder::Gtpu => "sluice gtp-u bare",
            Forwarder::GtpuSpread => "sluice gtp-u spread",
            Forwarder::UserPlane => "sluice full user plane",
        }
    }

    pub fn mode(self) -> Option<Mode> {
        match self {
            Forwarder::Tc | Forwarder::TcNat => Some(Mode::Tc),
            Forwarder::Xdp | Forwarder::XdpNat => Some(Mode::Xdp),
            Forwarder::Gtpu | Forwarder::GtpuSpread | Forwarder::UserPlane => Some(Mode::Xdp),
            Forwarder::Generic => Some(Mode::Generic),
            _ => None,
        }
    }

    pub fn is_sluice(self) -> bool {
        self.mode().is_some()
    }

    /// On native XDP on both sides.
    pub fn is_native(self) -> bool {
        self == Forwarder::Redirect || self.mode() == Some(Mode::Xdp)
    }

    /// Takes N3 frames on the lan side.
    pub fn takes_tunnels(self) -> bool {
        self == Forwarder::Redirect || self.surroundings().is_some()
    }

    fn surroundings(self) -> Option<Surroundings> {
        match self {
            Forwarder::Gtpu => Some(Surroundings::Bare),
            Forwarder::GtpuSpread => Some(Surroundings::Spread),
            Forwarder::UserPlane => Some(Surroundings::Full),
            _ => None,
        }
    }
}

/// Two hosts and a gateway of one kind between them. Sockets of the hosts work through it.
pub struct Lane {
    pub forwarder: Forwarder,
    pub site: Site,
    pub sluice: Option<Sluice>,
    bare: Option<(Frames, Vec<Link>)>,
    subscribers: Option<Subscribers>,
}

impl Lane {
    pub fn new(forwarder: Forwarder, label: &str) -> Result<Lane> {
        Lane::with(forwarder, label).with_context(|| format!("cannot set up {}", forwarder.name()))
    }

    fn with(forwarder: Forwarder, label: &str) -> Result<Lane> {
        let site = Site::create(label)?;
        let mut bare = None;
        match forwarder {
            Forwarder::Tc | Forwarder::Xdp | Forwarder::Generic | Forwarder::TcNat | Forwarder::XdpNat => {
                let mode = forwarder.mode().unwrap_or(Mode::Tc);
                let text = match forwarder {
                    Forwarder::TcNat | Forwarder::XdpNat => translating_configuration(mode),
                    _ => configuration(mode, Action::Permit),
                };
                return Lane::of_sluice(forwarder, site, &text);
            }
            Forwarder::Gtpu | Forwarder::GtpuSpread | Forwarder::UserPlane => {
                return Lane::of_tunnels(forwarder, site);
            }
            Forwarder::BareRedirect => {
                bare = Some(bare_redirect(&site, "bare_redirect", Target::TcxIngress)?);
            }
            Forwarder::Redirect => {
                take_redirected(&site)?;
                bare = Some(bare_redirect(&site, "bare_redirect_xdp", Target::XdpNative)?);
            }
            Forwarder::Linux => {}
            Forwarder::Nftables => drop(site.gateway.run("nft", [STATEFUL])?),
            Forwarder::Flowtable => flow_table(&site)?,
            Forwarder::Masquerade => {
                site.gateway.run("nft", [STATEFUL])?;
                site.gateway.run("nft", [MASQUERADE])?;
            }
        }
        Ok(Lane { forwarder, site, sluice: None, bare, subscribers: None })
    }

    /// A subscriber for each flow of the traffic.
    fn of_tunnels(forwarder: Forwarder, mut site: Site) -> Result<Lane> {
        let surroundings = forwarder.surroundings().context("no end of tunnels")?;
        user_plane::prepare(&mut site)?;
        let sessions = FLOWS as u32;
        let mut lane = Lane::of_sluice(forwarder, site, &user_plane::configuration(sessions, surroundings))?;
        let sluice = lane.sluice.as_ref().context("no gateway")?;
        let subscribers = Subscribers::add(sluice, &lane.site, sessions)?;
        if surroundings == Surroundings::Full {
            subscribers.give_everything(sluice)?;
        }
        lane.subscribers = Some(subscribers);
        Ok(lane)
    }

    /// Sluice on one of its hooks, with a site and a configuration of one's own.
    pub fn of_sluice(forwarder: Forwarder, site: Site, text: &str) -> Result<Lane> {
        if forwarder.is_native() || forwarder == Forwarder::Generic {
            take_redirected(&site)?;
        }
        let start = || Sluice::start_with(&site, text, Sizes::default(), true);
        let sluice = Some(site.gateway.enter(start)??);
        Ok(Lane { forwarder, site, sluice, bare: None, subscribers: None })
    }

    /// Packets (segments of larger ones) that the gateway's own program has passed on; None where nobody counts.
    pub fn passed(&self) -> Result<Option<u64>> {
        if let Some(sluice) = &self.sluice {
            return Ok(Some(sluice.dataplane.counters()?.total().redirected));
        }
        Ok(self.bare.as_ref().map(|(frames, _)| frames.bare.read(0).redirected.iter().sum()))
    }

    /// Packets that found the queue of their CPU full, where flows are spread.
    pub fn past_full_queues(&self) -> Result<u64> {
        let Some(sluice) = &self.sluice else { return Ok(0) };
        Ok(sluice.dataplane.counters()?.total_drops().of(Reason::GtpuQueue))
    }

    /// Packets that the rules behind a flow table have seen; None where there is no flow table.
    pub fn past_the_flow_table(&self) -> Result<Option<u64>> {
        if self.forwarder != Forwarder::Flowtable {
            return Ok(None);
        }
        let text = self.site.gateway.run("nft", ["-j", "list", "counter", "inet", "bench", "slow"])?;
        let list: Value = serde_json::from_str(&text)?;
        let entries = list["nftables"].as_array().map(Vec::as_slice).unwrap_or_default();
        let counter = entries.iter().find_map(|entry| entry["counter"]["packets"].as_u64());
        counter.map(Some).context("nft shows no counter")
    }

    /// Packets that the subscribers' sessions have counted; None where there are none.
    pub fn counted(&self) -> Result<Option<u64>> {
        let (Some(sluice), Some(subscribers)) = (&self.sluice, &self.subscribers) else { return Ok(None) };
        subscribers.counted(sluice, Way::Uplink).map(Some)
    }

    /// Sessions that Sluice has made so far.
    pub fn sessions(&self) -> Result<Option<u64>> {
        let Some(sluice) = &self.sluice else { return Ok(None) };
        Ok(Some(sluice.dataplane.counters()?.total().sessions))
    }

    /// What the kernel says of the gateway's devices, against what the figure is named after.
    pub fn mode_check(&self) -> Result<Check> {
        let wanted = match self.forwarder {
            forwarder if forwarder.is_native() => "native XDP",
            Forwarder::Generic => "generic XDP",
            _ => "no XDP",
        };
        let mut found = vec![];
        for device in [LAN, WAN] {
            let text = self.site.gateway.run("ip", ["-j", "-d", "link", "show", "dev", device])?;
            found.push(xdp_mode(&text).with_context(|| format!("`ip -j link` of {device}"))?);
        }
        ensure!(found[0] == found[1], "{LAN} runs {}, {WAN} {}", found[0], found[1]);
        Ok(checks::native_mode(&format!("{LAN} and {WAN} of {}", self.forwarder.name()), found[0], wanted))
    }

    /// Segments with a wrong checksum that the hosts' TCP has refused (`TcpInCsumErrors`).
    pub fn checksum_errors(&self) -> Result<u64> {
        let mut sum = 0;
        for host in [&self.site.lan_host, &self.site.wan_host] {
            let text = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
            sum += snmp(&text, "Tcp", "InCsumErrors").context("the kernel does not count TcpInCsumErrors")?;
        }
        Ok(sum)
    }
}

/// A counter of /proc/net/snmp: a line of names, then a line of values.
pub fn snmp(text: &str, group: &str, name: &str) -> Option<u64> {
    let prefix = format!("{group}: ");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(&prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|word| word == name)?;
    values.split(' ').nth(at)?.parse().ok()
}

/// IFLA_XDP_ATTACHED as `ip -j -d link` prints it: 1 in the driver, 2 generic, 3 offloaded.
fn xdp_mode(json: &str) -> Result<&'static str> {
    let links: Value = serde_json::from_str(json)?;
    Ok(match links[0]["xdp"]["mode"].as_u64() {
        None | Some(0) => "no XDP",
        Some(1) => "native XDP",
        Some(2) => "generic XDP",
        Some(_) => "another XDP",
    })
}

/// Frames redirected by XDP reach a host's device only when that polls, and carry no request to finish a checksum.
fn take_redirected(site: &Site) -> Result<()> {
    for (host, device) in [(&site.lan_host, LAN_HOST), (&site.wan_host, WAN_HOST)] {
        host.run("ethtool", ["-K", device, "gro", "on", "tx", "off"])?;
    }
    Ok(())
}

fn bare_redirect(site: &Site, program: &str, target: Target) -> Result<(Frames, Vec<Link>)> {
    let mut frames = Frames::load()?;
    let port = |from: &Side, to: &Side| BarePort {
        in_ifindex: from.ifindex,
        out_ifindex: to.ifindex,
        dmac: to.host_mac,
        smac: to.mac,
        zero: 0,
    };
    let ports = [port(&site.lan, &site.wan), port(&site.wan, &site.lan)];
    frames.bare.update(0, |bare| bare.port = ports);
    let links = [site.lan.ifindex, site.wan.ifindex]
        .map(|ifindex| frames.attach(program, &site.gateway, ifindex, target));
    Ok((frames, links.into_iter().collect::<Result<Vec<_>>>()?))
}

pub const STATEFUL: &str = "table inet bench { chain forward { type filter hook forward priority 0; policy drop; \
    ct state established,related accept; ct state invalid drop; \
    iifname \"lan0\" oifname \"wan0\" ct state new accept; }; }";

/// In front of the rules of `STATEFUL`. The counter sees what the flow table has not taken.
const FLOWTABLE: &str = "add flowtable inet bench quick { hook ingress priority 0; devices = { lan0, wan0 }; }; \
    add counter inet bench slow; insert rule inet bench forward ct state established flow add @quick; \
    insert rule inet bench forward counter name slow";

/// Whether nftables takes a flow table here (CONFIG_NF_FLOW_TABLE, NF_FLOW_TABLE_INET, NFT_FLOW_OFFLOAD).
pub fn has_flow_tables() -> Result<bool> {
    let netns = sluice_lab::netns::Netns::create("flows")?;
    Ok(netns.run("nft", ["add table inet t; add flowtable inet t f { hook ingress priority 0; }"]).is_ok())
}

/// Datagrams' flows stay in the table as long as any round may take.
fn flow_table(site: &Site) -> Result<()> {
    site.gateway.run("nft", [STATEFUL])?;
    site.gateway
        .run("nft", [FLOWTABLE])
        .context("this kernel takes no nft flowtable (CONFIG_NFT_FLOW_OFFLOAD)")?;
    Ok(site.gateway.sysctl("net.netfilter.nf_flowtable_udp_timeout", "3600")?)
}

pub const MASQUERADE: &str = "table ip bench_nat { chain postrouting { type nat hook postrouting priority 100; \
    oifname \"wan0\" masquerade; }; }";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_the_name_above_them() {
        let text = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: InSegs InCsumErrors\nTcp: 5 7\n";
        assert_eq!(snmp(text, "Tcp", "InCsumErrors"), Some(7));
        assert_eq!(snmp(text, "Ip", "DefaultTTL"), Some(64));
        assert_eq!(snmp(text, "Udp", "InErrors"), None);
    }

    #[test]
    fn the_kernels_word_for_the_mode_is_read() {
        assert_eq!(
            xdp_mode(r#"[{"ifname":"lan0","xdp":{"mode":1,"prog":{"id":7}}}]"#).unwrap(),
            "native XDP"
        );
        assert_eq!(xdp_mode(r#"[{"ifname":"lan0","xdp":{"mode":2}}]"#).unwrap(), "generic XDP");
        assert_eq!(xdp_mode(r#"[{"ifname":"lan0"}]"#).unwrap(), "no XDP");
    }
}
