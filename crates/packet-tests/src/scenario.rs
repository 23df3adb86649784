//! Random configurations: one description gives the text for the gateway and the same things for the model.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_language::config::SCREEN_CHECKS;
use sluice_wire::{Mac, ethertype};

use crate::model::{Action, ICMP, ICMPV6, Model, Route, Rule, Service, TCP, Target, UDP, Unit};
use crate::random::{Random, Stations};
use crate::world::{Device, Host, World};

/// Zones of random configurations, with one unit each.
pub const ZONES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// Device and unit number of each zone's unit.
const UNITS: [(&str, u16); 4] = [("a0", 0), ("b0", 0), ("c0", 100), ("c0", 200)];
/// Next hops on a link that nobody answers for.
const SILENT: u8 = 200;

/// A random configuration, and the model of it.
pub struct Scenario {
    /// In `set` commands or braces, as `sluice check` takes it.
    pub config: String,
    /// Means the same as `config`.
    pub model: Model,
    /// Hosts that packets come from and go to.
    pub stations: Stations,
}

fn v4(zone: usize, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, zone as u8 + 1, 0, host))
}

fn v6(zone: usize, host: u8) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(0xfd00, zone as u16 + 1, 0, 0, 0, 0, 0, host.into()))
}

fn device_mac(device: &str) -> Mac {
    Mac([2, 0, 0, 0, 0, device.as_bytes()[0]])
}

fn host_mac(zone: usize, host: u8) -> Mac {
    Mac([2, 0, 0, 1, zone as u8 + 1, host])
}

fn unit_name(zone: usize) -> String {
    format!("{}.{}", UNITS[zone].0, UNITS[zone].1)
}

/// The surroundings, the same for every scenario.
pub fn world() -> World {
    let devices =
        ["a0", "b0", "c0"].map(|name| Device { name: name.to_owned(), mac: device_mac(name), mtu: 1500 });
    let mut hosts = Vec::new();
    for (zone, name) in ZONES.iter().enumerate() {
        for host in [100, 101] {
            hosts.push(Host {
                name: format!("{name}{host}"),
                unit: unit_name(zone),
                mac: host_mac(zone, host),
                addresses: vec![v4(zone, host), v6(zone, host)],
            });
        }
    }
    World { devices: devices.to_vec(), hosts, ..World::default() }
}

/// Of the surroundings only what alpha and beta need.
pub fn two_zones() -> World {
    let mut world = world();
    world.devices.retain(|device| device.name != "c0");
    world.hosts.retain(|host| !host.unit.starts_with("c0"));
    world
}

/// A gateway between the two whose source rules are for what goes from alpha to beta.
pub const TWO_ZONES: &str = "
set interfaces a0 unit 0 family inet address 10.1.0.1/24
set interfaces a0 unit 0 family inet6 address fd00:1::1/64
set interfaces b0 unit 0 family inet address 10.2.0.1/24
set interfaces b0 unit 0 family inet6 address fd00:2::1/64
set security zones security-zone alpha interfaces a0.0
set security zones security-zone beta interfaces b0.0
set security flow max-unanswered 100
set routing-options static route 198.51.100.0/24 discard
set routing-options static route 10.9.0.0/16 next-hop 10.1.0.100
set routing-options static route 0.0.0.0/0 next-hop 10.2.0.100
set routing-options rib inet6.0 static route fd09::/16 next-hop fd00:1::64
set routing-options rib inet6.0 static route ::/0 next-hop fd00:2::64
set security nat source rule-set out from zone alpha
set security nat source rule-set out to zone beta
";

/// The same for NAT of every kind. Alpha's hosts go out; beta's come in to what `published` and `published6` name, which
/// are addresses behind alpha, and to a web server there.
pub fn nat_of_two_zones() -> String {
    format!("{TWO_ZONES}{PUBLISHED}")
}

const PUBLISHED: &str = "\
set security policies from-zone alpha to-zone beta policy out match source-address any destination-address any application any
set security policies from-zone alpha to-zone beta policy out then permit
set security policies from-zone beta to-zone alpha policy in match source-address any destination-address [ published published6 ] application any
set security policies from-zone beta to-zone alpha policy in then permit
set routing-options rib inet6.0 static route 2001:db8::/32 discard
set security nat destination pool web address 10.9.0.80/32 port 8080
set security nat destination rule-set in from zone beta
set security nat destination rule-set in rule web match destination-address 198.51.100.200/32
set security nat destination rule-set in rule web match destination-port 80
set security nat destination rule-set in rule web then destination-nat pool web
set security nat static rule-set one from zone beta
";

