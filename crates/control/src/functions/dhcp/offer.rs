//! Which offers of DHCP servers a gateway takes, and what it takes of them.

use std::net::{IpAddr, Ipv4Addr};

use sluice_language::config::Prefix;
use sluice_language::dhcp::DhcpClient;
use sluice_plan::contains;

use super::lease::{Lease4, Net, Until};
use super::wire4::{Reply, code};
use crate::kernel::lease::FOREVER_S;

/// A lease that is over before it could be renewed is none.
pub const LEAST_LEASE_S: u32 = 10;

/// What this host has besides: configured addresses, by device.
pub type Taken<'a> = &'a [(String, Prefix)];

/// A lease, and what of the message was left out; or why there is none.
pub fn judge(
    reply: &Reply,
    config: &DhcpClient,
    device: &str,
    taken: Taken,
) -> Result<(Lease4, Vec<String>), String> {
    let server = reply.server().filter(|server| is_host(*server)).ok_or("it does not say of which server")?;
    if config.server.is_some_and(|only| only != server) {
        return Err(format!("server {server} is not `server-address`"));
    }
    let length = reply.length().ok_or("its subnet mask is none")?;
    let address = reply.yours;
    if !is_host(address) || address.is_link_local() {
        return Err(format!("{address} is no address of a host"));
    }
    let subnet = sluice_plan::network(Prefix { addr: address.into(), len: length });
    if length < 31 && (subnet.addr == IpAddr::V4(address) || last(subnet) == address) {
        return Err(format!("{address} is the network's own or its broadcast address with /{length}"));
    }
    let overlaps = |(on, other): &&(String, Prefix)| {
        on != device && (contains(*other, address.into()) || contains(subnet, other.addr))
    };
    if let Some((on, other)) = taken.iter().find(overlaps) {
        return Err(format!("{address}/{length} overlaps {}/{} of {on}", other.addr, other.len));
    }
    // RFC 2131, section 4.3.1: it must be there
    let lease_s = reply.seconds(code::LEASE).ok_or("it has no lease time")?;
    if lease_s < LEAST_LEASE_S {
        return Err(format!("its lease time is {lease_s} s, less than {LEAST_LEASE_S}"));
    }
    let (t1, t2) = times(lease_s, reply.seconds(code::T1), reply.seconds(code::T2));
    let (routes, left_out) = routes(reply, address, length, taken, device);
    let dns = reply.name_servers().into_iter().filter(|server| is_host(*server)).collect();
    let [ends, t1, t2] = [lease_s, t1, t2].map(Until::after);
    Ok((Lease4 { device: device.to_owned(), address, length, server, ends, t1, t2, routes, dns }, left_out))
}

/// RFC 2131, section 4.4.5: half and seven eighths, unless the server has said other times that are in order.
pub fn times(lease_s: u32, t1: Option<u32>, t2: Option<u32>) -> (u32, u32) {
    let part = |eighths: u64| {
        if lease_s == FOREVER_S { FOREVER_S } else { (u64::from(lease_s) * eighths / 8) as u32 }
    };
    let (first, second) = (t1.unwrap_or_else(|| part(4)), t2.unwrap_or_else(|| part(7)));
    match 0 < first && first < second && second < lease_s {
        true => (first, second),
        false => (part(4), part(7)),
    }
}

/// Neither of everybody, nor of nobody, nor of one machine alone.
pub fn is_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

fn last(subnet: Prefix) -> Ipv4Addr {
    match subnet.addr {
        IpAddr::V4(addr) => {
            Ipv4Addr::from(u32::from(addr) | u32::MAX.checked_shr(subnet.len.into()).unwrap_or(0))
        }
        IpAddr::V6(_) => Ipv4Addr::BROADCAST,
    }
}

type Routes = Vec<(Net, Ipv4Addr)>;

