use sluice_language::dhcp::DuidType;

use super::super::lease::Net;
use super::super::tried::{DUID, PATIENCE, alone, link};
use super::super::wire6::Part;
use super::*;

const ADDRESS: &str = "2001:db8:72::9/128";
const PREFIX: &str = "2001:db8:1000::/56";
const SUB_PREFIX: &str = "2001:db8:1000::1/64";
const SERVER: &[u8] = &[0, 3, 0, 1, 2, 0, 0, 0, 0, 9];

fn net(text: &str) -> Net {
    let (addr, len) = text.split_once('/').unwrap();
    Net { addr: addr.parse().unwrap(), len: len.parse().unwrap() }
}

fn config(address: bool, prefix: bool) -> Dhcpv6Client {
    Dhcpv6Client { address, prefix, sub_prefix_length: 64, default_route: true, ..Dhcpv6Client::default() }
}

fn association(client: &Client6, is_prefix: bool, parts: &[(&str, u32)]) -> Association {
    let part = |(text, valid_s): &(&str, u32)| Part {
        prefix: net(text).into(),
        preferred_s: valid_s / 2,
        valid_s: *valid_s,
    };
    Association {
        is_prefix,
        id: chance::iaid(&client.unit),
        t1_s: 0,
        t2_s: 0,
        parts: parts.iter().map(part).collect(),
        status: status::SUCCESS,
    }
}

/// An answer to what the client has said last.
fn answer(client: &mut Client6, parts: &[(bool, &[(&str, u32)])], around: &Around<'_>) {
    let message = Message {
        server: Some(SERVER.to_vec()),
        associations: parts.iter().map(|(is_prefix, parts)| association(client, *is_prefix, parts)).collect(),
        ..Message::new(Type::Reply, client.xid, DUID.to_vec())
    };
    client.hear(message, around);
}

/// A client with a lease that the kernel has; the prefix is for `v2`.
fn bound(config: &Dhcpv6Client, around: &Around<'_>) -> Client6 {
    let lans = vec!["v2".to_owned()];
    link(around.kernel, "v2");
    let mut client = Client6::new("v0.0".to_owned(), "v0".to_owned(), config.clone(), lans, None);
    client.look(Some(&link(around.kernel, "v0")), around);
    client.enter(State::Requesting);
    let all: [(bool, &[(&str, u32)]); 2] = [(false, &[(ADDRESS, 400)]), (true, &[(PREFIX, 400)])];
    let wanted =
        all.into_iter().filter(|(is_prefix, _)| if *is_prefix { config.prefix } else { config.address });
    answer(&mut client, &wanted.collect::<Vec<_>>(), around);
    assert_eq!(client.state, State::Bound);
    client
}

/// Addresses and prefixes that the kernel has of leases, as text.
fn known(kernel: &Kernel) -> Vec<String> {
    let addresses = kernel.leased().unwrap().into_iter().map(|leased| Net::from(leased.prefix));
    let routes = kernel.leased_routes().unwrap().into_iter().map(|route| Net::from(route.destination));
    let mut all: Vec<String> = addresses.chain(routes).map(|net| net.to_string()).collect();
    all.sort();
    all
}

