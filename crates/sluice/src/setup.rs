//! `sluice setup`: a first configuration of the machine it runs on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use nix::ifaddrs::getifaddrs;

use crate::exit::{Failure, Outcome};

#[derive(Args)]
pub struct SetupArgs {
    /// Where it is written
    #[arg(long, value_name = "FILE", default_value = "/etc/sluice/sluice.conf")]
    output: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub fn setup(args: &SetupArgs) -> Outcome {
    if args.output.exists() && !args.force {
        let message = format!("{} is there already; --force replaces it", args.output.display());
        return Err(Failure::bad_input(message));
    }
    let machine =
        Machine::look(sluice_control::owned_devices().map_err(Failure::failed)?).map_err(Failure::failed)?;
    let text = machine.configuration()?;
    sluice_language::parse(&text, "the first configuration")
        .and_then(|tree| sluice_language::compile(&tree))
        .map_err(Failure::failed)?;
    print!("{text}");
    machine.remarks().iter().for_each(|remark| eprintln!("sluice: {remark}"));
    if !args.yes && !agreed(&args.output).map_err(Failure::failed)? {
        return Err(Failure::failed("nothing was written"));
    }
    write(&args.output, &text).map_err(|error| {
        Failure::failed(format!(
            "cannot write {}: {error}; choose another with --output",
            args.output.display()
        ))
    })?;
    println!(
        "\nWritten to {0}. `sluice check {0}` says whether this machine can run it,",
        args.output.display()
    );
    println!("`systemctl enable --now sluice` starts the gateway with it.");
    Ok(ExitCode::SUCCESS)
}

fn agreed(output: &Path) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(io::Error::other("nobody can be asked here; --yes writes without asking"));
    }
    print!("\nWrite this to {}? [y/N] ", output.display());
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn write(output: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = output.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(output)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The session that the command was typed in.
struct Ssh {
    device: String,
    port: u16,
}

struct Machine {
    /// Devices with addresses that units can stand on, besides the loopback.
    devices: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Those with addresses that none can stand on, and why.
    left_out: BTreeMap<String, String>,
    /// Those with a default route.
    outside: BTreeSet<String>,
    /// Those with a default route that the first start would remove.
    advertised: BTreeSet<String>,
    ssh: Option<Ssh>,
}

impl Machine {
    /// `owned`: devices whose frames another one has.
    fn look(owned: BTreeMap<String, String>) -> io::Result<Self> {
        let mut devices: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for entry in getifaddrs()? {
            let address = entry.address.and_then(|address| {
                let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
            });
            if let Some(address) = address.filter(|address| !address.is_loopback()) {
                devices.entry(entry.interface_name).or_default().insert(address);
            }
        }
        devices.remove("lo");
        let ssh = sluice_control::ssh_connection().and_then(|said| ssh(&said, &devices));
        let left_out: BTreeMap<_, _> =
            owned.into_iter().filter(|(device, _)| devices.contains_key(device)).collect();
        devices.retain(|device, _| !left_out.contains_key(device));
        let outside = default_routes().into_iter().filter(|device| devices.contains_key(device)).collect();
        Ok(Self { devices, left_out, outside, advertised: advertised(), ssh })
    }

    fn zone(&self, device: &str) -> &'static str {
        if self.outside.contains(device) { "untrust" } else { "trust" }
    }

    /// Addresses stay with who gives them, DHCP or the system: none is written down.
    fn configuration(&self) -> Result<String, Failure> {
        if self.devices.is_empty() {
            let message =
                "no interface has an address; set the network up first, or write the configuration by hand";
            return Err(Failure::failed(message));
        }
        let mut text =
            "# The first configuration, by `sluice setup`. Addresses are the system's.\n".to_owned();
        for device in self.devices.keys() {
            let _ = writeln!(text, "set interfaces {device} unit 0");
        }
        for device in self.devices.keys() {
            let at = format!("set security zones security-zone {} interfaces {device}.0", self.zone(device));
            for service in self.services(device) {
                let _ = writeln!(text, "{at} host-inbound-traffic system-services {service}");
            }
        }
        let zones: BTreeSet<&str> = self.devices.keys().map(|device| self.zone(device)).collect();
        if zones.len() == 2 {
            text += OUT;
        }
        let tree = sluice_language::parse(&text, "the first configuration").map_err(Failure::failed)?;
        Ok(tree.to_text())
    }

    /// What this host is asked for on an interface. Only where the session came in may others begin one.
    fn services(&self, device: &str) -> Vec<&'static str> {
        let mut services = vec!["ping", "dhcp", "dhcpv6"];
        match &self.ssh {
            Some(ssh) if ssh.device == device && ssh.port == 22 => services.push("ssh"),
            // `ssh` is port 22 alone
            Some(ssh) if ssh.device == device => services = vec!["any-service"],
            _ => {}
        }
        services
    }

    fn remarks(&self) -> Vec<String> {
        let left_out = self.left_out.iter();
        let mut remarks: Vec<String> =
            left_out.map(|(device, why)| format!("{device} is left out: {why}")).collect();
        match &self.ssh {
            None => remarks.push(
                "this is no SSH session: the configuration lets nobody in; add `host-inbound-traffic system-services ssh` \
                 where you need it"
                    .to_owned(),
            ),
            Some(Ssh { device, .. }) if self.left_out.contains_key(device) => remarks.push(format!(
                "this session comes in on {device}, which is left out: the gateway does not touch what arrives there"
            )),
            Some(Ssh { device, port: 22 }) => remarks
                .push(format!("SSH is let in on {device}, where this session comes from, and the session is kept")),
            Some(Ssh { device, port }) => remarks.push(format!(
                "SSH listens on port {port} here, which no service stands for: {device} lets everything in to this host"
            )),
        }
        remarks.extend(self.advertised.iter().map(|device| {
            format!(
                "the IPv6 default route by {device} is of router advertisements, which routers do not take: it goes with the first \
                 start, unless net.ipv6.conf.{device}.accept_ra is 2 (sysctl)"
            )
        }));
        if self.outside.is_empty() {
            remarks.push("no interface has a default route: all of them are in the zone trust".to_owned());
        }
        remarks
    }
}

