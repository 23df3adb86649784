//! A gateway to measure: a namespace with two links, the kernel's routes, and Sluice's data plane from a configuration.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sluice_dataplane::{Attachment, Dataplane, Generation, LocalKind, ObjectKind, Sizes, Variant};
use sluice_lab::netns::{Netns, VethEnd, veth_of_queues};
use sluice_language::{compile, parse};
use sluice_plan::{Environment, Ids, IngressHook, NetDev, Plan};

use crate::harness::Hook;
use crate::ruleset::{Rules, Then};

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
}

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
        Ok(Site { lan_host, gateway, wan_host, lan, wan, outside: None })
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

    fn sides(&self) -> impl Iterator<Item = &Side> {
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

/// How Sluice takes packets off a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Tc,
    Xdp,
    Generic,
}

impl Mode {
    /// As the configuration says it.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Tc => "tc",
            Mode::Xdp => "xdp",
            Mode::Generic => "generic",
        }
    }
}

impl From<Hook> for Mode {
    fn from(hook: Hook) -> Mode {
        match hook {
            Hook::Xdp => Mode::Xdp,
            Hook::Tc => Mode::Tc,
        }
    }
}

/// What the only policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Permit,
    /// There is none: the default denies.
    Default,
}

/// Both links in one zone: prog-run has one ingress device a call, and both directions of a session must be at home on
/// it. Everything else is what a branch would have.
pub fn configuration(mode: Mode, action: Action) -> String {
    let mode = mode.word();
    let interface = |name: &str, v4: &str, v6: &str| {
        format!(
            "{name} {{ mode {mode}; unit 0 {{ family inet {{ address {v4}; }} family inet6 {{ address {v6}; }} }} }}\n"
        )
    };
    let policies = match action {
        Action::Permit => {
            "policies { from-zone inside to-zone inside { policy all {\n\
             match { source-address any; destination-address any; application any; } then { permit; } } } }\n"
        }
        Action::Default => "",
    };
    format!(
        "interfaces {{\n{}{}}}\n\
         security {{\n\
         flow {{ max-unanswered 100; }}\n\
         zones {{ security-zone inside {{ interfaces {{ lan0.0; wan0.0; }} }} }}\n\
         {policies}}}\n",
        interface(LAN, "192.0.2.1/24", "fd00:1::1/64"),
        interface(WAN, "198.51.100.1/24", "fd00:2::1/64"),
    )
}

/// The same with the source of what goes from lan to wan translated to the address of wan.
pub fn translating_configuration(mode: Mode) -> String {
    configuration(mode, Action::Permit)
        + "security { nat { source { rule-set out { from interface lan0.0; to interface wan0.0;\n\
           rule all { match { source-address [ 0.0.0.0/0 ::/0 ]; } then { source-nat interface; } } } } } }\n"
}

/// The same with so many policies, each of which decides about as many of the bench's packets as the others; the first
/// match permits or denies.
pub fn ruled_configuration(mode: Mode, rules: usize, then: Then) -> String {
    match (rules, then) {
        (1, Then::Permit) => configuration(mode, Action::Permit),
        (1, Then::Deny) => configuration(mode, Action::Default),
        _ => configuration(mode, Action::Default) + &Rules::new(rules, then).text("inside"),
    }
}

/// Screens that no packet of the bench falls foul of: those that look at one packet, and those that count TCP and ICMP.
pub const SCREENS: &str = "icmp { flood { threshold 1000000; } ip-sweep { threshold 1000; } large; fragment; }\n\
    ip { bad-option; record-route-option; security-option; stream-option; tear-drop; unknown-protocol; }\n\
    tcp { land; syn-fin; tcp-no-flag; fin-no-ack; winnuke; syn-frag; port-scan { threshold 1000; }\n\
    syn-flood { alarm-threshold 1000000; attack-threshold 1000000; destination-threshold 1000000; } }\n";

/// The one that counts datagrams.
pub const UDP_FLOOD: &str = "udp { flood { threshold 1000000; } }\n";

/// A configuration of this module with screens of its zone.
pub fn screened(text: &str, screens: &str) -> String {
    let zone = "security-zone inside {";
    text.replace(zone, &format!("{zone} screen bench;"))
        + &format!("security {{ screen {{ ids-option bench {{ {screens} }} }} }}\n")
}

