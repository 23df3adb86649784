//! What of a DHCPv6 server's answer a gateway takes.

use std::net::{IpAddr, Ipv6Addr};

use sluice_language::config::Prefix;
use sluice_plan::{contains, network};

use super::lease::{Given, Net, Until};
use super::offer::{LEAST_LEASE_S, Taken};
use super::wire6::{Association, Message, Part, status};
use crate::kernel::lease::FOREVER_S;

/// The longest and the shortest prefix that is taken.
const PREFIXES: std::ops::RangeInclusive<u8> = 16..=64;

/// What an answer gives, and what of it was left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    pub address: Option<Given>,
    pub prefix: Option<Given>,
    /// In seconds.
    pub t1: u32,
    pub t2: u32,
    pub left_out: Vec<String>,
    /// What is good no more: its valid lifetime is 0.
    pub ended: Vec<Net>,
    /// The server knows nothing of an association (RFC 8415, section 18.2.10.1).
    pub no_binding: bool,
}

pub fn judge(message: &Message, id: u32, device: &str, taken: Taken) -> Judged {
    let mut judged = Judged { t1: FOREVER_S, t2: FOREVER_S, ..Judged::default() };
    for association in message.associations.iter().filter(|association| association.id == id) {
        if association.status != status::SUCCESS {
            judged.no_binding |= association.status == status::NO_BINDING;
            judged.left_out.push(format!("the server gives none (status {})", association.status));
            continue;
        }
        // section 21.4: T1 behind T2 is no association
        if association.t1_s > association.t2_s && association.t2_s > 0 {
            judged.left_out.push(format!("T1 {} s is behind T2 {} s", association.t1_s, association.t2_s));
            continue;
        }
        let ended =
            association.parts.iter().filter(|part| part.valid_s == 0).map(|part| Net::from(part.prefix));
        judged.ended.extend(ended);
        let mut whys = vec![];
        let good =
            association.parts.iter().filter(|part| match wrong(part, association.is_prefix, device, taken) {
                None => true,
                Some(why) => {
                    whys.push(why);
                    false
                }
            });
        // one of each kind is asked for
        let first = good.collect::<Vec<_>>().first().copied().copied();
        judged.left_out.extend(whys);
        let Some(part) = first else { continue };
        let (t1, t2) = times(association, &part);
        (judged.t1, judged.t2) = (judged.t1.min(t1), judged.t2.min(t2));
        let given = Given {
            net: part.prefix.into(),
            preferred: Until::after(part.preferred_s),
            valid: Until::after(part.valid_s),
        };
        let place = if association.is_prefix { &mut judged.prefix } else { &mut judged.address };
        *place = place.take().or(Some(given));
    }
    judged
}

/// Section 14.2: what a server leaves to the client is half and four fifths of what is preferred.
fn times(association: &Association, part: &Part) -> (u32, u32) {
    let of = |tenths: u64| match part.preferred_s {
        FOREVER_S => FOREVER_S,
        0 => (u64::from(part.valid_s) * tenths / 10) as u32,
        seconds => (u64::from(seconds) * tenths / 10) as u32,
    };
    let t1 = if association.t1_s == 0 { of(5) } else { association.t1_s };
    let t2 = if association.t2_s == 0 { of(8) } else { association.t2_s };
    match t1 <= t2 && t2 <= part.valid_s {
        true => (t1.max(1), t2.max(2)),
        false => (of(5), of(8)),
    }
}

fn wrong(part: &Part, is_prefix: bool, device: &str, taken: Taken) -> Option<String> {
    let Prefix { addr, len } = part.prefix;
    let IpAddr::V6(first) = addr else { return Some("an address of another family".to_owned()) };
    let text = format!("{first}/{len}");
    if first.is_multicast() || first.is_loopback() || first.is_unspecified() || first.is_unicast_link_local()
    {
        return Some(format!("{text} is of no host"));
    }
    if is_prefix && !PREFIXES.contains(&len) {
        return Some(format!(
            "{text} is shorter than /{} or longer than /{}",
            PREFIXES.start(),
            PREFIXES.end()
        ));
    }
    // section 21.6
    if part.preferred_s > part.valid_s {
        return Some(format!("{text} is preferred for longer than it is valid"));
    }
    if part.valid_s < LEAST_LEASE_S {
        return Some(format!("{text} is valid for {} s, less than {LEAST_LEASE_S}", part.valid_s));
    }
    let overlaps = |(on, other): &&(String, Prefix)| {
        let other = network(*other);
        on != device && (contains(other, addr) || is_prefix && contains(part.prefix, other.addr))
    };
    taken
        .iter()
        .find(overlaps)
        .map(|(on, other)| format!("{text} overlaps {}/{} of {on}", other.addr, other.len))
}

