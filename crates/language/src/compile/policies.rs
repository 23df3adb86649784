//! `security policies`: names become addresses and terms, in the order of the text.

use std::collections::HashSet;

use super::address_book::AddressBooks;
use super::applications::{Applications, distinct};
use super::interfaces::text;
use super::undefined;
use super::view::View;
use crate::config::{Action, AddressMatch, ApplicationMatch, Policy, PolicySet, Ranges, Scheduler, Zone};
use crate::error::Report;
use crate::schema::kind::book_prefix;

/// What policies may refer to.
pub(super) struct Names<'a> {
    pub zones: &'a [Zone],
    pub addresses: &'a AddressBooks<'a>,
    pub applications: &'a Applications<'a>,
    pub schedulers: &'a [Scheduler],
}

pub(super) struct Policies {
    pub pairs: Vec<PolicySet>,
    pub global: Vec<Policy>,
    pub default_permit: bool,
}

pub(super) fn compile(top: View, names: &Names, report: &mut Report) -> Policies {
    let inactive_zones: HashSet<&str> = top.inactive_names(&["security", "zones", "security-zone"]).collect();
    let inactive = Inactive {
        zones: inactive_zones,
        schedulers: top.inactive_names(&["schedulers", "scheduler"]).collect(),
    };
    let mut pairs = Vec::new();
    for from in top.entries(&["security", "policies", "from-zone"]) {
        zone(from, names, &inactive.zones, report);
        for to in from.entries(&["to-zone"]) {
            zone(to, names, &inactive.zones, report);
            pairs.push(PolicySet {
                from_zone: from.word().to_owned(),
                to_zone: to.word().to_owned(),
                policies: policies(to, Some((from.word(), to.word())), names, &inactive, report),
            });
        }
    }
    let global = top.path(&["security", "policies", "global"]);
    Policies {
        pairs,
        global: global.map(|global| policies(global, None, names, &inactive, report)).unwrap_or_default(),
        default_permit: default_permit(top, report),
    }
}

fn default_permit(top: View, report: &mut Report) -> bool {
    let Some(default) = top.path(&["security", "policies", "default-policy"]) else { return false };
    if let (true, Some(deny)) = (default.has("permit-all"), default.child("deny-all")) {
        let message = "`default-policy` has both `permit-all` and `deny-all`";
        report.error_help(&deny.location(), message, "keep one");
    }
    default.has("permit-all")
}

fn zone(name: View, names: &Names, inactive: &HashSet<&str>, report: &mut Report) {
    if name.word() == "junos-host" {
        report.error_help(
            &name.location(),
            "policies from and to `junos-host` are not supported by Sluice",
            "what may reach the gateway is set by `host-inbound-traffic` of zones and their interfaces",
        );
    } else if !names.zones.iter().any(|zone| zone.name == name.word()) {
        undefined(report, name, "zone", names.zones.iter().map(|zone| zone.name.as_str()), inactive);
    }
}

/// From-zone and to-zone of a policy; global ones have none.
type Pair<'a> = Option<(&'a str, &'a str)>;

/// Names that exist, but are inactive.
struct Inactive<'a> {
    zones: HashSet<&'a str>,
    schedulers: HashSet<&'a str>,
}

fn policies(
    context: View,
    pair: Pair,
    names: &Names,
    inactive: &Inactive,
    report: &mut Report,
) -> Vec<Policy> {
    let entries = context.entries(&["policy"]);
    entries.filter_map(|entry| policy(entry, pair, names, inactive, report)).collect()
}

/// Zones of a global policy.
fn zones(view: View, side: &str, names: &Names, inactive: &Inactive, report: &mut Report) -> Vec<String> {
    let members: Vec<View> = view.entries(&["match", side]).collect();
    let any = members.iter().find(|member| member.word() == "any");
    match any {
        Some(any) if members.len() > 1 => {
            let message = format!("`any` stands beside other zones in `{}`", any.above().context());
            report.error_help(&any.location(), message, "keep `any` alone, or only the others");
        }
        Some(_) => return Vec::new(),
        None => members.iter().for_each(|member| zone(*member, names, &inactive.zones, report)),
    }
    members.iter().map(|member| member.word().to_owned()).collect()
}

fn scheduler(view: View, names: &Names, inactive: &Inactive, report: &mut Report) -> Option<String> {
    let name = view.value(&["scheduler-name"])?;
    if !names.schedulers.iter().any(|scheduler| scheduler.name == name.word()) {
        let known = names.schedulers.iter().map(|scheduler| scheduler.name.as_str());
        undefined(report, name, "scheduler", known, &inactive.schedulers);
    }
    Some(name.word().to_owned())
}

