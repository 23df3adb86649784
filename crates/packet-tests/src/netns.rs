//! Namespaces of a gateway under test, nameless: they vanish with the thread and file descriptor that hold them, also
//! when a test is killed.

use anyhow::Result;

pub use sluice_netns::here::{ifindex, ip, ip6, sysctl};
pub use sluice_netns::{Namespace, in_thread};

/// Makes the calling thread's namespace a gateway whose kernel says nothing of its own accord: no address is
/// probed, no router asked for, and multicast reports come once and at once when a device comes up.
pub fn quiet_gateway() -> Result<()> {
    let quiet = [
        ("net/ipv4/conf/all/forwarding", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
        ("net/ipv6/conf/default/forwarding", "1"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv6/conf/default/mldv2_unsolicited_report_interval", "1"),
    ];
    Ok(quiet.iter().try_for_each(|(path, value)| sysctl(path, value))?)
}
