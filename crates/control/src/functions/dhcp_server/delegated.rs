//! Routes to delegated prefixes (RFC 8415 6.3): the lease file does not say where a client is, so Kea's hook `run_script` has a
//! script write it down, a file for each prefix. Those outlast the daemon, as leases do.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use sluice_language::Config;
use sluice_language::config::Prefix;
use sluice_language::dhcp_server::Family;
use sluice_plan::{Gateway, MAIN_TABLE, RouteVia, RouteWant, contains};

use super::leases::Lease;
use crate::functions::router_advertisement::device_of;

pub const SCRIPT: &str = "delegated.sh";

/// Begins names of files; the prefix without its length follows.
pub const NEXT_HOP: &str = "next-hop.";

/// Of access routes in Junos.
const PREFERENCE: u32 = 13;

/// A file that nobody has a lease for stays so long: its client may be about to get one.
const KEPT: Duration = Duration::from_secs(60);

/// A client whose device has just come up may speak from another address than its link-local one; what is known of it stays.
pub const SCRIPT_TEXT: &str = r#"#!/bin/sh
# Written by Sluice. Kea says here where clients of delegated prefixes are.
[ "$1" = leases6_committed ] || exit 0
case "${LEASES6_SIZE:-0}" in *[!0-9]*) exit 0 ;; esac
case "$QUERY6_REMOTE_ADDR" in fe[89ab]?:*) ;; *) exit 0 ;; esac
cd "${0%/*}" || exit 1
at=0
while [ "$at" -lt "${LEASES6_SIZE:-0}" ]; do
	eval "type=\$LEASES6_AT${at}_TYPE prefix=\$LEASES6_AT${at}_ADDRESS"
	if [ "$type" = IA_PD ]; then
		echo "$QUERY6_REMOTE_ADDR $QUERY6_IFACE_NAME" >"new.$$" && mv "new.$$" "next-hop.$prefix"
	fi
	at=$((at + 1))
done
"#;

/// The address of a client, and the device it is on.
pub type NextHops = HashMap<Ipv6Addr, (Ipv6Addr, String)>;

pub fn next_hops(dir: &Path) -> io::Result<NextHops> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(NextHops::new()),
        entries => entries?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| next_hop(dir, &name)).collect())
}

/// None = it is another file, has just gone, or is none of the script's.
fn next_hop(dir: &Path, name: &str) -> Option<(Ipv6Addr, (Ipv6Addr, String))> {
    let prefix = name.strip_prefix(NEXT_HOP)?.parse().ok()?;
    let text = fs::read_to_string(dir.join(name)).ok()?;
    let (address, device) = text.trim().split_once(' ')?;
    let address: Ipv6Addr = address.parse().ok()?;
    address.is_unicast_link_local().then(|| (prefix, (address, device.to_owned())))
}

/// Takes away what was written of prefixes that are not lent any more.
pub fn forget_others(dir: &Path, known: &NextHops, leases: &[Lease]) {
    let is_lent = |prefix: &Ipv6Addr| leases.iter().any(|lease| lease.address == IpAddr::V6(*prefix));
    for prefix in known.keys().filter(|prefix| !is_lent(prefix)) {
        let path = dir.join(format!("{NEXT_HOP}{prefix}"));
        let written = fs::metadata(&path).and_then(|about| about.modified());
        if written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEPT)) {
            // the next look does it, if this one could not
            let _ = fs::remove_file(path);
        }
    }
}

/// Of prefixes that a pool of the configuration has, on the unit that it is for.
pub fn routes(config: &Config, leases: &[Lease], hops: &NextHops) -> Vec<RouteWant> {
    let route = |lease: &Lease| {
        let IpAddr::V6(prefix) = lease.address else { return None };
        let subnet = config.dhcp_server.of(Family::Inet6).find(|subnet| {
            let has = |own: &sluice_language::dhcp_server::Delegated| {
                lease.length == own.length && contains(own.prefix, lease.address)
            };
            subnet.delegated.as_ref().is_some_and(has)
        })?;
        let (address, device) = hops.get(&prefix)?;
        let is_there = device_of(config, &subnet.unit).as_ref() == Some(device);
        is_there.then(|| RouteWant {
            table: MAIN_TABLE,
            destination: Prefix { addr: lease.address, len: lease.length },
            preference: PREFERENCE,
            target: RouteVia::Gateways(vec![Gateway {
                addr: IpAddr::V6(*address),
                device: Some(device.clone()),
            }]),
        })
    };
    leases.iter().filter_map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_script_are_next_hops() {
        let dir = std::env::temp_dir().join(format!("sluice-next-hops-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in [
            ("next-hop.2001:db8:1::", "fe80::1 lan0\n"),
            ("next-hop.2001:db8:2::", "2001:db8::1 lan0\n"),
            ("next-hop.2001:db8:3::", "fe80::1\n"),
            ("next-hop.2001:db8:4::", ""),
            ("next-hop.nowhere", "fe80::1 lan0\n"),
            ("new.7", "fe80::1 lan0\n"),
        ] {
            fs::write(dir.join(name), text).unwrap();
        }
        let found = next_hops(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let prefix: Ipv6Addr = "2001:db8:1::".parse().unwrap();
        assert_eq!(found, [(prefix, ("fe80::1".parse().unwrap(), "lan0".to_owned()))].into());
        assert_eq!(next_hops(&dir).unwrap(), NextHops::new(), "a directory that is not there has none");
    }
}
