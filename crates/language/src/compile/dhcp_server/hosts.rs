//! Clients with addresses of their own.

use std::collections::HashMap;

use super::{MAX_HOSTS, bounded, hex, lendable};
use crate::compile::view::View;
use crate::config::Prefix;
use crate::dhcp_server::{DhcpHost, Family};
use crate::error::Report;

/// Bytes of a DUID (RFC 8415 11.1), its type counted.
const SHORTEST_DUID: usize = 3;
const LONGEST_DUID: usize = 130;

/// By what a client is known: the statement, what it is called, and what it looks like.
fn known_by(family: Family) -> (&'static str, &'static str, &'static str) {
    match family {
        Family::Inet => ("hardware-address", "hardware address", "02:00:5e:10:00:01"),
        Family::Inet6 => ("duid", "DUID", "00:03:00:01:02:00:5e:10:00:01"),
    }
}

pub(super) fn hosts(inet: View, network: Prefix, report: &mut Report) -> Vec<DhcpHost> {
    let family = Family::of(network.addr);
    let (statement, what, like) = known_by(family);
    let (mut clients, mut addresses) = (HashMap::new(), HashMap::new());
    let mut found = vec![];
    for view in bounded(inet, "host", MAX_HOSTS, report) {
        let (Some(client), Some(own)) = (view.value(&[statement]), view.value(&["ip-address"])) else {
            let message = format!("host `{}` lacks `{statement}` or `ip-address`", view.word());
            report.error_help(&view.location(), message, "add both");
            continue;
        };
        let read = match family {
            Family::Inet => mac_address(client.word()).map(Vec::from),
            Family::Inet6 => duid(client.word()),
        };
        let Some(read) = read else {
            let message = format!("`{}` is no {what}", client.word());
            report.error_help(&client.location(), message, format!("write it like `{like}`"));
            continue;
        };
        let Some(address) = lendable(own, network, report) else { continue };
        let twins = [
            clients.insert(read.clone(), view).map(|other| (other, what)),
            addresses.insert(address, view).map(|other| (other, "address")),
        ];
        for (other, what) in twins.into_iter().flatten() {
            let message = format!("host `{}` has the {what} of host `{}`", view.word(), other.word());
            report.error_help(&view.location(), message, "give each its own");
        }
        found.push(DhcpHost { name: view.word().to_owned(), client: read, address });
    }
    found
}

/// Bytes between colons or hyphens.
fn bytes(word: &str) -> Option<Vec<u8>> {
    let byte = |part: &str| {
        let is_hex = (1..=2).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_hexdigit());
        u8::from_str_radix(part, 16).ok().filter(|_| is_hex)
    };
    word.split([':', '-']).map(byte).collect()
}

fn mac_address(word: &str) -> Option<[u8; 6]> {
    bytes(word)?.try_into().ok()
}

/// With colons or without.
fn duid(word: &str) -> Option<Vec<u8>> {
    let read = if word.contains([':', '-']) { bytes(word)? } else { hex(word)? };
    (SHORTEST_DUID..=LONGEST_DUID).contains(&read.len()).then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_bytes_are_read_strictly() {
        assert_eq!(mac_address("02:00:5E:10:0:1"), Some([2, 0, 0x5e, 0x10, 0, 1]));
        for wrong in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "02:00:5e:10:00:+1",
            "2005e100001",
            "02:00:5e:10:00:001",
        ] {
            assert_eq!(mac_address(wrong), None, "{wrong}");
        }
        assert_eq!(hex("0x0aFF"), Some(vec![10, 255]));
        assert_eq!(hex("0a0"), None);
        assert_eq!(hex("+a"), None);
        assert_eq!(duid("0:3:0:1:2:0"), Some(vec![0, 3, 0, 1, 2, 0]));
        assert_eq!(duid("000300010200"), Some(vec![0, 3, 0, 1, 2, 0]));
        let longest = "00".repeat(LONGEST_DUID);
        assert_eq!(duid(&longest).map(|read| read.len()), Some(LONGEST_DUID));
        for wrong in ["", "00:03", "0003", "00:03:00:xx", "00:03::01", &format!("{longest}00")] {
            assert_eq!(duid(wrong), None, "{wrong}");
        }
    }
}