/// The same with the third host in a zone of its own, from which so many policies deny everything.
pub fn closed_configuration(mode: Mode, rules: usize) -> String {
    configuration(mode, Action::Permit)
        + &format!(
            "interfaces {{ {OUTSIDE} {{ mode {}; unit 0 {{ family inet {{ address 203.0.113.1/24; }} }} }} }}\n\
             security {{ zones {{ security-zone outside {{ interfaces {{ {OUTSIDE}.0; }} }} }} }}\n",
            mode.word()
        )
        + &Rules::new(rules, Then::Deny).between("outside", "inside")
}

/// UDP to this port is denied by [`denying_configuration`].
pub const DENIED_PORT: u16 = 9;

/// The same with a policy that denies a port before the one that permits everything, and a screen: something for every
/// stage to say no to.
pub fn denying_configuration(mode: Mode) -> String {
    let permit = "policy all {";
    let deny = "policy discard { match { source-address any; destination-address any; application discard; } \
        then { deny; } }\n";
    let zone = "security-zone inside {";
    configuration(mode, Action::Permit)
        .replace(permit, &format!("{deny}{permit}"))
        .replace(zone, &format!("{zone} screen edge;"))
        + &format!(
            "security {{ screen {{ ids-option edge {{ tcp {{ land; }} }} }} }}\n\
             applications {{ application discard {{ protocol udp; destination-port {DENIED_PORT}; }} }}\n"
        )
}

/// Sluice's data plane on the gateway of a site. Must live and run on a thread inside the gateway's namespace.
pub struct Sluice {
    pub dataplane: Dataplane,
    pub plan: Plan,
    pub generation: Generation,
    /// From nothing to the first attached program (or to the switch, when nothing is attached).
    pub load_seconds: f64,
    pin: Pin,
}

const PINS: &str = "/sys/fs/bpf/sluice";

/// Removes the namespaces and pins of benches that were killed.
pub fn remove_leftovers() {
    sluice_lab::netns::remove_leftovers();
    let Ok(entries) = std::fs::read_dir(PINS) else { return };
    for entry in entries.flatten() {
        if is_leftover(&entry.file_name().to_string_lossy()) {
            drop(Pin(entry.path()));
        }
    }
}

/// `bench-<pid>-<n>` whose maker does not live.
fn is_leftover(name: &str) -> bool {
    let pid = name.strip_prefix("bench-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// Removes what is pinned, also after an error.
struct Pin(PathBuf);

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = sluice_dataplane::cleanup(&self.0) {
            eprintln!("sluice bench: cannot remove {}: {error}", self.0.display());
        }
    }
}

impl Sluice {
    pub fn start(site: &Site, mode: impl Into<Mode>, sizes: Sizes, attach: bool) -> Result<Sluice> {
        Sluice::start_with(site, &configuration(mode.into(), Action::Permit), sizes, attach)
    }

    /// The same with a configuration of one's own, in text.
    pub fn start_with(site: &Site, text: &str, sizes: Sizes, attach: bool) -> Result<Sluice> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let pin = Pin(Path::new(PINS).join(format!("bench-{}-{n}", std::process::id())));
        let plan = plan(site, text)?;
        let began = Instant::now();
        let dataplane = Dataplane::open(&pin.0, sizes).context("cannot make the data plane's maps")?;
        let generation =
            dataplane.load(&plan.tables, &variants(&plan), 1).context("cannot load the data plane")?;
        dataplane.switch(&generation);
        let addresses = plan
            .units
            .iter()
            .flat_map(|unit| &unit.addresses)
            .map(|prefix| (0, prefix.addr, LocalKind::Address));
        dataplane.set_local_addresses(&addresses.collect::<Vec<_>>())?;
        if attach {
            attach_all(&dataplane, &plan)?;
        }
        let load_seconds = began.elapsed().as_secs_f64();
        Ok(Sluice { dataplane, plan, generation, load_seconds, pin })
    }

    /// Seconds that a commit of this text takes, from the text to the switch.
    pub fn commit(&mut self, site: &Site, text: &str) -> Result<f64> {
        let began = Instant::now();
        self.put_in_force(plan(site, text)?)?;
        Ok(began.elapsed().as_secs_f64())
    }

    fn put_in_force(&mut self, plan: Plan) -> Result<()> {
        self.generation =
            self.dataplane.load(&plan.tables, &variants(&plan), self.generation.number() + 1)?;
        self.dataplane.switch(&self.generation);
        self.plan = plan;
        Ok(())
    }

    /// Ends every session.
    pub fn close_all(&self) -> Result<()> {
        let ids: Vec<_> = self.dataplane.sessions().map(|session| session.id).collect();
        self.dataplane.delete_sessions(&ids)?;
        Ok(())
    }

    /// The root of the variant that the first device runs.
    pub fn root(&self, hook: Hook) -> Result<OwnedFd> {
        let variant = self.plan.attachments.first().map_or(0, |attachment| attachment.variant);
        Ok(self.dataplane.root_program(object_kind(hook), variant)?)
    }

    pub fn pin(&self) -> &Path {
        &self.pin.0
    }
}

