//! The configuration of Kea that a configuration of ours means.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_language::Config;
use sluice_language::dhcp_server::{DhcpHost, DhcpSubnet, Family};
use sluice_language::nat::{address, bits};

use super::delegated::SCRIPT;
use super::process::{Place, SOCKET};
use crate::functions::router_advertisement::device_of;

/// Seconds between two writings of the lease file without what is over.
const CLEANING_S: u32 = 3600;

/// Where Debian has Kea's hooks, by architecture.
const LIBRARIES: &str = "/usr/lib";

/// With it leases can be given back by hand.
const LEASE_COMMANDS: &str = "kea/hooks/libdhcp_lease_cmds.so";
/// With it we hear where clients of delegated prefixes are.
const RUN_SCRIPT: &str = "kea/hooks/libdhcp_run_script.so";

/// None = nothing is served. Devices that are disabled or not here are left out: Kea would serve no other beside them.
pub fn text(config: &Config, is_here: impl Fn(&str) -> bool, place: &Place) -> io::Result<Option<String>> {
    let family = place.family();
    let subnets: Vec<&DhcpSubnet> = config.dhcp_server.of(family).collect();
    let device = |own: &DhcpSubnet| device_of(config, &own.unit).filter(|own| is_here(own));
    let served: Vec<(&DhcpSubnet, String)> =
        subnets.iter().filter_map(|own| Some((*own, device(own)?))).collect();
    if served.is_empty() {
        return Ok(None);
    }
    let units = config.interfaces.iter().flat_map(|interface| &interface.units);
    let own: Vec<IpAddr> = units.flat_map(|unit| unit.addresses()).map(|own| own.addr).collect();
    let lent: Vec<Value> = served.iter().map(|(subnet, device)| lent(subnet, device, &own)).collect();
    let mut server = common(place, &served);
    let configuration = match family {
        Family::Inet => {
            // hears clients that have no address yet, past every filter of the host
            server["interfaces-config"]["dhcp-socket-type"] = json!("raw");
            server["authoritative"] = json!(true);
            server["subnet4"] = json!(lent);
            json!({ "Dhcp4": server })
        }
        Family::Inet6 => {
            // clients renew with the server that has this name, so it must outlast Kea and the daemon
            server["server-id"] =
                json!({ "type": "LL", "htype": 1, "identifier": place.identifier()?, "persist": false });
            server["subnet6"] = json!(lent);
            json!({ "Dhcp6": server })
        }
    };
    Ok(Some(format!("{configuration:#}\n")))
}

fn common(place: &Place, served: &[(&DhcpSubnet, String)]) -> Value {
    let names = place.names();
    let path = |name: &str| place.dir().join(name).display().to_string();
    let mut libraries: Vec<Value> =
        library(LEASE_COMMANDS).iter().map(|path| json!({ "library": path.display().to_string() })).collect();
    if served.iter().any(|(subnet, _)| subnet.delegated.is_some()) {
        libraries.extend(library(RUN_SCRIPT).map(|library| {
            let parameters = json!({ "name": path(SCRIPT), "sync": false });
            json!({ "library": library.display().to_string(), "parameters": parameters })
        }));
    }
    json!({
        "interfaces-config": {
            "interfaces": served.iter().map(|(_, device)| device).collect::<Vec<_>>(),
            "re-detect": true,
            "service-sockets-max-retries": 1_000_000,
            "service-sockets-retry-wait-time": 1000,
        },
        "control-socket": { "socket-type": "unix", "socket-name": path(SOCKET) },
        "lease-database":
            { "type": "memfile", "persist": true, "name": path(names.leases), "lfc-interval": CLEANING_S },
        "hooks-libraries": libraries,
        "expired-leases-processing": { "hold-reclaimed-time": 86_400 },
        "loggers": [{
            "name": names.program,
            "severity": "WARN",
            "output_options": [{ "output": path(names.log), "maxsize": 1 << 20, "maxver": 2 }],
        }],
    })
}

/// False where Kea's hook is missing that tells where clients of delegated prefixes are.
pub fn tells_next_hops() -> bool {
    library(RUN_SCRIPT).is_some()
}

fn library(name: &str) -> Option<PathBuf> {
    let architectures = std::fs::read_dir(LIBRARIES).ok()?.flatten();
    architectures.map(|entry| entry.path().join(name)).find(|path| path.is_file())
}

