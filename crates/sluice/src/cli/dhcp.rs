//! `show dhcp client binding`, `show dhcpv6 client binding` and `request dhcp client`, in words.

use sluice_control::api::{DhcpBinding, DhcpDone, DhcpRequest, Dhcpv6Binding, Dhcpv6Given};
use sluice_control::operations::{NoArguments, Operation};

use super::grammar::{Argument, Given, Value, named};
use super::out::{Done, Out};
use super::shell::Shell;
use crate::exit::Failure;

/// Whose client is asked.
pub const OF: &[Argument] =
    &[named("interface", "Of this interface and unit", Value::Name("interface")).needed()];

/// Has a client do something at once.
pub fn ask(
    shell: &mut Shell,
    given: &Given,
    out: &mut Out,
    operation: &Operation<NoArguments, DhcpDone>,
    what: &str,
) -> Done {
    let request = DhcpRequest { interface: given.get("interface").unwrap_or_default() };
    let body = serde_json::to_string(&request).map_err(Failure::failed)?;
    out.show(&shell.order(operation, &NoArguments {}, &body)?, |done| match done.done {
        true => format!("{what} of {}\n", done.interface),
        false => format!("There is no lease on {}\n", done.interface),
    })
}

/// A line of a binding; none where there is nothing to say.
fn line(name: &str, value: Option<String>) -> String {
    value.filter(|value| !value.is_empty()).map_or_else(String::new, |value| format!("  {name:<16}{value}\n"))
}

fn seconds(left: Option<u32>, bound: bool) -> Option<String> {
    match left {
        Some(left) => Some(format!("{left} s")),
        None => bound.then(|| "never".to_owned()),
    }
}

fn joined<T: ToString>(list: &[T]) -> Option<String> {
    Some(list.iter().map(T::to_string).collect::<Vec<_>>().join(" "))
}

/// Clients of DHCP.
pub fn v4(list: &[DhcpBinding]) -> String {
    let one = |b: &DhcpBinding| {
        let is_bound = b.address.is_some();
        let route = |r: &sluice_control::api::DhcpRouteView| format!("{} via {}", r.destination, r.gateway);
        let routes: Vec<String> = b.routes.iter().map(route).collect();
        [
            format!("{}: {}\n", b.interface, b.state),
            line("Address", b.address.clone()),
            line("Server", b.server.map(|server| server.to_string())),
            line("Lease ends", seconds(b.left_s, is_bound)),
            line("Renewed (T1)", seconds(b.renew_s, is_bound)),
            line("Rebound (T2)", seconds(b.rebind_s, is_bound)),
            line("Routes", Some(routes.join(", "))),
            line("Name servers", joined(&b.name_servers)),
            line("Note", b.note.clone()),
        ]
        .concat()
    };
    list.iter().map(one).collect()
}

/// Clients of DHCPv6.
pub fn v6(list: &[Dhcpv6Binding]) -> String {
    let given = |given: &Option<Dhcpv6Given>| {
        let given = given.as_ref()?;
        let times = [given.preferred_s, given.valid_s].map(|left| seconds(left, true).unwrap_or_default());
        Some(format!("{}, preferred {}, valid {}", given.prefix, times[0], times[1]))
    };
    let one = |b: &Dhcpv6Binding| {
        let is_bound = b.address.is_some() || b.prefix.is_some();
        let sub_prefix = |s: &sluice_control::api::Dhcpv6SubPrefix| {
            let state = if s.deprecated { " (deprecated)" } else { "" };
            line("Sub-prefix", Some(format!("{} {}{state}", s.device, s.address)))
        };
        [
            format!("{}: {}\n", b.interface, b.state),
            line("Address", given(&b.address)),
            line("Prefix", given(&b.prefix)),
            b.sub_prefixes.iter().map(sub_prefix).collect(),
            line("Server", b.server.clone()),
            line("Renewed (T1)", seconds(b.renew_s, is_bound)),
            line("Rebound (T2)", seconds(b.rebind_s, is_bound)),
            line("Name servers", joined(&b.name_servers)),
            line("Note", b.note.clone()),
        ]
        .concat()
    };
    list.iter().map(one).collect()
}
