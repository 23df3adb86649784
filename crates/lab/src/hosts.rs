//! What the hosts' own stacks counted.

use std::fs;

use anyhow::Result;

use crate::netns::Netns;

/// Files and counters that show a wrong checksum; a wrong one is invisible otherwise, since TCP sends again.
const COUNTERS: [(&str, &[&str]); 2] = [
    ("snmp", &["Tcp InCsumErrors", "Udp InCsumErrors", "Icmp InCsumErrors"]),
    ("snmp6", &["Icmp6InCsumErrors", "Udp6InCsumErrors"]),
];

/// Datagrams that sockets of this host had no room for, both families together.
pub fn udp_overflows(host: &Netns) -> u64 {
    let read = |file| host.enter(move || fs::read_to_string(format!("/proc/thread-self/net/{file}")));
    let text = |file| read(file).ok().and_then(Result::ok).unwrap_or_default();
    let (v4, v6) = (text("snmp"), text("snmp6"));
    paired(&v4, "Udp RcvbufErrors").unwrap_or(0) + single(&v6, "Udp6RcvbufErrors").unwrap_or(0)
}

/// `trust: Tcp InCsumErrors 3` for every counter that is not 0.
pub fn checksum_errors(hosts: &[&Netns]) -> Result<Vec<String>> {
    let mut errors = vec![];
    for host in hosts {
        for (file, counters) in COUNTERS {
            // Not /proc/net: that is the main thread's namespace.
            let text = host.enter(|| fs::read_to_string(format!("/proc/thread-self/net/{file}")))??;
            for counter in counters {
                let value = if file == "snmp" { paired(&text, counter) } else { single(&text, counter) };
                if value != Some(0) {
                    errors.push(format!(
                        "{}: {counter} {}",
                        host.name(),
                        value.map_or("?".into(), |v| v.to_string())
                    ));
                }
            }
        }
    }
    Ok(errors)
}

/// /proc/net/snmp: a line of names, then a line of values, both beginning with the protocol.
fn paired(text: &str, counter: &str) -> Option<u64> {
    let (protocol, name) = counter.split_once(' ')?;
    let mut lines = text.lines().filter(|line| line.split(':').next() == Some(protocol));
    let position = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(position)?.parse().ok()
}

/// /proc/net/snmp6: name and value on one line.
fn single(text: &str, counter: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(counter))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_in_both_formats() {
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs InCsumErrors\nTcp: 7 3\nUdp: InCsumErrors\nUdp: 0\n";
        assert_eq!(paired(snmp, "Tcp InCsumErrors"), Some(3));
        assert_eq!(paired(snmp, "Udp InCsumErrors"), Some(0));
        assert_eq!(paired(snmp, "Icmp InCsumErrors"), None);
        assert_eq!(single("Udp6InDatagrams   1\nUdp6InCsumErrors  \t 5\n", "Udp6InCsumErrors"), Some(5));
    }

    #[test]
    fn a_fresh_namespace_has_counted_no_errors() {
        let netns = Netns::create("counters").unwrap();
        assert_eq!(checksum_errors(&[&netns]).unwrap(), Vec::<String>::new());
    }
}
