//! Clients of DHCP and DHCPv6.

use schemars::JsonSchema;

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Body, Gateway, NoArguments, Operation, Order};
use crate::api::{DhcpBinding, DhcpDone, DhcpRequest, Dhcpv6Binding};
use crate::functions::dhcp::clients::Asked;

/// Leases of IPv4.
pub static DHCP_CLIENTS: Operation<NoArguments, Vec<DhcpBinding>> = Operation {
    about: About::question(
        "dhcp-clients",
        "/api/dhcp/clients",
        "Clients of DHCP: address, server, state, times, routes, name servers",
    ),
    act: Act::Say(|shared, _| shared.dhcp.bindings4()),
};

/// Leases of IPv6.
pub static DHCPV6_CLIENTS: Operation<NoArguments, Vec<Dhcpv6Binding>> = Operation {
    about: About::question(
        "dhcpv6-clients",
        "/api/dhcpv6/clients",
        "Clients of DHCPv6: address, delegated prefix and what units have of it, state, times",
    ),
    act: Act::Say(|shared, _| shared.dhcp.bindings6()),
};

const WRONG: &[(Fault, &str)] = &[(
    Fault::Refused,
    "the request cannot be read, or no such client is configured on the interface; nothing was done",
)];

/// A message to the server at once.
pub static RENEW_DHCP: Operation<NoArguments, DhcpDone> = Operation {
    about: About {
        faults: WRONG,
        ..About::change(
            "renew-dhcp-client",
            "/api/dhcp/clients/renew",
            "Ask the server at once whether a lease goes on, or for a new one",
            Body::Object(DhcpRequest::json_schema),
        )
    },
    act: Act::Change(|gateway, _, order| v4(gateway, &order, Asked::Renew)),
};

/// The address is free again.
pub static RELEASE_DHCP: Operation<NoArguments, DhcpDone> = Operation {
    about: About {
        faults: WRONG,
        ..About::change(
            "release-dhcp-client",
            "/api/dhcp/clients/release",
            "Give a lease back; no other is asked for until a renewal is",
            Body::Object(DhcpRequest::json_schema),
        )
    },
    act: Act::Change(|gateway, _, order| v4(gateway, &order, Asked::Release)),
};

/// A message to the server at once.
pub static RENEW_DHCPV6: Operation<NoArguments, DhcpDone> = Operation {
    about: About {
        faults: WRONG,
        ..About::change(
            "renew-dhcpv6-client",
            "/api/dhcpv6/clients/renew",
            "Ask the server at once whether addresses and prefixes go on, or for new ones",
            Body::Object(DhcpRequest::json_schema),
        )
    },
    act: Act::Change(|gateway, _, order| v6(gateway, &order, Asked::Renew)),
};

/// Addresses and prefixes are free again.
pub static RELEASE_DHCPV6: Operation<NoArguments, DhcpDone> = Operation {
    about: About {
        faults: WRONG,
        ..About::change(
            "release-dhcpv6-client",
            "/api/dhcpv6/clients/release",
            "Give addresses and prefixes back; no others are asked for until a renewal is",
            Body::Object(DhcpRequest::json_schema),
        )
    },
    act: Act::Change(|gateway, _, order| v6(gateway, &order, Asked::Release)),
};

fn v4(gateway: &Gateway, order: &Order, asked: Asked) -> Result<DhcpDone, Failure> {
    let request: DhcpRequest = order.object("request")?;
    gateway.shared.dhcp.ask4(&request.interface, asked).map_err(|error| Failure::new(Fault::Refused, error))
}

fn v6(gateway: &Gateway, order: &Order, asked: Asked) -> Result<DhcpDone, Failure> {
    let request: DhcpRequest = order.object("request")?;
    gateway.shared.dhcp.ask6(&request.interface, asked).map_err(|error| Failure::new(Fault::Refused, error))
}
