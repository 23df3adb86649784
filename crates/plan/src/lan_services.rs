//! What hosts of a link would miss although its services are configured: told with a commit, which it does not hinder.

use sluice_language::Config;
use sluice_language::config::{HostInbound, Service};
use sluice_language::dhcp_server::{DhcpSubnet, Family};
use sluice_language::router_advertisement::AdvertisedUnit;

use crate::{UnitInfo, Warning};

/// Hosts make addresses of prefixes of this length alone (RFC 4862 5.5.3 d, RFC 4291 2.5.1).
const AUTONOMOUS_LENGTH: u8 = 64;

pub(crate) fn warnings(config: &Config, infos: &[UnitInfo]) -> Vec<Warning> {
    let advertised = config.router_advertisement.interfaces.iter();
    let of = |own: &AdvertisedUnit| {
        let device = device(infos, &own.unit);
        prefix_texts(own).into_iter().map(move |text| Warning { device: device.clone(), text })
    };
    let mut warnings: Vec<Warning> = advertised.flat_map(of).collect();
    warnings.extend(dhcp_warnings(config, infos));
    warnings
}

fn prefix_texts(own: &AdvertisedUnit) -> Vec<String> {
    let unusable =
        own.prefixes.iter().filter(|prefix| prefix.autonomous && prefix.length != AUTONOMOUS_LENGTH);
    let text = |prefix: &sluice_language::router_advertisement::AdvertisedPrefix| {
        format!(
            "router-advertisement on {}: hosts make no addresses of {}/{}, which is not 64 bits long; write `no-autonomous`, or \
             another length",
            own.unit, prefix.prefix, prefix.length
        )
    };
    unusable.map(text).collect()
}

/// UDP, and where clients ask for addresses (RFC 2131 4.1; RFC 8415 7.2).
const UDP: u8 = 17;
const DHCP_SERVER: u16 = 67;
const DHCPV6_SERVER: u16 = 547;

/// Whether a unit's packets to a port of UDP reach this host.
fn hears(config: &Config, unit: &str, port: u16) -> bool {
    let admits = |inbound: &HostInbound| {
        let hears = |service: &Service| {
            let (first, last) = service.destination_port;
            service.protocol == Some(UDP) && first <= port && port <= last
        };
        inbound.any || inbound.services.iter().any(hears)
    };
    config.zones.iter().any(|zone| {
        let own = zone.interfaces.iter().find(|own| own.unit == unit);
        own.is_some_and(|own| admits(own.host_inbound.as_ref().unwrap_or(&zone.host_inbound)))
    })
}

fn dhcp_warnings(config: &Config, infos: &[UnitInfo]) -> Vec<Warning> {
    let warning = |subnet: &DhcpSubnet| {
        let (statement, service, port) = match subnet.family() {
            Family::Inet => ("dhcp-local-server", "dhcp", DHCP_SERVER),
            Family::Inet6 => ("dhcp-local-server dhcpv6", "dhcpv6", DHCPV6_SERVER),
        };
        let text = format!(
            "{statement} on {}: what its clients send is dropped here; add `host-inbound-traffic system-services {service}` to its \
             zone",
            subnet.unit
        );
        let warning = Warning { device: device(infos, &subnet.unit), text };
        (!hears(config, &subnet.unit, port)).then_some(warning)
    };
    config.dhcp_server.subnets.iter().filter_map(warning).collect()
}

fn device(infos: &[UnitInfo], unit: &str) -> String {
    infos.iter().find(|info| info.name == unit).map_or_else(|| unit.to_owned(), |info| info.device.clone())
}
