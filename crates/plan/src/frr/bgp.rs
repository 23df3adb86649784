//! `router bgp`

use sluice_language::protocols::{Bgp, Family, GracefulRestart, Neighbor, Origin, Peer, Verdict};

use super::maps::{Use, tag};
use super::{Writer, family, word};

/// Paths that share traffic where they may.
const PATHS: u32 = 16;

pub(super) fn write(writer: &mut Writer<'_>, bgp: &Bgp) {
    let mut lines = vec![format!("router bgp {}", bgp.autonomous_system)];
    lines.extend(writer.config.protocols.router_id.map(|id| format!(" bgp router-id {id}")));
    if let Some(GracefulRestart { restart_s, stale_s }) = bgp.graceful_restart {
        let mut say = |text: &str| lines.push(format!(" bgp graceful-restart{text}"));
        restart_s.iter().for_each(|seconds| say(&format!(" restart-time {seconds}")));
        stale_s.iter().for_each(|seconds| say(&format!(" stalepath-time {seconds}")));
        say("");
        // what the kernel has stays in it, and neighbours are told so
        say(" preserve-fw-state");
    }
    // Junos's defaults stand at the ends of the route maps
    lines.push(" no bgp ebgp-requires-policy".to_owned());
    lines.push(" no bgp default ipv4-unicast".to_owned());
    for neighbor in &bgp.neighbors {
        session(writer, neighbor, &mut lines);
    }
    for six in [false, true] {
        let members: Vec<(&Neighbor, Family)> =
            bgp.neighbors.iter().filter_map(|n| Some((n, if six { n.inet6 } else { n.inet }?))).collect();
        if !members.is_empty() {
            address_family(writer, bgp, &members, six, &mut lines);
        }
    }
    writer.routers.extend(lines);
}

fn peer(neighbor: &Neighbor) -> String {
    match &neighbor.peer {
        Peer::Address(address) => address.to_string(),
        Peer::Any(group, _) => group.clone(),
    }
}

fn session(writer: &mut Writer<'_>, neighbor: &Neighbor, lines: &mut Vec<String>) {
    let peer = peer(neighbor);
    let mut say = |text: String| lines.push(format!(" neighbor {peer} {text}"));
    if let Peer::Any(..) = &neighbor.peer {
        say("peer-group".to_owned());
    }
    say(format!("remote-as {}", neighbor.peer_as));
    neighbor.local_as.iter().for_each(|number| say(format!("local-as {number}")));
    neighbor.description.iter().for_each(|text| say(format!("description {text}")));
    if neighbor.shutdown {
        say("shutdown".to_owned());
    }
    neighbor.key.iter().for_each(|key| say(format!("password {key}")));
    neighbor.multihop.iter().for_each(|ttl| say(format!("ebgp-multihop {ttl}")));
    if let Some(bfd) = neighbor.bfd {
        say("bfd".to_owned());
        say(format!("bfd profile {}", writer.profile(bfd)));
    }
    say(format!("timers {} {}", (neighbor.hold_time_s / 3).max(1), neighbor.hold_time_s));
    if neighbor.graceful_restart {
        say("graceful-restart".to_owned());
    }
    neighbor.local_address.iter().for_each(|address| say(format!("update-source {address}")));
    if let Peer::Any(group, ranges) = &neighbor.peer {
        let listen = |range: &sluice_language::config::Prefix| {
            format!(" bgp listen range {}/{} peer-group {group}", range.addr, range.len)
        };
        lines.extend(ranges.iter().map(listen));
    }
}

fn address_family(
    writer: &mut Writer<'_>,
    bgp: &Bgp,
    members: &[(&Neighbor, Family)],
    six: bool,
    lines: &mut Vec<String>,
) {
    lines.push(format!(" address-family ipv{} unicast", if six { 6 } else { 4 }));
    let origins = told(writer, members, six);
    for origin in &origins {
        let map = into_bgp(writer, *origin, six);
        lines.push(format!("  redistribute {} route-map {map}", word(*origin)));
    }
    for (neighbor, limits) in members {
        let mut say = |text: String| lines.push(format!("  neighbor {} {text}", peer(neighbor)));
        say("activate".to_owned());
        if let Some((most, teardown)) = limits.limit {
            say(format!("maximum-prefix {most}{}", if teardown { "" } else { " warning-only" }));
        }
        let import = writer.maps.chain(Use::Import, &neighbor.import, six, &mut writer.lists, None);
        say(format!("route-map {import} in"));
        let purpose = Use::Export(&origins);
        let export = writer.maps.chain(purpose, &neighbor.export, six, &mut writer.lists, None);
        say(format!("route-map {export} out"));
    }
    // FRR shares among as many as it can, Junos does not
    let (external, internal) = bgp.multipath;
    let paths = |may: bool| if may { PATHS } else { 1 };
    lines.push(format!("  maximum-paths {}", paths(external)));
    lines.push(format!("  maximum-paths ibgp {}", paths(internal)));
}

/// Origins besides BGP that some policy may tell neighbours of.
fn told(writer: &Writer<'_>, members: &[(&Neighbor, Family)], six: bool) -> Vec<Origin> {
    let mut told = writer.origins(six);
    told.retain(|origin| {
        let may = |neighbor: &Neighbor| {
            let mut terms = writer.maps.terms(&neighbor.export);
            terms.any(|term| {
                let from = &term.from.protocols;
                term.then.verdict != Verdict::Reject && (from.is_empty() || from.contains(origin))
            })
        };
        *origin != Origin::Bgp && members.iter().any(|(neighbor, _)| may(neighbor))
    });
    told
}

/// The map that marks what comes into BGP by where it comes from.
fn into_bgp(writer: &mut Writer<'_>, origin: Origin, six: bool) -> String {
    let name = format!("bgp-{}-{}", word(origin), family(six));
    let mut entries = vec![];
    if origin == Origin::Static {
        entries.push((false, writer.other_than_static(six)));
    }
    entries.push((true, tag(origin).map(|tag| format!("set tag {tag}")).into_iter().collect()));
    writer.maps.fixed(&name, entries);
    name
}

impl Writer<'_> {
    /// What matches routes of the kernel that are not Sluice's own.
    pub(super) fn other_than_static(&mut self, six: bool) -> Vec<String> {
        let name = format!("other-than-static-{}", family(six));
        let statics = self.statics(six);
        self.lists.all_but(&name, &statics, six);
        vec![format!("match {} address prefix-list {name}", if six { "ipv6" } else { "ip" })]
    }
}
