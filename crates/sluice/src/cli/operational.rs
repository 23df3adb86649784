//! The commands of operational mode.

use std::process::Command as Process;

use sluice_control::api::nat::NatBindingFilter;
use sluice_control::api::{Configuration, GtpuRemoveRequest, MatchQuery};
use sluice_control::operations::capacity::CAPACITY;
use sluice_control::operations::configuration::{CONFIGURATION, HISTORY};
use sluice_control::operations::dhcp::{
    DHCP_CLIENTS, DHCPV6_CLIENTS, RELEASE_DHCP, RELEASE_DHCPV6, RENEW_DHCP, RENEW_DHCPV6,
};
use sluice_control::operations::dhcp_server::{
    CLEAR_DHCP_BINDING, CLEAR_DHCPV6_BINDING, DHCP_SERVER, DHCPV6_SERVER,
};
use sluice_control::operations::drops::RECENT_DROPS;
use sluice_control::operations::gate::{GATE, GRANTS};
use sluice_control::operations::gtpu::{GTPU, GTPU_PEERS, GTPU_SESSIONS, GTPU_USAGE, REMOVE_GTPU_SESSIONS};
use sluice_control::operations::interfaces::INTERFACES;
use sluice_control::operations::nat::{CLEAR_NAT_BINDINGS, NAT, NAT_BINDINGS};
use sluice_control::operations::policies::{MATCH_POLICIES, POLICIES};
use sluice_control::operations::rescue::{DELETE_RESCUE, SAVE_RESCUE};
use sluice_control::operations::router_advertisement::ROUTER_ADVERTISEMENT;
use sluice_control::operations::routing::{BFD, BGP, CLEAR_BGP, OSPF, OSPF_INTERFACES, OSPF3};
use sluice_control::operations::sessions::{CLEAR_SESSIONS, LOG, SESSIONS};
use sluice_control::operations::system::{HEALTH, STATS};
use sluice_control::operations::zones::{SCREENS, ZONES};
use sluice_control::operations::{NoArguments, Role};

use super::grammar::{Argument, Command, Given, Places, Value, alone, flag, named, statement};
use super::out::{Done, Out};
use super::pipe::Form;
use super::shell::{Action, Shell};
use super::{configure, dhcp, gtpu, kernel, lan_services, logs, monitor, report, routing, sessions};
use crate::exit::Failure;
use crate::nat::{Rules, SourceParts, TableParts, What, WithPools};
use crate::{drops, gate, matching, nat, show};

const ALL: &NoArguments = &NoArguments {};

const PORT: Value = Value::Number(0, 65_535);

const PACKET: &[Argument] = &[
    named("from-zone", "Zone it arrives from", Value::Name("zone")).needed(),
    named("to-zone", "Zone it leaves to", Value::Name("zone")).needed(),
    named("source-ip", "Its source address", Value::Address).needed(),
    named("destination-ip", "Its destination address", Value::Address).needed(),
    named("protocol", "tcp, udp, icmp, icmp6 or a number", Value::Name("protocol")).needed(),
    named("source-port", "Its source port", PORT),
    named("destination-port", "Its destination port", PORT),
    named("icmp-type", "Of ICMP and ICMPv6; echo request when not given", Value::Number(0, 255)),
    named("icmp-code", "Of ICMP and ICMPv6", Value::Number(0, 255)),
];

const HOST: &[Argument] = &[
    alone("host", "Name or address", Value::Any("host")).needed(),
    named("source", "Address to send from", Value::Address),
    named("interface", "Device to send by", Value::Name("device")),
    named("count", "How many requests", Value::Number(1, 1_000_000)),
    named("size", "Bytes of data in each", Value::Number(0, 65_468)),
    flag("rapid", "Do not wait between them"),
];

const TRACED: &[Argument] = &[
    alone("host", "Name or address", Value::Any("host")).needed(),
    named("source", "Address to send from", Value::Address),
    flag("no-resolve", "Do not ask for names"),
];

const POLICY_FILTER: &[Argument] = &[
    flag("hit-count", "How often each policy decided"),
    named("from-zone", "Only from this zone", Value::Name("zone")),
    named("to-zone", "Only to this zone", Value::Name("zone")),
    named("policy-name", "Only this policy", Value::Name("policy")),
];

