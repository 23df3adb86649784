//! `show drops --recent`: packets that were dropped, in the names of the configuration in force.

use sluice_abi::stages::{Hook, Reason};
use sluice_abi::{VLAN_ID, VLAN_INNER_SHIFT, VLAN_NULL, VLAN_TWO};
use sluice_dataplane::Headers;
use sluice_language::Tree;
use sluice_language::config::Prefix;
use sluice_plan::contains;

use crate::api::drops::{RecentDrop, RecentDrops, RecentDropsQuery};
use crate::api::{prefix, protocol};
use crate::commit::Shared;
use crate::kernel::clock::unix_ms;
use crate::state::active::Active;
use crate::state::recent_drops::{Entry, KEPT_MS};

/// Bits of the flags byte of TCP, lowest first.
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// Err says what is wrong with the question.
pub fn recent(shared: &Shared, query: &RecentDropsQuery) -> Result<RecentDrops, String> {
    let filter = Filter::new(query)?;
    let (entries, untold) = shared.drops.all(unix_ms());
    let active = shared.active();
    let mut rules = Rules::of(&active);
    let views = entries.iter().map(|entry| view(entry, &active, &mut rules)).filter(|view| filter.fits(view));
    let drops = views.take(query.last.unwrap_or(usize::MAX)).collect();
    Ok(RecentDrops { drops, untold, kept_s: KEPT_MS / 1000 })
}

struct Filter<'a> {
    query: &'a RecentDropsQuery,
    prefix: Option<Prefix>,
    protocol: Option<String>,
}

impl<'a> Filter<'a> {
    fn new(query: &'a RecentDropsQuery) -> Result<Self, String> {
        let read = |text: &String| {
            let wrong = || format!("prefix {text}: expected an address or a prefix, such as 10.0.1.0/24");
            prefix::parse(text).ok_or_else(wrong)
        };
        let known = |name: &str| Reason::ALL.iter().any(|reason| reason.name() == name);
        if let Some(name) = query.reason.as_deref().filter(|name| !known(name)) {
            return Err(format!("there is no reason {name}; `sluice show pipeline` lists them"));
        }
        let protocol = query.protocol.as_deref().map(protocol::parse).transpose()?;
        Ok(Self {
            query,
            prefix: query.prefix.as_ref().map(read).transpose()?,
            protocol: protocol.map(|number| protocol::name(number).into_owned()),
        })
    }

    fn fits(&self, drop: &RecentDrop) -> bool {
        let query = self.query;
        let inside = |prefix: Prefix| {
            let ends = [&drop.source, &drop.destination].into_iter().flatten();
            ends.filter_map(|end| end.parse().ok()).any(|end| contains(prefix, end))
        };
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| has == Some(wanted))
        };
        let interface = |name: &str| drop.interface == name || drop.interface == format!("{name}.0");
        self.prefix.is_none_or(inside)
            && is(&self.protocol, drop.protocol.as_deref())
            && query.port.is_none_or(|port| [drop.source_port, drop.destination_port].contains(&Some(port)))
            && query.interface.as_deref().is_none_or(interface)
            && is(&query.zone, drop.from_zone.as_deref())
            && is(&query.reason, Some(&drop.reason))
    }
}

fn view(entry: &Entry, active: &Active, rules: &mut Rules<'_>) -> RecentDrop {
    let facts = &entry.facts;
    let (policy, place) = rules.policy(Some(facts.reason), facts.policy);
    let ingress = facts.reason.stage().hook() == Hook::Ingress;
    RecentDrop {
        first_unix_ms: entry.first_ms,
        last_unix_ms: entry.last_ms,
        packets: entry.packets,
        interface: device(facts.unit, facts.ifindex, active),
        hook: if ingress { "ingress" } else { "egress" }.to_owned(),
        vlan: tags(facts.vlan),
        from_zone: zone(facts.from_zone, active),
        to_zone: zone(facts.to_zone, active),
        stage: facts.reason.stage().name().to_owned(),
        reason: facts.reason.name().to_owned(),
        help: facts.reason.help().to_owned(),
        tcp_flags: entry.tcp_flags.map(tcp_flags),
        policy,
        nat_destination_rule: active.nat_rule_name(facts.nat_destination),
        nat_source_rule: active.nat_rule_name(facts.nat_source),
        place,
        ..packet(&facts.headers)
    }
}

