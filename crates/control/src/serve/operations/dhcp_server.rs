//! The servers of DHCP and DHCPv6.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde_json::json;
use sluice_language::dhcp_server::{DhcpSubnet, Family};
use sluice_plan::{RouteVia, contains};

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{DhcpBindingView, DhcpClearRequest, DhcpCleared, DhcpServerView};
use crate::commit::Shared;
use crate::functions::dhcp_server::leases::{self, Lease};
use crate::functions::dhcp_server::process::Place;
use crate::kernel::clock::unix_ms;
use crate::state::dhcp_server::ServerState;

/// What is lent to whom.
pub static DHCP_SERVER: Operation<NoArguments, DhcpServerView> = Operation {
    about: About::question(
        "dhcp-server",
        "/api/dhcp-server",
        "The DHCP server: whether it runs, which addresses are lent to whom and until when",
    ),
    act: Act::Ask(|shared, _| view(shared, Family::Inet)),
};

/// What is lent and delegated to whom.
pub static DHCPV6_SERVER: Operation<NoArguments, DhcpServerView> = Operation {
    about: About::question(
        "dhcpv6-server",
        "/api/dhcpv6-server",
        "The DHCPv6 server: whether it runs, which addresses and prefixes are lent to whom and until when",
    ),
    act: Act::Ask(|shared, _| view(shared, Family::Inet6)),
};

/// Ends a lease; the client does not know it.
pub static CLEAR_DHCP_BINDING: Operation<NoArguments, DhcpCleared> = Operation {
    about: change(
        "clear-dhcp-server-binding",
        "/api/dhcp-server/clear",
        "End a lease of the DHCP server; its client does not know until it asks again",
    ),
    act: Act::Change(|gateway, _, order| clear(gateway, order, Family::Inet)),
};

/// The same of the other server; the route to a delegated prefix goes, too.
pub static CLEAR_DHCPV6_BINDING: Operation<NoArguments, DhcpCleared> = Operation {
    about: change(
        "clear-dhcpv6-server-binding",
        "/api/dhcpv6-server/clear",
        "End a lease of the DHCPv6 server; its client does not know until it asks again",
    ),
    act: Act::Change(|gateway, _, order| clear(gateway, order, Family::Inet6)),
};

const fn change(name: &'static str, path: &'static str, help: &'static str) -> About {
    About {
        faults: &[(
            Fault::Refused,
            "the request cannot be read, or the server does not run or has refused it",
        )],
        ..About::change(name, path, help, Body::Object(DhcpClearRequest::json_schema))
    }
}

fn view(shared: &Shared, family: Family) -> Result<DhcpServerView, Failure> {
    let state = shared.dhcp_server.get(family);
    let now_s = unix_ms() / 1000;
    let place = state.state_dir.as_deref().map(|dir| Place::of(dir, family));
    let read = place.map_or(Ok(vec![]), |place| leases::read(&place, now_s));
    let found =
        read.map_err(|error| Failure::new(Fault::Internal, format!("the leases cannot be read: {error}")))?;
    let active = shared.active();
    let subnets: Vec<&DhcpSubnet> = active.config.dhcp_server.of(family).collect();
    let bindings = found.into_iter().map(|lease| binding(&subnets, &state, lease)).collect();
    Ok(DhcpServerView { pid: state.pid, error: state.error, bindings })
}

fn binding(subnets: &[&DhcpSubnet], state: &ServerState, lease: Lease) -> DhcpBindingView {
    let is_prefix = lease.is_prefix();
    let lender = subnets.iter().find_map(|subnet| match &subnet.delegated {
        Some(own) if is_prefix && contains(own.prefix, lease.address) => Some((*subnet, &own.pool)),
        _ if !is_prefix && contains(subnet.network, lease.address) => Some((*subnet, &subnet.pool)),
        _ => None,
    });
    let route = state.routes.iter().find(|route| {
        is_prefix && (route.destination.addr, route.destination.len) == (lease.address, lease.length)
    });
    let next_hop = route.and_then(|route| match &route.target {
        RouteVia::Gateways(gateways) => gateways.first().map(|gateway| gateway.addr.to_string()),
        _ => None,
    });
    DhcpBindingView {
        address: if is_prefix {
            format!("{}/{}", lease.address, lease.length)
        } else {
            lease.address.to_string()
        },
        hardware_address: lease.hardware_address,
        duid: lease.duid,
        next_hop,
        hostname: lease.hostname,
        expires_unix_ms: lease.expires_s.saturating_mul(1000),
        pool: lender.map(|(_, pool)| pool.clone()),
        interface: lender.map(|(subnet, _)| subnet.unit.clone()),
        declined: lease.declined,
    }
}

/// What a request means by an address: with the length that it names, if it does.
fn named(text: &str, family: Family) -> Option<(IpAddr, Option<u8>)> {
    let (address, length) = match text.split_once('/') {
        None => (text, None),
        Some((address, length)) => (address, Some(length.parse().ok()?)),
    };
    let address: IpAddr = address.parse().ok()?;
    (Family::of(address) == family).then_some((address, length))
}

fn clear(gateway: &Gateway, order: Order, family: Family) -> Result<DhcpCleared, Failure> {
    let request: DhcpClearRequest = order.object("request")?;
    let refused = |words: String| Failure::new(Fault::Refused, words);
    let Some((address, length)) = named(&request.address, family) else {
        let what = match family {
            Family::Inet => "IPv4 address",
            Family::Inet6 => "IPv6 address or prefix",
        };
        return Err(refused(format!("`{}` is no {what}; name the one that is lent", request.address)));
    };
    let state = gateway.shared.dhcp_server.get(family);
    let Some(dir) = state.state_dir.filter(|_| state.pid.is_some()) else {
        return Err(refused("the server does not run; nothing was done".to_owned()));
    };
    let place = Place::of(&dir, family);
    let all = leases::read(&place, 0).unwrap_or_default();
    let is_named =
        |lease: &&Lease| lease.address == address && length.is_none_or(|length| lease.length == length);
    let Some(lease) = all.iter().find(is_named) else {
        return Ok(DhcpCleared { cleared: false });
    };
    let (command, arguments) = match family {
        Family::Inet => ("lease4-del", json!({ "ip-address": address.to_string() })),
        Family::Inet6 => {
            let kind = if lease.is_prefix() { "IA_PD" } else { "IA_NA" };
            ("lease6-del", json!({ "ip-address": address.to_string(), "type": kind }))
        }
    };
    place
        .ask(command, arguments)
        .map(|_| DhcpCleared { cleared: true })
        .map_err(|words| refused(format!("Kea has not ended the lease: {words}")))
}
