//! `sluice show nat`: rules and pools of translation, and what they have done. `sluice test nat`: what they would do.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_control::api::nat::{
    NatBindingsView, NatMatchView, NatPoolView, NatQuery, NatRuleView, NatTargetView, NatView,
};
use sluice_control::operations::NoArguments;
use sluice_control::operations::nat::{NAT, NAT_BINDINGS};

use crate::arguments::Given;
use crate::exit::{Failure, Outcome, read};
use crate::output::{Output, print_json, table};

#[derive(Args)]
pub struct NatArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
pub enum What {
    /// Source NAT
    Source {
        #[command(subcommand)]
        part: SourceParts,
    },
    /// Destination NAT
    Destination {
        #[command(subcommand)]
        part: WithPools,
    },
    /// Static NAT and NPTv6
    Static {
        #[command(subcommand)]
        part: Rules,
    },
    /// NAT64: IPv6 clients to IPv4 servers
    Nat64 {
        #[command(subcommand)]
        part: Rules,
    },
    /// Addresses that this host answers ARP and neighbour solicitations for besides its own
    Proxy,
}

#[derive(Subcommand)]
pub enum WithPools {
    /// Rules and pools in few words
    Summary,
    /// What each rule matches and has done
    Rule {
        /// Only this rule, or the rules of this rule-set
        name: Option<String>,
    },
    /// What each pool has and how much of it is in use
    Pool {
        /// Only this pool
        name: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum SourceParts {
    #[command(flatten)]
    Common(WithPools),
    /// Inside endpoints that keep their outside ones (persistent-nat)
    PersistentNatTable {
        #[command(subcommand)]
        part: TableParts,
    },
}

#[derive(Subcommand)]
pub enum TableParts {
    /// How many bindings there are, by rule
    Summary,
    /// Every binding
    All,
}

#[derive(Subcommand)]
pub enum Rules {
    /// Rules in few words
    Summary,
    /// What each rule matches and has done
    Rule {
        /// Only this rule, or the rules of this rule-set
        name: Option<String>,
    },
}

pub fn show(args: &NatArgs, output: &Output) -> Outcome {
    if let What::Source { part: SourceParts::PersistentNatTable { part } } = &args.what {
        return output.show(&NAT_BINDINGS, &NoArguments {}, |view| print!("{}", bindings(part, &view)));
    }
    output.show(&NAT, &NoArguments {}, |nat| print!("{}", report(&args.what, &nat)))
}

pub fn report(what: &What, nat: &NatView) -> String {
    let mut out = String::new();
    match what {
        What::Source { part: SourceParts::Common(WithPools::Summary) } => {
            summary(&mut out, nat, "source");
            pool_table(&mut out, &nat.pools);
        }
        What::Source { part: SourceParts::Common(WithPools::Rule { name }) } => {
            rules(&mut out, nat, "source", name.as_deref())
        }
        What::Source { part: SourceParts::Common(WithPools::Pool { name }) } => {
            nat.pools
                .iter()
                .filter(|pool| is(name, &pool.name))
                .for_each(|pool| pool_details(&mut out, pool));
        }
        // has a view of its own
        What::Source { part: SourceParts::PersistentNatTable { .. } } => {}
        What::Destination { part: WithPools::Summary } => {
            summary(&mut out, nat, "destination");
            target_table(&mut out, &nat.destination_pools, &None);
        }
        What::Destination { part: WithPools::Rule { name } } => {
            rules(&mut out, nat, "destination", name.as_deref())
        }
        What::Destination { part: WithPools::Pool { name } } => {
            target_table(&mut out, &nat.destination_pools, name)
        }
        What::Static { part: Rules::Summary } => summary(&mut out, nat, "static"),
        What::Static { part: Rules::Rule { name } } => rules(&mut out, nat, "static", name.as_deref()),
        What::Nat64 { part: Rules::Summary } => {
            summary(&mut out, nat, "nat64");
            let lost = nat.unfragmented;
            let [late, malformed, busy, refused] = [lost.late, lost.malformed, lost.busy, lost.refused];
            let counts = format!("{late} late, {malformed} malformed, {busy} busy, {refused} refused");
            line(&mut out, format_args!("Packets that did not leave in fragments: {counts}"));
        }
        What::Nat64 { part: Rules::Rule { name } } => rules(&mut out, nat, "nat64", name.as_deref()),
        What::Proxy => {
            let rows = nat.proxied.iter().map(|p| vec![p.interface.clone(), p.addresses.clone()]);
            line(&mut out, table(&["Interface", "Addresses"], rows.collect()));
        }
    }
    out
}

fn line(out: &mut String, text: impl Display) {
    *out += &format!("{text}\n");
}

fn is(wanted: &Option<String>, name: &str) -> bool {
    wanted.as_ref().is_none_or(|wanted| wanted == name)
}

fn summary(out: &mut String, nat: &NatView, kind: &str) {
    let list: Vec<&NatRuleView> = nat.rules.iter().filter(|rule| rule.kind == kind).collect();
    let live: u64 = list.iter().map(|rule| rule.live_sessions).sum();
    line(out, format_args!("Total {kind} NAT rules: {}, live sessions: {live}", list.len()));
    let rows = list.iter().map(|rule| {
        vec![
            rule.rule_set.clone(),
            rule.name.clone(),
            between(rule),
            rule.action.clone(),
            rule.hits.to_string(),
            rule.live_sessions.to_string(),
            rule.failed.to_string(),
        ]
    });
    let header = ["Rule-set", "Rule", "Between", "Action", "Translation hits", "Sessions", "Failures"];
    line(out, table(&header, rows.collect()));
}

fn between(rule: &NatRuleView) -> String {
    match &rule.to {
        Some(to) => format!("from {} to {to}", rule.from),
        None => format!("from {}", rule.from),
    }
}

fn rules(out: &mut String, nat: &NatView, kind: &str, name: Option<&str>) {
    let wanted = |rule: &&NatRuleView| name.is_none_or(|name| name == rule.name || name == rule.rule_set);
    for rule in nat.rules.iter().filter(|rule| rule.kind == kind).filter(wanted) {
        let or_any = |list: &[String]| if list.is_empty() { "any".to_owned() } else { list.join(", ") };
        line(out, format_args!("{kind} NAT rule: {} Rule-set: {}", rule.name, rule.rule_set));
        let lines = [
            ("Rule id", rule.id.to_string()),
            ("Between", between(rule)),
            ("Source addresses", or_any(&rule.source)),
            ("Destination addresses", or_any(&rule.destination)),
            ("Applications", or_any(&rule.applications)),
            ("Action", rule.action.clone()),
            ("Translation hits", rule.hits.to_string()),
            ("Sessions", format!("{} live, {} in all", rule.live_sessions, rule.sessions)),
            ("Failed", rule.failed.to_string()),
        ];
        lines.iter().for_each(|(what, value)| line(out, format_args!("  {what:<22}: {value}")));
    }
}

fn ports(pool: &NatPoolView) -> String {
    pool.ports.map_or("no translation".to_owned(), |(low, high)| format!("{low} to {high}"))
}

fn pool_table(out: &mut String, pools: &[NatPoolView]) {
    let rows = pools.iter().map(|pool| {
        vec![
            pool.name.clone(),
            pool.addresses.join("\n"),
            ports(pool),
            pool.ports_in_use.to_string(),
            pool.addresses_in_use.to_string(),
            pool.exhausted.to_string(),
        ]
    });
    line(out, format_args!("Total source pools: {}", pools.len()));
    let header = ["Pool", "Addresses", "Ports", "Ports in use", "Addresses in use", "Exhausted"];
    line(out, table(&header, rows.collect()));
}

fn pool_details(out: &mut String, pool: &NatPoolView) {
    line(out, format_args!("Pool name: {}", pool.name));
    let none = || "none".to_owned();
    let lines = [
        ("Pool id", pool.id.to_string()),
        ("Addresses", if pool.addresses.is_empty() { none() } else { pool.addresses.join(", ") }),
        ("Total addresses", pool.total_addresses.to_string()),
        ("Host address base", pool.host_address_base.clone().unwrap_or_else(none)),
        ("Ports", ports(pool)),
        ("Address pooling", if pool.paired { "paired" } else { "no-paired" }.to_owned()),
        ("Overflow pool", pool.overflow.clone().unwrap_or_else(none)),
        ("Addresses in use", pool.addresses_in_use.to_string()),
        ("Ports in use", pool.ports_in_use.to_string()),
        ("Live sessions", pool.live_sessions.to_string()),
        ("Allocated", pool.allocated.to_string()),
        ("Exhausted", format!("{}, of them served by overflow: {}", pool.exhausted, pool.overflowed)),
        ("Candidates taken", pool.searched.to_string()),
    ];
    lines.iter().for_each(|(what, value)| line(out, format_args!("  {what:<22}: {value}")));
}

pub fn bindings(part: &TableParts, view: &NatBindingsView) -> String {
    let mut out = String::new();
    line(&mut out, format_args!("Persistent NAT bindings: {} of {}", view.bindings.len(), view.limit));
    let list = &view.bindings;
    if matches!(part, TableParts::Summary) {
        let mut rules: BTreeMap<(&str, &str), (usize, u32)> = BTreeMap::new();
        for binding in list {
            let (bindings, sessions) = rules.entry((&binding.rule, &binding.kind)).or_default();
            (*bindings, *sessions) = (*bindings + 1, *sessions + binding.sessions);
        }
        let rows = rules.into_iter().map(|((rule, kind), (bindings, sessions))| {
            vec![rule.to_owned(), kind.to_owned(), bindings.to_string(), sessions.to_string()]
        });
        line(&mut out, table(&["Source NAT rule", "Type", "Bindings", "Sessions"], rows.collect()));
        return out;
    }
    let rows = list.iter().map(|binding| {
        let left = binding.left_s.map_or("-".to_owned(), |left| left.to_string());
        vec![
            binding.internal_address.to_string(),
            binding.internal_port.to_string(),
            binding.protocol.clone(),
            binding.reflexive_address.to_string(),
            binding.reflexive_port.to_string(),
            binding.kind.clone(),
            format!("{left}/{}", binding.timeout_s),
            format!("{}/{}", binding.sessions, binding.max_sessions),
            binding.rule.clone(),
        ]
    });
    let header = [
        "Internal IP",
        "Port",
        "Protocol",
        "Reflexive IP",
        "Port",
        "Type",
        "Left/timeout s",
        "Sessions/max",
        "Source NAT rule",
    ];
    line(&mut out, table(&header, rows.collect()));
    out
}

fn target_table(out: &mut String, pools: &[NatTargetView], name: &Option<String>) {
    let rows = pools.iter().filter(|pool| is(name, &pool.name)).map(|pool| {
        let port = pool.port.map_or("unchanged".to_owned(), |port| port.to_string());
        vec![pool.name.clone(), pool.addresses.clone(), port]
    });
    line(out, table(&["Pool", "Addresses", "Port"], rows.collect()));
}

#[derive(Args)]
pub struct TestArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    packet: Given<NatQuery>,
    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

pub fn test(args: &TestArgs) -> Outcome {
    let plan = sluice_control::check(&read(&args.file)?, &args.file.display().to_string(), false)?;
    let Given(query) = &args.packet;
    let view = sluice_control::nat_planned(query, &plan).map_err(Failure::bad_input)?;
    if args.json {
        print_json(&view)?;
    } else {
        print_match(query, &view);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_match(query: &NatQuery, view: &NatMatchView) {
    let rule =
        |rule: &Option<String>| rule.as_ref().map_or("no rule".to_owned(), |rule| format!("rule {rule}"));
    println!(
        "destination: {} port {} ({})",
        view.destination,
        view.destination_port,
        rule(&view.destination_rule)
    );
    let source = match (&view.source, &view.pool) {
        (Some(source), _) => format!("{source} port {}", view.source_port.unwrap_or(query.source_port)),
        (None, Some(pool)) if pool == "interface" => format!("address of {}", query.to_interface),
        (None, Some(pool)) => format!("pool {pool}"),
        (None, None) => format!("{} port {}", query.source_ip, query.source_port),
    };
    println!("source: {source} ({})", rule(&view.source_rule));
}

#[cfg(test)]
mod tests;