fn policy(view: View, pair: Pair, names: &Names, inactive: &Inactive, report: &mut Report) -> Option<Policy> {
    for part in ["source-address", "destination-address", "application"] {
        // A part without a value is reported by the schema.
        if view.path(&["match", part]).is_none() {
            report.error_help(
                &view.location(),
                format!("`{}` has no `match {part}`", view.context()),
                format!("add one, such as `match {part} any`"),
            );
        }
    }
    let action = action(view, report);
    let then = |words: &[&str]| view.child("then").and_then(|then| then.path(words)).is_some();
    Some(Policy {
        name: view.word().to_owned(),
        description: text(view, "description"),
        from_zones: zones(view, "from-zone", names, inactive, report),
        to_zones: zones(view, "to-zone", names, inactive, report),
        scheduler: scheduler(view, names, inactive, report),
        active: true,
        source: addresses(view, "source-address", pair.map(|pair| pair.0), names, report),
        destination: addresses(view, "destination-address", pair.map(|pair| pair.1), names, report),
        application: applications(view, names, report),
        action: action?,
        log_init: then(&["log", "session-init"]),
        log_close: then(&["log", "session-close"]),
        count: then(&["count"]),
    })
}

fn action(policy: View, report: &mut Report) -> Option<Action> {
    let actions = [("permit", Action::Permit), ("deny", Action::Deny), ("reject", Action::Reject)];
    let mut found: Option<(&str, Action)> = None;
    for child in policy.entries(&["then"]) {
        let Some((name, action)) = actions.iter().find(|(name, _)| *name == child.word()) else { continue };
        if let Some((first, _)) = found {
            let message = format!("`{}` has both `{first}` and `{name}`", policy.context());
            report.error_help(&child.location(), message, "keep one");
        }
        found.get_or_insert((name, *action));
    }
    if found.is_none() {
        report.error_help(
            &policy.location(),
            format!("`{}` has no action", policy.context()),
            "add `then permit`, `then deny` or `then reject`",
        );
    }
    found.map(|(_, action)| action)
}

fn addresses(
    policy: View,
    part: &str,
    zone: Option<&str>,
    names: &Names,
    report: &mut Report,
) -> AddressMatch {
    let mut ranges = Ranges::default();
    let mut any = false;
    for member in policy.entries(&["match", part]) {
        match member.word() {
            "any" => any = true,
            "any-ipv4" => ranges.add(&Ranges::all_v4()),
            "any-ipv6" => ranges.add(&Ranges::all_v6()),
            name => match names.addresses.find(zone, name) {
                Some(known) => ranges.add(known),
                None if book_prefix(name).is_ok() => report.error_help(
                    &member.location(),
                    format!("`{name}` is an address; policies take names from the address book"),
                    format!("add `security address-book global address NAME {name}` and use NAME here"),
                ),
                None => names.addresses.undefined(report, member, zone),
            },
        }
    }
    ranges.normalise();
    let excluded = policy.path(&["match", &format!("{part}-excluded")]);
    if let Some(flag) = excluded
        && (any || !ranges.is_empty() && ranges.complement().is_empty())
    {
        report.error_help(
            &flag.location(),
            format!("`{}` leaves no {part} to match", flag.context()),
            format!("name the addresses to exclude in `{part}`, or remove `{part}-excluded`"),
        );
    }
    match any {
        true => AddressMatch::Any,
        false => AddressMatch::Ranges { v4: ranges.v4, v6: ranges.v6, excluded: excluded.is_some() },
    }
}

fn applications(policy: View, names: &Names, report: &mut Report) -> ApplicationMatch {
    let mut terms = Vec::new();
    let mut any = None;
    let members: Vec<View> = policy.entries(&["match", "application"]).collect();
    for member in &members {
        match (member.word(), names.applications.services.get(member.word())) {
            ("any", _) => any = Some(*member),
            (_, Some(services)) => terms.extend(services.iter().cloned()),
            (_, None) => names.applications.undefined(report, *member, "application", |_| true),
        }
    }
    if let Some(any) = any.filter(|_| members.len() > 1) {
        let message = format!("`any` stands beside other applications in `{}`", any.above().context());
        report.error_help(&any.location(), message, "keep `any` alone, or only the others");
    }
    if any.is_some() { ApplicationMatch::Any } else { ApplicationMatch::Services(distinct(terms)) }
}
