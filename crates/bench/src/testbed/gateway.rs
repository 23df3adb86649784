//! Sluice as the gateway of a site: its configurations, and its data plane made of one.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sluice_dataplane::{Attachment, Dataplane, Generation, Hooks, LocalKind, ObjectKind, Sizes, Variant};
use sluice_lab::state;
use sluice_language::{compile, parse};
use sluice_plan::{Environment, Ids, IngressHook, NetDev, Plan};

use crate::generator::harness::Hook;
use crate::generator::site::{LAN, OUTSIDE, Side, Site, WAN};
use crate::testbed::ruleset::{Rules, Then};

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

/// Removes the namespaces, state directories, captures and pins of benches that were killed.
pub fn remove_leftovers() {
    state::remove_leftovers();
    state::left_in(Path::new(PINS), "bench-").into_iter().for_each(|left| drop(Pin(left)));
    let left_in = |prefix| state::left_in(&std::env::temp_dir(), prefix);
    for left in [CAPTURES, SCRATCH].into_iter().flat_map(left_in) {
        let is_folder = left.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_folder { std::fs::remove_dir_all(&left) } else { std::fs::remove_file(&left) };
        if let Err(error) = removed {
            eprintln!("sluice bench: cannot remove {}: {error}", left.display());
        }
    }
}

/// Folders of captures are named by this and a pid.
pub const CAPTURES: &str = "sluice-bench-monitor-";
/// Likewise files and folders of what is started beside.
const SCRATCH: &str = "sluice-bench-";

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
        let sizes = sizes.with_room(plan.units.len(), plan.zones.len());
        let began = Instant::now();
        let dataplane = Dataplane::open(&pin.0, sizes).context("cannot make the data plane's maps")?;
        let generation =
            dataplane.load(&plan.tables, &variants(&plan), 1).context("cannot load the data plane")?;
        dataplane.switch(&generation);
        let addresses = plan.units.iter().flat_map(|unit| {
            let instance = plan.kernel.instance_of(&unit.device).map_or(0, |own| own.number);
            unit.addresses.iter().map(move |prefix| (instance, prefix.addr, LocalKind::Address))
        });
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
    let of = |stage_mask: u32| {
        let variant = Variant::new(stage_mask);
        Variant { hooks: Hooks { cpu: plan.tables.spread.queue > 0, ..variant.hooks }, ..variant }
    };
    plan.variants.iter().map(|variant| of(variant.stage_mask)).collect()
}

fn plan(site: &Site, text: &str) -> Result<Plan> {
    let tree = parse(text, "bench.conf")?;
    let config = compile(&tree)?;
    let netdev = |(name, ifindex, mac): (&str, u32, [u8; 6])| {
        let found = NetDev {
            ifindex,
            mac,
            mtu: 1500,
            driver: "veth".to_owned(),
            mtu_range: None,
            ..Default::default()
        };
        (name.to_owned(), found)
    };
    let sides = site.sides().map(|side: &Side| (side.device, side.ifindex, side.mac));
    let more =
        site.mobile.iter().chain(&site.tenants).map(|(name, ifindex, mac)| (name.as_str(), *ifindex, *mac));
    let netdevs = sides.chain(more).map(netdev).collect();
    let environment = Environment { netdevs, ..Environment::default() };
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
            // hosts on real links ask for neighbours and join groups whenever they like
            received: total.received - total.delivered_local,
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

    /// Every packet was redirected, and nothing else happened; the slow path may have helped with a few whose index
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

/// At most one established packet in so many may take the slow path.
const MOST_SLOW: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

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