const INTERFACE: &[Argument] = &[
    flag("terse", "A line for each"),
    flag("extensive", "Everything that is counted"),
    alone("interface", "Only this one", Value::Name("interface")),
];

const ZONE: &[Argument] = &[alone("zone", "Only this one", Value::Name("zone"))];
const LAST: &[Argument] = &[named("last", "How many of the newest entries", Value::Number(1, 100_000))];
const FOLLOWED: Argument = alone("name", "messages, session, or the name of a file", Value::Name("log"));
const NAMED_LOG: &[Argument] = &[LAST[0], alone("name", "Name of a file", Value::Name("log-file"))];
const BINDING: &[Argument] = &[
    flag("all", "All of them"),
    named("internal-ip", "Only of this address inside", Value::Address),
    named("internal-port", "Only of this port inside", PORT),
];

macro_rules! one_of {
    ($help:literal, $kind:literal) => {
        &[flag("all", "All of them"), alone("name", $help, Value::Name($kind))]
    };
}

macro_rules! commands {
    ($($words:literal $help:literal, $arguments:expr, $class:expr => $action:expr;)*) => {
        &[$(Command { words: $words, help: $help, arguments: $arguments, class: $class, action: $action },)*]
    };
}

/// In the order of their words.
pub static COMMANDS: &[Command<Action>] = commands! {
    "clear bgp neighbor" "Begin sessions anew, or only have policies asked once more", routing::CLEARED, CLEAR_BGP.about.role => routing::clear_bgp;
    "clear dhcp server binding" "End a lease; its client does not know until it asks again", &[alone("address", "The address that is lent", Value::Address).needed()], Role::Owner => |shell, given, out| {
        lan_services::clear_binding(shell, given, out, &CLEAR_DHCP_BINDING)
    };
    "clear dhcpv6 server binding" "End a lease; its client does not know until it asks again", &[alone("address", "The address or prefix that is lent", Value::Prefix).needed()], Role::Owner => |shell, given, out| {
        lan_services::clear_binding(shell, given, out, &CLEAR_DHCPV6_BINDING)
    };
    "clear security flow session" "End sessions; their next packet must be permitted anew", sessions::FILTER, Role::Owner => clear_sessions;
    "clear security nat source persistent-nat-table" "Forget bindings of persistent-nat; sessions go on, those that began outside until routes change", BINDING, Role::Owner => clear_bindings;
    "clear services gtp-u session" "End sessions of the user plane that were made over the API", one_of!("Only this one", "gtp-u-session"), Role::Owner => clear_gtpu;
    "clear sessions" "End sessions; their next packet must be permitted anew", sessions::FILTER, Role::Owner => clear_sessions;
    "configure" "Enter configuration mode", &[flag("exclusive", "Keep others out")], Role::Owner => configure::enter;
    "configure private" "Not supported", &[], Role::Owner => configure::private;
    "exit" "Leave the shell", &[], Role::Anyone => leave;
    "help" "Show how to get help", &[], Role::Anyone => |_, _, out| out.text(HELP);
    "monitor interface traffic" "Show the traffic of all interfaces as it changes", &[], Role::Anyone => monitor::traffic;
    "monitor security packet-capture" "Show or write packets as they come and as they leave, with what became of each", monitor::CAPTURED, Role::Owner => monitor::capture;
    "monitor security packet-trace" "Show packets on their way: phases, stages, rule, translation, next hop, reason", monitor::TRACED, Role::Owner => monitor::trace;
    "monitor start" "Show what a log holds last and what comes, until Ctrl-C", &[FOLLOWED.needed()], LOG.about.role => logs::follow;
    "monitor stop" "Not needed: Ctrl-C ends what `monitor start` shows", &[], LOG.about.role => logs::stop;
    "ping" "Send echo requests to a host", HOST, Role::Group => ping;
    "quit" "Leave the shell", &[], Role::Anyone => leave;
    "request dhcp client release" "Give a lease back to its server", dhcp::OF, Role::Owner => |shell, given, out| {
        dhcp::ask(shell, given, out, &RELEASE_DHCP, "Released the lease")
    };
    "request dhcp client renew" "Ask the server at once to renew a lease, or for a new one", dhcp::OF, Role::Owner => |shell, given, out| {
        dhcp::ask(shell, given, out, &RENEW_DHCP, "Asked for the lease")
    };
    "request dhcpv6 client release" "Give addresses and prefixes back to their server", dhcp::OF, Role::Owner => |shell, given, out| {
        dhcp::ask(shell, given, out, &RELEASE_DHCPV6, "Released the lease")
    };
    "request dhcpv6 client renew" "Ask the server at once to renew addresses and prefixes, or for new ones", dhcp::OF, Role::Owner => |shell, given, out| {
        dhcp::ask(shell, given, out, &RENEW_DHCPV6, "Asked for the lease")
    };
    "request system configuration rescue delete" "Delete the rescue configuration", &[], Role::Owner => |shell, _, out| {
        let done = shell.ask(&DELETE_RESCUE, ALL)?.done;
        out.text(if done { "The rescue configuration is deleted" } else { "No rescue configuration is saved" })
    };
    "request system configuration rescue save" "Save the configuration in force as the rescue configuration", &[], Role::Owner => |shell, _, out| {
        shell.ask(&SAVE_RESCUE, ALL)?;
        out.text("The configuration in force is the rescue configuration")
    };
    "set cli screen-length" "Lines of the screen; 0 never stops", &[alone("lines", "How many", Value::Number(0, 100_000)).needed()], Role::Anyone => |shell, given, out| {
        shell.screen.0 = given.number("lines");
        out.text(&format!("Screen length set to {}\n", shell.screen().0))
    };
    "set cli screen-width" "Columns of the screen", &[alone("columns", "How many", Value::Number(40, 1024)).needed()], Role::Anyone => |shell, given, out| {
        shell.screen.1 = given.number("columns");
        out.text(&format!("Screen width set to {}\n", shell.screen().1))
    };
    "show arp" "Show the kernel's ARP table", &[], Role::Anyone => kernel::arp;
    "show bfd session" "Show BFD sessions", &[], BFD.about.role => |shell, _, out| {
        out.show(&shell.ask(&BFD, ALL)?, |list| routing::bfd(list))
    };
    "show bgp neighbor" "Show BGP neighbours in full", routing::NEIGHBORS, BGP.about.role => routing::bgp_neighbor;
    "show bgp summary" "Show BGP neighbours, a line for each", &[], BGP.about.role => routing::bgp_summary;
    "show cli" "Show properties of this shell", &[], Role::Anyone => show_cli;
    "show configuration" "Show the configuration in force", &[statement("Only this part", Places::Active)], CONFIGURATION.about.role => configuration;
    "show dhcp client binding" "Show the leases of DHCP clients", &[], DHCP_CLIENTS.about.role => |shell, _, out| {
        out.show(&shell.ask(&DHCP_CLIENTS, ALL)?, |list| dhcp::v4(list))
    };
    "show dhcp server binding" "Show which addresses the DHCP server has lent", &[], DHCP_SERVER.about.role => |shell, _, out| {
        out.show(&shell.ask(&DHCP_SERVER, ALL)?, lan_services::dhcp_server)
    };
    "show dhcpv6 client binding" "Show the addresses and prefixes of DHCPv6 clients", &[], DHCPV6_CLIENTS.about.role => |shell, _, out| {
        out.show(&shell.ask(&DHCPV6_CLIENTS, ALL)?, |list| dhcp::v6(list))
    };
    "show dhcpv6 server binding" "Show which addresses and prefixes the DHCPv6 server has lent", &[], DHCPV6_SERVER.about.role => |shell, _, out| {
        out.show(&shell.ask(&DHCPV6_SERVER, ALL)?, lan_services::dhcpv6_server)
    };
    "show drops" "Show dropped packets by stage and reason, and the conservation equations", &[], Role::Anyone => dropped;
    "show gate" "Show the gate: zones, services, how many grants", &[], GATE.about.role => gate_overview;
    "show interfaces" "Show interfaces", INTERFACE, Role::Anyone => interfaces;
    "show ipv6 neighbors" "Show the kernel's table of IPv6 neighbours", &[], Role::Anyone => kernel::neighbours;
    "show ipv6 router-advertisement" "Show what hosts are told by router advertisements", &[], Role::Anyone => |shell, _, out| {
        out.show(&shell.ask(&ROUTER_ADVERTISEMENT, ALL)?, |list| lan_services::router_advertisement(list))
    };
    "show log" "Show the session log, or a file that the configuration has written", NAMED_LOG, LOG.about.role => logs::show;
    "show log messages" "Show what the daemon has said of itself", LAST, LOG.about.role => logs::messages;
    "show log session" "Show the session log", LAST, LOG.about.role => logs::session;
    "show match-policies" "Show which policy a first packet would match", PACKET, MATCH_POLICIES.about.role => match_policies;
    "show ospf interface" "Show interfaces of OSPF", &[], OSPF_INTERFACES.about.role => |shell, _, out| {
        out.show(&shell.ask(&OSPF_INTERFACES, ALL)?, |list| routing::ospf_interfaces(list))
    };
    "show ospf neighbor" "Show neighbours of OSPF", &[], OSPF.about.role => |shell, _, out| {
        out.show(&shell.ask(&OSPF, ALL)?, |list| routing::ospf_neighbors(list))
    };
    "show ospf3 neighbor" "Show neighbours of OSPF for IPv6", &[], OSPF3.about.role => |shell, _, out| {
        out.show(&shell.ask(&OSPF3, ALL)?, |list| routing::ospf_neighbors(list))
    };
    "show pipeline" "Show the stages in the order packets walk them, with their drop reasons", &[], Role::Anyone => |_, _, out| {
        let stages = sluice_control::api::pipeline();
        out.show(&stages, |stages| show::stages(stages))
    };
    "show policies" "Show policies", POLICY_FILTER, Role::Anyone => policies;
    "show route" "Show the kernel's routes", kernel::ROUTES, Role::Anyone => kernel::routes;
    "show routing instances" "Show routing instances: tables, interfaces, and what the kernel lacks of them", &[], Role::Anyone => kernel::instances;
    "show security drops" "Show the packets that were dropped in the last minutes", &[], RECENT_DROPS.about.role => |shell, _, out| {
        out.show(&shell.ask(&RECENT_DROPS, &Default::default())?, drops::recent)
    };
    "show security flow session" "Show sessions", sessions::LISTED, SESSIONS.about.role => sessions::list;
    "show security gate" "Show the gate: zones, services, how many grants", &[], GATE.about.role => gate_overview;
    "show security gate grants" "Show grants", &[], GRANTS.about.role => grants;
    "show security match-policies" "Show which policy a first packet would match", PACKET, MATCH_POLICIES.about.role => match_policies;
    "show security nat destination pool" "Show pools", one_of!("Only this pool", "destination-pool"), Role::Anyone => |shell, given, out| {
        translation(shell, out, What::Destination { part: WithPools::Pool { name: given.get("name") } })
    };
    "show security nat destination rule" "Show what each rule matches and has done", one_of!("Only this rule or rule-set", "destination-rule"), Role::Anyone => |shell, given, out| {
        translation(shell, out, What::Destination { part: WithPools::Rule { name: given.get("name") } })
    };
    "show security nat destination summary" "Show rules and pools in few words", &[], Role::Anyone => |shell, _, out| {
        translation(shell, out, What::Destination { part: WithPools::Summary })
    };
    "show security nat nat64 rule" "Show what each rule matches and has done", one_of!("Only this rule or rule-set", "nat64-rule"), Role::Anyone => |shell, given, out| {
        translation(shell, out, What::Nat64 { part: Rules::Rule { name: given.get("name") } })
    };
    "show security nat nat64 summary" "Show rules in few words", &[], Role::Anyone => |shell, _, out| {
        translation(shell, out, What::Nat64 { part: Rules::Summary })
    };
    "show security nat proxy" "Show addresses that this host answers for besides its own", &[], Role::Anyone => |shell, _, out| {
        translation(shell, out, What::Proxy)
    };
    "show security nat source persistent-nat-table all" "Show every binding", &[], NAT_BINDINGS.about.role => |shell, _, out| {
        bindings(shell, out, TableParts::All)
    };
    "show security nat source persistent-nat-table summary" "Show how many bindings there are, by rule", &[], NAT_BINDINGS.about.role => |shell, _, out| {
        bindings(shell, out, TableParts::Summary)
    };
    "show security nat source pool" "Show what each pool has and how much of it is in use", one_of!("Only this pool", "source-pool"), Role::Anyone => |shell, given, out| {
        source(shell, out, WithPools::Pool { name: given.get("name") })
    };
    "show security nat source rule" "Show what each rule matches and has done", one_of!("Only this rule or rule-set", "source-rule"), Role::Anyone => |shell, given, out| {
        source(shell, out, WithPools::Rule { name: given.get("name") })
    };
    "show security nat source summary" "Show rules and pools in few words", &[], Role::Anyone => |shell, _, out| {
        source(shell, out, WithPools::Summary)
    };
    "show security nat static rule" "Show what each rule matches and has done", one_of!("Only this rule or rule-set", "static-rule"), Role::Anyone => |shell, given, out| {
        translation(shell, out, What::Static { part: Rules::Rule { name: given.get("name") } })
    };
    "show security nat static summary" "Show rules in few words", &[], Role::Anyone => |shell, _, out| {
        translation(shell, out, What::Static { part: Rules::Summary })
    };
    "show security policies" "Show policies", POLICY_FILTER, Role::Anyone => policies;
    "show security screen statistics" "Show how many packets each check of a screen recognised", &[named("zone", "Only this zone", Value::Name("zone"))], Role::Anyone => screens;
    "show security zones" "Show zones", ZONE, Role::Anyone => zones;
    "show services gtp-u peers" "Show the other ends of tunnels", &[], GTPU_PEERS.about.role => |shell, _, out| {
        out.show(&shell.ask(&GTPU_PEERS, ALL)?, |peers| gtpu::peers(peers))
    };
    "show services gtp-u sessions" "Show sessions of the user plane", gtpu::FILTER, GTPU_SESSIONS.about.role => |shell, given, out| {
        out.show(&shell.ask(&GTPU_SESSIONS, &gtpu::filter(given))?, gtpu::sessions)
    };
    "show services gtp-u statistics" "Show how many sessions there are, where tunnels end, pools and drops", &[], Role::Anyone => |shell, _, out| {
        out.show(&shell.ask(&GTPU, ALL)?, gtpu::statistics)
    };
    "show services gtp-u usage" "Show what passed of sessions, and their quotas", gtpu::FILTER, GTPU_USAGE.about.role => |shell, given, out| {
        out.show(&shell.ask(&GTPU_USAGE, &gtpu::filter(given))?, gtpu::usage)
    };
    "show sessions" "Show sessions", sessions::LISTED, SESSIONS.about.role => sessions::list;
    "show system capacity" "Show how full the tables of the data plane are", &[], CAPACITY.about.role => |shell, _, out| {
        out.show(&shell.ask(&CAPACITY, ALL)?, |tables| report::capacity(tables))
    };
    "show system commit" "Show the commits of the history", &[], HISTORY.about.role => |shell, _, out| {
        out.show(&shell.ask(&HISTORY, ALL)?, |commits| report::commits(commits))
    };
    "show system information" "Show what this system is", &[], Role::Anyone => information;
    "show system uptime" "Show how long the system and the daemon run", &[], Role::Anyone => uptime;
    "show version" "Show the version of this program and of the daemon", &[], Role::Anyone => version;
    "show zones" "Show zones", ZONE, Role::Anyone => zones;
    "test policy" "Show which policy a first packet would match", PACKET, MATCH_POLICIES.about.role => match_policies;
    "traceroute" "Show the way to a host", TRACED, Role::Group => traceroute;
};

