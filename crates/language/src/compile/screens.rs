//! `security screen`: sets of checks that zones name.

use super::view::View;
use crate::config::{
    COUNTING_CHECKS, Prefix, SCREEN_CHECKS, Screen, ScreenLimits, Spoofing, SynFlood, WhiteList,
};
use crate::error::Report;
use crate::schema::kind::book_prefix;

/// Pairs of a source and a destination prefix that the white-lists of one screen may make.
const MAX_WHITE_PAIRS: usize = 64;

/// Defaults of Junos.
const FLOOD: u32 = 1000;
const INTERVAL_US: u32 = 5000;
const ALARM: u32 = 512;
const ATTACK: u32 = 200;
const SOURCE: u32 = 1024;
const DESTINATION: u32 = 2048;
const TIMEOUT_S: u32 = 20;

pub(super) fn compile(top: View, report: &mut Report) -> Vec<Screen> {
    top.entries(&["security", "screen", "ids-option"]).map(|option| screen(option, report)).collect()
}

fn screen(option: View, report: &mut Report) -> Screen {
    let checks = SCREEN_CHECKS.iter().chain(&COUNTING_CHECKS);
    Screen {
        name: option.word().to_owned(),
        alarm_without_drop: option.has("alarm-without-drop"),
        checks: checks
            .filter(|(block, statement, _)| option.path(&[block, statement]).is_some())
            .map(|(_, _, reason)| *reason)
            .collect(),
        limits: limits(option, report),
        source_sessions: option.value(&["limit-session", "source-ip-based"]).and_then(View::number),
        destination_sessions: option.value(&["limit-session", "destination-ip-based"]).and_then(View::number),
    }
}

fn limits(option: View, report: &mut Report) -> ScreenLimits {
    let threshold = |block: &str, statement: &str, default: u32| {
        let check = option.path(&[block, statement])?;
        Some(check.value(&["threshold"]).and_then(View::number).unwrap_or(default))
    };
    let spoofing = option.path(&["ip", "spoofing"]);
    ScreenLimits {
        icmp_flood: threshold("icmp", "flood", FLOOD),
        udp_flood: threshold("udp", "flood", FLOOD),
        syn_flood: option.path(&["tcp", "syn-flood"]).map(|flood| syn_flood(flood, report)),
        ip_sweep_us: threshold("icmp", "ip-sweep", INTERVAL_US),
        tcp_sweep_us: threshold("tcp", "tcp-sweep", INTERVAL_US),
        udp_sweep_us: threshold("udp", "udp-sweep", INTERVAL_US),
        port_scan_us: threshold("tcp", "port-scan", INTERVAL_US),
        udp_port_scan_us: threshold("udp", "port-scan", INTERVAL_US),
        spoofing: spoofing.map(|s| if s.has("zone-based") { Spoofing::Zone } else { Spoofing::Interface }),
    }
}

fn syn_flood(flood: View, report: &mut Report) -> SynFlood {
    let number = |name: &str, default: u32| flood.value(&[name]).and_then(View::number).unwrap_or(default);
    let lists: Vec<WhiteList> = flood.entries(&["white-list"]).map(|list| white_list(list, report)).collect();
    let pairs: usize = lists.iter().map(|l| l.sources.len().max(1) * l.destinations.len().max(1)).sum();
    if pairs > MAX_WHITE_PAIRS {
        let message = format!("{pairs} pairs of source and destination in the white-lists of one screen");
        report.error_help(
            &flood.location(),
            message,
            format!("at most {MAX_WHITE_PAIRS}; use larger prefixes"),
        );
    }
    SynFlood {
        alarm: number("alarm-threshold", ALARM),
        attack: number("attack-threshold", ATTACK),
        source: number("source-threshold", SOURCE),
        destination: number("destination-threshold", DESTINATION),
        timeout_s: number("timeout", TIMEOUT_S),
        white_lists: lists,
    }
}

fn white_list(view: View, report: &mut Report) -> WhiteList {
    let prefixes = |name: &str| -> Vec<Prefix> {
        view.entries(&[name]).filter_map(|entry| book_prefix(entry.word()).ok()).collect()
    };
    let (sources, destinations) = (prefixes("source-address"), prefixes("destination-address"));
    let meet = |s: &Prefix| destinations.iter().any(|d| d.addr.is_ipv4() == s.addr.is_ipv4());
    let names = |name: &str| view.entries(&[name]).next().is_some();
    if !names("source-address") && !names("destination-address") {
        let message = format!("white-list `{}` names no address", view.word());
        report.error_help(&view.location(), message, "name sources, destinations or both");
    } else if !sources.is_empty() && !destinations.is_empty() && !sources.iter().any(meet) {
        let message = format!("white-list `{}`: no source is of the family of a destination", view.word());
        report.error_help(&view.location(), message, "name prefixes of one family on both sides");
    }
    WhiteList { name: view.word().to_owned(), sources, destinations }
}