/// Routes of option 121, else the first router of option 3; and those that cannot be used. A gateway is in the subnet, or
/// behind a route of option 121 that says that it is on the link (RFC 3442).
fn routes(reply: &Reply, own: Ipv4Addr, length: u8, taken: Taken, device: &str) -> (Routes, Vec<String>) {
    let everywhere = Prefix { addr: Ipv4Addr::UNSPECIFIED.into(), len: 0 };
    let offered = reply
        .routes()
        .unwrap_or_else(|| reply.routers().into_iter().take(1).map(|router| (everywhere, router)).collect());
    let mut reached = vec![Prefix { addr: own.into(), len: length }];
    reached.extend(
        offered.iter().filter(|(_, via)| via.is_unspecified()).map(|(to, _)| *to).filter(|to| to.len > 0),
    );
    let (mut routes, mut left_out) = (Routes::new(), vec![]);
    for (to, via) in &offered {
        let on_link = via.is_unspecified();
        let is_reached = on_link
            || *via != own && is_host(*via) && reached.iter().any(|net| contains(*net, (*via).into()));
        let elsewhere = |(on, other): &(String, Prefix)| {
            on != device && to.len > 0 && to.len >= other.len && contains(*other, to.addr)
        };
        let IpAddr::V4(first) = to.addr else { continue };
        let text = || format!("{}/{} via {via}", to.addr, to.len);
        if !is_reached {
            left_out.push(format!("route {}: nothing says that the gateway is on the link", text()));
        } else if to.len > 0 && !is_host(first) {
            left_out.push(format!("route {}: no hosts have such addresses", text()));
        } else if taken.iter().any(elsewhere) {
            left_out.push(format!("route {}: it would take addresses of another interface", text()));
        } else if !routes.iter().any(|(known, _)| Prefix::from(*known) == *to) {
            routes.push(((*to).into(), *via));
        }
    }
    // the kernel looks for gateways on the link while it adds routes by them
    routes.sort_by_key(|(_, via)| !via.is_unspecified());
    (routes, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::dhcp::wire4::{Type, tests::reply};

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const HOUR: [u8; 4] = 3600u32.to_be_bytes();
    const MASK: [u8; 4] = [255, 255, 255, 0];
    const SERVER: [u8; 4] = [192, 0, 2, 1];

    fn config() -> DhcpClient {
        DhcpClient {
            identifier: None,
            lease_s: None,
            server: None,
            vendor: None,
            attempts: 6,
            interval_s: 4,
            install_dns: true,
            host_name: None,
            discover: false,
            default_route: true,
            preference: 12,
        }
    }

    fn judged(address: [u8; 4], options: &[(u8, &[u8])]) -> Result<(Lease4, Vec<String>), String> {
        let common: [(u8, &[u8]); 3] = [(code::MASK, &MASK), (code::LEASE, &HOUR), (code::SERVER, &SERVER)];
        let mut all: Vec<(u8, &[u8])> = options.to_vec();
        all.extend(common.iter().filter(|(code, _)| !options.iter().any(|(other, _)| other == code)));
        let bytes = reply(Type::Offer, 1, MAC, address.into(), &all);
        let lan = Prefix { addr: "10.0.0.1".parse().unwrap(), len: 24 };
        judge(&Reply::parse(&bytes).unwrap(), &config(), "wan0", &[("lan0".to_owned(), lan)])
    }

    #[test]
    fn addresses_that_no_host_may_have_are_refused() {
        assert!(judged([192, 0, 2, 9], &[]).is_ok());
        for (address, why) in [
            ([0, 0, 0, 0], "no address of a host"),
            ([127, 0, 0, 1], "no address of a host"),
            ([224, 0, 0, 5], "no address of a host"),
            ([255, 255, 255, 255], "no address of a host"),
            ([169, 254, 1, 1], "no address of a host"),
            ([192, 0, 2, 0], "the network's own"),
            ([192, 0, 2, 255], "the network's own or its broadcast"),
            ([10, 0, 0, 1], "overlaps 10.0.0.1/24 of lan0"),
            ([10, 0, 0, 77], "overlaps 10.0.0.1/24 of lan0"),
        ] {
            let said = judged(address, &[]).unwrap_err();
            assert!(said.contains(why), "{address:?}: {said}");
        }
        assert!(judged([10, 9, 9, 9], &[(code::MASK, &[255, 0, 0, 0])]).unwrap_err().contains("overlaps"));
        assert!(judged([192, 0, 2, 9], &[(code::MASK, &[0; 4])]).unwrap_err().contains("mask"));
        assert!(judged([192, 0, 2, 9], &[(code::SERVER, &[0; 4])]).unwrap_err().contains("of which server"));
    }

    #[test]
    fn lying_times_are_refused_or_put_in_order() {
        let lease = |seconds: u32| judged([192, 0, 2, 9], &[(code::LEASE, &seconds.to_be_bytes())]);
        assert!(lease(0).unwrap_err().contains("0 s") && lease(1).unwrap_err().contains("1 s"));
        assert_eq!(lease(FOREVER_S).unwrap().0.ends, Until::default());
        assert_eq!(times(800, None, None), (400, 700));
        assert_eq!(times(800, Some(100), Some(200)), (100, 200));
        assert_eq!(times(800, Some(500), Some(200)), (400, 700), "T2 before T1");
        assert_eq!(times(800, Some(0), Some(0)), (400, 700));
        assert_eq!(times(800, Some(900), Some(1000)), (400, 700), "behind the end");
        assert_eq!(times(FOREVER_S, None, None), (FOREVER_S, FOREVER_S));
    }

    #[test]
    fn gateways_are_on_the_link_or_left_out() {
        let routes = |options: &[(u8, &[u8])]| {
            let (lease, left_out) = judged([192, 0, 2, 9], options).unwrap();
            let text = lease.routes.iter().map(|(to, via)| format!("{to} {via}"));
            (text.collect::<Vec<_>>(), left_out.len())
        };
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(routes(&[(code::ROUTER, &SERVER)]), (texts(&["0.0.0.0/0 192.0.2.1"]), 0));
        assert_eq!(routes(&[(code::ROUTER, &[198, 51, 100, 1])]), (vec![], 1), "outside of the subnet");
        assert_eq!(routes(&[(code::ROUTER, &[192, 0, 2, 9])]), (vec![], 1), "its own address");
        // on the link by option 121, which counts instead of option 3 (RFC 3442)
        let far = [0, 198, 51, 100, 1, 32, 198, 51, 100, 1, 0, 0, 0, 0];
        let both: &[(u8, &[u8])] = &[(code::ROUTER, &SERVER), (code::ROUTES, &far)];
        assert_eq!(routes(both), (texts(&["198.51.100.1/32 0.0.0.0", "0.0.0.0/0 198.51.100.1"]), 0));
        // the network of another interface, and no network
        let bad = [24, 10, 0, 0, 192, 0, 2, 1, 8, 127, 192, 0, 2, 1, 16, 10, 9, 192, 0, 2, 1];
        assert_eq!(routes(&[(code::ROUTES, &bad)]), (texts(&["10.9.0.0/16 192.0.2.1"]), 2));
    }

    #[test]
    fn only_the_server_that_is_named_is_listened_to() {
        let bytes = reply(
            Type::Offer,
            1,
            MAC,
            [192, 0, 2, 9].into(),
            &[(code::LEASE, &HOUR), (code::SERVER, &SERVER)],
        );
        let only = DhcpClient { server: Some(Ipv4Addr::new(192, 0, 2, 2)), ..config() };
        let said = judge(&Reply::parse(&bytes).unwrap(), &only, "wan0", &[]).unwrap_err();
        assert!(said.contains("server 192.0.2.1"), "{said}");
    }
}