const HELP: &str = "\
?        what may follow what has been typed so far; also in the middle of a word
Tab      completes a word, the space bar too where only one can be meant
Ctrl-C   ends the command that runs, or gives the line up
Up, Ctrl-R   lines typed before
|        pipes the answer: match, except, find, count, last, save, display json, no-more
Words may be shortened as long as no other is meant: `sh sec fl se` is `show security flow session`.
";

fn leave(shell: &mut Shell, _: &Given, _: &mut Out) -> Done {
    shell.is_over = true;
    Ok(())
}

fn show_cli(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    let (length, width) = shell.screen();
    out.text(&format!(
        "CLI screen length set to {length}\nCLI screen width set to {width}\nUser {}, class {}\n",
        shell.user,
        super::grammar::class_name(shell.class)
    ))
}

fn clear_sessions(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let body = serde_json::to_string(&sessions::filter(given)).map_err(Failure::failed)?;
    let done = shell.order(&CLEAR_SESSIONS, ALL, &body)?;
    out.show(&done, |done| format!("{} active sessions cleared", done.cleared))
}

fn clear_gtpu(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let (name, all) = (given.get("name"), given.has("all"));
    let request = GtpuRemoveRequest { name, all, ..Default::default() };
    let body = serde_json::to_string(&request).map_err(Failure::failed)?;
    out.show(&shell.order(&REMOVE_GTPU_SESSIONS, ALL, &body)?, gtpu::removed)
}