/// From inside to outside, behind the address of the interface.
const OUT: &str = "\
set security policies from-zone trust to-zone untrust policy out match source-address any
set security policies from-zone trust to-zone untrust policy out match destination-address any
set security policies from-zone trust to-zone untrust policy out match application any
set security policies from-zone trust to-zone untrust policy out then permit
set security nat source rule-set out from zone trust
set security nat source rule-set out to zone untrust
set security nat source rule-set out rule hide match source-address 0.0.0.0/0
set security nat source rule-set out rule hide then source-nat interface
";

/// `SSH_CONNECTION`: client's address and port, this host's address and port.
fn ssh(said: &str, devices: &BTreeMap<String, BTreeSet<IpAddr>>) -> Option<Ssh> {
    let mut words = said.split_whitespace().skip(2);
    // a link-local address names its device, too
    let address = words.next()?.split('%').next()?.parse::<IpAddr>().ok()?.to_canonical();
    let port = words.next()?.parse().ok()?;
    let (device, _) = devices.iter().find(|(_, addresses)| addresses.contains(&address))?;
    Some(Ssh { device: device.clone(), port })
}

/// Lines of `/proc/net/ipv6_route` with a default route.
fn default_routes6(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|words| {
        words.first().is_some_and(|to| to.bytes().all(|b| b == b'0')) && words.get(1) == Some(&"00")
    })
}

/// RTF_DEFAULT and RTF_ADDRCONF of <linux/ipv6_route.h>.
const LEARNED: u32 = 0x0005_0000;

/// Devices of default routes by router advertisements. The kernel removes them as soon as any device forwards, but where
/// `accept_ra` is 2.
fn advertised() -> BTreeSet<String> {
    let accepts = |device: &String| fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{device}/accept_ra"));
    let mut devices = learned(&fs::read_to_string(ROUTES6).unwrap_or_default());
    devices.retain(|device| accepts(device).is_ok_and(|value| value.trim() != "2"));
    devices
}

fn learned(text: &str) -> BTreeSet<String> {
    let is_learned = |words: &Vec<&str>| {
        let flags = words.get(8).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & LEARNED == LEARNED)
    };
    let devices = default_routes6(text).filter(is_learned);
    devices.filter_map(|words| words.last().map(ToString::to_string)).collect()
}

const ROUTES6: &str = "/proc/net/ipv6_route";

/// Devices of default routes, of both families.
fn default_routes() -> BTreeSet<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let v4 = read("/proc/net/route");
    let v4 = v4.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let v4 = v4.filter(|words| words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000"));
    let v6 = read(ROUTES6);
    let v6 = default_routes6(&v6);
    let devices = v4.filter_map(|words| words.first().map(ToString::to_string));
    devices.chain(v6.filter_map(|words| words.last().map(ToString::to_string))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(said: &str) -> Machine {
        let addresses = |text: &str| text.split(' ').map(|address| address.parse().unwrap()).collect();
        let devices = BTreeMap::from([
            ("eth0".to_owned(), addresses("192.0.2.2 2001:db8::2")),
            ("eth1".to_owned(), addresses("10.0.0.1")),
        ]);
        let ssh = ssh(said, &devices);
        let outside = BTreeSet::from(["eth0".to_owned()]);
        Machine { devices, left_out: BTreeMap::new(), outside, advertised: BTreeSet::new(), ssh }
    }

    #[test]
    fn the_interface_of_the_session_lets_ssh_in() {
        for (said, device) in [
            ("10.0.0.9 4000 10.0.0.1 22", Some("eth1")),
            ("2001:db8::9 4000 2001:db8::2 22", Some("eth0")),
            ("192.0.2.9 4000 ::ffff:192.0.2.2 22", Some("eth0")),
            ("192.0.2.9 4000 192.0.2.77 22", None),
            ("nonsense", None),
        ] {
            let machine = machine(said);
            assert_eq!(machine.ssh.as_ref().map(|ssh| &*ssh.device), device, "{said}");
            let with = machine.devices.keys().filter(|own| machine.services(own).contains(&"ssh"));
            assert_eq!(with.map(String::as_str).collect::<Vec<_>>(), Vec::from_iter(device), "{said}");
        }
        assert_eq!(machine("10.0.0.9 4000 10.0.0.1 2222").services("eth1"), ["any-service"]);
    }

    #[test]
    fn default_routes_of_advertisements_are_told_from_others() {
        let route = |flags: &str, device: &str| {
            let (none, via) = ("0".repeat(32), "fe80000000000000000000000000009e");
            format!("{none} 00 {none} 00 {via} 00000400 00000001 00000000 {flags} {device}\n")
        };
        let text = [route("00450003", "eth0"), route("00000003", "eth1"), route("00200200", "lo")].concat();
        assert_eq!(learned(&text), BTreeSet::from(["eth0".to_owned()]));
    }

    #[test]
    fn what_is_written_compiles() {
        let Ok(text) = machine("10.0.0.9 4000 10.0.0.1 22").configuration() else {
            panic!("no configuration")
        };
        let tree = sluice_language::parse(&text, "first").unwrap();
        let config = sluice_language::compile(&tree).unwrap();
        assert_eq!(config.zones.len(), 2);
        assert_eq!(config.nat.source.rule_sets.len(), 1);
    }
}