fn sent(client: &mut Client6, around: &Around<'_>) {
    let begun = Instant::now();
    // the link-local address comes a moment after the carrier
    while client.sent == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing can be sent");
        client.send(around);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// RFC 8415, section 18.2.4: what is wanted besides is asked for with the lease, which stays.
#[test]
fn what_is_asked_for_besides_is_asked_with_the_lease() {
    alone("asks-otherwise6", |around, _| {
        let mut client = bound(&config(true, false), around);
        let changes: [fn(&mut Dhcpv6Client); 3] = [
            |config| config.dns = true,
            |config| config.prefix = true,
            |config| config.prefix_length = Some(56),
        ];
        for change in changes {
            client.state = State::Bound;
            let mut other = client.config.clone();
            change(&mut other);
            client.configure(&other, client.lans.clone(), around);
            assert_eq!((client.state, known(around.kernel)), (State::Renewing, vec![ADDRESS.to_owned()]));
        }
        let asked = client.associations(client.lease.iter().flat_map(Lease6::given));
        assert_eq!(asked.iter().map(|asked| asked.is_prefix).collect::<Vec<_>>(), [false, true]);
        client.state = State::Bound;
        client.configure(&Dhcpv6Client { preference: Some(30), ..client.config.clone() }, vec![], around);
        assert_eq!(client.state, State::Bound);
    });
}

/// RFC 8415, section 18.2.7: what is not wanted any more is given back, and nothing else.
#[test]
fn what_is_not_asked_for_any_more_is_given_back() {
    alone("asks-less6", |around, _| {
        let mut client = bound(&config(true, true), around);
        assert_eq!(known(around.kernel), [PREFIX, SUB_PREFIX, ADDRESS]);
        client.configure(&config(true, false), vec![], around);
        assert_eq!((client.state, known(around.kernel)), (State::Renewing, vec![ADDRESS.to_owned()]));
        assert!(client.lease.as_ref().is_some_and(|lease| lease.prefix.is_none() && lease.lans.is_empty()));
        client.configure(&config(false, false), vec![], around);
        assert_eq!((client.state, &client.lease, known(around.kernel)), (State::Informing, &None, vec![]));
        let mut client = bound(&config(true, true), around);
        client.configure(&Dhcpv6Client { duid: DuidType::LinkLayer, ..config(true, true) }, vec![], around);
        assert_eq!((client.state, &client.lease, known(around.kernel)), (State::Soliciting, &None, vec![]));
    });
}

/// RFC 8415, sections 15, 18.2.4 and 18.2.5: Renew ends with T2.
#[test]
fn from_t2_on_any_server_is_asked() {
    alone("t2", |around, _| {
        let mut client = bound(&config(true, false), around);
        client.lease.as_mut().unwrap().t2 = Until::after(3);
        client.enter(State::Renewing);
        sent(&mut client, around);
        let left = client.next.unwrap().saturating_duration_since(Instant::now());
        assert!(left <= Duration::from_secs(3), "{left:?}");
        client.lease.as_mut().unwrap().t2 = Until::after(0);
        client.due(around);
        assert_eq!(client.state, State::Rebinding);
    });
}

/// RFC 8415, section 18.2.5: until all has ended, all is asked for.
#[test]
fn what_is_still_good_outlives_what_has_ended() {
    alone("ends6", |around, _| {
        let mut client = bound(&config(true, true), around);
        let lease = client.lease.as_mut().unwrap();
        lease.address.as_mut().unwrap().valid = Until::after(0);
        client.enter(State::Rebinding);
        client.expire(around);
        assert_eq!(
            (client.state, known(around.kernel)),
            (State::Rebinding, vec![PREFIX.to_owned(), SUB_PREFIX.to_owned()])
        );
        let asked = client.associations(client.lease.iter().flat_map(Lease6::given));
        assert_eq!(asked.iter().map(|asked| asked.parts.len()).collect::<Vec<_>>(), [0, 1]);
        client.lease.as_mut().unwrap().prefix.as_mut().unwrap().valid = Until::after(0);
        client.expire(around);
        assert_eq!((client.state, &client.lease, known(around.kernel)), (State::Soliciting, &None, vec![]));
        // and the other way round
        let mut client = bound(&config(true, true), around);
        client.lease.as_mut().unwrap().prefix.as_mut().unwrap().valid = Until::after(0);
        client.expire(around);
        assert_eq!((client.state, known(around.kernel)), (State::Renewing, vec![ADDRESS.to_owned()]));
    });
}

/// RFC 8415, section 18.2.10.1.
#[test]
fn a_server_ends_what_it_gives_no_more() {
    alone("ended6", |around, _| {
        let mut client = bound(&config(true, true), around);
        client.enter(State::Renewing);
        answer(&mut client, &[(false, &[(ADDRESS, 0)]), (true, &[(PREFIX, 400)])], around);
        assert_eq!(
            (client.state, known(around.kernel)),
            (State::Bound, vec![PREFIX.to_owned(), SUB_PREFIX.to_owned()])
        );
        let mut client = bound(&config(true, false), around);
        client.enter(State::Renewing);
        // of another one it says nothing
        answer(&mut client, &[(false, &[("2001:db8:72::8/128", 0)])], around);
        assert!(client.lease.is_some());
        answer(&mut client, &[(false, &[(ADDRESS, 0)])], around);
        assert_eq!((client.state, &client.lease), (State::Soliciting, &None));
        // who gives another instead has it take the place
        let mut client = bound(&config(false, true), around);
        client.enter(State::Renewing);
        answer(&mut client, &[(true, &[(PREFIX, 0), ("2001:db8:2000::/56", 400)])], around);
        let lease = client.lease.unwrap();
        assert_eq!(lease.prefix.unwrap().net, net("2001:db8:2000::/56"));
        assert_eq!(lease.former.iter().map(|(_, net, _)| *net).collect::<Vec<_>>(), [net(SUB_PREFIX)]);
    });
}

/// RFC 7084, L-13: at most as long as the prefix would have been good.
#[test]
fn what_units_had_is_good_for_no_longer_than_its_prefix() {
    alone("former6", |around, _| {
        for (left_s, good_s) in [(100, 90..=100), (100_000, 7190..=7200)] {
            let mut client = bound(&config(false, true), around);
            client.lease.as_mut().unwrap().prefix.as_mut().unwrap().valid = Until::after(left_s);
            client.enter(State::Rebinding);
            answer(&mut client, &[(true, &[("2001:db8:2000::/56", 400)])], around);
            let (_, of, until) = client.lease.as_ref().unwrap().former[0].clone();
            assert_eq!(of, net(SUB_PREFIX));
            assert!(good_s.contains(&until.left_s()), "{}", until.left_s());
            client.release(around);
        }
    });
}

/// RFC 8415, section 18.2.12: after a reboot a prefix is asked for by Rebind.
#[test]
fn what_the_kernel_has_forgotten_is_not_taken_up() {
    alone("reboot6", |around, netns| {
        let lease = bound(&config(false, true), around).lease;
        let again = || {
            let lans = vec!["v2".to_owned()];
            let (unit, device) = ("v0.0".to_owned(), "v0".to_owned());
            let mut client = Client6::new(unit, device, config(false, true), lans, lease.clone());
            client.look(Some(&link(around.kernel, "v0")), around);
            client.state
        };
        assert_eq!(again(), State::Renewing);
        netns.ip(&format!("-6 route delete unreachable {PREFIX}")).unwrap();
        assert_eq!(again(), State::Rebinding);
    });
}

/// Section 14.1: a server that says no each time is not asked at the speed of the link.
#[test]
fn a_server_that_refuses_is_asked_less_and_less_often() {
    alone("refuses6", |around, _| {
        let mut client = bound(&config(true, false), around);
        let refuses = |client: &mut Client6, status: u16| {
            let refused = Association { status, ..association(client, false, &[]) };
            let message = Message {
                server: Some(SERVER.to_vec()),
                associations: vec![refused],
                ..Message::new(Type::Reply, client.xid, DUID.to_vec())
            };
            client.hear(message, around);
        };
        client.enter(State::Renewing);
        refuses(&mut client, status::NO_BINDING);
        assert_eq!(client.state, State::Requesting);
        let asks = client.xid;
        refuses(&mut client, status::NO_BINDING);
        assert_eq!((client.state, client.xid), (State::Requesting, asks), "it is not asked anew for that");
        let mut least = Duration::ZERO;
        for _ in 0..4 {
            client.enter(State::Renewing);
            refuses(&mut client, status::NO_BINDING);
            let wait = client.next.unwrap().saturating_duration_since(Instant::now());
            assert!(wait > least, "{wait:?} behind {least:?}");
            least = wait;
        }
    });
}
