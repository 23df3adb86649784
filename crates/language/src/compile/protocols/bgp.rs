//! `protocols bgp`: neighbours with what they have of their groups.

use std::collections::HashMap;
use std::net::IpAddr;

use super::super::instances::Subnets;
use super::super::view::View;
use super::{Use, bfd, key, named, plain};
use crate::config::Prefix;
use crate::error::Report;
use crate::protocols::{Bgp, Family, GracefulRestart, Neighbor, Peer, PolicyStatement};
use crate::schema::kind::{first_address, last_address, prefix};

/// Junos's, where FRR has 180.
const HOLD_TIME_S: u16 = 90;
/// Junos's, of sessions over hops.
const TTL: u8 = 64;

pub(super) fn compile(
    top: View,
    policies: &[PolicyStatement],
    subnets: &Subnets,
    report: &mut Report,
) -> Option<Bgp> {
    let bgp = top.path(&["protocols", "bgp"])?;
    let own = top.value(&["routing-options", "autonomous-system"]).and_then(View::number);
    let Some(autonomous_system) = own else {
        let message = "`protocols bgp` without an AS of our own".to_owned();
        report.error_help(&bgp.location(), message, "add `routing-options autonomous-system`");
        return None;
    };
    let around = Around { top, policies, subnets, autonomous_system };
    let graceful_restart = graceful_restart(top, bgp);
    let mut compiled =
        Bgp { autonomous_system, multipath: (false, false), graceful_restart, neighbors: vec![] };
    let mut seen: HashMap<String, View> = HashMap::new();
    for group in bgp.entries(&["group"]) {
        let internal = is_internal(group);
        if group.has("multipath") {
            let of_type = if internal { &mut compiled.multipath.1 } else { &mut compiled.multipath.0 };
            *of_type = true;
        }
        let allowed = group.child("allow").into_iter();
        for view in group.entries(&["neighbor"]).chain(allowed) {
            if view.word() != "allow"
                && let Some(other) = seen.insert(around.canonical(view), view)
            {
                let message = format!(
                    "neighbor `{}` stands in group `{}` already",
                    view.word(),
                    other.above().above().word()
                );
                report.error_help(&view.location(), message, "a neighbour belongs to one group");
            }
            compiled.neighbors.extend(around.neighbor(group, view, internal, report));
        }
    }
    Some(compiled)
}

/// Of all protocols, or of this one alone; `disable` of either counts.
fn graceful_restart(top: View, bgp: View) -> Option<GracefulRestart> {
    let own = bgp.child("graceful-restart");
    let mut said = top.path(&["routing-options", "graceful-restart"]).into_iter().chain(own).peekable();
    said.peek()?;
    if said.any(|view| view.has("disable")) {
        return None;
    }
    let seconds = |name: &str| own?.value(&[name]).and_then(View::number);
    Some(GracefulRestart { restart_s: seconds("restart-time"), stale_s: seconds("stale-routes-time") })
}

fn is_internal(group: View) -> bool {
    group.value(&["type"]).is_some_and(|of| of.word() == "internal")
}

struct Around<'a> {
    top: View<'a>,
    policies: &'a [PolicyStatement],
    subnets: &'a Subnets<'a>,
    autonomous_system: u32,
}

