//! What Kea and its files are called, by family.

use sluice_language::dhcp_server::Family;

pub struct Names {
    /// In the log.
    pub title: &'static str,
    pub program: &'static str,
    /// Debian's.
    pub package: &'static str,
    /// Below the state directory.
    pub directory: &'static str,
    pub configuration: &'static str,
    pub leases: &'static str,
    /// Kea names it after its configuration and itself.
    pub pid: &'static str,
    pub log: &'static str,
    /// What it says before it has a log.
    pub words: &'static str,
}

static DHCP: Names = Names {
    title: "the DHCP server",
    program: "kea-dhcp4",
    package: "kea-dhcp4-server",
    directory: "dhcp-server",
    configuration: "kea-dhcp4.conf",
    leases: "kea-leases4.csv",
    pid: "kea-dhcp4.kea-dhcp4.pid",
    log: "kea-dhcp4.log",
    words: "kea-dhcp4.out",
};

static DHCPV6: Names = Names {
    title: "the DHCPv6 server",
    program: "kea-dhcp6",
    package: "kea-dhcp6-server",
    directory: "dhcpv6-server",
    configuration: "kea-dhcp6.conf",
    leases: "kea-leases6.csv",
    pid: "kea-dhcp6.kea-dhcp6.pid",
    log: "kea-dhcp6.log",
    words: "kea-dhcp6.out",
};

pub fn names(family: Family) -> &'static Names {
    match family {
        Family::Inet => &DHCP,
        Family::Inet6 => &DHCPV6,
    }
}