pub fn object_kind(hook: Hook) -> ObjectKind {
    match hook {
        Hook::Xdp => ObjectKind::Xdp,
        Hook::Tc => ObjectKind::Tc,
    }
}

fn variants(plan: &Plan) -> Vec<Variant> {
    plan.variants.iter().map(|variant| Variant::new(variant.stage_mask)).collect()
}

fn plan(site: &Site, text: &str) -> Result<Plan> {
    let tree = parse(text, "bench.conf")?;
    let config = compile(&tree)?;
    let netdev = |side: &Side| {
        let found = NetDev {
            ifindex: side.ifindex,
            mac: side.mac,
            mtu: 1500,
            driver: "veth".to_owned(),
            mtu_range: None,
            ..Default::default()
        };
        (side.device.to_owned(), found)
    };
    let environment = Environment { netdevs: site.sides().map(netdev).collect(), ..Environment::default() };
    Ok(sluice_plan::compile(&config, &environment, &mut Ids::default(), 1)?)
}

fn attach_all(dataplane: &Dataplane, plan: &Plan) -> Result<()> {
    for attachment in &plan.attachments {
        let hook = match attachment.ingress {
            Some(IngressHook::Tc) => sluice_dataplane::Hook::Tc,
            Some(IngressHook::XdpNative) => sluice_dataplane::Hook::XdpNative,
            Some(IngressHook::XdpGeneric) => sluice_dataplane::Hook::XdpGeneric,
            None => sluice_dataplane::Hook::EgressOnly,
        };
        let wanted = Attachment { ifindex: attachment.ifindex, hook, variant: attachment.variant };
        dataplane.attach(&wanted).with_context(|| format!("cannot attach to {}", attachment.device))?;
    }
    Ok(())
}

/// The counters of a run that every established packet must explain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub received: u64,
    pub redirected: u64,
    pub slow: u64,
    pub sessions: u64,
    pub rejudged: u64,
    pub dropped: u64,
}

impl Tally {
    pub fn read(dataplane: &Dataplane) -> Result<Tally> {
        let counters = dataplane.counters()?;
        let total = counters.total();
        Ok(Tally {
            received: total.received,
            redirected: total.redirected,
            slow: total.slow,
            sessions: total.sessions,
            rejudged: total.rejudged,
            dropped: counters.total_drops().packets.iter().sum(),
        })
    }

    pub fn since(self, before: Tally) -> Tally {
        Tally {
            received: self.received - before.received,
            redirected: self.redirected - before.redirected,
            slow: self.slow - before.slow,
            sessions: self.sessions - before.sessions,
            rejudged: self.rejudged - before.rejudged,
            dropped: self.dropped - before.dropped,
        }
    }

    /// Every packet was redirected, and nothing else happened; the slow line may have helped with a few whose index
    /// entries collide.
    pub fn all_replayed(self, packets: u64) -> Result<()> {
        let wanted = Tally { received: packets, redirected: packets, slow: self.slow, ..Tally::default() };
        ensure!(
            self == wanted && self.slow <= packets / MOST_SLOW,
            "of {packets} established packets the data plane counted {self:?}"
        );
        Ok(())
    }
}

/// At most one established packet in so many may take the slow line.
const MOST_SLOW: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pins_of_the_dead_are_left_over() {
        assert!(is_leftover("bench-4294967295-0"));
        for kept in [format!("bench-{}-0", std::process::id()), "default".to_owned(), "bench-x-1".to_owned()]
        {
            assert!(!is_leftover(&kept), "{kept}");
        }
    }

    #[test]
    fn an_unexplained_packet_makes_no_figure() {
        let good = Tally { received: 10_000, redirected: 10_000, slow: 10, ..Tally::default() };
        assert!(good.all_replayed(10_000).is_ok());
        for wrong in [
            Tally { slow: 11, ..good },
            Tally { redirected: 9_999, dropped: 1, ..good },
            Tally { received: 9_999, redirected: 9_999, ..good },
            Tally { sessions: 1, ..good },
            Tally { rejudged: 1, ..good },
        ] {
            assert!(wrong.all_replayed(10_000).is_err(), "{wrong:?}");
        }
    }
}
