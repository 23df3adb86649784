//! `persistent-nat` of a source rule.

use crate::compile::view::View;
use crate::error::Report;
use crate::nat::{NatMatch, Permit, Persistent, SourcePool};

/// What Junos takes when nothing is said.
const TIMEOUT_S: u32 = 300;
const SESSIONS: u32 = 30;

const PERMITS: [Permit; 3] = [Permit::AnyRemoteHost, Permit::TargetHost, Permit::TargetHostPort];

/// Below `interface` or `pool` of a rule that matches this; of a pool, whether it can bind its ports.
pub(super) fn persistent(
    action: View,
    matching: &NatMatch,
    pool: Option<&SourcePool>,
    report: &mut Report,
) -> Option<Persistent> {
    let view = action.child("persistent-nat")?;
    let kinds = |view: View| PERMITS.into_iter().find(|permit| permit.name() == view.word());
    let mut permits = view.child("permit").into_iter().flat_map(View::children);
    let permit = permits.next().and_then(kinds);
    if permit.is_none() {
        let message = format!("`{}` does not say whom it permits", view.context());
        let help = "add `permit any-remote-host`, `permit target-host` or `permit target-host-port`";
        report.error_help(&view.location(), message, help);
    }
    for other in permits {
        let message = format!("`{}` permits two kinds of hosts", view.context());
        report.error_help(&other.location(), message, "keep one");
    }
    if let Some(pool) = pool {
        pool_binds(view, pool, report);
    }
    has_ports(view, matching, report);
    let number = |name: &str, default| view.value(&[name]).and_then(View::number).unwrap_or(default);
    Some(Persistent {
        permit: permit?,
        timeout_s: number("inactivity-timeout", TIMEOUT_S),
        sessions: number("max-session-number", SESSIONS),
    })
}

fn pool_binds(view: View, pool: &SourcePool, report: &mut Report) {
    let name = &pool.name;
    if pool.ports.range.is_none() {
        let message = format!("`persistent-nat` with pool `{name}`, which translates no ports");
        let help =
            "a binding is an address and a port: use a pool with ports, or static NAT for whole addresses";
        report.error_help(&view.location(), message, help);
    }
    if pool.overflow.is_some() {
        let message = format!("`persistent-nat` with pool `{name}`, which has an overflow-pool");
        let help = "which address a source appears with must not depend on how full a pool is (RFC 4787 REQ-11): \
                    add addresses to the pool";
        report.error_help(&view.location(), message, help);
    }
}

fn has_ports(view: View, matching: &NatMatch, report: &mut Report) {
    let Some(services) = &matching.services else { return };
    if !services.is_empty()
        && services.iter().all(|service| !matches!(service.protocol, None | Some(1 | 6 | 17 | 58)))
    {
        let message = "`persistent-nat` in a rule that matches no protocol with ports";
        report.error_help(&view.location(), message, "match tcp, udp or icmp, or remove it");
    }
}
