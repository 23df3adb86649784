//! The configuration of Kea that a configuration of ours means.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_language::Config;
use sluice_language::dhcp_server::DhcpSubnet;

use crate::functions::router_advertisement::device_of;

pub const PROGRAM: &str = "kea-dhcp4";
pub const CONFIGURATION: &str = "kea-dhcp4.conf";
pub const LEASES: &str = "kea-leases4.csv";
pub const SOCKET: &str = "control.sock";
/// Kea names it after its configuration and itself.
pub const PID: &str = "kea-dhcp4.kea-dhcp4.pid";
pub const LOG: &str = "kea-dhcp4.log";

/// Seconds between two writings of the lease file without what is over.
const CLEANING_S: u32 = 3600;

/// Where Debian has Kea's hooks, by architecture.
const LIBRARIES: &str = "/usr/lib";
const LEASE_COMMANDS: &str = "kea/hooks/libdhcp_lease_cmds.so";

/// None = nothing is served. Devices that are disabled are left out.
pub fn text(config: &Config, dir: &Path) -> Option<String> {
    let subnets = &config.dhcp_server.subnets;
    let served: Vec<(&DhcpSubnet, String)> =
        subnets.iter().filter_map(|own| Some((own, device_of(config, &own.unit)?))).collect();
    if served.is_empty() {
        return None;
    }
    let path = |name: &str| dir.join(name).display().to_string();
    let own: Vec<Ipv4Addr> = subnets.iter().map(|subnet| subnet.own).collect();
    let libraries: Vec<Value> =
        lease_commands().iter().map(|library| json!({"library": library.display().to_string()})).collect();
    let configuration = json!({ "Dhcp4": {
        "interfaces-config": {
            "interfaces": served.iter().map(|(_, device)| device).collect::<Vec<_>>(),
            // hears clients that have no address yet, past every filter of the host
            "dhcp-socket-type": "raw",
            "re-detect": true,
            "service-sockets-max-retries": 1_000_000,
            "service-sockets-retry-wait-time": 1000,
        },
        "control-socket": { "socket-type": "unix", "socket-name": path(SOCKET) },
        "lease-database": { "type": "memfile", "persist": true, "name": path(LEASES), "lfc-interval": CLEANING_S },
        "hooks-libraries": libraries,
        "authoritative": true,
        "expired-leases-processing": { "hold-reclaimed-time": 86_400 },
        "subnet4": served.iter().map(|(own_subnet, device)| subnet(own_subnet, device, &own)).collect::<Vec<_>>(),
        "loggers": [{
            "name": "kea-dhcp4",
            "severity": "WARN",
            "output_options": [{ "output": path(LOG), "maxsize": 1 << 20, "maxver": 2 }],
        }],
    }});
    Some(format!("{configuration:#}\n"))
}

/// With them leases can be given back by hand.
pub fn lease_commands() -> Option<PathBuf> {
    let architectures = std::fs::read_dir(LIBRARIES).ok()?.flatten();
    architectures.map(|entry| entry.path().join(LEASE_COMMANDS)).find(|path| path.is_file())
}

fn subnet(subnet: &DhcpSubnet, device: &str, own: &[Ipv4Addr]) -> Value {
    let option =
        |(code, bytes): &(u8, Vec<u8>)| json!({ "code": code, "csv-format": false, "data": hex(bytes) });
    let identifier = subnet.server_identifier.map(|address| (54, address.octets().to_vec()));
    let options: Vec<Value> = subnet.options.iter().chain(&identifier).map(option).collect();
    let pools = subnet.ranges.iter().flat_map(|range| without(*range, own));
    let pools: Vec<Value> =
        pools.map(|(first, last)| json!({ "pool": format!("{first} - {last}") })).collect();
    let host = |host: &sluice_language::dhcp_server::DhcpHost| {
        let mac = host.mac.map(|byte| format!("{byte:02x}")).join(":");
        json!({ "hw-address": mac, "ip-address": host.address.to_string() })
    };
    json!({
        // leases name it, so it must outlast commits that add and remove others
        "id": id(subnet),
        "subnet": format!("{}/{}", subnet.network.addr, subnet.network.len),
        "interface": device,
        "valid-lifetime": subnet.lease_s,
        "max-valid-lifetime": subnet.lease_s,
        "pools": pools,
        "reservations": subnet.hosts.iter().map(host).collect::<Vec<_>>(),
        "option-data": options,
        "next-server": "0.0.0.0",
    })
}

/// Networks of a configuration do not overlap, so each has its own.
pub fn id(subnet: &DhcpSubnet) -> u32 {
    match subnet.network.addr {
        std::net::IpAddr::V4(address) => address.to_bits().clamp(1, u32::MAX - 1),
        std::net::IpAddr::V6(_) => 1,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A range in pieces, without addresses of this host.
fn without(range: (Ipv4Addr, Ipv4Addr), own: &[Ipv4Addr]) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let mut inside: Vec<u32> =
        own.iter().filter(|own| range.0 <= **own && **own <= range.1).map(|own| own.to_bits()).collect();
    inside.sort_unstable();
    inside.dedup();
    let (mut first, last) = (u64::from(range.0.to_bits()), u64::from(range.1.to_bits()));
    let mut pieces = vec![];
    for own in inside.into_iter().map(u64::from) {
        if first < own {
            pieces.push((first, own - 1));
        }
        first = own + 1;
    }
    if first <= last {
        pieces.push((first, last));
    }
    let address = |bits: u64| Ipv4Addr::from_bits(bits as u32);
    pieces.into_iter().map(|(first, last)| (address(first), address(last))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> (Ipv4Addr, Ipv4Addr) {
        (first.parse().unwrap(), last.parse().unwrap())
    }

    #[test]
    fn addresses_of_this_host_are_not_lent() {
        let own: Vec<Ipv4Addr> =
            ["10.0.0.5", "10.0.0.1", "10.0.0.9", "10.0.0.7", "10.0.0.7"].map(|a| a.parse().unwrap()).into();
        assert_eq!(
            without(range("10.0.0.5", "10.0.0.9"), &own),
            [range("10.0.0.6", "10.0.0.6"), range("10.0.0.8", "10.0.0.8")]
        );
        assert_eq!(without(range("10.0.0.2", "10.0.0.4"), &own), [range("10.0.0.2", "10.0.0.4")]);
        assert_eq!(without(range("10.0.0.1", "10.0.0.1"), &own), []);
        let all = range("255.255.255.254", "255.255.255.255");
        assert_eq!(without(all, &[Ipv4Addr::BROADCAST]), [range("255.255.255.254", "255.255.255.254")]);
    }
}