fn clear_bindings(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let filter = NatBindingFilter {
        internal_address: given.number("internal-ip"),
        internal_port: given.number("internal-port"),
    };
    let body = serde_json::to_string(&filter).map_err(Failure::failed)?;
    let done = shell.order(&CLEAR_NAT_BINDINGS, ALL, &body)?;
    out.show(&done, |done| format!("{} bindings cleared", done.cleared))
}

fn configuration(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    out.takes(&[Form::Text, Form::Json, Form::Set, Form::Inheritance])?;
    let configuration = shell.ask(&CONFIGURATION, ALL)?;
    if out.form == Form::Json {
        return out.show(&configuration, |_| String::new());
    }
    let Configuration { text, file, .. } = configuration;
    let text = report::configuration(&text, &file, &given.path, out.form)?;
    out.lines(&text)
}

fn dropped(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.show(&shell.ask(&STATS, ALL)?, drops::by_reason)
}

fn gate_overview(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.show(&shell.ask(&GATE, ALL)?, gate::overview)
}

fn grants(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.show(&shell.ask(&GRANTS, &Default::default())?, gate::grants)
}

fn interfaces(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let mut list = shell.ask(&INTERFACES, ALL)?;
    if let Some(name) = given.get("interface") {
        list.retain(|interface| interface.name == name || interface.physical == name);
        if list.is_empty() {
            let why =
                format!("interface {name} is not configured; `show interfaces terse` lists those that are");
            return Err(Failure::bad_input(why).into());
        }
    }
    match (given.has("terse"), given.has("extensive")) {
        (true, true) => Err(Failure::bad_input("terse and extensive exclude each other").into()),
        (true, false) => out.show(&list, |list| report::terse(list)),
        (false, is_extensive) => out.show(&list, |list| report::interfaces(list, is_extensive)),
    }
}

