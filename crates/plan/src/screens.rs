//! Screens: which bits a unit carries, and which stages its device must run.

use std::collections::BTreeMap;

use sluice_abi as abi;
use sluice_abi::stages::{Reason, Stage};
use sluice_language::config::{Config, Screen};

/// Stages that only devices with screens run.
pub(crate) const STAGES: [Stage; 1] = [Stage::Screen];

fn reason(name: &str) -> Option<Reason> {
    Reason::ALL.into_iter().find(|reason| reason.name() == name)
}

/// `screens` of a unit whose zone has this screen.
pub(crate) fn bits(screen: &Screen) -> u32 {
    let checks = screen.checks.iter().filter_map(|name| reason(name)).map(abi::screen_bit);
    let bits = checks.fold(0, |all, bit| all | bit);
    let alarm = screen.alarm_without_drop && bits != 0;
    bits | if alarm { abi::SCREEN_ALARM_ONLY } else { 0 }
}

/// Stage mask of what the screen needs.
pub(crate) fn stage_mask(screen: &Screen) -> u32 {
    if bits(screen) != 0 { Stage::Screen.bit() } else { 0 }
}

/// `limit-session` of a zone's screen.
pub(crate) fn limits(screen: &Screen) -> abi::ZoneLimits {
    abi::ZoneLimits {
        source: screen.source_sessions.unwrap_or(0),
        destination: screen.destination_sessions.unwrap_or(0),
        alarm_only: screen.alarm_without_drop.into(),
        spare: 0,
    }
}

/// By zone id; empty when no zone has any.
pub(crate) fn zone_limits(config: &Config, zone_ids: &BTreeMap<String, u32>) -> Vec<abi::ZoneLimits> {
    let mut table = vec![];
    for zone in &config.zones {
        let screen = config.screens.iter().find(|screen| zone.screen.as_ref() == Some(&screen.name));
        let limits = screen.map(limits).unwrap_or_default();
        if limits.source != 0 || limits.destination != 0 {
            let id = zone_ids[&zone.name] as usize;
            table.resize(table.len().max(id + 1), abi::ZoneLimits::default());
            table[id] = limits;
        }
    }
    table
}

/// Names of the screens that are on, for people.
pub(crate) fn names(bits: u32) -> String {
    let on = Stage::Screen.reasons().filter(|reason| bits & abi::screen_bit(*reason) != 0);
    let mut names: Vec<&str> = on.map(Reason::name).collect();
    if bits & abi::SCREEN_ALARM_ONLY != 0 {
        names.push("alarm-without-drop");
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_language::config::SCREEN_CHECKS;

    #[test]
    fn every_check_of_the_language_is_a_screen_and_the_other_way_round() {
        let mut checks: Vec<&str> = SCREEN_CHECKS.iter().map(|(_, _, reason)| *reason).collect();
        let mut screens: Vec<&str> = Stage::Screen.reasons().map(Reason::name).collect();
        checks.sort_unstable();
        screens.sort_unstable();
        assert_eq!(checks, screens);
    }
}