impl Around<'_> {
    fn canonical(&self, view: View) -> String {
        view.word().parse::<IpAddr>().map_or_else(|_| view.word().to_owned(), |address| address.to_string())
    }

    fn neighbor(&self, group: View, view: View, internal: bool, report: &mut Report) -> Option<Neighbor> {
        // what a neighbour says for itself stands for the group's
        let of = |name: &str| view.child(name).or_else(|| group.child(name));
        let value = |name: &str| of(name).and_then(|found| found.children().next());
        let peer = match view.word() {
            "allow" => Peer::Any(
                group.word().to_owned(),
                view.children().filter_map(|range| prefix(range.word()).ok()).collect(),
            ),
            word => Peer::Address(word.parse().ok()?),
        };
        let peer_as = self.peer_as(view, value("peer-as"), internal, report)?;
        let local_address: Option<IpAddr> = value("local-address").and_then(|v| v.word().parse().ok());
        if let (Some(local), Some(at)) = (local_address, value("local-address")) {
            self.is_own(local, &peer, at, report);
        }
        // the routes of the main instance may lead over hops to what is also an address of another one's subnet
        let over_hops = if internal { local_address.is_some() } else { of("multihop").is_some() };
        if !over_hops {
            self.is_of_main(view, &peer, internal, report);
        }
        let (inet, inet6) = families(of("family"), &peer);
        let mut policies =
            |name, purpose| of(name).map(|list| named(list, self.policies, self.top, purpose, report));
        let (import, export) = (policies("import", Use::Import), policies("export", Use::Export));
        let multihop =
            of("multihop").map(|multihop| multihop.value(&["ttl"]).and_then(View::number).unwrap_or(TTL));
        Some(Neighbor {
            peer,
            peer_as,
            local_as: value("local-as")
                .and_then(View::number)
                .filter(|number| *number != self.autonomous_system),
            local_address,
            multihop: multihop.filter(|_| !internal),
            description: value("description").map(|text| plain(text, report)),
            shutdown: view.has("shutdown"),
            key: value("authentication-key").map(|text| key(text, 80, report)),
            hold_time_s: value("hold-time").and_then(View::number).unwrap_or(HOLD_TIME_S),
            graceful_restart: of("graceful-restart").is_some(),
            bfd: bfd(view).or_else(|| bfd(group)),
            inet,
            inet6,
            import: import.unwrap_or_default(),
            export: export.unwrap_or_default(),
        })
    }

    fn peer_as(&self, view: View, given: Option<View>, internal: bool, report: &mut Report) -> Option<u32> {
        let own = self.autonomous_system;
        let number: Option<u32> = given.and_then(View::number);
        let (message, help) = match (internal, number) {
            (true, None) => return Some(own),
            (true, Some(number)) if number == own => return Some(own),
            (false, Some(number)) if number != own => return Some(number),
            (true, Some(number)) => {
                (format!("an internal neighbour of AS {number}, not of our own, {own}"), "remove `peer-as`")
            }
            (false, Some(_)) => (
                format!("an external neighbour of our own AS, {own}"),
                "correct `peer-as`, or set `type internal`",
            ),
            (false, None) => {
                (format!("`{}` has no AS", view.context()), "add `peer-as`, to it or to its group")
            }
        };
        report.error_help(&given.unwrap_or(view).location(), message, help);
        None
    }

    fn is_own(&self, local: IpAddr, peer: &Peer, at: View, report: &mut Report) {
        let has = |subnets: &[Prefix]| subnets.iter().any(|prefix| prefix.addr == local);
        let other_family = matches!(peer, Peer::Address(peer) if peer.is_ipv4() != local.is_ipv4());
        if other_family || !self.subnets.get(&None).is_some_and(|own| has(own)) {
            let message = match self.instance(|subnets| has(subnets)).filter(|_| !other_family) {
                Some(name) => format!(
                    "`{local}` is an address of routing-instance `{name}`, in which BGP is not spoken yet"
                ),
                None => format!("`{local}` is no address of this gateway that the neighbour could speak to"),
            };
            report.error_help(
                &at.location(),
                message,
                "name an address of `interfaces`, of the neighbour's family",
            );
        }
    }

    /// The first instance, by its name, whose subnets are so.
    fn instance(&self, is_so: impl Fn(&[Prefix]) -> bool) -> Option<&str> {
        self.subnets.iter().filter(|(_, subnets)| is_so(subnets)).filter_map(|(name, _)| *name).min()
    }

    /// A neighbour on a link of an instance would be looked for in the main one, where it is not.
    fn is_of_main(&self, view: View, peer: &Peer, internal: bool, report: &mut Report) {
        let places: Vec<(View, Prefix)> = match peer {
            Peer::Address(addr) => {
                vec![(view, Prefix { addr: *addr, len: if addr.is_ipv4() { 32 } else { 128 } })]
            }
            Peer::Any(..) => {
                view.children().filter_map(|range| Some((range, prefix(range.word()).ok()?))).collect()
            }
        };
        for (at, place) in places {
            let (low, high) = (first_address(place), last_address(place));
            let within = |own: &Prefix| first_address(*own) <= low && high <= last_address(*own);
            let meets = |own: &Prefix| first_address(*own) <= high && low <= last_address(*own);
            if self.subnets.get(&None).is_some_and(|own| own.iter().any(meets)) {
                continue;
            }
            let Some(name) = self.instance(|subnets| subnets.iter().any(within)) else { continue };
            let message = format!(
                "`{}` is on a link of routing-instance `{name}`, in which BGP is not spoken yet",
                at.word()
            );
            let word = if internal { "local-address" } else { "multihop" };
            let help = format!(
                "leave its unit in the main one, or add `{word}` where routes of the main one lead to the neighbour"
            );
            report.error_help(&at.location(), message, help);
        }
    }
}

/// Those that are named, else that of the neighbour's address.
fn families(view: Option<View>, peer: &Peer) -> (Option<Family>, Option<Family>) {
    let limit = |unicast: View| {
        let limit = unicast.child("prefix-limit")?;
        Some((limit.value(&["maximum"]).and_then(View::number)?, limit.has("teardown")))
    };
    let family = |name: &str| {
        let unicast = view?.path(&[name, "unicast"])?;
        Some(Family { limit: limit(unicast) })
    };
    match (family("inet"), family("inet6")) {
        (None, None) => {
            let four = match peer {
                Peer::Address(address) => address.is_ipv4(),
                Peer::Any(_, ranges) => ranges.iter().all(|range| range.addr.is_ipv4()),
            };
            (four.then(Family::default), (!four).then(Family::default))
        }
        named => named,
    }
}