fn match_policies(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let word = |name: &str| given.get(name).unwrap_or_default();
    let query = MatchQuery {
        from_zone: word("from-zone"),
        to_zone: word("to-zone"),
        source_ip: word("source-ip"),
        destination_ip: word("destination-ip"),
        protocol: word("protocol"),
        source_port: given.number("source-port"),
        destination_port: given.number("destination-port"),
        icmp_type: given.number("icmp-type"),
        icmp_code: given.number("icmp-code"),
    };
    out.show(&shell.ask(&MATCH_POLICIES, &query)?, matching::describe)
}

fn policies(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let mut list = shell.ask(&POLICIES, ALL)?;
    let passes = |name: &str, value: &str| given.get(name).is_none_or(|wanted| wanted == value);
    list.retain(|policy| {
        passes("from-zone", &policy.from_zone)
            && passes("to-zone", &policy.to_zone)
            && passes("policy-name", &policy.name)
    });
    match given.has("hit-count") {
        true => out.show(&list, |list| report::hit_count(list)),
        false => out.show(&list, |list| report::policies(list)),
    }
}

fn translation(shell: &mut Shell, out: &mut Out, what: What) -> Done {
    out.show(&shell.ask(&NAT, ALL)?, |view| nat::report(&what, view))
}

fn source(shell: &mut Shell, out: &mut Out, part: WithPools) -> Done {
    translation(shell, out, What::Source { part: SourceParts::Common(part) })
}