/// The network that a unit gets of a prefix, by its place in the configuration; None = there is no room. Its first address
/// is the gateway's.
pub fn sub_prefix(prefix: Net, length: u8, index: usize) -> Option<Net> {
    let IpAddr::V6(first) = prefix.addr else { return None };
    let bits = length.checked_sub(prefix.len)?;
    if bits < 32 && index >= 1 << bits {
        return None;
    }
    let network = u128::from(first) | (index as u128) << (128 - length);
    Some(Net { addr: Ipv6Addr::from(network | 1).into(), len: 64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::dhcp::wire6::Type;

    fn net(text: &str) -> Prefix {
        let (addr, len) = text.split_once('/').unwrap();
        Prefix { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
    }

    fn judged(is_prefix: bool, part: &str, times: [u32; 4]) -> Judged {
        let [t1_s, t2_s, preferred_s, valid_s] = times;
        let parts = vec![Part { prefix: net(part), preferred_s, valid_s }];
        let association = Association { is_prefix, id: 1, t1_s, t2_s, parts, status: 0 };
        let message =
            Message { associations: vec![association], ..Message::new(Type::Reply, [0; 3], vec![]) };
        judge(&message, 1, "wan0", &[("lan0".to_owned(), net("fd00:1::1/64"))])
    }

    #[test]
    fn sub_prefixes_go_by_place_and_end_with_the_prefix() {
        let of = |prefix: &str, length, index| {
            sub_prefix(net(prefix).into(), length, index).map(|net| net.to_string())
        };
        assert_eq!(of("2001:db8:0:10::/60", 64, 0).as_deref(), Some("2001:db8:0:10::1/64"));
        assert_eq!(of("2001:db8:0:10::/60", 64, 15).as_deref(), Some("2001:db8:0:1f::1/64"));
        assert_eq!(of("2001:db8:0:10::/60", 64, 16), None);
        assert_eq!(of("2001:db8::/56", 60, 1).as_deref(), Some("2001:db8:0:10::1/64"));
        assert_eq!(of("2001:db8::/64", 64, 1), None);
        assert_eq!(of("2001:db8::/64", 60, 0), None);
    }

    #[test]
    fn times_are_the_servers_or_half_and_four_fifths() {
        let times = |times| {
            let judged = judged(false, "2001:db8::9/128", times);
            (judged.t1, judged.t2)
        };
        assert_eq!(times([100, 200, 300, 400]), (100, 200));
        assert_eq!(times([0, 0, 300, 400]), (150, 240));
        assert_eq!(times([0, 0, FOREVER_S, FOREVER_S]), (FOREVER_S, FOREVER_S));
        assert_eq!(times([500, 600, 300, 400]), (150, 240), "behind the end");
        let wrong = judged(false, "2001:db8::9/128", [300, 200, 300, 400]);
        assert!(wrong.address.is_none() && wrong.left_out[0].contains("behind T2"), "{wrong:?}");
    }

    #[test]
    fn what_no_host_may_have_is_left_out() {
        for (is_prefix, part, times, why) in [
            (false, "ff02::9/128", [0, 0, 300, 400], "of no host"),
            (false, "fe80::9/128", [0, 0, 300, 400], "of no host"),
            (false, "::1/128", [0, 0, 300, 400], "of no host"),
            (false, "fd00:1::9/128", [0, 0, 300, 400], "overlaps fd00:1::1/64 of lan0"),
            (true, "fd00::/16", [0, 0, 300, 400], "overlaps"),
            (true, "2001:db8::/80", [0, 0, 300, 400], "longer than /64"),
            (true, "::/0", [0, 0, 300, 400], "of no host"),
            (false, "2001:db8::9/128", [0, 0, 500, 400], "preferred for longer"),
            (false, "2001:db8::9/128", [0, 0, 1, 1], "less than 10"),
        ] {
            let judged = judged(is_prefix, part, times);
            assert!(judged.address.is_none() && judged.prefix.is_none(), "{part}");
            assert!(judged.left_out[0].contains(why), "{part}: {:?}", judged.left_out);
        }
        assert!(judged(true, "2001:db8::/56", [0, 0, 300, 400]).prefix.is_some());
    }
}
