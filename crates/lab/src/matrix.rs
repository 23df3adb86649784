//! The questions asked of a branch gateway, and the answers `examples/branch.conf` promises.

use std::net::IpAddr;

use serde::Serialize;

use crate::branch::{Branch, INTERNET4, INTERNET6, Site};
use crate::probe::{Probe, Seen, Verdict};

#[derive(Debug, Clone, Serialize)]
pub struct Case {
    pub from: Site,
    /// Zone, `gateway` or `internet`.
    pub to: &'static str,
    pub probe: Probe,
    pub target: IpAddr,
    pub expected: Verdict,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub case: Case,
    pub test: String,
    pub seen: Seen,
    pub ok: bool,
}

impl Case {
    pub fn run(&self, branch: &Branch) -> Row {
        let to = Site::ALL.into_iter().find(|site| site.name() == self.to).map(|site| branch.host(site));
        let seen = self.probe.run(branch.host(self.from), to, self.target);
        let ok = seen.verdict == self.expected;
        Row { case: self.clone(), test: self.probe.name(self.target.is_ipv6()), seen, ok }
    }
}

const TCP: Probe = Probe::IperfTcp { streams: 1, reverse: false };
const TCP_FOUR: Probe = Probe::IperfTcp { streams: 4, reverse: false };
const TCP_BACK: Probe = Probe::IperfTcp { streams: 1, reverse: true };

/// Nothing listens there; a host that gets the packet says so at once.
const CLOSED_PORT: u16 = 7;
const SSH: u16 = 22;
const IPERF: Probe = Probe::TcpConnect(crate::services::IPERF_PORT);

/// Every case of the zone matrix, quiet ones and load alike.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![];
    permitted(&mut cases);
    by_application(&mut cases);
    rejected(&mut cases);
    denied(&mut cases);
    to_the_gateway(&mut cases);
    routes(&mut cases);
    cases
}

fn add(cases: &mut Vec<Case>, from: Site, to: Site, v6: bool, probe: Probe, expected: Verdict) {
    cases.push(Case { from, to: to.name(), probe, target: to.host(v6), expected });
}

fn both(cases: &mut Vec<Case>, from: Site, to: Site, probe: Probe, expected: Verdict) {
    add(cases, from, to, false, probe.clone(), expected);
    add(cases, from, to, true, probe, expected);
}

/// Pairs with a policy that permits everything.
fn permitted(cases: &mut Vec<Case>) {
    use Site::*;
    use Verdict::{Passed, Refused};
    for (from, to) in [(Trust, Untrust), (Trust, Dmz), (Trust, Wan), (Untrust, Wan), (Dmz, Wan)] {
        both(cases, from, to, Probe::Ping, Passed);
        both(cases, from, to, Probe::Web, Passed);
        // The host's own ICMP error must find its way back along the flow.
        both(cases, from, to, Probe::Udp(CLOSED_PORT), Refused);
    }
    both(cases, Trust, Untrust, TCP, Passed);
    both(cases, Trust, Untrust, Probe::IperfUdp, Passed);
    add(cases, Trust, Untrust, false, TCP_FOUR, Passed);
    add(cases, Trust, Dmz, false, TCP, Passed);
    add(cases, Trust, Wan, false, TCP, Passed);
    add(cases, Untrust, Wan, true, TCP, Passed);
    add(cases, Untrust, Wan, false, Probe::IperfUdp, Passed);
    add(cases, Dmz, Wan, false, TCP_BACK, Passed);
}

/// Pairs of which only web traffic passes.
fn by_application(cases: &mut Vec<Case>) {
    use Site::*;
    use Verdict::{Passed, Silent};
    for to in [Trust, Dmz] {
        both(cases, Untrust, to, Probe::Web, Passed);
        both(cases, Untrust, to, Probe::Ping, Silent);
        both(cases, Untrust, to, IPERF, Silent);
        add(cases, Untrust, to, false, Probe::Udp(CLOSED_PORT), Silent);
    }
}

/// Refusals must be told, by reset or ICMP error.
fn rejected(cases: &mut Vec<Case>) {
    for probe in [Probe::Ping, Probe::TcpConnect(80), Probe::Udp(CLOSED_PORT)] {
        both(cases, Site::Dmz, Site::Untrust, probe, Verdict::Refused);
    }
}

/// Pairs without a policy.
fn denied(cases: &mut Vec<Case>) {
    use Site::*;
    for (from, to) in [
        (Trust, Tunnel),
        (Untrust, Tunnel),
        (Dmz, Trust),
        (Dmz, Tunnel),
        (Tunnel, Trust),
        (Tunnel, Untrust),
        (Tunnel, Dmz),
        (Tunnel, Wan),
        (Wan, Trust),
        (Wan, Untrust),
        (Wan, Dmz),
        (Wan, Tunnel),
    ] {
        both(cases, from, to, Probe::Ping, Verdict::Silent);
        both(cases, from, to, Probe::TcpConnect(80), Verdict::Silent);
    }
    // The management network must not be a way around the zones.
    for (from, to) in [(Mgmt, Trust), (Mgmt, Wan), (Trust, Mgmt), (Wan, Mgmt)] {
        both(cases, from, to, Probe::Ping, Verdict::Silent);
    }
}

/// host-inbound-traffic: everyone may ping, only trust may reach ssh (where nobody listens: the kernel refuses).
fn to_the_gateway(cases: &mut Vec<Case>) {
    for from in Site::ALL {
        for v6 in [false, true] {
            let target = from.gateway(v6);
            let mut add = |probe, expected| cases.push(Case { from, to: "gateway", probe, target, expected });
            add(Probe::Ping, Verdict::Passed);
            let reaches_ssh = matches!(from, Site::Trust | Site::Mgmt);
            let ssh = if reaches_ssh { Verdict::Refused } else { Verdict::Silent };
            add(Probe::TcpConnect(SSH), ssh);
        }
    }
}

/// Paths: the gateway shows up as a hop, and its default routes lead to what lies behind the provider.
fn routes(cases: &mut Vec<Case>) {
    for v6 in [false, true] {
        let wan = Site::Wan.host(v6);
        let hops = vec![Site::Trust.gateway(v6), wan];
        let case = Case {
            from: Site::Trust,
            to: "wan",
            probe: Probe::Traceroute(hops),
            target: wan,
            expected: Verdict::Passed,
        };
        cases.push(case);
        let target = if v6 { INTERNET6.into() } else { INTERNET4.into() };
        for probe in [Probe::Ping, Probe::Web] {
            cases.push(Case { from: Site::Trust, to: "internet", probe, target, expected: Verdict::Passed });
        }
    }
}