fn bindings(shell: &mut Shell, out: &mut Out, part: TableParts) -> Done {
    out.show(&shell.ask(&NAT_BINDINGS, ALL)?, |view| nat::bindings(&part, view))
}

fn screens(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let zone = given.get("zone");
    out.show(&shell.ask(&SCREENS, ALL)?, |list| show::screens(list, zone.as_deref()))
}

fn zones(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let mut list = shell.ask(&ZONES, ALL)?;
    if let Some(name) = given.get("zone") {
        list.retain(|zone| zone.name == name);
        if list.is_empty() {
            let why = format!("zone {name} is not configured; `show security zones` lists those that are");
            return Err(Failure::bad_input(why).into());
        }
    }
    out.show(&list, |list| report::zones(list))
}

fn information(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.show(&shell.ask(&HEALTH, ALL)?, show::system)
}

fn uptime(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    let health = shell.ask(&HEALTH, ALL)?;
    out.show(&health, report::uptime)
}

fn version(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    match shell.ask(&HEALTH, ALL) {
        Ok(health) => out.show(&health, show::running),
        Err(_) => out.text(&format!("sluice {}\nno daemon answers\n", env!("CARGO_PKG_VERSION"))),
    }
}

fn ping(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let mut process = Process::new("ping");
    for (name, option) in [("count", "-c"), ("size", "-s"), ("source", "-I"), ("interface", "-I")] {
        if let Some(value) = given.get(name) {
            process.args([option, &value]);
        }
    }
    if given.has("rapid") {
        process.args(["-i", "0.2"]);
    }
    if !given.has("count") && !out.is_terminal {
        // nobody is there to end it
        process.args(["-c", "5"]);
    }
    kernel::run(shell, process.arg("--").arg(given.get("host").unwrap_or_default()), out)
}

