//! What clients are told: options of both protocols, as bytes.

use std::net::IpAddr;

use super::{hex, of_its_family};
use crate::compile::view::View;
use crate::dhcp_server::Family;
use crate::error::Report;

/// Options of DHCP (RFC 2132 3, 9) that statements stand for, and those that the server makes itself.
pub(super) const ROUTER: u16 = 3;
const NAME_SERVER: u16 = 6;
const DOMAIN_NAME: u16 = 15;
const TFTP_SERVER: u16 = 66;
const BOOT_FILE: u16 = 67;
const OF_THE_SERVER: [u16; 9] = [1, 50, 51, 53, 54, 55, 57, 61, 82];

/// The same of DHCPv6 (RFC 3646 3, 4; RFC 8415 21).
const DNS_SERVER6: u16 = 23;
const DOMAINS6: u16 = 24;
const OF_THE_SERVER6: [u16; 20] = [1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 14, 15, 16, 18, 19, 20, 25, 26, 37];

/// An option, the statement that stands for it, and its value where that is written.
type Named = (u16, &'static str, Option<Vec<u8>>);

pub(super) fn options(view: View, family: Family, report: &mut Report) -> Vec<(u16, Vec<u8>)> {
    let (named, of_the_server): (Vec<Named>, &[u16]) = match family {
        Family::Inet => (named(view, report), &OF_THE_SERVER),
        Family::Inet6 => (named6(view, report), &OF_THE_SERVER6),
    };
    let mut found: Vec<(u16, Vec<u8>)> = vec![];
    for entry in view.entries(&["option"]) {
        let Some(code) = entry.number::<u16>() else { continue };
        let twin = named.iter().find(|(own, _, value)| *own == code && value.is_some());
        let help = match twin {
            Some((_, name, _)) => Some(format!("`{name}` stands for it: leave one out")),
            None if of_the_server.contains(&code) => {
                Some("the server makes it itself: leave it out".to_owned())
            }
            None => None,
        };
        if let Some(help) = help {
            let message = format!("option {code} is told already");
            report.error_help(&entry.location(), message, help);
        }
        found.extend(value(entry, family, report).map(|value| (code, value)));
    }
    found.extend(named.into_iter().filter_map(|(code, _, value)| Some((code, value?))));
    found
}

fn named(view: View, report: &mut Report) -> Vec<Named> {
    let text = |name: &str| view.value(&[name]).map(|own| own.word().as_bytes().to_vec());
    vec![
        (ROUTER, "router", addresses(view, "router", Family::Inet, report)),
        (NAME_SERVER, "name-server", addresses(view, "name-server", Family::Inet, report)),
        (DOMAIN_NAME, "domain-name", text("domain-name")),
        (TFTP_SERVER, "tftp-server", text("tftp-server")),
        (BOOT_FILE, "boot-file", text("boot-file")),
    ]
}

fn named6(view: View, report: &mut Report) -> Vec<Named> {
    let domains: Vec<View> = view.entries(&["domain-name"]).collect();
    let bytes: Vec<u8> = domains.iter().flat_map(|own| labels(own.word())).collect();
    if let Some(last) = domains.last().filter(|_| bytes.len() > LONGEST) {
        report.error(&last.location(), "more domains of `domain-name` than an option has room for");
    }
    vec![
        (DNS_SERVER6, "dns-server", addresses(view, "dns-server", Family::Inet6, report)),
        (DOMAINS6, "domain-name", (!bytes.is_empty()).then_some(bytes)),
    ]
}

/// A name as DNS has it (RFC 1035 3.1); labels were counted when it was read.
fn labels(name: &str) -> Vec<u8> {
    let label = |label: &str| [&[label.len() as u8][..], label.as_bytes()].concat();
    name.split('.').flat_map(label).chain([0]).collect()
}

/// Bytes of an option (RFC 2132 2); those of DHCPv6 are held to it, too, so that an answer fits into one packet.
const LONGEST: usize = 255;

fn addresses(view: View, name: &str, family: Family, report: &mut Report) -> Option<Vec<u8>> {
    let all: Vec<View> = view.entries(&[name]).collect();
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let own = all.iter().filter_map(|own| of_its_family(*own, family, report));
    let bytes: Vec<u8> = own.flat_map(octets).collect();
    let room = match family {
        Family::Inet => LONGEST / 4,
        Family::Inet6 => LONGEST / 16,
    };
    if let Some(beyond) = all.get(room) {
        report.error(&beyond.location(), format!("more addresses of `{name}` than an option has room for"));
    }
    (!bytes.is_empty()).then_some(bytes)
}

fn value(entry: View, family: Family, report: &mut Report) -> Option<Vec<u8>> {
    let mut values = entry.children();
    let (first, more) = (values.next(), values.next());
    let Some(first) = first.filter(|_| more.is_none()) else {
        let message = format!("option {} needs one value", entry.word());
        report.error_help(&entry.location(), message, "write it like `option 42 ip-address 192.0.2.1`");
        return None;
    };
    let kind = first.word();
    if kind == "ip-address" {
        return addresses(entry, "ip-address", family, report);
    }
    let value = first.children().next()?;
    let bytes = match kind {
        "byte" => vec![value.number::<u8>()?],
        "short" => value.number::<u16>()?.to_be_bytes().to_vec(),
        "integer" => value.number::<u32>()?.to_be_bytes().to_vec(),
        "hex-string" => hex(value.word()).unwrap_or_default(),
        _ => value.word().as_bytes().to_vec(),
    };
    if bytes.is_empty() || bytes.len() > LONGEST {
        let message = format!("`{}` has no bytes for an option, or more than {LONGEST}", value.word());
        let help = match kind {
            "hex-string" => "write two hexadecimal digits for each byte, like `0a0b`",
            _ => "an option has 1 to 255 bytes (RFC 2132 2)",
        };
        report.error_help(&value.location(), message, help);
        return None;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_written_as_in_dns() {
        assert_eq!(labels("a.example"), *b"\x01a\x07example\x00");
    }
}
