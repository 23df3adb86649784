//! The configuration of FRR: a pure function of ours, in the form in which `show running-config` prints it.
//!
//! Lines that belong to a context stand one blank further in than the line that opens it; what closes it is left out.

mod bgp;
mod inbound;
mod lists;
mod maps;
mod ospf;

use std::collections::{BTreeMap, BTreeSet};

use sluice_language::Config;
use sluice_language::config::{Prefix, StaticRoute};
use sluice_language::protocols::{Bfd, Origin};

use lists::Lists;
use maps::Maps;

pub(crate) use inbound::warnings;

/// All that FRR gets; empty when it has nothing to do.
pub(crate) fn text(config: &Config) -> String {
    if !config.protocols.any() {
        return String::new();
    }
    let mut writer = Writer::new(config);
    if let Some(bgp) = &config.protocols.bgp {
        bgp::write(&mut writer, bgp);
    }
    for (six, ospf) in [(false, &config.protocols.ospf), (true, &config.protocols.ospf3)] {
        if let Some(ospf) = ospf {
            ospf::write(&mut writer, ospf, six);
        }
    }
    writer.finish()
}

/// What is gathered while protocols are gone through.
struct Writer<'a> {
    config: &'a Config,
    lists: Lists,
    maps: Maps<'a>,
    bfd: BTreeSet<Bfd>,
    /// By device.
    interfaces: BTreeMap<String, Vec<String>>,
    routers: Vec<String>,
}

impl<'a> Writer<'a> {
    fn new(config: &'a Config) -> Self {
        Writer {
            config,
            lists: Lists::default(),
            maps: Maps::new(&config.protocols.policies),
            bfd: BTreeSet::new(),
            interfaces: BTreeMap::new(),
            routers: vec![],
        }
    }

    /// The name that FRR has such timers by.
    fn profile(&mut self, bfd: Bfd) -> String {
        self.bfd.insert(bfd);
        profile_name(bfd)
    }

    /// `routing-options static` of a family: zebra takes them for routes of the kernel, among those of everyone else, and
    /// only their prefixes tell them apart.
    fn statics(&self, six: bool) -> Vec<Prefix> {
        let of_family = |route: &&StaticRoute| route.destination.addr.is_ipv6() == six;
        let mut prefixes: Vec<Prefix> =
            self.config.static_routes.iter().filter(of_family).map(|route| route.destination).collect();
        prefixes.sort_by_key(|prefix| (prefix.addr, prefix.len));
        prefixes.dedup();
        prefixes
    }

    /// Where routes of a family may come from besides BGP.
    fn origins(&self, six: bool) -> Vec<Origin> {
        let protocols = &self.config.protocols;
        let has = |origin: &Origin| match origin {
            Origin::Bgp => protocols.bgp.is_some(),
            Origin::Direct => true,
            Origin::Ospf => protocols.ospf.is_some() && !six,
            Origin::Ospf3 => protocols.ospf3.is_some() && six,
            Origin::Static => !self.statics(six).is_empty(),
        };
        let all = [Origin::Bgp, Origin::Direct, Origin::Ospf, Origin::Ospf3, Origin::Static];
        all.into_iter().filter(has).collect()
    }

    fn finish(self) -> String {
        let mut lines = self.lists.lines();
        lines.extend(self.maps.lines());
        if !self.bfd.is_empty() {
            lines.push("bfd".to_owned());
        }
        for bfd in &self.bfd {
            lines.push(format!(" profile {}", profile_name(*bfd)));
            lines.push(format!("  detect-multiplier {}", bfd.multiplier));
            lines.push(format!("  transmit-interval {}", bfd.interval_ms));
            lines.push(format!("  receive-interval {}", bfd.interval_ms));
        }
        for (device, statements) in self.interfaces {
            lines.push(format!("interface {device}"));
            lines.extend(statements.into_iter().map(|statement| format!(" {statement}")));
        }
        lines.extend(self.routers);
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

fn profile_name(bfd: Bfd) -> String {
    format!("sluice-{}x{}", bfd.interval_ms, bfd.multiplier)
}

/// As FRR calls it; static routes are Sluice's own and in the kernel.
fn word(origin: Origin) -> &'static str {
    match origin {
        Origin::Bgp => "bgp",
        Origin::Direct => "connected",
        Origin::Ospf => "ospf",
        Origin::Ospf3 => "ospf6",
        Origin::Static => "kernel",
    }
}

fn family(six: bool) -> &'static str {
    if six { "v6" } else { "v4" }
}