fn lent(subnet: &DhcpSubnet, device: &str, own: &[IpAddr]) -> Value {
    let option =
        |(code, bytes): &(u16, Vec<u8>)| json!({ "code": code, "csv-format": false, "data": hex(bytes, "") });
    let identifier = subnet.server_identifier.map(|address| (54, address.octets().to_vec()));
    let options: Vec<Value> = subnet.options.iter().chain(&identifier).map(option).collect();
    let pools = subnet.ranges.iter().flat_map(|range| without(*range, own));
    let pools: Vec<Value> =
        pools.map(|(first, last)| json!({ "pool": format!("{first} - {last}") })).collect();
    let mut lent = json!({
        // leases name it, so it must outlast commits that add and remove others
        "id": id(subnet),
        "subnet": format!("{}/{}", subnet.network.addr, subnet.network.len),
        "interface": device,
        "valid-lifetime": subnet.lease_s,
        "max-valid-lifetime": subnet.lease_s,
        "pools": pools,
        "reservations": subnet.hosts.iter().map(reservation).collect::<Vec<_>>(),
        "option-data": options,
    });
    match subnet.family() {
        Family::Inet => lent["next-server"] = json!("0.0.0.0"),
        Family::Inet6 => {
            lent["preferred-lifetime"] = json!(subnet.preferred_s);
            lent["max-preferred-lifetime"] = json!(subnet.preferred_s);
            lent["rapid-commit"] = json!(subnet.rapid_commit);
            let pieces = subnet.delegated.iter().map(|own| {
                let prefix = own.prefix.addr.to_string();
                json!({ "prefix": prefix, "prefix-len": own.prefix.len, "delegated-len": own.length })
            });
            lent["pd-pools"] = pieces.collect();
        }
    }
    lent
}

fn reservation(host: &DhcpHost) -> Value {
    let client = hex(&host.client, ":");
    match Family::of(host.address) {
        Family::Inet => json!({ "hw-address": client, "ip-address": host.address.to_string() }),
        Family::Inet6 => json!({ "duid": client, "ip-addresses": [host.address.to_string()] }),
    }
}

/// Networks of a configuration do not overlap, so each has its own; of two of IPv6 one in 2^32 may not, which Kea refuses.
fn id(subnet: &DhcpSubnet) -> u32 {
    let number = match subnet.network.addr {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let mut crc = flate2::Crc::new();
            crc.update(&address.octets());
            crc.update(&[subnet.network.len]);
            crc.sum()
        }
    };
    number.clamp(1, u32::MAX - 1)
}

fn hex(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

/// A range in pieces, without addresses of this host.
fn without(range: (IpAddr, IpAddr), own: &[IpAddr]) -> Vec<(IpAddr, IpAddr)> {
    let mut inside: Vec<IpAddr> =
        own.iter().filter(|own| range.0 <= **own && **own <= range.1).copied().collect();
    inside.sort_unstable();
    inside.dedup();
    // None = nothing of it is left
    let mut first = Some(range.0);
    let mut pieces = vec![];
    for own in inside {
        if let Some(first) = first.filter(|first| *first < own) {
            pieces.push((first, address(bits(own).0 - 1, own)));
        }
        first = (own < range.1).then(|| address(bits(own).0 + 1, own));
    }
    pieces.extend(first.map(|first| (first, range.1)));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: &str, last: &str) -> (IpAddr, IpAddr) {
        (first.parse().unwrap(), last.parse().unwrap())
    }

    #[test]
    fn addresses_of_this_host_are_not_lent() {
        let own: Vec<IpAddr> =
            ["10.0.0.5", "10.0.0.1", "10.0.0.9", "10.0.0.7", "10.0.0.7"].map(|a| a.parse().unwrap()).into();
        assert_eq!(
            without(range("10.0.0.5", "10.0.0.9"), &own),
            [range("10.0.0.6", "10.0.0.6"), range("10.0.0.8", "10.0.0.8")]
        );
        assert_eq!(without(range("10.0.0.2", "10.0.0.4"), &own), [range("10.0.0.2", "10.0.0.4")]);
        assert_eq!(without(range("10.0.0.1", "10.0.0.1"), &own), []);
        let all = range("255.255.255.254", "255.255.255.255");
        let last = all.1;
        assert_eq!(without(all, &[last]), [range("255.255.255.254", "255.255.255.254")]);
        let own: Vec<IpAddr> = ["fd00::1", "fd00::ffff"].map(|a| a.parse().unwrap()).into();
        assert_eq!(without(range("fd00::1", "fd00::ffff"), &own), [range("fd00::2", "fd00::fffe")]);
    }
}