/// Policies by name, and where they stand in the configuration in force.
pub(super) struct Rules<'a> {
    active: &'a Active,
    /// Its text, parsed once a location is asked for.
    tree: Option<Option<Tree>>,
}

impl<'a> Rules<'a> {
    pub fn of(active: &'a Active) -> Self {
        Self { active, tree: None }
    }

    /// Which one decided, and its location.
    pub fn policy(&mut self, reason: Option<Reason>, id: u32) -> (Option<String>, Option<String>) {
        if reason == Some(Reason::PolicyDefault) {
            let words = ["security", "policies", "default-policy"];
            return (Some("default-policy".to_owned()), self.location(&words));
        }
        let Some(policy) = self.active.plan.policies.get(&id) else {
            return ((id != 0).then(|| self.active.policy_name(id).to_owned()), None);
        };
        let name = policy.name.as_str();
        let place = match &policy.context {
            None => self.location(&["security", "policies", "global", "policy", name]),
            Some((from, to)) => {
                self.location(&["security", "policies", "from-zone", from, "to-zone", to, "policy", name])
            }
        };
        (Some(name.to_owned()), place)
    }

    fn location(&mut self, words: &[&str]) -> Option<String> {
        let active = self.active;
        let read = || sluice_language::parse(&active.text, &active.file).ok();
        let found = self.tree.get_or_insert_with(read).as_ref()?.place_of(words)?;
        Some(format!("{}:{}", found.file, found.line))
    }
}

/// Of the configuration, else the device that the frame came to.
pub(super) fn device(unit: u16, ifindex: u32, active: &Active) -> String {
    if unit != 0 {
        return active.unit_name(unit).to_owned();
    }
    nix::net::if_::if_indextoname(ifindex)
        .map_or_else(|_| format!("ifindex {ifindex}"), |name| name.to_string_lossy().into_owned())
}

pub(super) fn zone(id: u16, active: &Active) -> Option<String> {
    (id != sluice_abi::ZONE_NONE).then(|| active.zone_name(id).to_owned())
}

fn tags(vlan: u32) -> Option<String> {
    if vlan == 0 || vlan == VLAN_NULL {
        return None;
    }
    let outer = (vlan & VLAN_ID).to_string();
    let inner = vlan >> VLAN_INNER_SHIFT & VLAN_ID;
    Some(if vlan & VLAN_TWO == 0 { outer } else { format!("{outer}.{inner}") })
}

/// What the headers say; the rest is left empty.
pub(super) fn packet(headers: &Headers) -> RecentDrop {
    let ends = headers.addresses;
    RecentDrop {
        source: ends.map(|(source, _)| source.to_string()),
        source_port: headers.ports.map(|(source, _)| source),
        destination: ends.map(|(_, destination)| destination.to_string()),
        destination_port: headers.ports.map(|(_, destination)| destination),
        protocol: headers.protocol.map(|number| protocol::name(number).into_owned()),
        icmp: headers.icmp,
        frame: headers.macs.filter(|_| headers.protocol.is_none()).map(|(from, to)| {
            let kind = headers.ethertype.map_or_else(|| "cut off".to_owned(), |kind| format!("{kind:#06x}"));
            format!("EtherType {kind}, {from} to {to}")
        }),
        ..RecentDrop::default()
    }
}

pub(super) fn tcp_flags(flags: u8) -> String {
    let set = TCP_FLAGS.iter().enumerate().filter(|(bit, _)| flags & (1 << bit) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_flags_are_written_as_operators_do() {
        assert_eq!((tags(0), tags(VLAN_NULL)), (None, None));
        assert_eq!(tags(100), Some("100".to_owned()));
        assert_eq!(tags(VLAN_TWO | 7 << VLAN_INNER_SHIFT | 100), Some("100.7".to_owned()));
        assert_eq!(tcp_flags(0x12), "syn ack");
        assert_eq!(tcp_flags(0), "");
    }
}
