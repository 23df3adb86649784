//! Tables against a plain model: random rules, packets at the edges of everything that the rules name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_abi::{ClassLine, Context};
use sluice_language::config::{Ranges, Service};

use super::{Classifier, Lookup, Rules, Subject, TooMuch, Wanted, compile};

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// A linear search through the rules; shares nothing with the classes.
fn model(rules: &Rules, subject: &Subject) -> Option<u32> {
    let inside = |ranges: &Option<Ranges>, address: IpAddr| match (ranges, address) {
        (None, _) => true,
        (Some(ranges), IpAddr::V4(a)) => ranges.v4.iter().any(|(low, high)| *low <= a && a <= *high),
        (Some(ranges), IpAddr::V6(a)) => ranges.v6.iter().any(|(low, high)| *low <= a && a <= *high),
    };
    let served = |term: &Service| {
        let within = |(low, high): (u16, u16), x: u16| low <= x && x <= high;
        let icmp = |range: Option<(u8, u8)>, x: u8| range.is_none_or(|(low, high)| low <= x && x <= high);
        match term.protocol {
            None => true,
            Some(p) if p != subject.protocol => false,
            Some(1 | 58) => {
                icmp(term.icmp_type, subject.icmp_type) && icmp(term.icmp_code, subject.icmp_code)
            }
            Some(_) => {
                within(term.source_port, subject.source_port)
                    && within(term.destination_port, subject.destination_port)
            }
        }
    };
    let matches = |rule: &Wanted| {
        inside(&rule.source, subject.source)
            && inside(&rule.destination, subject.destination)
            && rule.services.as_ref().is_none_or(|terms| terms.iter().any(served))
    };
    rules.rules.iter().position(matches).map(|index| rules.first + index as u32)
}

fn look(tables: &Classifier, context: u16, subject: &Subject) -> Option<u32> {
    let line = |table: &[ClassLine], n: u32| table[n as usize];
    Lookup {
        classes: &|n| line(&tables.classes, n),
        rows: &|n| line(&tables.rows, n),
        context: &|n| -> Context { tables.contexts[n as usize] },
    }
    .find(context, subject)
}

/// An address space small enough that ranges overlap, with both ends of the real one.
fn v4(random: &mut Random) -> Ipv4Addr {
    match random.below(20) {
        0 => Ipv4Addr::UNSPECIFIED,
        1 => Ipv4Addr::BROADCAST,
        _ => Ipv4Addr::from(0x0a00_0000 + random.below(2000) as u32),
    }
}

fn v6(random: &mut Random) -> Ipv6Addr {
    let upper = u128::from(random.pick(&[0, 0x2001_0db8_0000_0000, 0x2001_0db8_0000_0001, u64::MAX]));
    let lower = u128::from(random.pick(&[0, 1, 7, 0x8000_0000_0000_0000, u64::MAX - 1, u64::MAX]));
    Ipv6Addr::from(upper << 64 | lower.wrapping_add(u128::from(random.below(3))) & u128::from(u64::MAX))
}

fn ranges(random: &mut Random) -> Option<Ranges> {
    if random.percent(15) {
        return None;
    }
    let mut ranges = Ranges::default();
    for _ in 0..random.below(4) {
        let (a, b) = (v4(random), v4(random));
        let b = if random.percent(50) { a } else { b };
        ranges.v4.push((a.min(b), a.max(b)));
    }
    for _ in 0..random.below(4) {
        let (a, b) = (v6(random), v6(random));
        ranges.v6.push((a.min(b), a.max(b)));
    }
    ranges.normalise();
    Some(if random.percent(15) { ranges.complement() } else { ranges })
}

fn ports(random: &mut Random) -> (u16, u16) {
    match random.below(5) {
        0 => (0, u16::MAX),
        1 => (1024, u16::MAX),
        _ => {
            let low = random.pick(&[0, 22, 80, 443, 8000, 65_535]);
            (low, low.saturating_add(random.below(3) as u16))
        }
    }
}

fn term(random: &mut Random) -> Service {
    let protocol =
        random.pick(&[None, Some(1), Some(6), Some(6), Some(17), Some(17), Some(58), Some(132), Some(47)]);
    let icmp = matches!(protocol, Some(1 | 58));
    let ported = matches!(protocol, Some(6 | 17 | 132));
    let mut range = || (random.percent(60)).then(|| (random.below(9) as u8, 8 + random.below(2) as u8));
    let (icmp_type, icmp_code) = if icmp { (range(), range()) } else { (None, None) };
    let all = (0, u16::MAX);
    let (source_port, destination_port) = match ported {
        true => (if random.percent(80) { all } else { ports(random) }, ports(random)),
        false => (all, all),
    };
    Service { protocol, source_port, destination_port, icmp_type, icmp_code, inactivity_timeout_s: None }
}