impl Scenario {
    /// `capacity` is that of the session table, by family.
    pub fn random(random: &mut Random, capacity: usize) -> Scenario {
        let mut scenario =
            Scenario { config: String::new(), model: Model::new(capacity), stations: stations(random) };
        scenario.model.neighbours = world().hosts.into_iter().flat_map(|host| host.addresses).collect();
        for zone in 0..ZONES.len() {
            scenario.add_zone(zone, random);
        }
        scenario.add_routes();
        scenario.say("set interfaces c0 flexible-vlan-tagging");
        let named = scenario.addresses();
        let applications = scenario.applications();
        for from in 0..ZONES.len() {
            for to in 0..ZONES.len() {
                for number in 0..random.below(5) {
                    let context = Some((from, to));
                    scenario.add_policy(random, context, number, &named, &applications);
                }
            }
        }
        for number in 0..random.below(3) {
            scenario.add_policy(random, None, number, &named, &applications);
        }
        scenario.model.default_permit = random.percent(25);
        let default = if scenario.model.default_permit { "permit-all" } else { "deny-all" };
        scenario.say(&format!("set security policies default-policy {default}"));
        scenario
    }

    /// One tag or two. Units of a port may share the outer VLAN.
    fn add_tags(&mut self, unit: &str, number: u16, random: &mut Random) -> Vec<(u16, u16)> {
        let (vlan, service) = (ethertype::VLAN, ethertype::SERVICE_VLAN);
        match random.below(3) {
            0 => {
                self.say(&format!("{unit} vlan-id {number}"));
                vec![(vlan, number)]
            }
            1 => {
                self.say(&format!("{unit} vlan-tags outer 100 inner {number}"));
                vec![(vlan, 100), (vlan, number)]
            }
            _ => {
                self.say(&format!("{unit} vlan-tags outer 0x88a8.100 inner {number}"));
                vec![(service, 100), (vlan, number)]
            }
        }
    }

    fn say(&mut self, line: &str) {
        let _ = writeln!(self.config, "{line}");
    }

    fn add_zone(&mut self, zone: usize, random: &mut Random) {
        let (device, number) = UNITS[zone];
        let (own4, own6) = (v4(zone, 1), v6(zone, 1));
        let mtu = *random.pick(&[1500, 1400, 1280]);
        let unit = format!("set interfaces {device} unit {number}");
        let tags = match number {
            0 => Vec::new(),
            number => self.add_tags(&unit, number, random),
        };
        let mtu = if tags.len() > 1 { mtu.min(1496) } else { mtu };
        self.say(&format!("{unit} family inet address {own4}/24"));
        self.say(&format!("{unit} family inet mtu {mtu}"));
        self.say(&format!("{unit} family inet6 address {own6}/64"));
        let name = ZONES[zone];
        self.say(&format!("set security zones security-zone {name} interfaces {}", unit_name(zone)));
        let (screens, alarm_without_drop) = self.add_screen(name, random);
        let mut inbound = Vec::new();
        for (service, terms) in system_services() {
            if random.percent(50) {
                let inbound_traffic = "host-inbound-traffic system-services";
                self.say(&format!("set security zones security-zone {name} {inbound_traffic} {service}"));
                inbound.extend(terms);
            }
        }
        self.model.routes.push(Route { prefix: (own4, 24), target: Target::Link(unit_name(zone)) });
        self.model.routes.push(Route { prefix: (own6, 64), target: Target::Link(unit_name(zone)) });
        self.model.units.push(Unit {
            name: unit_name(zone),
            device: device.to_owned(),
            tags,
            mac: device_mac(device),
            zone: name.to_owned(),
            mtu,
            screens,
            alarm_without_drop,
            addresses: vec![(own4, 24), (own6, 64)],
            inbound,
        });
    }

