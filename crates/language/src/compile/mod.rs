//! From the tree to the typed configuration: names are resolved, sets flattened, contradictions refused.

mod address_book;
mod applications;
mod dhcp;
mod dhcp_server;
mod fan_out;
mod gate;
mod gtpu;
mod gtpu_flows;
mod instances;
mod interfaces;
mod leaks;
mod log;
mod nat;
mod nesting;
mod policies;
mod protocols;
mod router_advertisement;
mod routing;
mod schedulers;
mod screens;
mod syslog;
mod view;
mod zones;

use std::collections::HashSet;

use crate::check;
use crate::config::{Config, FlowOptions, HookMode, Service, System};
use crate::error::{Errors, Report, closest};
use crate::groups;
use crate::tree::Tree;
use view::View;

pub(crate) use dhcp::SAME_DEFAULT_ROUTE;
pub(crate) use instances::unfit_name;
pub(crate) use protocols::HIDDEN;

/// Compiles the active statements of a tree, or says everything that is wrong with them.
pub fn compile(tree: &Tree) -> Result<Config, Errors> {
    let mut report = Report::default();
    check::check(tree, &mut report);
    let config = typed(tree, &mut report);
    report.finish(config)
}

/// What a tree means; `report` says what is wrong with names and numbers.
pub(crate) fn typed(tree: &Tree, report: &mut Report) -> Config {
    let inherited = groups::inherit(tree, report);
    let top = View::top(inherited.as_ref().unwrap_or(tree));
    let instances = instances::Instances::new(top);
    let interfaces = interfaces::compile(top, default_mode(top), &instances, report);
    let screens = screens::compile(top, report);
    let (zones, management) = zones::compile(top, &interfaces, &screens, report);
    let addresses = address_book::compile(top, &zones, report);
    let applications = applications::compile(top, report);
    let schedulers = schedulers::compile(top, report);
    let names = policies::Names {
        zones: &zones,
        addresses: &addresses,
        applications: &applications,
        schedulers: &schedulers,
    };
    let policies = policies::compile(top, &names, report);
    let gate = gate::compile(top, &interfaces, &zones, report);
    let subnets = instances.subnets(&interfaces);
    let main =
        routing::Table { instance: None, interfaces: &interfaces, instances: &instances, subnets: &subnets };
    let static_routes = routing::compile(top, &main, report);
    let (routing_instances, leaks) = instances::compile(top, &main, report);
    leaks::refuse_circles(&main, &static_routes, (&routing_instances, &leaks), report);
    let static_routes = static_routes.all;
    dhcp::default_routes_are_distinct(top, &interfaces, &static_routes, report);
    let fan_out = fan_out::compile(top, &interfaces, report);
    fan_out::refuse_before_gate(top, &fan_out, &zones, &gate, report);
    let names = nat::Names {
        instances: &instances,
        instance_routes: &routing_instances,
        interfaces: &interfaces,
        zones: &zones,
        addresses: &addresses,
        applications: &applications,
        routes: &static_routes,
    };
    let around = gtpu::Around { interfaces: &interfaces, zones: &zones, gate: &gate, fan_out: &fan_out };
    let gtp_u = gtpu::compile(top, &around, report);
    let dhcp_server = dhcp_server::compile(top, &interfaces, report);
    let router_advertisement = router_advertisement::compile(top, &interfaces, &zones, report);
    let log = log::compile(top, report);
    let protocols = protocols::compile(top, &interfaces, &instances, report);
    let nat = nat::compile(top, &names, report);
    let config = Config {
        system: System {
            host_name: top.value(&["system", "host-name"]).map(|name| name.word().to_owned()),
            syslog: syslog::compile(top, report),
        },
        interfaces,
        zones,
        management,
        screens,
        policies: policies.pairs,
        global_policies: policies.global,
        default_permit: policies.default_permit,
        static_routes,
        routing_instances,
        flow: flow(top),
        log,
        nat,
        schedulers,
        fan_out,
        gate,
        gtp_u,
        protocols,
        dhcp_server,
        router_advertisement,
    };
    instances::fit(top, &config, report);
    config
}

fn default_mode(top: View) -> HookMode {
    top.value(&["system", "services", "sluice", "mode"]).map_or(HookMode::Auto, interfaces::mode)
}

fn flow(top: View) -> FlowOptions {
    let number = |name| top.value(&["security", "flow", name]).and_then(View::number);
    let nested = |path: &[&str]| {
        top.path(&["security", "flow"]).and_then(|flow| flow.value(path)).and_then(View::number)
    };
    let has = |path: &[&str]| top.path(&["security", "flow"]).is_some_and(|flow| flow.path(path).is_some());
    let mss = top.value(&["security", "flow", "tcp-mss", "all-tcp", "mss"]).and_then(View::number);
    FlowOptions {
        max_sessions: number("max-sessions"),
        max_sessions_v6: number("max-sessions-v6"),
        tcp_mss: mss,
        max_unanswered: number("max-unanswered"),
        early_ageout_s: nested(&["aging", "early-ageout"]),
        high_watermark: nested(&["aging", "high-watermark"]),
        low_watermark: nested(&["aging", "low-watermark"]),
        no_sequence_check: has(&["tcp-session", "no-sequence-check"]),
        reverse_across_zones: has(&["allow-reverse-across-zones"]),
        tcp_initial_timeout_s: nested(&["tcp-session", "tcp-initial-timeout"]),
        time_wait_timeout_s: nested(&["tcp-session", "time-wait-state", "session-timeout"]),
        time_wait_half_closed: has(&["tcp-session", "time-wait-state", "apply-to-half-close-state"]),
        udp_timeout_s: number("udp-timeout"),
        icmp_timeout_s: number("icmp-timeout"),
        ip_timeout_s: number("ip-timeout"),
    }
}

/// What an application or a set of them stands for, the predefined ones included; None = there is no such name.
pub fn application(tree: &Tree, name: &str) -> Option<Vec<Service>> {
    let mut report = Report::default();
    let inherited = groups::inherit(tree, &mut report);
    let top = View::top(inherited.as_ref().unwrap_or(tree));
    applications::compile(top, &mut report).services.remove(name)
}

/// Reports a name that leads nowhere: it does not exist, or only as an inactive statement.
fn undefined<'a>(
    report: &mut Report,
    view: View,
    what: &str,
    known: impl IntoIterator<Item = &'a str>,
    inactive: &HashSet<&str>,
) {
    let name = view.word();
    let message = format!("{what} `{name}` in `{}` is not defined", view.above().context());
    let help = if inactive.contains(name) {
        "it is inactive; activate it, or remove this use of it".to_owned()
    } else if let Some(close) = closest(name, known) {
        format!("did you mean `{close}`?")
    } else {
        "define it, or correct the name".to_owned()
    };
    report.error_help(&view.location(), message, help);
}