fn rules(random: &mut Random, count: usize, first: u32) -> Rules {
    let rule = |random: &mut Random| Wanted {
        source: ranges(random),
        destination: ranges(random),
        services: (!random.percent(15)).then(|| (0..1 + random.below(3)).map(|_| term(random)).collect()),
    };
    Rules { name: "test".to_owned(), first, rules: (0..count).map(|_| rule(random)).collect() }
}

fn subject(random: &mut Random) -> Subject {
    let (source, destination) = match random.percent(50) {
        true => (v4(random).into(), v4(random).into()),
        false => (v6(random).into(), v6(random).into()),
    };
    Subject {
        source,
        destination,
        protocol: random.pick(&[1, 6, 6, 17, 17, 58, 132, 47, 255]),
        source_port: random.pick(&[0, 21, 22, 1023, 1024, 8002, 65_535]),
        destination_port: random.pick(&[0, 22, 24, 79, 80, 82, 443, 8003, 65_535]),
        icmp_type: random.below(11) as u8,
        icmp_code: random.below(11) as u8,
    }
}

#[test]
fn tables_find_what_a_linear_search_finds() {
    let mut random = Random(7);
    let mut found = 0;
    for count in [0, 1, 2, 9, 70, 511, 512, 513, 1200, 9000] {
        let lists = [rules(&mut random, count, 0), rules(&mut random, 3, count as u32)];
        let tables = compile(&lists).unwrap();
        for _ in 0..if count > 1000 { 2_000 } else { 10_000 } {
            let subject = subject(&mut random);
            for (context, list) in (1..).zip(&lists) {
                let expected = model(list, &subject);
                assert_eq!(look(&tables, context, &subject), expected, "{count} rules, {subject:?}");
                found += u32::from(expected.is_some());
            }
            assert_eq!(look(&tables, 0, &subject), None);
        }
    }
    assert!(found > 10_000, "packets must match now and then: {found}");
}

fn host(n: u32) -> Ranges {
    let address = Ipv4Addr::from(0x0a00_0000 + 2 * n);
    Ranges { v4: vec![(address, address)], v6: vec![] }
}

#[test]
fn the_last_of_fifty_thousand_rules_is_found() {
    let rule = |n: u32| Wanted { source: Some(host(n)), destination: None, services: None };
    let list = Rules { name: "many".to_owned(), first: 3, rules: (0..50_000).map(rule).collect() };
    let tables = compile(std::slice::from_ref(&list)).unwrap();
    for n in [0, 511, 512, 8191, 8192, 49_999] {
        let subject = Subject {
            source: Ipv4Addr::from(0x0a00_0000 + 2 * n).into(),
            destination: Ipv4Addr::LOCALHOST.into(),
            protocol: 17,
            source_port: 1,
            destination_port: 1,
            icmp_type: 0,
            icmp_code: 0,
        };
        assert_eq!(look(&tables, 1, &subject), Some(3 + n));
        assert_eq!(
            look(&tables, 1, &Subject { source: Ipv4Addr::from(0x0a00_0001 + 2 * n).into(), ..subject }),
            None
        );
    }
}

#[test]
fn rules_with_the_same_lists_share_their_rows() {
    let rule = |n: u32| Wanted { source: Some(host(n % 4)), destination: None, services: None };
    let many =
        |count: u32| Rules { name: "same".to_owned(), first: 0, rules: (0..count).map(rule).collect() };
    let (small, large) = (compile(&[many(512)]).unwrap(), compile(&[many(4096)]).unwrap());
    assert_eq!(small.classes, large.classes);
    let order = 4096 / sluice_abi::CLASS_LINE_WORDS;
    assert!(large.rows.len() < small.rows.len() + order + 8, "{} {}", small.rows.len(), large.rows.len());
}

#[test]
fn too_many_pairs_of_ports_are_refused() {
    let term = |n: u16| Service {
        protocol: Some(6),
        source_port: (2 * n, 2 * n),
        destination_port: (3 * n, 3 * n),
        icmp_type: None,
        icmp_code: None,
        inactivity_timeout_s: None,
    };
    let rule = |n: u16| Wanted { source: None, destination: None, services: Some(vec![term(n)]) };
    let list = Rules { name: "ports".to_owned(), first: 0, rules: (0..600).map(rule).collect() };
    let error = compile(&[list]).unwrap_err();
    assert!(matches!(error, TooMuch::Services { protocol: 6, .. }), "{error:?}");
    assert!(error.to_string().contains("use fewer source ports"), "{error}");
}