    /// No screens at all, a few, or many; sometimes they only count.
    fn add_screen(&mut self, zone: &str, random: &mut Random) -> (Vec<&'static str>, bool) {
        let share = *random.pick(&[0, 15, 15, 60]);
        let mut screens = Vec::new();
        for (block, statement, reason) in SCREEN_CHECKS {
            if random.percent(share) {
                self.say(&format!("set security screen ids-option {zone} {block} {statement}"));
                screens.push(reason);
            }
        }
        let alarm = !screens.is_empty() && random.percent(15);
        if alarm {
            self.say(&format!("set security screen ids-option {zone} alarm-without-drop"));
        }
        if !screens.is_empty() {
            self.say(&format!("set security zones security-zone {zone} screen {zone}"));
        }
        (screens, alarm)
    }

    fn add_routes(&mut self) {
        let rib6 = "set routing-options rib inet6.0 static route";
        let rib4 = "set routing-options static route";
        let via = |zone: usize, gateway: IpAddr| Target::Via(unit_name(zone), gateway);
        let routes = [
            ("172.16.0.0", 16, via(1, v4(1, 100))),
            ("172.16.5.0", 24, via(3, v4(3, 101))),
            ("172.17.0.0", 16, Target::Blackhole),
            ("172.18.0.0", 16, Target::Unreachable),
            ("172.19.0.0", 16, via(2, v4(2, SILENT))),
            ("fd00:16::", 32, via(1, v6(1, 100))),
            ("fd00:17::", 32, Target::Blackhole),
            ("fd00:18::", 32, Target::Unreachable),
        ];
        for (prefix, length, target) in routes {
            let address: IpAddr = prefix.parse().expect("written above");
            let rib = if address.is_ipv4() { rib4 } else { rib6 };
            self.say(&match &target {
                Target::Via(_, gateway) => format!("{rib} {prefix}/{length} next-hop {gateway}"),
                Target::Blackhole => format!("{rib} {prefix}/{length} discard"),
                _ => format!("{rib} {prefix}/{length} reject"),
            });
            self.model.routes.push(Route { prefix: (address, length), target });
        }
    }

    /// Entries of the address book, by name.
    fn addresses(&mut self) -> Vec<(String, (IpAddr, IpAddr))> {
        let mut named = Vec::new();
        for (zone, name) in ZONES.iter().enumerate() {
            let entries = [
                (format!("{name}-host4"), format!("{}/32", v4(zone, 100)), (v4(zone, 100), v4(zone, 100))),
                (format!("{name}-net4"), format!("{}/24", v4(zone, 0)), (v4(zone, 0), v4(zone, 255))),
                (
                    format!("{name}-range4"),
                    format!("range-address {} to {}", v4(zone, 101), v4(zone, SILENT)),
                    (v4(zone, 101), v4(zone, SILENT)),
                ),
                (format!("{name}-host6"), format!("{}/128", v6(zone, 101)), (v6(zone, 101), v6(zone, 101))),
                (format!("{name}-net6"), format!("{}/120", v6(zone, 0)), (v6(zone, 0), v6(zone, 255))),
            ];
            for (name, text, range) in entries {
                self.say(&format!("set security address-book global address {name} {text}"));
                named.push((name, range));
            }
        }
        named
    }

    fn applications(&mut self) -> Vec<(String, Vec<Service>)> {
        let mut known = vec![
            ("junos-ping".to_owned(), vec![icmp(ICMP, 8)]),
            ("junos-pingv6".to_owned(), vec![icmp(ICMPV6, 128)]),
            ("junos-http".to_owned(), vec![ports(TCP, (0, 65535), (80, 80))]),
        ];
        let custom = [
            ("high-tcp", "tcp", ports(TCP, (0, 65535), (1024, 65535))),
            ("low-udp", "udp", ports(UDP, (0, 65535), (0, 53))),
            ("from-to", "udp", ports(UDP, (1000, 1500), (1500, 3000))),
            ("all-tcp", "tcp", ports(TCP, (0, 65535), (0, 65535))),
            ("tunnel", "gre", ports(47, (0, 65535), (0, 65535))),
        ];
        for (name, protocol, service) in custom {
            self.say(&format!("set applications application {name} protocol {protocol}"));
            for (side, range) in [("source", service.sport), ("destination", service.dport)] {
                if range != (0, 65535) {
                    self.say(&format!(
                        "set applications application {name} {side}-port {}-{}",
                        range.0, range.1
                    ));
                }
            }
            known.push((name.to_owned(), vec![service]));
        }
        known
    }

