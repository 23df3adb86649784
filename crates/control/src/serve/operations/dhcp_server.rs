//! The DHCP server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use schemars::JsonSchema;
use serde_json::json;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{DhcpBindingView, DhcpClearRequest, DhcpCleared, DhcpServerView};
use crate::commit::Shared;
use crate::functions::dhcp_server::leases::{self, Lease};
use crate::functions::dhcp_server::process::Place;
use crate::kernel::clock::unix_ms;

/// What is lent to whom.
pub static DHCP_SERVER: Operation<NoArguments, DhcpServerView> = Operation {
    about: About::question(
        "dhcp-server",
        "/api/dhcp-server",
        "The DHCP server: whether it runs, which addresses are lent to whom and until when",
    ),
    act: Act::Ask(|shared, _| view(shared)),
};

/// Ends a lease; the client does not know it.
pub static CLEAR_DHCP_BINDING: Operation<NoArguments, DhcpCleared> = Operation {
    about: About {
        faults: &[(
            Fault::Refused,
            "the request cannot be read, or the DHCP server does not run or has refused it",
        )],
        ..About::change(
            "clear-dhcp-server-binding",
            "/api/dhcp-server/clear",
            "End a lease of the DHCP server; its client does not know until it asks again",
            Body::Object(DhcpClearRequest::json_schema),
        )
    },
    act: Act::Change(clear),
};

fn view(shared: &Shared) -> Result<DhcpServerView, Failure> {
    let state = shared.dhcp_server.get();
    let now_s = unix_ms() / 1000;
    let read = state.dir.map_or(Ok(vec![]), |dir| leases::read(&dir, now_s));
    let found =
        read.map_err(|error| Failure::new(Fault::Internal, format!("the leases cannot be read: {error}")))?;
    let bindings = found.into_iter().map(|lease| binding(shared, lease)).collect();
    Ok(DhcpServerView { pid: state.pid, error: state.error, bindings })
}

fn binding(shared: &Shared, lease: Lease) -> DhcpBindingView {
    let active = shared.active();
    let subnets = &active.config.dhcp_server.subnets;
    let has = |address: Ipv4Addr, length: u8, own: Ipv4Addr| {
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        address.to_bits() & mask == own.to_bits() & mask
    };
    let subnet = subnets.iter().find(|subnet| match subnet.network.addr {
        IpAddr::V4(_) => has(lease.address, subnet.network.len, subnet.own),
        IpAddr::V6(_) => false,
    });
    DhcpBindingView {
        address: lease.address.to_string(),
        hardware_address: lease.hardware_address,
        hostname: lease.hostname,
        expires_unix_ms: lease.expires_s.saturating_mul(1000),
        pool: subnet.map(|subnet| subnet.pool.clone()),
        interface: subnet.map(|subnet| subnet.unit.clone()),
        declined: lease.declined,
    }
}

fn clear(gateway: &Gateway, _: &NoArguments, order: Order) -> Result<DhcpCleared, Failure> {
    let request: DhcpClearRequest = order.object("request")?;
    let address: Ipv4Addr = request.address.parse().map_err(|_| {
        Failure::new(
            Fault::Refused,
            format!("`{}` is no IPv4 address; name the one that is lent", request.address),
        )
    })?;
    let state = gateway.shared.dhcp_server.get();
    let Some(dir) = state.dir.as_deref().and_then(Path::parent).filter(|_| state.pid.is_some()) else {
        return Err(Failure::new(Fault::Refused, "the DHCP server does not run; nothing was done"));
    };
    let place = Place::of(dir);
    let known =
        leases::read(place.dir(), 0).is_ok_and(|all| all.iter().any(|lease| lease.address == address));
    if !known {
        return Ok(DhcpCleared { cleared: false });
    }
    place
        .ask("lease4-del", json!({ "ip-address": address.to_string() }))
        .map(|_| DhcpCleared { cleared: true })
        .map_err(|words| Failure::new(Fault::Refused, format!("Kea has not ended the lease: {words}")))
}
