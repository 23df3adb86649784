//! Clients, as they are shown.

use super::client4::{self, Client4};
use super::client6::{self, Client6};
use super::lease::{Given, Until};
use crate::api::{DhcpBinding, DhcpRouteView, Dhcpv6Binding, Dhcpv6Given, Dhcpv6SubPrefix};

fn left(until: &Until) -> Option<u32> {
    until.left().map(|left| left.as_secs().min(u64::from(u32::MAX)) as u32)
}

fn note(text: &str) -> Option<String> {
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

pub fn v4(client: &Client4) -> DhcpBinding {
    let lease = client.lease.as_ref();
    let route = |(to, gateway): &(super::lease::Net, std::net::Ipv4Addr)| DhcpRouteView {
        destination: to.to_string(),
        gateway: (*gateway).into(),
    };
    DhcpBinding {
        interface: client.unit.clone(),
        state: state4(client.state).to_owned(),
        address: lease.map(|lease| format!("{}/{}", lease.address, lease.length)),
        server: lease.map(|lease| lease.server),
        left_s: lease.and_then(|lease| left(&lease.ends)),
        renew_s: lease.and_then(|lease| left(&lease.t1)),
        rebind_s: lease.and_then(|lease| left(&lease.t2)),
        routes: lease.map(|lease| lease.routes.iter().map(route).collect()).unwrap_or_default(),
        name_servers: lease.map(|lease| lease.dns.clone()).unwrap_or_default(),
        note: note(&notes(&[&client.note, &client.held])),
    }
}

fn notes(all: &[&str]) -> String {
    all.iter().filter(|text| !text.is_empty()).copied().collect::<Vec<_>>().join("; ")
}

fn state4(state: client4::State) -> &'static str {
    match state {
        client4::State::Down => "down",
        client4::State::Init => "init",
        client4::State::Selecting => "selecting",
        client4::State::Requesting => "requesting",
        client4::State::Rebooting => "rebooting",
        client4::State::Probing => "probing",
        client4::State::Bound => "bound",
        client4::State::Renewing => "renewing",
        client4::State::Rebinding => "rebinding",
        client4::State::Released => "released",
    }
}

pub fn v6(client: &Client6) -> Dhcpv6Binding {
    let lease = client.lease.as_ref().filter(|_| client.state != client6::State::Released);
    let given = |given: &Given| Dhcpv6Given {
        prefix: given.net.to_string(),
        preferred_s: left(&given.preferred),
        valid_s: left(&given.valid),
    };
    let sub_prefixes = |lease: &super::lease::Lease6| {
        let of = |device: &String, net: &super::lease::Net, deprecated| Dhcpv6SubPrefix {
            device: device.clone(),
            address: net.to_string(),
            deprecated,
        };
        let now = lease.lans.iter().map(move |(device, net)| of(device, net, false));
        now.chain(lease.former.iter().map(move |(device, net, _)| of(device, net, true))).collect()
    };
    Dhcpv6Binding {
        interface: client.unit.clone(),
        state: state6(client.state).to_owned(),
        server: lease.map(|lease| lease.server.iter().map(|octet| format!("{octet:02x}")).collect()),
        address: lease.and_then(|lease| lease.address.as_ref()).map(given),
        prefix: lease.and_then(|lease| lease.prefix.as_ref()).map(given),
        sub_prefixes: lease.map(sub_prefixes).unwrap_or_default(),
        renew_s: lease.and_then(|lease| left(&lease.t1)),
        rebind_s: lease.and_then(|lease| left(&lease.t2)),
        name_servers: lease.map(|lease| lease.dns.clone()).unwrap_or_default(),
        note: note(&client.note),
    }
}

fn state6(state: client6::State) -> &'static str {
    match state {
        client6::State::Down => "down",
        client6::State::Soliciting => "soliciting",
        client6::State::Requesting => "requesting",
        client6::State::Confirming => "confirming",
        client6::State::Bound => "bound",
        client6::State::Renewing => "renewing",
        client6::State::Rebinding => "rebinding",
        client6::State::Informing => "informing",
        client6::State::Informed => "informed",
        client6::State::Released => "released",
    }
}