fn traceroute(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let mut process = Process::new("traceroute");
    if let Some(source) = given.get("source") {
        process.args(["-s", &source]);
    }
    if given.has("no-resolve") {
        process.arg("-n");
    }
    kernel::run(shell, process.arg("--").arg(given.get("host").unwrap_or_default()), out)
}

#[cfg(test)]
mod tests {
    use super::super::grammar::{Position, Wrong};
    use super::super::known::tests::Nothing;
    use super::super::words::Line;
    use super::*;

    fn read(line: &str) -> Result<(&'static str, Given), Wrong> {
        let line = Line::read(line);
        let position =
            Position::of(COMMANDS, COMMANDS, &line.parts[0], &Nothing).map_err(|(_, wrong)| wrong)?;
        position.finish(&Nothing).map(|(command, given)| (command.words, given))
    }

    #[test]
    fn commands_are_distinct_sorted_and_explained() {
        let words: Vec<&str> = COMMANDS.iter().map(|command| command.words).collect();
        assert!(words.is_sorted_by(|a, b| a < b), "{words:?}");
        for command in COMMANDS {
            assert!(!command.help.ends_with('.') && !command.help.is_empty(), "{}", command.words);
            for (end, _) in command.words.match_indices(' ') {
                let group = &command.words[..end];
                let is_command = words.contains(&group);
                assert!(is_command || super::super::help::of_words(group).is_some(), "{group} has no help");
            }
        }
    }

    #[test]
    fn keywords_may_be_shortened() {
        assert_eq!(read("sh sec fl se").unwrap().0, "show security flow session");
        let (words, given) = read("show sec flow sess source-pre 10.0.1.0/24 prot tcp").unwrap();
        assert_eq!(words, "show security flow session");
        assert_eq!(given.get("source-prefix").as_deref(), Some("10.0.1.0/24"));
        assert_eq!(given.get("protocol").as_deref(), Some("tcp"));
        assert!(read("sh int te").unwrap().1.has("terse"));
        assert_eq!(read("show interfaces wan0.0").unwrap().1.get("interface").as_deref(), Some("wan0.0"));
        assert_eq!(read("show log").unwrap().0, "show log");
        assert_eq!(read("show log mess last 3").unwrap().1.number::<u32>("last"), Some(3));
    }

    #[test]
    fn wrong_words_are_told_apart() {
        assert!(matches!(read("show bananas"), Err(Wrong::Unknown(_))));
        assert!(matches!(read("show se"), Err(Wrong::Ambiguous(choices)) if choices.len() == 3));
        assert!(matches!(read("show"), Err(Wrong::Short(_))));
        assert!(matches!(read("show security flow session source-port 70000"), Err(Wrong::Value(_))));
        assert!(matches!(read("show security flow session source-port"), Err(Wrong::Short(_))));
        assert!(matches!(read("show security flow session tcp"), Err(Wrong::Unknown(_))));
        assert!(matches!(read("test policy from-zone a"), Err(Wrong::Short(_))));
        assert!(matches!(read("show version now"), Err(Wrong::Unknown(choices)) if choices.len() == 1));
    }
}