    fn add_policy(
        &mut self,
        random: &mut Random,
        context: Option<(usize, usize)>,
        number: usize,
        named: &[(String, (IpAddr, IpAddr))],
        applications: &[(String, Vec<Service>)],
    ) {
        let pair = context.map(|(from, to)| (ZONES[from].to_owned(), ZONES[to].to_owned()));
        let path = match &pair {
            Some((from, to)) => format!("from-zone {from} to-zone {to}"),
            None => "global".to_owned(),
        };
        let line = format!("set security policies {path} policy p{number}");
        let source = self.add_side(random, &line, "source-address", context.map(|pair| pair.0), named);
        let destination =
            self.add_side(random, &line, "destination-address", context.map(|pair| pair.1), named);
        let application = if random.percent(40) {
            self.say(&format!("{line} match application any"));
            None
        } else {
            let mut services = Vec::new();
            for _ in 0..1 + random.below(2) {
                let (name, terms) = random.pick(applications);
                self.say(&format!("{line} match application {name}"));
                services.extend(terms.clone());
            }
            Some(services)
        };
        let (action, word) = *random.pick(&[
            (Action::Permit, "permit"),
            (Action::Permit, "permit"),
            (Action::Deny, "deny"),
            (Action::Reject, "reject"),
        ]);
        self.say(&format!("{line} then {word}"));
        self.model.rules.push(Rule { pair, source, destination, application, action });
    }

    /// One side of a match: anything, or some names, most of them of the zone concerned.
    fn add_side(
        &mut self,
        random: &mut Random,
        line: &str,
        side: &str,
        zone: Option<usize>,
        named: &[(String, (IpAddr, IpAddr))],
    ) -> Option<Vec<(IpAddr, IpAddr)>> {
        if random.percent(45) {
            self.say(&format!("{line} match {side} any"));
            return None;
        }
        let mut ranges = Vec::new();
        let mut names = Vec::new();
        for _ in 0..1 + random.below(3) {
            let all = named.len();
            let at = match zone {
                Some(zone) if random.percent(85) => {
                    zone * (all / ZONES.len()) + random.below(all / ZONES.len())
                }
                _ => random.below(all),
            };
            if !names.contains(&at) {
                names.push(at);
                self.say(&format!("{line} match {side} {}", named[at].0));
                ranges.push(named[at].1);
            }
        }
        Some(ranges)
    }
}

fn ports(protocol: u8, sport: (u16, u16), dport: (u16, u16)) -> Service {
    Service { protocol, sport, dport, icmp_type: None }
}

fn icmp(protocol: u8, kind: u8) -> Service {
    Service { icmp_type: Some(kind), ..ports(protocol, (0, 65535), (0, 65535)) }
}

fn system_services() -> [(&'static str, Vec<Service>); 3] {
    [
        ("ping", vec![icmp(ICMP, 8), icmp(ICMPV6, 128)]),
        ("ssh", vec![ports(TCP, (0, 65535), (22, 22))]),
        ("dns", vec![ports(UDP, (0, 65535), (53, 53)), ports(TCP, (0, 65535), (53, 53))]),
    ]
}

fn stations(random: &mut Random) -> Stations {
    let datagrams = [(); 3].map(|()| random.number() as u32);
    let mut hosts = Vec::new();
    for zone in 0..ZONES.len() {
        for host in [100, 101] {
            hosts.push((unit_name(zone), host_mac(zone, host), v4(zone, host), v6(zone, host)));
        }
    }
    let mut elsewhere: Vec<IpAddr> = (0..ZONES.len())
        .flat_map(|zone| [v4(zone, 1), v6(zone, 1), v4(zone, SILENT), v6(zone, SILENT), v4(zone, 255)])
        .collect();
    let texts = "172.16.1.1 172.16.5.1 172.17.0.1 172.18.0.1 172.19.0.1 172.31.0.1 127.0.0.1 0.0.0.0 224.0.0.5 \
                 240.0.0.1 255.255.255.255 fd00:16::1 fd00:17::1 fd00:18::1 fd00:7777::1 ::1 :: ff02::1 fe80::1";
    elsewhere.extend(texts.split_whitespace().map(|text| text.parse::<IpAddr>().expect("written above")));
    Stations { hosts, elsewhere, datagrams }
}
